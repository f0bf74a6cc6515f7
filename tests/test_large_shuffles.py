"""What keeps files and reads of very large builds few changes no byte."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import InlineEngine, digest_folder, run_build

from albert_data.corpus import tasks
from albert_data.corpus.inputs import Input
from albert_data.jobs.engine import Engine
from albert_data.pipeline import shard_plan, shuffle
from albert_data.pipeline.shuffle import Shuffle, group_tasks, plan_joins
from albert_data.shards.manifest import SPLITS
from albert_data.tokenizer.model import Tokenizer


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 12):
        yield


Build = Callable[[Path, Engine | None], object]


SETTINGS: dict[str, dict[str, int]] = {"plain": {}, "one shard": {"num_shards": 1}}


def plan_build(kind: str, folder: Path, tokenizer: Tokenizer) -> Build:
    """A corpus with copies, and what builds it into a folder."""
    documents = fixtures.make_documents(48, seed=5)
    fixtures.write_corpus(folder / "in", [*documents, *documents[:20]], "mixed", random.Random(0))
    settings = {"num_shards": 7, **SETTINGS[kind]}
    return lambda out, engine: run_build(folder / "in", out, tokenizer, engine, **settings)


@pytest.mark.parametrize("kind", SETTINGS)
def test_rows_that_go_another_way_make_the_same_bytes(kind, tokenizer, tmp_path, monkeypatch):
    build = plan_build(kind, tmp_path, tokenizer)
    build(tmp_path / "direct", None)
    files = digest_folder(tmp_path / "direct")
    for number, name in enumerate(fixtures.SHUFFLES):
        fixtures.shape_shuffle(monkeypatch, name)
        engine = fixtures.SpanningEngine() if number % 2 else InlineEngine()
        build(tmp_path / name, engine)
        assert digest_folder(tmp_path / name) == files, name


class Watching(fixtures.SpanningEngine):
    """Keeps the tasks, their results and the names of the joined runs that were made."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self.tasks, self.results = defaultdict[str, list[Any]](list), defaultdict[str, list[Any]](list)

    def run(self, job: Any, tasks: Any) -> Any:
        for task, result in super().run(job, tasks):
            self.tasks[type(job).__name__].append(task)
            self.results[type(job).__name__].append(result)
            yield task, result
        self.merged = sorted(path.name for path in self._work.glob("runs/*-joined.run"))


@pytest.mark.parametrize("name", fixtures.SHUFFLES)
def test_each_row_is_in_one_merged_run_and_each_group_reads_a_window_at_a_time(name, tokenizer, tmp_path, monkeypatch):
    build = plan_build("plain", tmp_path, tokenizer)
    fixtures.shape_shuffle(monkeypatch, name)
    engine = Watching(tmp_path / "out/.build")
    build(tmp_path / "out", engine)
    window, num_batches, num_ranges = fixtures.SHUFFLES[name]
    merges = engine.tasks["JoinRuns"]
    assert engine.merged == sorted(task.name for task in merges)
    ranges = {(task.split, task.low, task.high) for task in merges}
    num_runs = sum(len(receipt.runs) for receipt in engine.results["PreparedJob"])
    assert num_runs > 5
    names = [name for receipt in engine.results["PreparedJob"] for name in receipt.runs] + engine.merged
    # A store divides its keys between machines by how they begin. Two of these hashes may begin alike by chance.
    assert len({name[:4] for name in names}) > 0.7 * len(names)
    assert len(merges) == len(ranges) * (num_batches and -(-num_runs // -(-num_runs // num_batches)))
    assert num_ranges <= len(ranges) <= num_ranges + 1
    for split in SPLITS:
        bounds = sorted((low, high + 1) for name, low, high in ranges if name == split)
        assert [end for _, end in bounds[:-1]] == [low for low, _ in bounds[1:]]
        assert not bounds or (bounds[0][0], bounds[-1][1]) == (0, 2**64)
    groups = [group for group in engine.tasks["MergeRows"] if group.split == "train"]
    assert max(len(group.tasks) for group in groups) == max(1, int(window))
    assert all(bool(group.window_keys) == bool(window) for group in groups)


@pytest.mark.parametrize("name", ["one stage", "two stages", "two stages, windows"])
def test_an_interrupted_shuffle_resumes_where_it_was(name, tokenizer, tmp_path, monkeypatch):
    build = plan_build("plain", tmp_path, tokenizer)
    build(tmp_path / "direct", None)
    fixtures.shape_shuffle(monkeypatch, name)
    whole = Watching(tmp_path / "whole/.build")
    build(tmp_path / "whole", whole)
    counts = {job: len(tasks) for job, tasks in whole.tasks.items()}
    for results in range(counts["PreparedJob"] - 1, sum(counts.values()), 7):
        out = tmp_path / str(results)
        interrupted = fixtures.InterruptedEngine(results)
        interrupted.spans_machines = True
        with pytest.raises(KeyboardInterrupt):
            build(out, interrupted)
        resumed = Watching(out / ".build")
        build(out, resumed)
        assert digest_folder(out) == digest_folder(tmp_path / "direct")
        assert sum(map(len, resumed.tasks.values())) <= sum(counts.values()) - results + 1


def test_merged_runs_of_other_runs_are_not_taken(tokenizer, tmp_path, monkeypatch):
    """As a build of another config leaves them, or of inputs that changed."""
    fixtures.shape_shuffle(monkeypatch, "two stages")
    names = list[set[str]]()
    for seed in (1, 2):
        engine = Watching(tmp_path / f"{seed}/.build")
        fixtures.write_corpus(tmp_path / "in", fixtures.make_documents(60, seed=5), "txt", random.Random(0))
        run_build(tmp_path / "in", tmp_path / str(seed), tokenizer, engine, num_shards=7, seed=seed)
        names.append(set(engine.merged))
    assert names[0].isdisjoint(names[1])


# ---- sizes ----

TEXT_TO_ROWS = 0.65


@pytest.mark.parametrize(
    ("terabytes", "num_runs", "num_stages", "most_reads", "most_disk"),
    [
        (0.002, 85, 0, 10_000, 0),
        (1, 2_150, 1, 2.1e6, 1.5e9),
        (5, 9_450, 2, 4.1e6, 0.4e9),
        (100, 10_200, 2, 4.2e6, 6.8e9),
        (20, 60_000, 2, 4.2e6, 3.3e9),  # compressed files, each of which is a task
        (1e-6, 1, 0, 4, 0),
    ],
)
def test_reads_and_local_disks_are_bounded_at_any_size(terabytes, num_runs, num_stages, most_reads, most_disk):
    num_bytes = int(terabytes * 1e12 * TEXT_TO_ROWS)
    tasks = shard_plan.plan_split("validation", num_bytes // 200, None, num_bytes // 200)
    tasks += shard_plan.plan_split("train", num_bytes, min(num_bytes // 2**25 + 1, 50_000), num_bytes)
    plan = Shuffle.plan([task.num_bytes for task in tasks], num_runs)
    groups = group_tasks(tasks, plan)
    assert [task for group in groups for task in group.tasks] == tasks
    assert all(len({task.split for task in group.tasks}) == 1 for group in groups)
    assert (plan.num_batches > 0, plan.window_bytes > 0) == (num_stages == 2, num_stages > 0)
    rows = {"train": 200, "validation": 1}
    merges = plan_joins(plan, [str(number) for number in range(num_runs)], rows, "seal") if num_stages == 2 else []
    reads = 2 * sum(len(task.runs) for task in merges) + 2 * (plan.num_batches or num_runs) * len(groups)
    assert reads <= most_reads
    assert plan.num_reads == pytest.approx(reads, rel=0.1)
    disk = max([sum(task.num_bytes for task in group.tasks) for group in groups if group.window_keys], default=0)
    assert disk <= most_disk
    assert len(merges) <= 10_500
    assert len(groups) <= (30_000 if num_stages else len(tasks))


def test_more_shards_than_rows_can_be_planned(monkeypatch):
    monkeypatch.setattr(shuffle, "MOST_READS", 10)
    tasks = shard_plan.plan_split("train", 1, 20, 1)
    assert [group.tasks for group in group_tasks(tasks, Shuffle.plan([task.num_bytes for task in tasks], 3))] == [
        (task,) for task in tasks
    ]


def test_shards_that_are_left_stay_in_their_groups():
    tasks = shard_plan.plan_split("train", 10**10, None, 10**10)
    plan = Shuffle(window_bytes=10**9)
    groups = {task: group.tasks[0].shard for group in group_tasks(tasks, plan) for task in group.tasks}
    left = random.Random(0).sample(tasks, 50)
    left.sort(key=lambda task: task.shard)
    for group in group_tasks(left, plan):
        assert len({groups[task] for task in group.tasks}) == 1


@pytest.mark.parametrize(
    ("slices", "num_shards", "wanted"),
    [(40_000, None, (40_000, 4)), (40_001, None, (40_000, 5)), (400_000, 100_000, (100_000, 16))],
)
def test_shards_grow_where_a_split_would_have_more_than_forty_thousand(slices, num_shards, wanted):
    made = shard_plan.plan_split("train", slices << 25, num_shards, slices << 26)
    assert [task.shard for task in made] == list(range(len(made)))
    assert all(task.slice_bytes <= 2 * shard_plan.SLICE_BYTES for task in made)
    assert (len(made), made[0].num_slices) == wanted


def test_tasks_grow_so_that_they_stay_few(tmp_path, monkeypatch):
    (tmp_path / "a.txt").touch()
    monkeypatch.setattr(tasks, "find_document", lambda file, format, at, stop, size, mark: at)
    monkeypatch.setattr(tasks, "_MIN_TASK_BYTES", 4 << 20)
    for gigabytes, wanted in ((1, 120), (50, 2110), (1000, 2150), (5000, 9450), (20_000, 10_200)):
        path, total = str(tmp_path / "a.txt"), gigabytes * 10**9
        one = Input(path=path, format="txt", compression=None, size=total // 50, modified_ns=0)
        made = tasks.plan_tasks([one] * 50)
        assert sum(task.num_bytes for task in made) == total
        assert len(made) == pytest.approx(wanted, rel=0.05)
