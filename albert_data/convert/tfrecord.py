"""TFRecord files of tf.train.Example, with the features that Google's ALBERT trainer reads.

Source: github.com/google-research/albert, `write_instance_to_example_files` in create_pretraining_data.py and
`input_fn_builder` in run_pretraining.py; the framing is that of tensorflow/core/lib/io/record_writer.h.

`next_sentence_labels` is 1 for swapped segments, as `is_random_next` there, so it equals `sop_label`. Google's code has
no rows without a pair. They keep -1: the trainer's `tf.one_hot` makes zeros of it, so such a row adds nothing to the
loss. Padding is the pad id in `input_ids` and 0 elsewhere. Features stand in the order of their names, as protobuf's
deterministic serialization has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from albert_data.convert.crc32c import make_tables, masked_crc
from albert_data.convert.writers import ConvertTask, FileEntry, SplitFiles, make_entry, new_file
from albert_data.errors import ShardError
from albert_data.examples.ragged import ExampleArrays, Examples
from albert_data.kernels import I64, U64, Pointer, helper, item, kernel, pointer, put, store_u64

_BUFFER_BYTES = 2 << 20  # stays in the processor's cache until it is written
_ROW_BYTES, _TOKEN_BYTES, _MASK_BYTES = 512, 7, 11  # the most that a record, a token and a mask can need
_NAMES = (
    b"input_ids",
    b"input_mask",
    b"masked_lm_ids",
    b"masked_lm_positions",
    b"masked_lm_weights",
    b"next_sentence_labels",
    b"segment_ids",
)
_INPUT_IDS, _INPUT_MASK, _MASKED_IDS, _POSITIONS, _WEIGHTS, _LABELS, _SEGMENTS = range(len(_NAMES))
# Tags of protobuf: the number of the field, and that a length follows.
_FIRST, _SECOND, _FLOATS, _INTEGERS = 0x0A, 0x12, 0x12, 0x1A


class Shape(NamedTuple):
    """The lengths of the features, and the id of [PAD]."""

    max_seq_len: int
    max_predictions: int
    pad_id: int


class Constants(NamedTuple):
    """names: of all features, one after another; name_offsets: int64; crc: the tables of crc32c.py."""

    names: np.ndarray
    name_offsets: np.ndarray
    crc: np.ndarray


class TFRecordWriter:
    """One file for each shard: SPLIT/shard-00000.tfrecord."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.facts = {"max_seq_length": shape.max_seq_len, "max_predictions_per_seq": shape.max_predictions}
        most = _ROW_BYTES + _TOKEN_BYTES * shape.max_seq_len + _MASK_BYTES * shape.max_predictions
        self.max_rows = max(1, _BUFFER_BYTES // most)
        self._most = most
        offsets = np.cumsum([0, *map(len, _NAMES)], dtype=np.int64)
        self._constants = Constants(np.frombuffer(b"".join(_NAMES), np.uint8), offsets, make_tables())

    def prepare(self, rows: Examples) -> None:
        self.encode(rows)

    def encode(self, rows: Examples) -> np.ndarray:
        """The records of these rows, framed: uint8. Raises ShardError for a row with too many masks."""
        if np.diff(rows.mask_offsets).max(initial=0) > self.shape.max_predictions:
            raise ShardError("a shard has changed since its masks were counted; give the same command again")
        out = np.empty(len(rows) * self._most, np.uint8)
        return out[: encode_records(rows.arrays, self.shape, self._constants, out)]

    def write(self, work: Path, task: ConvertTask, parts: Iterable[Examples]) -> list[FileEntry]:
        name, num_rows = f"{task.split}/shard-{task.number:05d}.tfrecord", 0
        with new_file(work, name) as file:
            for rows in parts:
                file.write(self.encode(rows).data)
                num_rows += len(rows)
        return [make_entry(name, num_rows, file)]

    def describe(self, files: SplitFiles) -> dict[str, bytes]:
        return {}


@helper
def varint_len(value: U64) -> I64:
    """How many bytes protobuf needs for a number below 2**35."""
    return (
        I64(1)
        + I64(value > U64(0x7F))
        + I64(value > U64(0x3FFF))
        + I64(value > U64(0x1FFFFF))
        + I64(value > U64(0xFFFFFFF))
    )


@helper
def put_varint(out: Pointer, at: int, value: U64) -> I64:
    """Write a number below 2**35, seven bits a byte, the lowest first. Returns where it ends.

    Eight bytes are written, without a branch; what follows overwrites those that are too many.
    """
    spread = value & U64(0x7F)
    spread |= (value & U64(0x3F80)) << U64(1)
    spread |= (value & U64(0x1FC000)) << U64(2)
    spread |= (value & U64(0xFE00000)) << U64(3)
    spread |= (value & U64(0x7F0000000)) << U64(4)
    count = varint_len(value)
    # All bytes except the last have the highest bit.
    store_u64(out, at, spread | (U64(0x80808080) & ((U64(1) << U64(8 * (count - 1))) - U64(1))))
    return at + count


@helper
def feature_len(name_len: int, num_bytes: int) -> I64:
    """The bytes of an entry of `Features.feature` whose packed values take `num_bytes`, with its own tag and length."""
    inner = 1 + varint_len(U64(num_bytes)) + num_bytes  # Int64List or FloatList
    feature = 1 + varint_len(U64(inner)) + inner
    entry = (2 + name_len) + 1 + varint_len(U64(feature)) + feature
    return 1 + varint_len(U64(entry)) + entry


@helper
def put_tag(out: Pointer, at: int, tag: int, num_bytes: int) -> I64:
    """Write a tag and the length of what follows. Returns where that begins."""
    put(out, at, np.uint8(tag))
    return put_varint(out, at + 1, U64(num_bytes))


@helper
def put_head(out: Pointer, at: int, constants: Constants, number: int, tag: int, num_bytes: int) -> I64:
    """Write all of a feature but its packed values, which take `num_bytes`. Returns where these begin."""
    name_at, name_end = constants.name_offsets[number], constants.name_offsets[number + 1]
    inner = 1 + varint_len(U64(num_bytes)) + num_bytes
    feature = 1 + varint_len(U64(inner)) + inner
    at = put_tag(out, at, _FIRST, (2 + name_end - name_at) + 1 + varint_len(U64(feature)) + feature)
    at = put_tag(out, at, _FIRST, name_end - name_at)
    for i in range(name_at, name_end):
        put(out, at, constants.names[i])
        at += 1
    at = put_tag(out, at, _SECOND, feature)
    at = put_tag(out, at, tag, inner)
    return put_tag(out, at, _FIRST, num_bytes)


@helper
def fill(out: Pointer, at: int, value: int, count: int) -> I64:
    """Write a byte `count` times. Returns where it ends."""
    for i in range(count):
        put(out, at + i, np.uint8(value))
    return at + count


@helper
def measure_varints(values: Pointer, begin: int, end: int) -> I64:
    """How many bytes protobuf needs for these values."""
    total = I64(0)
    for i in range(begin, end):
        total += varint_len(U64(item(values, i)))
    return total


@helper
def put_varints(out: Pointer, at: int, values: Pointer, begin: int, end: int) -> I64:
    for i in range(begin, end):
        at = put_varint(out, at, U64(item(values, i)))
    return at


@kernel
def encode_records(rows: ExampleArrays, shape: Shape, constants: Constants, out: np.ndarray) -> I64:
    """Write the record of each row to `out`, one after another. Returns how many bytes they take.

    out: uint8, with _ROW_BYTES, _TOKEN_BYTES and _MASK_BYTES of room for each row, possible token and possible mask.
    """
    data, tables = pointer(out), pointer(constants.crc)
    ids, originals, positions = pointer(rows.input_ids), pointer(rows.masked_ids), pointer(rows.masked_positions)
    lens = np.diff(constants.name_offsets)
    pad_len, at = varint_len(U64(shape.pad_id)), I64(0)
    for row in range(len(rows.segment_a_len)):
        begin, end = rows.offsets[row], rows.offsets[row + 1]
        first, last = rows.mask_offsets[row], rows.mask_offsets[row + 1]
        padding, no_masks = shape.max_seq_len - (end - begin), shape.max_predictions - (last - first)
        label = rows.sop_label[row]
        id_bytes = measure_varints(ids, begin, end) + padding * pad_len
        original_bytes = measure_varints(originals, first, last) + no_masks
        position_bytes = measure_varints(positions, first, last) + no_masks
        weight_bytes, label_bytes = 4 * shape.max_predictions, I64(10 if label < 0 else 1)

        features = feature_len(lens[_INPUT_IDS], id_bytes) + feature_len(lens[_INPUT_MASK], shape.max_seq_len)
        features += feature_len(lens[_MASKED_IDS], original_bytes) + feature_len(lens[_POSITIONS], position_bytes)
        features += feature_len(lens[_WEIGHTS], weight_bytes) + feature_len(lens[_LABELS], label_bytes)
        features += feature_len(lens[_SEGMENTS], shape.max_seq_len)
        num_bytes = 1 + varint_len(U64(features)) + features

        store_u64(data, at, U64(num_bytes))
        store_u64(data, at + 8, masked_crc(tables, data, at, 8))  # of eight bytes the last four are overwritten
        record = at + 12
        at = put_tag(data, record, _FIRST, features)
        at = put_head(data, at, constants, _INPUT_IDS, _INTEGERS, id_bytes)
        at = put_varints(data, at, ids, begin, end)
        for _ in range(padding):
            at = put_varint(data, at, U64(shape.pad_id))
        at = put_head(data, at, constants, _INPUT_MASK, _INTEGERS, shape.max_seq_len)
        at = fill(data, fill(data, at, 1, end - begin), 0, padding)
        at = put_head(data, at, constants, _MASKED_IDS, _INTEGERS, original_bytes)
        at = fill(data, put_varints(data, at, originals, first, last), 0, no_masks)
        at = put_head(data, at, constants, _POSITIONS, _INTEGERS, position_bytes)
        at = fill(data, put_varints(data, at, positions, first, last), 0, no_masks)
        at = put_head(data, at, constants, _WEIGHTS, _FLOATS, weight_bytes)
        for _ in range(first, last):
            store_u64(data, at, U64(0x3F800000))  # 1.0 in float32
            at += 4
        at = fill(data, at, 0, 4 * no_masks)
        at = put_head(data, at, constants, _LABELS, _INTEGERS, label_bytes)
        # -1 as a varint is 64 bits that are all 1: nine bytes of seven bits, and one more.
        at = fill(data, fill(data, at, 0xFF, label_bytes - 1), 1 if label < 0 else label, 1)
        at = put_head(data, at, constants, _SEGMENTS, _INTEGERS, shape.max_seq_len)
        # [CLS] A [SEP] is segment 0; a row without a pair has nothing after that.
        num_first = rows.segment_a_len[row] + 2
        at = fill(data, fill(data, at, 0, num_first), 1, end - begin - num_first)
        at = fill(data, at, 0, padding)
        store_u64(data, at, masked_crc(tables, data, record, at - record))
        at += 4
    return at
