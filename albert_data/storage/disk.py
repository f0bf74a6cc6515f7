"""The disk: files of this machine, and what each operation of a storage promises."""

from __future__ import annotations

import errno
import fcntl
import glob
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from albert_data.storage.interrupts import on_interrupt
from albert_data.storage.status import FILE, TEMPORARY_SUFFIX, Address, Status, check_regular, check_same

if TYPE_CHECKING:
    import pyarrow

Item = TypeVar("Item")
Result = TypeVar("Result")
# Of an operation that a file system does not have: of flock, and of fsync of a folder.
NOT_THERE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)
_TEMPORARY = re.compile(r"\.albert-data-[0-9a-f]{16}\.tmp")
_open_temporaries: set[Path] = set()  # those that are removed if Ctrl-C ends the process


class Disk:
    """Files of this machine.

    A file is written in its folder under a random hidden name, synced (unless sync=False), and renamed. A kill leaves
    at most the hidden `.albert-data-<16 hex digits>.tmp`. A file that is not synced survives a kill too, but not a loss
    of power.

    `ObjectStore` has the same operations, as promised here: each raises OSError if it fails, and StorageError if a
    store does, and a file is seen whole or not at all under its name, whatever happens while it is written.
    """

    # ---- looking ----

    def status(self, path: Address, *, follow: bool = True) -> Status:
        """What lies at a path; follow: if it is a link, what it leads to. Raises FileNotFoundError for nothing."""
        return Status.of(os.stat(path, follow_symlinks=follow))

    def resolve(self, path: Address) -> str:
        """The absolute path without `..` and links. Raises ValueError for a zero byte."""
        return os.path.realpath(os.fspath(path))

    def list_names(self, folder: Path) -> list[str]:
        """The names in a folder, in any order; none where there is no folder."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return os.listdir(folder)
        return []

    def walk(self, folder: Address, refuse: Callable[[OSError], object]) -> Iterator[tuple[str, list[str], list[str]]]:
        """A folder and those below it, as os.walk gives them; `refuse` is called for one that can't be read."""
        return os.walk(os.fspath(folder), onerror=refuse)

    def glob(self, pattern: str) -> Iterator[str]:
        """The paths that match a pattern, in which ** stands for any folders."""
        return glob.iglob(pattern, recursive=True)

    # ---- reading ----

    def open(self, path: Address, known: Status | None = None) -> io.BufferedReader:
        """Open a regular file for reading and seeking. Raises OSError for a FIFO or a device, without waiting.

        known: what was found there. Raises InputError or OSError if it was replaced or changed since.
        """
        raw = io.FileIO(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
        try:
            status = Status.of(os.fstat(raw.fileno()))
            check_same(path, status, known)
            check_regular(path, status)
        except BaseException:
            raw.close()
            raise
        return io.BufferedReader(raw)

    def read(self, path: Path, most: int) -> bytes:
        """All of a regular file, or of one that a link leads to. In a store it is one request.

        Raises ValueError for more than `most` bytes, and OSError for a FIFO, a device or a folder, without waiting.
        """
        check_regular(path, self.status(path))  # before it is opened: that alone makes some devices do something
        with self.open(path) as file:  # another may have taken its place
            num_bytes = os.fstat(file.fileno()).st_size
            if num_bytes > most:
                raise ValueError(f"it has {num_bytes:,} bytes; at most {most:,} are allowed")
            return file.read(num_bytes)

    def read_into(self, path: Path, begin: int, buffer: memoryview) -> int:
        """Fill a buffer with a file's bytes from byte `begin` on; returns how many there were."""
        rest, file = buffer, os.open(path, os.O_RDONLY)
        try:
            while rest and (count := os.preadv(file, [rest], begin)):
                rest, begin = rest[count:], begin + count
        finally:
            os.close(file)
        return len(buffer) - len(rest)

    def map(self, path: Path, sha256: str | None = None) -> pyarrow.Buffer:
        """The bytes of a file, which take memory only while they are used. No file stays open.

        sha256: of the bytes, if the caller knows it. A store, whose files are copied first, checks the copy.
        """
        import pyarrow

        check_regular(path, self.status(path))
        # As bytes: pyarrow takes text paths only in UTF-8. The buffer keeps the mapping alive after the file is closed.
        with pyarrow.memory_map(os.fsencode(path)) as file:
            return file.read_buffer()

    def at_once(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Call a function that reads a file for each item, and yield the results in order.

        In a store several calls wait for their answers at the same time; on a disk one call follows another.
        """
        return map(work, items)

    # ---- writing ----

    @contextmanager
    def create(self, path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
        """Open a file for writing. It gets its name when the block ends without an error.

        sync: wait until it is safe from a crash of the machine. An OSError without a file name, such as that of a full
        disk, is raised again with this file's name.
        """
        temporary = path.with_name(f".albert-data-{os.urandom(8).hex()}{TEMPORARY_SUFFIX}")
        _open_temporaries.add(temporary)
        try:
            with temporary.open("xb") as file:  # x: fail if anything has the name, even a link
                yield file
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            if error.errno is not None and error.filename in (None, str(temporary)):
                raise OSError(error.errno, error.strerror, str(path)) from error
            raise
        finally:
            _remove_temporary(temporary)

    def replace_together(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Replace files of a folder that belong together.

        If there is no space for all of them, nothing changes. A kill can leave too few files, but never old and new
        ones mixed, and never others without the first, which describes them.
        """
        with ExitStack() as written:  # at its end the files get their names, the first one first
            for name, data in reversed(list(files.items())):
                file = written.enter_context(self.create(folder / name, sync=False))
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # so all are complete before any old file is removed
            for name in reversed(list(files)):
                self.remove(folder / name)

    def place(self, folder: Path, files: Mapping[str, Path]) -> None:
        """Move files to a folder, and return when they are safe from a crash.

        files: for each name a finished file. One that is no longer there was moved by a publication that was killed;
        raises FileNotFoundError if it is not in the folder either.
        """
        parents = {(folder / name).parent for name in files}
        for parent in parents:
            self.make_folder(parent)
        for name, made in files.items():
            if os.path.exists(made) or not os.path.exists(folder / name):
                os.replace(made, folder / name)
        for parent in parents:
            self.sync(parent)

    def publish(self, folder: Path, files: Mapping[str, Path]) -> None:
        """Move files to a folder as `place` does, the last when all are there: what finds it finds them all."""
        *others, last = files
        self.place(folder, {name: files[name] for name in others})
        self.place(folder, {last: files[last]})

    def sync(self, path: Path) -> None:
        """Wait until the bytes of a file, or the names in a folder, are safe from a crash of the machine."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno in NOT_THERE and os.path.isdir(path):
                return  # such a file system keeps the names in a folder by itself, or not at all
            raise OSError(error.errno, error.strerror, str(path)) from error
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)

    def remove_all(self, paths: Iterable[Path]) -> None:
        """Remove files of one folder, if they are there; in a store many by one request."""
        for path in paths:
            self.remove(path)

    def remove_leftovers(self, folder: Path) -> None:
        """Remove what kills left of unfinished files in a folder."""
        for name in self.list_names(folder):
            if _TEMPORARY.fullmatch(name):
                with suppress(FileNotFoundError):  # it got its own name meanwhile
                    if self.status(folder / name, follow=False).kind == FILE:
                        self.remove(folder / name)

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it, if they are missing. Raises PermissionError if it can't be written to."""
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):  # before the work whose result is for it
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def remove_empty(self, folder: Path) -> None:
        """Remove a folder if it is there and empty. Raises nothing."""
        with suppress(OSError):
            folder.rmdir()

    def lock(self, path: Path, mark: bytes, seconds: float) -> Callable[[], None]:
        """Lock a file and write a mark to it; returns what frees the lock, as does the end of all processes with it.

        Waits up to `seconds` for it on a disk; in a store, until it is known whether the holder lives. Raises
        BlockingIOError if another has it, or has removed the file.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            deadline = time.monotonic() + seconds
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise
                time.sleep(0.05)
            if os.fstat(descriptor).st_nlink == 0:
                raise BlockingIOError  # another has just removed the file, and freed its lock
            os.pwrite(descriptor, mark, 0)
        except BaseException:
            os.close(descriptor)
            raise
        return partial(os.close, descriptor)

    def check_lock(self, path: Path, *, asks: bool = True) -> None:
        """Raise OSError if another process has meanwhile taken a lock of this one, as only in a store it can.

        asks: make sure of it. Otherwise by what is known from the last seconds.
        """

    def read_mark(self, path: Path) -> bytes:
        """The mark that `lock` wrote to a file; all of the file if it is none of a lock."""
        with self.open(path) as file:
            return file.read()


def _remove_temporary(temporary: Path) -> None:
    """Remove it unless it has got its own name. Raises nothing."""
    with suppress(OSError):  # what failed before is the error to report
        temporary.unlink(missing_ok=True)
    _open_temporaries.discard(temporary)


@on_interrupt
def _remove_open_temporaries() -> None:
    for temporary in list(_open_temporaries):
        _remove_temporary(temporary)


def find_cache_folder(name: str) -> Path:
    """A folder for what can be made again, among this user's caches. Raises RuntimeError for a user without a home."""
    asked = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(asked):  # the XDG base directory specification says to ignore a relative one
        root = Path(asked)
    else:
        root = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return root / "albert-data" / name
