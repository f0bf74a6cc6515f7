"""Whether bytes are valid UTF-8, told 64 at a time.

A character's first byte owes one, two or three continuations, and each continuation must be owed. Which bytes of 64
are of a kind is a word of 64 bits, so what is owed is those words, shifted. Arrow, which looks at one byte after the
other, takes 1.7 times as long for English and 6 times for Chinese.
"""

from __future__ import annotations

import numpy as np

from albert_data.kernels import U64, Pointer, copy_items, find_bytes, helper, kernel, pointer

_1, _2, _3 = U64(1), U64(2), U64(3)
_61, _62, _63 = U64(61), U64(62), U64(63)


@helper
def find_range(data: Pointer, at: int, first: int, last: int) -> U64:
    """Which of 64 bytes are in first .. last."""
    return find_bytes(data, at, np.uint8(0), np.uint8(first), np.uint8(last - first + 1))


@helper
def check_bytes(data: Pointer, at: int, owed: U64) -> tuple[U64, U64]:
    """Which of 64 bytes are wrong, and which of the next 64 must be continuations, given those of these 64.

    The byte after the 64 is read.
    """
    high = find_range(data, at, 0x80, 0xFF)
    if high == 0:
        return owed, U64(0)
    continuations = find_range(data, at, 0x80, 0xBF)
    two, three, four = (
        find_range(data, at, 0xC2, 0xDF),
        find_range(data, at, 0xE0, 0xEF),
        find_range(data, at, 0xF0, 0xF4),
    )
    first = two | three | four
    wrong = high ^ (continuations | first)
    wrong |= continuations ^ (owed | first << _1 | (three | four) << _2 | four << _3)
    if three != 0:  # not longer than need be, and no surrogate
        wrong |= find_range(data, at, 0xE0, 0xE0) & find_range(data, at + 1, 0x80, 0x9F)
        wrong |= find_range(data, at, 0xED, 0xED) & find_range(data, at + 1, 0xA0, 0xBF)
    if four != 0:  # not longer than need be, and not over U+10FFFF
        wrong |= find_range(data, at, 0xF0, 0xF0) & find_range(data, at + 1, 0x80, 0x8F)
        wrong |= find_range(data, at, 0xF4, 0xF4) & find_range(data, at + 1, 0x90, 0xBF)
    return wrong, (two | three | four) >> _63 | (three | four) >> _62 | four >> _61


def is_utf8(raw: np.ndarray) -> bool:
    """Whether bytes (uint8) are valid UTF-8."""
    return bool(check_all(raw, np.zeros(65, np.uint8)))


@kernel
def check_all(raw: np.ndarray, rest: np.ndarray) -> bool:
    """rest: 65 zeros, room for the last bytes of `raw`."""
    data, at, owed = pointer(raw), 0, U64(0)
    while at + 64 < len(raw):
        wrong, owed = check_bytes(data, at, owed)
        if wrong != 0:
            return False
        at += 64
    copy_items(pointer(rest), 0, data, at, len(raw) - at)
    wrong, owed = check_bytes(pointer(rest), 0, owed)
    return bool((wrong | owed) == 0)


@helper
def is_white(byte: int) -> bool:
    """Whether a byte is white space: what is taken off the ends of lines."""
    return byte == 32 or 9 <= byte <= 13
