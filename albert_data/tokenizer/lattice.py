"""Segment chunks with a unigram model, and tell how close the second best segmentation comes to the best.

The same choice as SentencePiece's, in float64: where the two best are further apart than its rounding, its
choice is this one. Where they are not, the caller asks SentencePiece.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from albert_data.kernels import I64, Pointer, helper, item, kernel, pointer, put
from albert_data.tokenizer.trie import NUM_HEADS, Trie, point_to_trie, read_entry, step
from albert_data.utf8 import read_character


class Lattice(NamedTuple):
    """Room for a chunk: the scores of the best two ways to each byte, and the last piece of the best."""

    best: np.ndarray
    second: np.ndarray
    starts: np.ndarray
    pieces: np.ndarray


def make_lattice(length: int) -> Lattice:
    """Room for chunks of so many bytes."""
    return Lattice(
        np.empty(length + 1), np.empty(length + 1), np.empty(length + 1, np.int64), np.empty(length + 1, np.int32)
    )


@helper
def point_to_lattice(lattice: Lattice) -> Lattice:
    return Lattice(pointer(lattice.best), pointer(lattice.second), pointer(lattice.starts), pointer(lattice.pieces))


@helper
def segment_chunk(text: Pointer, length: int, trie: Trie, lattice: Lattice, ids: Pointer) -> tuple[int, int]:
    """The best segmentation of normalised text, unknown characters in a row as one. trie, lattice: of pointers.

    Writes the ids (int32). Returns how many, and the limit up to which they are certain (`find_limit`).
    """
    put(lattice.best, 0, 0.0)
    put(lattice.second, 0, -np.inf)
    for at in range(1, length + 1):
        put(lattice.best, at, -np.inf)
        put(lattice.second, at, -np.inf)
    start, num_characters = 0, 0
    while start < length:
        best, second = item(lattice.best, start), item(lattice.second, start)
        code, next_start = read_character(text, start)
        node, piece, end, has_single = trie.root, -1, start, False
        if code < NUM_HEADS:
            node, piece = read_entry(item(trie.heads, code))
            end = next_start
        while True:
            if piece >= 0:
                has_single = has_single or end == next_start
                score = item(trie.scores, piece)
                extend(lattice, start, end, piece, best + score, second + score)
            if end == length:
                break
            node, piece = step(trie.entries, node, I64(item(text, end)))
            if node < 0:
                break
            end += 1
        if not has_single:
            unknown: Any = np.int32(trie.unk_id)
            extend(lattice, start, next_start, unknown, best + trie.unknown_score, second + trie.unknown_score)
        start = next_start
        num_characters += 1
    count, pieces, end, has_unknown = 0, 0, length, False
    while end > 0:
        piece = item(lattice.pieces, end)
        if piece != trie.unk_id or count == 0 or item(ids, count - 1) != piece:
            put(ids, count, piece)
            count += 1
        has_unknown = has_unknown or piece == trie.unk_id
        pieces += 1
        end = item(lattice.starts, end)
    for i in range(count // 2):
        one, other = item(ids, i), item(ids, count - 1 - i)
        put(ids, i, other)
        put(ids, count - 1 - i, one)
    if has_unknown and trie.unknown_is_whole:
        return count, 0
    return count, find_limit(item(lattice.best, length) - item(lattice.second, length), pieces + num_characters)


@helper
def extend(lattice: Lattice, start: int, end: int, piece: int, best: float, second: float) -> None:
    """Extend the two best ways to `start` by a piece that ends at `end`."""
    there = item(lattice.best, end)
    if best > there:
        put(lattice.second, end, max(there, second))
        put(lattice.best, end, best)
        put(lattice.starts, end, start)
        put(lattice.pieces, end, piece)
    else:
        put(lattice.second, end, max(item(lattice.second, end), best))


@helper
def find_limit(margin: float, additions: int) -> int:
    """The score of a sentence (up to 2^31) up to which rounding can't decide between two choices.

    margin: how much their scores differ; additions: how many scores they sum. See cuts.py.
    """
    return int(min(margin * 2.0**24 / max(additions, 1), 2.0**31))


def segment(text: np.ndarray, offsets: np.ndarray, trie: Trie) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Segment each slice of normalised text.

    Returns ids (int32), how many each has (int64), and the limit of each (int64, find_limit).
    """
    lattice = make_lattice(int(np.diff(offsets).max(initial=0)))
    ids = np.empty(len(text), np.int32)
    lengths, limits = np.empty(len(offsets) - 1, np.int64), np.empty(len(offsets) - 1, np.int64)
    filled = segment_slices(text, offsets, trie, lattice, ids, lengths, limits)
    return ids[:filled], lengths, limits


@kernel
def segment_slices(
    text: np.ndarray,
    offsets: np.ndarray,
    trie: Trie,
    lattice: Lattice,
    ids: np.ndarray,
    lengths: np.ndarray,
    limits: np.ndarray,
) -> int:
    """Fill in what `segment` returns, and return the number of ids."""
    pieces, room, filled = point_to_trie(trie), point_to_lattice(lattice), 0
    for i in range(len(lengths)):
        chunk = text[offsets[i] : offsets[i + 1]]
        lengths[i], limits[i] = segment_chunk(pointer(chunk), len(chunk), pieces, room, pointer(ids[filled:]))
        filled += lengths[i]
    return filled
