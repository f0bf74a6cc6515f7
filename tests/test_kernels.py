"""Compiled kernels are kept on the disk, and a stale or damaged one is compiled again."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from callable_helpers import around

from albert_data import kernels
from albert_data.kernels import cache as kernel_cache
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
    monkeypatch.setattr(kernel_cache._config, "CACHE_DIR", str(tmp_path))
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


def test_of_two_processes_that_compile_a_kernel_at_once_none_gets_the_code_for_the_types_of_the_other(cache):
    """The second one begins before the first has noted its file, and ends before it has written it."""

    def fill(made: Any, dtype: Any) -> list[float]:
        arrays = np.array([0.5], dtype), np.array([1, -1]), np.array([0.5, 9], dtype), np.array([2])
        return list(made(*arrays))

    first, second, third = (decorate_again() for _ in range(3))
    files, others = (made.compiled._cache._cache_file for made in (first, second))
    write = files._save_data

    def write_late(*arguments: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(others, "_load_index", dict)
            fill(second, np.int64)
        write(*arguments)

    files._save_data = write_late
    fill(first, np.float64)
    for dtype in (np.int64, np.float64):
        assert fill(third, dtype) == [*np.array([0.5], dtype), *np.array([0.5, 9], dtype)]


def test_a_kernel_for_which_the_disk_has_no_room_runs(cache):
    made = decorate_again()

    def fail(path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    made.compiled._cache._cache_file._open_for_write = fail
    assert made(np.array([7]), np.array([1]), np.array([0]), np.array([0]))[0] == 7
    assert not list(cache.rglob("*.nb*"))


def test_kernels_are_kept_anew_where_a_file_changes_that_their_module_imports(monkeypatch):
    modules = ("albert_data.examples.masks", "albert_data.corpus.lines.valid_utf8")
    before = [kernel_cache.hash_sources(module) for module in modules]
    read = kernel_cache._read_module

    def read_changed(module: str) -> tuple[bytes, frozenset[str]]:
        digest, imports = read(module)
        return digest + b"#" * (module == "albert_data.examples.spans"), imports

    monkeypatch.setattr(kernel_cache, "_read_module", read_changed)
    masks, utf8 = (kernel_cache.hash_sources(module) for module in modules)
    assert masks != before[0], "it imports spans.py"
    assert utf8 == before[1], "it does not"


def test_equal_sources_share_their_kernels_and_an_edited_helper_of_another_file_changes_them(tmp_path):
    """Numba alone would compile again in another checkout, and load the kernel of the older helper in the same one."""
    env, package = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}, tmp_path / "first" / "albert_data"
    shutil.copytree(Path(kernels.__file__).with_name("storage"), package / "storage")
    for name in ("__init__", "kernels", "kernel_cache", "files", "errors", "interrupts"):
        shutil.copy(Path(kernels.__file__).with_name(f"{name}.py"), package)
    (package / "kern.py").write_text(
        "from albert_data.kernels import kernel\nfrom albert_data.help import add\n\n@kernel\ndef double(value):\n"
        "    return add(value, value)\n"
    )
    helper = "from albert_data.kernels import helper\n\n@helper\ndef add(a, b):\n    return a {} b\n"
    (package / "help.py").write_text(helper.format("+"))
    shutil.copytree(tmp_path / "first", tmp_path / "second", copy_function=shutil.copyfile)  # with other dates
    shutil.copytree(tmp_path / "second", tmp_path / "edited")
    (tmp_path / "edited" / "albert_data" / "help.py").write_text(helper.format("*"))
    program = "from albert_data.kern import double; print(double(3), *double.compiled.stats.cache_hits.values())"
    found = []
    for place in ("first", "second", "edited"):
        folder = tmp_path / place
        done = subprocess.run([sys.executable, "-c", program], cwd=folder, env=env, capture_output=True, text=True)
        found.append(done.stdout.split())
    assert found == [["6"], ["6", "1"], ["9"]]


def test_only_the_newest_folders_of_a_module_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache._config, "CACHE_DIR", str(tmp_path))
    module, other = "albert_data.kernels.draws", tmp_path / "albert_data.kernels.draws.more-0123456789abcdef"
    old = [tmp_path / f"{module}-{number:016x}" for number in range(kernel_cache.MAX_FOLDERS + 2)]
    for age, folder in enumerate([*old, other]):
        folder.mkdir()
        os.utime(folder, (10**9 - age, 10**9 - age))
    new = kernel_cache.find_folder(module)
    assert set(tmp_path.glob("*-*")) == {new, other, *old[: kernel_cache.MAX_FOLDERS - 1]}
    assert kernel_cache.find_folder(module) == new


def test_without_a_folder_that_can_be_written_kernels_are_compiled_and_not_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(kernel_cache._config, "CACHE_DIR", str(tmp_path / "file"))
    assert kernel_cache.find_folder("albert_data.kernels.draws") is None
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
