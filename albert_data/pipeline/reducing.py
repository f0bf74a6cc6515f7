"""Reduce: from every run the rows of one range of shuffle keys, in order, into a shard.

Shard s of N takes the keys in [s / N, (s + 1) / N) of all 64-bit numbers: a global shuffle whose order
depends on the keys alone. A shard is made of slices of about 8 MiB, each a record batch; a few are read at once.
Copies of a row have its keys, so they come one after another: all but the first are dropped here.

How many shards and slices there are decides bytes, so it comes from the set of documents. How much is read at once
comes from what the runs hold, copies included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from albert_data.config import BuildConfig
from albert_data.draws import threshold
from albert_data.examples.ragged import Examples
from albert_data.pipeline.mapping import ROW_BYTES, TaskReceipt
from albert_data.pipeline.receipts import read_receipt, write_receipt
from albert_data.pipeline.records import Dropped, Records, Room, RowKeys, count_dropped, order_records, take_examples
from albert_data.pipeline.sorted_runs import SortedRun, read_range
from albert_data.pipeline.stages import Stages
from albert_data.shards.manifest import SPLITS
from albert_data.shards.rows import join_rows
from albert_data.shards.schema import SHARD_SUFFIX, ShardReceipt, shard_schema, write_shard

SHARD_BYTES = 32 << 20
SLICE_BYTES = 8 << 20
_SLICES_READ = 6  # a shard of the default size; more would take more memory than mapping
_KEYS = 2**64


@dataclass(frozen=True, kw_only=True)
class ReduceTask:
    """One shard to write. slices: how many record batches; slice_bytes: what the runs hold of a slice, about."""

    split: str
    shard: int
    num_shards: int
    slices: int
    slice_bytes: int

    @property
    def file(self) -> str:
        return f"{self.split}/shard-{self.shard:05d}{SHARD_SUFFIX}"

    @property
    def receipt_name(self) -> str:
        return f"{self.split}-{self.shard:05d}.json"

    def describe(self) -> str:
        return f"shard {self.file}"


@dataclass(frozen=True, kw_only=True)
class Move:
    """All rows of one document go to another split, where no other document is. They lie with those of `source`."""

    document_key: int
    num_bytes: int
    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class ReduceRules:
    """What rows become on their way into shards. sources: packed codes, in the order of the manifest's `sources`."""

    id_dtype: type[Any]
    compression: str
    keep_duplicates: bool
    move: Move | None
    sources: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ReduceReceipt:
    """shard: for the manifest; dropped: what was left out of it."""

    shard: ShardReceipt
    dropped: Dropped


def make_rules(total: TaskReceipt, config: BuildConfig, id_dtype: type[Any]) -> ReduceRules:
    """What follows from the receipts of all tasks."""
    return ReduceRules(
        id_dtype=id_dtype,
        compression=config.compression,
        keep_duplicates=config.keep_duplicates,
        move=find_move(total, config.validation_fraction),
        sources=total.sources,
    )


def find_move(total: TaskReceipt, validation_fraction: float) -> Move | None:
    """The document that must change sides, so that no split is empty; training comes first.

    With documents on one side alone it is the one that is the nearest to the other by its split key.
    """
    least, greatest, bound = total.least, total.greatest, threshold(validation_fraction)
    if least is None or greatest is None:
        return None
    if greatest.split_key < bound:
        found, source, target = greatest, "validation", "train"
    elif validation_fraction > 0 and least.split_key >= bound and least.document_key != greatest.document_key:
        found, source, target = least, "train", "validation"
    else:
        return None
    return Move(document_key=found.document_key, num_bytes=found.num_bytes, source=source, target=target)


def plan_reduce(total: TaskReceipt, config: BuildConfig, rules: ReduceRules) -> list[ReduceTask]:
    """The shards of all splits that have rows."""
    tasks, move = [], rules.move
    for split in SPLITS:
        section = move.source if move and move.target == split else split
        read_bytes = _measure_section(total, section, np.dtype(rules.id_dtype).itemsize)
        if config.keep_duplicates:
            num_bytes = read_bytes
        else:
            num_bytes = total.samples[split].estimate() * config.examples.dupe_factor
        if move and move.target == split:
            num_bytes = move.num_bytes * config.examples.dupe_factor
        is_left = not (move and move.source == split) or _has_others(total)
        if total.counts[f"{section}_rows"] and is_left:
            tasks += plan_shards(split, num_bytes, config.num_shards if split == "train" else None, read_bytes)
    return tasks


def _has_others(total: TaskReceipt) -> bool:
    """Whether there is a second document beside the one that is moved."""
    return total.least is not None and total.greatest is not None and total.least[:2] != total.greatest[:2]


def _measure_section(total: TaskReceipt, section: str, id_bytes: int) -> int:
    """Bytes of Arrow data that the runs hold of a split."""
    rows, tokens, masked = (total.counts[f"{section}_{what}"] for what in ("rows", "tokens", "masked"))
    return rows * ROW_BYTES + tokens * id_bytes + masked * (2 + id_bytes)


def plan_shards(split: str, num_bytes: int, num_shards: int | None, read_bytes: int) -> list[ReduceTask]:
    """Tasks for a split of `num_bytes` of Arrow data, in as many shards as asked for, or as fit it."""
    count = num_shards or max(1, round(num_bytes / SHARD_BYTES))
    slices = max(1, -(-num_bytes // (count * SLICE_BYTES)))
    slice_bytes = read_bytes // (count * slices)
    return [
        ReduceTask(split=split, shard=shard, num_shards=count, slices=slices, slice_bytes=slice_bytes)
        for shard in range(count)
    ]


def read_reduce_receipt(path: Path) -> ReduceReceipt | None:
    """The receipt of a shard that is done; else None."""
    found = read_receipt(path)
    if found is None:
        return None
    return ReduceReceipt(shard=ShardReceipt(**found["shard"]), dropped=Dropped(*found["dropped"]))


class ReduceJob:
    """Writes a shard below `folder`, then its receipt."""

    def __init__(self, runs: list[Path], folder: Path, rules: ReduceRules) -> None:
        self._paths, self._folder, self._rules = runs, folder, rules
        self._schema = shard_schema(rules.id_dtype, has_source=bool(rules.sources))
        self._room = Room(rules.id_dtype)

    @cached_property
    def _runs(self) -> list[SortedRun]:
        """Opened by each process for itself."""
        return [SortedRun(path) for path in self._paths]

    def __call__(self, task: ReduceTask) -> tuple[ReduceReceipt, Stages]:
        """The receipt, and how long it took to merge and to write."""
        path, stages = self._folder / task.file, Stages()
        merge = _Merge(self._runs, self._room, self._rules, task.split)
        with stages.time("write shards"):
            slices = stages.time_each("merge runs", _read_slices(task, merge))
            shard = write_shard(path, slices, self._schema, self._rules.compression)
            values = {"shard": vars(shard), "dropped": merge.dropped}
            write_receipt(self._folder / "receipts" / task.receipt_name, values)
        stages["write shards"] -= stages["merge runs"]
        return ReduceReceipt(shard=shard, dropped=merge.dropped), stages


def _read_slices(task: ReduceTask, merge: _Merge) -> Iterator[Examples]:
    """The slices of a shard that have rows: several read at once, or one in several parts where it has many copies."""
    total, end = task.num_shards * task.slices, (task.shard + 1) * task.slices
    room, slice_bytes = _SLICES_READ * SLICE_BYTES, max(task.slice_bytes, SLICE_BYTES)
    at_once, num_parts = max(1, room // slice_bytes), -(-slice_bytes // room)
    for first in range(task.shard * task.slices, end, at_once):
        bounds = [number * _KEYS // total for number in range(first, min(first + at_once, end) + 1)]
        if num_parts == 1:
            yield from merge.read(bounds)
        else:
            low, high = bounds
            bounds = [low + (high - low) * part // num_parts for part in range(num_parts + 1)]
            if parts := [part for one in pairwise(bounds) for part in merge.read(list(one))]:
                yield join_rows(parts)


class _Merge:
    """The rows of one split, out of all runs. dropped: the copies so far."""

    def __init__(self, runs: list[SortedRun], room: Room, rules: ReduceRules, split: str) -> None:
        self._runs, self._room, self._rules, self._split = runs, room, rules, split
        self._sources = np.array(rules.sources, np.uint32) if rules.sources else None
        self.dropped = Dropped()

    def read(self, bounds: list[int]) -> Iterator[Examples]:
        """The rows between each two bounds, in order. When it ends, its memory is free for the next."""
        records, places, keys = self._find_rows(bounds[0], bounds[-1] - 1)
        order, is_copy = order_records(records, places, keys)
        if is_copy.any() and not self._rules.keep_duplicates:
            self.dropped = self.dropped.add(count_dropped(records, places[order[is_copy]]))
            order = order[~is_copy]
        inner = np.searchsorted(keys.shuffle_keys[order], np.array(bounds[1:-1], np.uint64))
        for part in np.split(places[order], inner):
            if len(part):
                yield take_examples(records, part, self._sources)

    def _find_rows(self, low: int, high: int) -> tuple[Records, np.ndarray, RowKeys]:
        """The rows of this split that have shuffle keys low .. high."""
        move = self._rules.move
        section = self._split if move is None else move.source
        records, places, keys = read_range(self._runs, section, low, high, self._room)
        if move is not None:
            is_here = (keys.document_keys == np.uint64(move.document_key)) == (self._split == move.target)
            places, keys = places[is_here], RowKeys(*(column[is_here] for column in keys))
        return records, places, keys
