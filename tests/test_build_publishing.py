"""Publishing loses nothing: killed between any two changes of the disk, with files of the user in OUT all the while."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import MINE, InlineEngine, InterruptedEngine, digest_folder, plant, without_work
from shard_fixtures import seal

from albert_data.errors import AlbertDataError, OutputError
from albert_data.pipeline import build as build_module
from albert_data.pipeline.build_folder import BuildFolder
from albert_data.pipeline.merge_rows import MergeRows
from albert_data.tokenizer.model import Tokenizer

ADDED = ("notes.txt", "train/notes.txt", "tokenizer/pieces.txt", "validation/data.arrow", "run/run.json", ".git/config")


class Died(BaseException):
    """What a process does that is killed: nothing more."""


class Mortal:
    """The functions by which a build changes the disk, for a process that dies before one of them.

    left: how many changes it makes before that; None for no end. Afterwards it changes nothing, as in `finally`.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        for owner, name in ((os, "replace"), (Path, "unlink"), (Path, "mkdir"), (Path, "rmdir"), (Path, "open")):
            monkeypatch.setattr(owner, name, self._wrap(getattr(owner, name)))

    def _wrap(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def change(path: Any, *arguments: Any, **settings: Any) -> Any:
            is_there, name = os.path.lexists(path), inner.__name__
            changes = is_there if name in ("replace", "unlink") else not is_there
            changes = bool(is_there and not os.listdir(path)) if name == "rmdir" else changes
            if self.left is not None and changes:
                if self.left == 0:
                    raise Died
                self.left -= 1
            return inner(path, *arguments, **settings)

        return change


class Little:
    """A corpus of three configs, "a", "b" and "c", which differ in shards and tokenizer, and the result of each."""

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        other = Tokenizer(tokenizer.model.replace(b"would", b"dluow"), "another")
        self.tokenizer, self._tokenizers = tokenizer, {"a": tokenizer, "b": tokenizer, "c": other}
        self._settings = {"a": {"num_shards": 3}, "b": {"num_shards": 2, "seed": 1}, "c": {"num_shards": 4, "seed": 2}}
        self._corpus = folder / "in"
        fixtures.write_corpus(self._corpus, fixtures.make_documents(12, seed=1), "txt", random.Random(0))
        self.files = {}
        for name in self._settings:
            self.build(folder / name, name)
            self.files[name] = digest_folder(folder / name)

    def build(self, out: Path, name: str, engine: Any = None, **settings: Any) -> Any:
        settings = {"validation_fraction": 0.3, **self._settings[name], **settings}
        return fixtures.run_build(self._corpus, out, self._tokenizers[name], engine, **settings)


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Little:
    return Little(tmp_path_factory.mktemp("little"), tokenizer)


@pytest.fixture(params=["new", "ours"])
def ready(request: pytest.FixtureRequest, little: Little, tmp_path: Path) -> Path:
    """OUT when "b" begins to publish: a new folder, or one of "a" with a card that the user edited.

    The user has added files.
    """
    out = tmp_path / "ready"
    if request.param == "ours":
        little.build(out, "a")
        (out / "README.md").write_bytes(MINE)
    assert kill(little, out, "b", 0)
    for name in ADDED:
        plant(out / name)
    return out


def mine(out: Path) -> set[str]:
    return {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file() and path.read_bytes() == MINE}


def is_as_built(little: Little, out: Path, name: str, own: Iterable[str]) -> bool:
    """Whether OUT has all files of a build and of the user, and nothing else."""
    expected = {**little.files[name], **{one: digest_folder(out)[one] for one in own}}
    return digest_folder(out) == expected and mine(out) == set(own)


def kill_everywhere(
    little: Little, ready: Path, every: int = 1, engine: InlineEngine | None = None
) -> Iterator[tuple[int, Path]]:
    """Publish with a death before the first change, before the second, and so on. Yields OUT after each."""
    for changes in range(0, 1000, every):
        out = ready.with_name("out")
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(ready, out, symlinks=True)
        if not kill(little, out, "b", changes, engine):
            assert changes > 25
            return
        yield changes, out
    raise AssertionError("it never ends")


def kill(little: Little, out: Path, name: str, changes: int, engine: InlineEngine | None = None) -> bool:
    """Build, and die when so much has changed since publishing began. Returns False if it ended before."""
    publish = build_module.publish
    with pytest.MonkeyPatch.context() as monkeypatch:
        mortal = Mortal(monkeypatch)

        def begin(*arguments: Any) -> Any:
            mortal.left = changes
            return publish(*arguments)

        monkeypatch.setattr(build_module, "publish", begin)
        try:
            little.build(out, name, engine, overwrite=True)
        except Died:
            return True
    return False


def is_of(little: Little, out: Path, name: str) -> bool:
    """Whether OUT holds a finished build of a config."""
    path = out / "manifest.json"
    return path.exists() and sha256(path.read_bytes()).hexdigest() == little.files[name]["manifest.json"]


# ---- kills ----


@pytest.mark.parametrize("kind", ["alone", "cluster", "shards removed"])
def test_the_same_command_finishes_it(kind, little, ready, monkeypatch):
    """Also what a cluster began to publish, and if the user has removed some of the shards."""
    monkeypatch.setattr("albert_data.pipeline.publish._SHARDS_OF_TASK", 2)
    own, engine = mine(ready), fixtures.SpanningEngine() if kind == "cluster" else None
    for changes, out in kill_everywhere(little, ready, every=2, engine=engine):
        assert mine(out) == own
        for name in "ab":  # a manifest stands only beside all that it names, though the user has edited the card
            if is_of(little, out, name):
                assert dict(little.files[name].items() - digest_folder(out).items()).keys() <= {"README.md"}
        if kind == "shards removed":  # an older build may have some of the same names
            folders = [".build/shards/train", *(() if (out / "manifest.json").exists() else ("train",))]
            pattern = ("shard-*1*.arrow", "shard-*0*.arrow", "shard-*")[changes % 3]
            for path in [path for folder in folders for path in (out / folder).glob(pattern)]:
                path.unlink()
        is_finished = is_of(little, out, "b")
        made = little.build(out, "b", engine if changes % 4 else None, overwrite=is_of(little, out, "a"))
        assert made.was_finished == is_finished
        assert is_as_built(little, out, "b", own), changes
        assert not (out / ".build").exists()


def test_other_commands_are_refused_without_overwrite_and_lose_nothing_when_they_fail_or_are_killed(little, ready):
    own, rng = mine(ready), random.Random(0)
    for changes, out in kill_everywhere(little, ready, every=2):
        before = digest_folder(out)
        with pytest.raises(OutputError, match="--overwrite"):
            little.build(out, "c")
        assert digest_folder(out) == before
        for name in rng.choices("abc", k=changes % 3):
            kill(little, out, name, rng.randrange(40))
            assert own == mine(out)
        if changes % 5 == 0:
            with pytest.raises(AlbertDataError, match="holds no document"):
                fixtures.run_build(plant(out.with_name("empty.txt"), b""), out, little.tokenizer, overwrite=True)
            if not (out / ".build").exists() and not (out / "manifest.json").exists():
                assert digest_folder(out).keys() == own  # nothing of ours is left
                continue
        last = rng.choice("abc") if changes % 3 else "c"
        little.build(out, last, overwrite=True)
        assert is_as_built(little, out, last, own), changes
        assert not (out / ".build").exists()


# ---- what the user does between a kill and the next command ----


def test_a_users_file_under_one_of_our_names_stops_the_next_command(little, ready):
    for changes, out in kill_everywhere(little, ready, every=5):
        names = ("train/shard-00000.arrow", "train/shard-00007.arrow", "tokenizer/spiece.model")
        name = names[changes % 3]
        plant(out / name)
        before = without_work(out)
        for config in ("b", "c"):
            with pytest.raises(OutputError, match=rf"{name} was not written by a build.*move it away"):
                little.build(out, config, InterruptedEngine(0), overwrite=True)
        assert without_work(out) == before
        (out / name).unlink()
        little.build(out, "b", overwrite=(out / "manifest.json").exists())
        assert is_as_built(little, out, "b", mine(ready)), changes


def test_a_worker_that_outlives_its_build_puts_nothing_into_the_next(little, tmp_path):
    """It has lost its network for a while, and writes a shard of the older plan under the names of that one."""
    out, left = tmp_path / "out", list[Callable[[], object]]()

    class Keeping(InlineEngine):
        def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
            for task in tasks:
                if isinstance(job, MergeRows):
                    left.append(partial(job, task))
                yield task, job(task)

    little.build(tmp_path / "a", "a")
    assert kill(little, out, "a", 0, Keeping())
    runs = shutil.copytree(out / ".build/runs", tmp_path / "runs")

    def go_on() -> None:
        for path in runs.iterdir():  # those that it has opened
            shutil.copy(path, out / ".build/runs")
        for work in left:
            work()

    assert left
    little.build(out, "b", Busy(go_on), overwrite=True)
    assert is_as_built(little, out, "b", ())
    assert not (out / ".build").exists()


@pytest.mark.parametrize("is_published", [True, False])
def test_a_manifest_removes_only_what_a_build_would_write(is_published, little, tmp_path):
    """Anybody can compute a seal, so a manifest with one may name any file."""
    out = tmp_path / "out"
    little.build(out, "a")
    manifest = json.loads((out / "manifest.json").read_bytes())
    del manifest["manifest_sha256"]
    shards = manifest["splits"]["train"]["shards"]
    names = ("../victim.arrow", str(tmp_path / "victim.arrow"), "train/../../victim.arrow", "train/notes.arrow")
    names += ("notes.txt", "tokenizer/../notes.txt", "run/shard-00000.arrow", "linked/shard-00000.arrow")
    shards += [{**shards[0], "file": name, "num_bytes": len(MINE)} for name in (*names, "TRAIN/x.arrow")]
    if is_published:
        (out / "manifest.json").write_text(json.dumps(seal(manifest)))
    else:
        manifest["tokenizer"] |= {"file": "notes.txt", "sha256": sha256(MINE).hexdigest()}
        manifest["card"] |= {"file": "notes.txt", "sha256": sha256(MINE).hexdigest()}
        assert kill(little, out, "b", 0)
        plant(out / ".build/manifests/0.json", json.dumps(seal(manifest)).encode())
        (out / ".build/manifests/1.json").write_text("{")
        (out / ".build/manifests/2.json").symlink_to(out / ".build/manifests/0.json")
    plant(tmp_path / "elsewhere/shard-00000.arrow")
    (out / "linked").symlink_to(tmp_path / "elsewhere")
    for name in ("victim.arrow", "out/train/notes.arrow", "out/notes.txt", "out/run/shard-00000.arrow"):
        plant(tmp_path / name)
    own = mine(tmp_path)
    little.build(out, "c", overwrite=True)
    assert mine(tmp_path) == own
    assert (out / "linked").is_symlink()


# ---- what the user does while a build runs ----


class Busy(InlineEngine):
    """Calls a function when all shards are made."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        yield from super().run(job, tasks)
        if isinstance(job, MergeRows):
            self._act()


@pytest.fixture(params=[False, True], ids=["build", "overwrite"])
def overwrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def out(overwrite: bool, little: Little, tmp_path: Path) -> Path:
    if overwrite:
        little.build(tmp_path / "out", "a")
    return tmp_path / "out"


def test_files_that_are_added_while_a_build_runs_stay(overwrite, out, little):
    names = {*ADDED, "README.md", "train/data-00000.arrow"}

    def add() -> None:
        for name in names:
            plant(out / name)

    little.build(out, "b", Busy(add), overwrite=overwrite)
    assert is_as_built(little, out, "b", names)
    for config in ("c", "a"):
        little.build(out, config, overwrite=True)
        assert is_as_built(little, out, config, names)


def put_file(name: str) -> Callable[[Path, Path], object]:
    return lambda out, other: plant(out / name)


def link_folder(out: Path, other: Path) -> None:
    if (out / "train").exists():
        (out / "train").rename(out.with_name("old"))
    (out / "train").symlink_to(plant(out.with_name("elsewhere") / "shard-00000.arrow").parent)


def put_build(out: Path, other: Path) -> None:
    """Its files are those of a manifest of ours, and it must stay all the same."""
    for name in ("train", "validation", "tokenizer"):
        shutil.rmtree(out / name, ignore_errors=True)
    shutil.copytree(other, out, dirs_exist_ok=True)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (put_file("train/shard-00001.arrow"), "shard-00001.arrow was not written by a build.*move it away"),
        (put_file("train/shard-00007.arrow"), "shard-00007.arrow was not written by a build"),
        (put_file("tokenizer/tokenizer.json"), "tokenizer.json was not written by a build"),
        (link_folder, "train is a link.*move it away"),
        (put_build, "manifest.json was changed by something else while this build ran"),
    ],
)
def test_what_takes_a_name_of_ours_while_a_build_runs_stops_it_before_anything_is_moved(
    act, message, overwrite, out, little, tmp_path
):
    def digest() -> dict[str, str]:
        return {name: digest for name, digest in digest_folder(tmp_path).items() if ".build" not in name}

    def change() -> None:
        act(out, tmp_path / "c")
        before.update(digest())

    before: dict[str, str] = {}
    little.build(tmp_path / "c", "c")
    with pytest.raises(OutputError, match=message):
        little.build(out, "b", Busy(change), overwrite=overwrite)
    assert digest() == before


def test_a_build_that_waits_for_another_one_does_not_replace_it(little, tmp_path):
    out, first = tmp_path / "out", BuildFolder(tmp_path / "out")
    for name in ("a", "b"):
        first.lock()

        def finish() -> None:
            little.build(tmp_path / "made", "a")
            shutil.copytree(tmp_path / "made", out, dirs_exist_ok=True)
            first.unlock()  # it was killed before it cleaned up

        finishing = threading.Timer(0.3, finish)
        finishing.start()
        if name == "a":
            assert little.build(out, "a").was_finished
        else:
            with pytest.raises(OutputError, match="holds a finished build of another kind"):
                little.build(out, "b")
        assert without_work(out) == digest_folder(out) == little.files["a"]
        shutil.rmtree(out)
