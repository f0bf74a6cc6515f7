"""Parquet and Arrow: types of columns, nulls, languages, parts, and what is wrong with a file."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import build_fixtures as fixtures
import pyarrow
import pyarrow.parquet
import pytest
from corpus_fixtures import clean, read_inputs, small_sizes
from format_fixtures import (
    MOST_ROWS,
    declare_nulls,
    make_table,
    write_arrow,
    write_feather,
    write_parquet,
    write_stream,
)
from refusals import check_refused, refused
from test_corpus_formats import read_all, read_languages

from albert_data.config import TextConfig
from albert_data.corpus.blocks import Origin
from albert_data.corpus.damage import Damage
from albert_data.corpus.formats import tables
from albert_data.corpus.formats.tables import list_begins
from albert_data.corpus.inputs import find_inputs
from albert_data.corpus.refused import RefusedInputs
from albert_data.corpus.tasks import FileRange, plan_tasks, read_range
from albert_data.errors import InputError

WRITERS = {"a.parquet": write_parquet, "a.arrow": write_arrow, "b.arrows": write_stream, "a.feather": write_feather}
TEXTS = ["one", None, "zwei\n\nlines", "", " \u2028", "three", "one"]
KINDS = [
    pyarrow.string(),
    pyarrow.large_string(),
    pyarrow.dictionary(pyarrow.int8(), pyarrow.string()),
    pyarrow.dictionary(pyarrow.int32(), pyarrow.large_string()),
    *([pyarrow.string_view()] if hasattr(pyarrow, "string_view") else []),
]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_text_may_be_any_kind_of_string_and_null_is_no_text(tmp_path, name, kind):
    WRITERS[name](tmp_path / name, make_table(TEXTS, kind))
    found, counts = read_all(tmp_path / name)
    assert found == [b"one\n", b"one\n", b"three\n", b"zwei\nlines\n"]
    assert counts == Counter(field_not_text=1, empty_document=2)


@pytest.mark.parametrize("name", WRITERS)
def test_a_table_names_the_language_of_each_row(tmp_path, name):
    labels = ["de", "en-GB", None, "klingon", "de"]
    table = pyarrow.table({"lang": labels, "text": ["eins", "two", "three", "four", "fünf"]})
    WRITERS[name](tmp_path / name, table)
    found, damage = read_languages(tmp_path / name, TextConfig(language="fr", language_field="lang"))
    assert found == {"eins": "de", "two": "en", "three": "fr", "four": "und", "fünf": "de"}
    assert (damage.counts, damage.matched) == (Counter(unknown_language=1), {"lang"})
    assert damage.names == {"klingon"}
    found, damage = read_languages(tmp_path / name, TextConfig(language="fr", language_field="missing"))
    assert (set(found.values()), damage.matched, damage.unmatched) == ({"fr"}, set(), {"missing"})


@pytest.mark.parametrize("name", ["groups.parquet", "a.arrow", "b.arrow"])
def test_workers_share_the_row_groups_and_record_batches_of_a_file(tmp_path, name):
    table = make_table(fixtures.make_documents(200, seed=1))
    if name == "groups.parquet":
        write_parquet(tmp_path / name, table, row_group_size=9)
    else:
        (write_arrow if name == "a.arrow" else write_stream)(tmp_path / name, table, rows=9)
    with fixtures.small_tasks(1 << 12):
        tasks = plan_tasks(find_inputs([str(tmp_path / name)]))
        assert len(tasks) > 5
        assert sum(task.num_bytes for task in tasks) == (tmp_path / name).stat().st_size
        parts = [len(list(clean(task.read(Damage()), TextConfig(), Damage()))) for task in tasks]
    assert sum(parts) == 200
    assert max(parts) < 100


def test_a_long_text_is_cut_in_the_same_places_as_in_json(tmp_path):
    text = "\ufeff" + "Words and words.\r\n\r\n" * 3_000
    (tmp_path / "a.jsonl").write_bytes(fixtures.to_jsonl([text, "short"]))
    write_parquet(tmp_path / "a.parquet", make_table([text, "short"]))
    with small_sizes(max_line=1 << 10, max_document=1 << 14):
        found, counts = read_all(tmp_path / "a.parquet")
        assert (found, counts) == read_all(tmp_path / "a.jsonl")
    assert counts["long_document_cut"] > 0


@pytest.mark.parametrize("name", WRITERS)
def test_bytes_that_are_no_utf8_are_repaired_and_counted(tmp_path, name):
    column = pyarrow.array([b"good", b"\xff bad", b"cut \xe2\x80"]).view(pyarrow.string())
    WRITERS[name](tmp_path / name, pyarrow.table({"text": column}))
    assert read_all(tmp_path / name) == (
        sorted([b"good\n", "\ufffd bad\n".encode(), "cut \ufffd\n".encode()]),
        Counter(invalid_utf8=2),
    )
    with pytest.raises(InputError, match=rf"{name}, .*row 0 or later: invalid utf8: byte 0xff"):
        read_all(tmp_path / name, TextConfig(strict=True))


# ---- wrong files ----


@refused(
    (
        {},
        RefusedInputs,
        'without the field "text", with "id" (int64), "content" (string); name fields of text',
    ),
    ({"text_field": "id"}, InputError, 'the field "id" is of the type int64, no text; name another with --text-field'),
)
def test_a_missing_field_is_an_error_that_lists_the_fields(call, kind, named, tmp_path):
    write_parquet(tmp_path / "a.parquet", pyarrow.table({"id": [1], "content": ["a"]}))
    check_refused(lambda: read_all(tmp_path / "a.parquet", TextConfig(**call)), kind, f"input {tmp_path} & {named}")


@pytest.mark.parametrize("name", WRITERS)
def test_a_label_or_field_that_is_no_text_or_there_twice_is_an_error(tmp_path, name):
    table = pyarrow.table({"text": ["a"], "n": [1], "list": [["x"]]})
    WRITERS[name](tmp_path / name, table)
    for field in ("n", "list"):
        with pytest.raises(InputError, match=rf'the field "{field}" is of the type .*, no text; name another'):
            read_all(tmp_path / name, TextConfig(language_field=field))
    inner = pyarrow.StructArray.from_arrays([["a"], ["b"]], names=["x", "x"])
    WRITERS[name](tmp_path / name, pyarrow.table([["a"], ["b"], ["c"], inner], names=["text", "lang", "lang", "s"]))
    assert read_all(tmp_path / name)[0] == [b"a\n"]
    for settings in ({"language_field": "lang"}, {"text_field": "lang"}, {"text_field": "s.x"}):
        with pytest.raises(InputError, match=r'has 2 fields "(lang|s\.x|x)"; write it again with a name for each'):
            read_all(tmp_path / name, TextConfig(**settings))


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_cut_short_or_no_table_is_named(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path, make_table(["text"] * 50))
    whole = path.read_bytes()
    cuts = [0, 3, 30] if name == "b.arrows" else [0, 3, 30, len(whole) // 2, len(whole) - 1]
    for data in (b"plain text, and no table" * 10, *(whole[:cut] for cut in cuts)):
        path.write_bytes(data)
        with pytest.raises(InputError, match=rf"input .*{name} can't be read as (Parquet|Arrow): .*; restore it"):
            read_all(path)


def find_lost_share(path: Path) -> float:
    damage = Damage()
    read_inputs(find_inputs([str(path)]), TextConfig(), damage)
    ((_, counts),) = damage.inputs.finish()[0]
    return counts.lost_share


def test_a_stream_that_is_cut_short_keeps_its_whole_batches(tmp_path):
    path = write_stream(tmp_path / "a.arrow", make_table([f"text {i}" for i in range(50)]), rows=10)
    path.write_bytes(path.read_bytes()[:-100])
    found, counts = read_all(path)
    assert (len(found), counts) == (40, Counter(damaged_table=1))
    assert 0.1 < find_lost_share(path) < 0.3
    labels = pyarrow.array(["a"] * 2000).dictionary_encode()
    table = pyarrow.table({"text": [f"text {i}" for i in range(2000)], "label": labels})
    with_dictionary = write_stream(tmp_path / "b.arrow", table, rows=100)
    with_dictionary.write_bytes(with_dictionary.read_bytes()[:-100])
    assert 0.02 < find_lost_share(with_dictionary) < 0.1
    with pytest.raises(InputError, match=r"a\.arrow, record batch at byte \d+, row 0 or later: damaged table: Expect"):
        read_all(path, TextConfig(strict=True))


def test_a_damaged_row_group_is_counted_and_the_others_are_read(tmp_path):
    texts = [f"text number {i}" * 5 for i in range(300)]
    path = write_parquet(tmp_path / "a.parquet", make_table(texts), row_group_size=100, use_dictionary=False)
    data = bytearray(path.read_bytes())
    column = pyarrow.parquet.ParquetFile(path).metadata.row_group(1).column(1)
    data[column.data_page_offset : column.data_page_offset + 40] = bytes(range(200, 240))
    path.write_bytes(data)
    found, counts = read_all(path)
    assert (len(found), counts) == (200, Counter(damaged_table=1))
    assert find_lost_share(path) == pytest.approx(1 / 3, abs=0.01)


def read_damaged(folder: Path) -> None:
    """Read Arrow streams of all kinds of columns, in each of which one 32-bit number is replaced."""
    texts = ["some words of a text", None, "x"]
    inner = pyarrow.array([text and {"x": text} for text in texts], pyarrow.struct([("x", pyarrow.string())]))
    columns = [*(pyarrow.array(texts).cast(kind) for kind in KINDS), inner]
    for column in columns:
        field = "t.x" if column is inner else "t"
        whole = write_stream(folder / "a.arrow", pyarrow.table({"t": column, "label": column})).read_bytes()
        config = TextConfig(text_field=field, language_field=field.replace("t", "label"))
        for at, value in zip(range(0, len(whole), 4), cycle((9, 0xFFFFFFFF, 0x7FFFFFF8)), strict=False):
            (folder / "a.arrow").write_bytes(whole[:at] + value.to_bytes(4, "little") + whole[at + 4 :])
            damage = Damage()
            with suppress(InputError):
                list_begins(Origin(str(folder / "a.arrow"), "arrow"), config)
                part = FileRange(Origin(str(folder / "a.arrow"), "arrow"), 0, len(whole))
                for block in read_range(part, config, damage):
                    assert len(block.data) < 1000


def test_damage_in_a_column_is_found_before_its_memory_is_read(tmp_path):
    """In a process of its own, which reading past the end of a buffer would end."""
    process = multiprocessing.get_context("spawn").Process(target=read_damaged, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_rows_that_no_bytes_stand_for_take_no_time(tmp_path):
    write_arrow(tmp_path / "a.arrow", pyarrow.table({"text": declare_nulls(MOST_ROWS)}), rows=MOST_ROWS)
    assert read_all(tmp_path / "a.arrow") == ([], Counter(field_not_text=MOST_ROWS))
    with pytest.raises(InputError, match=r"a\.arrow, record batch 0, row 0: field not text"):
        read_all(tmp_path / "a.arrow", TextConfig(strict=True))


def test_a_parquet_file_of_more_rows_than_it_can_hold_is_refused(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "a.parquet", pyarrow.table({"text": pyarrow.nulls(1 << 21, pyarrow.string())}))
    assert read_all(path) == ([], Counter(field_not_text=1 << 21))
    monkeypatch.setattr(tables, "_MANY_ROWS", 1000)
    monkeypatch.setattr(tables, "_MAX_ROWS_PER_BYTE", 100)
    with pytest.raises(InputError, match=r"can't be read as Parquet: it declares 2097152 rows in \d+ bytes; restore"):
        read_all(path)


@pytest.mark.parametrize("name", WRITERS)
def test_tables_of_no_rows_or_of_nulls_hold_no_document(tmp_path, name):
    for table, num_nulls in ((make_table([]), 0), (pyarrow.table({"text": pyarrow.nulls(3)}), 3)):
        WRITERS[name](tmp_path / name, table)
        assert read_all(tmp_path / name) == ([], Counter(field_not_text=num_nulls) if num_nulls else Counter())


def test_an_encoding_is_that_of_text_beside_tables_and_a_table_in_a_pipe_is_refused(tmp_path):
    write_parquet(tmp_path / "a.parquet", make_table(["ä"]))
    (tmp_path / "a.txt").write_bytes("ö".encode("cp1252"))
    assert read_all(tmp_path, TextConfig(encoding="cp1252"))[0] == ["ä\n".encode(), "ö\n".encode()]
    os.mkfifo(tmp_path / "b.parquet")
    with pytest.raises(InputError, match="a table can't be read from one"):
        find_inputs([str(tmp_path / "b.parquet")])
