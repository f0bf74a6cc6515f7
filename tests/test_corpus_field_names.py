"""Fields inside of others, and several joined, in JSON lines (small and large ones) and in tables."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from format_fixtures import write_arrow, write_parquet, write_stream
from hypothesis import given
from hypothesis import strategies as st
from test_corpus_formats import read_all
from test_corpus_tables import read_languages

from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import look_up
from albert_data.corpus.formats import json_lines
from albert_data.errors import InputError


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
    found, _ = read_languages(path, TextConfig(text_field="a.b", language_field="meta.lang"))
    assert found == {"literal": "de"}


def test_a_field_without_text_is_reported_with_those_inside_of_others(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"article": {"text": "long enough", "id": 1}}\n')
    damage = Damage()
    json_lines.parse_lines(
        Block(data=(tmp_path / "a.jsonl").read_bytes(), format="jsonl", path="p", start=0), TextConfig(), damage
    )
    assert damage.fields.describe() == (
        'the record has the fields "article.id" (1), "article.text" (1); pass --text-field article.text'
    )
