"""Cut what is too long to hold: lines over 1 MiB, documents over 4 MiB.

A log without line breaks, or a dump without blank lines, must be read in bounded memory. The cuts depend on the text
alone, so a document is cut in the same way in any file, format or block. Each part is then a document of its own.
"""

from __future__ import annotations

import re
from codecs import iterdecode
from collections.abc import Iterable, Iterator

from xxhash import xxh3_64_intdigest

from albert_data.corpus.lines.white_space import has_text

MAX_LINE = 1 << 20
MAX_DOCUMENT = 4 << 20
_MAX_INDENT = 60  # characters of an indentation that are kept; unwrapping counts no more than 60 columns
_NO_WHITE = re.compile(r"\S")
_BEGINNING = 1 << 14  # characters without white space; the first part has more, however its white space is kept


def cut_document(parts: Iterable[bytes], *, keep_layout: bool = False) -> Iterator[list[bytes]]:
    """Cut one document, given as parts that together are valid UTF-8, into documents of canonical lines.

    keep_layout: keep what shows paragraphs: the white space inside a line and before it, at most 60 characters there,
    and an empty line in place of blank ones.
    """
    group: list[bytes] = []
    size = 0  # a line feed counted for each line
    for line in cut_lines(parts, keep_layout=keep_layout):
        if group and size + len(line) + 1 > MAX_DOCUMENT:
            yield group
            group, size = [], 0
        group.append(line)
        size += len(line) + 1
    if group:
        yield group


def hash_beginning(part: bytes | bytearray) -> int:
    """What identifies a document that is cut, by its first part: a hash that white space does not change."""
    found, slices = "", (bytes(part[at : at + _BEGINNING]) for at in range(0, len(part), _BEGINNING))
    for piece in iterdecode(slices, "utf-8"):  # all of it at once would take many times its bytes
        found += "".join(piece.split())
        if len(found) >= _BEGINNING:
            break
    return xxh3_64_intdigest(found[:_BEGINNING].encode())


def cut_lines(parts: Iterable[bytes], *, keep_layout: bool = False) -> Iterator[bytes]:
    """Yield the lines that are not blank, one over MAX_LINE in several parts; keep_layout: as above."""
    layout = _Layout(keep_layout)
    pending = ""
    for part in iterdecode(_gather(parts), "utf-8"):
        *whole, pending = (pending + part).split("\n")
        for line in (line if has_text(line.encode()) else "" for line in whole):
            layout.indent(line)
            yield from layout.put(_cut_line(layout.tidy(line)))
            layout.end_line()
        layout.indent(pending)
        pending = pending.lstrip()
        stripped = pending.rstrip()
        # White space at the end of what was read belongs to the line only if text follows it. MAX_LINE + 1 bytes of it
        # are enough to keep: if text follows, the line is longer than MAX_LINE, so it is cut there, and a cut drops all
        # white space around it.
        white = pending[len(stripped) : len(stripped) + MAX_LINE + 1]
        *pieces, rest = _cut_line(layout.tidy(stripped)) if stripped else [""]
        yield from layout.put(pieces)
        pending = rest + white
    yield from layout.put(_cut_line(layout.tidy(pending)))


class _Layout:
    """Adds indentation and empty lines to the stripped lines of a document, if they are to be kept."""

    def __init__(self, is_kept: bool) -> None:
        self._is_kept = is_kept
        self._indent, self._has_text = "", False  # of the present line
        self._is_after_blank = False  # whether blank lines stand right before it
        self._is_begun = False  # whether any text came before it

    def tidy(self, line: str) -> str:
        """A line without the white space at its ends, and with single spaces inside unless the layout is kept."""
        return line.strip() if self._is_kept else " ".join(line.split())

    def indent(self, line: str) -> None:
        """Keep the white space at the beginning of the next part of a line, if no text came before it."""
        if self._is_kept and not self._has_text:
            white = line[: len(line) - len(line.lstrip())]
            self._indent = (self._indent + white)[:_MAX_INDENT]
            self._has_text = len(white) < len(line)

    def put(self, pieces: Iterable[str]) -> Iterator[bytes]:
        """Yield the pieces of a line that are not empty."""
        for piece in filter(None, pieces):
            if self._is_after_blank and self._is_begun:
                yield b""
            yield (self._indent + piece).encode()
            self._indent, self._is_after_blank, self._is_begun = "", False, True

    def end_line(self) -> None:
        self._is_after_blank = self._is_after_blank or (self._is_kept and not self._has_text)
        self._indent, self._has_text = "", False


def _gather(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Make parts of MAX_LINE bytes to twice that: `cut_lines` copies the pending line for each, and splits each."""
    held = bytearray()
    for part in parts:
        for at in range(0, len(part), MAX_LINE):
            held += part[at : at + MAX_LINE]
            if len(held) >= MAX_LINE:
                yield bytes(held)
                held = bytearray()
    yield bytes(held)


def _cut_line(line: str) -> Iterator[str]:
    """Cut a stripped line into parts of at most MAX_LINE bytes. All but the last stay the same if more text follows.

    It is cut at the last white space of these bytes, or without any at the last boundary of two characters.
    """
    begin = 0
    # Most lines are so short that they fit even in characters of four bytes.
    while len(line) - begin > MAX_LINE // 4 and len(window := line[begin : begin + MAX_LINE + 1].encode()) > MAX_LINE:
        head = window[:MAX_LINE].decode(errors="ignore")  # without the beginning of a character at its end
        *before, _ = f"{head}.".rsplit(maxsplit=1)
        head = before[0] if before else head
        yield head
        found = _NO_WHITE.search(line, begin + len(head))
        assert found, "a stripped line ends in no white space"
        begin = found.start()
    if begin < len(line):
        yield line[begin:]
