"""Read the output of WikiExtractor: a document stands between a line `<doc ...>` and a line `</doc>`.

Its first line is the title. Blank lines don't end it. With --json, WikiExtractor writes JSON lines instead.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from albert_data.config import TextConfig
from albert_data.corpus import blocks
from albert_data.corpus.blocks import Block, Origin
from albert_data.corpus.damage import Damage
from albert_data.corpus.formats.compression import STREAM_ERRORS
from albert_data.corpus.formats.records import Records, make_blocks
from albert_data.corpus.lines.white_space import has_text

BEGINNING = b"<doc "
_OPEN = b"\n" + BEGINNING
_MARK = re.compile(rb"\n(?:<doc |</doc>)")
_CHUNK = 1 << 20


def read_wiki(
    stream: io.BufferedIOBase, origin: Origin, text: TextConfig, damage: Damage, block_bytes: blocks.BlockBytes
) -> Iterator[Block]:
    """Yield the documents of an open file as blocks."""
    articles = _Articles(stream, origin.path, damage)
    records = (
        Records(texts=[text], languages=None, names=(), unit="article", first=number, num_rows=1)
        for number, text in articles.read()
    )
    return make_blocks(records, origin, text, damage, block_bytes)


class _Articles:
    """The articles of a file. `pending` begins with a line feed, and what is before `at` is taken."""

    def __init__(self, stream: io.BufferedIOBase, path: str, damage: Damage) -> None:
        self._stream, self._path, self._damage = stream, path, damage
        self._pending, self._at, self._ended, self._number = b"\n", 0, False, 0

    def read(self) -> Iterator[tuple[int, bytes]]:
        """The number and the text of each."""
        while True:
            begin = self._pending.find(_OPEN, self._at)
            line_end = self._pending.find(b"\n", begin + 1) if begin >= 0 else -1
            # The first of the two marks: to look for the end first would read all that follows for each beginning.
            mark = _MARK.search(self._pending, line_end) if line_end >= 0 else None
            if mark:
                self._check_gap(begin)
                if mark[0] == _OPEN:
                    self._count("it has no end")
                    self._at = mark.start()
                else:
                    yield self._number, self._pending[line_end + 1 : mark.start()]
                    self._at = mark.end()
                self._number += 1
            elif self._ended:
                self._check_gap(len(self._pending))
                return
            elif len(self._pending) - self._at > blocks.MAX_JSON_LINE:
                self._count(f"over {blocks.MAX_JSON_LINE} bytes")
                self._at = max(self._at + 1, self._pending.rfind(b"\n"))
            else:
                self._fill()

    def _fill(self) -> None:
        parts = [self._pending[self._at :]]
        want = max(_CHUNK, len(parts[0]) // 2)  # half as much again, so that all searches take linear time
        while want > 0 and not self._ended:
            try:
                data = self._stream.read1(want)
            except STREAM_ERRORS as error:
                blocks.count_broken(error, self._path, f"article {self._number}", self._damage)
                data = b""
            parts.append(data)
            want -= len(data)
            self._ended = not data
        self._pending, self._at = b"".join(parts), 0

    def _check_gap(self, end: int) -> None:
        if has_text(self._pending[self._at : end]):
            self._count("text outside of <doc> and </doc>")

    def _count(self, detail: str) -> None:
        self._damage.add("malformed_article", self._path, f"article {self._number}", detail)
