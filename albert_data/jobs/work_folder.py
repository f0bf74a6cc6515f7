"""The hidden folder in which a command works, inside of the folder that it makes: OUT/.build, DIR/.convert, DIR/.vocab.

    lock   locked by the running command; its text, the mark, says which command's folder this is
    ...    the command's files; a killed one leaves them, and the next one resumes or removes them

A folder without the mark is used only if it holds nothing, or a lock whose mark a kill cut short. Only regular files
with names as the command gives them are removed, in the folder and in those that it makes there. None of these folders
may be a link.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from albert_data.errors import OutputError
from albert_data.storage import FOLDER, find_kind, find_storage
from albert_data.storage.disk import NOT_THERE
from albert_data.storage.files import is_regular, remove_files, write_bytes
from albert_data.text.escaping import escape_controls

LOCK_SECONDS = 5.0  # to wait for a lock: if a command has just been killed, its processes have to end first
LOCK_NAME = "lock"
_log = logging.getLogger("albert_data")


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
    """A working folder and the lock on it. path: of the folder, `out`/`name`."""

    def __init__(self, out: Path, name: str, noun: str, files: Sequence[str], folders: Sequence[str] = ()) -> None:
        """noun: what messages call the command. files: patterns of the names of its files.

        folders: that it makes below this one, each after those in it.
        """
        self.out, self.path, self._noun, self._files, self._folders = out, out / name, noun, files, ("", *folders)
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
        for path in (self.path / folder for folder in self._folders):
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
            self._made_out = find_kind(self.out) is None
            self._storage.make_folder(self.path)
            taken = f"another {self._noun} is writing to {self.out}; wait for it to end"
            self._unlock = take_lock(self._lock, self._mark, taken, LOCK_SECONDS)
        except OSError as error:
            raise OutputError(f"output {self.out} can't be written: {error.strerror}; name another folder") from error

    def check_lock(self, *, asks: bool = True) -> None:
        """Raise OSError if another command has taken the lock, which can happen in a store: then this one must end.

        asks: see `Storage.check_lock`.
        """
        self._storage.check_lock(self._lock, asks=asks)

    def drop(self, folders: Sequence[str] | None = None) -> None:
        """Remove the files of some folders, or of all, except the lock; then these folders, if they are empty.

        The folder itself, "", comes first. It holds what a command resumes by: with that still there, one could resume
        from the rest if this is killed halfway.
        """
        self.check_lock()
        for folder in self._folders if folders is None else folders:
            remove_files(self.path / folder, lambda name: any(fnmatchcase(name, pattern) for pattern in self._files))
            if folder:
                self._storage.remove_empty(self.path / folder)

    def remove(self) -> None:
        """Remove the files, the lock, and the folder; also OUT, if `lock` made it and it is empty."""
        assert self.is_locked, "or it would be another command's"
        self.drop()
        self._storage.remove(self._lock)
        self.unlock()  # before the folder is removed: NFS keeps a file that is open
        self._storage.remove_empty(self.path)  # it stays if another command has begun here since
        if self._made_out:
            self._storage.remove_empty(self.out)

    def sweep(self) -> None:
        """Remove what a command left that was killed when all was finished, maybe while it removed its folder."""
        if self.is_marked:
            self.lock()
            self.remove()
        else:
            self._storage.remove_empty(self.path)

    def unlock(self) -> None:
        """Free the lock, if it is held."""
        if self._unlock is not None:
            self._unlock()
            self._unlock = None
