"""Compiled kernels are kept on the disk, and what is kept there is not trusted blindly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from albert_data import kernels
from albert_data.tokenizer.encoding import fill_in

PROGRAM = """
import sys
import numpy as np
from albert_data.tokenizer.encoding import fill_in
lengths = np.array([1, -1])
out = fill_in(np.array([7], np.uint16), lengths, np.array([8, 9], np.uint16), np.array([2]))
assert out.tolist() == [7, 8, 9], out
print(sum(fill_in.stats.cache_hits.values()))
"""


def run(cache: Path) -> int:
    """Call a kernel in a process of its own; returns how often it was found compiled."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_a_kept_kernel_that_is_damaged_is_compiled_anew(tmp_path: Path, ending: str):
    assert run(tmp_path) == 0
    assert run(tmp_path) == 1
    files = list(tmp_path.rglob(f"encoding.fill_in*.{ending}"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert run(tmp_path) == 0
    assert run(tmp_path) == 1


def test_a_kernel_is_compiled_anew_where_any_file_of_the_package_changed(monkeypatch: pytest.MonkeyPatch):
    before = kernels._stamp_package()
    stat = Path.stat

    def stat_later(path: Path, **options: bool) -> os.stat_result:
        found = stat(path, **options)
        if path.name != "draws.py":
            return found
        changed = list(found)
        changed[6] += 1
        return os.stat_result(changed)

    monkeypatch.setattr(Path, "stat", stat_later)
    kernels._stamp_package.cache_clear()
    assert kernels._stamp_package() != before
    kernels._stamp_package.cache_clear()


def test_a_kernel_that_can_be_kept_nowhere_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch):
    def find_no_folder(self: object, function: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(kernels._Cache, "__init__", find_no_folder)

    @kernels.kernel
    def double(values: np.ndarray) -> np.ndarray:
        return values * 2

    assert double(np.array([3])).tolist() == [6]


def test_another_numba_loads_in_its_own_way(monkeypatch: pytest.MonkeyPatch):
    """Where its private parts have other names, a kernel that is kept is loaded, if slower, and not compiled anew."""
    cache, loaded = kernels._Cache(fill_in.py_func), []
    monkeypatch.setattr(kernels._Cache, "_load_overload", None)  # calling it is a TypeError
    monkeypatch.setattr(kernels.FunctionCache, "load_overload", lambda *arguments: loaded.append(arguments[1:]) or "it")
    assert cache.load_overload("signature", "context") == "it"
    assert loaded == [("signature", "context")]
