"""MDS files, which mosaicml-streaming's StreamingDataset reads, and the index.json of each split.

Source: `MDSWriter.encode_joint_shard` and `NDArray.encode` of mosaicml-streaming 0.13; the format is version 2. A file
is the number of samples, the offset of each and of the end (uint32), a JSON object of the columns, and the samples. A
sample is the byte lengths of its arrays (uint32), then the columns in the order of their names. An array begins with a
byte for the number of its dimensions and the width of its length, and the length.

MDSWriter itself refuses an array without elements; StreamingDataset reads one, as a row without masks has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from albert_data.convert.writers import (
    HASH,
    ConvertTask,
    ShardFolder,
    SplitFiles,
    Writer,
    WrittenFile,
    make_entry,
    new_file,
)
from albert_data.data import ExampleArrays, Examples
from albert_data.kernels import I64, U64, Pointer, copy_items, helper, kernel, pointer, put, store_u64
from albert_data.shards.packing import ROW_STARTS, PackedExamples
from albert_data.shards.rows import restore_ids

INDEX_NAME = "index.json"
SIZE_LIMIT = 1 << 26  # bytes; MDSWriter's default
_PART_BYTES = 16 << 20
# All of a sample without the values of its arrays, at most: lengths, heads, offset and the other columns, and room for
# the last store of eight bytes.
_ROW_BYTES = 64


class MDSWriter(Writer):
    """SPLIT/shard.00000.mds for each shard; shard.00000.1.mds and so on if one has more than SIZE_LIMIT bytes."""

    def __init__(self, source: ShardFolder, *, unmasked: bool = False) -> None:
        """unmasked: write the original ids, in the columns that ModernBERT's loaders read."""
        ids = f"ndarray:{np.dtype(source.id_dtype).name}"
        columns = {  # in the order of their names, as MDSWriter sorts them
            "document_key": ("uint64", 8),
            **({"document_key_b": ("uint64", 8)} if source.manifest.config.examples.task.has_random else {}),
            "input_ids": (ids, None),
            "masked_ids": (ids, None),
            "masked_positions": ("ndarray:uint16", None),
            "segment_a_len": ("int32", 4),
            "sop_label": ("int8", 1),
            **({"source": ("uint16", 2)} if source.manifest.sources is not None else {}),
        }
        if unmasked:
            columns = {"id": ("str", None), "input_ids": ("ndarray:int64", None), "len": ("int", 8)}
        if source.pack is not None:
            kept = {name: kind for name, kind in columns.items() if kind[1] is None or name == "len"}
            columns = {**kept, ROW_STARTS: ("ndarray:int32", None)}
        self._names = list(columns)
        self._config = {
            "column_encodings": [encoding for encoding, _ in columns.values()],
            "column_names": self._names,
            "column_sizes": [size for _, size in columns.values()],
            "compression": None,
            "format": "mds",
            "hashes": [HASH],
            "size_limit": SIZE_LIMIT,
            "version": 2,
        }
        self._header = json.dumps(self._config, sort_keys=True).encode()
        self.max_rows = source.count_rows(_PART_BYTES)

    def encode(self, rows: Examples) -> tuple[np.ndarray, np.ndarray]:
        """The samples of these rows, one after another (uint8), and where each ends (int64)."""
        if "sop_label" not in self._names:
            return _encode_lists(rows, self._names)
        values = (rows.input_ids, rows.masked_ids, rows.masked_positions)
        out = np.empty(len(rows) * _ROW_BYTES + sum(array.nbytes for array in values), np.uint8)
        ids, originals, positions = (np.ascontiguousarray(array).view(np.uint8) for array in values)
        ends = np.empty(len(rows), np.int64)
        keys_b = np.zeros(0, np.uint64) if rows.document_keys_b is None else rows.document_keys_b
        encode_samples(rows.arrays, keys_b, ids, originals, positions, rows.input_ids.itemsize, out, ends)
        return out[: ends[-1] if len(ends) else 0], ends

    def write(self, work: Path, task: ConvertTask, parts: Iterable[Examples]) -> list[WrittenFile]:
        entries = []
        for number, encoded in enumerate(self._fill_files(parts)):
            name = f"{task.split}/shard.{task.number:05d}{f'.{number}' if number else ''}.mds"
            lens = np.concatenate([np.diff(ends, prepend=0) for _, ends in encoded])
            # One offset more than samples, after the number of samples.
            first = 4 + 4 * (1 + len(lens)) + len(self._header)
            offsets = first + np.concatenate(([0], np.cumsum(lens)))
            with new_file(work, name) as file:
                file.write(np.concatenate(([len(lens)], offsets)).astype(np.uint32).tobytes())
                file.write(self._header)
                for samples, _ in encoded:
                    file.write(samples.data)
            entries.append(make_entry(name, len(lens), file))
        return entries

    def _fill_files(self, parts: Iterable[Examples]) -> Iterator[list[tuple[np.ndarray, np.ndarray]]]:
        """Yield what `encode` gives for the rows of each file."""
        encoded: list[tuple[np.ndarray, np.ndarray]] = []
        size = 0
        for rows in parts:
            samples, ends = self.encode(rows)
            more = len(samples) + 4 * len(rows)
            if encoded and size + more + len(self._header) + 8 > SIZE_LIMIT:
                yield encoded
                encoded, size = [], 0
            encoded.append((samples, ends))
            size += more
        if encoded:
            yield encoded

    def describe(self, files: SplitFiles) -> dict[str, bytes]:
        """index.json of each split."""
        indexes = {
            split: {"shards": list(map(self._list_shard, entries)), "version": 2} for split, entries in files.items()
        }
        return {f"{split}/{INDEX_NAME}": json.dumps(index, sort_keys=True).encode() for split, index in indexes.items()}

    def _list_shard(self, entry: WrittenFile) -> dict[str, Any]:
        data = {"basename": Path(entry.name).name, "bytes": entry.num_bytes, "hashes": {HASH: entry.hash}}
        return {**self._config, "raw_data": data, "samples": entry.num_rows, "zip_data": None}


def _encode_lists(rows: Examples, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """As `MDSWriter.encode`, of packs, or of rows without masks. names: the columns."""
    ids = rows.input_ids if "masked_ids" in names else restore_ids(rows).astype(np.int64)
    values: dict[str, Iterable[bytes]] = {
        "id": (f"{key:016x}".encode() for key in rows.document_keys.tolist()),
        "input_ids": _encode_arrays(ids, rows.offsets),
        "len": (length.tobytes() for length in np.diff(rows.offsets)),
        "masked_ids": _encode_arrays(rows.masked_ids, rows.mask_offsets),
        "masked_positions": _encode_arrays(rows.masked_positions, rows.mask_offsets),
    }
    if isinstance(rows, PackedExamples):
        values[ROW_STARTS] = _encode_arrays(rows.row_starts, rows.row_offsets)
    samples = []
    for columns in zip(*(values[name] for name in names), strict=True):
        sizes = [len(column) for name, column in zip(names, columns, strict=True) if name != "len"]
        samples.append(b"".join([np.array(sizes, np.uint32).tobytes(), *columns]))
    return np.frombuffer(b"".join(samples), np.uint8), np.cumsum([len(sample) for sample in samples], dtype=np.int64)


def _encode_arrays(values: np.ndarray, offsets: np.ndarray) -> Iterator[bytes]:
    """As `put_array` does, the values between each two offsets."""
    for begin, end in pairwise(offsets.tolist()):
        width = 0 if end - begin < 1 << 8 else 1 if end - begin < 1 << 16 else 2
        yield bytes([4 | width]) + (end - begin).to_bytes(1 << width, "little") + values[begin:end].tobytes()


@helper
def put_array(out: Pointer, at: int, values: Pointer, begin: int, count: int, item_bytes: int) -> I64:
    """Write `count` values of one dimension, from value `begin` of `values` (its bytes) on. Returns where they end."""
    width = 0 if count < 1 << 8 else 1 if count < 1 << 16 else 2  # of the length: 1, 2 or 4 bytes
    put(out, at, np.uint8(4 | width))  # 4: one dimension
    store_u64(out, at + 1, U64(count))
    at += 1 + (1 << width)
    copy_items(out, at, values, begin * item_bytes, count * item_bytes)
    return at + count * item_bytes


@kernel
def encode_samples(
    rows: ExampleArrays,
    keys_b: np.ndarray,
    input_ids: np.ndarray,
    masked_ids: np.ndarray,
    masked_positions: np.ndarray,
    id_bytes: int,
    out: np.ndarray,
    ends: np.ndarray,
) -> None:
    """Write the sample of each row to `out`, and where it ends to `ends` (int64).

    keys_b: uint64, empty where the shards have no such column; input_ids, masked_ids, masked_positions: the bytes of
    the columns; id_bytes: of an id; out: uint8.
    """
    data, at = pointer(out), I64(0)
    ids, originals, positions = pointer(input_ids), pointer(masked_ids), pointer(masked_positions)
    num_fixed = 28 if len(keys_b) > 0 else 20  # bytes before the arrays: three lengths and the keys
    for row in range(len(rows.segment_a_len)):
        begin, first = rows.offsets[row], rows.mask_offsets[row]
        num_ids, num_masks = rows.offsets[row + 1] - begin, rows.mask_offsets[row + 1] - first
        # Each store writes eight bytes; the next one overwrites those that are too many.
        ids_end = put_array(data, at + num_fixed, ids, begin, num_ids, id_bytes)
        originals_end = put_array(data, ids_end, originals, first, num_masks, id_bytes)
        end = put_array(data, originals_end, positions, first, num_masks, 2)
        store_u64(data, at, U64(ids_end - at - num_fixed))
        store_u64(data, at + 4, U64(originals_end - ids_end))
        store_u64(data, at + 8, U64(end - originals_end))
        store_u64(data, at + 12, rows.document_keys[row])
        if len(keys_b) > 0:
            store_u64(data, at + 20, keys_b[row])
        at = end
        store_u64(data, at, U64(rows.segment_a_len[row]))
        put(data, at + 4, np.uint8(rows.sop_label[row]))
        at += 5
        if len(rows.sources) > 0:
            store_u64(data, at, U64(rows.sources[row]))
            at += 2
        ends[row] = at
