"""The compiled search for cuts: positions at which a sentence can be cut, found 64 bytes at a time.

A cut may lie where two characters meet that are not both ASCII letters. Bit masks of 64 bytes find these positions, and
decide most of them: a space between two visible ASCII characters is a cut. The other positions are candidates. They
are written to lists and checked one after another without a branch on the result, since no processor could predict it.
Those between two ASCII characters, the second of which is no space, have a list of their own: one look-up in a table
decides each. cuts.py says which pairs of characters may be cut.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.kernels import (
    I64,
    U64,
    Pointer,
    count_ones,
    count_trailing_zeros,
    find_bytes,
    helper,
    item,
    kernel,
    load_u64,
    pointer,
    put,
)
from albert_data.kernels.draws import GOLDEN
from albert_data.text.utf8 import decode_three, read_character

BLOCK = 64  # bytes of one mask
PADDING = BLOCK + 8  # bytes after the text that may be read: a block, and a u64 from the last byte on
FILTER_BYTES = 1 << 18  # of the Bloom filter of pairs
_WINDOW = 64 * BLOCK  # bytes whose candidates are listed before the first is checked
_UNCONDITIONAL = 4  # stores of list_positions for each block; few blocks of prose have more candidates

# Flags of a character. BEFORE: a cut may lie before it. AFTER: a cut may lie after it, inside a word. SOLID: a cut may
# lie after it, at a space. SINGLE: normalisation makes exactly one character of it. NARROW: it is below U+0E00 and not
# ASCII. No cut is made between two of these, though allowed: letters of alphabets form words, and a word is a good
# chunk. ASCII letters are no candidates anyway. The scripts without spaces (Thai, Lao, Khmer, CJK and others) are
# above, so there each cut that is allowed is made; scripts with spaces that are above too (as Hangul) only get shorter
# chunks.
BEFORE, AFTER, SOLID, SINGLE, NARROW = 1, 2, 4, 8, 16
NARROW_CODES = slice(0x80, 0x0E00)
_FLAGS_SHIFT = 32
_BEFORE_SHIFT, _AFTER_SHIFT, _SOLID_SHIFT, _NARROW_SHIFT = (U64(_FLAGS_SHIFT + bit) for bit in (0, 1, 2, 4))
_FIRST_MASK, _LAST_MASK = U64(0xFFFF), U64(0xFFFF0000)

# Sets of bytes as find_bytes takes them: bits to set first, the lowest byte, the number of bytes.
_LETTERS = (np.uint8(0x20), np.uint8(ord("a")), np.uint8(26))  # 0x20 makes capitals small
_SPACES = (np.uint8(0), np.uint8(ord(" ")), np.uint8(1))
_VISIBLE = (np.uint8(0), np.uint8(0x21), np.uint8(94))  # ASCII without the space and control characters
_CONTINUATIONS = (np.uint8(0), np.uint8(0x80), np.uint8(0x40))  # all bytes of a character except the first
_NON_ASCII = (np.uint8(0), np.uint8(0x80), np.uint8(0x80))

_0, _1, _LAST_BIT, _ALL_BITS = U64(0), U64(1), U64(BLOCK - 1), U64(2**64 - 1)
_TWO_ASCII = U64(0x7FFF)  # the bits of two ASCII characters
_BYTE_SHIFT, _BIT_SHIFT = U64(40), U64(61)  # of a hash: 18 of the upper 24 bits choose a byte, the top 3 a bit of it


class CutRule(NamedTuple):
    """Where text may be cut. In kernels also pointers to the arrays."""

    characters: np.ndarray  # uint64 [65536]: flags << 32 | last << 16 | first, of what each character is normalised to
    pairs: np.ndarray  # uint8 [FILTER_BYTES], a Bloom filter of the pairs of neighbours in all pieces
    ascii_cuts: np.ndarray  # uint8 [32768], 1 for a cut between two ASCII characters, at first | second << 8
    joins_spaces: bool  # whether several spaces can be a cut, as one can


def make_rule(
    flags: np.ndarray, first: np.ndarray, last: np.ndarray, pairs: np.ndarray, *, joins_spaces: bool
) -> CutRule:
    """The rule of characters and pairs of them.

    flags: uint8 [65536], of BEFORE, AFTER, SOLID and SINGLE
    first, last: uint16 [65536], of what each character is normalised to
    pairs: uint32, first << 16 | second
    """
    flags = flags.copy()
    flags[NARROW_CODES] |= NARROW
    parts = ((first, 0), (last, 16), (flags, _FLAGS_SHIFT))
    characters = sum((part.astype(np.uint64) << np.uint64(shift) for part, shift in parts), np.zeros(1, np.uint64))
    ascii_cuts = np.zeros((128, 256), np.uint8)
    is_open = (flags[:128] & AFTER > 0) & (flags[:128, np.newaxis] & BEFORE > 0)
    ascii_cuts[:, :128] = is_open & ~np.isin(last[:128].astype(np.uint32) << 16 | first[:128, np.newaxis], pairs)
    marked = mark_pairs(pairs, np.zeros(FILTER_BYTES, np.uint8))
    return CutRule(characters, marked, ascii_cuts.ravel(), joins_spaces)


def make_cut_scratch() -> np.ndarray:
    """The two lists of candidates of a window (mark_cuts): int64."""
    return np.empty((2, _WINDOW), np.int64)


@helper
def point_to_rule(rule: CutRule) -> CutRule:
    return CutRule(pointer(rule.characters), pointer(rule.pairs), pointer(rule.ascii_cuts), rule.joins_spaces)


@helper
def look_up_character(utf8: Pointer, position: int, characters: Pointer) -> tuple[U64, int]:
    """The entry of a character in CutRule.characters (beyond the basic plane that of 0), and where the next begins."""
    code, after = read_character(utf8, position)
    return item(characters, code if code < 0x10000 else 0), after


@helper
def find_single(character: U64) -> int:
    """The one character that a character is normalised to, whatever stands before it; 0 if there is no such."""
    is_sure = I64(character >> _BEFORE_SHIFT) & (SINGLE | BEFORE) == SINGLE | BEFORE
    return I64(character & _FIRST_MASK) if is_sure else 0


@helper
def may_be_pair(pairs: Pointer, pair: U64) -> U64:
    """Bit 0: whether a piece may hold two characters, first << 16 | second, as neighbours.

    The Bloom filter never misses a pair. A false alarm forbids a cut, which makes a longer chunk and no other ids.
    """
    hashed = pair * GOLDEN  # which mixes low bits into the high ones
    return U64(item(pairs, I64(hashed >> _BYTE_SHIFT) & (FILTER_BYTES - 1))) >> (hashed >> _BIT_SHIFT)


@kernel
def mark_pairs(pairs: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """Mark pairs (uint32, first << 16 | second) in a Bloom filter of one hash (uint8, FILTER_BYTES)."""
    for pair in pairs:
        hashed = U64(pair) * GOLDEN
        marks[I64(hashed >> _BYTE_SHIFT) & (FILTER_BYTES - 1)] |= 1 << I64(hashed >> _BIT_SHIFT)
    return marks


@kernel
def mark_cuts(utf8: np.ndarray, size: int, rule_arrays: CutRule, cuts: np.ndarray, scratch: np.ndarray) -> None:
    """Mark where sentences in the first `size` bytes can be cut.

    A cut inside a word is marked at the byte after it, a cut between two words at the first of the spaces there. The
    callers ignore a mark at the first byte of a sentence. Whether one is set at spaces that end a sentence changes
    nothing: normalisation removes these. utf8: uint8, followed by PADDING bytes; cuts: uint64, a bit for each byte;
    scratch: the candidates between two ASCII characters, the second of which is no space, and all others.
    """
    text, marks, rule = pointer(utf8), pointer(cuts), point_to_rule(rule_arrays)
    ascii_listed, others_listed = pointer(scratch[0]), pointer(scratch[1])
    spaces_cut = are_spaces_cuts(rule)
    last = item(rule.characters, 0)  # the last non-ASCII character (check_others): none yet; entry 0 allows no cut
    # The last bits of the masks of the block before. A window begins where the one before ends, so they carry over.
    rest_before, visible_before, wide_before = _0, _0, _0
    for window in range(0, size, _WINDOW):
        num_ascii = num_others = 0
        for at in range(window, min(window + _WINDOW, size), BLOCK):
            # Bit i is byte at + i, lowest first; so `mask << 1` says of each byte what mask says of the one before it.
            spaces = find_bytes(text, at, *_SPACES)
            rest = ~(find_bytes(text, at, *_LETTERS) | spaces)  # neither an ASCII letter nor a space
            continuations = find_bytes(text, at, *_CONTINUATIONS)
            wide = find_bytes(text, at, *_NON_ASCII)
            visible = find_bytes(text, at, *_VISIBLE)
            # "ab, c": before the comma and before the space; "a,b": before the comma and before b. A letter after a
            # space is no candidate: that cut is marked at the space. Only the first of several spaces counts, and
            # nothing inside a character. A second space that begins a block is a candidate too, as `<< 1` does not see
            # the first one, but it is no cut, as the first one is not SOLID.
            candidates = (rest | spaces | rest << _1 | rest_before) & ~(continuations | spaces & spaces << _1)
            # The byte after the block is unknown here (`>> 1` shifts in a 0), so a space at its end is checked below.
            certain = spaces & (visible << _1 | visible_before) & visible >> _1 & spaces_cut
            put(marks, at >> 6, certain)
            candidates &= ~certain
            others = candidates & (wide | wide << _1 | wide_before | spaces)
            num_ascii = list_positions(candidates & ~others, at, ascii_listed, num_ascii)
            num_others = list_positions(others, at, others_listed, num_others)
            rest_before, visible_before, wide_before = rest >> _LAST_BIT, visible >> _LAST_BIT, wide >> _LAST_BIT
        check_ascii(text, ascii_listed, num_ascii, rule.ascii_cuts, marks)
        last = check_others(text, size, others_listed, num_others, last, rule, marks)


@helper
def are_spaces_cuts(rule: CutRule) -> U64:
    """All bits if a space between any two visible ASCII characters is a cut, as for nearly all models; else 0."""
    for code in range(0x21, 0x7F):
        flags = item(rule.characters, code)
        if flags >> _BEFORE_SHIFT & flags >> _SOLID_SHIFT & _1 == 0:
            return _0
    return _ALL_BITS


@helper
def list_positions(bits: U64, at: int, positions: Pointer, count: int) -> int:
    """Append the positions of set bits to a list of `count`, and return the new count."""
    index, count = count, count + count_ones(bits)
    # These stores need no branch. Those after the last bit are overwritten later; the array holds 64 a block.
    for _ in range(_UNCONDITIONAL):
        put(positions, index, at + count_trailing_zeros(bits))
        index, bits = index + 1, bits & (bits - _1)  # clears the lowest bit
    while bits != 0:
        put(positions, index, at + count_trailing_zeros(bits))
        index, bits = index + 1, bits & (bits - _1)
    return count


@helper
def check_ascii(utf8: Pointer, positions: Pointer, count: int, ascii_cuts: Pointer, marks: Pointer) -> None:
    """Mark the cuts among positions between two ASCII characters."""
    for index in range(count):
        position = item(positions, index)
        # At position 0 this reads the wrong pair. It does no harm: a sentence begins there.
        pair = load_u64(utf8, max(position - 1, 0)) & _TWO_ASCII
        put_mark(marks, position, U64(item(ascii_cuts, I64(pair))))


@helper
def put_mark(marks: Pointer, position: int, bit: U64) -> None:
    """Set the bit of a position if `bit` is 1."""
    put(marks, position >> 6, item(marks, position >> 6) | bit << U64(position & 63))


@helper
def check_others(
    utf8: Pointer, size: int, positions: Pointer, count: int, last: U64, rule: CutRule, marks: Pointer
) -> U64:
    """Mark the cuts among the other positions.

    last: the entry of the last non-ASCII character before them. Each such character is a candidate, so the one to
    the left of a position is always the last one that was read: no character is decoded twice. Returns the new `last`.
    """
    for index in range(count):
        position = item(positions, index)
        before, here = I64(item(utf8, max(position - 1, 0))), I64(item(utf8, position))
        left = last if before >= 128 else item(rule.characters, before)
        if here == 32:
            after = position + 1
            # After another space no search is needed: `left` is that one, which is not SOLID. Where spaces are not
            # joined, the space after this one is `right`, and no cut may lie BEFORE it.
            while before != 32 and after < size and item(utf8, after) == 32 and rule.joins_spaces:
                after += 1
            right, _ = look_up_character(utf8, after, rule.characters)
            is_cut = left >> _SOLID_SHIFT & right >> _BEFORE_SHIFT
        else:
            if here & 0xF0 == 0xE0:  # three bytes, as most characters of Asian scripts have: one load, no branch
                right = item(rule.characters, decode_three(load_u64(utf8, position)))
            else:
                right, _ = look_up_character(utf8, position, rule.characters)
            if here >= 128:
                last = right
            pair = may_be_pair(rule.pairs, left & _LAST_MASK | right & _FIRST_MASK)
            is_cut = left >> _AFTER_SHIFT & right >> _BEFORE_SHIFT & ~pair & ~(left & right) >> _NARROW_SHIFT
        put_mark(marks, position, is_cut & _1)
    return last
