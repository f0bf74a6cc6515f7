"""Merge sorted runs into fewer ones, so that a cluster reads fewer ranges of fewer files.

Reduce reads one range of every sorted run for every shard: runs x shards reads, too many for a large corpus. So on a
cluster a map task merges its sorted runs into one. If there are still too many reads, several shards are one task: it
fetches their range of keys from every run once, in batches that become sorted runs on the disk of its machine, and
reads these instead. Rows are sorted in memory, a range of keys at a time, so memory is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from albert_data.data import Examples
from albert_data.pipeline.records import Dropped, FoundRows, RowBuffer, RowScratch, take_rows
from albert_data.pipeline.sorted_runs import (
    KeyedRows,
    RowRange,
    Section,
    SortedRun,
    SortedRunData,
    make_head,
    read_range,
    sort_rows,
    write_sorted_run,
    write_u64,
)
from albert_data.shards.manifest import SPLITS
from albert_data.storage import find_storage

MERGE_BYTES = 32 << 20  # of records sorted at once; about four times as much memory is used
_COPY_BYTES = 1 << 20
_KEYS = 2**64


def merge_runs(
    paths: Sequence[Path], path: Path, scratch: RowScratch, folder: Path, *, keep_copies: bool
) -> Dropped:
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
