"""The hidden folder in which a command works, inside of the folder that it makes: OUT/.build, DIR/.convert, DIR/.vocab.

    lock   locked by the running command; its text, the mark, says which command's folder this is
    ...    what the command names as its files; a killed one leaves them, and the next one resumes or removes them

Nothing else is removed. A folder without the mark is used only if it holds nothing, or a lock whose mark a kill cut
short. Neither the folder nor those in it may be links.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from albert_data.errors import OutputError
from albert_data.storage import FOLDER, find_kind, find_storage
from albert_data.storage.disk import NOT_THERE
from albert_data.storage.files import is_regular, remove_files, write_bytes
from albert_data.text.escaping import escape_controls

LOCK_SECONDS = 5.0  # to wait for a lock: if a command has just been killed, its processes have to end first
LOCK_NAME = "lock"
_log = logging.getLogger("albert_data")
Patterns = Mapping[str, tuple[str, ...]]


def take_lock(path: Path, mark: bytes, taken: str, seconds: float = 0.0) -> Callable[[], None]:
    """Lock a file and write a mark to it; returns what frees the lock.

    taken: what an OutputError says if another process has it after so many seconds. Raises OSError if it can't be made.
    On a file system without locks the file is only marked, and a warning says so.
    """
    try:
        return find_storage(path).lock(path, mark, seconds)
    except BlockingIOError as error:
        raise OutputError(taken) from error
    except OSError as error:
        if error.errno not in NOT_THERE:
            raise
        folder = escape_controls(str(path.parent))
        _log.warning("%s: no locks here (%s), so two commands at once are not kept apart", folder, error.strerror)
        write_bytes(path, mark)
        return lambda: None


class WorkFolder:
    """A working folder and the lock on it.

    path: of the folder, `out`/`name`
    """

    def __init__(self, out: Path, name: str, noun: str, files: Patterns) -> None:
        """noun: what messages call the command. files: patterns of the names of its files, by folder below this one.

        "" is this folder itself. A folder comes after those in it, because it can only be removed when it is empty.
        """
        self._out, self.path, self._noun, self._files = out, out / name, noun, files
        self._lock, self._mark = self.path / LOCK_NAME, f"albert-data {name[1:]}\n".encode()
        self._storage = find_storage(out)
        self._unlock: Callable[[], None] | None = None
        self._made_out = False

    @property
    def is_marked(self) -> bool:
        return is_regular(self._lock) and self._storage.read_mark(self._lock) == self._mark

    @property
    def is_locked(self) -> bool:
        """Whether this command has the lock."""
        return self._unlock is not None

    def check(self) -> None:
        """Raise OutputError unless the folder is missing, is marked, or holds nothing that could be lost."""
        for path in (self.path / folder for folder in self._files):
            if find_kind(path, follow=False) not in (None, FOLDER):
                raise OutputError(f"{path} is not a folder of a {self._noun}; move it away, or name another folder")
        if self.is_marked:
            return
        is_lock = is_regular(self._lock) and self._mark.startswith(self._storage.read_mark(self._lock))
        if foreign := sorted(set(self._storage.list_names(self.path)) - ({LOCK_NAME} if is_lock else set())):
            raise OutputError(
                f"{self.path} holds {foreign[0]}, but no mark of a {self._noun}; name a new or empty folder"
            )

    def lock(self) -> None:
        """Make the folder, and lock it. Raises OutputError if it can't, or what `check` raises."""
        try:
            self.check()
            self._made_out = find_kind(self._out) is None
            self._storage.make_folder(self.path)
            taken = f"another {self._noun} is writing to {self._out}; wait for it to end"
            self._unlock = take_lock(self._lock, self._mark, taken, LOCK_SECONDS)
        except OSError as error:
            raise OutputError(f"output {self._out} can't be written: {error.strerror}; name another folder") from error

    def check_lock(self, *, asks: bool = True) -> None:
        """Raise OSError if another command has taken the lock, which can happen in a store: then this one must end.

        asks: see `Storage.check_lock`.
        """
        self._storage.check_lock(self._lock, asks=asks)

    def drop(self, files: Patterns | None = None) -> None:
        """Remove the command's files, or some of them, and then the folders below this one that are empty."""
        for folder, patterns in (self._files if files is None else files).items():
            remove_files(self.path / folder, partial(_is_named, patterns))
            if folder:
                self._storage.remove_empty(self.path / folder)  # it stays if it holds anything else
        self._storage.remove_leftovers(self.path)

    def remove(self) -> None:
        """Remove the files, the lock, and the folder; also OUT, if `lock` made it and it is empty."""
        assert self.is_locked, "or it would be another command's"
        self.check_lock()
        self.drop()
        self._storage.remove(self._lock)
        self.unlock()  # before the folder is removed: NFS keeps a file that is open
        self._storage.remove_empty(self.path)  # it stays if another command has begun here since
        if self._made_out:
            self._storage.remove_empty(self._out)

    def unlock(self) -> None:
        """Free the lock, if it is held."""
        if self._unlock is not None:
            self._unlock()
            self._unlock = None


def _is_named(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
