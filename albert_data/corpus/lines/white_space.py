"""White space in UTF-8: the 29 characters of Python's `str.isspace`, U+0085, U+2028 and U+2029 among them.

Those three are line ends (line_ends.py), so the lines that kernels see have none of them. The set has been the same
since Unicode 6.3, so every Python makes the same build; a test compares it.

A line of nothing but white space and invisible characters, such as U+200B or U+FEFF, is blank too. Blocks end at one,
and `clear_invisible_lines` fills it with spaces before anything else looks at the lines of a document.
"""

from __future__ import annotations

import re

import numpy as np

from albert_data.corpus.lines.valid_utf8 import find_range
from albert_data.kernels import I64, U64, Pointer, count_trailing_zeros, helper, item, kernel, pointer
from albert_data.text.ascii import LINE_FEED, SPACE, TAB
from albert_data.text.utf8 import read_character, step_back

# In ASCII, with the separators of files, groups, records and units, 0x1C .. 0x1F; then beyond it: U+0085 and U+00A0,
# U+1680, U+2000 .. U+200A with U+2028, U+2029 and U+202F, U+205F, U+3000.
_WIDE = rb"\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80"
# Format characters (Cf) that are drawn as nothing, and the first two bytes of each as a number.
_INVISIBLE = (
    rb"\xc2\xad|\xd8\x9c|\xe1\xa0\x8e|\xe2(?:\x80[\x8b-\x8f\xaa-\xae]|\x81[\xa0-\xaf])|\xef(?:\xbb\xbf|\xbf[\xb9-\xbb])|"
    rb"\xf0(?:\x9b\xb2[\xa0-\xa3]|\x9d\x85[\xb3-\xba])|\xf3\xa0[\x80\x81][\x80-\xbf]"
)
_PAIRS = (0xC2AD, 0xD89C, 0xE1A0, 0xE280, 0xE281, 0xEFBB, 0xEFBF, 0xF09B, 0xF09D, 0xF3A0)
_NOTHING = rb"%b|%b" % (_WIDE, _INVISIBLE)
_WHITE = re.compile(rb"(?:[\t-\r\x1c- ]++|%b)*+" % _NOTHING)
_BLANK = re.compile(rb"\n(?:[\t\v-\r\x1c- ]++|%b)++(?![^\n])" % _NOTHING)  # "\n" is found six times as fast as (?m)^
REST_OF_BLANK_LINE = re.compile(rb"(?:[\t\v-\r\x1c- ]++|%b)*+\n" % _NOTHING)
BLANK_LINE = re.compile(rb"\n" + REST_OF_BLANK_LINE.pattern)


def has_text(text: bytes, margin: int = 0) -> bool:
    """Whether more than `margin` bytes of UTF-8 are left without what is white or invisible at its beginning."""
    if b" " < text[:1] < b"\x80":  # most text
        return len(text) > margin
    found = _WHITE.match(text)
    return found is None or len(text) - found.end() > margin


def clear_invisible_lines(data: bytes) -> bytes:
    """Fill the lines of valid UTF-8 that have no visible character with spaces; the length stays.

    >>> clear_invisible_lines("a\\n\\u00ad\\nb\\u00ad\\n".encode())
    b'a\\n  \\nb\\xc2\\xad\\n'
    """
    if not has_invisible_line(np.frombuffer(data, np.uint8)):
        return data
    return _BLANK.sub(lambda found: b"\n" + b" " * (len(found[0]) - 1), b"\n" + data)[1:]


@helper
def find_feed(data: Pointer, at: int, size: int) -> int:
    """The position of the next line feed, or `size`."""
    while at + 64 <= size:
        feeds = find_range(data, at, LINE_FEED, LINE_FEED)
        if feeds != 0:
            return at + int(count_trailing_zeros(feeds))
        at += 64
    while at < size and item(data, at) != LINE_FEED:
        at += 1
    return at


@kernel
def has_invisible_line(raw: np.ndarray) -> bool:
    """Whether the first character of a line that is not white may be invisible. raw: uint8, valid UTF-8."""
    data, at, size = pointer(raw), 0, len(raw)
    while at < size:
        at, _ = skip_white(data, at, size)
        if at + 1 < size and item(data, at) >= 0xC2:
            pair = I64(item(data, at)) << 8 | I64(item(data, at + 1))
            # Lines of prose begin with the dashes and curly quotes of the same pair.
            if pair in _PAIRS and not (pair == 0xE280 and 0x90 <= item(data, at + 2) < 0xA8):
                return True
        at = find_feed(data, at, size)
    return False


@helper
def is_wide_white(code: int) -> bool:
    """Whether a code point beyond ASCII is white space."""
    if code < 0x2000:
        return code in (0x85, 0xA0, 0x1680)
    return code <= 0x200A or code in (0x2028, 0x2029, 0x202F, 0x205F, 0x3000)


@helper
def skip_white(raw: Pointer, at: int, end: int) -> tuple[int, int]:
    """The position after the white space at a position of valid UTF-8, and the line feeds in it."""
    num_feeds = 0
    while at < end:
        first = I64(item(raw, at))
        if first <= SPACE:
            if first < TAB or 0x0D < first < 0x1C:
                break
            num_feeds += first == LINE_FEED
            at += 1
        else:
            if first < 0xC2 or first > 0xE3:  # most text ends here
                break
            code, after = read_character(raw, at)
            if not is_wide_white(code):
                break
            at = after
    return at, num_feeds


@helper
def skip_white_back(raw: Pointer, begin: int, end: int) -> int:
    """Where the white space before `end` begins, not before `begin`."""
    while end > begin:
        at = step_back(raw, end)
        if skip_white(raw, at, end)[0] == at:
            break
        end = at
    return end


@helper
def find_odd_white(raw: Pointer, at: int, carry: U64) -> tuple[U64, U64]:
    """Which of 64 bytes begin white space other than a single space, and a few more bytes; and the next carry.

    The space before other white space is not found, nor the last line ends of line_ends.py. carry: 1 if the byte
    before is a space. Reads 66 bytes. The sets are 64 bits, as in valid_utf8.py.
    """
    spaces = find_range(raw, at, SPACE, SPACE)
    odd = find_range(raw, at, 0x00, 0x1F) | spaces & (spaces << U64(1) | carry)
    second_80, third_80 = find_range(raw, at + 1, 0x80, 0x80), find_range(raw, at + 2, 0x80, 0x80)
    odd |= find_range(raw, at, 0xE3, 0xE3) & second_80 & third_80
    thirds = find_range(raw, at + 2, 0x80, 0x8A) | find_range(raw, at + 2, 0xAF, 0xAF)
    odd |= find_range(raw, at, 0xE2, 0xE2) & (
        second_80 & thirds | find_range(raw, at + 1, 0x81, 0x81) & find_range(raw, at + 2, 0x9F, 0x9F)
    )
    odd |= find_range(raw, at, 0xC2, 0xC2) & find_range(raw, at + 1, 0xA0, 0xA0)
    odd |= find_range(raw, at, 0xE1, 0xE1) & find_range(raw, at + 1, 0x9A, 0x9A) & third_80
    return odd, spaces >> U64(63)
