"""A build in OUT is safe: the same command resumes or accepts it, and any other needs --overwrite."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import (
    CORPUS_DOCUMENTS,
    CORPUS_TASKS,
    Corpus,
    InlineEngine,
    InterruptedEngine,
    check_finished,
    digest_folder,
    interrupt,
    run_build,
)

from albert_data.errors import InputError, OutputError
from albert_data.inspect.verify import verify
from albert_data.jobs import work_folder
from albert_data.pipeline.build_folder import BuildFolder
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer


def test_a_finished_build_is_left_alone(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    corpus.build(out)
    before = {path: path.stat().st_mtime_ns for path in [out, *out.rglob("*")]}
    report = corpus.build(out, None)
    assert report.was_finished
    assert report.manifest == open_shards(out).manifest
    assert {path: path.stat().st_mtime_ns for path in [out, *out.rglob("*")]} == before


@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "unfinished"])
@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"seed": 8}, "seed is 0 there and 8 here"),
        ({"max_seq_len": 47}, "max_seq_len is 48 there and 47 here"),
        ({"sentences": "lines"}, "sentences is prose there and lines here"),
        ({"compression": "zstd"}, "compression is none there and zstd here"),
        ({"strict": True}, "strict is False there and True here"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_setting_is_refused_and_named(
    changed: dict[str, Any], named: str, is_finished: bool, corpus: Corpus, tmp_path: Path
):
    out = tmp_path / "out"
    if is_finished:
        corpus.build(out)
    else:
        interrupt(corpus, out, 3)
    before = digest_folder(out)
    with pytest.raises(OutputError, match=named) as refusal:
        corpus.build(out, **changed)
    assert str(out) in str(refusal.value)
    assert "--overwrite" in str(refusal.value)
    assert digest_folder(out) == before


@pytest.mark.parametrize("year", [1600, 2400])
def test_a_file_of_any_year_gives_a_build_that_can_be_read(year: int, tokenizer: Tokenizer, tmp_path: Path):
    (tmp_path / "a.txt").write_text("\n\n".join(CORPUS_DOCUMENTS))
    os.utime(tmp_path / "a.txt", ((year - 1970) * 31_556_952,) * 2)
    for _ in range(2):
        report = run_build(tmp_path / "a.txt", tmp_path / "out", tokenizer)
        verify(tmp_path / "out")
    assert report.was_finished


@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "unfinished"])
def test_another_tokenizer_and_other_inputs_are_refused_and_named(
    is_finished: bool, tokenizer: Tokenizer, tmp_path: Path
):
    fixtures.write_corpus(tmp_path / "in", CORPUS_DOCUMENTS, "jsonl", random.Random(0))
    other = Tokenizer(tokenizer.model.replace(b"would", b"dluow"), "another")
    try:
        run_build(tmp_path / "in", tmp_path / "out", tokenizer, InterruptedEngine(1000 if is_finished else 3))
    except KeyboardInterrupt:
        assert not is_finished
    with pytest.raises(OutputError, match="the tokenizer differs"):
        run_build(tmp_path / "in", tmp_path / "out", other)
    with pytest.raises(OutputError, match="the tokenizer differs"):
        run_build(tmp_path / "in", tmp_path / "out", None)
    os.utime(tmp_path / "in/b.jsonl")
    with pytest.raises(OutputError, match=r"the inputs differ in time alone \(.*in/b.jsonl\).*add --trust-inputs"):
        run_build(tmp_path / "in", tmp_path / "out", tokenizer)
    (tmp_path / "in/0.txt").write_text("More text.")
    with pytest.raises(OutputError, match=r"the inputs differ \(.*in/0.txt and 1 more\)"):
        run_build(tmp_path / "in", tmp_path / "out", tokenizer, trust_inputs=True)


def _touch_all(folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path, ns=(5, 5))


def _move(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def _copy(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("moved"))
    _touch_all(folder.with_name("moved"))


@pytest.mark.parametrize("results", [3, 1000], ids=["unfinished", "finished"])
@pytest.mark.parametrize(
    ("change", "named"), [(_touch_all, "time alone"), (_move, "name alone"), (_copy, "name and time alone")]
)
def test_inputs_of_another_time_or_name_are_named_and_trusted_if_the_user_says_so(
    change: Callable[[Path], None], named: str, results: int, tokenizer: Tokenizer, tmp_path: Path
):
    place, out, reference = tmp_path / "in", tmp_path / "out", tmp_path / "reference"
    fixtures.write_corpus(place, CORPUS_DOCUMENTS, "mixed", random.Random(0))
    made = run_build(place, reference, tokenizer)
    with suppress(KeyboardInterrupt):
        run_build(place, out, tokenizer, InterruptedEngine(results))
    change(place)
    place = tmp_path / ("moved" if (tmp_path / "moved").exists() else "in")
    with pytest.raises(OutputError, match=f"the inputs differ in {named} "):
        run_build(place, out, tokenizer)
    report = run_build(place, out, tokenizer, trust_inputs=True)
    assert report.resumed_tasks == (results if results == 3 else 0)
    assert report.manifest == made.manifest


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda folder: (folder / "b.txt").rename(folder / "d.txt"), "and 1 more"),  # of another time: another text?
        (lambda folder: (folder / "b.txt").write_text("Two.\n"), "b.txt: 28 bytes there, 5 here"),
        (lambda folder: (folder / "d.txt").write_text("One.\n"), "and 1 more"),
    ],
    ids=["name and time", "size", "one more"],
)
def test_other_inputs_are_not_trusted(change: Callable[[Path], None], named: str, tokenizer: Tokenizer, tmp_path: Path):
    (tmp_path / "in").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "in" / name).write_text(f"We went to the river {name}.\n")
    run_build(tmp_path / "in", tmp_path / "out", tokenizer)
    os.utime(tmp_path / "in/b.txt", ns=(7, 7))
    change(tmp_path / "in")
    with pytest.raises(OutputError, match=rf"the inputs differ \(.*{named}\)"):
        run_build(tmp_path / "in", tmp_path / "out", tokenizer, trust_inputs=True)


@pytest.mark.parametrize("results", [3, 1000], ids=["unfinished", "finished"])
def test_overwrite_replaces_another_build(results: int, corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    try:
        run_build(corpus.path, out, None, InterruptedEngine(results), num_shards=9)
    except KeyboardInterrupt:
        assert results == 3
    corpus.build(out, overwrite=True)
    check_finished(corpus, out)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_build_that_is_interrupted_while_it_publishes_shards_is_resumed(
    overwrite: bool, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "out"
    if overwrite:
        run_build(corpus.path, out, corpus.tokenizer, num_shards=9)
    replace = os.replace

    def interrupt_and_replace(source: Path, target: Path) -> None:
        if Path(target).parent == out / "train":
            signal.raise_signal(signal.SIGINT)
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", interrupt_and_replace)
        with pytest.raises(KeyboardInterrupt):
            corpus.build(out, overwrite=overwrite)
    corpus.build(out)
    check_finished(corpus, out)


@pytest.mark.parametrize("results", [0, 3, CORPUS_TASKS + 1])
def test_ctrl_c_before_publishing_leaves_the_finished_build_that_would_be_overwritten(
    results: int, corpus: Corpus, tmp_path: Path
):
    out = tmp_path / "out"
    run_build(corpus.path, out, corpus.tokenizer, num_shards=9)
    before = digest_folder(out)
    interrupt(corpus, out, results, overwrite=True)
    kept = {name: digest for name, digest in digest_folder(out).items() if not name.startswith(".build")}
    assert kept == before
    corpus.build(out, overwrite=True)
    check_finished(corpus, out)


def test_an_overwrite_that_fails_leaves_the_old_build_whole(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    corpus.build(out)
    (tmp_path / "bad.txt").write_bytes(b"One.\n\n\xff\n")
    (tmp_path / "empty.txt").write_bytes(b"\n\n")
    for name, strict in (("bad.txt", True), ("empty.txt", False)):
        with pytest.raises(InputError):
            run_build(tmp_path / name, out, corpus.tokenizer, overwrite=True, strict=strict)
        check_finished(corpus, out)


def test_an_overwrite_that_is_interrupted_leaves_the_old_build_whole(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    corpus.build(out)
    interrupt(corpus, out, 5, overwrite=True, seed=8)
    shutil.rmtree(out / ".build")
    check_finished(corpus, out)


def test_a_build_that_fails_at_its_start_leaves_no_folder(corpus: Corpus, tmp_path: Path):
    (tmp_path / "empty.txt").write_bytes(b"\n\n")
    with pytest.raises(InputError, match="holds no document"):
        run_build(tmp_path / "empty.txt", tmp_path / "out", corpus.tokenizer)
    assert not (tmp_path / "out").exists()


def test_a_second_build_into_the_same_folder_is_refused_while_one_runs(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(work_folder, "LOCK_SECONDS", 0.1)
    out = tmp_path / "out"

    class Rival(InlineEngine):
        def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
            for settings in ({}, {"seed": 1}, {"overwrite": True}):
                with pytest.raises(OutputError, match=f"another build is writing to {out}"):
                    corpus.build(out, **settings)
            yield from super().run(job, tasks)

    corpus.build(out, Rival())
    check_finished(corpus, out)


def test_a_build_waits_for_the_processes_of_a_killed_one(tmp_path: Path):
    first, second = BuildFolder(tmp_path / "out"), BuildFolder(tmp_path / "out")
    first.open()
    release = threading.Timer(0.3, first.close)
    release.start()
    second.open()
    assert release.finished.is_set()
    second.remove()


def test_a_lock_in_a_removed_folder_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The other build ends after this one has opened the lock file and before it locks it."""
    first, second = BuildFolder(tmp_path / "out"), BuildFolder(tmp_path / "out")
    first.open()
    inner = os.open

    def open_late(path: Any, flags: int, *mode: int) -> int:
        descriptor = inner(path, flags, *mode)
        if flags & os.O_CREAT:
            first.remove()
        return descriptor

    monkeypatch.setattr(os, "open", open_late)
    with pytest.raises(OutputError, match="another build"):
        second.open()


def test_a_file_in_place_of_the_folder_is_refused(corpus: Corpus, tmp_path: Path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OutputError, match="is a file; name a folder"):
        corpus.build(tmp_path / "out")
    with pytest.raises(OutputError, match="can't be written: Not a directory"):
        corpus.build(tmp_path / "out/below")


def test_all_files_that_stay_are_synced_before_the_manifest_is_written(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """This includes shards that a killed build left."""
    out = tmp_path / "out"
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


def test_a_shard_that_cannot_be_synced_is_an_error(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".arrow"):
            raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match=r"Input/output error.*shard-0000.-\w+\.arrow"):
            corpus.build(tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
    for path in (tmp_path / "out" / ".build").rglob("*.arrow"):
        path.write_bytes(b"lost")  # the system reports this only once
    corpus.build(tmp_path / "out")
    corpus.build(tmp_path / "other")
    assert (tmp_path / "out" / "manifest.json").read_bytes() == (tmp_path / "other" / "manifest.json").read_bytes()
    assert list(verify(tmp_path / "out")) == []
