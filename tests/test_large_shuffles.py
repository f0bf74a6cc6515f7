"""What keeps files and reads of very large builds few changes no byte."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import InlineEngine, digest_folder, run_build

from albert_data.corpus import tasks
from albert_data.corpus.inputs import Input
from albert_data.pipeline import mapping, shard_plan, sorted_runs, steps
from albert_data.pipeline.shard_plan import group_tasks
from albert_data.tokenizer.model import Tokenizer


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks():
        yield


@pytest.mark.parametrize("options", [{}, {"pairs": "nsp"}, {"keep_duplicates": True}, {"validation_fraction": 1e-9}])
def test_shards_that_are_written_in_groups_have_the_same_bytes(
    options: dict[str, Any], tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As on a cluster with very many runs and shards: tasks merge their runs, and groups of shards fetch their rows."""
    documents = fixtures.make_documents(60, seed=5)
    fixtures.write_corpus(tmp_path / "in", [*documents, *documents[:20]], "mixed", random.Random(0))
    run_build(tmp_path / "in", tmp_path / "plain", tokenizer, num_shards=7, **options)
    monkeypatch.setattr(mapping, "RUN_BYTES", 1 << 10)
    monkeypatch.setattr(sorted_runs, "MERGE_BYTES", 1 << 12)
    monkeypatch.setattr(steps, "group_tasks", lambda tasks, num_runs: group_tasks(tasks, num_runs, 2 * num_runs * 3))
    grouped: list[int] = []

    class Merging(InlineEngine):
        spans_machines = True

        def run(self, job: Any, tasks: Any) -> Any:
            for task, result in super().run(job, tasks):
                grouped.extend([len(task.tasks)] if hasattr(task, "tasks") else [])
                if not hasattr(task, "tasks"):
                    assert len(result.runs) <= 1
                yield task, result

    run_build(tmp_path / "in", tmp_path / "grouped", tokenizer, Merging(), num_shards=7, **options)
    assert digest_folder(tmp_path / "grouped") == digest_folder(tmp_path / "plain")
    assert max(grouped) == 3


def test_groups_keep_the_reads_below_the_limit():
    for num_runs, num_shards in ((1, 1), (20_000, 5000), (20_000, 400_000), (30, 400_000)):
        tasks = shard_plan.plan_shards("train", 1, num_shards, 1) + shard_plan.plan_shards("validation", 1, 3, 1)
        groups = group_tasks(tasks, num_runs)
        assert [task for group in groups for task in group.tasks] == tasks
        assert all(len({task.split for task in group.tasks}) == 1 for group in groups)
        assert len(groups) == len(tasks) or 2 * num_runs * len(groups) <= shard_plan.MOST_READS + 2 * num_runs * 2


def test_tasks_stay_below_ten_thousand_or_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.txt").touch()
    monkeypatch.setattr(tasks, "find_document", lambda file, format, at, size: at)
    for total, most in ((10**9, 300), (10**12, 10_500), (2 * 10**13, 10_500)):
        path = str(tmp_path / "a.txt")
        one = Input(path=path, format="txt", compression=None, size=total // 50, modified_ns=0)
        made = tasks.plan_tasks([one] * 50)
        assert sum(task.num_bytes for task in made) == total
        assert len(made) < most
