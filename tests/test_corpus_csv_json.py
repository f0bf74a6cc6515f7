"""CSV and JSON files: rows and elements of every layout, and what is wrong with them."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from corpus_fixtures import read
from hypothesis import given
from hypothesis import strategies as st
from test_corpus_formats import read_all
from test_corpus_tables import read_languages

from albert_data.config import TextConfig, VocabConfig
from albert_data.corpus import inputs
from albert_data.corpus.blocks import Origin
from albert_data.corpus.damage import Damage
from albert_data.corpus.formats import csv_files, json_arrays
from albert_data.corpus.formats.json_arrays import as_json_lines
from albert_data.corpus.formats.records import make_blocks
from albert_data.corpus.tasks import plan_tasks
from albert_data.errors import InputError
from albert_data.tokenizer.model import Tokenizer
from albert_data.vocab.learning import learn_vocabulary


def read_text(tmp_path: Path, name: str, text: str, **settings: Any) -> tuple[list[bytes], Counter[str]]:
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    return read_all(tmp_path / name, TextConfig(**settings))


# ---- CSV ----


def test_quotes_hold_line_ends_delimiters_and_quotes(tmp_path: Path):
    found, counts = read_text(
        tmp_path, "a.csv", '\ufeff"text",id\r\n"one, ""two""\r\n\r\nthree",1\r\n\r\nfour "4",2\r\n"",3\r\n'
    )
    assert (found, counts) == ([b'four "4"\n', b'one, "two"\nthree\n'], Counter(empty_document=1))
    found, counts = read_text(tmp_path, "a.tsv", 'id\ttext\n1\t"a\tb"\n2\tc, d')
    assert (found, counts) == ([b"a b\n", b"c, d\n"], Counter())


def test_rows_of_another_width_are_counted(tmp_path: Path):
    text = "id,text\n1,a\n2\n3,b,c\n4,d\n"
    assert read_text(tmp_path, "a.csv", text) == ([b"a\n", b"d\n"], Counter(malformed_row=2))
    with pytest.raises(InputError, match=r"a\.csv, row 2: malformed row: 1 fields, but the header has 2; fix"):
        read_text(tmp_path, "a.csv", text, strict=True)


def test_a_quote_that_is_not_closed_loses_its_row_alone(tmp_path: Path):
    assert read_text(tmp_path, "a.csv", 'text\na\n"b\nc\n') == ([b"a\n"], Counter(malformed_row=1))
    assert read_text(tmp_path, "a.csv", "text\na\nb") == ([b"a\n", b"b\n"], Counter())


def test_a_row_that_is_too_long_ends_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(csv_files, "MAX_ROW", 100)
    for long in ("x" * 200, '"' + "line\n" * 50 + '"'):
        assert read_text(tmp_path, "a.csv", f"text\na\n{long}\nb\n") == ([b"a\n"], Counter(row_too_long=1))


@pytest.mark.parametrize("long", ["é" * 60, '"' + "é\n" * 40 + '"', "," * 11, '","' * 11])
def test_a_row_is_limited_by_bytes_and_fields_before_it_is_parsed(
    tmp_path: Path, long: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(csv_files, "MAX_ROW", 100)
    monkeypatch.setattr(csv_files, "_MAX_FIELDS", 10)
    monkeypatch.setattr(csv_files, "_CHUNK", 7)
    text = f"text\na\n{'b' * 90}\n{long}\nc\n"
    assert read_text(tmp_path, "a.csv", text) == ([b"a\n", b"b" * 90 + b"\n"], Counter(row_too_long=1))


def test_rows_are_handed_on_as_they_are_read(monkeypatch: pytest.MonkeyPatch):
    rows = [f"{letter * size},{'x' * (100_000 - size)}\n" for letter in "abcd" for size in (10, 90_000)] * 10
    stream, handed_on, held = io.BytesIO("".join(["text,lang\n", *rows]).encode()), list[int](), list[int]()

    def note(rows: Any) -> Any:
        for row in rows:
            handed_on.append(100_002)
            held.append(stream.tell() - sum(handed_on))
            yield row

    def make(parts: Any, *rest: Any) -> Any:
        return make_blocks((replace(part, rows=note(part.rows)) for part in parts), *rest)

    monkeypatch.setattr(csv_files, "make_blocks", make)
    text = TextConfig(language_field="lang")
    blocks = list(csv_files.read_rows(stream, Origin("p", "csv"), text, Damage(), lambda position: 4 << 20))
    assert sum(len(block.ends or ()) for block in blocks) == len(handed_on) == len(rows)
    assert max(held) < 1 << 14


def test_a_header_that_has_a_name_twice_is_an_error(tmp_path: Path):
    for settings in ({"text_field": "a"}, {"text_field": "id,a"}, {"text_field": "id", "language_field": "a"}):
        with pytest.raises(InputError, match=r'a\.csv has 2 fields "a"; give each a name of its own'):
            read_text(tmp_path, "a.csv", "a,id,a\n1,2,3\n", **settings)
    assert read_text(tmp_path, "a.csv", "a,id,a\n1,2,3\n", text_field="id")[0] == [b"2\n"]


def test_a_long_value_is_no_error(tmp_path: Path):
    long = "long words " * 50_000
    assert read_text(tmp_path, "a.csv", f'text\n"{long}"\n') == ([long.strip().encode() + b"\n"], Counter())


def test_a_header_without_the_field_is_an_error_that_lists_it(tmp_path: Path):
    with pytest.raises(InputError, match=r'no field "text"; its header has the fields "body", "id"; name one'):
        read_text(tmp_path, "a.csv", "id,body\n1,a\n")
    assert read_text(tmp_path, "a.csv", "") == ([], Counter())
    assert read_text(tmp_path, "a.csv", "id,text\n") == ([], Counter())


def test_columns_are_joined_and_name_languages(tmp_path: Path):
    (tmp_path / "a.csv").write_text("title,text,lang\nT,a,de\n,b,\nA,,en\n")
    assert read_all(tmp_path / "a.csv", TextConfig(text_field="title,text"))[0] == [b"A\n", b"T\na\n", b"b\n"]
    found, damage = read_languages(tmp_path / "a.csv", TextConfig(language="fr", language_field="lang"))
    assert (found, damage.counts) == ({"a": "de", "b": "fr"}, Counter(unknown_language=1, empty_document=1))


def test_damage_and_other_encodings_are_as_in_text(tmp_path: Path):
    assert read_text(tmp_path, "a.csv", "text\nbad \udcff\n") == (["bad \ufffd\n".encode()], Counter(invalid_utf8=1))
    (tmp_path / "b.csv").write_bytes("text\nzwölf\n".encode("utf-16"))
    assert read_all(tmp_path / "b.csv")[0] == ["zwölf\n".encode()]
    (tmp_path / "b.csv").write_bytes("text\nzwölf\n".encode("cp1252"))
    assert read_all(tmp_path / "b.csv", TextConfig(encoding="cp1252"))[0] == ["zwölf\n".encode()]


cells = st.text(st.sampled_from('ab"\n\r, \t\0ü'), max_size=8)


@given(st.lists(cells, min_size=1, max_size=8))
def test_rows_are_those_of_the_csv_module(texts: list[str]):
    file = io.StringIO(newline="")
    csv.writer(file).writerows([["text", "id"], *([text, "1"] for text in texts)])
    data = file.getvalue()
    rows = [row for row in csv.reader(io.StringIO(data, newline="")) if row]
    expected = "".join(json.dumps({"text": row[0]}) + "\n" for row in rows[1:] if len(row) == 2).encode()
    assert read(data.encode(), "csv") == read(expected, "jsonl")


# ---- JSON ----


@pytest.mark.parametrize(
    "text",
    [
        '[{"text": "a"}, {"text": "b\\n[c", "x": {"y": ["]", {}]}}, {"text": "d \\" }"}]',
        '\ufeff\n [\n {"text":\n"a"},{\r\n"text": "b\\n[c"} ,\n{"text": "d \\" }"}\n]\n',
        '["a", "b\\n[c", "d \\" }"]',
        '{"text": "a"}\n{"text": "b\\n[c"}\n{"text": "d \\" }"}',
        '{"text": "a"}{\n"text": "b\\n[c"\n} {"text": "d \\" }"}',
        '[{"text": "a"}]\n["b\\n[c"][{"text": "d \\" }"}]',
    ],
)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_elements_may_lie_in_any_layout(tmp_path: Path, text: str, chunk: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_arrays, "_CHUNK", chunk)
    assert read_text(tmp_path, "a.json", text, strict=True) == ([b"a\n", b"b\n[c\n", b'd " }\n'], Counter())


def test_a_string_becomes_the_text_field_of_any_name(tmp_path: Path):
    assert read_text(tmp_path, "a.json", '["a"]', text_field='x,"y"')[0] == [b"a\n"]


def test_elements_that_are_no_records_are_counted(tmp_path: Path):
    text = '[1, null, true, [], ["x"], {}, {"text": 3}, {"text": "good"}, {"text": "cut'
    assert read_text(tmp_path, "a.json", text) == (
        [b"good\n"],
        Counter(malformed_json=6, missing_field=1, field_not_text=1),
    )


def test_damage_loses_one_element(tmp_path: Path):
    text = '[{"text": "a"}, {"text": "line\nfeed"}, \n {"text": "b"}, {"text": "c"}]'
    found, counts = read_text(tmp_path, "a.json", text)
    assert found == [b"a\n", b"b\n", b"c\n"]
    assert set(counts) == {"malformed_json"}


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=6), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(st.lists(st.dictionaries(st.sampled_from(["text", "b"]), values)), st.sampled_from([None, 0, 2]), st.booleans())
def test_an_array_is_read_like_lines(records: list[dict[str, Any]], indent: int | None, is_ascii: bool):
    array = json.dumps(records, indent=indent, ensure_ascii=is_ascii).encode(errors="replace")
    lines = "".join(json.dumps(record, ensure_ascii=is_ascii) + "\n" for record in records).encode(errors="replace")
    stream: Any = as_json_lines(io.BytesIO(array), "text")
    assert read(stream, "jsonl") == read(lines, "jsonl")


# ---- sharing ----


def test_labels_are_missed_where_the_parent_reads_the_rows_too(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(inputs, "_SMALL_BYTES", 1)
    (tmp_path / "a.csv").write_text("id,text\n1,Some words.\n")
    with pytest.raises(InputError, match=r'no line has the field "lang"; the fields are "id" \(1\), "text" \(1\)'):
        fixtures.run_build(tmp_path / "a.csv", tmp_path / "out", tokenizer, language_field="lang")
    with pytest.raises(InputError, match=r'no line has the field "lang"; the fields are "id" \(1\), "text" \(1\)'):
        learn_vocabulary(
            inputs.find_inputs([str(tmp_path / "a.csv")]),
            TextConfig(language_field="lang"),
            VocabConfig(vocab_size=300),
            fixtures.InlineEngine(),
        )


def test_small_files_share_tasks_and_large_ones_are_read_by_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for number in range(5):
        (tmp_path / f"{number}.json").write_text('{"text": "a"}')
        (tmp_path / f"{number}.csv").write_text("text\nb\n")
    assert len(plan_tasks(inputs.find_inputs([str(tmp_path)]))) == 1
    assert len(read_all(tmp_path)[0]) == 10
    monkeypatch.setattr(inputs, "_SMALL_BYTES", 1)
    assert plan_tasks(inputs.find_inputs([str(tmp_path)])) == []
    assert len(read_all(tmp_path)[0]) == 10
