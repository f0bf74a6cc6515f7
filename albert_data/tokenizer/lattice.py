"""Segment chunks with a unigram model, and tell how close the second best segmentation comes to the best.

The same choice as SentencePiece's, in float64: where the two best are further apart than its rounding, its
choice is this one. Where they are not, the caller asks SentencePiece.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from albert_data.kernels import Int, Pointer, Word, helper, item, kernel, pointer, put

_21, _40, _42 = (Word(n) for n in (21, 40, 42))
_HASH, _CHILD = Word(0x9E3779B97F4A7C15), Word((1 << 21) - 1)
MAX_NODES = 1 << 21  # characters of all pieces together; a model with more goes through SentencePiece
_UNKNOWN_PENALTY = 10.0  # SentencePiece's, below the worst score of a piece


class Trie(NamedTuple):
    """Pieces by their characters: an open hash from (node, character) to node. In kernels, pointers to the arrays.

    children: uint64, two a slot: node << 42 | character << 21 | child, 0 where it is empty, and 1 + the piece that ends
    at the child, 0 where none does; scores: float64 of the vocabulary, 0 of what is no piece; max_score: the largest
    magnitude of one; has_gains: a score is positive; is_wide: ids take more than 16 bits;
    unknown_is_whole: what an unknown character becomes, SentencePiece must say.
    """

    children: np.ndarray
    scores: np.ndarray
    mask: int
    unk_id: int
    unknown_score: float
    max_score: float
    has_gains: bool
    is_wide: bool
    unknown_is_whole: bool


class Lattice(NamedTuple):
    """Room for a chunk: the scores of the best two ways to each byte, and the last piece of the best."""

    best: np.ndarray
    second: np.ndarray
    starts: np.ndarray
    pieces: np.ndarray


def make_trie(
    pieces: list[str], ids: list[int], scores: list[float], *, unk_id: int, vocab_size: int, unknown_is_whole: bool
) -> Trie:
    """A trie of the pieces that text is matched against, of less than MAX_NODES characters. It may have no nodes."""
    data = np.frombuffer("".join(pieces).encode("utf-32-le"), np.uint32)
    offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    size = 1 << max(4, (2 * len(data)).bit_length())
    children, num_nodes = build_trie(data, offsets, np.array(ids, np.int64), size)
    children = shrink_children(children, 1 << max(4, (2 * num_nodes).bit_length())) if pieces else children[:0]
    scores_of_ids = np.zeros(vocab_size)
    scores_of_ids[ids] = scores
    return Trie(
        children=children,
        scores=scores_of_ids,
        mask=len(children) // 2 - 1,
        unk_id=unk_id,
        unknown_score=min(scores, default=0.0) - _UNKNOWN_PENALTY,
        max_score=float(np.abs(scores_of_ids).max(initial=0.0)),
        has_gains=max(scores, default=0.0) > 0,
        is_wide=vocab_size > 1 << 16,
        unknown_is_whole=unknown_is_whole,
    )


@helper
def point_to_trie(trie: Trie) -> Trie:
    return Trie(
        pointer(trie.children),
        pointer(trie.scores),
        trie.mask,
        trie.unk_id,
        trie.unknown_score,
        trie.max_score,
        trie.has_gains,
        trie.is_wide,
        trie.unknown_is_whole,
    )


def make_lattice(length: int) -> Lattice:
    """Room for chunks of so many bytes."""
    return Lattice(
        np.empty(length + 1), np.empty(length + 1), np.empty(length + 1, np.int64), np.empty(length + 1, np.int32)
    )


@helper
def point_to_lattice(lattice: Lattice) -> Lattice:
    return Lattice(pointer(lattice.best), pointer(lattice.second), pointer(lattice.starts), pointer(lattice.pieces))


@helper
def find_child(children: Pointer, mask: int, node: int, character: int) -> int:
    """Where the slot of (node, character) stands or would."""
    key = Word(node) << _21 | Word(character)
    slot = 2 * (Int((key * _HASH) >> _40) & mask)
    while item(children, slot) != 0 and item(children, slot) >> _21 != key:
        slot = (slot + 2) & (2 * mask + 1)
    return int(slot)


@kernel
def build_trie(data: np.ndarray, offsets: np.ndarray, ids: np.ndarray, size: int) -> tuple[np.ndarray, int]:
    """The children in a table of `size` slots, and the number of nodes."""
    children, num_nodes = np.zeros(2 * size, np.uint64), 1
    for piece in range(len(offsets) - 1):
        node, slot = 0, 0
        for at in range(offsets[piece], offsets[piece + 1]):
            slot = find_child(pointer(children), size - 1, node, data[at])
            if children[slot] == 0:
                children[slot] = Word(node) << _42 | Word(data[at]) << _21 | Word(num_nodes)
                num_nodes += 1
            node = Int(children[slot] & _CHILD)
        if node:
            children[slot + 1] = Word(ids[piece] + 1)
    return children, num_nodes


@kernel
def shrink_children(children: np.ndarray, size: int) -> np.ndarray:
    """The same in a table of `size`, for it is walked at random."""
    out = np.zeros(2 * size, np.uint64)
    for slot in range(0, len(children), 2):
        if children[slot] != 0:
            node, character = Int(children[slot] >> _42), Int((children[slot] >> _21) & _CHILD)
            target = find_child(pointer(out), size - 1, node, character)
            out[target], out[target + 1] = children[slot], children[slot + 1]
    return out


@helper
def decode(text: Pointer, at: int) -> tuple[int, int]:
    """A character's code and its width in bytes."""
    byte = Int(item(text, at))
    if byte < 0x80:
        return byte, 1
    second = Int(item(text, at + 1)) & 0x3F
    if byte < 0xE0:
        return (byte & 0x1F) << 6 | second, 2
    third = Int(item(text, at + 2)) & 0x3F
    if byte < 0xF0:
        return (byte & 0x0F) << 12 | second << 6 | third, 3
    return (byte & 0x07) << 18 | second << 12 | third << 6 | (Int(item(text, at + 3)) & 0x3F), 4


@helper
def segment_chunk(text: Pointer, length: int, trie: Trie, lattice: Lattice, ids: Pointer) -> tuple[int, int]:
    """The best segmentation of normalised text, unknown characters in a row as one. trie, lattice: of pointers.

    Writes the ids (int32). Returns how many, and the limit up to which they are certain (`find_limit`).
    """
    num_characters = 0
    put(lattice.best, 0, 0.0)
    put(lattice.second, 0, -np.inf)
    for at in range(1, length + 1):
        put(lattice.best, at, -np.inf)
        put(lattice.second, at, -np.inf)
    start = 0
    while start < length:
        best, second = item(lattice.best, start), item(lattice.second, start)
        code, width = decode(text, start)
        code_width = width
        node, end, has_single = 0, start, False
        while best != -np.inf:
            slot = find_child(trie.children, trie.mask, node, code)
            child, piece = item(trie.children, slot), Int(item(trie.children, slot + 1)) - 1
            if child == 0:
                break
            end += code_width
            node = Int(child & _CHILD)
            if piece >= 0:
                has_single = has_single or end == start + width
                score = item(trie.scores, piece)
                extend(lattice, start, end, piece, best + score, second + score)
            if end == length:
                break
            code, code_width = decode(text, end)
        if best != -np.inf and not has_single:
            unknown: Any = np.int32(trie.unk_id)
            extend(lattice, start, start + width, unknown, best + trie.unknown_score, second + trie.unknown_score)
        start += width
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
