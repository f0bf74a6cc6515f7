"""Reduce: read the rows in one range of shuffle keys from all sorted runs, sort them, and write them as a shard.

Shard s of N holds the rows with keys from s * 2**64 / N to below (s + 1) * 2**64 / N. So the shuffle is global, and its
order depends on the keys alone. A shard consists of slices of about 8 MiB. Each becomes a record batch; a few are read
at once. Copies of a row have equal keys, so they follow one another. Unless `keep_duplicates` is set, map drops those
within a sorted run, and those in different runs are dropped here. Rows whose segment B is to be of another document get
it here too, from a row of their slice.

The number of shards and slices decides the bytes of the shards, so it is computed from the set of documents. How much
is read at once is computed from what the sorted runs hold, copies included, since it bounds the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from albert_data.config import MIN_VALIDATION, BuildConfig
from albert_data.data import Examples
from albert_data.draws import split_keys
from albert_data.jobs.receipts import read_receipt, write_receipt
from albert_data.pipeline.choosing import Choice, find_kept, read_shared
from albert_data.pipeline.document_lists import find_keys, map_u64
from albert_data.pipeline.exchanging import Exchange
from albert_data.pipeline.mapping import measure_rows
from albert_data.pipeline.merging import fetch_range
from albert_data.pipeline.receipts import TaskReceipt
from albert_data.pipeline.records import (
    Dropped,
    FoundRecords,
    Records,
    RecordScratch,
    count_dropped,
    order_records,
    read_sources,
    take_examples,
)
from albert_data.pipeline.sorted_runs import SortedRun, read_range
from albert_data.pipeline.stages import Stages
from albert_data.shards.manifest import SPLITS
from albert_data.shards.rows import join_rows
from albert_data.shards.schema import SHARD_SUFFIX, ShardReceipt, shard_schema, write_shard
from albert_data.storage import find_storage, is_remote
from albert_data.storage.scratch import machine_scratch
from albert_data.wording import count_of

SHARD_BYTES = 32 << 20
SLICE_BYTES = 8 << 20
# Read at once: 48 MiB, the largest shard by default (1.5 x SHARD_BYTES). More would need more memory than map does.
_SLICES_READ = 6
_KEYS = 2**64
MOST_READS = 20_000_000  # of ranges of runs, in a build; a store of objects charges for each
_READS_OF_RUN = 2  # head and records


@dataclass(frozen=True, kw_only=True)
class ReduceTask:
    """One shard to write.

    num_slices: how many record batches it gets; slice_bytes: about what the runs hold for each, copies included.
    """

    split: str
    shard: int
    num_shards: int
    num_slices: int
    slice_bytes: int

    @property
    def file(self) -> str:
        return f"{self.split}/shard-{self.shard:05d}{SHARD_SUFFIX}"

    @property
    def receipt_name(self) -> str:
        return f"{self.split}-{self.shard:05d}.json"

    def describe(self) -> str:
        return f"shard {self.file}"


@dataclass(frozen=True)
class ReduceGroup:
    """Consecutive shards of a split that one worker writes. Several only where there are very many runs and shards."""

    tasks: tuple[ReduceTask, ...]

    @property
    def key_range(self) -> tuple[int, int]:
        """The least and the greatest shuffle key."""
        first, last = self.tasks[0], self.tasks[-1]
        return first.shard * _KEYS // first.num_shards, (last.shard + 1) * _KEYS // last.num_shards - 1

    def describe(self) -> str:
        more = f" and {len(self.tasks) - 1} more" if len(self.tasks) > 1 else ""
        return f"{self.tasks[0].describe()}{more}"


@dataclass(frozen=True, kw_only=True)
class Move:
    """Documents change their split: those of validation are now all with split keys below `bound`.

    In the sorted runs, the rows of those that change lie under `from_split`, and only in `runs`, by their names.
    num_documents: of validation; num_bytes: of their rows of one pass, in a mixture of all passes.
    """

    seed: int
    bound: int
    from_split: str
    to_split: str
    runs: frozenset[str]
    num_documents: int
    num_bytes: int

    def find_rows(self, document_keys: np.ndarray, split: str) -> np.ndarray:
        """Which rows belong to a split: bool."""
        is_validation = split_keys(np.uint64(self.seed), document_keys) < np.uint64(self.bound)
        return is_validation if split == "validation" else ~is_validation


@dataclass(frozen=True, kw_only=True)
class ReduceRules:
    """The settings of the reduce stage.

    sources: source codes, in the order of the manifest's `sources`.
    choice: which rows of a mixture are kept; None for other builds. left_out: the file with the keys of the documents
    whose rows training does not get; None if it gets all.
    """

    id_dtype: type[Any]
    compression: str
    keep_duplicates: bool
    move: Move | None
    sources: tuple[int, ...]
    choice: Choice | None = None
    left_out: Path | None = None


@dataclass(frozen=True, kw_only=True)
class ReduceReceipt:
    """shard: its entry in the manifest; dropped: the copies that it lacks; left_out: what training leaves out of it."""

    shard: ShardReceipt
    dropped: Dropped
    left_out: Dropped


def make_rules(
    total: TaskReceipt,
    config: BuildConfig,
    id_dtype: type[Any],
    choice: Choice | None = None,
    left_out: Path | None = None,
) -> ReduceRules:
    """The settings that follow from the receipts of all map tasks, added up, and in a mixture from its choice."""
    return ReduceRules(
        id_dtype=id_dtype,
        compression=config.compression,
        keep_duplicates=config.keep_duplicates,
        move=find_move(total, config),
        sources=tuple(total.sources.values()) if choice is None else tuple(range(len(choice.counts))),
        choice=choice,
        left_out=left_out,
    )


def find_move(total: TaskReceipt, config: BuildConfig) -> Move | None:
    """The documents that must change their split; None where none must.

    Documents with split keys below a bound go to validation. If these are too few, those with the next split keys
    follow until there are MIN_VALIDATION, or a tenth of all, or one. If all are below the bound, validation keeps only
    so many. A lone document goes to training.
    """
    num_train, num_validation = (total.samples[split].count() for split in SPLITS)
    num_documents = num_train + num_validation
    wanted = min(MIN_VALIDATION, num_documents // 10) or int(num_documents > 1)
    if not config.validation_fraction or (num_train and num_validation >= wanted):
        return None
    nearest, keys = total.nearest, np.unique(total.nearest.hashes)
    bound = int(keys[min(wanted, len(keys) - 1)])  # the last has a part if the keys of many documents collide
    runs = (run for run, least in total.least.items() if least < bound) if num_train else total.runs
    return Move(
        seed=config.examples.seed,
        bound=bound,
        from_split="train" if num_train else "validation",
        to_split="validation" if num_train else "train",
        runs=frozenset(runs),
        num_documents=int(np.count_nonzero(keys < bound)),
        num_bytes=int(nearest.sizes[nearest.hashes < bound].sum()),
    )


def describe_validation(total: TaskReceipt, rules: ReduceRules) -> list[str]:
    """A line if validation has few documents."""
    num_documents = rules.move.num_documents if rules.move else total.samples["validation"].count()
    if not 0 < num_documents < MIN_VALIDATION:
        return []
    more = "" if rules.left_out else ", a larger --validation-fraction, or text of your own by --validation"
    return [
        f"validation: {count_of(num_documents, 'document')}, fewer than {MIN_VALIDATION}, so its figures are rough; "
        f"use more documents{more}"
    ]


def plan_reduce(total: TaskReceipt, config: BuildConfig, rules: ReduceRules) -> list[ReduceTask]:
    """The shards of all splits that have rows."""
    move, choice, passes = rules.move, rules.choice, config.examples.dupe_factor
    id_bytes = np.dtype(rules.id_dtype).itemsize
    held = {split: _measure_section(total, split, id_bytes) for split in SPLITS}
    if choice:
        sizes, passes = choice.num_bytes, 1
    elif config.keep_duplicates:
        sizes = held
    else:
        sizes = {split: total.samples[split].estimate() * passes for split in SPLITS}
    if move:
        num_bytes = move.num_bytes * passes
        sizes = {"train": sum(sizes.values()) - num_bytes, "validation": num_bytes}
        held = {**held, move.to_split: sum(held.values())}
    if move or rules.left_out:  # training has rows, however large what is taken from an estimate
        sizes = {**sizes, "train": max(1, sizes["train"])}
    tasks = []
    for split in reversed(SPLITS):  # with documents that move, the shard of validation takes longest
        if held[split] and sizes[split]:
            count = config.num_shards if split == "train" else None
            tasks += plan_shards(split, sizes[split], count, held[split])
    return tasks


def _measure_section(total: TaskReceipt, section: str, id_bytes: int) -> int:
    """How many bytes of Arrow data the rows of one split in all sorted runs make, copies included."""
    rows, tokens, masked = (total.counts[f"{section}_{what}"] for what in ("rows", "tokens", "masked"))
    return int(measure_rows(rows, tokens, masked, id_bytes))


def plan_shards(split: str, num_bytes: int, num_shards: int | None, held_bytes: int) -> list[ReduceTask]:
    """Tasks for a split of `num_bytes` of Arrow data: `num_shards`, or for None as many as make shards of SHARD_BYTES.

    held_bytes: of the split's rows in the runs, copies included.
    """
    count = num_shards or max(1, round(num_bytes / SHARD_BYTES))
    num_slices = max(1, -(-num_bytes // (count * SLICE_BYTES)))
    slice_bytes = held_bytes // (count * num_slices)
    return [
        ReduceTask(split=split, shard=shard, num_shards=count, num_slices=num_slices, slice_bytes=slice_bytes)
        for shard in range(count)
    ]


def group_tasks(tasks: list[ReduceTask], num_runs: int, most_reads: int = MOST_READS) -> list[ReduceGroup]:
    """Join consecutive shards, so that the runs are read by at most so many reads: two of each run for each group."""
    size = max(1, -(-_READS_OF_RUN * num_runs * len(tasks) // most_reads))
    parts = [list(part) for _, part in groupby(tasks, key=lambda task: task.split)]
    return [ReduceGroup(tuple(part[i : i + size])) for part in parts for i in range(0, len(part), size)]


def read_reduce_receipt(path: Path) -> ReduceReceipt | None:
    """The receipt of a finished shard; None where the shard is not finished."""
    found = read_receipt(path)
    if found is None:
        return None
    dropped, left_out = (Dropped(*found[name]) for name in ("dropped", "left_out"))
    return ReduceReceipt(shard=ShardReceipt(**found["shard"]), dropped=dropped, left_out=left_out)


class GroupJob:
    """Writes the shards of a group. If there are several, their rows are fetched from all runs at once before."""

    def __init__(self, job: ReduceJob) -> None:
        self._job = job

    def __call__(self, group: ReduceGroup) -> list[tuple[ReduceTask, ReduceReceipt, Stages]]:
        if len(group.tasks) == 1:
            return [(task, *self._job(task)) for task in group.tasks]
        done, stages = [], Stages()
        with machine_scratch() as scratch:
            with stages.time("merge runs"):
                job = self._job.fetch(group, scratch)
            for task in group.tasks:
                receipt, spent = job.find_receipt(task), Stages()  # by an earlier try of the group
                if receipt is None:
                    receipt, spent = job(task)
                spent.add(stages)
                done.append((task, receipt, spent))
                stages = Stages()
        return done


class ReduceJob:
    """Writes a shard into `folder`, then its receipt. exchange: None for tasks without random segments.

    syncs: whether the receipt waits until the shard is safe from a crash of this machine. Otherwise the parent, on the
    same machine, syncs shards while workers make the next ones.
    """

    def __init__(
        self,
        runs: list[Path],
        folder: Path,
        rules: ReduceRules,
        exchange: Exchange | None = None,
        *,
        syncs: bool = False,
    ) -> None:
        self._paths, self._folder, self._rules, self._exchange = runs, folder, rules, exchange
        self._syncs = syncs
        has_key_b = exchange is not None
        self._schema = shard_schema(rules.id_dtype, has_source=bool(rules.sources), has_key_b=has_key_b)
        self._scratch = RecordScratch(rules.id_dtype)

    def fetch(self, group: ReduceGroup, scratch: Path) -> ReduceJob:
        """A job for the shards of a group alone, which reads their rows from `scratch`."""
        split = group.tasks[0].split
        sections = _list_sections(self._paths, split, self._rules.move)
        runs = fetch_range(sections, split, *group.key_range, self._scratch, scratch)
        return ReduceJob(runs, self._folder, self._rules, self._exchange, syncs=self._syncs)

    def find_receipt(self, task: ReduceTask) -> ReduceReceipt | None:
        return read_reduce_receipt(self._folder / "receipts" / task.receipt_name)

    @cached_property
    def _runs(self) -> list[SortedRun]:
        """Opened on first use, so that each worker process opens its own."""
        first = self._paths[0]
        is_whole = is_remote(first)  # an object is, and to ask for its size is a request
        return list(find_storage(first).at_once(partial(SortedRun, checks_size=not is_whole), self._paths))

    def __call__(self, task: ReduceTask) -> tuple[ReduceReceipt, Stages]:
        """Returns the receipt, and how long merging and writing took."""
        path, stages = self._folder / task.file, Stages()
        merge = _Merge(self._runs, self._scratch, self._rules, task.split)
        with stages.time("write shards"):
            slices = stages.time_each("merge runs", self._finish(_read_slices(task, merge)))
            shard = write_shard(path, slices, self._schema, self._rules.compression)
            values = {"shard": vars(shard), "dropped": merge.dropped, "left_out": merge.left_out}
            if self._syncs:
                find_storage(path).sync(path)
            write_receipt(self._folder / "receipts" / task.receipt_name, values, sync=self._syncs)
        stages["write shards"] -= stages["merge runs"]  # the writer drives the merge, so its time includes that
        return ReduceReceipt(shard=shard, dropped=merge.dropped, left_out=merge.left_out), stages

    def _finish(self, slices: Iterator[Slice]) -> Iterator[Examples]:
        for rows, shuffle_keys in slices:
            yield rows if self._exchange is None else self._exchange(rows, shuffle_keys)


class Slice(NamedTuple):
    """Sorted rows and their shuffle keys (uint64)."""

    rows: Examples
    shuffle_keys: np.ndarray


def _read_slices(task: ReduceTask, merge: _Merge) -> Iterator[Slice]:
    """Yield the slices of a shard that have rows. At most about 48 MiB are read at once."""
    total = task.num_shards * task.num_slices
    first, end = task.shard * task.num_slices, (task.shard + 1) * task.num_slices
    slice_bytes, limit = max(task.slice_bytes, SLICE_BYTES), _SLICES_READ * SLICE_BYTES
    if slice_bytes <= limit:
        at_once = limit // slice_bytes
        for begin in range(first, end, at_once):
            yield from merge.read([i * _KEYS // total for i in range(begin, min(begin + at_once, end) + 1)])
        return
    # With many copies even one slice is too large. It is read in parts, and what is left of them is joined.
    num_parts = -(-slice_bytes // limit)
    for i in range(first, end):
        low, high = i * _KEYS // total, (i + 1) * _KEYS // total
        bounds = [low + (high - low) * part // num_parts for part in range(num_parts + 1)]
        if parts := [part for pair in pairwise(bounds) for part in merge.read(list(pair))]:
            yield Slice(join_rows([part.rows for part in parts]), np.concatenate([part.shuffle_keys for part in parts]))


class _Merge:
    """The rows of one split, out of all sorted runs. dropped: the copies so far; left_out: as in ReduceReceipt."""

    def __init__(self, runs: list[SortedRun], scratch: RecordScratch, rules: ReduceRules, split: str) -> None:
        self._runs, self._scratch, self._rules, self._split = runs, scratch, rules, split
        self._sources = np.array(rules.sources, np.uint32) if rules.sources else None
        self._shared = None if rules.choice is None else read_shared(rules.choice)
        self._left_out = None if rules.left_out is None or split != "train" else map_u64(rules.left_out)
        self.dropped = self.left_out = Dropped()

    def read(self, bounds: list[int]) -> Iterator[Slice]:
        """Yield the sorted rows with shuffle keys in [bounds[0], bounds[1]), then [bounds[1], bounds[2]), and so on.

        Exhaust it before the next call: that overwrites the scratch buffer which this one reads from.
        """
        records, found = self._find_rows(bounds[0], bounds[-1] - 1)
        order, is_copy = order_records(records, found)
        if is_copy.any() and not self._rules.keep_duplicates:
            self.dropped = self.dropped.add(count_dropped(records, found.starts[order[is_copy]]))
            order = order[~is_copy]
        if self._left_out is not None:  # after the copies: so both counts depend on the documents alone
            is_out, _ = find_keys(found.keys.document_keys[order], self._left_out)
            self.left_out = self.left_out.add(count_dropped(records, found.starts[order[is_out]]))
            order = order[~is_out]
        keys, starts = found.keys.shuffle_keys[order], found.starts[order]
        inner = np.searchsorted(keys, np.array(bounds[1:-1], np.uint64)).tolist()
        for begin, end in pairwise([0, *inner, len(order)]):
            if end > begin:
                yield Slice(take_examples(records, starts[begin:end], self._sources), keys[begin:end])

    def _find_rows(self, low: int, high: int) -> tuple[Records, FoundRecords]:
        """The rows of this split with shuffle keys in [low, high]; of a mixture, those that are kept."""
        records, found = self._find_all_rows(low, high)
        if (choice := self._rules.choice) is not None:
            sources = read_sources(records, found.starts)
            found = found.take(find_kept(choice, self._shared, found.keys, sources))
        return records, found

    def _find_all_rows(self, low: int, high: int) -> tuple[Records, FoundRecords]:
        move = self._rules.move
        if move is None:
            return read_range(self._runs, self._split, low, high, self._scratch)
        opened = {run.path: run for run in self._runs}
        sections = [(opened[path], section) for path, section in _list_sections(opened, self._split, move)]
        ranges = list(self._runs[0].storage.at_once(lambda part: part[0].find(part[1], low, high), sections))
        runs = [run for run, _ in sections]
        records, found = read_range(runs, self._split, low, high, self._scratch, ranges)
        return records, found.take(move.find_rows(found.keys.document_keys, self._split))


def _list_sections(paths: Iterable[Path], split: str, move: Move | None) -> list[tuple[Path, str]]:
    """The sorted runs, and the split under which each holds rows of `split`; a run may be there twice."""
    paths = list(paths)
    sections = [(path, split) for path in paths]
    if move is not None and move.to_split == split:
        sections += [(path, move.from_split) for path in paths if path.name in move.runs]
    return sections
