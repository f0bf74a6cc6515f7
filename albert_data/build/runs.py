"""Runs: the sorted intermediate files between map and reduce.

A run holds the rows of train, then those of validation, each sorted by (shuffle key, document key, pass,
index, content), which is a total order of the examples of a corpus: the content tells the rows of two documents
apart whose keys collide. In the file: the length of a header, the header (JSON: each column's place, type and
length), and the columns as they lie in memory, for the next stage reads a range of each straight to where it is
needed.
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
_STEP = 64  # of every so many keys of a run one stays in memory
_ROWS_COMPARED = 1024  # at once, with those before them
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
        order = np.argsort(self.shuffle_keys)
        keys = self.shuffle_keys[order]
        is_tied = keys[1:] == keys[:-1]
        if is_tied.any():
            tied = np.flatnonzero(np.append(is_tied, False) | np.append(False, is_tied))
            order[tied] = self._order_tied(order[tied])
        return order

    def _order_tied(self, rows: np.ndarray) -> np.ndarray:
        """Order rows that share their shuffle keys: nearly always equal ones, of a document that comes twice.

        Where two documents share a key, rows that have all keys in common may differ yet.
        """
        keys = (self.indices, self.passes, self.examples.document_keys, self.shuffle_keys)
        rows = rows[np.lexsort([key[rows] for key in keys])]
        is_new = np.append(True, np.any([key[rows[1:]] != key[rows[:-1]] for key in keys], axis=0))
        groups, begins = np.cumsum(is_new) - 1, np.append(np.flatnonzero(is_new), len(rows))
        for group in np.unique(groups[self._find_unlike(rows, np.flatnonzero(~is_new))]):
            group_rows = slice(begins[group], begins[group + 1])
            rows[group_rows] = sorted(rows[group_rows].tolist(), key=self._read_content)
        return rows

    def _find_unlike(self, rows: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Of the places, those where the row is not equal to the one before it, and some others."""
        found = [np.zeros(0, np.int64)]
        for part in np.split(places, range(_ROWS_COMPARED, len(places), _ROWS_COMPARED)):
            before, after = (vars(take_rows(self.examples, rows[part - step])) for step in (1, 0))
            if not all(np.array_equal(before[name], after[name]) for name in before):
                found.append(part)
        return np.concatenate(found)

    def _read_content(self, row: int) -> list[bytes]:
        return [column.tobytes() for column in vars(slice_rows(self.examples, row, row + 1)).values()]

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


class Run:
    """A run on the disk. Its header and some of its keys are kept, for it is asked for as many ranges as shards."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self.open() as file:
            header_bytes = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            self._header = json.loads(file.read(header_bytes))
            self._columns_at = _LENGTH_BYTES + header_bytes
            self._some_keys = {
                split: self._read_keys(file, split, 0, self._num_rows(split))[::_STEP] for split in SPLITS
            }

    def open(self) -> FileIO:
        return self._path.open("rb", buffering=0)

    def find(self, file: FileIO, split: str, key: int) -> int:
        """The first row whose shuffle key is `key` or more, of a key of 64 bits or the one after the last."""
        if key >= 2**64:
            return self._num_rows(split)
        steps = int(np.searchsorted(self._some_keys[split], np.uint64(key)))
        begin, end = max(0, (steps - 1) * _STEP), min(steps * _STEP, self._num_rows(split))
        return begin + int(np.searchsorted(self._read_keys(file, split, begin, end), np.uint64(key)))

    def dtype(self, column: str) -> Any:
        return np.dtype(self._header[column]["dtype"])

    def read_into(self, file: FileIO, out: np.ndarray, column: str, begin: int) -> None:
        """Fill `out` from item `begin` of a column on. Raises OutputError where the file is cut."""
        file.seek(self._columns_at + self._header[column]["at"] + begin * out.itemsize)
        rest = out.data.cast("B") if len(out) else memoryview(b"")
        while rest:
            count = file.readinto(rest)
            if not count:
                raise OutputError(f"{self._path} is cut short; begin anew with --overwrite")
            rest = rest[count:]

    def read(self, file: FileIO, column: str, begin: int, end: int) -> np.ndarray:
        out = np.empty(end - begin, self.dtype(column))
        self.read_into(file, out, column, begin)
        return out

    def _num_rows(self, split: str) -> int:
        return int(self._header[f"{split}/shuffle_keys"]["length"])

    def _read_keys(self, file: FileIO, split: str, begin: int, end: int) -> np.ndarray:
        return self.read(file, f"{split}/shuffle_keys", begin, end)


def read_range(runs: list[Run], split: str, low: int, high: int) -> KeyedRows:
    """The rows of all runs whose shuffle key is in [low, high), one run's after another's.

    One run is open at a time, for a large corpus has more of them than a process may have files.
    """
    offsets: dict[str, list[np.ndarray]] = {name: [] for name in _OFFSETS}
    ranges: list[dict[str, range]] = []
    for run in runs:
        with run.open() as file:
            begin, end = (run.find(file, split, key) for key in (low, high))
            for name, parts in offsets.items():
                parts.append(run.read(file, f"{split}/{name}", begin, end + 1))
        found = {
            kind: range(int(parts[-1][0]), int(parts[-1][-1]))
            for kind, parts in zip(("tokens", "masks"), offsets.values(), strict=True)
        }
        ranges.append({"rows": range(begin, end), **found})
    columns = {
        name: np.empty(sum(len(one[kind]) for one in ranges), runs[0].dtype(f"{split}/{name}"))
        for name, kind in _RANGES.items()
    }
    filled = dict.fromkeys(columns, 0)
    for run, one in zip(runs, ranges, strict=True):
        with run.open() as file:
            for name, kind in _RANGES.items():
                begin = filled[name]
                filled[name] += len(one[kind])
                run.read_into(file, columns[name][begin : filled[name]], f"{split}/{name}", one[kind].start)
    keys = {name: columns.pop(name) for name in ("shuffle_keys", "passes", "indices")}
    joined = {name: join_offsets(parts) for name, parts in offsets.items()}
    return KeyedRows(examples=Examples(**joined, **columns), **keys)
