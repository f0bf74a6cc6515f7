"""Characters in UTF-8, for kernels."""

from __future__ import annotations

import numpy as np

from albert_data.kernels import I64, U64, Pointer, helper, item, put


@helper
def decode(text: Pointer, at: int) -> tuple[int, int]:
    """A character's code and its width in bytes."""
    byte = I64(item(text, at))
    if byte < 0x80:
        return byte, 1
    second = I64(item(text, at + 1)) & 0x3F
    if byte < 0xE0:
        return (byte & 0x1F) << 6 | second, 2
    third = I64(item(text, at + 2)) & 0x3F
    if byte < 0xF0:
        return (byte & 0x0F) << 12 | second << 6 | third, 3
    return (byte & 0x07) << 18 | second << 12 | third << 6 | (I64(item(text, at + 3)) & 0x3F), 4


@helper
def decode_three(word: U64) -> int:
    """The code of a character of three bytes, the first of a word."""
    bits = I64(word)
    code: int = (bits & 0x0F) << 12 | (bits >> 8 & 0x3F) << 6 | bits >> 16 & 0x3F
    return code


@helper
def put_character(text: Pointer, at: int, code: int) -> int:
    """Write a character of the basic plane. Returns the place behind it."""
    if code < 0x80:
        put(text, at, np.uint8(code))
        return at + 1
    if code < 0x800:
        put(text, at, np.uint8(0xC0 | code >> 6))
        put(text, at + 1, np.uint8(0x80 | code & 0x3F))
        return at + 2
    put(text, at, np.uint8(0xE0 | code >> 12))
    put(text, at + 1, np.uint8(0x80 | code >> 6 & 0x3F))
    put(text, at + 2, np.uint8(0x80 | code & 0x3F))
    return at + 3
