"""A killed build resumes to the same bytes and repeats no work; a finished one is accepted, or replaced on request."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import (
    CORPUS_DOCUMENTS,
    CORPUS_SHARDS,
    CORPUS_TASK_BYTES,
    CORPUS_TASKS,
    Corpus,
    InlineEngine,
    InterruptedEngine,
    build_documents,
    check_finished,
    digest_folder,
    interrupt,
    run_build,
)
from refusals import check_refused, refused

from albert_data.errors import InputError, OutputError
from albert_data.jobs import work_folder
from albert_data.jobs.engine import Engine, MultiprocessEngine
from albert_data.pipeline import steps
from albert_data.pipeline.build import BuildReport
from albert_data.pipeline.build_folder import BuildFolder
from albert_data.pipeline.plan import find_other
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


# ---- killed ----


def kill_build(
    corpus: Corpus, out: Path, num_files: int, engine: Engine, kill: Callable[[int], None] = fixtures.kill_group
) -> int:
    """Kill a build when that many files and folders are in OUT, which stand for a share of its work."""

    def has_worked() -> bool:
        num_there = sum(len(folders) + len(files) for _, folders, files in os.walk(out))
        return num_there >= num_files or (out / "manifest.json").exists()

    pid = fixtures.fork(lambda: corpus.build(out, engine))
    fixtures.wait_until(has_worked)
    kill(pid)
    return pid


@pytest.mark.parametrize("number", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 40))])
def test_a_build_killed_at_any_moment_resumes_to_the_same_bytes(number, corpus, out, monkeypatch):
    """Several times, with any shuffle, on one machine and as on a cluster."""
    if number % 3:
        fixtures.shape_shuffle(monkeypatch, ("two stages", "two stages, windows")[number % 3 - 1])
    rng = random.Random(number)
    engine = fixtures.SpanningProcesses() if rng.random() < 0.5 else MultiprocessEngine(2)
    for num_files in sorted(rng.sample(range(60), rng.randint(1, 3))):  # about 45 are there before it publishes
        kill_build(corpus, out, num_files, engine)
    corpus.build(out, engine)
    check_finished(corpus, out)


def test_a_build_can_start_at_once_after_only_the_parent_of_another_was_killed(corpus, out):
    pid = kill_build(corpus, out, 8, MultiprocessEngine(2), lambda pid: os.kill(pid, signal.SIGKILL))
    os.waitpid(pid, 0)
    corpus.build(out)
    check_finished(corpus, out)


def test_work_of_another_plan_is_removed_even_if_the_removal_is_killed(corpus, out, monkeypatch):
    remove = work_folder.remove_files
    interrupt(corpus, out, 5)

    def remove_half(folder: Path, is_ours: Any) -> None:
        if folder.name != "runs":
            return remove(folder, is_ours)
        for file in sorted(folder.iterdir())[::2]:
            file.unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(work_folder, "remove_files", remove_half)
        interrupt(corpus, out, 0, seed=5, overwrite=True)
    assert not (out / ".build/plan.json").exists()
    assert corpus.build(out).resumed_tasks == 0
    check_finished(corpus, out)


def test_finished_tasks_are_not_done_again(corpus, out):
    interrupt(corpus, out, 5)
    assert corpus.build(out).resumed_tasks == 5
    check_finished(corpus, out)


def test_finished_shards_are_not_made_again(corpus, out, monkeypatch):
    interrupt(corpus, out, CORPUS_TASKS + 2)
    made = []
    inner = steps.MergeRows.__call__

    def count(self: steps.MergeRows, group: Any) -> Any:
        made.extend(task.file for task in group.tasks)
        return inner(self, group)

    monkeypatch.setattr(steps.MergeRows, "__call__", count)
    assert corpus.build(out).resumed_tasks == CORPUS_TASKS
    assert len(made) == CORPUS_SHARDS + 1 - 2
    check_finished(corpus, out)


# ---- what is not trusted ----


def restart(work: Path) -> None:
    """Sorted runs are not synced, so after a power loss they may be full of zeros."""
    for run in (work / "runs").iterdir():
        run.write_bytes(bytes(run.stat().st_size))
    plan = work / "plan.json"
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "boot": "another"}))


def damage_receipts(work: Path) -> None:
    for path in work.rglob("receipts/*.json"):
        path.write_text(path.read_text().replace("0", "1"))


@pytest.mark.parametrize(
    ("results", "change", "task_bytes", "resumed"),
    [
        (2, restart, CORPUS_TASK_BYTES, 0),
        (5, damage_receipts, CORPUS_TASK_BYTES, 0),  # test_receipts knows other damage
        (CORPUS_TASKS + 2, damage_receipts, CORPUS_TASK_BYTES, 0),
        (5, lambda work: next((work / "runs").iterdir()).unlink(), CORPUS_TASK_BYTES, 4),
        (5, lambda work: None, CORPUS_TASK_BYTES // 2, 0),  # another version may split files in another way
    ],
    ids=["restart", "receipts of tasks", "of shards", "no run", "other ranges"],
)
def test_what_may_be_damaged_is_made_again(results, change, task_bytes, resumed, corpus, out):
    interrupt(corpus, out, results)
    change(out / ".build")
    with fixtures.small_tasks(task_bytes):
        assert corpus.build(out).resumed_tasks == resumed
    check_finished(corpus, out)


def test_a_truncated_run_stops_the_build(corpus, out):
    interrupt(corpus, out, results=2)
    run = next((out / ".build" / "runs").glob("*.run"))
    run.write_bytes(run.read_bytes()[:-10])
    with pytest.raises(OutputError, match="is cut short; start again with --overwrite"):
        corpus.build(out)


def test_changed_blocks_of_stdin_are_done_again(tokenizer, tmp_path, monkeypatch):
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


def test_a_vocabulary_that_was_trained_is_not_trained_again(corpus, out, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        run_build(corpus.path, out, None, InterruptedEngine(CORPUS_TASKS + 2))
    monkeypatch.setattr(steps, "learn_vocabulary", None)
    assert run_build(corpus.path, out, None).resumed_tasks == 2
    assert run_build(corpus.path, out, None).was_finished


# ---- the same command and others ----


def test_a_finished_build_is_left_alone(corpus, finished):
    before = {path: path.stat().st_mtime_ns for path in [finished, *finished.rglob("*")]}
    report = corpus.build(finished, None)
    assert report.was_finished
    assert report.manifest == open_shards(finished).manifest
    assert {path: path.stat().st_mtime_ns for path in [finished, *finished.rglob("*")]} == before


def test_another_setting_is_refused_and_named(corpus, finished, tmp_path):
    interrupt(corpus, tmp_path / "unfinished", 3)
    changes: dict[str, dict[str, Any]] = {
        "seed is 0 there and 8 here": {"seed": 8},
        "max_seq_len is 48 there and 47 here": {"max_seq_len": 47},
        "sentences is prose there and lines here": {"sentences": "lines"},
        "compression is none there and zstd here": {"compression": "zstd"},
        "strict is False there and True here": {"strict": True},
    }
    for out in (tmp_path / "unfinished", finished):
        before = digest_folder(out)
        for named, changed in changes.items():
            check_refused(partial(corpus.build, out, **changed), OutputError, f"{named} & {out} & --overwrite")
        assert digest_folder(out) == before


def test_a_setting_that_this_version_lacks_is_another_one_where_it_was_set(finished):
    plan = open_shards(finished).manifest.plan
    for value, named in ((None, None), ("|", "of another kind: old is | there and None here")):
        there = dataclasses.replace(plan, config={**plan.config, "old": value})
        assert find_other({}, there, plan) == named


@pytest.mark.parametrize("results", [3, 1000], ids=["unfinished", "finished"])
def test_another_tokenizer_and_other_inputs_are_refused_and_named(results, tokenizer, out, tmp_path):
    fixtures.write_corpus(tmp_path / "in", CORPUS_DOCUMENTS, "jsonl", random.Random(0))
    other = Tokenizer(tokenizer.model.replace(b"would", b"dluow"), "another")
    with suppress(KeyboardInterrupt):
        run_build(tmp_path / "in", out, tokenizer, InterruptedEngine(results))
    for one in (other, None):
        with pytest.raises(OutputError, match="the tokenizer differs"):
            run_build(tmp_path / "in", out, one)

    def check_refused(names: str) -> None:
        with pytest.raises(OutputError, match=rf"the inputs differ \(.*in/{names}\)"):
            run_build(tmp_path / "in", out, tokenizer, trust_inputs=True)

    (tmp_path / "in/0.txt").write_text("More text.")
    check_refused("0.txt")
    (tmp_path / "in/0.txt").unlink()
    (tmp_path / "in/b.jsonl").rename(tmp_path / "in/z.jsonl")
    check_refused("b.jsonl and 1 more")
    (tmp_path / "in/b.jsonl").write_bytes((tmp_path / "in/z.jsonl").read_bytes()[:-1])
    (tmp_path / "in/z.jsonl").unlink()
    check_refused("b.jsonl")


def touch_all(folder: Path) -> Path:
    for path in folder.iterdir():
        os.utime(path, ns=(5, 5))
    return folder


def rename_one(folder: Path) -> Path:
    path = max(folder.iterdir())
    path.rename(path.with_name(f"{path.name[0]}zz{path.name}"))
    return folder


@pytest.mark.parametrize("results", [3, 1000], ids=["unfinished", "finished"])
@pytest.mark.parametrize(
    "change",
    [
        touch_all,
        lambda folder: folder.rename(folder.with_name("moved")),
        rename_one,
        lambda folder: touch_all(shutil.copytree(folder, folder.with_name("moved"))),
    ],
    ids=["time", "folder", "name", "both"],
)
def test_inputs_of_another_time_or_folder_are_named_and_trusted_if_the_user_says_so(
    change, results, tokenizer, out, tmp_path
):
    made = build_documents(CORPUS_DOCUMENTS, tmp_path / "reference", tokenizer, layout="mixed")
    place = tmp_path / "reference-in"
    with suppress(KeyboardInterrupt):
        run_build(place, out, tokenizer, InterruptedEngine(results))
    place = change(place)
    named = "inputs differ in time or name alone & --trust-inputs"
    check_refused(lambda: run_build(place, out, tokenizer), OutputError, named)
    report = run_build(place, out, tokenizer, trust_inputs=True)
    assert report.resumed_tasks == (results if results == 3 else 0)
    assert report.manifest == made.manifest


@pytest.mark.parametrize("there", ["nothing", "folder", "build"])
def test_a_build_that_fails_at_its_start_leaves_the_folder_as_it_was(there, corpus, finished, out, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"One.\n\n\xff\n")
    (tmp_path / "empty.txt").write_bytes(b"\n\n")
    if there == "build":
        shutil.copytree(finished, out)
    elif there == "folder":
        out.mkdir()
    for name, strict in (("bad.txt", True), ("empty.txt", False)):
        with pytest.raises(InputError):
            run_build(tmp_path / name, out, corpus.tokenizer, overwrite=True, strict=strict)
        assert out.exists() == (there != "nothing")
        assert digest_folder(out) == (corpus.files if there == "build" else {})
        assert not (out / ".build").exists()


def test_a_second_build_into_the_same_folder_is_refused_while_one_runs(corpus, out, monkeypatch):
    monkeypatch.setattr(work_folder, "LOCK_SECONDS", 0.01)

    class Rival(InlineEngine):
        def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
            for settings in ({}, {"seed": 1}, {"overwrite": True}):
                with pytest.raises(OutputError, match=f"another build is writing to {out}"):
                    corpus.build(out, **settings)
            yield from super().run(job, tasks)

    corpus.build(out, Rival())
    check_finished(corpus, out)


def test_a_lock_in_a_removed_folder_does_not_count(out, monkeypatch):
    """The other build ends after this one has opened the lock file and before it locks it."""
    first, second = BuildFolder(out), BuildFolder(out)
    first.lock()
    inner = os.open

    def open_late(path: Any, flags: int, *mode: int) -> int:
        descriptor = inner(path, flags, *mode)
        if flags & os.O_CREAT:
            first.remove()
        return descriptor

    monkeypatch.setattr(os, "open", open_late)
    with pytest.raises(OutputError, match="another build"):
        second.lock()


@refused(
    ("file", OutputError, "file can't be written: Not a directory"),
    ("file/below", OutputError, "file/below can't be written: Not a directory"),
)
def test_a_file_in_place_of_the_folder_is_refused(call, kind, named, corpus, tmp_path):
    (tmp_path / "file").write_text("a file")
    check_refused(lambda: corpus.build(tmp_path / call), kind, named)


def test_all_files_that_stay_are_synced_before_the_manifest_is_written(corpus, out, monkeypatch):
    """This includes shards that a killed build left."""
    interrupt(corpus, out, results=fixtures.CORPUS_TASKS + 1)
    left = list((out / ".build" / "shards").rglob("*.arrow"))
    assert len(left) == 1
    synced, found = set(), []
    replace = os.replace

    def note_manifest(source: Path, target: Path) -> None:
        if Path(target).name == "manifest.json":
            paths = [path for path in out.rglob("*") if ".build" not in path.parts and path.is_file()]
            found.extend((path.name, path.stat().st_ino in synced) for path in [*paths, Path(source)])
        replace(source, target)

    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    monkeypatch.setattr(os, "replace", note_manifest)
    corpus.build(out)
    assert f"{open_shards(out).manifest.manifest_sha256}.json" in {name for name, _ in found}
    assert {name for name, _ in found} >= {"shard-00000.arrow", "spiece.model", "README.md"}
    assert all(is_synced for _, is_synced in found)


def test_a_shard_that_cannot_be_synced_is_an_error(corpus, out, monkeypatch):
    def fail(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".arrow"):
            raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match=r"Input/output error.*shard-0000.-\w+\.arrow"):
            corpus.build(out)
    assert not (out / "manifest.json").exists()
    for path in (out / ".build").rglob("*.arrow"):
        path.write_bytes(b"lost")  # the system reports this only once
    corpus.build(out)
    check_finished(corpus, out)
