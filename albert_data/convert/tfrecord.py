"""TFRecord files of tf.train.Example, with the features that Google's ALBERT trainer reads.

Source: github.com/google-research/albert, `write_instance_to_example_files` in create_pretraining_data.py and
`input_fn_builder` in run_pretraining.py; the framing is that of tensorflow/core/lib/io/record_writer.h.

`next_sentence_labels` is 1 for swapped segments, as `is_random_next` there, so it equals `sop_label`. With `--pairs
nsp` it is 1 for random segments, as in BERT's create_pretraining_data.py; with `order3` there are three. Google's code
has no rows without a pair. They keep -1: the trainer's `tf.one_hot` makes zeros of it, so such a row adds nothing to
the loss. Padding is the pad id in `input_ids` and 0 elsewhere. Features stand in the order of their names, as
protobuf's deterministic serialization has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from albert_data.convert.writers import ConvertTask, Writer, WrittenFile, make_entry, new_file
from albert_data.data import ExampleArrays, Examples
from albert_data.errors import ShardError
from albert_data.kernels import I64, U64, Pointer, helper, item, kernel, load_u64, pointer, put, store_u64

_BUFFER_BYTES = 2 << 20  # stays in the processor's cache until it is written
_ROW_BYTES, _TOKEN_BYTES, _MASK_BYTES = 512, 7, 12  # the most that a record, a token and a mask can need
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
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, bits reversed
_NUM_TABLES = 16
_MASK_DELTA = 0xA282EAD8  # of TFRecord's "masked" checksum: tensorflow/core/lib/hash/crc32c.h


class Shape(NamedTuple):
    """The lengths of the features, and the id of [PAD]."""

    max_seq_len: int
    max_predictions: int
    pad_id: int


class Constants(NamedTuple):
    """names: of all features, one after another; name_offsets: int64; crc: what `make_tables` made."""

    names: np.ndarray
    name_offsets: np.ndarray
    crc: np.ndarray


class TFRecordWriter(Writer):
    """One file for each shard: SPLIT/shard-00000.tfrecord."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.facts = {"max_seq_length": shape.max_seq_len, "max_predictions_per_seq": shape.max_predictions}
        self._most = _ROW_BYTES + _TOKEN_BYTES * shape.max_seq_len + _MASK_BYTES * shape.max_predictions
        self.max_rows = max(1, _BUFFER_BYTES // self._most)
        offsets = np.cumsum([0, *map(len, _NAMES)], dtype=np.int64)
        self._constants = Constants(np.frombuffer(b"".join(_NAMES), np.uint8), offsets, make_tables())

    def encode(self, rows: Examples) -> np.ndarray:
        """The records of these rows, framed: uint8. Raises ShardError for a row with too many masks."""
        if np.diff(rows.mask_offsets).max(initial=0) > self.shape.max_predictions:
            raise ShardError("a shard has changed since its masks were counted; give the same command again")
        out = np.empty(len(rows) * self._most, np.uint8)
        return out[encode_records(rows.arrays, self.shape, self._constants, out) :]

    def write(self, work: Path, task: ConvertTask, parts: Iterable[Examples]) -> list[WrittenFile]:
        name, num_rows = f"{task.split}/shard-{task.number:05d}.tfrecord", 0
        with new_file(work, name) as file:
            for rows in parts:
                file.write(self.encode(rows).data)
                num_rows += len(rows)
        return [make_entry(name, num_rows, file)]


# ---- CRC-32C (Castagnoli), 16 bytes a step, by tables ("slicing-by-16") ----


def make_tables() -> np.ndarray:
    """Table k of 16 at [256 * k, 256 * k + 256): the checksum of a byte that k zero bytes follow. uint32."""
    tables = np.zeros((_NUM_TABLES, 256), np.uint32)
    tables[0] = np.arange(256)
    for _ in range(8):
        tables[0] = (tables[0] >> 1) ^ np.where(tables[0] & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    for k in range(1, _NUM_TABLES):
        tables[k] = (tables[k - 1] >> 8) ^ tables[0][tables[k - 1] & 255]
    return tables.ravel()


@helper
def look_up(tables: Pointer, k: int, bits: U64) -> U64:
    """The entry of table k for the lowest byte of `bits`."""
    return U64(item(tables, 256 * k + (bits & U64(255))))


@helper
def masked_crc(tables: Pointer, data: Pointer, at: int, count: int) -> U64:
    """The masked checksum of `count` bytes from item `at` on. tables: what `make_tables` made; data: uint8."""
    crc, end = U64(0xFFFFFFFF), at + count
    while at + 16 <= end:
        low, high = load_u64(data, at) ^ crc, load_u64(data, at + 8)
        crc = U64(0)
        for i in range(8):
            crc ^= look_up(tables, 15 - i, low >> U64(8 * i)) ^ look_up(tables, 7 - i, high >> U64(8 * i))
        at += 16
    while at < end:
        crc = look_up(tables, 0, crc ^ U64(item(data, at))) ^ (crc >> U64(8))
        at += 1
    crc ^= U64(0xFFFFFFFF)
    return (((crc >> U64(15)) | (crc << U64(17))) + U64(_MASK_DELTA)) & U64(0xFFFFFFFF)


# ---- records ----

# A record is written from its end to its start: a length precedes what it counts, so it is known when its turn comes.
# Each helper writes what ends at `at`, and returns where that begins. A store of eight bytes may reach further down, to
# what is written later.


@helper
def put_varint(out: Pointer, at: int, value: U64) -> I64:
    """Write a number below 2**35 as protobuf does: seven bits a byte, the lowest first."""
    spread = value & U64(0x7F)
    spread |= (value & U64(0x3F80)) << U64(1)
    spread |= (value & U64(0x1FC000)) << U64(2)
    spread |= (value & U64(0xFE00000)) << U64(3)
    spread |= (value & U64(0x7F0000000)) << U64(4)
    more = I64(value > U64(0x7F)) + I64(value > U64(0x3FFF)) + I64(value > U64(0x1FFFFF)) + I64(value > U64(0xFFFFFFF))
    unused = U64(56 - 8 * more)  # bits
    # All bytes except the last have the highest bit.
    store_u64(out, at - 8, (spread << unused) | (U64(0x80808080808080) & (U64(0xFFFFFFFFFFFFFFFF) << unused)))
    return at - 1 - more


@helper
def put_tag(out: Pointer, at: int, tag: int, num_bytes: int) -> I64:
    """Write a tag and the length of what follows."""
    at = put_varint(out, at, U64(num_bytes)) - 1
    put(out, at, np.uint8(tag))
    return at


@helper
def put_head(out: Pointer, at: int, end: int, constants: Constants, number: int, tag: int) -> I64:
    """Write all of a feature except its packed values, which are there already, up to `end`."""
    at = put_tag(out, at, _FIRST, end - at)
    at = put_tag(out, at, tag, end - at)
    at = put_tag(out, at, _SECOND, end - at)
    name_at, name_end = constants.name_offsets[number], constants.name_offsets[number + 1]
    for i in range(name_end - 1, name_at - 1, -1):
        at -= 1
        put(out, at, constants.names[i])
    at = put_tag(out, at, _FIRST, name_end - name_at)
    return put_tag(out, at, _FIRST, end - at)


@helper
def fill(out: Pointer, at: int, value: int, count: int) -> I64:
    """Write a byte `count` times."""
    for i in range(at - count, at):
        put(out, i, np.uint8(value))
    return at - count


@helper
def put_varints(out: Pointer, at: int, values: Pointer, begin: int, end: int) -> I64:
    for i in range(end - begin):
        at = put_varint(out, at, U64(item(values, end - 1 - i)))
    return at


@helper
def put_crc(out: Pointer, at: int, crc: U64) -> I64:
    for i in range(4):
        put(out, at - 4 + i, np.uint8(crc >> U64(8 * i)))
    return at - 4


@kernel
def encode_records(rows: ExampleArrays, shape: Shape, constants: Constants, out: np.ndarray) -> I64:
    """Write the record of each row to the end of `out`, one after another. Returns where the first begins.

    out: uint8, with _ROW_BYTES, _TOKEN_BYTES and _MASK_BYTES of room for each row, possible token and possible mask.
    """
    data, tables = pointer(out), pointer(constants.crc)
    ids, originals, positions = pointer(rows.input_ids), pointer(rows.masked_ids), pointer(rows.masked_positions)
    at = I64(len(out))
    for row in range(len(rows.segment_a_len) - 1, -1, -1):
        begin, end = rows.offsets[row], rows.offsets[row + 1]
        first, last = rows.mask_offsets[row], rows.mask_offsets[row + 1]
        padding, no_masks = shape.max_seq_len - (end - begin), shape.max_predictions - (last - first)
        label, num_first = rows.sop_label[row], rows.segment_a_len[row] + 2  # [CLS] A [SEP] is segment 0

        at = record_end = at - 4
        # A row without a pair has nothing after [CLS] A [SEP].
        at = fill(data, fill(data, fill(data, at, 0, padding), 1, end - begin - num_first), 0, num_first)
        at = stop = put_head(data, at, record_end, constants, _SEGMENTS, _INTEGERS)
        # -1 as a varint is 64 bits that are all 1: nine bytes of seven bits, and one more.
        at = fill(data, fill(data, at, 1 if label < 0 else label, 1), 0xFF, 9 if label < 0 else 0)
        at = stop = put_head(data, at, stop, constants, _LABELS, _INTEGERS)
        at = fill(data, at, 0, 4 * no_masks)
        for _ in range(first, last):
            store_u64(data, at - 8, U64(0x3F800000) << U64(32))  # 1.0 in float32
            at -= 4
        at = stop = put_head(data, at, stop, constants, _WEIGHTS, _FLOATS)
        at = put_varints(data, fill(data, at, 0, no_masks), positions, first, last)
        at = stop = put_head(data, at, stop, constants, _POSITIONS, _INTEGERS)
        at = put_varints(data, fill(data, at, 0, no_masks), originals, first, last)
        at = stop = put_head(data, at, stop, constants, _MASKED_IDS, _INTEGERS)
        at = fill(data, fill(data, at, 0, padding), 1, end - begin)
        at = stop = put_head(data, at, stop, constants, _INPUT_MASK, _INTEGERS)
        for _ in range(padding):
            at = put_varint(data, at, U64(shape.pad_id))
        at = put_varints(data, at, ids, begin, end)
        at = put_head(data, at, stop, constants, _INPUT_IDS, _INTEGERS)
        at = put_tag(data, at, _FIRST, record_end - at)

        put_crc(data, record_end + 4, masked_crc(tables, data, at, record_end - at))
        store_u64(data, at - 12, U64(record_end - at))
        put_crc(data, at, masked_crc(tables, data, at - 12, 8))
        at -= 12
    return at
