"""Folders of one task on a disk of this machine, and the removal of those that killed tasks left there.

A folder holds a file that its process locks before the folder gets its name. The system frees the lock if the process
is killed, so a folder whose lock can be had is nobody's.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from albert_data.storage.disk import Disk

_PREFIX, _NEW_PREFIX = "albert-data-task-", "albert-data-new-"
_LOCK, _MARK = "lock", b"a task of albert-data\n"


@contextmanager
def machine_scratch() -> Iterator[Path]:
    """A folder on a disk of this machine, as TMPDIR names it, that is removed afterwards."""
    base = Path(tempfile.gettempdir())
    remove_abandoned(base)
    made = Path(tempfile.mkdtemp(prefix=_NEW_PREFIX, dir=base))
    unlock = Disk().lock(made / _LOCK, _MARK, 0)
    folder = made.rename(made.with_name(made.name.replace(_NEW_PREFIX, _PREFIX)))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        unlock()


@cache  # a worker that replaces a killed one is a new process
def remove_abandoned(base: Path) -> None:
    """Remove the folders in `base` that tasks left when they were killed. Raises nothing."""
    for path in base.glob(f"{_PREFIX}*"):
        with suppress(OSError, ValueError):  # it is in use, was removed meanwhile, or is not ours
            if Disk().read(path / _LOCK, len(_MARK))[0] == _MARK:
                unlock = Disk().lock(path / _LOCK, _MARK, 0)
                shutil.rmtree(path)
                unlock()
