"""`albert-data verify` says nothing false and prints nothing harmful, whatever happens to the folder meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
import time
import unicodedata
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from inspect_fixtures import TRAIN, VALIDATION, edit_manifest, write_small
from shard_fixtures import limit_files

from albert_data.cli.verify import verify
from albert_data.errors import ShardError
from albert_data.inspect import verify as verifying
from albert_data.inspect.verify import Fault
from albert_data.inspect.verify import verify as find_faults
from albert_data.jobs.progress import NullProgress
from albert_data.shards import manifest_file


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A sound build, free to damage."""
    return Path(shutil.copytree(sound, tmp_path / "built"))


@pytest.mark.parametrize("arguments", [["--workers", "1000"], ["--workers", "1024", "--quick"]])
def test_more_workers_than_shards_are_no_harm(folder, arguments) -> None:
    assert CliRunner().invoke(verify, [str(folder), *arguments]).exit_code == 0


def test_workers_are_no_more_than_files_may_be_open(tmp_path, monkeypatch) -> None:
    def hash_slowly(path: Path, advance: Callable[[int], object]) -> str:
        with path.open("rb"):
            time.sleep(0.3)
            return sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(verifying, "hash_file", hash_slowly)
    names = [f"train/{number}.arrow" for number in range(150)]
    write_small(tmp_path)
    sound = (tmp_path / VALIDATION).read_bytes()
    for name in names:
        (tmp_path / name).write_bytes(sound)

    def add(manifest) -> None:
        [shard] = manifest["splits"]["validation"]["shards"]
        split = manifest["splits"]["train"]
        split["shards"] += [{**shard, "file": name} for name in names]
        for key in ("num_rows", "num_tokens", "num_masked"):
            split[key] += len(names) * shard[key]

    edit_manifest(tmp_path, add)
    with limit_files(140):  # two for each of 64 threads here
        assert not list(find_faults(tmp_path, quick=True, workers=1000))


def test_a_shortage_of_the_machine_is_no_fault_of_a_file(folder, monkeypatch) -> None:
    def lack(path: Path, advance: object) -> str:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    monkeypatch.setattr(verifying, "hash_file", lack)
    with pytest.raises(OSError, match="Too many open files"):
        list(find_faults(folder))


# ---- a build that replaces the folder meanwhile ----


def replace_all(folder: Path) -> None:
    """What `build --overwrite` does: the manifest goes first, and comes last."""
    data = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").unlink()
    (folder / TRAIN).write_bytes((folder / VALIDATION).read_bytes())
    (folder / "new").write_bytes(data)
    (folder / "new").replace(folder / "manifest.json")


def remove_manifest(folder: Path) -> None:
    (folder / TRAIN).write_bytes(b"")
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize("replace", [replace_all, remove_manifest])
@pytest.mark.parametrize("quick", [False, True])
def test_a_folder_that_is_replaced_meanwhile_is_no_fault_but_an_error(folder, monkeypatch, replace, quick) -> None:
    hash_file = verifying.hash_file

    def hash_later(path: Path, advance: Callable[[int], object]) -> str:
        if path.name.endswith(".arrow") and not replaced:
            replaced.append(path)
            replace(folder)
        return hash_file(path, advance)

    replaced: list[Path] = []
    monkeypatch.setattr(verifying, "hash_file", hash_later)
    result = CliRunner().invoke(verify, [str(folder), *(["--quick"] if quick else [])])
    assert replaced
    assert isinstance(result.exception, ShardError)
    assert "manifest.json was replaced meanwhile" in str(result.exception)
    assert result.stdout == ""


def test_a_sound_folder_that_was_replaced_at_the_end_is_not_called_sound(folder) -> None:
    class Replacing(NullProgress):
        def advance(self, done: int, text_bytes: int = 0) -> None:
            write_small(folder)

    with pytest.raises(ShardError, match="was replaced meanwhile"):
        list(find_faults(folder, quick=True, progress=Replacing()))


def test_folders_of_a_build_that_vanish_meanwhile_are_no_error(folder, monkeypatch) -> None:
    runs = folder / ".build/runs"
    runs.mkdir(parents=True)
    scandir, entries = os.scandir, _Entries(os.scandir(folder / ".build"))
    runs.rmdir()

    def scan(path: Any) -> Any:
        return entries if str(path).endswith(".build") else scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    assert not list(find_faults(folder))


class _Entries(list[Any]):
    """What was in a folder, as os.scandir gives it."""

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_an_unlisted_shard_that_is_no_regular_file_is_not_opened(folder) -> None:
    os.mkfifo(folder / "train/shard-00009.arrow")
    [fault] = find_faults(folder)
    assert fault.file == "train/shard-00009.arrow"
    assert fault.what.startswith("is not listed in the manifest")


def test_a_manifest_that_appears_just_after_the_check_is_no_fault(folder, monkeypatch) -> None:
    """It was missing when it was read, and is there when that is told."""
    (folder / "manifest.json").rename(folder / "kept")
    is_there = manifest_file.is_there

    def look(path: Path) -> bool:
        found = is_there(path)
        if not found and path.parent == folder:
            (folder / "kept").rename(folder / "manifest.json")
        return found

    monkeypatch.setattr(manifest_file, "is_there", look)
    with pytest.raises(ShardError, match=r"holds no manifest\.json, so it is no finished build"):
        list(find_faults(folder))
    assert not list(find_faults(folder))


def test_a_manifest_that_disappears_while_it_is_opened_is_no_fault(folder, monkeypatch) -> None:
    def remove(path: Path, flags: int) -> int:
        path.unlink()
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(os, "open", remove)
    with pytest.raises(ShardError, match=r"holds no manifest\.json, so it is no finished build"):
        list(find_faults(folder))


def test_a_damaged_folder_that_stays_as_it_is_has_faults(folder) -> None:
    (folder / TRAIN).write_bytes(b"")
    assert {fault.file for fault in find_faults(folder)} == {TRAIN}


@pytest.mark.parametrize("arguments", [[], ["--quick"]])
def test_nothing_that_verify_prints_holds_control_characters(folder, arguments) -> None:
    """In names of files, in values of the manifest, and in the folder's own name."""
    odd = "\x1b]0;x\x07\x9b2J\r\u202e\u2028"
    named = folder.rename(folder.with_name("a\x1b[2Jb\udcff"))

    def spoil(manifest: dict[str, Any]) -> None:
        manifest["splits"]["validation"]["shards"][0].update(file=odd)
        manifest["splits"]["train"]["shards"][0].update(sha256=odd)
        manifest["tokenizer"].update(sha256=odd)
        manifest.update(albert_data_version=odd, digest=odd)
        manifest["plan"][odd] = odd

    for edit in (spoil, lambda m: m.update(splits=odd), lambda m: m.update(format=odd, format_version=odd)):
        edit_manifest(named, edit)
        result = CliRunner().invoke(verify, [str(named), *arguments])
        assert result.exit_code == 1
        assert not [c for c in result.stdout if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Cs") and c != "\n"]


def test_the_faults_of_many_keys_are_counted(folder) -> None:
    edit_manifest(folder, lambda m: m["inputs"].extend([None] * 1000))
    faults = list(find_faults(folder))
    assert len(faults) == 21
    assert faults[-1] == Fault(file="manifest.json", what="980 more keys at fault")
