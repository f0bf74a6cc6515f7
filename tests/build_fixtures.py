"""Shared by the tests of building: made-up corpora in every layout, engines, and checks of what a build left."""

from __future__ import annotations

import functools
import gzip
import importlib
import io
import json
import os
import pickle
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
import references

from albert_data.config import BuildConfig, ExampleConfig, TextConfig
from albert_data.corpus import blocks, tasks
from albert_data.corpus.inputs import find_inputs
from albert_data.jobs.engine import Engine, MultiprocessEngine
from albert_data.pipeline import make_rows, shuffle, sorted_runs
from albert_data.pipeline.build import BuildReport, build_shards
from albert_data.pipeline.shuffle import Shuffle
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer

WORDS = re.findall(
    r"\S+",
    "river mountain talking walked quickly people water little because would which there their about "
    "number sound again animal house world 我们 中国 学习 语言 I'm naïve Ünïcode x=1 don't 3.14 émigré",
)


class InlineEngine:
    """The simplest engine: runs each task in this process."""

    def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        for task in tasks:
            yield task, job(task)


class PicklingEngine:
    """Sends the job, every task and every result as bytes, as a cluster would."""

    def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        job = pickle.dumps(job)
        for task in tasks:
            result = pickle.loads(job)(pickle.loads(pickle.dumps(task)))
            yield task, pickle.loads(pickle.dumps(result))


class InterruptedEngine:
    """Raises KeyboardInterrupt after some results."""

    def __init__(self, results: int) -> None:
        self._left = results

    def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        for task in tasks:
            if not self._left:
                raise KeyboardInterrupt
            self._left -= 1
            yield task, job(task)


def make_documents(count: int, seed: int) -> list[str]:
    """Distinct made-up documents of one to twelve lines, each of one to four sentences."""
    rng = random.Random(seed)
    return [f"Document {number} of {seed}.\n" + make_lines(rng, rng.randint(0, 11)) for number in range(count)]


def make_lines(rng: random.Random, count: int) -> str:
    return "\n".join(" ".join(make_sentence(rng) for _ in range(rng.randint(1, 4))) for _ in range(count))


def make_sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 14))).capitalize() + rng.choice(".!?")


def canonical(document: str) -> bytes:
    """The stripped lines that are not blank, each with a line feed."""
    return references.canonical(document)


def document_key(document: str) -> int:
    return references.document_key(canonical(document))


def to_txt(documents: Sequence[str]) -> bytes:
    return b"\n".join(canonical(document) for document in documents)


def to_jsonl(documents: Sequence[str]) -> bytes:
    return b"".join(json.dumps({"id": 1, "text": document}).encode() + b"\n" for document in documents)


def to_zst(data: bytes) -> bytes:
    return bytes(pyarrow.compress(data, codec="zstd", asbytes=True))


def write_corpus(folder: Path, documents: Sequence[str], layout: str, rng: random.Random) -> None:
    """Write the documents in a random order to files of one layout."""
    documents = rng.sample(documents, len(documents))
    parts = documents[::3], documents[1::3], documents[2::3]
    layouts = {
        "txt": {"a.txt": to_txt(documents)},
        "jsonl": {f"{name}.jsonl": to_jsonl(part) for name, part in zip("abc", parts, strict=True)},
        "jsonl.gz": {"a.jsonl.gz": gzip.compress(to_jsonl(documents))},
        "txt.zst": {"a.txt.zst": to_zst(to_txt(documents))},
        "mixed": {
            "a.txt": to_txt(parts[0]).replace(b"\n", b"\r\n").rstrip(),
            "deeper/still/b.JSONL": b"\xef\xbb\xbf" + to_jsonl(parts[1]),
            "c.txt.gz": gzip.compress(b"\n\n \t\n" + to_txt(parts[2])),
        },
    }
    for name, data in layouts[layout].items():
        plant(folder / name, data)


LAYOUTS = ("txt", "jsonl", "jsonl.gz", "txt.zst", "mixed")


_make_tokenizer = functools.cache(Tokenizer)


def load_tokenizers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load each model once: a build of three sentences spends most of its time on that."""
    importlib.import_module("albert_data.library.building")  # which would keep the replaced class for later tests
    monkeypatch.setattr("albert_data.tokenizer.model.Tokenizer", _make_tokenizer)


def set_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def make_tasks_small(monkeypatch: pytest.MonkeyPatch, num_bytes: int = 1 << 14) -> None:
    """Make tasks so small that a small corpus has several."""
    monkeypatch.setattr(tasks, "_MIB", num_bytes)
    monkeypatch.setattr(tasks, "_MIN_TASK_BYTES", num_bytes)
    monkeypatch.setattr(blocks, "_CHUNK", num_bytes)


SHUFFLES = {  # shards of a window; batches and ranges of the join step
    "one stage": (3, 0, 0),
    "windows": (0.3, 0, 0),
    "two stages, read directly": (0, 4, 5),
    "two stages": (3, 3, 4),
    "two stages, windows": (0.3, 2, 2),
}


def shape_shuffle(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have rows go the way that they go in very large builds."""
    window, num_batches, num_ranges = SHUFFLES[name]

    def plan(sizes: Sequence[int], num_runs: int) -> Shuffle:
        window_bytes = int(window * sizes[-1])  # the last is of training
        return Shuffle(num_batches=num_batches, num_ranges=num_ranges, window_bytes=window_bytes)

    monkeypatch.setattr(Shuffle, "plan", plan)
    monkeypatch.setattr(shuffle, "READ_BYTES", 1)
    monkeypatch.setattr(sorted_runs, "MERGE_BYTES", 1 << 12)
    monkeypatch.setattr(make_rows, "RUN_BYTES", 1 << 10)


class SpanningEngine(InlineEngine):
    """As a cluster, whose tasks merge their runs, and sync their files."""

    spans_machines = True


class SpanningProcesses(MultiprocessEngine):
    """The same with two workers."""

    spans_machines = True

    def __init__(self) -> None:
        super().__init__(2)


@contextmanager
def small_tasks(num_bytes: int = 1 << 14) -> Iterator[None]:
    """Builds of several tasks."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        make_tasks_small(monkeypatch, num_bytes)
        yield


def make_config(**settings: Any) -> BuildConfig:
    """A config from settings of all its parts, with short rows by default."""
    settings = {"max_seq_len": 48, "validation_fraction": None, **settings}
    parts = [
        {name: settings.pop(name) for name in list(settings) if name in kind.__dataclass_fields__}
        for kind in (TextConfig, ExampleConfig)
    ]
    return BuildConfig(text=TextConfig(**parts[0]), examples=ExampleConfig(**parts[1]), **settings)


def run_build(
    names: Path | str,
    out: Path,
    tokenizer: Tokenizer | None,
    engine: Engine | None = None,
    overwrite: bool = False,
    license: str | None = None,
    trust_inputs: bool = False,
    **settings: Any,
) -> BuildReport:
    config = make_config(**settings)
    inputs = find_inputs([str(names)], text=config.text)
    engine = engine or InlineEngine()
    named: dict[str, Any] = {"license": license, "overwrite": overwrite, "trust_inputs": trust_inputs}
    return build_shards(inputs, out, tokenizer, config, engine, **named)


def build_documents(
    documents: Sequence[str],
    out: Path,
    tokenizer: Tokenizer,
    engine: Engine | None = None,
    layout: str = "txt",
    **settings: Any,
) -> BuildReport:
    """Write documents to OUT-in, in an order that the layout gives, and build them."""
    folder = out.with_name(f"{out.name}-in")
    write_corpus(folder, documents, layout, random.Random(layout))
    return run_build(folder, out, tokenizer, engine, **settings)


def keys_of(out: Path) -> tuple[set[int], set[int]]:
    """The document keys in training and in validation."""
    train, validation = ({row.document_key for row in open_shards(out, name)} for name in ("train", "validation"))
    return train, validation


def check_split(out: Path, documents: Iterable[str], fraction: float | None, seed: int = 0) -> None:
    """The build has all documents, in the splits that the slow rule gives them."""
    keys = set(map(document_key, documents))
    validation = references.choose_validation(keys, fraction, seed)
    assert keys_of(out) == (keys - validation, validation)


def digest_folder(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder, hidden ones too."""
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def without_work(out: Path) -> dict[str, str]:
    """The files that are no part of an unfinished build."""
    return {name: digest for name, digest in digest_folder(out).items() if not name.startswith(".build")}


MINE = b"years of work"


def plant(path: Path, data: bytes = MINE) -> Path:
    """A file of the user's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def digest_shards(out: Path) -> dict[str, str]:
    return {name: digest for name, digest in digest_folder(out).items() if name.endswith(".arrow")}


def fork(work: Callable[[], object]) -> int:
    """Run in a forked process that leads a group of its own; returns its id."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    while os.getpgid(pid) != pid:
        time.sleep(0.001)
    return pid


def kill_group(pid: int) -> None:
    """kill -9 a forked process and its workers; returns when none of them runs any more."""
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_until(lambda: not any(process.group == pid for process in running_processes()))


def wait_until(is_so: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.005)


def running_processes() -> list[SimpleNamespace]:
    """pid, state, parent and group of all processes; of zombies (Z) only our own children."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if state != "Z" or int(parent) == os.getpid():
            found.append(SimpleNamespace(pid=int(path.parent.name), state=state, parent=int(parent), group=int(group)))
    return found


CORPUS_DOCUMENTS = make_documents(120, seed=3)
CORPUS_TASKS, CORPUS_SHARDS = 12, 3
CORPUS_TASK_BYTES = 1 << 13


class CountingEngine(InlineEngine):
    """Keeps the names of the map tasks."""

    def __init__(self) -> None:
        self.mapped: list[str] = []

    def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        for task, result in super().run(job, tasks):
            if hasattr(task, "name"):
                self.mapped.append(task.name)
            yield task, result


class Corpus:
    """A corpus of twelve tasks, and all the files of its build when nothing interferes."""

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        self.path, self.tokenizer = folder / "in", tokenizer
        write_corpus(self.path, CORPUS_DOCUMENTS, "mixed", random.Random(0))
        engine = CountingEngine()
        self.build(folder / "reference", engine)
        assert len(engine.mapped) == CORPUS_TASKS, engine.mapped
        self.files = digest_folder(folder / "reference")

    def build(self, out: Path, engine: Any = None, **settings: Any) -> BuildReport:
        return run_build(self.path, out, self.tokenizer, engine, num_shards=CORPUS_SHARDS, **settings)


def check_finished(corpus: Corpus, out: Path) -> None:
    """OUT has exactly the files of the reference build: no .build, no *.tmp."""
    assert digest_folder(out) == corpus.files
    assert not (out / ".build").exists()


def interrupt(corpus: Corpus, out: Path, results: int, **settings: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        corpus.build(out, InterruptedEngine(results), **settings)
