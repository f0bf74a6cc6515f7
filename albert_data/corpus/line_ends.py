"""Line ends other than the line feed, made line feeds in place.

A lone carriage return, U+0085 (next line), U+2028 (line separator) and U+2029 (paragraph separator) end a line as a
line feed does. Each becomes one, padded with spaces in front, so that every offset stays the same. The carriage returns
of CR LF, and of CR CR LF as programs write it that end lines twice, stay: they are white space before the line feed.
"""

from __future__ import annotations

import re

import numpy as np

from albert_data.corpus.utf8 import find_range
from albert_data.kernels import Pointer, copy_items, helper, kernel, pointer

_LONE_RETURN = re.compile(rb"\r(?!\r?\n)")
_MARKS = ((b"\xc2\x85", b" \n"), (b"\xe2\x80\xa8", b"  \n"), (b"\xe2\x80\xa9", b"  \n"))
_UNFINISHED = re.compile(rb"(?:\r\r?|\xc2|\xe2\x80?)\Z")  # what may turn out to be another line end


def break_lines(data: bytes) -> bytes:
    """Put line feeds in the places of all other line ends; the length stays."""
    if not has_breaks(np.frombuffer(data, np.uint8), np.zeros(130, np.uint8)):
        return data
    for mark, feed in _MARKS:
        data = data.replace(mark, feed)
    return _LONE_RETURN.sub(b"\n", data)


def count_unfinished(data: bytes) -> int:
    """How many of the last bytes can't be judged before the next ones are there: 0 to 2."""
    found = _UNFINISHED.search(data, max(0, len(data) - 2))
    return len(found.group()) if found else 0


@helper
def has_break(data: Pointer, at: int) -> bool:
    """Whether one of 64 bytes begins such a line end. The two bytes after them are read."""
    returns = find_range(data, at, 13, 13)
    if returns != 0:
        feeds = find_range(data, at + 1, 10, 10) | find_range(data, at + 1, 13, 13) & find_range(data, at + 2, 10, 10)
        if returns & ~feeds != 0:
            return True
    if find_range(data, at, 0x80, 0xFF) == 0:
        return False
    first = find_range(data, at, 0xE2, 0xE2)  # also of curly quotes
    if first != 0 and first & find_range(data, at + 1, 0x80, 0x80) & find_range(data, at + 2, 0xA8, 0xA9) != 0:
        return True
    first = find_range(data, at, 0xC2, 0xC2)
    return bool(first != 0 and first & find_range(data, at + 1, 0x85, 0x85) != 0)


@kernel
def has_breaks(raw: np.ndarray, rest: np.ndarray) -> bool:
    """Whether bytes (uint8) hold a line end that is no line feed. rest: 130 zeros, room for the last bytes."""
    data, at = pointer(raw), 0
    while at + 66 <= len(raw):
        if has_break(data, at):
            return True
        at += 64
    copy_items(pointer(rest), 0, data, at, len(raw) - at)
    return bool(has_break(pointer(rest), 0) or has_break(pointer(rest), 64))
