"""Ragged rows are sliced, written and read back like lists of lists."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.ipc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused, refused
from row_fixtures import Row, make_examples, numbered_rows, plain, rows_16
from shard_fixtures import NO_TOTALS, change_manifest, describe_again, write_shards

from albert_data.errors import ShardError
from albert_data.shards.columns import Columns
from albert_data.shards.manifest import FORMAT_NAME
from albert_data.shards.manifest_file import ManifestDamage
from albert_data.shards.reader import Shards, open_shards
from albert_data.shards.rows import locate_masks, restore_ids, slice_rows
from albert_data.shards.schema import (
    FORMAT_VERSION,
    ShardReceipt,
    check_batch,
    from_record_batch,
    shard_schema,
    to_record_batch,
    write_shard,
)

# ---- ragged rows ----


@given(rows_16, st.data())
def test_slicing_rows_equals_slicing_a_list(rows, data):
    begin = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(begin, len(rows)))
    found = slice_rows(make_examples(rows), begin, end)
    assert plain(found) == rows[begin:end]
    assert plain(slice_rows(found, 0, len(found))) == rows[begin:end]


@given(rows=st.lists(st.integers(0, 50), min_size=1, max_size=9))
def test_restored_ids_are_those_before_masking_and_the_rows_stay_as_they_are(rows):
    listed = [numbered_rows(1, number)[0] for number in rows]
    examples = make_examples(listed)
    ids, at = [token for row in listed for token in row[0]], locate_masks(examples).tolist()
    begins = np.cumsum([0, *(len(row[0]) for row in listed)]).tolist()
    assert at == [begin + position for begin, row in zip(begins, listed, strict=False) for position, _ in row[3]]
    for place, original in zip(at, [original for row in listed for _, original in row[3]], strict=True):
        ids[place] = original
    assert restore_ids(examples).tolist() == ids
    assert plain(examples) == listed


# ---- Arrow ----


def test_the_columns_of_a_shard_are_the_formats():
    schema = shard_schema(np.uint32)
    assert {field.name: str(field.type) for field in schema} == {
        "input_ids": "list<item: uint32 not null>",
        "segment_a_len": "int32",
        "sop_label": "int8",
        "masked_positions": "list<item: uint16 not null>",
        "masked_ids": "list<item: uint32 not null>",
        "document_key": "uint64",
    }
    assert not any(field.nullable for field in schema)
    assert schema.metadata == {b"albert_data_format": b"2"}


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@given(rows=rows_16, data=st.data())
def test_a_record_batch_holds_the_rows_and_gives_them_back(dtype, rows, data):
    begin = data.draw(st.integers(0, len(rows)))
    batch = to_record_batch(make_examples(rows, dtype), shard_schema(dtype))
    batch.validate(full=True)
    assert plain(from_record_batch(batch), dtype) == rows
    assert plain(from_record_batch(batch.slice(begin)), dtype) == rows[begin:]
    assert batch.column("input_ids").to_pylist() == [row[0] for row in rows]
    assert batch.column("masked_positions").to_pylist() == [[at for at, _ in row[3]] for row in rows]
    assert batch.column("document_key").to_pylist() == [row[4] for row in rows]


# ---- writing ----


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
def test_equal_rows_make_equal_bytes_that_arrow_reads(tmp_path, compression):
    rows = numbered_rows(50)
    apart = [make_examples(rows[:0]), make_examples(rows[:20]), make_examples(rows[20:])]
    other = [slice_rows(make_examples(rows), begin, end) for begin, end in ((0, 0), (0, 20), (20, 50))]
    receipts = [
        write_shard(tmp_path / name, batches, shard_schema(np.uint16), compression)
        for name, batches in (("a", apart), ("b", other))
    ]
    table = pyarrow.ipc.open_file(tmp_path / "a").read_all()
    assert table.schema.equals(shard_schema(np.uint16), check_metadata=True)
    assert table.column("input_ids").to_pylist() == [row[0] for row in rows]
    assert table.column("sop_label").to_pylist() == [row[2] for row in rows]
    data = (tmp_path / "a").read_bytes()
    assert data == (tmp_path / "b").read_bytes()
    assert receipts[0] == receipts[1]
    assert receipts[0] == ShardReceipt(
        num_rows=50,
        num_tokens=sum(len(row[0]) for row in rows),
        num_masked=sum(len(row[3]) for row in rows),
        num_unpaired=sum(row[2] == -1 for row in rows),
        num_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    def break_off():
        yield make_examples(numbered_rows(5))
        raise RuntimeError("the disk is on fire")

    path = tmp_path / "a"
    path.write_bytes(b"before")
    with pytest.raises(RuntimeError):
        write_shard(path, break_off(), shard_schema(np.uint16), "none")
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
    assert path.read_bytes() == b"before"


# ---- reading ----


def write_folder(folder: Path, shards: list[list[list[Row]]], **changes: Any) -> Path:
    """Shards of batches of rows, and other values in their manifest."""
    write_shards(folder, shards)
    change_manifest(folder, lambda manifest: manifest.update(changes))
    return folder


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """100 rows in three shards of many batches, more than the reader holds at once."""
    rows = numbered_rows(100)
    batches = [rows[:1], rows[1:1], rows[1:30], *([rows[n] for n in range(m, m + 2)] for m in range(30, 80, 2))]
    layout = [batches[:5], batches[5:], [rows[80:]]]
    return open_shards(write_folder(tmp_path_factory.mktemp("shards") / "out", layout))


@given(st.lists(st.integers(0, 99), max_size=20))
def test_rows_come_in_the_order_of_the_indices(shards, wanted):
    rows = numbered_rows(100)
    assert plain(shards.rows(np.array(wanted, np.int64))) == [rows[i] for i in wanted]


def test_no_rows_have_writable_columns_of_the_same_dtypes(shards):
    none, some = (shards.rows(np.arange(count)) for count in (0, 1))
    for field in dataclasses.fields(none):
        empty, full = getattr(none, field.name), getattr(some, field.name)
        if full is None:
            assert empty is None, field.name
            continue
        assert empty.flags.writeable, field.name
        assert empty.dtype == full.dtype, field.name


def test_every_way_to_read_gives_all_rows(shards):
    rows = numbered_rows(100)
    assert len(shards) == 100
    assert plain(shards.rows(np.arange(100))) == rows
    assert plain(shards.rows(np.arange(99, -1, -1))) == rows[::-1]
    assert [row for batch in shards.batches() for row in plain(batch)] == rows
    assert shards.lengths.tolist() == [len(row[0]) for row in rows]
    assert shards.lengths.dtype == np.int32
    for number, example in enumerate(shards):
        ids, a_len, label, masks, key = rows[number]
        assert example.input_ids.tolist() == ids
        assert (example.segment_a_len, example.sop_label, example.document_key) == (a_len, label, key)
        found = zip(example.masked_positions.tolist(), example.masked_ids.tolist(), strict=True)
        assert list(found) == masks
        for position, original in masks:
            ids[position] = original
        assert example.original_ids.tolist() == ids


def test_compressed_shards_give_the_same_rows(tmp_path):
    rows = numbered_rows(100)
    parts = [[rows[:40], rows[40:50]], [rows[50:]]]
    folder = write_folder(tmp_path / "out", parts)
    for number, part in enumerate(parts):
        write_shard(folder / f"train/{number}.arrow", map(make_examples, part), shard_schema(np.uint16), "zstd")
    describe_again(folder)
    wanted = np.random.default_rng(0).permutation(100)
    assert plain(open_shards(folder).rows(wanted)) == [rows[i] for i in wanted]


@pytest.mark.parametrize(
    "names", [["input_ids"], ["masked_positions"], ["masked_ids"], ["masked_positions", "masked_ids"]]
)
@pytest.mark.parametrize("offsets", [[0, 9, 1], [0, 3, 1], [0, -1, 1]])
def test_offsets_outside_a_record_batch_are_an_error_not_a_crash(names, offsets):
    examples, bad = make_examples(numbered_rows(2, 7)), np.array(offsets)
    batch, spoilt = (
        to_record_batch(rows, shard_schema(np.uint16))
        for rows in (examples, dataclasses.replace(examples, offsets=bad, mask_offsets=bad))
    )
    for name in names:
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, batch.schema.field(at), spoilt.column(name))
    with pytest.raises(ValueError, match="outside|more or fewer"):
        Columns([batch]).take(np.zeros(2, np.int64), np.arange(2))


def test_the_masks_of_a_foreign_shard_may_begin_at_different_offsets_in_its_two_lists():
    """Another writer's lists of positions may have a value in front that no row uses, and those of originals none."""
    rows = numbered_rows(5)
    examples = make_examples(rows)
    ours = to_record_batch(examples, shard_schema(np.uint16))
    shifted = dataclasses.replace(
        examples,
        masked_positions=np.concatenate([np.array([7], np.uint16), examples.masked_positions]),
        mask_offsets=examples.mask_offsets + 1,
    )
    theirs = to_record_batch(dataclasses.replace(shifted, masked_ids=shifted.masked_positions), shard_schema(np.uint16))
    at = ours.schema.get_field_index("masked_positions")
    batch = ours.set_column(at, ours.schema.field(at), theirs.column("masked_positions"))
    check_batch(batch)
    assert plain(from_record_batch(batch)) == rows
    wanted = [4, 0, 2, 2]
    assert plain(Columns([batch]).take(np.zeros(4, np.int64), np.array(wanted))) == [rows[i] for i in wanted]


def test_record_batches_of_other_columns_are_an_error():
    batches = [to_record_batch(make_examples([], dtype), shard_schema(dtype)) for dtype in (np.uint16, np.uint32)]
    with pytest.raises(ValueError, match="same columns"):
        Columns(batches)


BOUNDS = st.none() | st.integers(-110, 110)


@given(begin=BOUNDS, end=BOUNDS, step=st.none() | st.integers(-30, 30).filter(bool))
def test_a_slice_of_shards_is_that_of_a_list(shards, begin, end, step):
    found = [example.document_key for example in shards[begin:end:step]]
    assert found == [row[4] for row in numbered_rows(100)][begin:end:step]


def test_a_number_or_a_slice_of_rows_is_that_of_a_list_or_refused(shards):
    assert [shards[i].document_key for i in (-1, -100)] == [shards[i].document_key for i in (99, 0)]
    for index in (100, -101):
        with pytest.raises(IndexError, match=f"row {index} of a split of 100 rows"):
            shards[index]
        with pytest.raises(IndexError, match=f"row {index} of a split of 100 rows"):
            shards.rows(np.array([3, index]))
    with pytest.raises(ValueError, match="step cannot be zero"):
        shards[::0]


@pytest.mark.parametrize("layout", [[], [[]], [[[]]]], ids=["no shards", "no batches", "no rows"])
def test_a_split_without_rows_can_be_read(tmp_path, layout):
    shards = open_shards(write_folder(tmp_path / "out", layout))
    assert len(shards) == len(list(shards)) == len(shards.lengths) == 0
    assert "train, 0 rows" in repr(shards)
    assert plain(shards.rows(np.zeros(0, np.int64))) == []


def plant(folder: Path, name: str, data: bytes) -> Path:
    """A sound folder of three rows with other bytes in a file."""
    write_folder(folder, [[numbered_rows(3)]])
    (folder / name).write_bytes(data)
    if name != "manifest.json":
        describe_again(folder)
    return folder


OUTSIDE = {**NO_TOTALS, "num_bytes": 9, "sha256": ""}
NEWER = f"this version reads {FORMAT_NAME} {FORMAT_VERSION}: build it again"
DAMAGED = "train/0.arrow can't be read: & albert-data verify"


@refused(
    (lambda folder: folder / "gone", ShardError, "does not exist"),
    (lambda folder: folder, ShardError, "holds no manifest.json"),
    (lambda folder: write_folder(folder / "out", [], format="other"), ManifestDamage, NEWER),
    (lambda folder: write_folder(folder / "out", [], format_version=FORMAT_VERSION + 1), ManifestDamage, NEWER),
    (lambda folder: plant(folder, "manifest.json", b""), ManifestDamage, "manifest.json can't be read"),
    (lambda folder: plant(folder, "manifest.json", b'{"format"'), ManifestDamage, "manifest.json can't be read"),
    (lambda folder: write_outside(folder, "../evil.arrow"), ShardError, "outside the folder & ../evil.arrow"),
    (lambda folder: write_outside(folder, "/etc/passwd"), ShardError, "outside the folder & /etc/passwd"),
    (lambda folder: plant(folder, "train/0.arrow", b""), ShardError, DAMAGED),
    (lambda folder: plant(folder, "train/0.arrow", b"no arrow"), ShardError, DAMAGED),
)
def test_a_folder_that_is_no_sound_build_is_refused(tmp_path, call, kind, named):
    folder = call(tmp_path)
    check_refused(lambda: open_shards(folder), kind, named)


def write_outside(folder: Path, name: str) -> Path:
    return write_folder(folder / "out", [], splits={"train": {**NO_TOTALS, "shards": [{**OUTSIDE, "file": name}]}})


def test_a_split_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ShardError, match="has no split 'validation'; it has train"):
        open_shards(write_folder(tmp_path / "out", []), "validation")
