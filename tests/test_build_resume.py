"""A killed build resumes, makes the same bytes as one that was not killed, and repeats no finished work."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
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
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.jobs.work_folder import WorkFolder
from albert_data.pipeline import build_folder, steps
from albert_data.pipeline.build import BuildReport
from albert_data.tokenizer.model import Tokenizer

_replace = os.replace


# ---- killed ----


@pytest.mark.parametrize(
    "moment", [*(n / 6 for n in range(6)), *(pytest.param(n / 40, marks=pytest.mark.slow) for n in range(40))]
)
def test_a_build_killed_at_any_moment_resumes_to_the_same_bytes(moment: float, corpus: Corpus, tmp_path: Path):
    """A moment is a share of the build's work, measured by the files that are written."""
    out = tmp_path / "out"
    pid = fixtures.fork(lambda: corpus.build(out, MultiprocessEngine(2)))
    count = round(moment * count_written(corpus))
    fixtures.wait_until(lambda: count_there(out) >= count or (out / "manifest.json").exists())
    fixtures.kill_group(pid)
    corpus.build(out, MultiprocessEngine(2))
    check_finished(corpus, out)


def count_there(out: Path) -> int:
    """The number of files and folders below OUT, which may change at the same time."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(out))


def count_written(corpus: Corpus) -> int:
    """About how many files and folders are in OUT just before publishing."""
    return 8 + 2 * CORPUS_TASKS + 2 * (CORPUS_SHARDS + 1)


def test_a_build_killed_over_and_over_finishes(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    for count in range(6, 40, 6):
        pid = fixtures.fork(lambda: corpus.build(out, MultiprocessEngine(2)))
        fixtures.wait_until(lambda count=count: count_there(out) >= count or (out / "manifest.json").exists())
        fixtures.kill_group(pid)
    corpus.build(out)
    check_finished(corpus, out)


@pytest.mark.parametrize("number", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 30))])
def test_a_shuffle_in_two_stages_killed_at_random_resumes_to_the_same_bytes(
    number: int, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """On one machine and as on a cluster; killed twice, by the number of files that are there."""
    fixtures.shape_shuffle(monkeypatch, ("two stages", "two stages, windows")[number % 2])
    out, rng = tmp_path / "out", random.Random(number)
    engine = fixtures.SpanningProcesses() if rng.random() < 0.5 else MultiprocessEngine(2)
    for count in sorted(rng.sample(range(20, 60), 2)):
        pid = fixtures.fork(lambda: corpus.build(out, engine))
        fixtures.wait_until(lambda count=count: count_there(out) >= count or (out / "manifest.json").exists())
        fixtures.kill_group(pid)
    corpus.build(out, engine)
    check_finished(corpus, out)


def test_a_build_can_start_at_once_after_only_the_parent_of_another_was_killed(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    pid = fixtures.fork(lambda: corpus.build(out, MultiprocessEngine(2)))
    fixtures.wait_until(lambda: count_there(out) >= 8)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    corpus.build(out)
    check_finished(corpus, out)


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


class DiesAt:
    """os.replace for a process that dies at its n-th call, before it renames."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self, source: Any, target: Any) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        _replace(source, target)


def count_renames(corpus: Corpus, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    calls = []
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append(names), _replace(*names)))
    corpus.build(folder)
    monkeypatch.undo()
    return len(calls)


def die_in_build(corpus: Corpus, out: Path, name: str, fake: Callable[..., Any], **settings: Any) -> None:
    """Build in a process in which the function of that name is replaced by one that kills it."""

    def work() -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(name, fake)
            corpus.build(out, **settings)

    _, status = os.waitpid(fixtures.fork(work), 0)
    assert os.WIFSIGNALED(status), "it was not killed"


# Publishing renames the shards of both splits, the model, the card and the manifest.
PUBLISHED = CORPUS_SHARDS + 1 + 3


@pytest.mark.parametrize("from_end", range(PUBLISHED))
def test_a_build_killed_while_publishing_resumes_to_the_same_bytes(
    from_end: int, corpus: Corpus, tmp_path: Path, renames: int
):
    die_in_build(corpus, tmp_path / "out", "os.replace", DiesAt(renames - from_end))
    corpus.build(tmp_path / "out")
    check_finished(corpus, tmp_path / "out")


@pytest.fixture(scope="module")
def renames(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> int:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return count_renames(corpus, tmp_path_factory.mktemp("count") / "out", monkeypatch)


@pytest.mark.slow
def test_a_build_killed_at_any_rename_resumes_to_the_same_bytes(corpus: Corpus, tmp_path: Path, renames: int):
    for number in range(1, renames + 1):
        out = tmp_path / str(number)
        die_in_build(corpus, out, "os.replace", DiesAt(number))
        corpus.build(out)
        check_finished(corpus, out)


@pytest.mark.parametrize("name", ["pipeline.build_folder.BuildFolder.remove", "jobs.work_folder.WorkFolder.drop"])
def test_a_build_killed_during_its_cleanup_is_finished_and_cleaned_up(name: str, corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"

    def die_at_the_end(*_: Any, **__: Any) -> None:
        if (out / "manifest.json").exists():
            os.kill(os.getpid(), signal.SIGKILL)

    die_in_build(corpus, out, f"albert_data.{name}", die_at_the_end)
    assert (out / ".build/runs").exists()
    assert corpus.build(out).was_finished
    check_finished(corpus, out)


@pytest.mark.parametrize("from_end", range(PUBLISHED + 1))
def test_an_overwrite_killed_while_publishing_resumes(from_end: int, corpus: Corpus, tmp_path: Path, renames: int):
    out = tmp_path / "out"
    corpus.build(out, seed=5, validation_fraction=0.4)
    die_in_build(corpus, out, "os.replace", DiesAt(renames - from_end), overwrite=True)
    assert (out / "manifest.json").exists() == (from_end > PUBLISHED - 2)  # one more rename: of the old manifest's copy
    corpus.build(out, overwrite=from_end > PUBLISHED - 2)
    check_finished(corpus, out)


def test_work_of_another_plan_is_removed_even_if_the_removal_is_killed(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    interrupt(corpus, out, 5)
    drop = WorkFolder.drop

    def remove_half(work: WorkFolder, files: Any) -> None:
        if "" in files:  # the plan, which goes first
            return drop(work, files)
        for file in sorted((work.path / "runs").iterdir())[::2]:
            file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

    die_in_build(corpus, out, "albert_data.jobs.work_folder.WorkFolder.drop", remove_half, seed=5, overwrite=True)
    corpus.build(out)
    check_finished(corpus, out)


# ---- interrupted ----


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


def test_a_receipt_for_other_ranges_does_not_count(corpus: Corpus, tmp_path: Path):
    """A version that splits files in another way would leave such receipts."""
    out = tmp_path / "out"
    interrupt(corpus, out, 5)
    with pytest.MonkeyPatch.context() as monkeypatch:
        fixtures.make_tasks_small(monkeypatch, fixtures.CORPUS_TASK_BYTES // 2)
        assert corpus.build(out).resumed_tasks == 0
    check_finished(corpus, out)


@pytest.mark.parametrize("content", ["", "{}", "[]", "{", "[" * 10**5, '{"values": {}, "sha256": 1}', None])
@pytest.mark.parametrize("results", [5, CORPUS_TASKS + 2], ids=["tasks", "shards"])
def test_a_damaged_receipt_counts_as_missing(results: int, content: str | None, corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    interrupt(corpus, out, results)
    for path in (out / ".build").rglob("receipts/*.json"):
        changed = path.read_text().replace("0", "1") if content is None else content
        path.write_text(changed)
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
