"""Where compiled kernels are kept: a folder for each module and each state of its sources.

Numba keeps machine code on the disk (`cache=True`), but it compares only the kernel's own file with what it compiled.
The helpers and constants that a kernel uses are in other files too. So the folder's name holds a hash of all sources
that the module imports: a change in one of them leads to a new folder, and the kernel is compiled again. Numba also
compares the path and, before 0.68, the date of the source. It is shown an empty file beside these folders, of the
module's name, so that equal sources share what they compile, in any checkout or virtual environment.

A kernel's folder has an index, from types to files. Numba numbers the files, so of two processes that compile a kernel
for different types at once, one can overwrite the other's code while the index names it for the other's types. Here a
file has a name of its own for its types, and is there before the index names it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite
import numba
import numpy as np

from albert_data.storage.files import find_cache_folder

_config: Any = numba.config  # CACHE_DIR: what the user set by NUMBA_CACHE_DIR, or nothing
MAX_FOLDERS = 8  # kept for each module, each at most 100 kB: enough to switch between several branches
_ROOT = Path(__file__).parents[2]
# A module with kernels must import what its kernels use at the top of the file and in this form: only that is found.
_IMPORTED = re.compile(r"^from (albert_data[.\w]*) import", re.MULTILINE)


def find_folder(module: str) -> Path | None:
    """Make the folder for the kernels of a module. None if there is none that can be written: nothing is kept then."""
    if not _list_files(module):
        return None  # not of this package: what it imports is not known
    try:
        base = Path(_config.CACHE_DIR or find_cache_folder("kernels"))
        folder = base / f"{module}-{hash_sources(module)}"
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            _drop_oldest(base, module)
        if not (source := base / f"{module}.py").exists():
            source.touch()
            os.utime(source, (0, 0))
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        return None
    return folder if os.access(folder, os.W_OK) else None


@contextmanager
def kept_in(folder: Path, function: FunctionType) -> Iterator[None]:
    """Let Numba keep a kernel in a folder that it decorates meanwhile. It reads the setting and the path only then."""
    before = _config.CACHE_DIR, function.__code__
    _config.CACHE_DIR = str(folder)
    function.__code__ = function.__code__.replace(co_filename=str(folder.with_name(f"{function.__module__}.py")))
    try:
        yield
    finally:
        _config.CACHE_DIR, function.__code__ = before


def name_by_types(compiled: Any) -> None:
    """Let what a kernel keeps have names by its types. compiled: decorated by Numba; see the top of this file."""
    files = compiled._cache._cache_file

    def save(types: Any, code: Any) -> None:
        name = files._data_name(int.from_bytes(sha256(files._dump(types)).digest()[:8]))
        with suppress(OSError):  # the disk is full: then it is compiled again the next time
            files._save_data(name, code)
            files._save_index({**files._load_index(), types: name})

    files.save = save


def drop(folder: Path) -> None:
    """Remove a folder with a damaged file. Numba writes files under another name first, but does not sync them."""
    shutil.rmtree(folder, ignore_errors=True)


def hash_sources(module: str) -> str:
    """Hash the sources of a module and of all that it imports of this package, directly or not, and the versions."""
    found, waiting = {module}, [module]
    while waiting:
        new = _read_module(waiting.pop())[1] - found
        found |= new
        waiting += new
    digest = sha256(f"{sys.version} {numba.__version__} {llvmlite.__version__} {np.__version__}".encode())
    for name in sorted(found):
        digest.update(name.encode() + _read_module(name)[0])
    return digest.hexdigest()[:16]


@cache
def _read_module(name: str) -> tuple[bytes, frozenset[str]]:
    """Return the hash of a module's source, and the modules of this package that it imports."""
    source = "".join(path.read_text("utf-8") for path in _list_files(name))
    return sha256(source.encode()).digest(), frozenset(_IMPORTED.findall(source))


def _list_files(module: str) -> list[Path]:
    """The file of a module, or all files of a package: `from package import module` does not say which."""
    path = _ROOT.joinpath(*module.split("."))
    files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return [file for file in files if module.startswith("albert_data") and file.is_file()]


def _drop_oldest(base: Path, module: str) -> None:
    """Keep the newest folders of a module. A process that uses a removed one compiles what it had not loaded."""
    folders = [path for path in base.glob(f"{module}-*") if re.fullmatch("-[0-9a-f]{16}", path.name[len(module) :])]
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime_ns, reverse=True)[MAX_FOLDERS:]:
        drop(folder)
