"""Cut what is too long to hold: lines over 1 MiB, documents over 4 MiB.

A log without line breaks, or a dump without blank lines, must be read in bounded memory. The cuts depend on the text
alone, so a document is cut in the same way in any file, format or block. Each part is then a document of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from albert_data.ascii import WHITE_SPACE

MAX_LINE = 1 << 20
MAX_DOCUMENT = 4 << 20
_MAX_INDENT = 60  # bytes of an indentation that are kept; unwrapping counts no more than 60 columns
_NO_WHITE = re.compile(rb"[^%b]" % WHITE_SPACE)


def cut_document(parts: Iterable[bytes], *, keep_layout: bool = False) -> Iterator[list[bytes]]:
    """Cut one document, given as parts that together are valid UTF-8, into documents of stripped lines.

    keep_layout: keep what shows paragraphs: the white space before a line, at most 60 bytes of it,
    and an empty line in place of blank ones.
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
    """Yield the stripped lines that are not blank, one over MAX_LINE in several parts; keep_layout: as above."""
    layout = _Layout(keep_layout)
    pending = b""
    for part in _gather(parts):
        *whole, pending = (pending + part).split(b"\n")
        for line in whole:
            layout.indent(line)
            stripped = line.strip(WHITE_SPACE)
            yield from layout.put([stripped] if len(stripped) <= MAX_LINE else _cut_line(stripped))
            layout.end_line()
        layout.indent(pending)
        pending = pending.lstrip(WHITE_SPACE)
        stripped = pending.rstrip(WHITE_SPACE)
        # White space at the end of what was read belongs to the line only if text follows it. MAX_LINE + 1 bytes of it
        # are enough to keep: if text follows, the line is longer than MAX_LINE, so it is cut there, and a cut drops all
        # white space around it.
        white = pending[len(stripped) : len(stripped) + MAX_LINE + 1]
        *pieces, rest = _cut_line(stripped) if stripped else [b""]
        yield from layout.put(pieces)
        pending = rest + white
    yield from layout.put(_cut_line(pending.rstrip(WHITE_SPACE)))


class _Layout:
    """Adds indentation and empty lines to the stripped lines of a document, if they are to be kept."""

    def __init__(self, is_kept: bool) -> None:
        self._is_kept = is_kept
        self._indent, self._has_text = b"", False  # of the present line
        self._is_after_blank = False  # whether blank lines stand right before it
        self._is_begun = False  # whether any text came before it

    def indent(self, line: bytes) -> None:
        """Keep the white space at the beginning of the next part of a line, if no text came before it."""
        if self._is_kept and not self._has_text:
            white = line[: len(line) - len(line.lstrip(WHITE_SPACE))]
            self._indent = (self._indent + white)[:_MAX_INDENT]
            self._has_text = len(white) < len(line)

    def put(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces of a line that are not empty."""
        for piece in filter(None, pieces):
            if self._is_after_blank and self._is_begun:
                yield b""
            yield self._indent + piece
            self._indent, self._is_after_blank, self._is_begun = b"", False, True

    def end_line(self) -> None:
        self._is_after_blank = self._is_after_blank or (self._is_kept and not self._has_text)
        self._indent, self._has_text = b"", False


def _gather(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join small parts to parts of MAX_LINE bytes or more, because `cut_lines` copies the pending line for each."""
    held, size = [], 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= MAX_LINE:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def _cut_line(line: bytes) -> Iterator[bytes]:
    """Cut a stripped line into parts of at most MAX_LINE bytes. All but the last stay the same if more text follows."""
    begin = 0
    while len(line) - begin > MAX_LINE:
        cut = _find_cut(line, begin)
        yield line[begin:cut].rstrip(WHITE_SPACE)
        found = _NO_WHITE.search(line, cut)
        assert found, "a stripped line ends in no white space"
        begin = found.start()
    if begin < len(line):
        yield line[begin:]


def _find_cut(line: bytes, begin: int) -> int:
    """The last white space in the MAX_LINE bytes from `begin` on; without any, the last boundary of two characters."""
    end = begin + MAX_LINE
    cut = max(line.rfind(bytes([space]), begin, end) for space in WHITE_SPACE)
    if cut <= begin:
        cut = end
        while line[cut] & 0xC0 == 0x80:
            cut -= 1
    return cut
