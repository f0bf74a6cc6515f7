"""A shard in any state, whose manifest agrees with it, gives rows or a ShardError that names the row or file."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.ipc
import pytest
from inspect_fixtures import write_small
from refusals import check_refused
from row_fixtures import Row, make_examples, numbered_rows, plain
from shard_fixtures import change_manifest, describe_again, limit_files, write_shards

from albert_data.errors import ShardError
from albert_data.inspect.verify import verify
from albert_data.shards.reader import Shards, open_shards
from albert_data.shards.schema import shard_schema, to_record_batch

SHARD = "train/0.arrow"
ROWS = numbered_rows(30)

# ---- rows that leave their bounds ----

SPOILT: dict[str, Row] = {
    r"masked_positions\[1\] is 5; allowed are 0 to 4": ([2, 4, 6, 4, 3], 3, -1, [(1, 5), (5, 7)], 1),
    r"masked_ids\[0\] is 65,535; allowed are ids below 1,000": ([2, 4, 6, 4, 3], 3, -1, [(1, 65535)], 1),
    "token 1 has the id 1,000; allowed are ids below 1,000": ([2, 1000, 6, 4, 3], 3, -1, [], 1),
    "segment_a_len is 4; allowed are 0 to 3": ([2, 4, 6, 4, 3], 4, -1, [], 1),
    "segment_a_len is -1; allowed are 0 to 3": ([2, 4, 6, 4, 3], -1, -1, [], 1),
    "sop_label is 2; allowed are 0, 1 and -1": ([2, 4, 6, 4, 3], 3, 2, [], 1),
    "sop_label is -2; allowed are 0, 1 and -1": ([2, 4, 6, 4, 3], 3, -2, [], 1),
    "it has 1 tokens; allowed are 2 to 512": ([2], 0, -1, [], 1),
    "it has 513 tokens; allowed are 2 to 512": ([2] * 513, 3, -1, [], 1),
}
WAYS: dict[str, Callable[[Shards], object]] = {
    "[]": lambda shards: shards[17].original_ids,
    "rows": lambda shards: shards.rows([3, 17]),
    "batches": lambda shards: list(shards.batches()),
    "iteration": lambda shards: list(shards),
    "tensors": lambda shards: pytest.importorskip("torch") and shards.to_torch(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", SPOILT)
def test_a_row_that_leaves_its_bounds_is_named_with_what_is_allowed(tmp_path, what, way):
    rows = [*ROWS[:17], SPOILT[what], *ROWS[17:]]
    folder = write_shards(tmp_path / "out", [[rows[:10]], [rows[10:15], rows[15:]]])
    change_manifest(folder, lambda manifest: manifest["tokenizer"].update(vocab_size=1000))
    with pytest.raises(ShardError, match=rf"split train, row 17: {what}; run `albert-data verify`"):
        WAYS[way](open_shards(folder))


def test_sound_rows_next_to_a_damaged_one_can_be_read(tmp_path):
    folder = write_shards(tmp_path / "out", [[[*ROWS[:2], ([2], 0, -1, [], 1)]]])
    shards = open_shards(folder)
    assert plain(shards.rows([1, 0])) == [ROWS[1], ROWS[0]]
    assert shards[1].document_key == ROWS[1][4]
    assert len(shards.lengths) == 3


def test_another_tokenizer_in_the_folder_is_refused(tmp_path):
    write_small(tmp_path)
    path = tmp_path / "tokenizer/spiece.model"
    path.write_bytes(path.read_bytes() + b"\x1a\x00")  # one more, empty trainer_spec
    with pytest.raises(ShardError, match="is another one than at the build"):
        _ = open_shards(tmp_path).tokenizer
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ShardError, match="is a FIFO; a regular file is needed"):
        _ = open_shards(tmp_path).tokenizer


# ---- files ----


@pytest.mark.parametrize("size", [0, 1, 100, -8, -1])
def test_a_shard_truncated_before_it_is_opened_is_an_error_and_no_signal(tmp_path, size):
    folder = write_shards(tmp_path / "out", [[ROWS]])
    data = (folder / SHARD).read_bytes()
    (folder / SHARD).write_bytes(data[:size])
    said = (
        f"0.arrow can't be read: it has {len(data[:size]):,} bytes; the manifest says {len(data):,}; run `albert-data"
    )
    with pytest.raises(ShardError, match=said):
        open_shards(folder)


def test_a_shard_replaced_by_renaming_does_not_change_for_open_readers(tmp_path):
    folder = write_shards(tmp_path / "out", [[ROWS]])
    shards = open_shards(folder)
    (folder / "other").write_bytes(b"")
    (folder / "other").replace(folder / SHARD)
    assert plain(shards.rows(range(30))) == ROWS


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (os.mkfifo, "is a FIFO; a regular file is needed"),
        (Path.mkdir, "is a folder; a regular file is needed"),
        (lambda path: path.symlink_to("/dev/zero"), "lies outside the folder"),
        (lambda path: path.symlink_to("../../outside"), "lies outside the folder"),
        (lambda path: path.symlink_to(path), "Too many levels"),
        (lambda path: None, "No such file or directory"),
    ],
)
def test_only_regular_files_of_the_folder_are_opened_as_shards(tmp_path, make, what):
    folder = write_shards(tmp_path / "out", [[ROWS]])
    (folder / SHARD).rename(tmp_path / "outside")
    make(folder / SHARD)
    with pytest.raises(ShardError, match=rf"shard .*0\.arrow .*({what}).*run `albert-data verify`"):
        open_shards(folder)
    assert [fault.file for fault in verify(folder, quick=True)].count(SHARD) == 1


NAMES = ["", ".", "..", "train", "/dev/zero", "/etc/passwd", "../out", "a\0b", "a" * 300, "a/" * 3000, "\x1b[2J"]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:20])
def test_a_name_that_is_no_file_name_is_refused(tmp_path, name):
    folder = write_shards(tmp_path / "out", [[ROWS]])
    change_manifest(folder, lambda m: m["splits"]["train"]["shards"][0].update(file=name))
    with pytest.raises(ShardError, match="run `albert-data verify`"):
        open_shards(folder)
    [fault] = [fault for fault in verify(folder, quick=True) if fault.file == name]
    assert not os.path.isabs(name) or "lies outside the folder" in fault.what


def test_a_link_inside_the_folder_is_followed(tmp_path):
    folder = write_shards(tmp_path / "out", [[ROWS]])
    (folder / SHARD).rename(folder / "kept")
    (folder / SHARD).symlink_to("../kept")
    assert plain(open_shards(folder).rows(range(30))) == ROWS


def test_a_split_may_have_more_shards_than_a_process_may_open_files(tmp_path):
    folder = write_shards(tmp_path / "out", [[ROWS[i : i + 1]] for i in range(30)])
    with limit_files(12):
        assert plain(open_shards(folder).rows(range(30))) == ROWS


# ---- Arrow ----


def write_batch(folder: Path, batch: pyarrow.RecordBatch, **options: Any) -> None:
    (folder / SHARD).unlink()
    with pyarrow.ipc.new_file(folder / SHARD, batch.schema, **options) as writer:
        writer.write_batch(batch)
    describe_again(folder)


def make_batch() -> pyarrow.RecordBatch:
    return to_record_batch(make_examples(ROWS), shard_schema(np.uint16))


def replace(column: str, values: pyarrow.Array, **changes: Any) -> pyarrow.RecordBatch:
    batch = make_batch()
    at = batch.schema.get_field_index(column)
    columns = [*batch.columns[:at], values, *batch.columns[at + 1 :]]
    field = pyarrow.field(changes.get("name", column), values.type, nullable=changes.get("nullable", False))
    return pyarrow.record_batch(columns, schema=batch.schema.set(at, field))


def nest(values: np.ndarray, offsets: list[int]) -> pyarrow.Array:
    """A list column of any offsets, however wrong."""
    item = pyarrow.field("item", pyarrow.uint16(), nullable=False)
    buffers = [None, pyarrow.py_buffer(np.array(offsets, np.int32))]
    return pyarrow.Array.from_buffers(
        pyarrow.list_(item), len(offsets) - 1, buffers, children=[pyarrow.array(values, pyarrow.uint16())]
    )


IDS = np.zeros(90, np.uint16)
EVEN = list(range(0, 93, 3))
BYTES = pyarrow.array([1] * 30, pyarrow.int8())
BATCHES: dict[str, Callable[[], pyarrow.RecordBatch]] = {
    "dictionary": lambda: replace("sop_label", BYTES.dictionary_encode()),
    "extension": lambda: replace("document_key", pyarrow.ExtensionArray.from_storage(pyarrow.bool8(), BYTES)),
    "large lists": lambda: replace("input_ids", pyarrow.array([[1, 2, 3]] * 30, pyarrow.large_list(pyarrow.uint16()))),
    "run ends": lambda: replace("sop_label", pyarrow.RunEndEncodedArray.from_arrays([30], BYTES[:1])),
    "nulls": lambda: replace("segment_a_len", pyarrow.array([None] * 30, pyarrow.int32()), nullable=True),
    "column name": lambda: replace("sop_label", make_batch().column("sop_label"), name="\x1b[2J\n" * 999),
    "negative offset": lambda: replace("input_ids", nest(IDS, [0, -3, *EVEN[2:]])),
    "falling offsets": lambda: replace("input_ids", nest(IDS, [0, 6, 3, *EVEN[3:]])),
    "offset past the end": lambda: replace("input_ids", nest(IDS, [0, 2**31 - 1, *EVEN[2:]])),
    "fewer positions": lambda: replace("masked_positions", nest(IDS, [0] * 31)),
    "missing column": lambda: make_batch().select(["input_ids", "sop_label"]),
    "column twice": lambda: pyarrow.record_batch(
        [*make_batch().columns, make_batch().column(0)], names=[*make_batch().schema.names, "input_ids"]
    ),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_columns_that_differ_from_the_format_are_an_error_of_one_short_line(tmp_path, kind):
    folder = write_shards(tmp_path / "out", [[ROWS]])
    write_batch(folder, BATCHES[kind]())
    for way in (lambda shards: len(shards), lambda shards: shards[0], lambda shards: list(shards.batches())):
        with pytest.raises(ShardError) as caught:
            way(open_shards(folder))
        assert len(str(caught.value)) < 700


def test_a_file_of_the_stream_format_or_of_none_is_refused(tmp_path):
    folder = write_shards(tmp_path / "out", [[ROWS]])
    with pyarrow.ipc.new_stream(folder / SHARD, make_batch().schema) as writer:
        writer.write_batch(make_batch())
    for data in ((folder / SHARD).read_bytes(), b"no arrow", b""):
        (folder / SHARD).write_bytes(data)
        describe_again(folder)
        check_refused(lambda: open_shards(folder), ShardError, "0.arrow can't be read: & albert-data verify")


def damage(data: bytes, draw: random.Random) -> bytes:
    """Change some bytes, most of them in the metadata at either end, or whole numbers of eight bytes."""
    spoilt = bytearray(data)
    for _ in range(draw.choice((1, 2, 8))):
        near = draw.randrange(min(1500, len(data)))
        at = draw.choice((draw.randrange(len(data)), near, len(data) - 1 - near))
        if draw.random() < 0.5:
            spoilt[at] ^= 1 << draw.randrange(8)
        else:
            at -= at % 8
            spoilt[at : at + 8] = draw.choice((-1, 0, 2**31, 2**40, 2**62, -(2**63))).to_bytes(8, "little", signed=True)
    return bytes(spoilt[: len(data)])


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
def test_damaged_files_give_rows_or_errors_and_verify_faults_and_no_traceback(tmp_path, compression):
    folder, draw = write_shards(tmp_path / "out", [[ROWS[:20], ROWS[20:]]], compression), random.Random(7)
    num_errors = 0
    sound = (folder / SHARD).read_bytes()
    for _ in range(150):
        (folder / SHARD).unlink()  # a new file: the old one may still be mapped
        (folder / SHARD).write_bytes(damage(sound, draw))
        describe_again(folder)
        try:
            shards = open_shards(folder)
            for example in shards:
                assert len(example.original_ids) == len(example.input_ids)
            shards.rows(np.arange(len(shards)))
        except ShardError:
            num_errors += 1
        assert all(len(str(fault)) < 700 for fault in verify(folder))
    assert 50 < num_errors < 150
