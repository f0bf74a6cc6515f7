"""Read the output of WikiExtractor: a document stands between a line `<doc ...>` and a line `</doc>`.

Its first line is the title. Blank lines don't end it. With --json, WikiExtractor writes JSON lines instead.

WikiExtractor escapes by `html.escape`, so character references are replaced once: `&amp;lt;` is `&lt;`. Those without
a semicolon and unknown names stay: `html.unescape` makes "¬it" of "&notit".
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from html.entities import html5

from albert_data.config import TextConfig
from albert_data.corpus import blocks
from albert_data.corpus.blocks import Origin
from albert_data.corpus.damage import Damage
from albert_data.corpus.formats.records import Records
from albert_data.corpus.lines.white_space import has_text
from albert_data.corpus.streams import STREAM_ERRORS

BEGINNING = b"<doc "
_OPEN = b"\n" + BEGINNING
_MARK = re.compile(rb"\n(?:<doc |</doc>)")
_REFERENCE = re.compile(rb"&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-zA-Z][a-zA-Z\d]{1,30});")
_CHUNK = 1 << 20


def read_wiki(stream: io.BufferedIOBase, origin: Origin, text: TextConfig, damage: Damage) -> Iterator[Records]:
    """Yield the articles of an open file."""
    articles = _read_articles(stream, origin.path, damage)
    yield Records(rows=((number, (text,), (), None, None, None) for number, text in articles), unit="article")


def _unescape(found: re.Match[bytes]) -> bytes:
    text = found[0].decode()
    return html.unescape(text).encode() if text[1] == "#" or text[1:] in html5 else found[0]


def _read_articles(stream: io.BufferedIOBase, path: str, damage: Damage) -> Iterator[tuple[int, bytes]]:
    """The number and the text of each article."""

    def count(detail: str, num_bytes: int) -> None:
        damage.add("malformed_article", path, f"article {number}", detail)
        counts = damage.inputs.of(path)
        counts.lost_bytes, counts.text_bytes = counts.lost_bytes + num_bytes, counts.text_bytes + num_bytes

    number, is_ended = 0, False
    data, at = b"\n", 0  # `data` begins with a line feed, and what is before `at` is taken
    while True:
        begin = data.find(_OPEN, at)
        line_end = data.find(b"\n", begin + 1) if begin >= 0 else -1
        # The first of the two marks: to look for the end first would read all that follows for each beginning.
        mark = _MARK.search(data, line_end) if line_end >= 0 else None
        outside = data[at : begin if mark else len(data)] if mark or is_ended else b""
        if has_text(outside):
            count("text outside of <doc> and </doc>", len(outside))
        if mark:
            at = mark.end()
            if mark[0] == _OPEN:
                count("it has no end", mark.start() - line_end)
                at = mark.start()
            else:
                yield number, _REFERENCE.sub(_unescape, data[line_end + 1 : mark.start()])
            number += 1
        elif is_ended:
            return
        elif len(data) - at > blocks.MAX_JSON_LINE:
            end = max(at + 1, data.rfind(b"\n"))
            count(f"over {blocks.MAX_JSON_LINE} bytes", end - at)
            at = end
        else:
            parts = [data[at:]]
            want = max(_CHUNK, len(parts[0]) // 2)  # half as much again, so that all searches take linear time
            while want > 0 and not is_ended:
                try:
                    parts.append(stream.read1(want))
                except STREAM_ERRORS as error:
                    blocks.count_broken(error, path, f"article {number}", damage)
                    parts.append(b"")
                want -= len(parts[-1])
                is_ended = not parts[-1]
            data, at = b"".join(parts), 0
