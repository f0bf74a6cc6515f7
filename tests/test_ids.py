"""The table of ids: which records the documents of a build come from, whatever files these lie in."""

from __future__ import annotations

import json
from collections.abc import Iterator

import build_fixtures as fixtures
import pyarrow
import pyarrow.parquet
import pytest
from build_fixtures import InlineEngine, InterruptedEngine, SpanningEngine, digest_folder
from corpus_fixtures import small_sizes
from hypothesis import given
from hypothesis import strategies as st
from id_fixtures import RECORDS, expect, read_table, run, write
from refusals import check_refused, refused

from albert_data.clean.documents import clean_documents
from albert_data.config import TextConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.mixtures import find_sources
from albert_data.corpus.tasks import read_tasks
from albert_data.errors import ConfigError, InputError
from albert_data.inspect.verify import verify
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.pipeline import id_table
from albert_data.shards.manifest_file import read_manifest


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 12):
        yield


some_texts = st.integers(0, 40).map(lambda number: f"Document {number}.\nThe water.")
some_ids = st.sampled_from(["", "a", "b", "7", " a ", "ü", "\U0001f600", "\ufffd"]) | st.integers(0, 99).map(str)


@given(records=st.lists(st.tuples(some_texts, some_ids), min_size=2, max_size=40))
def test_the_table_is_the_set_of_keys_and_ids_in_any_order_and_layout(records, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ids")
    records = [*records, ("Document 50.\nOne.", "z"), ("Document 51.\nTwo.", "z")]
    digests = []
    for seed, engine in enumerate((InlineEngine(), SpanningEngine())):
        report = run(write(folder / f"in-{seed}", records, seed), folder / f"{seed}", tokenizer, engine)
        assert read_table(folder / f"{seed}") == expect(records)
        digests.append(digest_folder(folder / f"{seed}" / "ids"))
    assert digests[0] == digests[1]
    assert report.manifest.damage.get("missing_id", 0) == sum(not id.strip() for _, id in records)
    assert not list(verify(folder / "0"))


def test_workers_ranges_kills_and_small_files_change_no_row(tmp_path, tokenizer, monkeypatch):
    names = write(tmp_path / "in", RECORDS)
    run(names, tmp_path / "whole", tokenizer)
    with pytest.raises(KeyboardInterrupt):
        run(names, tmp_path / "killed", tokenizer, InterruptedEngine(3))
    assert run(names, tmp_path / "killed", tokenizer, MultiprocessEngine(2)).resumed_tasks == 3
    assert digest_folder(tmp_path / "killed") == digest_folder(tmp_path / "whole")
    for name, value in {"_ROWS_AT_ONCE": 4, "_ROWS_OF_FILE": 1, "_BATCH_ROWS": 7, "_BATCHES_OF_FILE": 2}.items():
        monkeypatch.setattr(id_table, name, value)
    run(names, tmp_path / "small", tokenizer)
    assert len(list((tmp_path / "small" / "ids").iterdir())) == 90 // 14 + 1
    assert read_table(tmp_path / "small") == read_table(tmp_path / "whole") == expect(RECORDS)


def test_shards_are_those_of_a_build_without_ids(tmp_path, tokenizer):
    names = write(tmp_path / "in", RECORDS)
    for field in ("meta.id", None):
        run(names, tmp_path / f"{field}", tokenizer, id_field=field)
    assert not (tmp_path / "None" / "ids").exists()
    for split in ("train", "validation"):
        assert digest_folder(tmp_path / "meta.id" / split) == digest_folder(tmp_path / "None" / split)
    assert {*read_manifest(tmp_path / "meta.id").to_values()} - {*read_manifest(tmp_path / "None").to_values()} == {
        "ids"
    }


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
@pytest.mark.parametrize("num_lines", [10, 50])  # the second is read as a text file
def test_a_document_that_is_cut_has_several_keys_and_one_id(name, num_lines, tmp_path):
    records = [{"text": "One line.\n" * num_lines, "id": 7}, {"text": "Short.", "id": 8}]
    if name == "a.jsonl":
        (tmp_path / name).write_text("\n".join(map(json.dumps, records)))
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / name)
    text, damage = TextConfig(id_field="id"), Damage()
    tasks = read_tasks(find_sources([str(tmp_path / name)], text=text), text, damage)
    with small_sizes(max_line=16, max_document=40):
        found = [clean_documents(block, text, damage) for task in tasks for block in task.read(damage)]
    assert [id for lines in found if lines.ids is not None for id in lines.ids] == ["7"] * -(-num_lines // 4) + ["8"]


def test_verify_and_overwrite_know_the_files_and_no_others(tmp_path, tokenizer):
    names, out = write(tmp_path / "in", RECORDS), tmp_path / "out"
    run(names, out, tokenizer)
    fixtures.plant(out / "ids" / "mine.csv")
    path = out / "ids" / "ids-00000.arrow"
    data = path.read_bytes()
    path.write_bytes(data[:-9] + b"x" + data[-8:])
    assert [fault.file for fault in verify(out, quick=True)] == ["ids/ids-00000.arrow"]
    path.write_bytes(data)
    fixtures.plant(out / "ids" / "more.arrow")
    assert [fault.file for fault in verify(out)] == ["ids/more.arrow"]
    run(names, out, tokenizer, id_field=None, overwrite=True)
    assert sorted(path.name for path in (out / "ids").iterdir()) == ["mine.csv", "more.arrow"]


def test_documents_without_an_id_are_a_note_and_many_a_warning(tmp_path, tokenizer):
    records = [(text, id if number > 50 else "") for number, (text, id) in enumerate(RECORDS)]
    for name, some in (("many", records), ("few", records[40:])):
        notes = run(write(tmp_path / f"{name}-in", some), tmp_path / name, tokenizer).list_notes()
        assert [note.split()[:2] for note in notes if "missing_id" in note] == [["note", "missing_id"]]
        warned = [note for note in notes if "have no id in" in note]
        assert warned == (
            ['warning    51 of 90 documents have no id in "meta.id": check --id-field'] * (name == "many")
        )


@refused(
    (("a.jsonl", '{"text": "One."}', "uid"), InputError, 'no record has the field "uid" & --id-field'),
    (("a.jsonl", '{"text": "One.", "id": null}', "id"), InputError, 'no record has the field "id" & --id-field'),
    (("a.jsonl", '{"text": "One.", "id": [7]}', "id"), InputError, 'no record has the field "id" & --id-field'),
    (("a.txt", "One.", "id"), InputError, "'id' & --id-field"),
    (("a.jsonl", '{"text": "One.", "id": 7.5}', "id"), InputError, "a.jsonl, byte 0: the id field holds 7.5"),
    (("a.csv", f"text,id\nOne.,{'i' * 1025}", "id"), InputError, "a.csv, row 1 & 1,025 bytes & 1,024 & --id-field"),
    (("a.jsonl", '{"text": "One."}', ""), ConfigError, "id_field is ''"),
)
def test_fields_that_hold_no_ids_are_refused(call, kind, named, tmp_path, tokenizer):
    name, data, field = call
    (tmp_path / name).write_text(data)
    check_refused(lambda: run(tmp_path / name, tmp_path / "out", tokenizer, id_field=field), kind, named)
