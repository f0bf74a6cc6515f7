"""Encode chunks with a unigram model, and say for which sentences the result is certain to be SentencePiece's.

The Viterbi algorithm over the lattice of all pieces that match, in float64. SentencePiece does the same in float32:
where the scores of the best two ways to write a chunk differ by more than its rounding errors, its choice is this one.
Where they do not, the caller asks SentencePiece.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from albert_data.kernels import I64, Pointer, helper, item, kernel, pointer, put
from albert_data.text.utf8 import read_character
from albert_data.tokenizer.chunks.trie import NUM_FIRST, Trie, point_to_trie, read_entry, step

_FLOAT32_PRECISION = 2.0**24  # an addition errs by at most 1 / 2^24 of the sum
_MAX_LIMIT = 2.0**31  # it is stored in the upper 32 bits of a tag (table.py)


class Lattice(NamedTuple):
    """Scratch buffers, an item for each position in a chunk, its end included. In kernels also pointers to them."""

    best: np.ndarray  # float64, the score of the best way to write the text up to there
    second: np.ndarray  # float64, that of the second best
    starts: np.ndarray  # int64, where the last piece of the best way begins
    pieces: np.ndarray  # int32, that piece


class ChunkIds(NamedTuple):
    """The ids of C chunks."""

    ids: np.ndarray  # int32, flat
    lengths: np.ndarray  # int64 [C], ids of each chunk
    limits: np.ndarray  # int64 [C], see find_limit


def make_lattice(capacity: int) -> Lattice:
    """A lattice for chunks of up to `capacity` bytes."""
    size = capacity + 1
    return Lattice(np.empty(size), np.empty(size), np.empty(size, np.int64), np.empty(size, np.int32))


@helper
def point_to_lattice(lattice: Lattice) -> Lattice:
    return Lattice(pointer(lattice.best), pointer(lattice.second), pointer(lattice.starts), pointer(lattice.pieces))


@helper
def encode_chunk(text: Pointer, length: int, trie: Trie, lattice: Lattice, ids: Pointer) -> tuple[int, int]:
    """Write the ids (int32) of the best way to write normalised text as pieces; unknown characters in a row give one.

    Returns the number of ids, and the limit up to which they are certain (find_limit).
    """
    num_characters = fill_lattice(text, length, trie, lattice)
    unk_id: Any = np.int32(trie.settings.unk_id)
    count, num_pieces, end, has_unknown = 0, 0, length, False
    while end > 0:  # from the end backwards
        piece = item(lattice.pieces, end)
        if piece != unk_id or count == 0 or item(ids, count - 1) != unk_id:  # unknown ids in a row become one
            put(ids, count, piece)
            count += 1
        has_unknown = has_unknown or piece == unk_id
        num_pieces += 1
        end = item(lattice.starts, end)
    for i in range(count // 2):  # they were found backwards: reverse them
        one, other = item(ids, i), item(ids, count - 1 - i)
        put(ids, i, other)
        put(ids, count - 1 - i, one)
    if has_unknown and trie.settings.byte_fallback:
        return count, 0  # never certain: SentencePiece writes the bytes of unknown characters
    # The best way adds num_pieces scores, any other one at most a score for each character.
    margin, gains = item(lattice.best, length) - item(lattice.second, length), num_characters * trie.settings.max_gain
    return count, find_limit(margin, num_pieces + num_characters, gains)


@helper
def fill_lattice(text: Pointer, length: int, trie: Trie, lattice: Lattice) -> int:
    """Find the best two ways to write the text up to each position. Returns the number of characters."""
    put(lattice.best, 0, 0.0)
    put(lattice.second, 0, -np.inf)  # there is only one way to write nothing
    for end in range(1, length + 1):
        put(lattice.best, end, -np.inf)
        put(lattice.second, end, -np.inf)
    start, num_characters = 0, 0
    while start < length:
        best, second = item(lattice.best, start), item(lattice.second, start)
        code, next_start = read_character(text, start)
        node, piece, end, has_single = trie.settings.root, -1, start, False
        if code < NUM_FIRST:  # the first character takes one load (Trie.first_entries)
            node, piece = read_entry(item(trie.first_entries, code))
            end = next_start
        while True:  # each piece that begins here
            if piece >= 0:
                has_single = has_single or end == next_start
                score = item(trie.scores, piece)
                extend(lattice, start, end, piece, best + score, second + score)
            if end == length:
                break
            node, piece = step(trie.entries, node, I64(item(text, end)))
            if node < 0:
                break  # no piece is longer
            end += 1
        if not has_single:  # SentencePiece allows an unknown piece only where no piece is this one character
            unknown: Any = np.int32(trie.settings.unk_id)
            score = trie.settings.unknown_score
            extend(lattice, start, next_start, unknown, best + score, second + score)
        start = next_start
        num_characters += 1
    return num_characters


@helper
def extend(lattice: Lattice, start: int, end: int, piece: int, best: float, second: float) -> None:
    """Extend the best two ways to `start` by a piece that ends at `end`. best, second: their new scores."""
    best_there = item(lattice.best, end)
    if best > best_there:  # of equal scores the first one stays: their margin is 0, so SentencePiece decides
        put(lattice.second, end, max(best_there, second))  # the best so far, or the second best to `start`
        put(lattice.best, end, best)
        put(lattice.starts, end, start)
        put(lattice.pieces, end, piece)
    else:
        put(lattice.second, end, max(item(lattice.second, end), best))


@helper
def find_limit(margin: float, additions: int, gains: float) -> int:
    """The magnitude of the score of a sentence below which rounding can't reverse the choice between two ways.

    margin: how much their scores differ; additions: how many scores both sum up in all; gains: the most that positive
    scores add in the chunk. If the scores of the sentence up to the end of the chunk have the magnitude s by the best
    way, summed as magnitudes, the other one has no sum above s + margin + gains on its way. Together their errors are
    at most additions * (s + margin + gains) / 2^24, and less than the margin if s is below the limit.
    """
    limit = margin * (_FLOAT32_PRECISION / max(additions, 1) - 1.0) - gains
    return int(max(0.0, min(limit, _MAX_LIMIT)))


def encode_chunks(text: np.ndarray, offsets: np.ndarray, trie: Trie) -> ChunkIds:
    """Encode each slice of normalised text."""
    lattice, num_chunks = make_lattice(int(np.diff(offsets).max(initial=0))), len(offsets) - 1
    found = ChunkIds(np.empty(len(text), np.int32), np.empty(num_chunks, np.int64), np.empty(num_chunks, np.int64))
    filled = encode_slices(text, offsets, trie, lattice, found)
    return found._replace(ids=found.ids[:filled])


@kernel
def encode_slices(text: np.ndarray, offsets: np.ndarray, trie: Trie, lattice: Lattice, found: ChunkIds) -> int:
    """Fill in what `encode_chunks` returns, and return the number of ids."""
    pieces, scratch, filled = point_to_trie(trie), point_to_lattice(lattice), 0
    for i in range(len(found.lengths)):
        chunk = text[offsets[i] : offsets[i + 1]]
        out = pointer(found.ids[filled:])
        found.lengths[i], found.limits[i] = encode_chunk(pointer(chunk), len(chunk), pieces, scratch, out)
        filled += found.lengths[i]
    return filled
