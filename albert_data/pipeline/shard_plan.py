"""Plan the shards: how many there are, and which rows each gets.

Shard s of N holds the rows with shuffle keys from s * 2**64 / N to below (s + 1) * 2**64 / N. The number of shards and
slices decides the bytes of the shards, so it is computed from the set of documents. How much is read at once is
computed from what the sorted runs hold, copies included, since it bounds the memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from albert_data.config import BuildConfig
from albert_data.shards.manifest import SPLITS
from albert_data.shards.schema import SHARD_SUFFIX
from albert_data.survey.decisions import Decisions, measure_held
from albert_data.survey.made import Made

SHARD_BYTES = 32 << 20
MOST_SHARDS = 40_000  # of a split by default: reached at 1.3 TB of rows, 2 TB of English text; then shards get larger
SLICE_BYTES = 8 << 20
KEYS = 2**64


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """One shard to write.

    num_slices: how many record batches it gets; slice_bytes: about what the runs hold for each, copies included.
    seal: of the build's plan and its sorted runs. It is part of the names in .build, so that shards of other runs do
        not count, and a worker which outlives the lock of its build replaces no file of the next one.
    """

    split: str
    shard: int
    num_shards: int
    num_slices: int
    slice_bytes: int
    seal: str = ""

    @property
    def file(self) -> str:
        return f"{self.split}/shard-{self.shard:05d}{SHARD_SUFFIX}"

    @property
    def num_bytes(self) -> int:
        """About what the runs hold for it."""
        return self.num_slices * self.slice_bytes

    @property
    def made_file(self) -> str:
        """The name until the shard is published."""
        return f"{self.split}/shard-{self.shard:05d}-{self.seal}{SHARD_SUFFIX}"

    @property
    def receipt_name(self) -> str:
        return f"{self.split}-{self.shard:05d}-{self.seal}.json"

    def describe(self) -> str:
        return f"shard {self.file}"


def plan_shards(made: Made, decisions: Decisions, config: BuildConfig, id_bytes: int) -> list[ShardTask]:
    """The shards of all splits that have rows. id_bytes: of a token."""
    held, sizes = measure_held(made, id_bytes), decisions.sizes
    if decisions.move:
        held[decisions.move.to_split] = sum(held.values())
    tasks = []
    for split in reversed(SPLITS):  # with documents that move, the shard of validation takes longest
        if held[split] and sizes[split]:
            count = config.num_shards if split == "train" else None
            tasks += plan_split(split, sizes[split], count, held[split])
    return tasks


def plan_split(split: str, num_bytes: int, num_shards: int | None, held_bytes: int) -> list[ShardTask]:
    """Tasks for a split of `num_bytes` of Arrow data.

    num_shards: None for as many as make shards of SHARD_BYTES, and at most MOST_SHARDS
    held_bytes: of the split's rows in the runs, copies included.
    """
    count = num_shards or min(max(1, round(num_bytes / SHARD_BYTES)), MOST_SHARDS)
    num_slices = max(1, -(-num_bytes // (count * SLICE_BYTES)))
    slice_bytes = held_bytes // (count * num_slices)
    return [
        ShardTask(split=split, shard=shard, num_shards=count, num_slices=num_slices, slice_bytes=slice_bytes)
        for shard in range(count)
    ]
