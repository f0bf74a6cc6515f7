"""`albert-data verify` finds every kind of damage, names file and row, and accepts sound folders."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.ipc
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from inspect_fixtures import (
    TRAIN,
    VALIDATION,
    configs,
    describe_rows,
    edit_manifest,
    edit_rows,
    get_tokenizer,
    make_examples,
    read_part,
    rehash,
    text_documents,
    write_folder,
    write_small,
)

from albert_data.cli.verify import verify
from albert_data.data import Examples
from albert_data.errors import ShardError
from albert_data.files import hash_file, read_json, write_json
from albert_data.inspect.row_checks import find_row_faults, make_row_rules
from albert_data.inspect.verify import MAX_SHARD_FAULTS, Fault
from albert_data.inspect.verify import verify as find_faults
from albert_data.jobs.progress import NullProgress
from albert_data.shards.schema import shard_schema, to_record_batch

CLS, SEP, MASK = 2, 3, 4


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    return write_small(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(sound, tmp_path) -> Path:
    """A sound build, free to damage."""
    return Path(shutil.copytree(sound, tmp_path / "built"))


def run(folder: Path) -> Result:
    return CliRunner().invoke(verify, [str(folder)])


def find_one(folder: Path) -> Fault:
    faults = list(find_faults(folder))
    assert len(faults) == 1, faults
    return faults[0]


def test_a_sound_folder_is_as_its_manifest_says(sound) -> None:
    result = run(sound)
    splits = read_json(sound / "manifest.json")["splits"].values()
    rows, tokens = (sum(split[key] for split in splits) for key in ("num_rows", "num_tokens"))
    assert result.exit_code == 0
    assert result.stdout == f"{sound}: 2 shards, {rows} rows, {tokens:,} tokens: all is as the manifest says\n"


def test_a_fault_is_a_line_and_the_exit_code_is_1(folder) -> None:
    (folder / TRAIN).unlink()
    result = run(folder)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{folder}: {TRAIN}: is listed in the manifest, but can't be read")
    assert result.stdout.count("\n") == 1


def test_a_folder_that_is_no_build_is_an_error(tmp_path) -> None:
    assert isinstance(run(tmp_path).exception, ShardError)
    assert isinstance(run(tmp_path / "none").exception, ShardError)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["mix.toml"], "mix.toml"),
        (["a b", "@list.txt", "x/*.txt:de", "--validation", "v"], "'a b' @list.txt 'x/*.txt:de' --validation v"),
        (["a\nError: b", os.fsdecode(b"c'\xff")], r"$'a\x0aError: b' $'c\'\xff'"),
        (["a" * 700], "INPUT..."),
        ([], "INPUT..."),
        ([["a"]], "INPUT..."),
        (None, "INPUT..."),
    ],
)
def test_an_unfinished_build_says_how_to_resume_it(tmp_path, given, shown) -> None:
    (tmp_path / ".build").mkdir()
    write_json(tmp_path / ".build/plan.json", {"given": given})
    message = f"give its command again to resume it: albert-data build {shown} -o {tmp_path}, with the same options"
    assert message in str(run(tmp_path).exception)
    (tmp_path / ".build/plan.json").write_text("[")
    assert f"albert-data build INPUT... -o {tmp_path}" in str(run(tmp_path).exception)


def test_another_format_version_is_refused_in_one_line(folder) -> None:
    edit_manifest(folder, lambda m: m.update(format_version=3))
    result = run(folder)
    assert result.exit_code == 1
    assert "is of format albert-data 3; this version reads albert-data 2: build it again" in result.stdout
    assert result.stdout.count("\n") == 1


def test_a_build_without_rows_is_sound(tmp_path) -> None:
    result = run(write_folder(tmp_path, {}))
    assert result.stdout.endswith(": 0 shards, 0 rows, 0 tokens: all is as the manifest says\n")


# ---- files ----


def flip_byte(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def test_a_flipped_byte_in_a_shard_is_a_fault(folder) -> None:
    expected = read_json(folder / "manifest.json")["splits"]["train"]["shards"][0]["sha256"]
    flip_byte(folder / TRAIN, 2000)
    first = next(find_faults(folder))
    assert first.file == TRAIN
    assert first.what == f"has the SHA-256 {hash_file(folder / TRAIN)}; the manifest says {expected}"


@pytest.mark.parametrize("size", [0, 1, 7, 100, -1, -9, -200])
def test_a_truncated_shard_is_a_fault(folder, size) -> None:
    data = (folder / TRAIN).read_bytes()
    (folder / TRAIN).write_bytes(data[:size])
    whats = [fault.what for fault in find_faults(folder)]
    assert whats[0] == f"has {len(data[:size]):,} bytes; the manifest says {len(data):,}"
    assert whats[1].startswith("can't be read as Arrow at the footer, the end of the file: ")


def test_an_unlisted_shard_is_a_fault(folder) -> None:
    shutil.copy(folder / TRAIN, folder / "train/shard-00001.arrow")
    assert str(find_one(folder)).startswith("train/shard-00001.arrow: is not listed in the manifest")


def test_the_sorted_runs_of_a_running_build_are_no_fault(folder) -> None:
    (folder / ".build/runs").mkdir(parents=True)
    shutil.copy(folder / TRAIN, folder / ".build/runs/0.arrow")
    assert not list(find_faults(folder))


def test_a_shard_listed_twice_is_a_fault(folder) -> None:
    def repeat(manifest) -> None:
        split = manifest["splits"]["validation"]
        split["shards"] *= 2
        for key in ("num_rows", "num_tokens", "num_masked"):
            split[key] *= 2

    edit_manifest(folder, repeat)
    assert str(find_one(folder)) == f"{VALIDATION}: is listed 2 times in the manifest; allowed is once"


@pytest.mark.parametrize("name", ["../train/shard-00000.arrow", "/etc/hostname", "a\0b"])
def test_a_manifest_does_not_lead_out_of_its_folder(folder, name) -> None:
    edit_manifest(folder, lambda m: m["splits"]["validation"]["shards"][0].update(file=name))
    faults = {fault.file: fault.what for fault in find_faults(folder)}
    assert faults[name].startswith(("lies outside the folder", "is no file name"))


def test_another_tokenizer_is_a_fault(folder) -> None:
    flip_byte(folder / "tokenizer/spiece.model", 500)
    whats = [fault.what for fault in find_faults(folder)]
    assert whats[0].startswith("has the SHA-256")
    assert whats[1].startswith("no row is checked, as that needs the tokenizer")


def test_special_ids_other_than_the_tokenizers_are_a_fault(folder) -> None:
    edit_manifest(folder, lambda m: m["tokenizer"].update(mask_id=9))
    assert find_one(folder).what == "has the mask_id 4; the manifest says 9"


def test_a_quick_check_compares_only_sizes_and_hashes(folder) -> None:
    quick = CliRunner().invoke(verify, [str(folder), "--quick"])
    assert quick.exit_code == 0
    assert quick.stdout.endswith(": sizes and hashes are as the manifest says; no row was checked\n")
    edit_rows(folder, change("sop_label", 0, 2))
    assert not list(find_faults(folder, quick=True))
    flip_byte(folder / TRAIN, 2000)
    assert [fault.file for fault in find_faults(folder, quick=True)] == [TRAIN]


def test_swapped_and_renamed_shards_are_faults(folder) -> None:
    (folder / TRAIN).rename(folder / "kept")
    (folder / VALIDATION).rename(folder / TRAIN)
    (folder / "kept").rename(folder / "train/shard-1.arrow")
    faults = {fault.file: fault.what for fault in reversed(list(find_faults(folder)))}
    assert "the manifest says" in faults[TRAIN]
    assert "can't be read" in faults[VALIDATION]
    assert "not listed" in faults["train/shard-1.arrow"]


def test_a_change_that_could_be_sound_is_a_fault_without_a_row(folder) -> None:
    """A document's key, which may be any number."""
    sha256 = read_json(folder / "manifest.json")["splits"]["train"]["shards"][0]["sha256"]
    edit_rows(folder, change("document_keys", 4, 12345))
    edit_manifest(folder, lambda m: m["splits"]["train"]["shards"][0].update(sha256=sha256))
    whats = [fault.what for fault in find_faults(folder)]
    assert whats[0].startswith("has the SHA-256")
    assert len(whats) == 1


def test_workers_change_no_fault(folder) -> None:
    flip_byte(folder / TRAIN, 2000)
    flip_byte(folder / VALIDATION, 2000)
    assert list(find_faults(folder, workers=1)) == list(find_faults(folder, workers=4))


class Counted(NullProgress):
    def __init__(self) -> None:
        self.total, self.done = 0, 0

    def start(self, stage: str, total: int | None, unit: str = "bytes") -> None:
        self.total = total or 0

    def advance(self, done: int, text_bytes: int = 0) -> None:
        self.done += done


@pytest.mark.parametrize("quick", [False, True])
def test_progress_reaches_its_end(folder, quick) -> None:
    progress = Counted()
    assert not list(find_faults(folder, quick=quick, workers=2, progress=progress))
    assert progress.done == progress.total > 0


# ---- the manifest ----


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "albert-data"}', "\xff"])
def test_a_file_that_is_no_manifest_is_a_fault(folder, text) -> None:
    (folder / "manifest.json").write_bytes(text.encode("latin-1"))
    assert find_one(folder).file == "manifest.json"


@pytest.mark.parametrize("key", ["config", "tokenizer", "counts", "splits", "damage"])
@pytest.mark.parametrize("value", [None, [], "x", 1])
def test_a_manifest_with_a_value_of_another_type_is_a_fault(folder, key, value) -> None:
    edit_manifest(folder, lambda m: m.update({key: value}))
    whats = [fault.what for fault in find_faults(folder)]
    assert whats[0].startswith(f"{key} is {value!r}; an object is needed")
    assert len(whats) == (2 if key == "config" else 1)  # the plan has it too


def test_a_manifest_that_lacks_a_key_is_a_fault(folder) -> None:
    whole = read_json(folder / "manifest.json")
    for key in [key for key in whole if key not in ("format", "format_version")]:
        lacking = {other: value for other, value in whole.items() if other != key}
        (folder / "manifest.json").write_text(json.dumps(lacking))
        whats = [fault.what for fault in find_faults(folder)]
        assert len(whats) == 1
        assert whats[0].startswith(f"{key} is missing")


@pytest.mark.parametrize("key", ["num_rows", "num_tokens", "num_masked"])
def test_counts_of_a_shard_that_are_not_its_own_are_a_fault(folder, key) -> None:
    def lower(manifest) -> None:
        split = manifest["splits"]["train"]
        split[key] -= 1
        split["shards"][0][key] -= 1

    whole = read_json(folder / "manifest.json")["splits"]["train"][key]
    edit_manifest(folder, lower)
    assert str(find_one(folder)) == f"{TRAIN}: {key} is {whole:,}; the manifest says {whole - 1:,}"


def test_totals_that_are_not_the_sum_of_the_shards_are_a_fault(folder) -> None:
    edit_manifest(folder, lambda m: m["splits"]["train"].update(num_tokens=5))
    assert str(find_one(folder)).startswith("manifest.json: splits.train.num_tokens is 5; its shards add up to")


# ---- rows ----


def change(column: str, at: int, value: int) -> Callable[[Examples], None]:
    def edit(examples: Examples) -> None:
        getattr(examples, column)[at] = value

    return edit


def end_of_first_row(examples: Examples) -> int:
    return int(examples.offsets[1]) - 1


def flip_label(examples: Examples) -> None:
    examples.sop_label[0] = -1


def claim_pair(examples: Examples) -> None:
    single = np.flatnonzero(examples.sop_label == -1)[0]
    examples.sop_label[single] = 0


def spoil_end(examples: Examples) -> None:
    examples.input_ids[end_of_first_row(examples)] = 300


def mask_the_end(examples: Examples) -> None:
    examples.masked_positions[examples.mask_offsets[1] - 1] = end_of_first_row(examples)


def repeat_position(examples: Examples) -> None:
    examples.masked_positions[1] = examples.masked_positions[0]


def replace_by(value: int) -> Callable[[Examples], None]:
    def edit(examples: Examples) -> None:
        examples.input_ids[examples.masked_positions[0]] = value

    return edit


def insert_special(examples: Examples) -> None:
    masked = set(examples.masked_positions[: examples.mask_offsets[1]].tolist())
    examples.input_ids[next(at for at in (1, 2, 3, 4, 5) if at not in masked)] = SEP


ROW_FAULTS = {
    "[CLS] is needed": change("input_ids", 0, 300),
    "[SEP] is needed at the end of a segment": spoil_end,
    "allowed are ids below": change("input_ids", 1, 9999),
    "leaves no room": change("segment_a_len", 0, 0),
    "segment_a_len is 4,000; allowed are 0 to": change("segment_a_len", 0, 4000),
    "segment_a_len is -5; allowed are 0 to": change("segment_a_len", 0, -5),
    "sop_label is 2; allowed are 0, 1 and -1": change("sop_label", 0, 2),
    "sop_label is -1, but the row has a segment B; allowed are 0 and 1": flip_label,
    "sop_label is 0, but the row has no segment B; allowed is -1": claim_pair,
    "must be above the one before": repeat_position,
    "masked_positions[0] is 0; allowed are the tokens of the segments": change("masked_positions", 0, 0),
    "allowed are the tokens of the segments": mask_the_end,
    "masked_ids[0] is 3 ([SEP]); allowed are pieces of text": change("masked_ids", 0, SEP),
    "masked_ids[0] is 4 ([MASK]); allowed are pieces of text": change("masked_ids", 0, MASK),
    "masked_ids[0] is 9,999; allowed are ids below": change("masked_ids", 0, 9999),
    "is masked by [CLS]; allowed are [MASK], a piece of text": replace_by(CLS),
    "is masked by <unk>; allowed are [MASK], a piece of text": replace_by(1),
    "is masked by <0x00>; allowed are [MASK], a piece of text": replace_by(5),
    "is [SEP], inside a segment": insert_special,
}


@pytest.mark.parametrize("message", ROW_FAULTS)
def test_a_row_that_breaks_a_rule_is_a_fault(folder, message) -> None:
    edit_rows(folder, ROW_FAULTS[message])
    fault = find_one(folder)
    assert fault.file == TRAIN
    assert fault.row is not None
    assert message in fault.what


def test_a_row_longer_than_max_seq_len_is_a_fault(folder) -> None:
    longest = int(np.diff(read_part(folder / VALIDATION).offsets).max())
    edit_manifest(folder, lambda m: m["config"].update(max_seq_len=longest - 1))
    validation = [fault for fault in find_faults(folder) if fault.file == VALIDATION]
    assert {fault.what for fault in validation} == {f"it has {longest} tokens; allowed are 2 to {longest - 1}"}


def make_words(masked: list[int]) -> Examples:
    """One row of the words `the`, `unhappily` (two pieces), `the`, with these positions masked."""
    pieces = get_tokenizer().pieces
    the, un, happily = (pieces.index(piece) for piece in ("▁the", "▁un", "hap"))
    ids = np.array([CLS, the, un, happily, SEP, the, SEP], np.uint16)
    originals = ids[masked].copy()
    ids[masked] = MASK
    return Examples(
        input_ids=ids,
        offsets=np.array([0, len(ids)]),
        segment_a_len=np.array([3], np.int32),
        sop_label=np.array([0], np.int8),
        masked_positions=np.array(masked, np.uint16),
        masked_ids=originals,
        mask_offsets=np.array([0, len(masked)]),
        document_keys=np.array([7], np.uint64),
    )


@pytest.mark.parametrize(("masked", "is_whole"), [([2, 3], True), ([1, 5], True), ([2], False), ([1, 3], False)])
def test_a_word_masked_in_part_is_a_fault_unless_pieces_are_masked(tmp_path, masked, is_whole) -> None:
    folder = write_folder(tmp_path, {"train": [make_words(masked)]})
    whats = [fault.what for fault in find_faults(folder)]
    assert whats == [] if is_whole else ["the word from token 2 on is masked in part; words must be masked whole"]
    edit_manifest(folder, lambda m: m["config"].update(whole_word=False))
    assert not list(find_faults(folder))


def test_faults_name_the_row_in_its_file(folder) -> None:
    parts = [read_part(folder / TRAIN, part) for part in (0, 1)]
    parts[1].sop_label[3] = 7
    rewrite(folder, [to_record_batch(part, shard_schema(np.uint16)) for part in parts])
    assert find_one(folder).row == len(parts[0]) + 3


def test_many_faults_of_a_shard_are_counted(folder) -> None:
    def spoil(examples: Examples) -> None:
        examples.sop_label[:] = 5

    edit_rows(folder, spoil)
    faults = list(find_faults(folder))
    num_rows = len(read_part(folder / TRAIN))
    assert len(faults) == MAX_SHARD_FAULTS + 1
    assert faults[-1] == Fault(file=TRAIN, what=f"{num_rows - MAX_SHARD_FAULTS} more rows at fault")


def test_a_document_in_both_splits_is_a_fault(folder) -> None:
    key = int(read_part(folder / VALIDATION).document_keys[0])
    edit_rows(folder, change("document_keys", 4, key))
    fault = find_one(folder)
    assert (fault.file, fault.row) == (TRAIN, 4)
    assert "in the validation split too" in fault.what


@given(documents=text_documents(), config=configs())
def test_rows_that_the_builder_makes_are_sound(documents, config) -> None:
    examples = make_examples(documents, config)
    rules = make_row_rules(get_tokenizer(), describe_rows(config))
    batch = to_record_batch(examples, rules.schema)
    assert not list(find_row_faults(batch, rules))


# ---- columns ----


def rewrite(folder: Path, batches: list[pyarrow.RecordBatch]) -> None:
    with pyarrow.ipc.new_file(folder / TRAIN, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    rehash(folder, TRAIN)


def replace_column(folder: Path, name: str, values: Any, kind: pyarrow.DataType | None = None) -> None:
    """Give a column of the first record batch other values, and leave the second out."""
    batch = to_record_batch(read_part(folder / TRAIN), shard_schema(np.uint16))
    index = batch.schema.get_field_index(name)
    field = batch.schema.field(index) if kind is None else pyarrow.field(name, kind)
    columns = batch.columns
    columns[index] = pyarrow.array(values(columns[index].to_pylist()), field.type)
    rewrite(folder, [pyarrow.record_batch(columns, schema=batch.schema.set(index, field))])


def find_first(folder: Path) -> Fault:
    return next(find_faults(folder))


def test_positions_without_ids_are_a_fault(folder) -> None:
    first = len(read_part(folder / TRAIN).masked_ids[: read_part(folder / TRAIN).mask_offsets[1]])
    replace_column(folder, "masked_positions", lambda rows: [rows[0][:-1], *rows[1:]])
    fault = find_first(folder)
    assert fault.row == 0
    assert f"has {first - 1} masked_positions and {first} masked_ids" in fault.what


def test_columns_of_another_type_are_a_fault(folder) -> None:
    replace_column(folder, "sop_label", lambda rows: rows, pyarrow.int64())
    assert "has the columns" in find_first(folder).what
    assert "sop_label int64" in find_first(folder).what


@pytest.mark.parametrize("column", ["segment_a_len", "input_ids"])
def test_nulls_are_a_fault(folder, column) -> None:
    replace_column(folder, column, lambda rows: [None, *rows[1:]])
    assert find_first(folder).what == "holds nulls in record batch 0; none are allowed"


@pytest.mark.parametrize("seed", range(40))
def test_any_damaged_bytes_give_faults_and_no_traceback(folder, seed) -> None:
    rng, path = random.Random(seed), folder / TRAIN
    data, size = bytearray(path.read_bytes()), path.stat().st_size
    for _ in range(rng.choice((1, 8))):
        places = (rng.randrange(size), rng.randrange(1500), size - 1 - rng.randrange(1500))
        data[rng.choice(places)] ^= rng.randrange(1, 256)
    path.write_bytes(data)
    assert list(find_faults(folder))
    result = run(folder)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)


def test_control_characters_in_names_do_not_reach_the_terminal(folder) -> None:
    edit_manifest(folder, lambda m: m["splits"]["validation"]["shards"][0].update(file="a\x1b[2Jb"))
    assert "\x1b" not in run(folder).stdout
    assert r"a\x1b[2Jb" in run(folder).stdout
