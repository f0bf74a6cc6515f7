"""A killed build resumes, makes the same bytes as one that was not killed, and repeats no finished work."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import (
    CORPUS_DOCUMENTS,
    CORPUS_SHARDS,
    CORPUS_TASKS,
    Corpus,
    InterruptedEngine,
    check_finished,
    digest_folder,
    interrupt,
    run_build,
)

from albert_data.errors import OutputError
from albert_data.jobs.engine import Engine, MultiprocessEngine
from albert_data.jobs.work_folder import WorkFolder
from albert_data.pipeline import build_folder, steps
from albert_data.pipeline.build import BuildReport
from albert_data.tokenizer.model import Tokenizer

# ---- killed ----


def kill_build(corpus: Corpus, out: Path, num_files: int, engine: Engine, kill: Callable[[int], None]) -> None:
    """Kill a build when that many files and folders are in OUT, which stand for a share of its work."""
    pid = fixtures.fork(lambda: corpus.build(out, engine))
    fixtures.wait_until(lambda: count_there(out) >= num_files or (out / "manifest.json").exists())
    kill(pid)


def count_there(out: Path) -> int:
    """The number of files and folders below OUT, which may change at the same time."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(out))


# About how many files and folders are in OUT just before publishing.
WRITTEN = 8 + 2 * CORPUS_TASKS + 2 * (CORPUS_SHARDS + 1)


@pytest.mark.parametrize(
    "moment", [*(n / 4 for n in range(4)), *(pytest.param(n / 40, marks=pytest.mark.slow) for n in range(40))]
)
def test_a_build_killed_at_any_moment_resumes_to_the_same_bytes(moment: float, corpus: Corpus, tmp_path: Path):
    """A moment is a share of the build's work, measured by the files that are written."""
    out, engine = tmp_path / "out", MultiprocessEngine(2)
    kill_build(corpus, out, round(moment * WRITTEN), engine, fixtures.kill_group)
    corpus.build(out, engine)
    check_finished(corpus, out)


@pytest.mark.parametrize("number", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 30))])
def test_a_build_killed_over_and_over_with_any_shuffle_finishes(
    number: int, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """On one machine and as on a cluster."""
    if number % 3:
        fixtures.shape_shuffle(monkeypatch, ("two stages", "two stages, windows")[number % 3 - 1])
    out, rng = tmp_path / "out", random.Random(number)
    engine = fixtures.SpanningProcesses() if rng.random() < 0.5 else MultiprocessEngine(2)
    for num_files in sorted(rng.sample(range(6, 60), 3)):
        kill_build(corpus, out, num_files, engine, fixtures.kill_group)
    corpus.build(out, engine)
    check_finished(corpus, out)


def test_a_build_can_start_at_once_after_only_the_parent_of_another_was_killed(corpus: Corpus, tmp_path: Path):
    def kill_parent(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    kill_build(corpus, tmp_path / "out", 8, MultiprocessEngine(2), kill_parent)
    corpus.build(tmp_path / "out")
    check_finished(corpus, tmp_path / "out")


@pytest.mark.slow
def test_a_build_killed_at_any_rename_resumes_to_the_same_bytes(corpus: Corpus, tmp_path: Path):
    """test_build_publishing does this with each change of the disk, but only from the beginning of publishing."""
    rename = os.replace

    def build_and_die(out: Path, number: int) -> None:
        numbers = count(1)

        def die_or_rename(source: Any, target: Any) -> None:
            if next(numbers) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            rename(source, target)

        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(os, "replace", die_or_rename)
            corpus.build(out)

    for number in count(1):
        out = tmp_path / str(number)
        pid = fixtures.fork(lambda out=out, number=number: build_and_die(out, number))
        if not os.WIFSIGNALED(os.waitpid(pid, 0)[1]):
            break  # it has fewer renames
        corpus.build(out)
        check_finished(corpus, out)
    assert number > CORPUS_TASKS + CORPUS_SHARDS


def test_work_of_another_plan_is_removed_even_if_the_removal_is_killed(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out, drop = tmp_path / "out", WorkFolder.drop
    interrupt(corpus, out, 5)

    def remove_half(work: WorkFolder, files: Any) -> None:
        if "" in files:  # the plan, which goes first
            return drop(work, files)
        for file in sorted((work.path / "runs").iterdir())[::2]:
            file.unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "drop", remove_half)
        interrupt(corpus, out, 0, seed=5, overwrite=True)
    assert corpus.build(out).resumed_tasks == 0
    check_finished(corpus, out)


# ---- interrupted ----

KINDS: dict[str, dict[str, Any]] = {
    "copies": {"num_shards": 4},
    "copies that are kept": {"keep_duplicates": True, "dupe_factor": 2},
    "near-duplicates": {"drop_near_duplicates": True, "num_shards": 4},
    "groups": {"group_field": "book", "validation_fraction": 0.3},
    "groups, moved": {"group_field": "book", "seed": 1},
    "selected": {"where": "number < 40"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_build_resumes_to_the_same_bytes_and_counts(kind: str, tokenizer: Tokenizer, tmp_path: Path):
    """The counts are of documents in finished shards too."""
    texts = CORPUS_DOCUMENTS[:50]
    texts = [*texts, *texts[:20], *texts[15:25], *(f"{text}\nRead by me." for text in texts[::3])]
    records = [{"text": text, "book": number % 9, "number": number % 60} for number, text in enumerate(texts)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with fixtures.small_tasks(1 << 12):
        counts = run_build(tmp_path / "in.jsonl", tmp_path / "whole", tokenizer, **KINDS[kind]).manifest.counts
        for results in count(1, 3):
            out = tmp_path / str(results)
            try:
                run_build(tmp_path / "in.jsonl", out, tokenizer, InterruptedEngine(results), **KINDS[kind])
                break  # it has fewer tasks
            except KeyboardInterrupt:
                run_build(tmp_path / "in.jsonl", out, tokenizer, **KINDS[kind])
                assert digest_folder(out) == digest_folder(tmp_path / "whole")
    assert results > 8
    assert (counts.duplicate_documents is None) == ("kept" in kind)
    assert bool(counts.near_duplicate_documents) == ("near" in kind)
    assert bool(counts.moved_documents) == (KINDS[kind].get("validation_fraction") is None)


def test_finished_tasks_are_not_done_again(corpus: Corpus, tmp_path: Path):
    interrupt(corpus, tmp_path / "out", 5)
    assert corpus.build(tmp_path / "out").resumed_tasks == 5
    check_finished(corpus, tmp_path / "out")


def test_finished_shards_are_not_made_again(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    interrupt(corpus, tmp_path / "out", CORPUS_TASKS + 2)
    made = []
    inner = steps.ReduceJob.__call__

    def count(self: steps.ReduceJob, group: Any) -> Any:
        made.extend(task.file for task in group.tasks)
        return inner(self, group)

    monkeypatch.setattr(steps.ReduceJob, "__call__", count)
    assert corpus.build(tmp_path / "out").resumed_tasks == CORPUS_TASKS
    assert len(made) == CORPUS_SHARDS + 1 - 2
    check_finished(corpus, tmp_path / "out")


# ---- what is not trusted ----


def test_files_from_before_a_restart_of_the_machine_are_not_trusted(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Sorted runs are not synced, so after a power loss they may be full of zeros."""
    out = tmp_path / "out"
    interrupt(corpus, out, results=2)
    for run in (out / ".build" / "runs").iterdir():
        run.write_bytes(bytes(run.stat().st_size))
    monkeypatch.setattr(build_folder, "_boot_id", lambda: "another")
    assert corpus.build(out).resumed_tasks == 0
    check_finished(corpus, out)


def test_a_truncated_run_stops_the_build(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    interrupt(corpus, out, results=2)
    run = next((out / ".build" / "runs").glob("*.run"))
    run.write_bytes(run.read_bytes()[:-10])
    with pytest.raises(OutputError, match="is cut short; start again with --overwrite"):
        corpus.build(out)


def test_a_receipt_for_other_ranges_does_not_count(corpus: Corpus, tmp_path: Path):
    """A version that splits files in another way would leave such receipts."""
    out = tmp_path / "out"
    interrupt(corpus, out, 5)
    with fixtures.small_tasks(fixtures.CORPUS_TASK_BYTES // 2):
        assert corpus.build(out).resumed_tasks == 0
    check_finished(corpus, out)


@pytest.mark.parametrize("results", [5, CORPUS_TASKS + 2], ids=["tasks", "shards"])
def test_a_damaged_receipt_counts_as_missing(results: int, corpus: Corpus, tmp_path: Path):
    """test_receipts knows other damage."""
    out = tmp_path / "out"
    interrupt(corpus, out, results)
    for path in (out / ".build").rglob("receipts/*.json"):
        path.write_text(path.read_text().replace("0", "1"))
    assert corpus.build(out).resumed_tasks == 0
    check_finished(corpus, out)


def test_a_task_whose_run_is_missing_is_done_again(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    interrupt(corpus, out, 5)
    next((out / ".build/runs").iterdir()).unlink()
    assert corpus.build(out).resumed_tasks == 4
    check_finished(corpus, out)


def test_changed_blocks_of_stdin_are_done_again(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    changed = [*CORPUS_DOCUMENTS[:25], "Something else altogether.", *CORPUS_DOCUMENTS[30:]]

    def build_stdin(documents: list[str], name: str, engine: Any = None) -> BuildReport:
        fixtures.set_stdin(monkeypatch, fixtures.to_jsonl(documents))
        return run_build("-", tmp_path / name, tokenizer, engine)

    fixtures.make_tasks_small(monkeypatch)
    build_stdin(changed, "fresh")
    with pytest.raises(KeyboardInterrupt):
        build_stdin(CORPUS_DOCUMENTS, "resumed", InterruptedEngine(5))
    resumed = build_stdin(changed, "resumed").resumed_tasks
    assert 0 < resumed < 5
    assert digest_folder(tmp_path / "resumed") == digest_folder(tmp_path / "fresh")


def test_a_vocabulary_that_was_trained_is_not_trained_again(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_build(corpus.path, out, None, InterruptedEngine(CORPUS_TASKS + 2))
    monkeypatch.setattr(steps, "learn_vocabulary", None)
    assert run_build(corpus.path, out, None).resumed_tasks == 2
    assert run_build(corpus.path, out, None).was_finished
