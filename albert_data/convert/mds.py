"""MDS files, which mosaicml-streaming's StreamingDataset reads, and the index.json of each split.

Source: `MDSWriter.encode_joint_shard` and `NDArray.encode` of mosaicml-streaming 0.13; the format is version 2. A file
is the number of samples, the offset of each and of the end (uint32), a JSON object of the columns, and the samples. A
sample is the byte lengths of its arrays (uint32), then the columns in the order of their names. An array begins with a
byte for the number of its dimensions and the width of its length, and the length.

MDSWriter itself refuses an array without elements; StreamingDataset reads one, as a row without masks has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute

from albert_data.convert.writers import ConvertTask, ShardFolder, SplitFiles, Writer, WrittenFile, new_file
from albert_data.data import Examples
from albert_data.shards.packing import ROW_STARTS, PackedExamples
from albert_data.shards.rows import restore_ids

INDEX_NAME = "index.json"
HASH = "xxh3_128"  # its name in Python's xxhash, which StreamingDataset's `validate_hash` looks up too
SIZE_LIMIT = 1 << 26  # bytes; MDSWriter's default
_PART_BYTES = 16 << 20


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
            columns = {"id": ("str", None), "input_ids": (ids, None), "len": ("int", 8)}
        if source.pack is not None:
            kept = {name: kind for name, kind in columns.items() if kind[1] is None or name == "len"}
            columns = {**kept, ROW_STARTS: ("ndarray:int32", None)}
        self._columns = columns
        self._config = {
            "column_encodings": [encoding for encoding, _ in columns.values()],
            "column_names": list(columns),
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
        lists, numbers = self._find_lists(rows), self._find_numbers(rows)
        each, columns, sizes = np.arange(len(rows) + 1), [], []
        for name, (_, size) in self._columns.items():
            some = _encode_lists(*lists[name]) if name in lists else [_cut(numbers[name], each)]
            columns += some
            if size is None:
                sizes.append(sum(pyarrow.compute.binary_length(column).to_numpy() for column in some))
        lens = _cut(np.stack(sizes, axis=1).astype(np.uint32), each * len(sizes))
        _, ends, samples = pyarrow.compute.binary_join_element_wise(lens, *columns, b"").buffers()
        offsets = np.frombuffer(ends, np.int32)[: len(rows) + 1].astype(np.int64)
        return np.frombuffer(samples, np.uint8)[: offsets[-1]], offsets[1:]

    def _find_lists(self, rows: Examples) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """The values of each array column, and where those of each row begin."""
        is_masked = "masked_ids" in self._columns
        lists = {
            "input_ids": (rows.input_ids if is_masked else restore_ids(rows), rows.offsets),
            "masked_ids": (rows.masked_ids, rows.mask_offsets),
            "masked_positions": (rows.masked_positions, rows.mask_offsets),
        }
        return lists | ({ROW_STARTS: (rows.row_starts, rows.row_offsets)} if isinstance(rows, PackedExamples) else {})

    def _find_numbers(self, rows: Examples) -> dict[str, Any]:
        """The other columns, an item for each row."""
        return {
            "document_key": rows.document_keys,
            "document_key_b": rows.document_keys_b,
            "id": np.frombuffer(rows.document_keys.astype(">u8").tobytes().hex().encode(), "S16"),
            "len": np.diff(rows.offsets),
            "segment_a_len": rows.segment_a_len,
            "sop_label": rows.sop_label,
            "source": rows.sources,
        }

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
            entries.append(WrittenFile(name=name, num_rows=len(lens), num_bytes=file.num_bytes, hash=file.hexdigest()))
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


def _encode_lists(values: np.ndarray, offsets: np.ndarray) -> list[pyarrow.Array]:
    """The heads of arrays of the values between each two offsets, and these values."""
    counts = np.diff(offsets)
    width = (counts >= 1 << 8).astype(np.int64) + (counts >= 1 << 16)  # of the length: 1, 2 or 4 bytes
    heads = (counts << 8 | 4 | width).view(np.uint8)  # of eight bytes, the first ones count; 4: one dimension
    head_lens = 1 + (1 << width)
    places = np.append(0, np.cumsum(head_lens))
    kept = np.repeat(8 * np.arange(len(counts)) - places[:-1], head_lens) + np.arange(places[-1])
    return [_cut(heads[kept], places), _cut(values, offsets)]


def _cut(values: np.ndarray, offsets: np.ndarray) -> pyarrow.Array:
    """The bytes of the values between each two offsets."""
    places = (offsets * values.itemsize).astype(np.int32)
    buffers = [None, pyarrow.py_buffer(places), pyarrow.py_buffer(np.ascontiguousarray(values))]
    return pyarrow.Array.from_buffers(pyarrow.binary(), len(offsets) - 1, buffers)
