"""On several machines the sentences for a vocabulary go through files, which never stay and never replace any."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_data.config import BuildConfig, VocabConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.errors import AlbertDataError, OutputError
from albert_data.jobs import work_folder
from albert_data.library.building import train_vocab
from albert_data.pipeline.build import build_shards
from albert_data.storage import make_path
from albert_data.vocab.folder import FILES, lock_folder
from albert_data.vocab.reading import take_candidates, write_candidates

DOCUMENTS = fixtures.make_documents(60, 0)
CONFIG = VocabConfig(vocab_size=140, sample_bytes=4000)  # a sixteenth of the corpus is not enough: it is read twice
HASHES = st.integers(0, 2**64 - 1)


class Cluster:
    """Tasks run as on other machines, each twice: the answer of the first was lost. Keeps what was sent back."""

    spans_machines = True

    def __init__(self) -> None:
        self.sent = b""

    def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        job = pickle.dumps(job)
        for task in tasks:
            for _ in range(2):
                result = pickle.dumps(pickle.loads(job)(pickle.loads(pickle.dumps(task))))
            self.sent += result
            yield task, pickle.loads(result)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("\n\n".join(DOCUMENTS))
    with fixtures.small_tasks(1 << 12):
        yield


def learn(folder: str, engine: Any) -> dict[str, bytes]:
    train_vocab("in.txt", folder, config=CONFIG, engine=engine)
    return read(Path(folder))


def read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@given(st.dictionaries(st.integers(0, 2**32 - 1), st.dictionaries(st.binary(), HASHES, min_size=1)))
def test_what_is_written_is_read_once(tmp_path_factory, sentences):
    folder = tmp_path_factory.mktemp("files")
    path = write_candidates(folder, "task", sentences)
    assert take_candidates(path) == sentences
    assert not path.exists()


def test_the_vocabulary_is_the_same_and_no_sentence_is_sent():
    cluster = Cluster()
    assert learn("far", cluster) == learn("near", fixtures.InlineEngine())
    assert sorted(os.listdir("far")) == sorted(FILES)
    sentences = [line.encode() for document in DOCUMENTS for line in document.splitlines()]
    assert len(cluster.sent) > 1000
    assert not [sentence for sentence in sentences if sentence in cluster.sent]


@pytest.mark.slow
def test_a_store_gets_the_same_vocabulary_and_keeps_nothing_else(bucket):
    near = learn("near", fixtures.InlineEngine())
    train_vocab("in.txt", f"{bucket.url}/far", config=CONFIG, engine=Cluster())
    assert bucket.files() == {f"far/{name}": data for name, data in near.items()}
    assert not bucket.uploads()


def test_a_build_learns_through_files_too():
    for out, engine in (("near", fixtures.InlineEngine()), ("far", Cluster())):
        build_shards(find_inputs(["in.txt"]), Path(out), None, BuildConfig(), engine, vocab=CONFIG)
    assert fixtures.digest_folder(Path("near")) == fixtures.digest_folder(Path("far"))


def test_an_interrupted_command_leaves_nothing():
    class Failing(Cluster):
        def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
            yield from islice(super().run(job, tasks), 3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn("far", Failing())
    assert not Path("far").exists()


@pytest.mark.parametrize("make", [Cluster, fixtures.InlineEngine])
def test_what_a_kill_left_is_removed(make):
    """Also by a command that works on this machine alone."""
    work = Path("far/.vocab")
    work.mkdir(parents=True)
    (work / "lock").write_bytes(b"albert-data vocab\n")
    (work / "task-0-0123456789abcdef.candidates").write_bytes(b"cut sh")
    (work / "repeated.hashes").write_bytes(b"")
    learned = train_vocab("in.txt", "far", config=CONFIG, engine=make())
    assert learned.num_documents == len(DOCUMENTS)
    assert sorted(os.listdir("far")) == sorted(FILES)


@pytest.mark.parametrize("kind", ["file", "link", "lock"])
def test_a_folder_of_somebody_else_is_refused(kind):
    work, other = Path("far/.vocab"), Path("other")
    other.mkdir()
    work.parent.mkdir()
    if kind == "link":
        work.symlink_to(other.resolve())
    else:
        mine = work if kind == "file" else work / "lock"
        mine.parent.mkdir(exist_ok=True)
        mine.write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"far/.vocab (is not a folder|holds lock, but no mark) of a `vocab`"):
        learn("far", Cluster())
    assert os.listdir(other) == []
    assert kind != "lock" or read(work) == {"lock": b"mine"}


@pytest.mark.parametrize("make", [Cluster, fixtures.InlineEngine])
def test_of_two_commands_the_second_is_refused(make, monkeypatch):
    monkeypatch.setattr(work_folder, "LOCK_SECONDS", 0.0)
    Path("far").mkdir()
    with lock_folder(Path("far")) as folder:
        path = write_candidates(folder, "task", {0: {b"a": 1}})
        unfinished = Path("far") / f".albert-data-{'0' * 16}.tmp"  # of the first command, which is about to rename it
        unfinished.write_bytes(b"a")
        with pytest.raises(OutputError, match="another `vocab` is writing to far"):
            learn("far", make())
        assert unfinished.read_bytes() == b"a"
        assert take_candidates(path) == {0: {b"a": 1}}


def test_who_lost_the_lock_of_a_store_removes_nothing(bucket):
    parent = make_path(f"{bucket.url}/far")
    with lock_folder(parent) as folder:
        bucket.put("far/.vocab/lock", b"of another")
        write_candidates(folder, "task", {0: {b"a": 1}})
        before = bucket.files()
    assert bucket.files() == before


def test_what_can_not_be_removed_keeps_neither_the_vocabulary_nor_the_lock(monkeypatch):
    def fail(folder: Path, is_ours: Any) -> None:
        if (Path("far") / FILES[0]).exists():
            raise OSError(errno.EIO, "Input/output error", str(folder))

    with monkeypatch.context() as patch:
        patch.setattr(work_folder, "remove_files", fail)
        learn("far", Cluster())
    assert sorted(os.listdir("far")) == [".vocab", *sorted(FILES)]
    learn("far", Cluster())
    assert sorted(os.listdir("far")) == sorted(FILES)


def test_a_full_disk_is_named(monkeypatch):
    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OutputError, match="^output far can't be written: No space left on device; name another folder"):
        learn("far", Cluster())


def test_a_machine_that_does_not_share_the_folder_is_named():
    class Apart(Cluster):
        """The files of its machines are not here."""

        def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
            for task, result in super().run(job, tasks):
                result.sentences.unlink()
                yield task, result

    with pytest.raises(AlbertDataError, match=r"far/\.vocab/.*\.candidates: No such file or directory"):
        learn("far", Apart())
