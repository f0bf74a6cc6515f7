"""The compiled search for cuts: which places in a text its sentences may be cut at, 64 bytes at a time.

A cut can be where two characters meet that are not both ASCII letters. Masks of 64 bytes tell these places, and
most of the cuts: a space between two visible ASCII characters is one. The others are listed, and asked about one
after another, without a branch on the answer, for no processor could foretell it: those between two ASCII characters
have a list of their own, for one look in a table answers them. Which pairs of characters may be cut, cuts.py says.
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
from albert_data.utf8 import decode_three, read_character

PAIR_BYTES = 1 << 18
BLOCK = 64  # bytes that are looked at together
PADDING = BLOCK + 8  # bytes that can be read behind the text: a block, and a word at its last byte
_BLOCKS = 64  # their places are listed before the first is asked about
_LISTED = 4  # places of a block that are listed in any case

# Flags of a character: a cut may be made before it; after it, in a word; after it, at a space; it becomes a single one;
# no cut is worth it between two such, for elsewhere than in ASCII, Thai and all after it, letters make words.
BEFORE, AFTER, SOLID, SINGLE, NARROW = 1, 2, 4, 8, 16
NARROW_CODES = slice(0x80, 0x0E00)
_BEFORE, _AFTER, _SOLID, _NARROW = (U64(n) for n in (32, 33, 34, 36))  # their bits in `characters`

_A, _Z_FROM_A, _CASE, _SPACE, _TAIL, _NUM_TAILS, _NUM_WIDE = (
    np.uint8(n) for n in (0x61, 26, 0x20, 32, 0x80, 0x40, 0x80)
)
_NONE, _ONE, _VISIBLE, _NUM_VISIBLE = (np.uint8(n) for n in (0, 1, 0x21, 94))
_0, _1, _6, _40, _61, _63 = (U64(n) for n in (0, 1, 6, 40, 61, 63))
_ALL, _HASH = U64(0xFFFFFFFFFFFFFFFF), U64(0x9E3779B97F4A7C15)
_FIRST, _LAST, _PAIR = U64(0xFFFF), U64(0xFFFF0000), U64(0x7FFF)


class CutRule(NamedTuple):
    """Where a word may be cut: arrays over the characters of the basic plane, and over pairs of them.

    characters: uint64, from the lowest bit the first and the last character of what one is normalised to, 16 bits
    each, and the flags above; pairs: uint8, the neighbours in some piece, and a few more (`may_be_pair`); ascii_cuts:
    uint8, 1 where two ASCII characters, first | second << 8, may be parted. In kernels, pointers to these.
    """

    characters: np.ndarray
    pairs: np.ndarray
    ascii_cuts: np.ndarray


def make_rule(flags: np.ndarray, first: np.ndarray, last: np.ndarray, pairs: np.ndarray) -> CutRule:
    """flags: uint8, of BEFORE, AFTER, SOLID and SINGLE; first, last: uint16; pairs: uint32, first << 16 | second."""
    flags = flags.copy()
    flags[NARROW_CODES] |= NARROW
    parts = (part.astype(np.uint64) << np.uint64(shift) for part, shift in ((first, 0), (last, 16), (flags, 32)))
    characters = sum(parts, np.zeros(len(flags), np.uint64))
    ascii_cuts = np.zeros((128, 256), np.uint8)
    is_open = (flags[:128] & AFTER > 0) & (flags[:128, np.newaxis] & BEFORE > 0)
    ascii_cuts[:, :128] = is_open & ~np.isin(last[:128].astype(np.uint32) << 16 | first[:128, np.newaxis], pairs)
    return CutRule(characters, mark_pairs(pairs, np.zeros(PAIR_BYTES, np.uint8)), ascii_cuts.ravel())


@helper
def point_to_rule(rule: CutRule) -> CutRule:
    return CutRule(pointer(rule.characters), pointer(rule.pairs), pointer(rule.ascii_cuts))


@helper
def find_character(utf8: Pointer, at: int, characters: Pointer) -> tuple[U64, int]:
    """What the rule says of a character, that of 0 beyond the basic plane, and where the next one begins."""
    code, after = read_character(utf8, at)
    return item(characters, code if code < 0x10000 else 0), after


@helper
def find_replacement(character: U64) -> int:
    """The code of the one character that another is normalised to, whatever stands before it; 0 if there is no such."""
    is_sure = I64(character >> _BEFORE) & (SINGLE | BEFORE) == SINGLE | BEFORE
    return I64(character & _FIRST) if is_sure else 0


@helper
def may_be_pair(pairs: Pointer, pair: U64) -> U64:
    """Whether some piece may hold two characters, first << 16 | second, side by side (bit 0). If not, none does."""
    value = pair * _HASH
    return U64(item(pairs, I64(value >> _40) & (PAIR_BYTES - 1))) >> (value >> _61)


@kernel
def mark_pairs(pairs: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """Mark pairs (uint32, first << 16 | second) in a Bloom filter of one hash (uint8, PAIR_BYTES)."""
    for pair in pairs:
        value = U64(pair) * _HASH
        marks[I64(value >> _40) & (PAIR_BYTES - 1)] |= 1 << I64(value >> _61)
    return marks


class Places(NamedTuple):
    """Places to be asked about, int64: those between two ASCII characters, and others. In kernels, pointers."""

    ascii: np.ndarray
    others: np.ndarray


def make_places() -> Places:
    return Places(*(np.empty(_BLOCKS * BLOCK, np.int64) for _ in Places._fields))


@kernel
def mark_cuts(utf8: np.ndarray, size: int, rule_arrays: CutRule, cuts: np.ndarray, places: Places) -> None:
    """Mark where sentences in the first `size` bytes can be cut: before the byte, in a word; at the space, between two.

    utf8: uint8, with PADDING bytes behind; cuts: uint64, a bit a byte; places: to work in.
    The first character of a sentence is no cut; a cut at spaces that end it leaves them out.
    """
    text, marks, rule = pointer(utf8), pointer(cuts), point_to_rule(rule_arrays)
    listed = Places(pointer(places.ascii), pointer(places.others))
    simple = _ALL  # a space between visible characters is a cut, whatever these are
    for code in range(0x21, 0x7F):
        if item(rule.characters, code) >> _BEFORE & item(rule.characters, code) >> _SOLID & _1 == 0:
            simple = _0
    odd_before, visible_before, wide_before, last = _0, _0, _0, item(rule.characters, 0)
    for window in range(0, size, _BLOCKS * BLOCK):
        num_ascii = num_others = 0
        for at in range(window, min(window + _BLOCKS * BLOCK, size), BLOCK):
            spaces = find_bytes(text, at, _NONE, _SPACE, _ONE)
            odd = ~(find_bytes(text, at, _CASE, _A, _Z_FROM_A) | spaces)
            tails = find_bytes(text, at, _NONE, _TAIL, _NUM_TAILS)
            wide = find_bytes(text, at, _NONE, _TAIL, _NUM_WIDE)
            visible = find_bytes(text, at, _NONE, _VISIBLE, _NUM_VISIBLE)
            asked = (odd | spaces | odd << _1 | odd_before) & ~(tails | spaces & spaces << _1)
            certain = spaces & (visible << _1 | visible_before) & visible >> _1 & simple
            put(marks, at >> 6, certain)
            asked &= ~certain
            others = asked & (wide | wide << _1 | wide_before | spaces)
            num_ascii = list_places(asked & ~others, at, listed.ascii, num_ascii)
            num_others = list_places(others, at, listed.others, num_others)
            odd_before, visible_before, wide_before = odd >> _63, visible >> _63, wide >> _63
        ask_about_ascii(text, listed.ascii, num_ascii, rule.ascii_cuts, marks)
        last = ask_about_others(text, size, listed.others, num_others, last, rule, marks)


@helper
def list_places(bits: U64, at: int, places: Pointer, count: int) -> int:
    """Put the places of bits behind `count` others, and some that will be written over. Returns how many there are."""
    number, count = count, count + count_ones(bits)
    for _ in range(_LISTED):
        put(places, number, at + count_trailing_zeros(bits))
        number, bits = number + 1, bits & (bits - _1)
    while bits != 0:
        put(places, number, at + count_trailing_zeros(bits))
        number, bits = number + 1, bits & (bits - _1)
    return count


@helper
def ask_about_ascii(utf8: Pointer, places: Pointer, count: int, ascii_cuts: Pointer, marks: Pointer) -> None:
    """Mark the cuts among places between two ASCII characters."""
    for number in range(count):
        place = item(places, number)
        pair = load_u64(utf8, max(place - 1, 0)) & _PAIR  # of place 0 a wrong one: it begins a sentence
        put(marks, place >> 6, item(marks, place >> 6) | U64(item(ascii_cuts, I64(pair))) << U64(place & 63))


@helper
def ask_about_others(
    utf8: Pointer, size: int, places: Pointer, count: int, last: U64, rule: CutRule, marks: Pointer
) -> U64:
    """Mark the cuts among other places. last: what the rule says of the last character before them that is not ASCII.

    Returns that of the last one in them.
    """
    for number in range(count):
        place = item(places, number)
        before, here = I64(item(utf8, max(place - 1, 0))), I64(item(utf8, place))
        left = last if before >= 128 else item(rule.characters, before)
        if here == 32:
            behind = place + 1
            while before != 32 and behind < size and item(utf8, behind) == 32:
                behind += 1
            right, _ = find_character(utf8, behind, rule.characters)
            is_cut = left >> _SOLID & right >> _BEFORE
        else:
            if here & 0xF0 == 0xE0:
                right = item(rule.characters, decode_three(load_u64(utf8, place)))
            else:
                right, _ = find_character(utf8, place, rule.characters)
            if here >= 128:
                last = right
            pair = may_be_pair(rule.pairs, left & _LAST | right & _FIRST)
            is_cut = left >> _AFTER & right >> _BEFORE & ~pair & ~(left & right) >> _NARROW
        put(marks, place >> 6, item(marks, place >> 6) | (is_cut & _1) << U64(place & 63))
    return last
