"""Sorting on the disk: files of sorted columns, and their merge, a range at a time.

A file holds uint64 columns, one after another, whose rows are sorted by the first column, and where that is equal by
the next ones. Several files are merged a range of the first column after another.

    key     3 5 5 9 ...
    value   7 0 1 4 ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from albert_data.errors import OutputError
from albert_data.storage import find_storage

ROWS_AT_ONCE = 1 << 19
_SAMPLES = 64  # of each range: by them its bounds are chosen
_ROWS_OF_FILE = 512  # in a range, on average at least
_U64_BYTES = 8
_HALF = np.uint64(32)


class SortedFile(NamedTuple):
    """A file of sorted columns: its name, and what it holds."""

    name: str
    num_columns: int
    num_rows: int


def sort_columns(columns: np.ndarray, *, ties: bool = True) -> np.ndarray:
    """The same rows, sorted: uint64 [columns, rows]. ties: by the other columns too, where the first is equal."""
    if len(columns) == 2 and columns.max(initial=0) >> _HALF == 0:  # as one number: a third of the time
        both = np.sort(columns[0] << _HALF | columns[1])
        return np.stack([both >> _HALF, both << _HALF >> _HALF])
    order = np.argsort(columns[0])  # a stable sort takes four times as long
    if ties:  # mostly few are equal; only these are sorted by the other columns
        tied = np.flatnonzero(find_shared(columns[0][order]))
        rows = order[tied]
        order[tied] = rows[np.lexsort([column[rows] for column in columns[::-1]])]
    return np.ascontiguousarray(columns[:, order])


def write_columns(folder: Path, name: str, columns: np.ndarray, *, ties: bool = True) -> SortedFile:
    """Sort and write columns, see `sort_columns`. columns: uint64 [columns, rows]."""
    with find_storage(folder).create(folder / name, sync=False) as file:
        file.write(sort_columns(columns, ties=ties).data)
    return SortedFile(name, *columns.shape)


def map_columns(folder: Path, file: SortedFile) -> np.ndarray:
    """The content of a file: uint64 [columns, rows]. It takes memory only while it is used.

    Raises OutputError if the file is truncated.
    """
    content = map_u64(folder / file.name)
    if len(content) != file.num_columns * file.num_rows:
        raise OutputError(f"{folder / file.name} is cut short; start again with --overwrite")
    return content.reshape(file.num_columns, file.num_rows)


def map_u64(path: Path) -> np.ndarray:
    """A file as uint64, mapped into memory."""
    content = find_storage(path).map(path)
    return np.frombuffer(content, np.uint64, len(content) // _U64_BYTES)


def write_u64(path: Path, parts: Iterable[np.ndarray], *, sync: bool = False) -> Path | None:
    """Write uint64 arrays one after another. Returns the path, or None if they are all empty: that can't be mapped."""
    num_values = 0
    with find_storage(path).create(path, sync=sync) as file:
        for values in parts:
            file.write(np.ascontiguousarray(values).data)
            num_values += len(values)
    return path if num_values else None


def find_changes(columns: np.ndarray) -> np.ndarray:
    """Which rows differ from the one before: bool. columns: [columns, rows].

    >>> find_changes(np.array([[3, 3, 4], [0, 0, 0]])).tolist()
    [True, False, True]
    """
    changes: np.ndarray = np.append(True, (columns[:, 1:] != columns[:, :-1]).any(axis=0))[: columns.shape[1]]
    return changes


def find_shared(values: np.ndarray) -> np.ndarray:
    """Which of some sorted values occur several times: bool."""
    is_tie = values[1:] == values[:-1]
    shared: np.ndarray = (np.append(is_tie, False) | np.append(False, is_tie))[: len(values)]
    return shared


def rank_inside(values: np.ndarray) -> np.ndarray:
    """The number of each of some sorted values among its equals, from 0 on: int64."""
    begins = np.flatnonzero(find_changes(values[None]))
    return np.arange(len(values)) - np.repeat(begins, np.diff(begins, append=len(values)))


def find_keys(keys: np.ndarray, among: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which keys are among others (bool), and where (int64). among: ascending, at least one."""
    at = np.minimum(np.searchsorted(among, keys), len(among) - 1)
    return among[at] == keys, at


def merge_columns(
    folder: Path,
    files: Sequence[SortedFile],
    rows_at_once: int = ROWS_AT_ONCE,
    thin_out: Callable[[np.ndarray], np.ndarray] | None = None,
    *,
    numbered: bool = True,
    ties: bool = True,
) -> Iterator[np.ndarray]:
    """The rows of all files, sorted, a range of the first column after another: uint64 [columns, rows].

    A range has about `rows_at_once` rows, or more where the first column is equal in more: these are never divided.
    With very many files a range has more rows, so that not all of the time goes into opening them.

    numbered: a last column has the number of each row in all files, one after another; ties: see `sort_columns`
    thin_out: takes sorted rows of some of the files, and leaves out those that can't matter whatever the others hold.
    It is called where a range has over twice as many rows, and again when what is left has doubled.
    """
    rows_at_once = max(rows_at_once, _ROWS_OF_FILE * len(files))
    bounds = _choose_bounds(folder, files, rows_at_once)
    cuts = [
        np.concatenate(([0], np.searchsorted(map_columns(folder, file)[0], bounds), [file.num_rows])) for file in files
    ]
    offsets = np.cumsum([0, *(file.num_rows for file in files)], dtype=np.uint64)
    for number in range(len(bounds) + 1):
        parts, num_rows, most_rows = list[np.ndarray](), 0, 2 * rows_at_once
        for offset, file, cut in zip(offsets, files, cuts, strict=False):
            begin, end = cut[number : number + 2]
            if end > begin:
                part = map_columns(folder, file)[:, begin:end]
                numbers = offset + np.arange(begin, end, dtype=np.uint64)
                parts.append(np.concatenate([part, numbers[None]]) if numbered else part)
                num_rows += part.shape[1]
            if thin_out is not None and num_rows > most_rows:
                parts = [thin_out(sort_columns(np.concatenate(parts, axis=1), ties=ties))]
                num_rows = parts[0].shape[1]
                most_rows = 2 * max(rows_at_once, num_rows)
        if parts:
            yield sort_columns(np.concatenate(parts, axis=1), ties=ties)


def _choose_bounds(folder: Path, files: Sequence[SortedFile], rows_at_once: int) -> np.ndarray:
    """Values of the first column between which about `rows_at_once` rows lie: uint64, ascending."""
    num_ranges = sum(file.num_rows for file in files) // rows_at_once
    if num_ranges < 2:
        return np.zeros(0, np.uint64)
    step, skipped, samples = max(1, rows_at_once // _SAMPLES), 0, []
    for file in files:  # every `step`-th row of all files one after another
        samples.append(map_columns(folder, file)[0, skipped::step])
        skipped = (skipped - file.num_rows) % step
    found = np.sort(np.concatenate(samples))
    return np.unique(found[:: max(1, len(found) // num_ranges)][1:])
