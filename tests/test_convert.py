"""`convert` writes all of DIR or nothing, begins anew after a kill, and touches no file of the user."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import convert_fixtures as fixtures
import pytest
from build_fixtures import (
    InlineEngine,
    InterruptedEngine,
    PicklingEngine,
    digest_folder,
)
from convert_fixtures import ROWS, convert
from memory_store import Died, MemoryBucket
from row_fixtures import numbered_rows
from shard_fixtures import change_manifest, write_rows

from albert_data.cli.main import run
from albert_data.convert import FORMATS
from albert_data.errors import OutputError, ShardError
from albert_data.jobs import work_folder
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.storage import Disk, make_path

NUM_SHARDS = 4  # of the fixture, in both splits


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "shards", ROWS)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def reference(shards: Path, tmp_path: Path) -> dict[str, str]:
    """The files of an undisturbed conversion to MDS."""
    convert(shards, tmp_path / "reference", "mds")
    return digest_folder(tmp_path / "reference")


def visible(path: Path) -> list[str]:
    return sorted(name for name in os.listdir(path) if not name.startswith("."))


# ---- the same bytes ----


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("engine", [MultiprocessEngine(1), MultiprocessEngine(2), PicklingEngine()])
def test_workers_and_engines_change_no_byte(to, engine, shards, tmp_path):
    convert(shards, tmp_path / "one", to)
    record = convert(shards, tmp_path / "two", to, engine=engine)
    assert digest_folder(tmp_path / "one") == digest_folder(tmp_path / "two")
    written = json.loads((tmp_path / "two" / "conversion.json").read_text())
    assert written == record


class Watched(InlineEngine):
    """Does something when all tasks are done, before their files appear."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self.act = act

    def run(self, job: Any, tasks: Any) -> Iterator[tuple[Any, Any]]:
        yield from super().run(job, tasks)
        self.act()


@pytest.mark.parametrize("done", range(NUM_SHARDS))
def test_an_interrupted_conversion_leaves_nothing(done, shards, out, reference):
    with pytest.raises(KeyboardInterrupt):
        convert(shards, out, "mds", engine=InterruptedEngine(done))
    assert not out.exists()
    convert(shards, out, "mds")
    assert digest_folder(out) == reference


@pytest.mark.parametrize("first", ["mds", "parquet"])
def test_after_a_conversion_into_a_store_that_dies_at_any_change_another_begins_anew(
    first, shards, reference, monkeypatch
):
    """Changes: plan, files, record, publishing, cleaning up."""
    out = make_path("s3://memory/out")
    changes = MemoryBucket(monkeypatch).requests.count_changes(lambda: convert(shards, out, first))
    assert changes > 15
    for moment in range(changes):
        bucket = MemoryBucket(monkeypatch)
        bucket.requests.changes_left = moment
        with pytest.raises(Died):
            convert(shards, out, first)
        published = {name: data for name, data in bucket.files("out/").items() if name[0] != "."}
        bucket.requests.changes_left = 1 << 30
        if published:  # it died while it published, or later
            with pytest.raises(OutputError, match="name a new or empty folder"):
                convert(shards, out, "mds")
            assert {name: data for name, data in bucket.files("out/").items() if name[0] != "."} == published
        else:
            convert(shards, out, "mds")
            assert {name: sha256(data).hexdigest() for name, data in bucket.files("out/").items()} == reference


def test_what_a_kill_left_published_is_refused_and_not_removed(shards, out, reference, monkeypatch):
    def die(disk: Disk, folder: Path, files: dict[str, Path]) -> None:
        disk.place(folder, dict(list(files.items())[:-2]))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "publish", die)
        with pytest.raises(KeyboardInterrupt):
            convert(shards, out, "parquet")
    assert visible(out) == ["data"]
    before = digest_folder(out / "data")
    with pytest.raises(OutputError, match="holds data; move it away"):
        convert(shards, out, "mds")
    assert digest_folder(out / "data") == before
    shutil.rmtree(out / "data")
    convert(shards, out, "mds")
    assert digest_folder(out) == reference


def test_what_a_kill_left_in_the_working_folder_is_removed(shards, out, reference):
    (out / ".convert").mkdir(parents=True)
    (out / ".convert" / "lock").write_bytes(b"albert-data convert\n")
    for name in ("plan.json", f".albert-data-{'0' * 16}.tmp", "train_shard.00000.mds"):
        (out / ".convert" / name).write_bytes(b"{")
    convert(shards, out, "mds")
    assert digest_folder(out) == reference


@pytest.mark.parametrize("split", ["train", "validation", None])
def test_only_the_named_split_is_converted(split, shards, out):
    record = convert(shards, out, "mds", split=split)
    splits = ["train", "validation"] if split is None else [split]
    assert visible(out) == ["conversion.json", *splits]
    assert set(record["num_rows"]) == set(splits)


# ---- the user's files ----


def write_mine(name: str) -> Callable[[Path], object]:
    def make(out: Path) -> None:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("mine")

    return make


def link_work_folder(out: Path) -> None:
    out.with_name("elsewhere").mkdir()
    out.mkdir()
    (out / ".convert").symlink_to("../elsewhere")


@pytest.mark.parametrize(
    ("make", "what"),
    [
        *((write_mine(name), "name a new") for name in ("notes.txt", "train/mine.txt", "README.md", "conversion.json")),
        (write_mine(".convert/mine"), "holds mine, but no mark of a conversion"),
        (link_work_folder, "is not a folder of a conversion"),
        (Path.touch, "is no folder"),
        (os.mkfifo, "is no folder"),
        (lambda out: out.symlink_to("nowhere"), "is no folder"),
        (lambda out: out.symlink_to(out.name), "is no folder"),
    ],
)
def test_what_stands_in_the_way_is_refused_and_kept(make, what, shards, out):
    make(out)
    before = sorted(out.parent.rglob("*")), digest_folder(out.parent)
    with pytest.raises(OutputError, match=what):
        convert(shards, out, "mds")
    assert (sorted(out.parent.rglob("*")), digest_folder(out.parent)) == before


def test_hidden_files_such_as_those_of_git_may_be_there(shards, out, reference):
    (out / ".git").mkdir(parents=True)
    (out / ".gitattributes").write_text("*.mds binary")
    convert(shards, out, "mds")
    found = digest_folder(out)
    assert found.pop(".gitattributes")
    assert found == reference


def test_a_file_that_appears_meanwhile_is_not_replaced(shards, out):
    with pytest.raises(OutputError, match="holds validation; move it away"):
        convert(shards, out, "mds", engine=Watched(lambda: write_mine("validation/mine")(out)))
    assert (out / "validation" / "mine").read_text() == "mine"


def test_two_conversions_do_not_write_to_one_folder(shards, out, monkeypatch):
    monkeypatch.setattr(work_folder, "LOCK_SECONDS", 0)

    def convert_too() -> None:
        with pytest.raises(OutputError, match="another conversion is writing to"):
            convert(shards, out, "mds")

    convert(shards, out, "mds", engine=Watched(convert_too))
    assert fixtures.read_mds(out / "train")


# ---- what is refused ----


@pytest.mark.parametrize("to", FORMATS)
def test_a_finished_conversion_is_refused_and_left_as_it_is(to, shards, out):
    convert(shards, out, "parquet")
    before = digest_folder(out)
    with pytest.raises(OutputError, match=r"holds README\.md; move it away, or name a new or empty folder"):
        convert(shards, out, to)
    assert digest_folder(out) == before


@pytest.mark.parametrize("place", ["", "inside", "train"])
def test_the_shard_folder_itself_is_no_place_for_the_result(place, shards):
    before = digest_folder(shards)
    with pytest.raises(OutputError, match="lies inside the shard folder"):
        convert(shards, shards / place, "mds")
    assert digest_folder(shards) == before


def test_splits_without_rows_are_named(tmp_path, out):
    shards = write_rows(tmp_path / "shards", {"train": [[numbered_rows(3)]], "validation": []})
    with pytest.raises(ShardError, match=r"split validation of .* holds no rows"):
        convert(shards, out, "mds", split="validation")
    with pytest.raises(ShardError, match="holds no rows to convert"):
        convert(write_rows(tmp_path / "empty", {"train": []}), out, "mds")
    assert not out.exists()


def test_a_row_that_leaves_its_bounds_is_named(shards, out):
    change_manifest(shards, lambda manifest: manifest["tokenizer"].update(vocab_size=25))
    with pytest.raises(ShardError, match=r"train/2\.arrow, split train, row 5: masked_ids\[0\] is 25"):
        convert(shards, out, "parquet")
    assert not out.exists()


def test_shards_that_are_replaced_meanwhile_are_an_error(shards, out):
    with pytest.raises(ShardError, match="was replaced meanwhile"):
        convert(shards, out, "mds", engine=Watched(lambda: change_manifest(shards, lambda manifest: None)))
    assert not out.exists()


# ---- the command ----


def test_the_command_says_what_it_wrote_and_how_to_read_it(shards, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for to, num_files, next_step in (
        ("parquet", 4, "Next, in Python: datasets.load_dataset('parquet')"),
        ("mds", 3, "Next, in Python: streaming.StreamingDataset(local='mds/train', batch_size=32)"),
    ):
        command = ["convert", "shards", "-o", to, "--to", to]
        assert run([*command, "--workers", "1"]) == 0
        first, second = capsys.readouterr().out.splitlines()
        assert first.startswith(f"{to}: 38 rows in {num_files} files, ")
        assert second == next_step
        assert run([*command, "--workers", "2"]) == 1
        assert "name a new or empty folder" in capsys.readouterr().err
