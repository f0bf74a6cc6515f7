"""Fields of records: inside of others, several joined, and those that name the language and the group of a document."""

from __future__ import annotations

import io
import json
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from corpus_fixtures import small_sizes
from format_fixtures import write_arrow, write_parquet, write_stream
from hypothesis import given
from hypothesis import strategies as st
from test_corpus_formats import read_all
from test_corpus_tables import read_languages as read_table_languages

from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block, Origin, read_blocks
from albert_data.corpus.damage import Damage
from albert_data.corpus.documents import batch_documents, clean_documents
from albert_data.corpus.fields import hash_group, look_up
from albert_data.corpus.formats import json_lines
from albert_data.errors import ConfigError, InputError
from albert_data.languages import unpack_language


def read_lines(records: list[Any], field: str, *, large: bool) -> tuple[list[bytes], Counter[str]]:
    """The texts of JSON lines. large: as those that json.loads must not read."""
    data = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    damage = Damage()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "LARGE_LINE", 0 if large else 1 << 20)
        block = Block(data=data, format="jsonl", path="p", start=0)
        texts, *_ = json_lines.parse_lines(block, TextConfig(text_field=field), damage)
    return texts, damage.counts


RECORDS = [
    {"title": "T", "article": {"text": "a", "other": [{"text": "no"}]}},
    {"article": {"text": {"text": "no"}, "deep": {"er": "b"}}},
    {"article": {}, "title": ""},
    {"article": None, "title": None},
    {"article": {"text": None, "a": {}}, "title": "only"},
    {"article": {"text": 3}, "title": "T"},
    {"article": "x", "article.text": "literal", "title,text": "comma"},
    {"article": {"text": "first"}, "text": "second", "n": 1},
    {"article": [], "article.deep": {"er": "no"}},
]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("field", "expected", "counts"),
    [
        ("article.text", [b"a", b"literal", b"first"], Counter(missing_field=3, field_not_text=3)),
        ("article.deep.er", [b"b"], Counter(missing_field=8)),
        (
            "title,article.text",
            [b"T\na", b"only", b"literal", b"first"],
            Counter(missing_part=3, missing_field=1, field_not_text=3, empty_document=1),
        ),
    ],
)
def test_points_lead_into_objects_and_commas_join_fields(
    field: str, expected: list[bytes], counts: Counter[str], large: bool
):
    assert read_lines(RECORDS, field, large=large) == (expected, counts)


@pytest.mark.parametrize("large", [False, True])
def test_a_field_of_the_whole_name_comes_first(large: bool):
    assert read_lines(RECORDS[6:7], "title,text", large=large) == ([b"comma"], Counter())
    assert read_lines([{"a.b": None, "a": {"b": "c"}}], "a.b", large=large) == ([], Counter(field_not_text=1))


names = st.sampled_from(["a", "b", "a.b", "a,b", ""])
values = st.recursive(
    st.sampled_from(["x", "", " \u2028", "\n", None, 1, True, "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(names, values, max_size=4), max_size=4), st.sampled_from(["a", "a.b", "b,a.b", "a.a.b"])
)
def test_large_lines_give_what_small_ones_give(records: list[dict[str, Any]], field: str):
    small = read_lines(records, field, large=False)
    if "\\ud800" not in json.dumps(records):
        assert read_lines(records, field, large=True) == small
    expected = [look_up(record, field)[0] for record in records]
    if "," not in field:
        texts = [text for text in expected if isinstance(text, str) and text.strip(" \n\u2028")]
        assert len(small[0]) == len(texts)


@pytest.mark.parametrize("write", [write_parquet, write_arrow, write_stream])
def test_structs_of_tables_are_read_in_the_same_way(tmp_path: Path, write: Any):
    article = [{"text": "a", "n": 1}, {"text": None, "n": 2}, None, {"text": "b", "n": 3}]
    kind = pyarrow.struct([("text", pyarrow.string()), ("n", pyarrow.int64())])
    table = pyarrow.table(
        {"title": ["T", None, None, None], "article": pyarrow.array(article, kind), "lang": ["de", "en", "en", "en"]}
    )
    path = tmp_path / ("a.parquet" if write is write_parquet else "a.arrow")
    write(path, table)
    assert read_all(path, TextConfig(text_field="article.text")) == ([b"a\n", b"b\n"], Counter(field_not_text=2))
    assert read_all(path, TextConfig(text_field="title,article.text")) == (
        [b"T\na\n", b"b\n"],
        Counter(field_not_text=2),
    )
    with pytest.raises(InputError, match=r'"article\.text" \(string\), "article\.n" \(int64\), "lang"'):
        read_all(path, TextConfig(text_field="body,tail"))
    write(path, pyarrow.table({"a.b": ["literal"], "a": [{"b": "nested"}], "meta": [{"lang": "de"}]}))
    assert read_all(path, TextConfig(text_field="a.b"))[0] == [b"literal\n"]
    found, _ = read_table_languages(path, TextConfig(text_field="a.b", language_field="meta.lang"))
    assert found == {"literal": "de"}


def test_a_field_without_text_is_reported_with_those_inside_of_others():
    damage = Damage()
    data = b'{"article": {"text": "long enough", "id": 1}}\n'
    json_lines.parse_lines(Block(data=data, format="jsonl", path="p", start=0), TextConfig(), damage)
    assert damage.fields.describe() == (
        'the record has the fields "article.id" (1), "article.text" (1); pass --text-field article.text'
    )


# ---- languages and groups ----

BY_FIELD = TextConfig(language="en", language_field="lang")


def read_languages(
    data: bytes, config: TextConfig, *, format: str = "jsonl", language: str | None = None, strict: bool = False
) -> tuple[list[tuple[bytes, str | None]], dict[str, int]]:
    """The first character of each document and its language."""
    damage, found = Damage(strict=strict), []
    stream = io.BytesIO(data)
    for block in read_blocks(stream, Origin("p", format, language), damage, text=config):
        for lines in batch_documents(clean_documents(block, config, damage)):
            starts = lines.line_offsets[lines.document_offsets[:-1]]
            codes = [None] * len(starts) if lines.source_codes is None else map(unpack_language, lines.source_codes)
            assert lines.source_codes is None or lines.source_codes.dtype == np.uint32
            found += [(bytes(lines.utf8[at : at + 1]), code) for at, code in zip(starts, codes, strict=True)]
    return found, dict(damage.counts)


def record(text: str, **fields: Any) -> bytes:
    return json.dumps({"text": text, **fields}).encode() + b"\n"


def test_a_field_names_the_language_of_a_line_and_the_input_that_of_the_others():
    data = record("a", lang="pt-BR") + record("b", lang="DEU") + record("c") + record("d", lang="English")
    data += record("e", lang=None) + record("f", lang="x" * 65) + record("g", lang=["de"]) + record("", lang="de")
    found, counts = read_languages(data, BY_FIELD)
    others = [(b"d", "und")]  # what is no language is a source without one
    assert found == [(b"a", "pt"), (b"b", "de"), (b"c", "en"), *others, *((letter.encode(), "en") for letter in "efg")]
    assert counts == {"unknown_language": 4, "empty_document": 1}
    assert read_languages(data, BY_FIELD, language="fr")[0][4:] == [(letter.encode(), "fr") for letter in "efg"]


def test_without_a_field_the_input_names_it_and_without_that_nothing_does():
    data = record("a", lang="de") + record("b")
    assert read_languages(data, TextConfig()) == ([(b"a", None), (b"b", None)], {})
    assert read_languages(data, TextConfig(), language="fr") == ([(b"a", "fr"), (b"b", "fr")], {})
    assert read_languages(b"a\n\nb\n", BY_FIELD, format="txt") == ([(b"a", "en"), (b"b", "en")], {})
    assert read_languages(b"a\n\nb\n", BY_FIELD, format="txt", language="fr")[0][1] == (b"b", "fr")


def test_a_large_line_has_its_language_too(monkeypatch: pytest.MonkeyPatch):
    values = ["de-AT", 7, "x" * 64, "x" * 65, " klingon ", "\U0001f600" * 64, "\U0001f600" * 65, "a\n", "\\"]
    values += ["de-" + "x" * 2000, "de" + " " * 2000, " " * 2000 + "de", "é" * 130]
    lines = [record("b"), *(record("a", lang=value) for value in values)]
    expected = read_languages(b"".join(lines), BY_FIELD)
    assert [code for _, code in expected[0]].count("und") == 5
    monkeypatch.setattr(json_lines, "LARGE_LINE", 4)
    assert read_languages(b"".join(lines), BY_FIELD) == expected


@pytest.mark.parametrize(
    ("fields", "problem"),
    [({}, "is missing"), ({"lang": ""}, "holds '', no ISO 639 code or other name"), ({"lang": 3}, "holds 3")],
)
def test_strict_names_the_line(fields: dict[str, Any], problem: str):
    with pytest.raises(InputError, match=f"p, byte 28: unknown language: field 'lang' {problem}"):
        read_languages(record("a", lang="de") + record("b", **fields), BY_FIELD, strict=True)


cut_documents = st.tuples(
    st.sampled_from(["a", "b " * 30, "c\n\n" * 40]), st.sampled_from(["de", "fr"]), st.sampled_from(["x", 7])
)


@pytest.mark.parametrize("unwrap", [False, True])
@given(st.lists(cut_documents, max_size=6))
def test_every_part_of_a_cut_document_has_its_language_and_group(
    unwrap: bool, documents: list[tuple[str, str, str | int]]
):
    data = b"".join(record(text, lang=language, book=group) for text, language, group in documents)
    config = TextConfig(language_field="lang", group_field="book", unwrap=unwrap)
    parts = list[tuple[str, str, int]]()
    with small_sizes():
        for block in read_blocks(io.BytesIO(data + record("d")), Origin("p", "jsonl"), Damage(), text=config):
            for lines in batch_documents(clean_documents(block, config, Damage())):
                assert lines.source_codes is not None
                letters = [chr(lines.utf8[at]) for at in lines.line_offsets[lines.document_offsets[:-1]]]
                parts += zip(
                    letters, map(unpack_language, lines.source_codes.tolist()), lines.groups.tolist(), strict=True
                )
                if letters[-1] == "d":  # without a group it is its own
                    assert lines.groups[-1] == lines.document_keys[-1]
    expected = [(text[0], language, hash_group(group)) for text, language, group in documents]
    assert [part for part, _ in groupby(parts[:-1])] == [part for part, _ in groupby(expected)]


@pytest.mark.parametrize("name", ["", "text"])
def test_a_language_field_that_can_be_none_is_refused(name: str):
    with pytest.raises(ConfigError, match="name the field that holds the language"):
        TextConfig(language_field=name)
