"""Replace other line ends by line feeds, in place.

A lone carriage return, U+0085 (next line), U+2028 (line separator) and U+2029 (paragraph separator) end a line as a
line feed does. Each becomes a line feed with spaces before it, so that every offset stays the same. The carriage
returns of CR LF and CR CR LF stay: they are white space before the line feed. (Some programs add a CR to each CR LF.)
"""

from __future__ import annotations

import re

import numpy as np

from albert_data.corpus.lines.valid_utf8 import find_range
from albert_data.kernels import Pointer, copy_items, helper, kernel, pointer
from albert_data.text.ascii import CARRIAGE_RETURN, LINE_FEED

_LONE_RETURN = re.compile(rb"\r(?!\r?\n)")
# U+0085, U+2028, U+2029. `has_break` must agree with this list.
_MARKS = ((b"\xc2\x85", b" \n"), (b"\xe2\x80\xa8", b"  \n"), (b"\xe2\x80\xa9", b"  \n"))
# It depends on the next bytes whether this is a line end, or white space (white_space.py) that makes a line blank.
_UNFINISHED = re.compile(rb"(?:\r\r?|[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z")


def break_lines(data: bytes) -> bytes:
    """Replace all other line ends by line feeds; the length stays.

    >>> break_lines("a\\rb\\r\\nc\\u2028d".encode())
    b'a\\nb\\r\\nc  \\nd'
    """
    if not has_breaks(np.frombuffer(data, np.uint8), np.zeros(130, np.uint8)):
        return data
    for mark, feed in _MARKS:
        data = data.replace(mark, feed)
    return _LONE_RETURN.sub(b"\n", data)


def count_unfinished(data: bytes) -> int:
    """How many of the last bytes, 0 to 3, may belong to a line end or white space: that depends on the next bytes."""
    found = _UNFINISHED.search(data, max(0, len(data) - 3))
    return len(found.group()) if found else 0


def divide(data: bytes, divider: bytes | None, found: set[str]) -> tuple[bytes, np.ndarray]:
    """Text with spaces and a line feed in place of each divider, and where its documents end: int64. The length stays.

    Of dividers that overlap, as `--` in `---`, the first counts. divider: None if all is one document; found: gets it.

    >>> divide(b"One.\\n<eos>Two.", b"<eos>", set())
    (b'One.\\n    \\nTwo.', array([10, 14]))
    """
    if divider is None or divider not in data:
        return data, np.array([len(data)])
    found.add(divider.decode())
    parts = data.split(divider)
    ends = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)) + len(divider))
    ends[-1] -= len(divider)
    return b"\n".rjust(len(divider)).join(parts), ends


@helper
def has_break(data: Pointer, at: int) -> bool:
    """Whether one of 64 bytes begins a line end that is to be replaced. Reads 66 bytes."""
    returns = find_range(data, at, CARRIAGE_RETURN, CARRIAGE_RETURN)
    if returns != 0:
        next_returns = find_range(data, at + 1, CARRIAGE_RETURN, CARRIAGE_RETURN)
        next_feeds = find_range(data, at + 1, LINE_FEED, LINE_FEED)
        later_feeds = find_range(data, at + 2, LINE_FEED, LINE_FEED)
        if returns & ~(next_feeds | next_returns & later_feeds) != 0:  # neither CR LF nor CR CR LF
            return True
    if find_range(data, at, 0x80, 0xFF) == 0:
        return False
    first = find_range(data, at, 0xE2, 0xE2)  # also the first byte of curly quotes
    if first != 0 and first & find_range(data, at + 1, 0x80, 0x80) & find_range(data, at + 2, 0xA8, 0xA9) != 0:
        return True
    first = find_range(data, at, 0xC2, 0xC2)
    return bool(first != 0 and first & find_range(data, at + 1, 0x85, 0x85) != 0)


@kernel
def has_breaks(raw: np.ndarray, rest: np.ndarray) -> bool:
    """Whether bytes (uint8) hold a line end that is to be replaced.

    rest: 130 zeros, for a copy of the last bytes: up to 65 are left, so two windows of 64 are checked, which read two
    bytes more.
    """
    data, at = pointer(raw), 0
    while at + 66 <= len(raw):
        if has_break(data, at):
            return True
        at += 64
    copy_items(pointer(rest), 0, data, at, len(raw) - at)
    return bool(has_break(pointer(rest), 0) or has_break(pointer(rest), 64))
