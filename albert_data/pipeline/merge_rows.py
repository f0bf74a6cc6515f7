"""Merge: read the rows in one range of shuffle keys from all sorted runs, sort them, and write them as a shard.

Shard s of N holds the rows with keys from s * 2**64 / N to below (s + 1) * 2**64 / N. So the shuffle is global, and its
order depends on the keys alone. A shard consists of slices of about 8 MiB. Each becomes a record batch; a few are read
at once. Copies of a row have equal keys, so they follow one another. Unless `keep_duplicates` is set, map drops those
within a sorted run, and those in different runs are dropped here. Rows whose segment B is to be of another document get
it here too, from a row of their slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from albert_data.config import BuildConfig
from albert_data.data import Examples
from albert_data.jobs.receipts import read_receipt, write_receipt
from albert_data.jobs.stages import Stages
from albert_data.pipeline import shard_plan
from albert_data.pipeline.exchanging import Exchange
from albert_data.pipeline.row_buffer import (
    FoundRows,
    RowBuffer,
    RowScratch,
    count_dropped,
    order_rows,
    read_sources,
    take_examples,
)
from albert_data.pipeline.shard_plan import KEYS, ShardTask
from albert_data.pipeline.shuffle import ShardGroup
from albert_data.pipeline.sorted_runs import Held, fetch_range, read_range
from albert_data.shards.rows import join_rows
from albert_data.shards.schema import ShardReceipt, shard_schema, write_shard
from albert_data.storage import find_storage
from albert_data.storage.scratch import machine_scratch
from albert_data.survey.decisions import Decisions
from albert_data.survey.exceptions import COPY, LEFT_OUT, Exceptions
from albert_data.survey.made import Dropped

# Read at once: 48 MiB, the largest shard below 2 TB by default (1.5 x SHARD_BYTES). More would need more memory than
# map does.
_SLICES_READ = 6


@dataclass(frozen=True, kw_only=True)
class MadeShard:
    """What was made of a task.

    shard: its entry in the manifest
    dropped: the copies that it lacks
    left_out: what training leaves out of it
    source_tokens: of the rows of each source; empty where the rows have no source
    """

    task: ShardTask
    shard: ShardReceipt
    dropped: Dropped
    left_out: Dropped
    source_tokens: tuple[int, ...] = ()


def read_made_shard(folder: Path, task: ShardTask) -> MadeShard | None:
    """The receipt of a finished shard; None where the shard is not finished. folder: that of the shards."""
    return read_receipt(folder / "receipts" / task.receipt_name, MadeShard)


class MergeRows:
    """Writes the shards of a group into `folder`, each followed by its receipt.

    held: where the rows of each split lie. runs: the folder of the decisions' files. exchange: None for tasks without
    random segments.
    syncs: whether a receipt waits until its shard is safe from a crash of this machine. Otherwise the parent, on the
    same machine, syncs shards while workers make the next ones.
    """

    name = "merge"

    def __init__(
        self,
        config: BuildConfig,
        id_dtype: type,
        decisions: Decisions,
        held: Mapping[str, Sequence[Held]],
        runs: Path,
        folder: Path,
        exchange: Exchange | None = None,
        *,
        syncs: bool = False,
    ) -> None:
        self._config, self._decisions, self._held, self._runs = config, decisions, held, runs
        self._folder, self._exchange, self._syncs = folder, exchange, syncs
        has_source, has_key_b = bool(decisions.source_codes), exchange is not None
        self._schema = shard_schema(id_dtype, has_source=has_source, has_key_b=has_key_b)
        self._scratch = RowScratch(id_dtype)

    def __call__(self, group: ShardGroup) -> tuple[list[MadeShard], Stages]:
        """Returns the receipts, and how long merging and writing took."""
        stages, held = Stages(), self._held[group.split]
        with machine_scratch() if group.window_keys else nullcontext() as folder:
            find = partial(_find_held, held) if folder is None else _Window(held, group, self._scratch, folder)
            return [self._write(task, find, stages) for task in group.tasks], stages

    def _write(self, task: ShardTask, find: FindHeld, stages: Stages) -> MadeShard:
        """Adds to `stages` how long merging and writing took."""
        path, spent = self._folder / task.made_file, Stages()
        merge = _Merge(find, self._scratch, self._config, self._decisions, self._runs, task.split)
        num_tokens = np.zeros(len(self._decisions.source_codes), np.int64)
        with spent.time("write shards"):
            slices = spent.time_each("merge runs", self._finish(_read_slices(task, merge), num_tokens))
            shard = write_shard(path, slices, self._schema, self._config.compression)
            receipt = MadeShard(
                task=task,
                shard=shard,
                dropped=merge.dropped,
                left_out=merge.left_out,
                source_tokens=tuple(num_tokens.tolist()),
            )
            if self._syncs:
                find_storage(path).sync(path)
            write_receipt(self._folder / "receipts" / task.receipt_name, receipt, sync=self._syncs)
        spent["write shards"] -= spent["merge runs"]  # the writer drives the merge, so its time includes that
        stages.add(spent)
        return receipt

    def _finish(self, slices: Iterator[Slice], num_tokens: np.ndarray) -> Iterator[Examples]:
        """num_tokens: of each source, int64; those of the slices are added."""
        for rows, shuffle_keys in slices:
            rows = rows if self._exchange is None else self._exchange(rows, shuffle_keys)
            if rows.sources is not None:
                np.add.at(num_tokens, rows.sources, np.diff(rows.offsets))
            yield rows


FindHeld = Callable[[int, int], Sequence[Held]]  # what holds the rows with shuffle keys in [low, high]


def _find_held(held: Sequence[Held], low: int, high: int) -> list[Held]:
    return [one for one in held if one.low <= high and low <= one.high]


class _Window:
    """Copies the rows of a group to a disk of this machine, a window of keys after another, and finds them there.

    So each run is read once for a window, and not once for each 48 MiB. Ranges are asked for in ascending order.
    """

    def __init__(self, held: Sequence[Held], group: ShardGroup, scratch: RowScratch, folder: Path) -> None:
        self._held, self._group, self._scratch, self._folder = held, group, scratch, folder
        self._end = group.key_range[0]
        self._copies: list[Held] = []

    def __call__(self, low: int, high: int) -> list[Held]:
        for one in self._copies:
            if one.high < low:
                find_storage(one.path).remove(one.path)
        self._copies = _find_held(self._copies, low, KEYS)
        while self._end <= high:
            begin, split = self._end, self._group.split
            self._end = min(begin + self._group.window_keys, self._group.key_range[1] + 1)
            held, keys = _find_held(self._held, begin, self._end - 1), (begin, self._end - 1)
            paths = fetch_range(held, split, keys, self._scratch, self._folder)
            self._copies += [Held(path, split, *keys) for path in paths]
        return _find_held(self._copies, low, high)


class Slice(NamedTuple):
    """Sorted rows and their shuffle keys (uint64)."""

    rows: Examples
    shuffle_keys: np.ndarray


def _read_slices(task: ShardTask, merge: _Merge) -> Iterator[Slice]:
    """Yield the slices of a shard that have rows. At most about 48 MiB are read at once."""
    total = task.num_shards * task.num_slices
    first, end = task.shard * task.num_slices, (task.shard + 1) * task.num_slices
    slice_bytes, limit = max(task.slice_bytes, shard_plan.SLICE_BYTES), _SLICES_READ * shard_plan.SLICE_BYTES
    if slice_bytes <= limit:
        at_once = limit // slice_bytes
        for begin in range(first, end, at_once):
            yield from merge.read([i * KEYS // total for i in range(begin, min(begin + at_once, end) + 1)])
        return
    # With many copies even one slice is too large. It is read in parts, and what is left of them is joined.
    num_parts = -(-slice_bytes // limit)
    for i in range(first, end):
        low, high = i * KEYS // total, (i + 1) * KEYS // total
        bounds = [low + (high - low) * part // num_parts for part in range(num_parts + 1)]
        if parts := [part for pair in pairwise(bounds) for part in merge.read(list(pair))]:
            yield Slice(join_rows([part.rows for part in parts]), np.concatenate([part.shuffle_keys for part in parts]))


class _Merge:
    """The rows of one split, out of all sorted runs, without copies and exceptions, which are counted."""

    def __init__(
        self, find: FindHeld, scratch: RowScratch, config: BuildConfig, decisions: Decisions, runs: Path, split: str
    ) -> None:
        self._find, self._scratch, self._config, self._split = find, scratch, config, split
        self._move, self._limits = decisions.move, decisions.limits
        self._sources = np.array(decisions.source_codes, np.uint32) if decisions.source_codes else None
        self._exceptions = Exceptions(runs, decisions.exceptions, split) if decisions.exceptions else None
        self.dropped = self.left_out = Dropped()

    def read(self, bounds: list[int]) -> Iterator[Slice]:
        """Yield the sorted rows with shuffle keys in [bounds[0], bounds[1]), then [bounds[1], bounds[2]), and so on.

        Exhaust it before the next call: that overwrites the scratch buffer which this one reads from.
        """
        records, found = self._find_rows(bounds[0], bounds[-1] - 1)
        order, is_copy = order_rows(records, found)
        if is_copy.any() and not self._config.keep_duplicates:
            self.dropped = self.dropped.add(count_dropped(records, found.starts[order[is_copy]]))
            order = order[~is_copy]
        if self._exceptions is not None:  # after the copies: so each document is counted once
            order = self._drop_exceptions(records, found, order)
        keys, starts = found.keys.shuffle_keys[order], found.starts[order]
        inner = np.searchsorted(keys, np.array(bounds[1:-1], np.uint64)).tolist()
        for begin, end in pairwise([0, *inner, len(order)]):
            if end > begin:
                yield Slice(take_examples(records, starts[begin:end], self._sources), keys[begin:end])

    def _drop_exceptions(self, records: RowBuffer, found: FoundRows, order: np.ndarray) -> np.ndarray:
        assert self._exceptions is not None
        starts, keys = found.starts[order], found.keys.take(order)
        sources = np.zeros(len(order), np.int64) if self._limits is None else read_sources(records, starts)
        reasons = self._exceptions.find(keys.document_keys, sources, keys.forms)
        self.dropped = self.dropped.add(count_dropped(records, starts[reasons == COPY]))
        self.left_out = self.left_out.add(count_dropped(records, starts[reasons == LEFT_OUT]))
        stays: np.ndarray = order[reasons == 0]
        return stays

    def _find_rows(self, low: int, high: int) -> tuple[RowBuffer, FoundRows]:
        """The rows of this split with shuffle keys in [low, high]; of sources with limits, those of their passes."""
        records, found = read_range(self._find(low, high), low, high, self._scratch)
        if self._move is not None:
            found = found.take(self._move.find_rows(found.keys.document_keys, self._split))
        if self._limits is not None:
            sources, seed = read_sources(records, found.starts), self._config.examples.seed
            found = found.take(found.keys.passes < self._limits.count_passes(sources, seed, found.keys.document_keys))
        return records, found
