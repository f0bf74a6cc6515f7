"""Characters of valid UTF-8, for kernels. A character's first byte tells how many bytes it has:

    0xxxxxxx                             code below 0x80
    110xxxxx 10xxxxxx                    below 0x800
    1110xxxx 10xxxxxx 10xxxxxx           below 0x10000, the basic plane
    11110xxx 10xxxxxx 10xxxxxx 10xxxxxx  all others

No function checks its input, and none reads past the character.
"""

from __future__ import annotations

import numpy as np

from albert_data.kernels import I64, U64, Pointer, helper, item, put


@helper
def read_character(text: Pointer, position: int) -> tuple[int, int]:
    """The code of a character, and the position of the next one."""
    first = I64(item(text, position))
    if first < 0x80:
        return first, position + 1
    # Each byte after the first, 10xxxxxx, carries six bits of the code: its lower ones, 0x3F.
    second = I64(item(text, position + 1)) & 0x3F
    if first < 0xE0:
        return (first & 0x1F) << 6 | second, position + 2
    third = I64(item(text, position + 2)) & 0x3F
    if first < 0xF0:
        return (first & 0x0F) << 12 | second << 6 | third, position + 3
    return (first & 0x07) << 18 | second << 12 | third << 6 | (I64(item(text, position + 3)) & 0x3F), position + 4


@helper
def decode_three(word: U64) -> int:
    """The code of the character of three bytes at the beginning of a uint64: one load instead of three, no branch."""
    # The euro sign is E2 82 AC, the first byte lowest: 0x2 << 12 | 0x02 << 6 | 0x2C = 0x20AC.
    bits = I64(word)
    code: int = (bits & 0x0F) << 12 | (bits >> 8 & 0x3F) << 6 | bits >> 16 & 0x3F
    return code


@helper
def find_width(first: int) -> int:
    """The number of bytes of a character, from its first byte."""
    # No branch: each comparison counts 1 where it is true.
    return 1 + (first >= 0xC0) + (first >= 0xE0) + (first >= 0xF0)


@helper
def step_back(text: Pointer, position: int) -> int:
    """The position of the character before `position`; there must be one."""
    position -= 1
    while item(text, position) & 0xC0 == 0x80:  # 10xxxxxx is not a first byte
        position -= 1
    return position


@helper
def write_character(text: Pointer, position: int, code: int) -> int:
    """Write a character, and return the position after it."""
    if code < 0x80:
        put(text, position, np.uint8(code))
        return position + 1
    if code < 0x800:
        put(text, position, np.uint8(0xC0 | code >> 6))
        put(text, position + 1, np.uint8(0x80 | code & 0x3F))
        return position + 2
    if code >= 0x10000:
        put(text, position, np.uint8(0xF0 | code >> 18))
        put(text, position + 1, np.uint8(0x80 | code >> 12 & 0x3F))
        put(text, position + 2, np.uint8(0x80 | code >> 6 & 0x3F))
        put(text, position + 3, np.uint8(0x80 | code & 0x3F))
        return position + 4
    put(text, position, np.uint8(0xE0 | code >> 12))
    put(text, position + 1, np.uint8(0x80 | code >> 6 & 0x3F))
    put(text, position + 2, np.uint8(0x80 | code & 0x3F))
    return position + 3
