"""`python -m benchmarks.cluster`: what a build of terabytes asks of a cluster, by simulation. Nothing is built.

Real are the plan of the tasks, the loop of `RayEngine` and the sums over receipts: their seconds are measured. Ray and
the nodes are replaced by workers whose tasks take time by formula, on a simulated clock. What Ray itself adds for each
task must be measured on a cluster: `--ray` does it with empty tasks on this machine.
"""

from __future__ import annotations

import heapq
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
from albert_data.jobs.ray_worker import RESULT, TaskAnswer
from albert_data.jobs.receipts import read_receipt, write_receipt
from albert_data.pipeline import shard_plan
from albert_data.pipeline.receipts import TaskReceipt
from albert_data.pipeline.shuffle import MergedRun, ReduceGroup, Shuffle, group_tasks, plan_merges
from albert_data.storage import objects

TERABYTE = 10**12
MAP_RATE = 25e6  # bytes of text a second on a core, as measured by `python -m benchmarks`, less what a store costs
REDUCE_RATE = 60e6  # bytes of rows a second on a core; a task that copies them to its disk reads and writes them twice
ROWS_BYTES = 0.65  # Arrow bytes for each byte of English text: 0.23 tokens of 2 bytes, masks, heads
READ_BYTES = 8 << 20  # asked for at once from a store
GET_DOLLARS, PUT_DOLLARS = 0.4e-6, 5e-6  # S3 Standard in us-east-1; copies and listings cost as much as a put
_SPREAD = 0.15  # of the time of equal tasks: nodes differ


@dataclass(frozen=True)
class Sizes:
    """What a corpus makes, one sorted run a map task. merges, groups: tasks of the merge and the reduce step."""

    tasks: list[ReadTask]
    num_shards: int
    shuffle: Shuffle
    merges: list[MergedRun]
    groups: list[ReduceGroup]
    plan_seconds: float


def measure_plan(num_bytes: int, num_files: int) -> Sizes:
    """Plan files of equal size. Only the search for the ends of documents is left out: one read for each cut."""
    began = time.perf_counter()
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file, patch.object(tasks, "find_document", _cut_there):
        one = Input(path=file.name, format="jsonl", compression=None, size=num_bytes // num_files, modified_ns=0)
        made = tasks.plan_tasks([one] * num_files)
    shards = shard_plan.plan_shards("train", int(num_bytes * ROWS_BYTES), None, int(num_bytes * ROWS_BYTES))
    plan = Shuffle.plan(shards, len(made))
    merges = plan_merges(plan, [task.name for task in made], {"train": 1}, "") if plan.num_batches else []
    return Sizes(made, len(shards), plan, merges, group_tasks(shards, plan), time.perf_counter() - began)


def _cut_there(file: Any, format: str, at: int, size: int) -> int:
    return at


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

    def get(self, ref: int) -> TaskAnswer:
        return TaskAnswer(kind=RESULT, value=None)

    def nodes(self) -> list[dict[str, Any]]:
        names = dict.fromkeys(("NodeID", "NodeManagerHostname", "NodeManagerAddress"), "node")
        return [{"Alive": True, "Resources": {"CPU": float(self._num_cpus)}, **names}]


@contextmanager
def simulate(num_cpus: int, measure: Any) -> Iterator[tuple[Any, SimulatedRay]]:
    """An engine without its cluster. measure: the seconds of a task."""
    simulated = SimulatedRay(num_cpus, measure)
    engine = ray_engine.RayEngine.__new__(ray_engine.RayEngine)
    engine._ray, engine._cap, engine._running, engine._labels, engine._said = simulated, None, {}, {}, set()
    engine._run, engine._exceptions, engine._is_lost = simulated.remote()(None), SimpleNamespace(), False
    for name in ("RayTaskError", "OutOfMemoryError", "RayError"):
        setattr(engine._exceptions, name, AssertionError)
    engine._title, engine._slowest_seconds, engine._nodes = "", 0.0, ray_engine.ClusterNodes(simulated, {})
    nothing = {"_check_head": lambda: None, "_send": lambda job: ("", []), "_prepare": lambda name, sent: None}
    with patch.multiple(engine, _ask_for_cpus=lambda count: None, **nothing):
        yield engine, simulated


def run_stage(num_cpus: int, tasks: list[Any], measure: Any) -> tuple[float, float, float]:
    """Returns the seconds on the simulated cluster, those of the driver's loop, and the share of CPUs in use."""
    with simulate(num_cpus, measure) as (engine, simulated):
        began = time.perf_counter()
        for _ in engine.run(None, tasks):
            pass
        spent = time.perf_counter() - began
    return simulated.now, spent, simulated.busy_seconds / max(simulated.now * num_cpus, 1)


def measure_receipts(num_tasks: int) -> tuple[float, float, int]:
    """Seconds to add up so many receipts, to read them again when a build is resumed, and the bytes of one."""
    receipt, rng = TaskReceipt(fingerprint="0" * 64, runs=["files-000000-000.run"]), np.random.default_rng(0)
    for sample in receipt.samples.values():
        sample.add(rng.integers(0, 2**63, 4096).astype(np.uint64), rng.integers(100, 10**6, 4096))
    receipt.counts.update(dict.fromkeys(("documents", "sentences", "text_bytes", "tokens", "train_rows"), 10**6))
    total, count = TaskReceipt(), 200
    began = time.perf_counter()
    for _ in range(count):
        total.add(receipt)
    added = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "receipt.json")
        write_receipt(path, receipt.to_values())
        began = time.perf_counter()
        for _ in range(count):
            TaskReceipt.from_values(read_receipt(path) or {})
        return added / count * num_tasks, (time.perf_counter() - began) / count * num_tasks, path.stat().st_size


def count_puts(num_bytes: float) -> int:
    """Requests that write an object: one, or an upload's parts, its begin and its end."""
    return 1 if num_bytes < objects.PART_BYTES else 2 + -int(-num_bytes // objects.PART_BYTES)


def count_requests(num_bytes: int, num_files: int, sizes: Sizes) -> dict[str, tuple[int, int]]:
    """Gets and puts of a build whose text, runs and shards all lie in a store of objects."""
    run_bytes = num_bytes * ROWS_BYTES / len(sizes.tasks)
    shard_bytes = num_bytes * ROWS_BYTES / sizes.num_shards
    return {
        "list the files": (0, -(-num_files // 1000)),
        "cut the files": (len(sizes.tasks), 0),
        "read the text": (-(-num_bytes // READ_BYTES) + len(sizes.tasks), 0),
        "write runs, receipts": (0, len(sizes.tasks) * (count_puts(run_bytes) + 1)),
        "read ranges of runs": (sizes.shuffle.num_reads, 0),
        "write merged runs": (
            0,
            len(sizes.merges) and len(sizes.merges) * count_puts(num_bytes * ROWS_BYTES / len(sizes.merges)),
        ),
        "write shards, receipts": (0, sizes.num_shards * (count_puts(shard_bytes) + 1)),
        "publish": (0, sizes.num_shards),
    }


@click.command()
@click.option("--terabytes", type=float, default=20, show_default=True)
@click.option("--files", type=int, default=20_000, show_default=True, help="Files of equal size.")
@click.option("--cpus", type=int, multiple=True, default=(100, 1000, 10_000), show_default=True)
@click.option("--ray", "ray_tasks", type=int, default=0, help="Also run so many empty tasks on a Ray of this machine.")
def main(terabytes: float, files: int, cpus: tuple[int, ...], ray_tasks: int) -> None:
    """Simulate a build, and print what it asks of a cluster and of a store."""
    num_bytes = int(terabytes * TERABYTE)
    sizes = measure_plan(num_bytes, files)
    added, read, receipt_bytes = measure_receipts(len(sizes.tasks))
    click.echo(f"{terabytes:g} TB in {files:,} files: {len(sizes.tasks):,} map tasks; {sizes.num_shards:,} shards")
    click.echo(f"in {len(sizes.groups):,} tasks, after {len(sizes.merges):,} that merge; ", nl=False)
    click.echo(f"planned in {sizes.plan_seconds:.1f} s")
    click.echo(
        f"receipts of map tasks: {receipt_bytes / 1e3:.0f} kB each, added up in {added:.0f} s, read in {read:.0f} s"
    )
    click.echo("     CPUs       map    in use     merge    in use    reduce    in use    driver")
    shard_seconds = num_bytes * ROWS_BYTES / sizes.num_shards * (1 + bool(sizes.shuffle.window_bytes)) / REDUCE_RATE
    merge_seconds = 2 * num_bytes * ROWS_BYTES / max(1, len(sizes.merges)) / REDUCE_RATE
    for count in cpus:
        mapped, map_driver, map_share = run_stage(count, sizes.tasks, lambda task: task.num_bytes / MAP_RATE)
        merged, merge_driver, merge_share = run_stage(count, sizes.merges, lambda task: merge_seconds)
        reduced, reduce_driver, reduce_share = run_stage(
            count, sizes.groups, lambda group: len(group.tasks) * shard_seconds
        )
        driver = map_driver + merge_driver + reduce_driver + added
        stages = ((mapped, map_share), (merged, merge_share), (reduced, reduce_share))
        columns = "".join(f"{seconds:8,.0f} s {share:8.0%}" for seconds, share in stages)
        click.echo(f"{count:9,}{columns} {driver:8,.1f} s")
    requests = count_requests(num_bytes, files, sizes)
    for what, (gets, puts) in requests.items():
        click.echo(f"{what:24} {gets:12,} gets {puts:12,} puts")
    gets, puts = (sum(column) for column in zip(*requests.values(), strict=True))
    click.echo(f"{'all':24} {gets:12,} gets {puts:12,} puts: ${gets * GET_DOLLARS + puts * PUT_DOLLARS:,.0f}")
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
    with ray_engine.RayEngine() as engine, patch.object(ray_engine, "_TASKS_PER_CPU", count):
        list(engine.run(do_nothing, [EmptyTask(0)]))  # starts the workers
        began = time.perf_counter()
        for _ in engine.run(do_nothing, map(EmptyTask, range(count))):
            pass
        return (time.perf_counter() - began) / count * 1e3


if __name__ == "__main__":
    main()
