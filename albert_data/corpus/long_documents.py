"""Cut what is too long to hold: lines over 1 MiB, documents over 4 MiB.

A log without line breaks, or a dump without blank lines, has to be read in bounded memory. The cuts
depend on the text alone, so a document is cut alike in whatever file, format or block it is read; each
part then is a document like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MAX_LINE = 1 << 20
MAX_DOCUMENT = 4 << 20
MAX_INDENT = 60  # bytes
WHITESPACE = b" \t\n\r\x0b\x0c"
_NO_WHITE = re.compile(rb"[^ \t\n\r\x0b\x0c]")


def cut_document(parts: Iterable[bytes], *, keep_layout: bool = False) -> Iterator[list[bytes]]:
    """Cut one document, given as parts of valid UTF-8 in order, into documents of stripped lines.

    keep_layout: keep what tells paragraphs: the white space before a line, of which MAX_INDENT bytes, and an empty line
    between two that had blank ones between them.
    """
    return group_lines(cut_lines(parts, keep_layout=keep_layout))


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


def cut_lines(parts: Iterable[bytes], *, keep_layout: bool = False) -> Iterator[bytes]:
    """Yield the stripped lines that are not blank, those over MAX_LINE in several; with `keep_layout` as above."""
    layout = _Layout(keep_layout)
    pending = b""
    for part in _gather(parts):
        *whole, pending = (pending + part).split(b"\n")
        for line in whole:
            layout.indent(line)
            stripped = line.strip(WHITESPACE)
            yield from layout.put([stripped] if len(stripped) <= MAX_LINE else _cut_line(stripped))
            layout.end_line()
        layout.indent(pending)
        pending = pending.lstrip(WHITESPACE)
        stripped = pending.rstrip(WHITESPACE)
        # Of more white space than a line can be long, the rest changes no cut.
        white = pending[len(stripped) : len(stripped) + MAX_LINE + 1]
        *pieces, rest = _cut_line(stripped, 2 * MAX_LINE) if stripped else [b""]
        yield from layout.put(pieces)
        pending = rest + white
    yield from layout.put(_cut_line(pending.rstrip(WHITESPACE)))


class _Layout:
    """Puts indentation and empty lines back to the stripped lines of a document, if it is to be kept."""

    def __init__(self, is_kept: bool) -> None:
        self._is_kept = is_kept
        self._indent, self._has_text, self._blank, self._any = b"", False, False, False

    def indent(self, line: bytes) -> None:
        """Note the white space at the beginning of what comes next of the line."""
        if self._is_kept and not self._has_text:
            white = line[: len(line) - len(line.lstrip(WHITESPACE))]
            self._indent = (self._indent + white)[:MAX_INDENT]
            self._has_text = len(white) < len(line)

    def put(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces of a line that are not empty."""
        for piece in filter(None, pieces):
            if self._blank and self._any:
                yield b""
            yield self._indent + piece
            self._indent, self._blank, self._any = b"", False, True

    def end_line(self) -> None:
        self._blank = self._blank or (self._is_kept and not self._has_text)
        self._indent, self._has_text = b"", False


def _gather(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join parts to some of MAX_LINE or more, for each makes a copy of the line so far."""
    held, size = [], 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= MAX_LINE:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def _cut_line(line: bytes, longest: int | None = None) -> Iterator[bytes]:
    """Cut a stripped line as long as what is left is over `longest`, by default MAX_LINE; yield that too."""
    begin, longest = 0, MAX_LINE if longest is None else longest
    while len(line) - begin > longest:
        cut = _find_cut(line, begin)
        yield line[begin:cut].rstrip(WHITESPACE)
        found = _NO_WHITE.search(line, cut)
        assert found, "a stripped line ends in no white space"
        begin = found.start()
    if begin < len(line):
        yield line[begin:]


def _find_cut(line: bytes, begin: int) -> int:
    """The last white space of the MAX_LINE bytes from `begin` on, or else a place between two characters."""
    end = begin + MAX_LINE
    cut = max(line.rfind(bytes([space]), begin, end) for space in WHITESPACE)
    if cut <= begin:
        cut = end
        while line[cut] & 0xC0 == 0x80:
            cut -= 1
    return cut
