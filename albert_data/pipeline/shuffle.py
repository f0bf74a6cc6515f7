"""Plan the shuffle: how rows get from sorted runs into shards by few reads, on disks of bounded size.

A shard needs a range of keys of every run, and each range is two reads. What their number and size decide:

    direct       a task of the merge is a shard, and reads the runs itself
    one stage    it is several shards, and copies their rows to a disk of its machine first, so each run is read once
    two stages   a join step comes before it: each of its tasks makes one run of a range of keys of a batch of runs

With R runs, B = sqrt(R) batches and K ranges of keys, the join step makes 2 R K reads, and G tasks of the merge
2 B G. Both are kept below MOST_READS. For 20 TB of text (10,000 runs) B and K are 100: the two steps have 10,000 tasks
each, of 1.3 GB of rows. Exoshuffle-CloudSort (Luan et al., 2023) merges in the same way.

The order of rows is total, so the way of a row changes no byte of a shard. The sizes of the inputs alone decide it, so
that a build can be resumed on any machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from math import ceil, isqrt
from pathlib import Path

from albert_data.jobs.stages import Stages
from albert_data.pipeline.row_buffer import RowScratch
from albert_data.pipeline.shard_plan import KEYS, ShardTask
from albert_data.pipeline.sorted_runs import Held, fetch_range, join_runs
from albert_data.shards.manifest import SPLITS
from albert_data.storage.scratch import machine_scratch
from albert_data.survey.splits import Move
from albert_data.text.wording import count_of

MOST_READS = 2_000_000  # of each step; a store of objects charges for them, and answers so many a second
DISK_BYTES = 3 << 29  # of rows that a task of the merge may copy to its disk, before there is a join step
JOINED_BYTES = 256 << 20  # of a joined run, at least about: smaller ones would be more tasks than clusters need
READ_BYTES = 48 << 20  # of a shard, that lie in memory together
_READS_OF_RUN = 2  # head and records


@dataclass(frozen=True, kw_only=True)
class Shuffle:
    """How rows get from sorted runs into shards.

    num_batches, num_ranges: of runs and of keys, in the join step; 0 without one
    window_bytes: of rows that a task of the merge copies to its disk at once; 0 where all are read directly
    num_reads: of runs and joined runs, about
    """

    num_batches: int = 0
    num_ranges: int = 0
    window_bytes: int = 0
    num_reads: int = 0

    @classmethod
    def plan(cls, sizes: Sequence[int], num_runs: int) -> Shuffle:
        """sizes: of the shards, in bytes."""
        num_bytes = sum(sizes)
        times = sum(max(1, ceil(size / READ_BYTES)) for size in sizes)  # that each run is read directly
        one = _plan_reads(num_runs, num_bytes, times)
        if one.window_bytes <= DISK_BYTES:
            return one
        num_batches = isqrt(num_runs - 1) + 1
        num_ranges = min(MOST_READS // (_READS_OF_RUN * num_runs), ceil(num_bytes / (num_batches * JOINED_BYTES)))
        after = _plan_reads(num_batches, num_bytes, times)
        return cls(
            num_batches=num_batches,
            num_ranges=max(1, num_ranges),
            window_bytes=after.window_bytes,
            num_reads=after.num_reads + _READS_OF_RUN * num_runs * max(1, num_ranges),
        )


def _plan_reads(num_files: int, num_bytes: int, times: int) -> Shuffle:
    """The merge, where each range of keys lies in so many files. times: that each is read directly."""
    if (num_reads := _READS_OF_RUN * num_files * times) <= MOST_READS:
        return Shuffle(num_reads=num_reads)
    window_bytes = max(1, ceil(_READS_OF_RUN * num_files * num_bytes / MOST_READS))
    return Shuffle(window_bytes=window_bytes, num_reads=_READS_OF_RUN * num_files * ceil(num_bytes / window_bytes))


# ---- join ----


@dataclass(frozen=True, kw_only=True)
class JoinedRun:
    """The rows of some sorted runs under one split, with shuffle keys in [low, high], as one file.

    name: of the file. runs: names; of a single one where nothing is merged, whose file this is.
    """

    name: str
    split: str
    runs: tuple[str, ...]
    low: int = 0
    high: int = KEYS - 1

    def describe(self) -> str:
        return f"merging {count_of(len(self.runs), 'sorted run')} from {self.runs[0]} on"


def plan_joins(shuffle: Shuffle, runs: Sequence[str], num_rows: dict[str, int], seal: str) -> list[JoinedRun]:
    """What the merge reads: the runs themselves, or the tasks of the join step.

    num_rows: of each split. seal: a text that differs if the runs do. It is part of the names, so that no task of
    another build writes these files; and what is there under such a name is finished.
    """
    if not shuffle.num_batches:
        return [JoinedRun(name=run, split=split, runs=(run,)) for split in SPLITS for run in runs]
    size, merges = ceil(len(runs) / shuffle.num_batches), list[JoinedRun]()
    for split, rows in num_rows.items():
        count = ceil(shuffle.num_ranges * rows / sum(num_rows.values()))
        bounds = [number * KEYS // count for number in range(count + 1)] if count else []
        for low, end in zip(bounds, bounds[1:], strict=False):
            for begin in range(0, len(runs), size):
                batch = tuple(runs[begin : begin + size])
                name = f"{sha256(repr((seal, split, low, end, batch)).encode()).hexdigest()[:32]}-joined.run"
                merges.append(JoinedRun(name=name, split=split, runs=batch, low=low, high=end - 1))
    return merges


def list_held(folder: Path, merged: Iterable[JoinedRun], move: Move | None) -> dict[str, list[Held]]:
    """Where the rows of each split lie: under it, and under the other one in the runs with rows that move."""
    held: dict[str, list[Held]] = {split: [] for split in SPLITS}
    for one in merged:
        held[one.split].append(Held(folder / one.name, one.split, one.low, one.high))
    if move is not None:
        # Mostly few runs have them, while their joined runs would be many times as large.
        few, others = [Held(folder / run, move.from_split) for run in sorted(move.runs)], held[move.from_split]
        held[move.to_split] += few if len(few) < len(others) else others
    return held


class JoinRuns:
    """Makes joined runs in the folder of the runs. syncs: whether each is safe from a crash before it has its name."""

    name = "join"

    def __init__(self, folder: Path, id_dtype: type, *, syncs: bool = False) -> None:
        self._folder, self._syncs, self._scratch = folder, syncs, RowScratch(id_dtype)

    def __call__(self, task: JoinedRun) -> Stages:
        """Returns how long it took."""
        stages, held = Stages(), [Held(self._folder / name, task.split) for name in task.runs]
        with stages.time("merge runs"), machine_scratch() as scratch:
            paths = fetch_range(held, task.split, (task.low, task.high), self._scratch, scratch)
            # All copies stay: few are in one batch, and the merge counts those that it drops.
            join_runs(
                paths,
                self._folder / task.name,
                self._scratch,
                keep_copies=True,
                keys=(task.low, task.high),
                sync=self._syncs,
            )
        return stages


# ---- merge ----


@dataclass(frozen=True)
class ShardGroup:
    """Consecutive shards of a split that one worker writes.

    window_keys: the size of the ranges of keys whose rows it copies to its disk; 0 where it copies none.
    """

    tasks: tuple[ShardTask, ...]
    window_keys: int = 0

    @property
    def split(self) -> str:
        return self.tasks[0].split

    @property
    def key_range(self) -> tuple[int, int]:
        """The least and the greatest shuffle key."""
        first, last = self.tasks[0], self.tasks[-1]
        return first.shard * KEYS // first.num_shards, (last.shard + 1) * KEYS // last.num_shards - 1

    def describe(self) -> str:
        more = f" and {len(self.tasks) - 1} more" if len(self.tasks) > 1 else ""
        return f"{self.tasks[0].describe()}{more}"


def group_tasks(tasks: Iterable[ShardTask], shuffle: Shuffle) -> list[ShardGroup]:
    """Join shards, so that each group has about the rows that a task copies to its disk at once.

    tasks: those that are left. They are in the same groups as all would be.
    """

    def find_group(task: ShardTask) -> tuple[str, int]:
        return task.split, task.shard // max(1, round(shuffle.window_bytes / max(task.num_bytes, 1)))

    return [_make_group(tuple(part), shuffle) for _, part in groupby(tasks, key=find_group)]


def _make_group(tasks: tuple[ShardTask, ...], shuffle: Shuffle) -> ShardGroup:
    num_bytes, group = sum(task.num_bytes for task in tasks), ShardGroup(tasks)
    if not shuffle.window_bytes or (len(tasks) == 1 and num_bytes <= READ_BYTES):
        return group
    low, high = group.key_range
    return ShardGroup(tasks, ceil((high + 1 - low) / max(1, round(num_bytes / shuffle.window_bytes))))
