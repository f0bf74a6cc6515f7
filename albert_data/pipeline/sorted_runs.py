"""Sorted runs: the intermediate files between map and merge.

A sorted run holds the rows of train, then those of validation, each by shuffle key. The file is uint64 throughout:

    head       the step; then of each split: the number of its index entries, and the number of u64 of its records
    index      of each split: the shuffle key of every `step`-th row, then the positions of these rows
    records    of each split (see row_buffer.py); positions count from the first record, in u64

So the rows in a range of keys lie together, and two reads find them: one of head and index, which fill 64 KiB at most,
and one of the records. The latter may read up to `step` other rows before and after those that are wanted. The step
follows from the number of rows: it is 1 up to 4,091 rows, and 228 for the 930,000 of a task of 20 TB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from albert_data.data import Examples
from albert_data.errors import OutputError
from albert_data.pipeline.row_buffer import (
    FoundRows,
    RowBuffer,
    RowKeys,
    RowScratch,
    count_dropped,
    find_copies,
    find_rows,
    measure_rows_u64,
    put_examples,
    take_rows,
)
from albert_data.shards.manifest import SPLITS
from albert_data.storage import find_storage
from albert_data.survey.made import Dropped

_U64_BYTES = 8
_KEYS = 2**64
_WRITE_U64 = (1 << 20) // _U64_BYTES  # written at once; on Linux 6.18 writes of 5 MB or more take twice as long
_HEAD_U64 = 1 + 2 * len(SPLITS)
_OPENING_U64 = 8192  # of head and index, which one read gets
_MOST_ENTRIES = (_OPENING_U64 - _HEAD_U64) // 2 - len(SPLITS)  # an index may have one more, because it is rounded up
_RUNS_AT_ONCE = 64  # whose ranges lie in memory together, so that a store is asked for several at a time


@dataclass(frozen=True, kw_only=True)
class KeyedRows:
    """Rows with their sort keys.

    source_codes: uint32, see `DocumentColumns`; 0 where the build has one language
    groups: uint64, what decides each row's split; None in a sorted run, which has the splits apart
    """

    examples: Examples
    keys: RowKeys
    source_codes: np.ndarray
    groups: np.ndarray | None = None


class Section(NamedTuple):
    """Keys and positions of the rows of one split, or of every n-th: uint64 [2, N]. num_u64: of its records."""

    entries: np.ndarray
    num_u64: int


class Held(NamedTuple):
    """Where rows of a split lie: in a sorted run, under this split or another one, which they leave (see `Move`).

    All their shuffle keys are in [low, high].
    """

    path: Path
    split: str
    low: int = 0
    high: int = _KEYS - 1


class SortedRunData(NamedTuple):
    """The content of a sorted run: a section for each split, and records (uint64). dropped: copies left out."""

    sections: tuple[Section, ...]
    records: np.ndarray
    dropped: Dropped


def join_keys(parts: Sequence[KeyedRows]) -> RowKeys:
    """The keys of all rows, one part after another."""
    return RowKeys(*map(np.concatenate, zip(*(part.keys for part in parts), strict=True)))


def sort_rows(
    parts: Sequence[KeyedRows],
    keys: RowKeys,
    is_validation: np.ndarray,
    scratch: RowScratch,
    *,
    keep_copies: bool = True,
) -> SortedRunData:
    """Sort the rows of all parts, and write them as records into `scratch`.

    keys: of all parts, joined; is_validation: of each row.
    keep_copies: False drops each row that equals the one before it. Copies in other runs are dropped in the merge.
    Without dropping here, the merge would hold all copies of a row at once, since they have one shuffle key.
    """
    order = keys.order()
    splits = (order[~is_validation[order]], order[is_validation[order]])
    order = np.concatenate(splits)
    num_u64 = np.concatenate([measure_rows_u64(part.examples) for part in parts])
    starts = _place_rows(order, num_u64)
    records = scratch.reserve(int(num_u64.sum()))
    begin = 0
    for part in parts:
        end = begin + len(part.examples)
        put_examples(records, starts[begin:end], part.examples, part.keys, part.source_codes)
        begin = end
    content, dropped = records.u64[: num_u64.sum()], Dropped()
    is_tie = keys.find_ties(order)
    is_tie[len(splits[0]) : len(splits[0]) + 1] = False  # copies of a document of several groups may be in both splits
    is_copy = np.zeros(len(order), bool) if keep_copies else find_copies(records, starts[order], is_tie)
    if is_copy.any():
        dropped = count_dropped(records, starts[order[is_copy]])
        content = content[np.repeat(~is_copy, num_u64[order])]
        is_dropped = np.zeros(len(order), bool)
        is_dropped[order[is_copy]] = True
        splits = tuple(rows[~is_dropped[rows]] for rows in splits)
        starts = _place_rows(np.concatenate(splits), num_u64)
    sections = tuple(_make_section(rows, keys.shuffle_keys, starts, num_u64) for rows in splits)
    return SortedRunData(sections, content, dropped)


def _place_rows(order: np.ndarray, num_u64: np.ndarray) -> np.ndarray:
    """The u64 at which each row's record begins, if the rows are written one after another in this order: int64."""
    starts = np.zeros_like(num_u64)
    starts[order] = np.cumsum(num_u64[order]) - num_u64[order]
    return starts


def _make_section(rows: np.ndarray, shuffle_keys: np.ndarray, starts: np.ndarray, num_u64: np.ndarray) -> Section:
    """rows: the sorted row numbers of a split."""
    return Section(np.stack([shuffle_keys[rows], starts[rows].astype(np.uint64)]), num_u64[rows].sum())


def make_head(sections: Sequence[Section], step: int = 1) -> np.ndarray:
    """What comes before the records: uint64. step: rows from one entry of a section to the next, at most."""
    every = max(1, -(-sum(section.entries.shape[1] for section in sections) // _MOST_ENTRIES))
    indices = [section.entries[:, ::every] for section in sections]
    sizes = [(index.shape[1], section.num_u64) for index, section in zip(indices, sections, strict=True)]
    head = np.array([step * every, *(size for both in sizes for size in both)], np.uint64)
    return np.concatenate((head, *(index.ravel() for index in indices)))


def write_sorted_run(path: Path, run: SortedRunData) -> None:
    with find_storage(path).create(path, sync=False) as file:
        file.write(make_head(run.sections).data)
        write_u64(file, run.records)


def write_u64(file: BinaryIO, records: np.ndarray) -> None:
    for begin in range(0, len(records), _WRITE_U64):
        file.write(records[begin : begin + _WRITE_U64].data)


class RowRange(NamedTuple):
    """Consecutive records of a sorted run, from one u64 of the file to another. max_rows: a bound on their number."""

    path: Path
    begin: int
    end: int
    max_rows: int


def find_range(held: Held, low: int, high: int) -> RowRange:
    """The records of a sorted run that hold all rows of a split with shuffle keys in [low, high].

    Takes one read. Raises OutputError where the file is cut short in its head or index.
    """
    path, opening = held.path, np.empty(_OPENING_U64, np.uint64)
    num_u64 = find_storage(path).read_into(path, 0, opening.data.cast("B")) // _U64_BYTES
    step, *sizes = opening[:_HEAD_U64].tolist() if num_u64 >= _HEAD_U64 else [0]
    counts, lengths, number = sizes[::2], sizes[1::2], SPLITS.index(held.split)
    records_at = _HEAD_U64 + 2 * sum(counts)
    if step == 0 or records_at > num_u64:
        raise _cut_short(path)
    at, count = _HEAD_U64 + 2 * sum(counts[:number]), counts[number]
    keys, positions = opening[at : at + 2 * count].reshape(2, count)
    # An entry has the key of the first of its rows. The last entry below `low` may have a row at `low` too.
    first = max(0, int(keys.searchsorted(np.uint64(low))) - 1)
    last = int(keys.searchsorted(np.uint64(high), side="right"))
    bounds = [int(positions[i]) if i < count else sum(lengths[: number + 1]) for i in (first, last)]
    return RowRange(path, records_at + bounds[0], records_at + bounds[1], (last - first) * step)


def _cut_short(path: Path) -> OutputError:
    return OutputError(f"{path} is cut short; start again with --overwrite")


def read_range(held: Sequence[Held], low: int, high: int, scratch: RowScratch) -> tuple[RowBuffer, FoundRows]:
    """Read the rows with shuffle keys in [low, high] of one sorted run after another, by two reads of each.

    On a disk only one is open at a time: a large corpus has more of them than a process may have open files.
    """
    storage = find_storage(held[0].path)
    return _read_ranges(list(storage.at_once(lambda one: find_range(one, low, high), held)), low, high, scratch)


def _read_ranges(ranges: Sequence[RowRange], low: int, high: int, scratch: RowScratch) -> tuple[RowBuffer, FoundRows]:
    records = scratch.reserve(sum(part.end - part.begin for part in ranges))
    found = FoundRows.empty(sum(part.max_rows for part in ranges))
    begin = count = 0
    for number in range(0, len(ranges), _RUNS_AT_ONCE):
        for path, at, end in _read_in_turn(ranges[number : number + _RUNS_AT_ONCE], records.u64, begin):
            first = count
            try:
                count, last = find_rows(records, at, end, np.uint64(low), np.uint64(high), found, count)
            except ValueError as error:
                raise OutputError(f"{path} is damaged ({error}); start again with --overwrite") from error
            # The range also holds records before and after those that are wanted. Large corpora have many runs, so
            # these would add up. So the wanted records move to `begin`, behind those of the run before.
            if count > first:
                surplus = int(found.starts[first]) - begin
                records.u64[begin : last - surplus] = records.u64[begin + surplus : last]
                found.starts[first:count] -= surplus
                begin = last - surplus
    return records, found.take(slice(count))


def _read_in_turn(ranges: Sequence[RowRange], u64: np.ndarray, at: int) -> Iterator[tuple[Path, int, int]]:
    """Read some ranges into `u64`, one behind another from `at` on. Yields the run of each, and its bounds there."""
    places = np.cumsum([at, *(part.end - part.begin for part in ranges)]).tolist()
    storage = find_storage(ranges[0].path)

    def read(i: int) -> None:
        out = u64[places[i] : places[i + 1]].data.cast("B")
        if out and storage.read_into(ranges[i].path, ranges[i].begin * _U64_BYTES, out) < len(out):
            raise _cut_short(ranges[i].path)

    for i, _ in enumerate(storage.at_once(read, range(len(ranges)))):
        yield ranges[i].path, places[i], places[i + 1]


# ---- merge sorted runs into fewer ones, so that fewer ranges of fewer files are read (see shuffle.py) ----
#
# Rows are sorted in memory, a range of keys at a time, so memory is bounded. What does not fit lies on a disk of the
# machine.

MERGE_BYTES = 32 << 20  # of records sorted at once; about four times as much memory is used
_COPY_BYTES = 1 << 20


def join_runs(
    paths: Sequence[Path],
    path: Path,
    scratch: RowScratch,
    *,
    keep_copies: bool,
    keys: tuple[int, int] = (0, _KEYS - 1),
    sync: bool = False,
) -> Dropped:
    """Merge sorted runs into one. Returns the copies that were dropped, as `sort_rows` drops them.

    paths: on a disk of this machine. Beside the first, records are written until the index of all is known.
    keys: the least and the greatest shuffle key that they can have.
    """
    storage, records_path = find_storage(paths[0]), paths[0].parent / "records"
    num_ranges, num_keys = -(-sum(storage.status(run).num_bytes for run in paths) // MERGE_BYTES), keys[1] + 1 - keys[0]
    bounds = [keys[0] + number * num_keys // num_ranges for number in range(num_ranges + 1)]
    sections, dropped, end = list[Section](), Dropped(), 0
    with storage.create(records_path, sync=False) as file:
        for split in SPLITS:
            indices, begin = [np.empty((2, 0), np.uint64)], end
            for low, high in zip(bounds[:-1], bounds[1:], strict=True):
                found = read_range([Held(run, split) for run in paths], low, high - 1, scratch)
                part = _sort_again(*found, split, scratch, keep_copies=keep_copies)
                # Fewer entries of each range are enough, since those of all make one index.
                index = part.sections[SPLITS.index(split)].entries[:, ::num_ranges].copy()
                index[1] += np.uint64(end)
                indices.append(index)
                write_u64(file, part.records)
                end += len(part.records)
                dropped = dropped.add(part.dropped)
            sections.append(Section(np.concatenate(indices, axis=1), end - begin))
    with find_storage(path).create(path, sync=sync) as target, storage.open(records_path) as source:
        target.write(make_head(sections, num_ranges).data)
        while chunk := source.read(_COPY_BYTES):
            target.write(chunk)
    return dropped


def fetch_range(
    held: Sequence[Held], split: str, keys: tuple[int, int], scratch: RowScratch, folder: Path
) -> list[Path]:
    """Copy the rows with shuffle keys from the first to the second of `keys` into sorted runs. Returns their paths.

    They lie in `folder`, and hold the rows under `split`. Each of `held` is read by two reads, as in `read_range`, but
    at most MERGE_BYTES lie in memory.
    """
    fetched, ranges, num_u64 = list[Path](), list[RowRange](), 0
    low, high = keys

    def write() -> None:
        found = _read_ranges(ranges, low, high, scratch)
        fetched.append(folder / f"{low:016x}-{len(fetched)}.run")
        write_sorted_run(fetched[-1], _sort_again(*found, split, scratch, keep_copies=True))

    for part in find_storage(held[0].path).at_once(lambda one: find_range(one, low, high), held):
        ranges.append(part)
        num_u64 += part.end - part.begin
        if num_u64 * _U64_BYTES >= MERGE_BYTES:
            write()
            ranges, num_u64 = [], 0
    if ranges:
        write()
    return fetched


def _sort_again(
    records: RowBuffer, found: FoundRows, split: str, scratch: RowScratch, *, keep_copies: bool
) -> SortedRunData:
    """Sort rows that lie in several runs. scratch: may be that of `records`, since rows are copied out of it first."""
    columns = take_rows(records, found.starts)
    examples = Examples(**{**columns._asdict(), "sources": None})
    rows = KeyedRows(examples=examples, keys=found.keys, source_codes=columns.sources)
    is_validation = np.full(len(found.starts), split != SPLITS[0])
    return sort_rows([rows], found.keys, is_validation, scratch, keep_copies=keep_copies)
