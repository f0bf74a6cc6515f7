"""Runs: the sorted intermediate files between map and reduce.

A run holds the rows of train, then those of validation, each sorted by (shuffle key, document key, pass,
index), which is a total order of the examples of a corpus. In the file: the length of a header, the header
(JSON: each column's place, type and length), and the columns as they lie in memory, for the next stage reads
a range of each straight to where it is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from albert_data.errors import OutputError
from albert_data.examples.ragged import Examples
from albert_data.files import replace_file
from albert_data.shards.manifest import SPLITS
from albert_data.shards.rows import join_offsets, join_rows, slice_rows, take_rows

_LENGTH_BYTES = 8
_OFFSETS = ("offsets", "mask_offsets")
_RANGES = {  # what a column has an item for
    "input_ids": "tokens",
    "segment_a_len": "rows",
    "sop_label": "rows",
    "masked_positions": "masks",
    "masked_ids": "masks",
    "document_keys": "rows",
    "shuffle_keys": "rows",
    "passes": "rows",
    "indices": "rows",
}


@dataclass(frozen=True, kw_only=True)
class KeyedRows:
    """Rows and their place in the order of all: shuffle_keys uint64, passes uint16, indices uint32."""

    examples: Examples
    shuffle_keys: np.ndarray
    passes: np.ndarray
    indices: np.ndarray

    def order(self) -> np.ndarray:
        """The row numbers in the total order: int64."""
        return np.lexsort((self.indices, self.passes, self.examples.document_keys, self.shuffle_keys))

    def take(self, rows: np.ndarray) -> KeyedRows:
        return KeyedRows(
            examples=take_rows(self.examples, rows),
            shuffle_keys=self.shuffle_keys[rows],
            passes=self.passes[rows],
            indices=self.indices[rows],
        )

    def slice(self, begin: int, end: int) -> KeyedRows:
        """Without a copy of the values."""
        return KeyedRows(
            examples=slice_rows(self.examples, begin, end),
            shuffle_keys=self.shuffle_keys[begin:end],
            passes=self.passes[begin:end],
            indices=self.indices[begin:end],
        )


def join_keyed(parts: list[KeyedRows]) -> KeyedRows:
    return KeyedRows(
        examples=join_rows([part.examples for part in parts]),
        shuffle_keys=np.concatenate([part.shuffle_keys for part in parts]),
        passes=np.concatenate([part.passes for part in parts]),
        indices=np.concatenate([part.indices for part in parts]),
    )


def write_run(path: Path, rows: KeyedRows, num_train: int) -> None:
    """Write rows that are in order: first `num_train` of train, then those of validation."""
    parts = (rows.slice(0, num_train), rows.slice(num_train, len(rows.indices)))
    columns = {
        f"{split}/{name}": column for split, part in zip(SPLITS, parts, strict=True) for name, column in _columns(part)
    }
    header: dict[str, Any] = {}
    at = 0
    for name, column in columns.items():
        header[name] = {"at": at, "dtype": column.dtype.str, "length": len(column)}
        at += column.nbytes
    text = json.dumps(header).encode()
    with replace_file(path, sync=False) as file:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
        for column in columns.values():
            file.write(column.data)


def _columns(rows: KeyedRows) -> Iterator[tuple[str, np.ndarray]]:
    yield from vars(rows.examples).items()
    yield from ((name, column) for name, column in vars(rows).items() if name != "examples")


def read_range(paths: list[Path], split: str, low: int, high: int) -> KeyedRows:
    """The rows of all runs whose shuffle key is in [low, high), one run's after another's.

    One run is open at a time, for a large corpus has more of them than a process may have files.
    """
    parts = [_RunRange(path, split, low, high) for path in paths]
    columns = {
        name: np.empty(sum(len(part.ranges[kind]) for part in parts), parts[0].dtype(name))
        for name, kind in _RANGES.items()
    }
    filled = dict.fromkeys(columns, 0)
    for part in parts:
        with part.open() as file:
            for name, kind in _RANGES.items():
                found, begin = part.ranges[kind], filled[name]
                filled[name] += len(found)
                part.read_into(file, columns[name][begin : filled[name]], name, found.start)
    keys = {name: columns.pop(name) for name in ("shuffle_keys", "passes", "indices")}
    offsets, mask_offsets = (join_offsets([getattr(part, name) for part in parts]) for name in _OFFSETS)
    return KeyedRows(examples=Examples(offsets=offsets, mask_offsets=mask_offsets, **columns), **keys)


class _RunRange:
    """A range of one run: its rows, their tokens and masks, and the offsets of both."""

    def __init__(self, path: Path, split: str, low: int, high: int) -> None:
        self._path, self._split = path, split
        with self.open() as file:
            header_bytes = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            self._header = json.loads(file.read(header_bytes))
            self._columns_at = _LENGTH_BYTES + header_bytes
            keys = self._read(file, "shuffle_keys", 0, self._header[f"{split}/shuffle_keys"]["length"])
            begin = int(np.searchsorted(keys, np.uint64(low)))
            end = len(keys) if high >= 2**64 else int(np.searchsorted(keys, np.uint64(high)))
            self.offsets, self.mask_offsets = (self._read(file, name, begin, end + 1) for name in _OFFSETS)
        self.ranges = {
            "rows": range(begin, end),
            "tokens": range(int(self.offsets[0]), int(self.offsets[-1])),
            "masks": range(int(self.mask_offsets[0]), int(self.mask_offsets[-1])),
        }

    def open(self) -> FileIO:
        return self._path.open("rb", buffering=0)

    def dtype(self, name: str) -> Any:
        return np.dtype(self._header[f"{self._split}/{name}"]["dtype"])

    def _read(self, file: FileIO, name: str, begin: int, end: int) -> np.ndarray:
        column = np.empty(end - begin, self.dtype(name))
        self.read_into(file, column, name, begin)
        return column

    def read_into(self, file: FileIO, out: np.ndarray, name: str, begin: int) -> None:
        """Fill `out` from item `begin` of a column on. Raises OutputError where the file is cut."""
        file.seek(self._columns_at + self._header[f"{self._split}/{name}"]["at"] + begin * out.itemsize)
        rest = out.data.cast("B") if len(out) else memoryview(b"")
        while rest:
            count = file.readinto(rest)
            if not count:
                raise OutputError(f"{self._path} is cut short; begin anew with --overwrite")
            rest = rest[count:]
