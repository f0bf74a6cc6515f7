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
from row_fixtures import Row, make_examples, numbered_rows, plain, rows_16
from shard_fixtures import change_manifest, write_shards

from albert_data.errors import ShardError
from albert_data.shards.columns import Columns
from albert_data.shards.reader import Shards, open_shards
from albert_data.shards.rows import locate_masks, restore_ids, slice_rows
from albert_data.shards.schema import (
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
    with pytest.raises(ShardError, match="same columns"):
        Columns(batches)


BOUNDS = st.none() | st.integers(-110, 110)


@given(begin=BOUNDS, end=BOUNDS, step=st.none() | st.integers(-30, 30).filter(bool))
def test_a_slice_of_shards_is_that_of_a_list(shards, begin, end, step):
    found = [example.document_key for example in shards[begin:end:step]]
    assert found == [row[4] for row in numbered_rows(100)][begin:end:step]


@pytest.mark.parametrize("layout", [[], [[]], [[[]]]], ids=["no shards", "no batches", "no rows"])
def test_a_split_without_rows_can_be_read(tmp_path, layout):
    shards = open_shards(write_folder(tmp_path / "out", layout))
    assert len(shards) == len(list(shards)) == len(shards.lengths) == 0
    assert "train, 0 rows" in repr(shards)
    assert plain(shards.rows(np.zeros(0, np.int64))) == []


def test_a_split_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ShardError, match="has no split 'validation'; it has train"):
        open_shards(write_folder(tmp_path / "out", []), "validation")


# ---- numbers of rows ----

SIGNED, UNSIGNED = ([np.dtype(code).type for code in codes] for codes in ("bhilq", "BHILQ"))


def test_an_integer_of_any_type_names_a_row_or_rows_and_may_count_from_the_end(shards):
    rows = numbered_rows(100)
    for kind in (int, *SIGNED, *UNSIGNED, np.array):
        assert [shards[kind(row)].document_key for row in (0, 99)] == [rows[0][4], rows[99][4]], kind
    for kind in (int, *SIGNED):
        assert shards[kind(-100)].document_key == rows[0][4]
    for indices in ([np.int8(3), 99, np.int64(3)], (3, 99, 3), *(np.array([3, 99, 3], k) for k in SIGNED + UNSIGNED)):
        assert plain(shards.rows(indices)) == [rows[3], rows[99], rows[3]]
    for none in ([], np.zeros(0), range(0)):
        assert len(shards.rows(none)) == 0


def test_a_number_without_a_row_is_an_index_error_that_names_the_range(shards):
    for index in (np.uint64(2**64 - 1), np.uint8(100), np.int8(-101), 2**70):
        with pytest.raises(IndexError, match=rf"row {int(index)} of a split of 100 rows; allowed are -100 to 99"):
            shards[index]
    for indices in ([100], [-1], np.array([2**64 - 1], np.uint64)):
        with pytest.raises(IndexError, match=r"row -?\d+ of a split of 100 rows; allowed are 0 to 99"):
            shards.rows(indices)


def test_anything_but_an_integer_or_integers_in_one_dimension_is_a_type_error(shards):
    for index in (1.0, np.float32(1), None, "1", b"1", [1], np.array([1]), ..., {}):
        with pytest.raises(TypeError, match="integer"):
            shards[index]
    arrays = np.array([1.5]), np.zeros((0, 2), np.int64), np.array(["1"], object), np.ones(100, bool)
    for indices in (3, None, "abc", [None], [1.0], [2**70], [[1], [2]], [True, False], {1, 2}, {1: 2}, *arrays):
        with pytest.raises(TypeError, match=r"row indices .*integers in one dimension are needed"):
            shards.rows(indices)
    with pytest.raises(ValueError, match="step cannot be zero"):
        shards[::0]
