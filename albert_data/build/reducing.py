"""Reduce: from every run the rows of one range of shuffle keys, in order, into a shard.

Shard s of N takes the keys in [s / N, (s + 1) / N) of all 64-bit numbers: a global shuffle whose order
depends on the keys alone. A shard is made of slices of about 8 MiB, each a record batch; a few are read at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from albert_data.build.receipts import write_receipt
from albert_data.build.records import Room, order_records, take_examples
from albert_data.build.runs import Run, read_range
from albert_data.build.stages import Stages
from albert_data.examples.ragged import Examples
from albert_data.shards.schema import SHARD_SUFFIX, shard_schema
from albert_data.shards.writer import ShardReceipt, write_shard

SHARD_BYTES = 32 << 20
SLICE_BYTES = 8 << 20
_SLICES_READ = 6  # a shard of the default size; more would take more memory than mapping
_KEYS = 2**64


@dataclass(frozen=True, kw_only=True)
class ReduceTask:
    """One shard to write. slices: into how many record batches."""

    split: str
    shard: int
    num_shards: int
    slices: int

    @property
    def file(self) -> str:
        return f"{self.split}/shard-{self.shard:05d}{SHARD_SUFFIX}"

    @property
    def receipt_name(self) -> str:
        return f"{self.split}-{self.shard:05d}.json"

    def describe(self) -> str:
        return f"shard {self.file}"


def plan_shards(split: str, num_bytes: int, num_shards: int | None) -> list[ReduceTask]:
    """Tasks for a split of `num_bytes` of Arrow data, in as many shards as asked for, or as fit it."""
    count = num_shards or max(1, round(num_bytes / SHARD_BYTES))
    slices = max(1, -(-num_bytes // (count * SLICE_BYTES)))
    return [ReduceTask(split=split, shard=shard, num_shards=count, slices=slices) for shard in range(count)]


class ReduceJob:
    """Writes a shard below `folder`, then its receipt."""

    def __init__(self, runs: list[Path], folder: Path, id_dtype: type[Any], compression: str) -> None:
        self._paths, self._folder = runs, folder
        self._schema, self._compression = shard_schema(id_dtype), compression
        self._room = Room(id_dtype)

    @cached_property
    def _runs(self) -> list[Run]:
        """Opened by each process for itself."""
        return [Run(path) for path in self._paths]

    def __call__(self, task: ReduceTask) -> tuple[ShardReceipt, Stages]:
        """The receipt, and how long it took to merge and to write."""
        path, stages = self._folder / task.file, Stages()
        with stages.time("write shards"):
            slices = stages.time_each("merge runs", self._slices(task))
            receipt = write_shard(path, slices, self._schema, self._compression)
            write_receipt(self._folder / "receipts" / task.receipt_name, vars(receipt))
        stages["write shards"] -= stages["merge runs"]
        return receipt, stages

    def _slices(self, task: ReduceTask) -> Iterator[Examples]:
        total, end = task.num_shards * task.slices, (task.shard + 1) * task.slices
        for first in range(task.shard * task.slices, end, _SLICES_READ):
            bounds = [number * _KEYS // total for number in range(first, min(first + _SLICES_READ, end) + 1)]
            yield from self._read_slices(task.split, bounds)

    def _read_slices(self, split: str, bounds: list[int]) -> Iterator[Examples]:
        """The rows between each two bounds, in order. When it ends, its memory is free for the next."""
        records, places, keys = read_range(self._runs, split, bounds[0], bounds[-1] - 1, self._room)
        order = order_records(records, places, keys)
        inner = np.searchsorted(keys.shuffle_keys[order], np.array(bounds[1:-1], np.uint64))
        for part in np.split(places[order], inner):
            if len(part):
                yield take_examples(records, part)
