"""The column `source`: from a document's language to a number in the shard, and checked like all other values."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import numpy as np
import pyarrow
import pytest
from build_fixtures import digest_shards, run_build
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused
from row_fixtures import make_examples, numbered_rows, plain, rows_16
from shard_fixtures import change_manifest, describe_again, write_shards

from albert_data.errors import ShardError
from albert_data.inspect.verify import verify
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.shards.advice import advise_on_parts
from albert_data.shards.columns import Columns
from albert_data.shards.reader import open_shards
from albert_data.shards.rows import join_rows, slice_rows
from albert_data.shards.schema import from_record_batch, shard_schema, to_record_batch, write_shard

NAMES = ("de", "en", "zh")


DOCUMENTS = fixtures.make_documents(60, seed=9)


# ---- rows ----


@given(rows_16, st.data())
def test_sources_go_through_a_record_batch_and_stay_with_their_rows(rows, data):
    sources = [row[4] % 2**16 for row in rows]
    examples, schema = make_examples(rows, sources=sources), shard_schema(np.uint16, has_source=True)
    batch = to_record_batch(examples, schema)
    assert batch.column("source").type == pyarrow.uint16()
    assert batch.column("source").to_pylist() == sources
    assert list_sources(from_record_batch(batch)) == sources
    wanted = data.draw(st.lists(st.sampled_from(range(len(rows))))) if rows else []
    taken = Columns([batch]).take(np.zeros(len(wanted), np.int64), np.array(wanted, np.int64))
    assert plain(taken) == [rows[i] for i in wanted]
    assert list_sources(taken) == [sources[i] for i in wanted]
    assert list_sources(slice_rows(examples, 0, len(rows) // 2)) == sources[: len(rows) // 2]


def list_sources(examples: Any) -> list[int]:
    assert examples.sources.dtype == np.uint16
    return list(examples.sources.tolist())


@given(rows_16, st.data(), st.booleans())
def test_parts_of_rows_are_joined_as_lists_are(rows, data, has_source):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    examples = make_examples(rows, sources=[row[4] % 2**16 for row in rows] if has_source else None)
    bounds = [0, *cuts, len(rows)]
    parts = [slice_rows(examples, begin, end) for begin, end in zip(bounds, bounds[1:], strict=False)]
    joined = join_rows(parts)
    assert plain(joined) == rows
    assert (joined.sources is not None) == has_source
    if has_source:
        assert list_sources(joined) == list_sources(examples)


# ---- reading ----


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """50 rows in two record batches, of three sources in turn."""
    write_shards(tmp_path / "out", [[]])
    write_rows(tmp_path / "out", [number % 3 for number in range(50)])
    change_manifest(tmp_path / "out", lambda manifest: manifest.update(sources=list(NAMES)))
    return tmp_path / "out"


def write_rows(folder: Path, sources: list[int], *, has_source: bool = True) -> None:
    examples = make_examples(numbered_rows(50), sources=sources if has_source else None)
    batches = [slice_rows(examples, 0, 20), slice_rows(examples, 20, 50)]
    write_shard(folder / "train/0.arrow", batches, shard_schema(np.uint16, has_source=has_source), "none")
    describe_again(folder)


def test_a_row_tells_its_source_in_every_way_of_asking(folder):
    shards = open_shards(folder)
    wanted = [number % 3 for number in range(50)]
    assert [example.source for example in shards] == wanted
    assert [shards[number].source for number in range(50)] == wanted
    assert [source for batch in shards.batches() for source in list_sources(batch)] == wanted
    assert list_sources(shards.rows(np.arange(49, -1, -1))) == wanted[::-1]
    assert list_sources(shards.rows([])) == []


def test_a_source_beyond_the_manifests_or_a_column_of_which_it_does_not_tell_is_an_error(folder):
    write_rows(folder, [0] * 30 + [3] + [0] * 19)
    shards, named = open_shards(folder), "row 30: source is 3; the manifest lists 3 under `sources` & verify"
    for read in (lambda: list(shards), lambda: list(shards.batches()), lambda: shards.rows(np.arange(50))):
        check_refused(read, ShardError, named)
    write_rows(folder, [0] * 50, has_source=False)
    check_refused(lambda: open_shards(folder)[0], ShardError, "has the columns")
    write_rows(folder, [0] * 50)
    change_manifest(folder, lambda manifest: manifest.pop("sources"))
    check_refused(lambda: open_shards(folder)[0], ShardError, "has the columns")


# ---- building ----

OTHERS = ("<b>|*", "de", "kea", "klingon", "web/cc", "Ärzte")  # sorted; two of them are languages


def choose_name(text: str, divisor: int = 1) -> str:
    return OTHERS[fixtures.document_key(text) // divisor % len(OTHERS)]


def write_named(path: Path, documents: Sequence[str], divisor: int = 1) -> None:
    """Each document is of the source that its key chooses."""
    rows = [(choose_name(text, divisor), text) for text in documents]
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        if ".csv" in path.name:
            csv.writer(file).writerows([("lang", "text"), *rows])
        else:
            file.writelines(json.dumps({"lang": name, "text": text}) + "\n" for name, text in rows)


def test_equal_texts_of_two_languages_are_two_documents(tokenizer, tmp_path):
    """The second file holds the documents of the first, most of them in another language."""
    for name, divisor in (("a.jsonl", 1), ("b.jsonl", 7)):
        write_named(tmp_path / name, DOCUMENTS, divisor)
    report = run_build(tmp_path / "*.jsonl", tmp_path / "out", tokenizer, language_field="lang")
    num_equal = sum(choose_name(text) == choose_name(text, 7) for text in DOCUMENTS)
    assert 0 < num_equal < len(DOCUMENTS)
    assert report.manifest.counts.duplicate_documents == num_equal


def test_a_name_without_a_code_is_a_source_of_its_own_whatever_the_layout(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("albert_data.corpus.blocks.GIANT_BYTES", 600)  # the longest are read as text files
    (tmp_path / "parts").mkdir()
    for part in range(3):
        write_named(tmp_path / f"parts/{part}.csv.gz", DOCUMENTS[part::3])
    for name in ("all.jsonl", "all.csv"):
        write_named(tmp_path / name, DOCUMENTS)
    digests = []
    with fixtures.small_tasks(1 << 12):
        for name, engine in (("all.jsonl", MultiprocessEngine(2)), ("all.csv", None), ("parts", None)):
            out = tmp_path / f"out-{name}"
            report = run_build(tmp_path / name, out, tokenizer, *filter(None, [engine]), language_field="lang")
            digests.append(digest_shards(out))
            assert not report.manifest.damage
        with pytest.raises(KeyboardInterrupt):
            run_build(tmp_path / name, tmp_path / "r", tokenizer, fixtures.InterruptedEngine(3), language_field="lang")
        report = run_build(tmp_path / name, tmp_path / "r", tokenizer, language_field="lang")
        assert report.resumed_tasks > 0, "names are read from receipts too"
        digests.append(digest_shards(tmp_path / "r"))
    assert digests == [digests[0]] * 4
    shards = open_shards(out)
    assert shards.manifest.sources == OTHERS
    assert all(row.source == row.document_key % len(OTHERS) for row in shards)
    assert {shards.manifest.find_text_config(i).language for i in range(len(OTHERS))} == {"und", "de", "kea"}
    (line,) = advise_on_parts(report.manifest)
    assert line.startswith('the language field names 4 sources without an ISO 639 code: "<b>|*", "klingon", ')
    assert "| &#60;b&#62;&#124;&#42; |" in (out / "README.md").read_text()
    assert not list(verify(out))
    change_manifest(out, lambda manifest: manifest["sources"].pop())
    row = shards.rows(range(len(shards))).sources.tolist().index(5)
    what = f"train/shard-00000.arrow, row {row}: source is 5; the manifest lists 5 under `sources`"
    assert what in list(map(str, verify(out)))


def test_a_manifest_with_a_name_that_no_source_has_is_refused(folder):
    change_manifest(folder, lambda manifest: manifest["sources"].__setitem__(0, "\u202etxt"))
    with pytest.raises(ShardError, match=r"sources holds '\\u202etxt', which is no name of a source"):
        open_shards(folder)
