"""Folders of one task on a disk of this machine, and the removal of those that killed tasks left there.

A folder holds a file that its process locks, and then marks. The system frees the lock if the process is killed, so a
marked folder whose lock can be had is nobody's.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from albert_data.storage.disk import NOT_THERE, Disk

_PREFIX, _LOCK, _MARK = "albert-data-task-", "lock", b"a task of albert-data\n"


@contextmanager
def machine_scratch() -> Iterator[Path]:
    """A folder on a disk of this machine, as TMPDIR names it, that is removed afterwards. Keep no folder in it."""
    base = Path(tempfile.gettempdir())
    remove_abandoned(base)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    try:
        unlock = Disk().lock(folder / _LOCK, _MARK, 0)
    except OSError as error:  # without locks there is no mark, so nobody else removes the folder
        if error.errno not in NOT_THERE:
            raise
        unlock = None
    try:
        yield folder
    finally:
        _remove(folder, unlock)


@cache  # a worker that replaces a killed one is a new process
def remove_abandoned(base: Path) -> None:
    """Remove the folders in `base` that tasks left when they were killed. Raises nothing."""
    for path in base.glob(f"{_PREFIX}*"):
        with suppress(OSError, ValueError):  # it is in use, was removed meanwhile, or is not ours
            if Disk().read(path / _LOCK, len(_MARK)) == _MARK:
                _remove(path, Disk().lock(path / _LOCK, _MARK, 0))


def _remove(folder: Path, unlock: Callable[[], None] | None) -> None:
    """Remove a locked folder. The lock goes last, or nobody could remove the rest after a kill. Raises nothing."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name != _LOCK:
                path.unlink()
    if unlock is not None:
        unlock()  # NFS keeps a file that is open
    shutil.rmtree(folder, ignore_errors=True)
