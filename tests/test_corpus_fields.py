"""Fields of records, inside of others and joined; and what says that input is meant to be read in another way."""

from __future__ import annotations

import io
import json
import textwrap
from collections import Counter
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow
import pytest
from build_fixtures import canonical
from corpus_fixtures import any_bytes, block_sizes, clean, read, small_sizes
from format_fixtures import write_arrow, write_parquet, write_stream
from hypothesis import given
from hypothesis import strategies as st
from test_corpus_formats import read_all
from test_corpus_formats import read_languages as read_table_languages

from albert_data.clean.documents import batch_documents, clean_documents
from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block, Origin, read_blocks
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import Fields, hash_group, look_up
from albert_data.corpus.formats import json_lines
from albert_data.corpus.layout import SHORT_BYTES, advise
from albert_data.errors import ConfigError, InputError
from albert_data.jobs.receipts import from_values, to_values
from albert_data.text.languages import decode_language
from albert_data.vocab.reading import check_found


def read_lines(records: list[Any], field: str, *, large: bool) -> tuple[list[bytes], Counter[str]]:
    """The texts of JSON lines. large: as those that json.loads must not read."""
    data = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    damage = Damage()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "LARGE_LINE", 0 if large else 1 << 20)
        block = Block(data, Origin("p", "jsonl"))
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
    ("records", "field", "expected", "counts"),
    [
        (RECORDS, "article.text", [b"a", b"literal", b"first"], {"missing_field": 3, "field_not_text": 3}),
        (RECORDS, "article.deep.er", [b"b"], {"missing_field": 8}),
        (
            *(RECORDS, "title,article.text", [b"T\na", b"only", b"literal", b"first"]),
            {"missing_part": 3, "missing_field": 1, "field_not_text": 3, "empty_document": 1},
        ),
        (RECORDS[6:7], "title,text", [b"comma"], {}),  # a field of the whole name comes first
        ([{"a.b": None, "a": {"b": "c"}}], "a.b", [], {"field_not_text": 1}),
    ],
)
def test_points_lead_into_objects_and_commas_join_fields(records, field, expected, counts, large):
    assert read_lines(records, field, large=large) == (expected, Counter(counts))


names = st.sampled_from(["a", "b", "a.b", "a,b", ""])
values = st.recursive(
    st.sampled_from(["x", "", " \u2028", "\n", None, 1, True, "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


def join_text(value: Any) -> str | None:
    """A string, or the strings of a list a line each; null in a list is none, and anything else makes it no text."""
    if isinstance(value, list) and {str, type(None)} >= set(map(type, value)):
        return "\n".join(one for one in value if one is not None)
    return value if isinstance(value, str) else None


@given(
    st.lists(st.dictionaries(names, values, max_size=4), max_size=4), st.sampled_from(["a", "a.b", "b,a.b", "a.a.b"])
)
def test_large_lines_give_what_small_ones_give(records, field):
    small = read_lines(records, field, large=False)
    if "\\ud800" not in json.dumps(records):
        assert read_lines(records, field, large=True) == small
    expected = [look_up(record, field)[0] for record in records]
    if "," not in field:
        texts = [text for one in expected if (text := join_text(one)) is not None and text.strip(" \n\u2028")]
        assert len(small[0]) == len(texts)


# ---- lists of strings ----

STRING, BINARY = pyarrow.string(), pyarrow.binary()
LISTS = [
    *(pyarrow.list_(STRING), pyarrow.large_list(pyarrow.large_string()), pyarrow.list_(BINARY)),
    *(pyarrow.large_list(pyarrow.large_binary()), pyarrow.list_(pyarrow.dictionary(pyarrow.int8(), STRING))),
]
some_lists = st.none() | st.lists(st.sampled_from([None, "", "a", "b\n\nc", "中"]), max_size=3)
list_records = st.lists(st.fixed_dictionaries({"title": some_lists, "a": some_lists}), min_size=1, max_size=6)


def write_lists(folder: Path, records: list[Any], kind: pyarrow.DataType, rows: int) -> list[Path]:
    """The same records in each format; the field `a` is `in.a`."""
    nested = [{"title": one["title"], "in": {"a": one["a"]}} for one in records]
    (folder / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in nested))
    (folder / "a.json").write_text(json.dumps(nested))
    title, inner = (pyarrow.array([one[name] for one in records], pyarrow.list_(STRING)) for name in ("title", "a"))
    columns = [title.cast(kind), pyarrow.StructArray.from_arrays([inner.cast(kind)], ["a"])]
    table = pyarrow.table(columns, ["title", "in"])
    write_parquet(folder / "a.parquet", table, row_group_size=rows)
    write_arrow(folder / "a.arrow", table, rows=rows)
    write_stream(folder / "b.arrow", table, rows=rows)
    return sorted(folder.iterdir())


@given(list_records, st.sampled_from(LISTS), st.sampled_from(["title", "in.a", "title,in.a"]), st.integers(1, 3))
def test_lists_are_joined_alike_in_all_formats(records, kind, field, rows):
    texts = [[join_text(one["a" if name == "in.a" else name]) for name in field.split(",")] for one in records]
    found = ["\n".join(text for text in some if text is not None) for some in texts if any(x is not None for x in some)]
    expected = sorted(canonical(text) for text in found if canonical(text))
    counts = Counter(field_not_text=len(records) - len(found), empty_document=len(found) - len(expected))
    with TemporaryDirectory() as name:
        for path in write_lists(Path(name), records, kind, rows):
            assert read_all(path, TextConfig(text_field=field)) == (expected, +counts), path


def test_a_list_with_something_else_is_no_text_and_says_what(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": ["a", 3]}\n{"text": ["b"]}\n')
    assert read_all(tmp_path / "a.jsonl") == ([b"b\n"], Counter(field_not_text=1))
    with pytest.raises(InputError, match="byte 0: field not text: field 'text' holds list of int, not a string or str"):
        read_all(tmp_path / "a.jsonl", TextConfig(strict=True))
    write_parquet(tmp_path / "a.parquet", pyarrow.table({"text": [[1, 2]]}))
    with pytest.raises(InputError, match='the field "text" is of the type list<.*>, no text'):
        read_all(tmp_path / "a.parquet")


def test_a_blank_string_in_a_list_ends_a_paragraph(tmp_path):
    lines = [
        "A line that was wrapped by a program at this column of it",
        "goes on here.",
        "",
        "another paragraph begins",
    ]
    lines = [*lines, "and goes on."] * 9
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": lines}))
    write_parquet(tmp_path / "a.parquet", pyarrow.table({"text": [lines]}))
    (tmp_path / "a.txt").write_text("\n".join(lines))
    found = [
        read_all(tmp_path / f"a.{one}", TextConfig(unwrap=True, document_rule="file"))[0]
        for one in ("jsonl", "parquet", "txt")
    ]
    assert found[0] == found[1] == found[2]
    assert b"column of it goes on here.\nanother paragraph" in found[0][0]


@pytest.mark.parametrize("offsets", [[0, 2, 1, 3], [0, -1, 2, 3], [0, 9, 2, 3]])
def test_damaged_offsets_of_lists_lead_nowhere(tmp_path, offsets):
    buffers = [None, pyarrow.array(offsets, pyarrow.int32()).buffers()[1]]
    array = pyarrow.ListArray.from_buffers(pyarrow.list_(STRING), 3, buffers, children=[pyarrow.array(["a", "b", "c"])])
    write_arrow(tmp_path / "a.arrow", pyarrow.table({"text": array}))
    assert read_all(tmp_path / "a.arrow") == ([], Counter(damaged_table=1))


# ---- bytes ----


@pytest.mark.parametrize("kind", [BINARY, pyarrow.large_binary(), pyarrow.dictionary(pyarrow.int8(), BINARY)], ids=str)
def test_bytes_are_text_repaired_as_in_text_files(tmp_path, kind):
    texts = ["Grüße".encode(), None, b"a\xffb", b""]
    (tmp_path / "a.txt").write_bytes(b"\n\n".join(filter(None, texts)))
    table = pyarrow.table({"text": pyarrow.array(texts, BINARY).cast(kind)})
    found, counts = read_all(write_parquet(tmp_path / "a.parquet", table))
    assert (found, Counter(invalid_utf8=1)) == read_all(tmp_path / "a.txt")
    assert counts == Counter(invalid_utf8=1, field_not_text=1, empty_document=1)


@pytest.mark.parametrize("write", [write_parquet, write_arrow, write_stream])
def test_structs_of_tables_are_read_in_the_same_way(tmp_path, write):
    article = [{"text": "a", "n": 1}, {"text": None, "n": 2}, None, {"text": "b", "n": 3}]
    kind = pyarrow.struct([("text", pyarrow.string()), ("n", pyarrow.int64())])
    table = pyarrow.table(
        {"title": ["T", None, None, None], "article": pyarrow.array(article, kind), "lang": ["de", "en", "en", "en"]}
    )
    path = tmp_path / ("a.parquet" if write is write_parquet else "a.arrow")
    write(path, table)
    assert read_all(path, TextConfig(text_field="article.text")) == ([b"a\n", b"b\n"], Counter(field_not_text=2))
    joined = TextConfig(text_field="title,article.text")
    assert read_all(path, joined) == ([b"T\na\n", b"b\n"], Counter(field_not_text=2))
    with pytest.raises(InputError, match=r'"article\.text" \(string\), "article\.n" \(int64\), "lang"'):
        read_all(path, TextConfig(text_field="body,tail"))
    write(path, pyarrow.table({"a.b": ["literal"], "a": [{"b": "nested"}], "meta": [{"lang": "de"}]}))
    assert read_all(path, TextConfig(text_field="a.b"))[0] == [b"literal\n"]
    found, _ = read_table_languages(path, TextConfig(text_field="a.b", language_field="meta.lang"))
    assert found == {"literal": "de"}


def test_a_field_without_text_is_reported_with_those_inside_of_others():
    damage = Damage()
    data = b'{"article": {"text": "long enough", "id": 1}}\n'
    json_lines.parse_lines(Block(data, Origin("p", "jsonl")), TextConfig(), damage)
    assert damage.fields.describe() == (
        'the record has the fields "article.id" (1), "article.text" (1); '
        "pass --text-field NAME with the one that holds the text"
    )


# ---- languages and groups ----

BY_FIELD = TextConfig(language="en", language_field="lang")


def read_languages(
    data: bytes, config: TextConfig, *, format: str = "jsonl", language: str | None = None, strict: bool = False
) -> tuple[list[tuple[bytes, str | None]], dict[str, int]]:
    """The first character of each document and its language."""
    damage = Damage(strict=strict)
    blocks = read_blocks(io.BytesIO(data), Origin("p", format, language), config, damage)
    return [(document[:1], code) for document, code in clean(blocks, config, damage)], dict(damage.counts)


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


def test_a_large_line_has_its_language_too(monkeypatch):
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
def test_strict_names_the_line_and_a_language_field_that_can_be_none_is_refused(fields, problem):
    with pytest.raises(InputError, match=f"p, byte 28: unknown language: field 'lang' {problem}"):
        read_languages(record("a", lang="de") + record("b", **fields), BY_FIELD, strict=True)
    for name in ("", "text"):
        with pytest.raises(ConfigError, match="name the field that holds the language"):
            TextConfig(language_field=name)


cut_documents = st.tuples(
    st.sampled_from(["a", "b " * 30, "c\n\n" * 40]), st.sampled_from(["de", "fr"]), st.sampled_from(["x", 7])
)


@pytest.mark.parametrize("unwrap", [False, True])
@given(st.lists(cut_documents, max_size=6))
def test_every_part_of_a_cut_document_has_its_language_and_group(unwrap, documents):
    data = b"".join(record(text, lang=language, book=group) for text, language, group in documents)
    config = TextConfig(language_field="lang", group_field="book", unwrap=unwrap)
    parts = list[tuple[str, str, int]]()
    with small_sizes():
        for block in read_blocks(io.BytesIO(data + record("d")), Origin("p", "jsonl"), config, Damage()):
            for lines in batch_documents(clean_documents(block, config, Damage())):
                assert lines.columns.source_codes is not None
                assert lines.columns.source_codes.dtype == np.uint32
                letters = [chr(lines.utf8[at]) for at in lines.line_offsets[lines.document_offsets[:-1]]]
                codes = map(decode_language, lines.columns.source_codes.tolist())
                parts += zip(letters, codes, lines.columns.groups.tolist(), strict=True)
                if letters[-1] == "d":  # without a group it is its own
                    assert lines.columns.groups[-1] == lines.document_keys[-1]
    expected = [(text[0], language, hash_group(group)) for text, language, group in documents]
    assert [part for part, _ in groupby(parts[:-1])] == [part for part, _ in groupby(expected)]


# ---- lines and documents as they are meant to be read ----

WORDS = "It was the best of times it was the worst of times it was the age of wisdom it was the age of foolishness "


def count(data: bytes, format: str = "txt", block_bytes: int = 4096) -> Damage:
    damage = Damage()
    blocks = read_blocks(io.BytesIO(data), Origin("p", format), TextConfig(), damage, lambda at: block_bytes)
    list(clean(blocks, TextConfig(), damage))
    return damage


@given(st.one_of(any_bytes, st.integers(0, 99).map(lambda number: b"line\n" * number)), block_sizes)
def test_lines_and_documents_are_counted_as_the_reference_counts_them(data, block_bytes):
    documents = [document.split(b"\n")[:-1] for document in read(data)[0]]
    inner = [line for lines in documents for at, line in enumerate(lines[:-1]) if at < 32 or at % 16 == 0]
    layout = count(data, block_bytes=block_bytes).layout
    assert layout["inner_lines"] == len(inner)
    assert layout["short_documents"] == sum(sum(len(line) + 1 for line in lines) < SHORT_BYTES for lines in documents)


@pytest.mark.parametrize(
    ("line", "is_wrapped"),
    [
        ("x" * 49, False),
        ("x" * 50, True),
        ("x" * 90 + ",", False),
        ("x" * 89 + ",", True),
        *(("x" * 60 + stop, False) for stop in (".", '."', "!", "?", ":", "…", ".”", "。", "！")),
        *(("中" * length, expected) for length, expected in ((24, False), (25, True), (45, True), (46, False))),
        ("й" * 60 + "ё", True),
    ],
)
def test_a_line_looks_wrapped_by_its_width_and_its_end(line, is_wrapped):
    layout = count(f"{line}\nlast\n".encode()).layout
    assert (layout["inner_lines"], layout["wrapped_lines"]) == (1, is_wrapped)


def advise_on(text: str, path: str = "a.txt", **settings: object) -> list[str]:
    damage = Damage()
    config = TextConfig(**settings)
    blocks = read_blocks(io.BytesIO(text.encode()), Origin("p", "txt"), config, damage)
    num_documents = len(list(clean(blocks, config, damage)))
    return [one.text for one in advise({"documents": num_documents, **damage.layout}, vars(config), [path])]


def test_wrapped_paragraphs_and_those_that_are_read_as_documents_are_noticed_and_the_options_named():
    text = "\n\n".join(textwrap.fill(WORDS * 4, 72) for _ in range(200))
    first, second = advise_on(text)
    assert "100 % of the line ends inside documents look as if" in first
    assert "pass --unwrap" in first
    assert "the 200 documents are under 400 bytes" in second
    assert "pass --documents file" in second
    assert advise_on(text, document_rule="file") == advise_on(text, path="a.jsonl") == [first]
    assert advise_on(text, document_rule="file", unwrap=True) == []
    text = "\n\n".join(["A short paragraph. It has two sentences."] * 300)
    (found,) = advise_on(text)
    assert found.startswith("100 % of the 300 documents are under 400 bytes, too short for pairs of some length")
    assert advise_on(text, document_rule="file") == []


@pytest.mark.parametrize(
    "text",
    [
        "\n\n".join([f"{WORDS * 5}.\n{WORDS * 9}."] * 300),
        "\n\n".join(["Roses are red,\nViolets are blue,\n" * 20] * 300),
        "\n\n".join([textwrap.fill(WORDS * 4, 72)] * 5),
        "\n".join(f"2026-11-{day:02} 10:04:31 worker {day} has read a block of 4,000 bytes" for day in range(300)),
        "\n".join(f"[info] worker {task} has read a block of four thousand bytes from disk" for task in range(300)),
    ],
    ids=["paragraphs a line", "verse", "too little to judge by", "log", "log with levels"],
)
def test_sound_text_gets_no_advice(text):
    assert advise_on(text) == []


# ---- the fields that were seen ----


def explain(lines: list[object]) -> str:
    damage = count(b"".join(json.dumps(line).encode() + b"\n" for line in lines), "jsonl")
    with pytest.raises(InputError) as caught:
        check_found([], TextConfig(), damage, 0)
    return str(caught.value)


def test_the_fields_that_were_seen_are_listed():
    records: list[object] = [{"id": str(number), "content": "Some text.", "n": 3} for number in range(30)]
    assert explain(records) == (
        'the corpus holds no document (30 missing field); the 30 records have the fields "content" (30), "id" (30), '
        '"n" (30); pass --text-field NAME with the one that holds the text'
    )
    assert '(1 field not text); the record has the field "text" (1); pass' in explain([{"text": [1]}])
    assert explain([]) == "the corpus holds no document; give files with text in them"


def test_names_of_fields_are_harmless_and_bounded():
    message = explain([{"\x1b[2J" + "x" * 99: "text"}, *({f"field {number}": number} for number in range(500))])
    assert "\x1b" not in message
    assert '"\\x1b[2J' in message or "and 92 more" in message
    assert len(message) < 500


def test_fields_are_added_up_over_tasks_and_receipts():
    first, second = Fields(), Fields()
    first.add({"a": "a text", "\ud800": 1})
    second.add({"a": "more text", "b": 2})
    first.merge(from_values(json.loads(json.dumps(to_values(second))), Fields))
    assert (first.num_records, first.counts) == (2, Counter({"a": 2, "b": 1, "\\ud800": 1}))
    json.dumps(to_values(first), ensure_ascii=False).encode()
