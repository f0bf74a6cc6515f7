"""Cut what is too long to hold: lines over 1 MiB, documents over 4 MiB.

A log without line breaks, or a dump without blank lines, has to be read in bounded memory. The cuts
depend on the text alone, so a document is cut alike in whatever file, format or block it is read; each
part then is a document like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MAX_LINE = 1 << 20
MAX_DOCUMENT = 4 << 20
WHITESPACE = b" \t\n\r\x0b\x0c"


def cut_document(parts: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut one document, given as parts of valid UTF-8 in order, into documents of stripped lines."""
    return group_lines(cut_lines(parts))


def group_lines(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group lines into documents of at most MAX_DOCUMENT bytes, a line feed counted for each line."""
    group: list[bytes] = []
    size = 0
    for line in lines:
        if group and size + len(line) + 1 > MAX_DOCUMENT:
            yield group
            group, size = [], 0
        group.append(line)
        size += len(line) + 1
    if group:
        yield group


def cut_lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the stripped lines that are not blank, those over MAX_LINE in several."""
    pending = b""
    for part in parts:
        *whole, pending = (pending + part).split(b"\n")
        for line in whole:
            yield from _cut_line(line)
        pending = pending.lstrip(WHITESPACE)
        while len(pending.rstrip(WHITESPACE)) > 2 * MAX_LINE:
            piece, pending = _cut_once(pending)
            yield piece
    yield from _cut_line(pending)


def _cut_line(line: bytes) -> Iterator[bytes]:
    line = line.strip(WHITESPACE)
    while len(line) > MAX_LINE:
        piece, line = _cut_once(line)
        yield piece
    if line:
        yield line


def _cut_once(line: bytes) -> tuple[bytes, bytes]:
    """Cut at the last white space of the first MAX_LINE bytes, or else between two characters."""
    cut = max(line.rfind(bytes([space]), 0, MAX_LINE) for space in WHITESPACE)
    if cut <= 0:
        cut = MAX_LINE
        while line[cut] & 0xC0 == 0x80:
            cut -= 1
    return line[:cut].rstrip(WHITESPACE), line[cut:].lstrip(WHITESPACE)
