"""Compiled kernels are kept on the disk, and a stale or damaged one is compiled again."""

from __future__ import annotations

import ast
import errno
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from callable_helpers import around
from numba.core import event

from albert_data import kernels
from albert_data.kernels import cache as kernel_cache
from albert_data.storage import find_storage
from albert_data.storage.files import find_cache_folder
from albert_data.tokenizer.chunks.table import fill_in

BUILD = """
import sys
from pathlib import Path

from albert_data.config import BuildConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.pipeline.build import build_shards
from albert_data.pipeline.make_rows import MakeRows
from albert_data.pipeline.warming import Warming
from albert_data.tokenizer.model import load_tokenizer
from build_fixtures import InlineEngine


def list_compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith("albert_data.")]
    kernels = [thing for module in modules for thing in vars(module).values() if hasattr(thing, "compiled")]
    return {(kernel.__name__, str(types)) for kernel in kernels for types in kernel.compiled.signatures}


model, text, out = map(Path, sys.argv[1:])
tokenizer = load_tokenizer(model)
Warming(MakeRows(BuildConfig(), tokenizer, out, out), tokenizer)()
before = list_compiled()
assert len(before) > 20
build_shards(find_inputs([str(text), str(text.with_suffix(".jsonl"))]), out, tokenizer, BuildConfig(), InlineEngine())
assert len(tokenizer._encoder.chunks._table.slots) > 1 << 20, "the table did not grow"
print({name for name, _ in list_compiled() - before})
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where kernels are kept that are decorated from now on: nothing is there."""
    monkeypatch.setattr(kernel_cache.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))  # Numba reads it again before it compiles
    return tmp_path


def decorate_again() -> Any:
    """Return a kernel of the package as a new process has it."""
    return kernels.kernel(fill_in.__wrapped__)


def call_again() -> Any:
    """The same, after it was called."""
    made = decorate_again()
    ids = made(np.array([7], np.uint16), np.array([1, -1]), np.array([8, 9], np.uint16), np.array([2]))
    assert ids.tolist() == [7, 8, 9]
    return made


def test_a_kernel_whose_file_is_cut_short_is_compiled_again_and_kept(cache):
    def count_hits() -> int:
        return sum(call_again().compiled.stats.cache_hits.values())

    assert [count_hits(), count_hits()] == [0, 1]
    for ending in ("nbi", "nbc"):
        for change in (lambda data: data[: len(data) // 2], lambda data: b"", lambda data: bytes(1000)):
            (file,) = cache.rglob(f"*.{ending}")
            file.write_bytes(change(file.read_bytes()))
            assert count_hits() == 0
    assert count_hits() == 1


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_kernel_is_compiled_and_kept_under_a_lock_unless_another_process_has_it_for_long(
    cache, monkeypatch, is_taken
):
    """Numba numbers the files of a kernel. Two processes could give one number twice, for different types."""
    monkeypatch.setattr(kernel_cache, "_LOCK_SECONDS", 0.1)
    folder = kernel_cache.find_folder()
    assert folder is not None
    lock = partial(find_storage(cache).lock, folder / f"{fill_in.__module__}.fill_in.lock", b"", 0.0)
    events = event.RecordingListener()
    free = lock() if is_taken else lambda: None
    replace = os.replace

    def replace_late(*paths: Any) -> None:
        with pytest.raises(BlockingIOError):
            lock()
        replace(*paths)

    monkeypatch.setattr(os, "replace", replace_late)
    with event.install_listener("numba:compile", events):
        call_again()
    assert len(events.buffer) == 2
    assert Path(kernel_cache.config.CACHE_DIR) == cache, "others keep theirs where they did"
    free()
    lock()()
    assert call_again().compiled.stats.cache_hits


def test_a_process_that_waited_for_a_kernel_loads_what_the_other_compiled(cache, monkeypatch):
    call_again()
    folder, away = kernel_cache.find_folder(), cache / "away"
    assert folder is not None
    folder.rename(away)
    folder.mkdir()

    class Storage:
        def lock(self, path: Path, mark: bytes, seconds: float) -> Any:
            if not seconds:
                raise BlockingIOError  # another process has it
            shutil.copytree(away, folder, dirs_exist_ok=True)
            return Mock()

    monkeypatch.setattr(kernel_cache, "find_storage", lambda path: Storage())
    stats = call_again().compiled.stats
    assert (sum(stats.cache_hits.values()), sum(stats.cache_misses.values())) == (1, 1)


def test_a_kernel_for_which_the_disk_has_no_room_runs(cache, monkeypatch):
    def fail(*paths: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert not call_again().compiled.stats.cache_hits
    assert not list(cache.rglob("*.nb*"))


@pytest.mark.parametrize(
    ("changed", "is_new"), [("text/utf8.py", True), ("text/character_bits.py", True), ("cli/build.py", False)]
)
def test_kernels_are_kept_anew_where_a_file_that_makes_them_changes(monkeypatch, changed, is_new):
    read, before = Path.read_bytes, kernel_cache.hash_sources()
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"#" * str(path).endswith(changed))
    assert (kernel_cache.hash_sources.__wrapped__() != before) is is_new


def list_names(*nodes: ast.AST) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def test_what_kernels_read_is_in_files_with_kernels():
    """So that what is kept of a kernel is not used when a constant or a tuple of another file has changed."""
    root = Path(kernels.__file__).parents[2]
    for path in root.glob("albert_data/**/*.py"):
        module = ast.parse(path.read_text())
        functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
        compiled = [node for node in functions if {"kernel", "helper"} & list_names(*node.decorator_list)]
        used = list_names(*compiled)
        for node in reversed(module.body):  # constants are made of others above them
            if isinstance(node, ast.Assign) and used & list_names(*node.targets):
                used |= list_names(node.value)
            if isinstance(node, ast.ImportFrom) and used & {name.name for name in node.names}:
                source = root.joinpath(*(node.module or "").split(".")).with_suffix(".py")
                assert not source.exists() or "kernel" in source.read_text(), f"{path} imports it; say kernel there"


def test_only_the_newest_folders_are_kept(cache):
    old = [cache / f"albert_data-{number:016x}" for number in range(kernel_cache.MAX_FOLDERS + 2)]
    for age, folder in enumerate([*old, cache / "other-1"]):
        folder.mkdir()
        os.utime(folder, (10**9 - age, 10**9 - age))
    new = kernel_cache.find_folder()
    assert set(cache.iterdir()) == {new, cache / "other-1", *old[: kernel_cache.MAX_FOLDERS - 1]}
    assert kernel_cache.find_folder() == new


def test_without_a_folder_that_can_be_written_kernels_are_compiled_and_not_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(kernel_cache.config, "CACHE_DIR", str(tmp_path / "file"))
    assert kernel_cache.find_folder() is None
    call_again()


def test_a_helper_is_the_same_in_python_and_in_a_kernel():
    @kernels.helper
    def refuse(value: int) -> int:
        if value == 3:
            raise KeyError("no", value)
        return value + 1

    for call in (refuse, around(refuse)):
        assert call(1) == 2
        with pytest.raises(KeyError, match=r"'no', 3"):
            call(3)


def test_a_worker_comes_to_no_kernel_that_its_parent_has_not_compiled(tmp_path, tokenizer_model):
    """Not even where its table of chunks grows, SentencePiece normalises some, and a document comes twice."""
    model, text = tmp_path / "spiece.model", tmp_path / "text.txt"
    model.write_bytes(tokenizer_model)
    numbers = ["".join("abcdefghij"[int(digit)] for digit in str(number)) for number in range(100_000)]
    lines = [*numbers, "¼ a\u0308 ﷺ", "".join(map(chr, range(0x300, 0xD00, 7)))]
    text.write_text("\n".join(lines))
    text.with_suffix(".jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines[-20:] * 2))
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(model), str(text), str(tmp_path / "out")],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("asked", "platform", "place"),
    [
        ("/some/cache", "linux", "/some/cache"),
        ("not/absolute", "linux", "/home/me/.cache"),
        ("", "linux", "/home/me/.cache"),
        ("", "darwin", "/home/me/Library/Caches"),
    ],
)
def test_the_cache_folder_is_the_platforms(monkeypatch, asked, platform, place):
    monkeypatch.setenv("XDG_CACHE_HOME", asked)
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    assert find_cache_folder("kernels") == Path(place, "albert-data", "kernels")
