"""`albert-data verify` finds every kind of damage, names file and row, accepts sound folders, and says nothing false
and prints nothing harmful, whatever happens to the folder meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
import unicodedata
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow
import pyarrow.ipc
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from inspect_fixtures import (
    SCHEMA,
    TRAIN,
    VALIDATION,
    configs,
    edit_manifest,
    edit_rows,
    get_tokenizer,
    make_examples,
    put,
    read_part,
    read_parts,
    text_documents,
    write_folder,
    write_small,
)
from row_fixtures import make_examples as make_rows
from shard_fixtures import describe_again, describe_folder

from albert_data.cli.verify import verify
from albert_data.config import BuildConfig
from albert_data.data import Examples
from albert_data.errors import ShardError
from albert_data.inspect import verify as verifying
from albert_data.inspect.row_checks import find_row_faults, make_row_rules
from albert_data.inspect.verify import MAX_SHARD_FAULTS, Fault
from albert_data.inspect.verify import verify as find_faults
from albert_data.jobs.progress import NullProgress
from albert_data.shards.manifest import Manifest
from albert_data.shards.schema import to_record_batch
from albert_data.storage.files import hash_file, read_json

CLS, SEP, MASK = 2, 3, 4
MODEL = "tokenizer/spiece.model"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound build, free to damage."""
    return write_small(tmp_path / "built")


def run(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(verify, [str(folder), *options])


def find_one(folder: Path) -> Fault:
    faults = list(find_faults(folder))
    assert len(faults) == 1, faults
    return faults[0]


def test_a_sound_folder_is_as_its_manifest_says(folder):
    result = run(folder)
    splits = read_json(folder / "manifest.json")["splits"].values()
    rows, tokens = (sum(split[key] for split in splits) for key in ("num_rows", "num_tokens"))
    assert result.exit_code == 0
    assert result.stdout == f"{folder}: 2 shards, {rows} rows, {tokens:,} tokens: all is as the manifest says\n"


def test_a_fault_is_a_line_and_the_exit_code_is_1(folder):
    (folder / TRAIN).unlink()
    result = run(folder)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{folder}: {TRAIN}: is listed in the manifest, but can't be read")
    assert result.stdout.count("\n") == 1


def test_a_build_without_rows_is_sound(tmp_path):
    result = run(write_folder(tmp_path, {}))
    assert result.stdout.endswith(": 0 shards, 0 rows, 0 tokens: all is as the manifest says\n")


# ---- files and the manifest ----


def flip_byte(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def repeat_shard(manifest: dict[str, Any]) -> None:
    split = manifest["splits"]["validation"]
    split["shards"] *= 2
    for key in ("num_rows", "num_tokens", "num_masked"):
        split[key] *= 2


def lower(key: str) -> Callable[[dict[str, Any]], None]:
    def edit(manifest: dict[str, Any]) -> None:
        for totals in (manifest["splits"]["train"], manifest["splits"]["train"]["shards"][0]):
            totals[key] -= 1

    return edit


def edited(edit: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda folder: edit_manifest(folder, edit)


FAULTS: dict[str, Callable[[Path], object]] = {
    "train/1.arrow: is not listed in the manifest": lambda folder: shutil.copy(
        folder / TRAIN, folder / "train/1.arrow"
    ),
    "train/2.arrow: is not listed in the manifest": lambda folder: os.mkfifo(folder / "train/2.arrow"),
    f"{VALIDATION}: is listed 2 times in the manifest; allowed is once": edited(repeat_shard),
    f"{MODEL}: has the mask_id 4; the manifest says 9": edited(lambda m: m["tokenizer"].update(mask_id=9)),
    f"{TRAIN}: num_rows is 34; the manifest says 33": edited(lower("num_rows")),
    f"{TRAIN}: num_tokens is 719; the manifest says 718": edited(lower("num_tokens")),
    f"{TRAIN}: num_masked is 100; the manifest says 99": edited(lower("num_masked")),
}


@pytest.mark.parametrize("what", FAULTS)
def test_damage_is_one_fault(folder, what):
    FAULTS[what](folder)
    assert str(find_one(folder)).startswith(what)


@pytest.mark.parametrize("size", [0, 1, 7, 100, -1, -9, -200, None])
def test_a_truncated_or_changed_shard_is_a_fault(folder, size):
    data, expected = (folder / TRAIN).read_bytes(), hash_file(folder / TRAIN)
    if size is None:
        flip_byte(folder / TRAIN, 2000)
        what = f"has the SHA-256 {hash_file(folder / TRAIN)}; the manifest says {expected}"
    else:
        (folder / TRAIN).write_bytes(data[:size])
        what = f"has {len(data[:size]):,} bytes; the manifest says {len(data):,}"
    faults = list(find_faults(folder))
    assert faults[0] == Fault(file=TRAIN, what=what)
    assert {fault.file for fault in faults} == {TRAIN}
    if size is not None:
        assert faults[1].what.startswith("can't be read as Arrow at the footer, the end of the file: ")


def test_the_sorted_runs_of_a_running_build_are_no_fault(folder):
    (folder / ".build/runs").mkdir(parents=True)
    shutil.copy(folder / TRAIN, folder / ".build/runs/0.arrow")
    assert not list(find_faults(folder))


def test_another_tokenizer_is_a_fault(folder):
    flip_byte(folder / MODEL, 500)
    whats = [fault.what for fault in find_faults(folder)]
    assert whats[0].startswith("has the SHA-256")
    assert whats[1].startswith("no row is checked, as that needs the tokenizer")


def test_a_quick_check_compares_only_sizes_and_hashes(folder):
    quick = run(folder, "--quick")
    assert quick.exit_code == 0
    assert quick.stdout.endswith(": sizes and hashes are as the manifest says; no row was checked\n")
    edit_rows(folder, put("sop_label", 0, 2))
    assert not list(find_faults(folder, quick=True))
    flip_byte(folder / TRAIN, 2000)
    assert [fault.file for fault in find_faults(folder, quick=True)] == [TRAIN]


def test_workers_change_no_fault(folder):
    flip_byte(folder / TRAIN, 2000)
    flip_byte(folder / VALIDATION, 2000)
    assert list(find_faults(folder, workers=1)) == list(find_faults(folder, workers=4))


@pytest.mark.parametrize("quick", [False, True])
def test_progress_reaches_its_end(folder, quick):
    progress = Mock()
    assert not list(find_faults(folder, quick=quick, workers=2, progress=progress))
    (_, total), _ = progress.start.call_args
    assert sum(done for (done,), _ in progress.advance.call_args_list) == total > 0


# ---- rows ----


def end_of_first_row(rows: Examples) -> int:
    return int(rows.offsets[1]) - 1


def find_unmasked(rows: Examples) -> int:
    return next(at for at in range(1, 6) if at not in rows.masked_positions[: rows.mask_offsets[1]])


def first_mask(rows: Examples) -> int:
    return int(rows.masked_positions[0])


ROW_FAULTS = {
    "[CLS] is needed": put("input_ids", 0, 300),
    "[SEP] is needed at the end of a segment": put("input_ids", end_of_first_row, 300),
    "leaves no room": put("segment_a_len", 0, 0),
    "segment_a_len is 4,000; allowed are 0 to": put("segment_a_len", 0, 4000),
    "sop_label is 2; allowed are 0, 1 and -1": put("sop_label", 0, 2),
    "sop_label is -1, but the row has a segment B; allowed are 0 and 1": put("sop_label", 0, -1),
    "sop_label is 0, but the row has no segment B; allowed is -1": put(
        "sop_label", lambda rows: np.flatnonzero(rows.sop_label == -1)[0], 0
    ),
    "must be above the one before": put("masked_positions", 1, first_mask),
    "masked_positions[0] is 0; allowed are the tokens of the segments": put("masked_positions", 0, 0),
    "allowed are the tokens of the segments": put(
        "masked_positions", lambda rows: rows.mask_offsets[1] - 1, end_of_first_row
    ),
    "masked_ids[0] is 3 ([SEP]); allowed are pieces of text": put("masked_ids", 0, SEP),
    "masked_ids[0] is 4 ([MASK]); allowed are pieces of text": put("masked_ids", 0, MASK),
    "is masked by [CLS]; allowed are [MASK], a piece of text": put("input_ids", first_mask, CLS),
    "is masked by <unk>; allowed are [MASK], a piece of text": put("input_ids", first_mask, 1),
    "is masked by <0x00>; allowed are [MASK], a piece of text": put("input_ids", first_mask, 5),
    "is [SEP], inside a segment": put("input_ids", find_unmasked, SEP),
}


@pytest.mark.parametrize("message", ROW_FAULTS)
def test_a_row_that_breaks_a_rule_is_a_fault(folder, message):
    edit_rows(folder, ROW_FAULTS[message])
    fault = find_one(folder)
    assert fault.file == TRAIN
    assert fault.row is not None
    assert message in fault.what


def test_a_row_longer_than_max_seq_len_is_a_fault(folder):
    longest = int(np.diff(read_part(folder / VALIDATION).offsets).max())
    edit_manifest(folder, lambda m: m["config"].update(max_seq_len=longest - 1))
    validation = [fault for fault in find_faults(folder) if fault.file == VALIDATION]
    assert {fault.what for fault in validation} == {f"it has {longest} tokens; allowed are 2 to {longest - 1}"}


@pytest.mark.parametrize(("masked", "is_whole"), [([2, 3], True), ([1, 5], True), ([2], False), ([1, 3], False)])
def test_a_word_masked_in_part_is_a_fault_unless_pieces_are_masked(tmp_path, masked, is_whole):
    """One row of the words `the`, `unhappily` (two pieces), `the`."""
    the, un, happily = (get_tokenizer().pieces.index(piece) for piece in ("▁the", "▁un", "hap"))
    ids = [CLS, the, un, happily, SEP, the, SEP]
    shown = [MASK if at in masked else token for at, token in enumerate(ids)]
    row = make_rows([(shown, 3, 0, [(at, ids[at]) for at in masked], 7)])
    folder = write_folder(tmp_path, {"train": [row]})
    whats = [fault.what for fault in find_faults(folder)]
    assert (
        whats == [] if is_whole else [f"the word of token {masked[-1]} is masked in part; words must be masked whole"]
    )
    edit_manifest(folder, lambda m: m["config"].update(whole_word=False))
    assert not list(find_faults(folder))


def test_many_faults_of_a_shard_are_counted(folder):
    edit_rows(folder, put("sop_label", slice(None), 5))
    faults = list(find_faults(folder))
    num_rows = len(read_part(folder / TRAIN))
    assert len(faults) == MAX_SHARD_FAULTS + 1
    assert faults[-1] == Fault(file=TRAIN, what=f"{num_rows - MAX_SHARD_FAULTS} more rows at fault")


def test_a_document_in_both_splits_is_a_fault(folder):
    edit_rows(folder, put("document_keys", 4, int(read_part(folder / VALIDATION).document_keys[0])))
    fault = find_one(folder)
    assert (fault.file, fault.row) == (TRAIN, 4)
    assert "in the validation split too" in fault.what


@given(documents=text_documents(), config=configs())
def test_rows_that_the_builder_makes_are_sound(documents, config):
    described = describe_folder(Path(), {}, get_tokenizer().vocab_size)
    manifest = Manifest.from_values({**described, "config": BuildConfig(examples=config).to_flat_dict()})
    rules = make_row_rules(get_tokenizer(), manifest)
    assert not list(find_row_faults(to_record_batch(make_examples(documents, config), rules.schema), rules))


# ---- columns ----


def rewrite(folder: Path, *batches: pyarrow.RecordBatch) -> None:
    with pyarrow.ipc.new_file(folder / TRAIN, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    describe_again(folder)


def test_faults_name_the_row_in_its_file(folder):
    parts = read_parts(folder / TRAIN)
    parts[1].sop_label[3] = 7
    rewrite(folder, *(to_record_batch(part, SCHEMA) for part in parts))
    assert find_one(folder).row == len(parts[0]) + 3


@pytest.mark.parametrize(
    ("column", "change", "kind", "what"),
    [
        ("masked_positions", lambda rows: [rows[0][:-1], *rows[1:]], None, "row 0: has 3 masked_positions and 4"),
        ("sop_label", lambda rows: rows, pyarrow.int64(), "has the columns & sop_label int64"),
        ("segment_a_len", lambda rows: [None, *rows[1:]], None, "at record batch 0: holds nulls; none are allowed"),
        ("input_ids", lambda rows: [None, *rows[1:]], None, "at record batch 0: holds nulls; none are allowed"),
    ],
)
def test_columns_of_other_values_or_another_type_are_a_fault(folder, column, change, kind, what):
    batch = to_record_batch(read_part(folder / TRAIN), SCHEMA)
    index = batch.schema.get_field_index(column)
    field = batch.schema.field(index) if kind is None else pyarrow.field(column, kind)
    columns = batch.columns
    columns[index] = pyarrow.array(change(columns[index].to_pylist()), field.type)
    rewrite(folder, pyarrow.record_batch(columns, schema=batch.schema.set(index, field)))
    first = str(next(find_faults(folder)))
    assert first.startswith(TRAIN)
    assert all(part in first for part in what.split(" & ")), first


# ---- shortages, and a build that replaces the folder meanwhile ----


def test_a_shortage_of_the_machine_is_no_fault_of_a_file(folder, monkeypatch):
    def lack(path: Path) -> str:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    monkeypatch.setattr(verifying, "hash_file", lack)
    with pytest.raises(OSError, match="Too many open files"):
        list(find_faults(folder))


def replace_all(folder: Path) -> None:
    """What `build --overwrite` does: the manifest goes first, and comes last."""
    data = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").unlink()
    (folder / TRAIN).write_bytes((folder / VALIDATION).read_bytes())
    (folder / "new").write_bytes(data)
    (folder / "new").replace(folder / "manifest.json")


def remove_manifest(folder: Path) -> None:
    (folder / TRAIN).write_bytes(b"")
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize("replace", [replace_all, remove_manifest])
@pytest.mark.parametrize("options", [[], ["--quick"]])
def test_a_folder_that_is_replaced_meanwhile_is_no_fault_but_an_error(folder, monkeypatch, replace, options):
    hash_file = verifying.hash_file

    def hash_later(path: Path) -> str:
        if path.name.endswith(".arrow") and not replaced:
            replaced.append(path)
            replace(folder)
        return hash_file(path)

    replaced: list[Path] = []
    monkeypatch.setattr(verifying, "hash_file", hash_later)
    result = run(folder, *options)
    assert replaced
    assert isinstance(result.exception, ShardError)
    assert "manifest.json was replaced meanwhile" in str(result.exception)
    assert result.stdout == ""


def test_a_sound_folder_that_was_replaced_at_the_end_is_not_called_sound(folder):
    class Replacing(NullProgress):
        def advance(self, done: int, text_bytes: int = 0) -> None:
            write_small(folder)

    with pytest.raises(ShardError, match="was replaced meanwhile"):
        list(find_faults(folder, quick=True, progress=Replacing()))


def test_folders_of_a_build_that_vanish_meanwhile_are_no_error(folder, monkeypatch):
    (folder / ".build/runs").mkdir(parents=True)
    scandir, entries = os.scandir, nullcontext(list(os.scandir(folder / ".build")))
    (folder / ".build/runs").rmdir()
    monkeypatch.setattr(os, "scandir", lambda path: entries if str(path).endswith(".build") else scandir(path))
    assert not list(find_faults(folder))


def test_a_manifest_that_disappears_while_it_is_opened_is_no_fault(folder, monkeypatch):
    def remove(path: Path, flags: int) -> int:
        path.unlink()
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(os, "open", remove)
    with pytest.raises(ShardError, match=r"holds no manifest\.json, so it is no finished build"):
        list(find_faults(folder))


@pytest.mark.parametrize("arguments", [[], ["--quick"]])
def test_nothing_that_verify_prints_holds_control_characters(folder, arguments):
    """In names of files, in values of the manifest, and in the folder's own name."""
    odd = "\x1b]0;x\x07\x9b2J\r\u202e\u2028"
    named = folder.rename(folder.with_name("a\x1b[2Jb\udcff"))

    def spoil(manifest: dict[str, Any]) -> None:
        manifest["splits"]["validation"]["shards"][0].update(file=odd)
        manifest["splits"]["train"]["shards"][0].update(sha256=odd)
        manifest["tokenizer"].update(sha256=odd)
        manifest.update(albert_data_version=odd, digest=odd)
        manifest["plan"][odd] = odd

    for edit in (spoil, lambda m: m.update(splits=odd), lambda m: m.update(format=odd, format_version=odd)):
        edit_manifest(named, edit)
        result = run(named, *arguments)
        assert result.exit_code == 1
        assert r"a\x1b[2Jb\udcff: " in result.stdout
        assert not [c for c in result.stdout if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Cs") and c != "\n"]
