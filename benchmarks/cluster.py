"""`python -m benchmarks.cluster`: what a build of terabytes asks of a cluster and of a store, by simulation.

Nothing is built. Real are the plans of tasks, merges and shards, the step of an index, the loop of `RayEngine` and the
sums over receipts: their seconds are measured. Ray and the nodes are replaced by workers whose tasks take time by
formula, on a simulated clock, and the store by what S3 documents (object_store.py). What Ray itself adds for each task
must be measured on a cluster: `--ray` does it with empty tasks on this machine. CPUs count as in use while they have a
task, also if it waits for the store. How fast the network and the disks of nodes are is not simulated.
"""

from __future__ import annotations

import heapq
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import click
import numpy as np

from albert_data.corpus import tasks
from albert_data.corpus.inputs import Input
from albert_data.corpus.tasks import ReadTask
from albert_data.jobs import ray_engine
from albert_data.jobs.receipts import read_receipt, write_receipt
from albert_data.pipeline import shard_plan
from albert_data.pipeline.make_rows import RUN_BYTES
from albert_data.pipeline.shuffle import JoinedRun, ShardGroup, Shuffle, group_tasks, plan_joins
from albert_data.pipeline.sorted_runs import MERGE_BYTES, Section, make_head
from albert_data.shards.manifest import ShardEntry
from albert_data.storage.files import MAX_BYTES, to_json
from albert_data.survey.made import Made
from benchmarks import object_store
from benchmarks.object_store import ANSWER_SECONDS, AT_ONCE, READ_BYTES, StepRequests, count_puts

TERABYTE = 10**12
MAP_RATE = 25e6  # bytes of text a second on a core, as measured by `python -m benchmarks`, less what a store costs
REDUCE_RATE = 60e6  # bytes of rows a second on a core; a task that copies them to its disk reads and writes them twice
ROWS_BYTES = 0.65  # Arrow bytes for each byte of English text: 0.23 tokens of 2 bytes, masks, heads
ROW_BYTES = 1_400  # of a row in a sorted run
_SPREAD = 0.15  # of the time of equal tasks: nodes differ


@dataclass(frozen=True)
class Sizes:
    """What a corpus makes, one sorted run a map task. merges, groups: tasks of the merge and the merge.

    num_bytes: of text; num_cuts: of files
    """

    num_bytes: int
    num_files: int
    num_cuts: int
    tasks: list[ReadTask]
    num_shards: int
    shuffle: Shuffle
    merges: list[JoinedRun]
    groups: list[ShardGroup]
    plan_seconds: float


def measure_plan(num_bytes: int, num_files: int) -> Sizes:
    """Plan files of equal size. Only the search for the ends of documents is left out: it is counted."""
    began, cuts = time.process_time(), list[int]()

    def cut_there(file: Any, format: str, at: int, *others: Any) -> int:
        cuts.append(at)
        return at

    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file, patch.object(tasks, "find_document", cut_there):
        one = Input(path=file.name, format="jsonl", compression=None, size=num_bytes // num_files, modified_ns=0)
        made = tasks.plan_tasks([one] * num_files)
    shards = shard_plan.plan_split("train", int(num_bytes * ROWS_BYTES), None, int(num_bytes * ROWS_BYTES))
    plan = Shuffle.plan([shard.num_bytes for shard in shards], len(made))
    merges = plan_joins(plan, [task.name for task in made], {"train": 1}, "") if plan.num_batches else []
    groups, seconds = group_tasks(shards, plan), time.process_time() - began
    return Sizes(num_bytes, num_files, len(cuts), made, len(shards), plan, merges, groups, seconds)


# ---- what the steps ask of a store and of a task ----


@dataclass(frozen=True)
class Step:
    """measure: seconds of a task; over_read: bytes read of sorted runs for each that is kept; disk_bytes: of a task."""

    name: str
    tasks: list[Any]
    measure: Callable[[Any], float]
    requests: StepRequests
    over_read: float
    disk_bytes: float


def list_steps(sizes: Sizes) -> list[Step]:
    """Names of inputs, runs and joined runs spread over the partitions of a store; those of shards begin alike."""
    rows_bytes, shuffle = sizes.num_bytes * ROWS_BYTES, sizes.shuffle
    num_runs, num_merges, num_shards = len(sizes.tasks), len(sizes.merges), sizes.num_shards
    run_bytes, merged_bytes = rows_bytes / num_runs, rows_bytes / (num_merges or num_runs)
    shard_bytes, merge_gets = rows_bytes / num_shards, 2 * num_runs * shuffle.num_ranges
    reduce_gets = shuffle.num_reads - merge_gets
    run_step = find_step(run_bytes, RUN_BYTES)
    merge_over = measure_over_read(merge_gets // 2, run_step, rows_bytes)
    held_step = find_step(merged_bytes, MERGE_BYTES) if num_merges else run_step
    reduce_over = measure_over_read(reduce_gets // 2, held_step, rows_bytes)
    num_answers = merge_gets / max(1, num_merges) / AT_ONCE + count_puts(merged_bytes)
    merge_seconds = measure_task(merged_bytes * (merge_over + 1), num_answers)
    num_answers = reduce_gets / num_shards / AT_ONCE + count_puts(shard_bytes) + 1
    shard_seconds = measure_task(shard_bytes * (reduce_over + bool(shuffle.window_bytes)), num_answers)
    # Reads of 64 KiB, 128 KiB and so on come before those of 8 MiB.
    map_gets = sum(7 + ceil((part.end - part.start) / READ_BYTES) for task in sizes.tasks for part in task.ranges)
    mapping = StepRequests(map_gets, num_runs * (count_puts(run_bytes) + 1), True, True)
    merging = StepRequests(merge_gets, num_merges * count_puts(merged_bytes), True, True)
    reducing = StepRequests(reduce_gets, num_shards * (count_puts(shard_bytes) + 1), True)
    merge_disk, reduce_disk = 2 * merged_bytes * bool(num_merges), shuffle.window_bytes
    return [
        Step("map", sizes.tasks, lambda task: task.num_bytes / MAP_RATE, mapping, 1.0, 2 * run_bytes),
        Step("join", sizes.merges, lambda task: merge_seconds, merging, merge_over, merge_disk),
        Step("merge", sizes.groups, lambda group: len(group.tasks) * shard_seconds, reducing, reduce_over, reduce_disk),
    ]


def measure_task(num_bytes: float, num_answers: float) -> float:
    """Seconds to read and write so many bytes of rows, and to wait for the store."""
    return num_bytes / REDUCE_RATE + num_answers * ANSWER_SECONDS


def find_step(num_bytes: float, part_bytes: int) -> int:
    """Rows from one entry of the index to the next, in a sorted run of so many bytes that is made of such parts."""
    num_parts = max(1, ceil(num_bytes / part_bytes))
    entries = np.zeros((2, int(num_bytes / ROW_BYTES / num_parts)), np.uint64)
    return int(make_head([Section(entries, 0)], num_parts)[0])


def measure_over_read(num_ranges: int, step: int, num_bytes: float) -> float:
    """Each range is read with half a step of rows before it and after it, and with head and index."""
    return 1 + num_ranges * (step * ROW_BYTES + object_store.FIRST_READ_BYTES) / num_bytes


def measure_manifest(num_shards: int) -> int:
    counts = dict.fromkeys(("num_rows", "num_tokens", "num_masked", "num_unpaired"), 10**7)
    entry = ShardEntry(file="train/shard-000000.arrow", sha256="0" * 64, num_bytes=10**8, **counts)
    return len(to_json({"splits": {"train": {"shards": [vars(entry)] * 1000}}})) * num_shards // 1000


# ---- a cluster ----


class SimulatedRay:
    """Stands for the module ray: workers on a clock that shows when the first of the running tasks ends."""

    def __init__(self, num_cpus: int, measure: Any) -> None:
        self.now, self.busy_seconds = 0.0, 0.0
        self._num_cpus, self._measure = num_cpus, measure
        self._free, self._ends = [0.0] * num_cpus, list[tuple[float, int]]()
        self._count, self._rng = 0, np.random.default_rng(0)

    def remote(self, **options: Any) -> Any:
        task = SimpleNamespace(remote=self._start)
        task.options = lambda **options: task
        return lambda function: task

    def _start(self, name: str, sent: Any, task: Any) -> int:
        seconds = self._measure(task) * float(self._rng.lognormal(0, _SPREAD))
        begin = max(heapq.heappop(self._free), self.now)
        heapq.heappush(self._free, begin + seconds)
        self._count += 1
        self.busy_seconds += seconds
        heapq.heappush(self._ends, (begin + seconds, self._count))
        return self._count

    def wait(self, refs: list[int], num_returns: int, timeout: float) -> tuple[list[int], list[int]]:
        if timeout:  # the first call waits, the second collects
            self.now = max(self.now, self._ends[0][0]) if self._ends else self.now
            return [0], []
        done = []
        while self._ends and self._ends[0][0] <= self.now:
            done.append(heapq.heappop(self._ends)[1])
        return done, []

    def get(self, ref: int) -> tuple[None, dict[str, str]]:
        return None, {}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": float(self._num_cpus)}}]


@contextmanager
def simulate(num_cpus: int, measure: Any) -> Iterator[tuple[Any, SimulatedRay]]:
    """An engine without its cluster. measure: the seconds of a task."""
    simulated = SimulatedRay(num_cpus, measure)
    engine = ray_engine.RayEngine.__new__(ray_engine.RayEngine)
    engine._ray, engine._cap, engine._running, engine._labels, engine._said = simulated, None, {}, {}, set()
    engine._run, engine._exceptions, engine._is_lost = simulated.remote()(None), SimpleNamespace(), False
    engine._exceptions.RayError = AssertionError
    with patch.multiple(engine, _check_head=lambda: None, _send=lambda job: ("", [])):
        yield engine, simulated


def run_stage(num_cpus: int, tasks: list[Any], measure: Any) -> tuple[float, float, float]:
    """Returns the seconds on the simulated cluster, those of the driver's loop, and the share of CPUs in use."""
    with simulate(num_cpus, measure) as (engine, simulated):
        began = time.process_time()
        for _ in engine.run(None, tasks):
            pass
        spent = time.process_time() - began
    return simulated.now, spent, simulated.busy_seconds / max(simulated.now * num_cpus, 1)


def measure_receipts(num_tasks: int) -> tuple[float, float, int]:
    """Seconds to add up so many receipts, to read them again when a build is resumed, and the bytes of one."""
    receipt, rng = Made(fingerprint="0" * 64, runs=["files-000000-000.run"]), np.random.default_rng(0)
    for sample in receipt.sizes.samples.values():
        sample.add(rng.integers(0, 2**63, 4096).astype(np.uint64), rng.integers(100, 10**6, 4096))
    receipt.counts.update(dict.fromkeys(("documents", "sentences", "text_bytes", "tokens", "train_rows"), 10**6))
    total, count = Made(), 200
    began = time.process_time()
    for _ in range(count):
        total.add(receipt)
    added = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "receipt.json")
        write_receipt(path, receipt)
        began = time.process_time()
        for _ in range(count):
            read_receipt(path, Made)
        return added / count * num_tasks, (time.process_time() - began) / count * num_tasks, path.stat().st_size


def measure_build(num_cpus: int, sizes: Sizes, steps: list[Step], partitions: tuple[int, ...], by_tasks: bool) -> str:
    """A row of the table: seconds; hours and CPUs in use from start to end, by the number of partitions of names."""
    num_runs, num_merges, num_shards = len(sizes.tasks), len(sizes.merges), sizes.num_shards
    num_answers = 2 * sizes.num_cuts / max(1, min(AT_ONCE, ceil(sizes.num_cuts / tasks.CUTS_OF_JOB)))
    found = (sizes.num_files / 1000 + sizes.num_files / AT_ONCE + num_answers) * ANSWER_SECONDS
    published = object_store.measure_publishing(num_shards, num_cpus, by_tasks=by_tasks)
    cleaned = object_store.measure_cleaning(2 * num_runs + num_merges + num_shards, in_batches=by_tasks)
    resumed = object_store.measure_resuming(num_runs, num_merges, num_shards, num_cpus, by_tasks=by_tasks)
    runs = [run_stage(num_cpus, step.tasks, step.measure) for step in steps]
    seconds = [found + sizes.plan_seconds, *(run[0] for run in runs), published, cleaned, resumed]
    text = f"{num_cpus:9,}" + "".join(f"{number:9,.0f}" for number in seconds)
    for number in partitions:
        limits = [step.requests.least_seconds(number) for step in steps]
        total = seconds[0] + published + cleaned + sum(map(max, limits, seconds[1:4]))
        text += f"{total / 3600:10.2f} h {sum(run[0] * run[2] for run in runs) / total:4.0%}"
    return text + f"{sum(run[1] for run in runs):9.1f}"


def describe_sizes(sizes: Sizes, steps: list[Step]) -> None:
    num_files, num_shards, num_bytes = sizes.num_files, sizes.num_shards, measure_manifest(sizes.num_shards)
    refused = ", which readers refuse" if num_bytes > MAX_BYTES else ""
    added, read, receipt_bytes = measure_receipts(len(sizes.tasks))
    click.echo(f"{sizes.num_bytes / TERABYTE:g} TB in {num_files:,} files, planned in {sizes.plan_seconds:.1f} s")
    click.echo(f"{num_shards:,} shards, a manifest of {num_bytes / 1e6:,.0f} MB{refused}")
    click.echo(f"receipts of {receipt_bytes / 1e3:.0f} kB, added up in {added:.0f} s, read in {read:.0f} s")
    for step in steps:
        click.echo(
            f"{step.name:8}{len(step.tasks):9,} tasks, {step.disk_bytes / 1e9:.1f} GB of local disk each; ", nl=False
        )
        click.echo(f"{step.over_read:.2f} bytes read of sorted runs for each that is kept")
    finding = StepRequests(num_files + 2 * sizes.num_cuts, ceil(num_files / 1000))
    publishing = StepRequests(num_shards, num_shards + ceil(num_shards / 1000))
    requests = {"find": finding, **{step.name: step.requests for step in steps}, "publish": publishing}
    for name, one in requests.items():
        click.echo(f"{name:8}{one.gets:12,} gets {one.puts:12,} puts {one.dollars:8.2f} $")
    click.echo(f"{'all':42}{sum(one.dollars for one in requests.values()):8.2f} $")


@click.command()
@click.option("--terabytes", type=float, default=20, show_default=True)
@click.option("--files", type=int, help="Files of equal size; by default of 1 GB.")
@click.option("--cpus", type=int, multiple=True, default=(100, 1000, 10_000), show_default=True)
@click.option(
    "--partitions", type=int, multiple=True, default=(1, 16), show_default=True, help="Of names in the store."
)
@click.option("--publish", type=click.Choice(["tasks", "command"]), default="tasks", show_default=True, help="By whom.")
@click.option("--ray", "ray_tasks", type=int, default=0, help="Also run so many empty tasks on a Ray of this machine.")
def main(
    terabytes: float,
    files: int | None,
    cpus: tuple[int, ...],
    partitions: tuple[int, ...],
    publish: str,
    ray_tasks: int,
) -> None:
    """Simulate a build, and print what it asks of a cluster and of a store."""
    num_files = files or max(1, round(terabytes * 1000))
    sizes = measure_plan(int(terabytes * TERABYTE), num_files)
    steps = list_steps(sizes)
    describe_sizes(sizes, steps)
    names = ("CPUs", "find", "map", "join", "merge", "publish", "clean", "resume")
    shares = "".join(f"{f'{number} part.':>12} used" for number in partitions)
    click.echo("".join(f"{name:>9}" for name in names) + shares + "   driver")
    for count in cpus:
        click.echo(measure_build(count, sizes, steps, partitions, publish == "tasks"))
    if ray_tasks:
        click.echo(f"Ray: {measure_ray(ray_tasks):.2f} ms for an empty task, with all {ray_tasks:,} handed out at once")


@dataclass(frozen=True)
class EmptyTask:
    number: int

    def describe(self) -> str:
        return f"empty task {self.number}"


def do_nothing(task: EmptyTask) -> None:
    pass


def measure_ray(count: int) -> float:
    """Milliseconds for each of so many empty tasks, if Ray has all of them at once."""
    with ray_engine.RayEngine() as engine, patch.object(ray_engine, "_LEAST_TASKS", count):
        list(engine.run(do_nothing, [EmptyTask(0)]))  # starts the workers
        began = time.perf_counter()
        for _ in engine.run(do_nothing, map(EmptyTask, range(count))):
            pass
        return (time.perf_counter() - began) / count * 1e3


if __name__ == "__main__":
    main()
