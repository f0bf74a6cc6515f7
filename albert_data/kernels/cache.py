"""Where compiled kernels are kept: a folder for each state of the sources and of what compiles them.

Numba keeps machine code on the disk (`cache=True`), but it compares only the kernel's own file with what it compiled.
The helpers and constants that a kernel uses are in other files too. So the folder's name holds a hash of all files that
hold kernels, helpers or constants for them: those with the word "kernel". A change there leads to a new folder.

A kernel has an index, from types to files, which Numba numbers. Two processes that compile a kernel for different types
at once could give one number twice. So one process compiles a kernel at a time, and those that wait for it load what it
compiled. Processes that compile different kernels do not wait.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from threading import local
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import event

from albert_data.storage import find_storage
from albert_data.storage.files import find_cache_folder

config: Any = numba.config  # CACHE_DIR: what the user set by NUMBA_CACHE_DIR, or nothing
MAX_FOLDERS = 8  # kept, each of a few MB: enough to switch between several branches
_LOCK_SECONDS = 60.0  # the largest kernel compiles in a few


def find_folder() -> Path | None:
    """Make the folder for the kernels. None if there is none that can be written: nothing is kept then."""
    try:
        folder = _name_folder()
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            kept = sorted(folder.parent.glob("albert_data-*"), key=lambda path: -path.stat().st_mtime_ns)
            for old in kept[MAX_FOLDERS:]:
                drop(old)  # a process that uses it compiles what it had not loaded
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        return None
    return folder if os.access(folder, os.W_OK) else None


def drop(folder: Path) -> None:
    """Remove a folder with a damaged file. Numba writes files under another name first, but does not sync them."""
    shutil.rmtree(folder, ignore_errors=True)


@cache
def hash_sources() -> str:
    """Hash the sources of all kernels, and the versions of what compiles them."""
    digest = sha256(f"{sys.version} {numba.__version__} {llvmlite.__version__} {np.__version__}".encode())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        if b"kernel" in (source := path.read_bytes()):
            digest.update(sha256(source).digest())
    return digest.hexdigest()[:16]


def _name_folder() -> Path:
    return Path(config.CACHE_DIR or find_cache_folder("kernels")) / f"albert_data-{hash_sources()}"


class CompiledMeanwhile(Exception):
    """Another process compiled the kernel while this one waited, so it may be on the disk."""


class CompileLock(event.Listener):
    """Lets one process at a time compile a kernel of one state of the sources, and write it.

    A thread takes it when Numba begins to compile, and frees it when the call of the kernel returns.
    """

    def __init__(self) -> None:
        self.kernels: set[Any] = set()  # ours; those of other packages take no lock
        self._of_thread = local()

    def on_start(self, started: event.Event) -> None:
        """Take the lock. Raises CompiledMeanwhile, which Numba passes on, if another process had it."""
        if (kernel := started.data["dispatcher"]) in self.kernels:
            self.free()  # of a compilation that Numba begins anew
            with suppress(OSError, RuntimeError):  # files can't be locked there, or another process takes too long
                path = _name_folder() / f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}.lock"
                lock = partial(find_storage(path).lock, path, b"")
                try:
                    self._of_thread.unlock = lock(0.0)
                except BlockingIOError:
                    self._of_thread.unlock = lock(_LOCK_SECONDS)
                    raise CompiledMeanwhile from None

    def on_end(self, ended: event.Event) -> None:
        pass  # it is not written yet

    def free(self) -> None:
        if unlock := vars(self._of_thread).pop("unlock", None):
            unlock()


compile_lock = CompileLock()
_register: Any = event.register  # it has no types
_register("numba:compile", compile_lock)
