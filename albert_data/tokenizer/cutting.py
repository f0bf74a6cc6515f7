"""The compiled search for cuts: sentences into chunks, 64 bytes at a time.

A cut can be where two characters meet that are not both ASCII letters. Masks of 64 bytes tell these places,
and each is asked about without a branch on the answer, for no processor could foretell it: what is found is
written in any case, and counted if it is a cut. Which pairs of characters may be cut, cuts.py says.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.kernels import Int, Pointer, Word, count_trailing_zeros, find_bytes, helper, item, kernel, pointer, put
from albert_data.tokenizer.lattice import decode

PAIR_BYTES = 1 << 18
BLOCK = 64  # bytes that are looked at together; so many can be read behind the text

# Flags of a character: a cut may be made before it; after it, in a word; after it, at a space; it is normalised
# to itself.
BEFORE, AFTER, SOLID, PLAIN = 1, 2, 4, 8
_WORTH = 0x0E00  # Thai and all after it, and ASCII but letters: elsewhere letters make words between spaces

_A, _Z_FROM_A, _CASE, _SPACE, _TAIL, _NUM_TAILS = (np.uint8(n) for n in (0x61, 26, 0x20, 32, 0x80, 0x40))
_NONE, _ONE = np.uint8(0), np.uint8(1)
_0, _1, _16, _40, _61, _63 = (Word(n) for n in (0, 1, 16, 40, 61, 63))
_ALL, _HASH = Word(0xFFFFFFFFFFFFFFFF), Word(0x9E3779B97F4A7C15)


class CutRule(NamedTuple):
    """Where a word may be cut: arrays over the characters of the basic plane, and over pairs of them.

    flags: uint8, of the above; first, last: uint16, the first and last character of what one is normalised to;
    pairs: uint8, the neighbours in some piece, and a few more (`may_be_pair`);
    ascii_cuts: uint8, left << 7 | right; where right is a space: whether one can be made at spaces behind left.
    In kernels, pointers to all of these.
    """

    flags: np.ndarray
    first: np.ndarray
    last: np.ndarray
    pairs: np.ndarray
    ascii_cuts: np.ndarray


class Chunks(NamedTuple):
    """A batch of chunks: int64, where each begins and ends, and whether it goes on a word. In kernels, pointers."""

    begins: np.ndarray
    ends: np.ndarray
    inners: np.ndarray


def make_chunks(size: int) -> Chunks:
    """Room for `size` chunks, those of one more block, and the begin of the one after."""
    return Chunks(*(np.empty(size + BLOCK + 1, np.int64) for _ in range(3)))


@helper
def point_to_rule(rule: CutRule) -> CutRule:
    return CutRule(
        pointer(rule.flags), pointer(rule.first), pointer(rule.last), pointer(rule.pairs), pointer(rule.ascii_cuts)
    )


@helper
def point_to_chunks(chunks: Chunks) -> Chunks:
    return Chunks(pointer(chunks.begins), pointer(chunks.ends), pointer(chunks.inners))


@helper
def decode_character(utf8: Pointer, at: int) -> tuple[int, int]:
    """A character's code, 0 beyond the basic plane, and its width in bytes."""
    code, width = decode(utf8, at)
    return code if code < 0x10000 else 0, width


@helper
def may_be_pair(pairs: Pointer, first: int, second: int) -> int:
    """Whether some piece may hold these two characters side by side (1). If not, none does."""
    value = (Word(first) << _16 | Word(second)) * _HASH
    return int(item(pairs, Int(value >> _40) & (PAIR_BYTES - 1)) >> Word(value >> _61) & _1)


@kernel
def mark_pairs(pairs: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """Mark pairs (uint32, first << 16 | second) in a Bloom filter of one hash (uint8, PAIR_BYTES)."""
    for pair in pairs:
        value = Word(pair) * _HASH
        marks[Int(value >> _40) & (PAIR_BYTES - 1)] |= 1 << Int(value >> _61)
    return marks


@helper
def can_cut(left: int, right: int, rule: CutRule) -> int:
    """Whether a word may be cut between two characters, and is worth it (1)."""
    if 128 <= left < _WORTH and 128 <= right < _WORTH:
        return 0
    left_flags, right_flags = Int(item(rule.flags, left)), Int(item(rule.flags, right))
    if left_flags & right_flags & PLAIN == 0:
        left = left if left_flags & PLAIN else Int(item(rule.last, left))
        right = right if right_flags & PLAIN else Int(item(rule.first, right))
    return int((left_flags // AFTER) & (right_flags // BEFORE) & (1 - may_be_pair(rule.pairs, left, right)))


@helper
def find_cuts(
    utf8: Pointer, at: int, end: int, carry: Word, last: int, count: int, rule: CutRule, chunks: Chunks
) -> tuple[int, Word, int]:
    """Find the cuts in the block at `at` of a sentence that ends at `end`; a chunk of it, number `count`, is open.

    carry: whether something that is no letter and no space ends before the block; last: the last character that
    is not ASCII, before the block. Returns the number of the chunk that is open then, and these two for the next.
    """
    odd = ~find_bytes(utf8, at, _CASE, _A, _Z_FROM_A)
    spaces = find_bytes(utf8, at, _NONE, _SPACE, _ONE)
    tails = find_bytes(utf8, at, _NONE, _TAIL, _NUM_TAILS)
    places = (odd | (odd & ~spaces) << _1 | carry) & ~(tails | spaces & spaces << _1)
    if end - at < BLOCK:
        places &= _ALL >> Word(BLOCK - (end - at))
    if count == 0 and item(chunks.begins, 0) == at:  # the sentence begins here
        places &= ~_1
        last = decode_character(utf8, at)[0]
    while places != 0:
        place = at + count_trailing_zeros(places)
        places &= places - _1
        left, right = Int(item(utf8, place - 1)), Int(item(utf8, place))
        is_space = Int(right == 32)
        behind = place + is_space
        head = Int(item(utf8, behind))
        if left | right | head < 128 and head != 32:
            is_cut = Int(item(rule.ascii_cuts, left << 7 | right)) & Int(item(rule.flags, head) | (1 - is_space))
            is_cut &= Int(behind < end)
        else:
            if left >= 128:
                left = last
            if is_space:
                while left != 32 and behind < end and item(utf8, behind) == 32:
                    behind += 1
                code, _ = decode_character(utf8, behind)
                is_cut = Int(item(rule.flags, left) // SOLID) & Int(item(rule.flags, code) // BEFORE)
                is_cut &= Int(behind < end)
            elif right >= 128:
                last, _ = decode_character(utf8, place)
                is_cut = can_cut(left, last, rule)
            else:
                is_cut = can_cut(left, right, rule)
        put(chunks.ends, count, place)
        put(chunks.begins, count + 1, behind)
        put(chunks.inners, count + 1, 1 - is_space)
        count += is_cut & 1
    return count, (odd & ~spaces) >> _63, last
