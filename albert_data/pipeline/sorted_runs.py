"""Runs: the sorted intermediate files between map and reduce.

A run holds the rows of train, then those of validation, each sorted by shuffle key. In the file: the head, four words
of 8 bytes; an index of each split, key and place of every 16th row; and the records (see records.py). So the rows of
a range of keys lie together: the next stage reads them at once, with up to 15 others before and behind.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from albert_data.errors import OutputError
from albert_data.examples.ragged import Examples
from albert_data.files import replace_file
from albert_data.pipeline.records import (
    Dropped,
    Records,
    Room,
    RowKeys,
    count_dropped,
    find_copies,
    find_records,
    measure_records,
    put_examples,
)
from albert_data.shards.manifest import SPLITS

_WORD_BYTES = 8
_PIECE_WORDS = (1 << 20) // _WORD_BYTES  # written at once; Linux 6.18 takes twice as long over 5 MB or more at once
_STEP = 16  # rows from one entry of the index to the next
_SPARSE_STEP = 64  # entries from one key that stays in memory to the next
_HEAD_WORDS = 2 * len(SPLITS)  # of each split the entries of its index, and the words of its records


@dataclass(frozen=True, kw_only=True)
class KeyedRows:
    """Rows and their place in the order of all. languages: uint32, packed codes; 0 where the build has one language."""

    examples: Examples
    keys: RowKeys
    languages: np.ndarray


class SortedRunData(NamedTuple):
    """What a run's file holds, both uint64: the head with the index, and the records; and what was left out of it."""

    head: np.ndarray
    records: np.ndarray
    dropped: Dropped


def join_keys(parts: Sequence[KeyedRows]) -> RowKeys:
    """The keys of all rows of one or more parts, one part after another."""
    return RowKeys(*map(np.concatenate, zip(*(part.keys for part in parts), strict=True)))


def sort_rows(
    parts: Sequence[KeyedRows], keys: RowKeys, is_validation: np.ndarray, room: Room, *, keep_copies: bool = True
) -> SortedRunData:
    """Put the rows of all parts in order, as records in `room`.

    keys: of all parts, joined; is_validation: of each row. keep_copies: or a row is dropped that is equal to the one
    before it, so that a document of a million copies is never merged at once; merging finds the other copies.
    """
    order = keys.order()
    splits = (order[~is_validation[order]], order[is_validation[order]])
    order = np.concatenate(splits)
    num_words = np.concatenate([measure_records(part.examples) for part in parts])
    places = np.empty_like(num_words)
    places[order] = np.cumsum(num_words[order]) - num_words[order]
    records = room.give(int(num_words.sum()))
    begin = 0
    for part in parts:
        end = begin + len(part.examples)
        put_examples(records, places[begin:end], part.examples, part.keys, part.languages)
        begin = end
    words, dropped = records.words[: num_words.sum()], Dropped()
    is_copy = np.zeros(len(order), bool) if keep_copies else find_copies(records, places[order], keys.find_ties(order))
    if is_copy.any():
        dropped = count_dropped(records, places[order[is_copy]])
        words = words[np.repeat(~is_copy, num_words[order])]
        is_gone = np.zeros(len(order), bool)
        is_gone[order[is_copy]] = True
        splits = tuple(rows[~is_gone[rows]] for rows in splits)
        order = np.concatenate(splits)
        places[order] = np.cumsum(num_words[order]) - num_words[order]
    entries = [rows[::_STEP] for rows in splits]
    sizes = [size for rows, some in zip(splits, entries, strict=True) for size in (len(some), num_words[rows].sum())]
    index = [column[some] for some in entries for column in (keys.shuffle_keys, places.astype(np.uint64))]
    return SortedRunData(np.concatenate((np.array(sizes, np.uint64), *index)), words, dropped)


def write_sorted_run(path: Path, rows: SortedRunData) -> None:
    with replace_file(path, sync=False) as file:
        file.write(rows.head.data)
        for begin in range(0, len(rows.records), _PIECE_WORDS):
            file.write(rows.records[begin : begin + _PIECE_WORDS].data)


class RecordRange(NamedTuple):
    """Some records of a run, from one word to another; num_rows: at most so many."""

    begin: int
    end: int
    num_rows: int


class _Index(NamedTuple):
    """Of one split: where its index begins in the file, how many entries it has, every _SPARSE_STEP-th key of them, and
    where the split's records end.
    """

    word: int
    entries: int
    some_keys: np.ndarray
    end: int


class SortedRun:
    """A run on the disk. A part of its index is kept, for it is asked for as many ranges as shards."""

    def __init__(self, path: Path) -> None:
        """Raises OutputError where the file is cut."""
        self.path = path
        head = self._read(0, np.empty(_HEAD_WORDS, np.uint64)).tolist()
        self._records_at = _HEAD_WORDS + 2 * sum(head[::2])
        if path.stat().st_size != (self._records_at + sum(head[1::2])) * _WORD_BYTES:
            raise self._cut_short()
        self._indices: dict[str, _Index] = {}
        word, end = _HEAD_WORDS, 0
        for split, entries, num_words in zip(SPLITS, head[::2], head[1::2], strict=True):
            end += num_words
            some_keys = self._read(word, np.empty(entries, np.uint64))[::_SPARSE_STEP].copy()
            self._indices[split] = _Index(word, entries, some_keys, end)
            word += 2 * entries

    def find(self, split: str, low: int, high: int) -> RecordRange:
        """Where all rows are whose shuffle keys are low .. high."""
        word, entries, some_keys, end = self._indices[split]
        begin = max(0, int(some_keys.searchsorted(np.uint64(low))) - 1) * _SPARSE_STEP
        stop = min(int(some_keys.searchsorted(np.uint64(high), side="right")) * _SPARSE_STEP, entries)
        keys = self._read(word + begin, np.empty(stop - begin, np.uint64))
        first = max(0, int(keys.searchsorted(np.uint64(low))) - 1)
        last = int(keys.searchsorted(np.uint64(high), side="right"))
        num_places = min(begin + last + 1, entries) - begin - first
        places = self._read(word + entries + begin + first, np.empty(num_places, np.uint64)).tolist()
        places.append(end)
        return RecordRange(places[0], places[last - first], (last - first) * _STEP)

    def read_into(self, out: np.ndarray, place: int) -> None:
        """Fill `out` (uint64) with the records from word `place` on. Raises OutputError where the file is cut."""
        self._read(self._records_at + place, out)

    def _read(self, word: int, out: np.ndarray) -> np.ndarray:
        rest, at = out.data.cast("B") if len(out) else memoryview(b""), word * _WORD_BYTES
        file = os.open(self.path, os.O_RDONLY)
        try:
            while rest:
                count = os.preadv(file, [rest], at)
                if not count:
                    raise self._cut_short()
                rest, at = rest[count:], at + count
        finally:
            os.close(file)
        return out

    def _cut_short(self) -> OutputError:
        return OutputError(f"{self.path} is cut short; begin anew with --overwrite")


def read_range(
    runs: Sequence[SortedRun], split: str, low: int, high: int, room: Room
) -> tuple[Records, np.ndarray, RowKeys]:
    """Read the rows of all runs whose shuffle keys are low .. high: records, their places, and their keys.

    One run is open at a time, for a large corpus has more of them than a process may have files.
    """
    ranges = [run.find(split, low, high) for run in runs]
    records = room.give(sum(part.end - part.begin for part in ranges))
    num_rows = sum(part.num_rows for part in ranges)
    places, keys = np.empty(num_rows, np.int64), RowKeys.empty(num_rows)
    begin = count = 0
    for run, part in zip(runs, ranges, strict=True):
        end = begin + part.end - part.begin
        run.read_into(records.words[begin:end], part.begin)
        first = count
        try:
            count, end = find_records(records, begin, end, np.uint64(low), np.uint64(high), places, keys, count)
        except ValueError as error:
            raise OutputError(f"{run.path} is damaged ({error}); begin anew with --overwrite") from error
        if count > first:  # the next run's go over those read in vain, of which a large corpus has many
            surplus = int(places[first]) - begin
            records.words[begin : end - surplus] = records.words[begin + surplus : end]
            places[first:count] -= surplus
            begin = end - surplus
    return records, places[:count], RowKeys(*(column[:count] for column in keys))
