"""Sorted runs: the intermediate files between map and reduce.

A sorted run holds the rows of train, then those of validation, each by shuffle key. The file is uint64 throughout:

    head       of each split: the number of its index entries, and the number of u64 of its records
    coarse     of each split: every 64th entry of the index
    index      of each split: the shuffle key and the position of every 16th row, as pairs
    records    of each split (see row_buffer.py); positions count from the first record, in u64

So the rows in a range of keys lie together. Reduce reads them in one go, with up to 15 others before and after. That
takes two reads, one of the index and one of the records. To open a run takes one, of head and coarse index. The latter
alone is enough for large ranges (`fetch_range`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from albert_data.data import Examples
from albert_data.errors import OutputError
from albert_data.pipeline.row_buffer import (
    Dropped,
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

_U64_BYTES = 8
_WRITE_U64 = (1 << 20) // _U64_BYTES  # written at once; on Linux 6.18 writes of 5 MB or more take twice as long
_STEP = 16  # rows from one index entry to the next
_SPARSE_STEP = 64  # index entries from one key that stays in memory to the next
_FILE_HEAD_U64 = 2 * len(SPLITS)
_RUNS_AT_ONCE = 64  # whose ranges lie in memory together, so that a store is asked for several at a time
_OPENING_U64 = 8192  # read at once when a run is opened: the coarse index of four million rows


@dataclass(frozen=True, kw_only=True)
class KeyedRows:
    """Rows with their sort keys.

    source_codes: uint32, see `Lines`; 0 where the build has one language
    groups: uint64, what decides each row's split; None in a sorted run, which has the splits apart
    """

    examples: Examples
    keys: RowKeys
    source_codes: np.ndarray
    groups: np.ndarray | None = None


class Section(NamedTuple):
    """The index of one split: uint64 [N, 2], keys and positions. num_u64: of its records."""

    entries: np.ndarray
    num_u64: int


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
    is_copy = np.zeros(len(order), bool) if keep_copies else find_copies(records, starts[order], keys.find_ties(order))
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
    entries = rows[::_STEP]
    return Section(np.stack([shuffle_keys[entries], starts[entries].astype(np.uint64)], axis=1), num_u64[rows].sum())


def make_head(sections: Sequence[Section]) -> np.ndarray:
    """What comes before the records: uint64."""
    sizes = [size for section in sections for size in (len(section.entries), section.num_u64)]
    coarse = [section.entries[::_SPARSE_STEP].ravel() for section in sections]
    return np.concatenate((np.array(sizes, np.uint64), *coarse, *(section.entries.ravel() for section in sections)))


def write_sorted_run(path: Path, run: SortedRunData) -> None:
    with find_storage(path).create(path, sync=False) as file:
        file.write(make_head(run.sections).data)
        write_u64(file, run.records)


def write_u64(file: BinaryIO, records: np.ndarray) -> None:
    for begin in range(0, len(records), _WRITE_U64):
        file.write(records[begin : begin + _WRITE_U64].data)


class RowRange(NamedTuple):
    """Consecutive records of a sorted run, from one u64 to another. max_rows: a bound on their number."""

    begin: int
    end: int
    max_rows: int


class _Index(NamedTuple):
    """The index of one split. at: its first u64 in the file; sparse_keys, sparse_positions: of the coarse index.

    records_end: where the split's records end.
    """

    at: int
    num_entries: int
    sparse_keys: np.ndarray
    sparse_positions: np.ndarray
    records_end: int


class SortedRun:
    """A sorted run on the disk. Every shard asks for a range, so the keys of its head stay in memory."""

    def __init__(self, path: Path, *, checks_size: bool = True) -> None:
        """Raises OutputError where the file is truncated. checks_size: False leaves that to later reads."""
        self.path, self.storage = path, find_storage(path)
        opening = np.empty(_OPENING_U64, np.uint64)
        num_read = self.storage.read_into(path, 0, opening.data.cast("B")) // _U64_BYTES
        if num_read < _FILE_HEAD_U64:
            raise self._truncated()
        head = opening[:_FILE_HEAD_U64].tolist()
        num_coarse = [-(-num_entries // _SPARSE_STEP) for num_entries in head[::2]]
        at = _FILE_HEAD_U64 + 2 * sum(num_coarse)
        self._records_at, self._num_u64 = at + 2 * sum(head[::2]), sum(head[1::2])
        if checks_size and self.storage.status(path).num_bytes != self.num_bytes:
            raise self._truncated()
        coarse = opening[_FILE_HEAD_U64:at].copy()
        if at > num_read:
            coarse = self._read(_FILE_HEAD_U64, np.empty(2 * sum(num_coarse), np.uint64))
        keys, positions = np.ascontiguousarray(coarse.reshape(-1, 2).T)
        self._indices: dict[str, _Index] = {}
        begin = records_end = 0
        for split, num_entries, num_u64, count in zip(SPLITS, head[::2], head[1::2], num_coarse, strict=True):
            records_end, end = records_end + num_u64, begin + count
            self._indices[split] = _Index(at, num_entries, keys[begin:end], positions[begin:end], records_end)
            at, begin = at + 2 * num_entries, end

    @property
    def num_bytes(self) -> int:
        """The size of the file, as its head has it."""
        return int(self._records_at + self._num_u64) * _U64_BYTES

    def find(self, split: str, low: int, high: int) -> RowRange:
        """A range of records that holds all rows with shuffle keys in [low, high]."""
        index = self._indices[split]
        # The part of the index to read: from the last sparse key below `low` to the first one above `high`.
        begin = max(0, int(index.sparse_keys.searchsorted(np.uint64(low))) - 1) * _SPARSE_STEP
        end = min(int(index.sparse_keys.searchsorted(np.uint64(high), side="right")) * _SPARSE_STEP, index.num_entries)
        # One more entry: the range ends where that begins, or with the split's records if there is none.
        num_pairs = min(end + 1, index.num_entries) - begin
        keys, positions = self._read(index.at + 2 * begin, np.empty(2 * num_pairs, np.uint64)).reshape(-1, 2).T
        keys = keys[: end - begin]
        # An entry gives the key of the first of its 16 rows. The last entry below `low` may have a row at `low` too.
        first = max(0, int(keys.searchsorted(np.uint64(low))) - 1)
        last = int(keys.searchsorted(np.uint64(high), side="right"))
        bounds = [int(positions[at]) if at < num_pairs else index.records_end for at in (first, last)]
        return RowRange(bounds[0], bounds[1], (last - first) * _STEP)

    def find_coarsely(self, split: str, low: int, high: int) -> RowRange:
        """The same without a read, with up to 1,023 rows before and after those that are wanted."""
        index = self._indices[split]
        first = max(0, int(index.sparse_keys.searchsorted(np.uint64(low))) - 1)
        last = int(index.sparse_keys.searchsorted(np.uint64(high), side="right"))
        positions = [*index.sparse_positions.tolist(), index.records_end]
        return RowRange(positions[first], positions[last], (last - first) * _SPARSE_STEP * _STEP)

    def read_into(self, out: np.ndarray, begin: int) -> None:
        """Fill `out` (uint64) with the records from u64 `begin` on. Raises OutputError where the file is truncated."""
        self._read(self._records_at + begin, out)

    def _read(self, begin: int, out: np.ndarray) -> np.ndarray:
        if len(out) and self.storage.read_into(self.path, begin * _U64_BYTES, out.data.cast("B")) < out.nbytes:
            raise self._truncated()
        return out

    def _truncated(self) -> OutputError:
        return OutputError(f"{self.path} is cut short; start again with --overwrite")


def read_range(
    runs: Sequence[SortedRun],
    split: str,
    low: int,
    high: int,
    scratch: RowScratch,
    ranges: Sequence[RowRange] | None = None,
) -> tuple[RowBuffer, FoundRows]:
    """Read the rows with shuffle keys in [low, high] of one sorted run after another.

    ranges: what `SortedRun.find` gives for each run, if it was asked before.
    On a disk only one is open at a time: a large corpus has more of them than a process may have open files.
    """
    storage = runs[0].storage
    ranges = list(storage.at_once(lambda run: run.find(split, low, high), runs)) if ranges is None else ranges
    records = scratch.reserve(sum(part.end - part.begin for part in ranges))
    found = FoundRows.empty(sum(part.max_rows for part in ranges))
    begin = count = 0
    for number in range(0, len(runs), _RUNS_AT_ONCE):
        some = slice(number, number + _RUNS_AT_ONCE)
        for run, at, end in _read_in_turn(runs[some], ranges[some], records.u64, begin):
            first = count
            try:
                count, last = find_rows(records, at, end, np.uint64(low), np.uint64(high), found, count)
            except ValueError as error:
                raise OutputError(f"{run.path} is damaged ({error}); start again with --overwrite") from error
            # The range also holds up to 15 records before and after those that are wanted. Large corpora have many
            # runs, so these would add up. So the wanted records move to `begin`, behind those of the run before.
            if count > first:
                surplus = int(found.starts[first]) - begin
                records.u64[begin : last - surplus] = records.u64[begin + surplus : last]
                found.starts[first:count] -= surplus
                begin = last - surplus
    return records, found.take(slice(count))


def _read_in_turn(
    runs: Sequence[SortedRun], ranges: Sequence[RowRange], u64: np.ndarray, at: int
) -> Iterator[tuple[SortedRun, int, int]]:
    """Read a range of each run into `u64`, one behind another from `at` on. Yields each run and its range's bounds."""
    places = np.cumsum([at, *(part.end - part.begin for part in ranges)]).tolist()

    def read(i: int) -> None:
        runs[i].read_into(u64[places[i] : places[i + 1]], ranges[i].begin)

    for i, _ in enumerate(runs[0].storage.at_once(read, range(len(runs)))):
        yield runs[i], places[i], places[i + 1]


# ---- merge sorted runs into fewer ones, so that a cluster reads fewer ranges of fewer files ----
#
# Reduce reads one range of every sorted run for every shard: runs x shards reads, too many for a large corpus. So on a
# cluster a map task merges its sorted runs into one. If there are still too many reads, several shards are one task: it
# fetches their range of keys from every run once, in batches that become sorted runs on the disk of its machine, and
# reads these instead. Rows are sorted in memory, a range of keys at a time, so memory is bounded.

MERGE_BYTES = 32 << 20  # of records sorted at once; about four times as much memory is used
_COPY_BYTES = 1 << 20
_KEYS = 2**64


def merge_runs(paths: Sequence[Path], path: Path, scratch: RowScratch, folder: Path, *, keep_copies: bool) -> Dropped:
    """Merge sorted runs into one. Returns the copies that were dropped, as `sort_rows` drops them.

    folder: where the records are written before the index of all of them is known.
    """
    runs = list(find_storage(folder).at_once(SortedRun, paths))
    num_ranges = -(-sum(run.num_bytes for run in runs) // MERGE_BYTES)
    bounds = [number * _KEYS // num_ranges for number in range(num_ranges + 1)]
    sections, dropped, end = list[Section](), Dropped(), 0
    storage, records_path = find_storage(folder), folder / "records"
    with storage.create(records_path, sync=False) as file:
        for split in SPLITS:
            indices, begin = [np.empty((0, 2), np.uint64)], end
            for low, high in zip(bounds[:-1], bounds[1:], strict=True):
                found = read_range(runs, split, low, high - 1, scratch)
                part = _sort_again(*found, split, scratch, keep_copies=keep_copies)
                index = part.sections[SPLITS.index(split)].entries
                index[:, 1] += np.uint64(end)
                indices.append(index)
                write_u64(file, part.records)
                end += len(part.records)
                dropped = dropped.add(part.dropped)
            sections.append(Section(np.concatenate(indices), end - begin))
    with find_storage(path).create(path, sync=False) as target, storage.open(records_path) as source:
        target.write(make_head(sections).data)
        while chunk := source.read(_COPY_BYTES):
            target.write(chunk)
    return dropped


def fetch_range(
    sections: Sequence[tuple[Path, str]], split: str, low: int, high: int, scratch: RowScratch, folder: Path
) -> list[Path]:
    """Copy the rows with shuffle keys in [low, high] into sorted runs in `folder`, and return their paths.

    sections: the runs, and the split under which each holds the rows; the copies hold them under `split`. Each is read
    by two reads: head and records.
    """
    fetched, runs, ranges, num_u64 = list[Path](), list[SortedRun](), list[RowRange](), 0

    def write() -> None:
        found = read_range(runs, split, low, high, scratch, ranges)
        fetched.append(folder / f"{len(fetched)}.run")
        write_sorted_run(fetched[-1], _sort_again(*found, split, scratch, keep_copies=True))

    paths, held_under = zip(*sections, strict=True)
    opened = find_storage(paths[0]).at_once(partial(SortedRun, checks_size=False), paths)
    for run, section in zip(opened, held_under, strict=True):
        runs.append(run)
        ranges.append(run.find_coarsely(section, low, high))
        num_u64 += ranges[-1].end - ranges[-1].begin
        if num_u64 * 8 >= MERGE_BYTES:
            write()
            runs, ranges, num_u64 = [], [], 0
    if runs:
        write()
    return fetched


def _sort_again(
    records: RowBuffer, found: FoundRows, split: str, scratch: RowScratch, *, keep_copies: bool
) -> SortedRunData:
    """Sort rows that lie in several runs. scratch: may be that of `records`, since rows are copied out of it first."""
    columns = take_rows(records, found.starts)._asdict()
    source_codes = columns.pop("source_codes")
    rows = KeyedRows(examples=Examples(**columns, sources=None), keys=found.keys, source_codes=source_codes)
    is_validation = np.full(len(found.starts), split != SPLITS[0])
    return sort_rows([rows], found.keys, is_validation, scratch, keep_copies=keep_copies)
