"""The output of WikiExtractor."""

from __future__ import annotations

import bz2
import io
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from corpus_fixtures import read
from test_corpus_formats import read_all

from albert_data.config import TextConfig
from albert_data.corpus import blocks
from albert_data.corpus.formats import wiki
from albert_data.corpus.inputs import find_inputs
from albert_data.errors import InputError

ARTICLE = (
    '<doc id="12" url="https://x.org/wiki?curid=12" title="Anarchism">\nAnarchism\n\nText of it.\n\nMore.\n</doc>\n'
)
OTHER = '<doc id="13" url="" title="B">\nB\n\nIt has no </doc> inside.\n\n</doc>\n'
EXPECTED = [b"Anarchism\nText of it.\nMore.\n", b"B\nIt has no </doc> inside.\n"]


@pytest.mark.parametrize("chunk", [1, 5, 1 << 20])
def test_an_article_is_one_document_and_its_title_a_line(chunk: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wiki, "_CHUNK", chunk)
    assert read((ARTICLE + "\n" + OTHER).encode(), "wiki", strict=True) == (EXPECTED, Counter())


def test_names_without_an_ending_are_recognised_by_the_first_bytes(tmp_path: Path):
    (tmp_path / "AA").mkdir()
    (tmp_path / "AA/wiki_00").write_text(ARTICLE)
    (tmp_path / "AA/wiki_01.bz2").write_bytes(bz2.compress(OTHER.encode()))
    (tmp_path / "AA/wiki_02").write_text('{"id": "1", "url": "u", "title": "C", "text": "C\\n\\nof JSON"}\n')
    (tmp_path / "LICENSE").write_text("no corpus")
    (tmp_path / "wiki.md").write_text(ARTICLE)
    said: list[str] = []
    items = find_inputs([str(tmp_path)], said.append)
    assert [(item.format, item.compression) for item in items] == [("wiki", None), ("wiki", "bz2"), ("jsonl", None)]
    assert read_all(tmp_path) == ([*EXPECTED, b"C\nof JSON\n"], Counter())
    assert len(said) == 1
    assert f"skipped 2 files of no known ending: {tmp_path}/LICENSE, {tmp_path}/wiki.md" in said[0]
    assert read_all(tmp_path / "AA/wiki_00")[0] == EXPECTED[:1]


def test_articles_without_an_end_and_text_outside_are_counted(monkeypatch: pytest.MonkeyPatch):
    data = f"before\n{ARTICLE}<doc id=1>\nno end\n{OTHER}<doc id=2>\ncut".encode()
    assert read(data, "wiki") == (EXPECTED, Counter(malformed_article=3))
    with pytest.raises(InputError, match="p, article 0: malformed article: text outside of <doc> and </doc>"):
        read(data, "wiki", strict=True)
    monkeypatch.setattr(blocks, "MAX_JSON_LINE", 1 << 12)
    monkeypatch.setattr(wiki, "_CHUNK", 1 << 10)
    long = "<doc id=1>\n" + "a line\n" * 2000 + "</doc>\n"
    found, counts = read((ARTICLE + long + OTHER).encode(), "wiki")
    assert (found, set(counts)) == (EXPECTED, {"malformed_article"})


def test_beginnings_without_an_end_are_each_read_once():
    """To look for the next end from each of them took 88 s for 1.1 MB."""
    num_beginnings, started = 100_000, time.process_time()
    found = read(b"<doc x\n" * num_beginnings + b"a\n</doc>\n", "wiki")
    assert found == ([b"a\n"], Counter(malformed_article=num_beginnings - 1))
    assert time.process_time() - started < 20


def test_an_article_that_comes_in_small_parts_is_searched_as_often_as_one_that_comes_at_once(
    monkeypatch: pytest.MonkeyPatch,
):
    class Trickle(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            return super().read1(min(size or 0, 100))

    searches: list[int] = []

    class Mark:
        def search(self, data: bytes, at: int) -> re.Match[bytes] | None:
            searches.append(len(data))
            return _MARK.search(data, at)

    _MARK = wiki._MARK
    monkeypatch.setattr(wiki, "_CHUNK", 1000)
    monkeypatch.setattr(wiki, "_MARK", Mark())
    text = "a line\n" * 20_000
    found, counts = read(Trickle(f"<doc id=1>\n{text}</doc>\n".encode()), "wiki")
    assert (found, counts) == ([text.encode()], Counter())
    assert sum(searches) < 5 * len(text)


def test_a_language_field_needs_fields(tmp_path: Path):
    from albert_data.corpus.inputs import check_language_field

    (tmp_path / "wiki_00").write_text(ARTICLE)
    config = TextConfig(language_field="lang")
    with pytest.raises(InputError, match="which have no fields such as 'lang'"):
        check_language_field(find_inputs([str(tmp_path)], text=config), config)


def test_character_references_are_replaced_once():
    text = "AT&amp;amp;T &lt;br&gt; &quot;a&quot; It&#39;s&nbsp;&#x4E2D; &copy &notit; &Unknown; R&D & &#99999999; &#0;"
    wanted = 'AT&amp;T <br> "a" It\'s 中 &copy &notit; &Unknown; R&D & &#99999999; \ufffd\n'
    data = ARTICLE.replace("More.", f"{text}\n&lt;/doc&gt;").encode()
    assert read(data, "wiki") == ([b"Anarchism\nText of it.\n" + wanted.encode() + b"</doc>\n"], Counter())
