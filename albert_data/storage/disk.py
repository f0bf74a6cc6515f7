"""The disk: files of this machine."""

from __future__ import annotations

import errno
import fcntl
import glob
import io
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from albert_data.storage.interrupts import on_interrupt
from albert_data.storage.protocol import (
    DEVICE,
    FILE,
    FOLDER,
    KIND_NAMES,
    LINK,
    OTHER,
    PIPE,
    SOCKET,
    TEMPORARY_SUFFIX,
    Address,
    Item,
    Result,
    Status,
    check_same,
)

if TYPE_CHECKING:
    import pyarrow

_KINDS = {
    stat.S_IFREG: FILE,
    stat.S_IFDIR: FOLDER,
    stat.S_IFLNK: LINK,
    stat.S_IFIFO: PIPE,
    stat.S_IFSOCK: SOCKET,
    stat.S_IFCHR: DEVICE,
    stat.S_IFBLK: DEVICE,
}
# Of an operation that a file system does not have: of flock, and of fsync of a folder.
NOT_THERE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)
_TEMPORARY = re.compile(r"\.albert-data-[0-9a-f]{16}\.tmp")
_open_temporaries: set[Path] = set()


class Disk:
    """Files of this machine. `Storage` says what each operation promises.

    A file is written in its folder under a random hidden name, synced (unless sync=False), and renamed. A kill leaves
    at most the hidden `.albert-data-<16 hex digits>.tmp`. A file that is not synced survives a kill too, but not a loss
    of power.
    """

    def status(self, path: Address, *, follow: bool = True) -> Status:
        return _make_status(os.stat(path, follow_symlinks=follow))

    def resolve(self, path: Address) -> str:
        return os.path.realpath(os.fspath(path))

    def list_names(self, folder: Path) -> list[str]:
        with suppress(FileNotFoundError, NotADirectoryError):
            return os.listdir(folder)
        return []

    def walk(self, folder: Address, refuse: Callable[[OSError], object]) -> Iterator[tuple[str, list[str], list[str]]]:
        return os.walk(os.fspath(folder), onerror=refuse)

    def glob(self, pattern: str) -> Iterator[str]:
        return glob.iglob(pattern, recursive=True)

    def open(self, path: Address, known: Status | None = None) -> io.BufferedReader:
        raw = io.FileIO(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
        try:
            status = _make_status(os.fstat(raw.fileno()))
            check_same(path, status, known)
            _check_regular(path, status)
        except BaseException:
            raw.close()
            raise
        return io.BufferedReader(raw)

    def read(self, path: Path, most: int) -> bytes:
        return self.read_with_status(path, most)[0]

    def read_with_status(self, path: Path, most: int) -> tuple[bytes, Status]:
        _check_regular(path, self.status(path))  # before it is opened: that alone makes some devices do something
        with self.open(path) as file:  # another may have taken its place
            status = _make_status(os.fstat(file.fileno()))
            if status.num_bytes > most:
                raise ValueError(f"it has {status.num_bytes:,} bytes; at most {most:,} are allowed")
            return file.read(status.num_bytes), status

    def read_into(self, path: Path, begin: int, buffer: memoryview) -> int:
        rest, file = buffer, os.open(path, os.O_RDONLY)
        try:
            while rest and (count := os.preadv(file, [rest], begin)):
                rest, begin = rest[count:], begin + count
        finally:
            os.close(file)
        return len(buffer) - len(rest)

    def map(self, path: Path, sha256: str | None = None) -> pyarrow.Buffer:
        import pyarrow

        _check_regular(path, self.status(path))
        # As bytes: pyarrow takes text paths only in UTF-8. The buffer keeps the mapping alive after the file is closed.
        with pyarrow.memory_map(os.fsencode(path)) as file:
            return file.read_buffer()

    def at_once(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        return map(work, items)

    @contextmanager
    def create(self, path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
        temporary = _choose_temporary(path)
        try:
            with temporary.open("xb") as file:  # x: fail if anything has the name, even a link
                yield file
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
            _open_temporaries.discard(temporary)
        except OSError as error:
            _remove_temporary(temporary)
            if error.errno is not None and error.filename in (None, str(temporary)):
                raise OSError(error.errno, error.strerror, str(path)) from error
            raise
        except BaseException:
            _remove_temporary(temporary)
            raise

    def replace_together(self, folder: Path, files: Mapping[str, bytes]) -> None:
        written: dict[str, Path] = {}
        try:
            for name, data in files.items():
                written[name] = _choose_temporary(folder / name)
                with self.create(written[name]) as file:
                    file.write(data)  # synced, and complete before any old file is removed
            for name in reversed(list(files)):
                self.remove(folder / name)
            for name, temporary in written.items():
                os.replace(temporary, folder / name)
        finally:
            for temporary in written.values():
                _remove_temporary(temporary)

    def place(self, folder: Path, files: Mapping[str, Path]) -> None:
        parents = {(folder / name).parent for name in files}
        for parent in parents:
            self.make_folder(parent)
        for name, made in files.items():
            if os.path.exists(made) or not os.path.exists(folder / name):
                os.replace(made, folder / name)
        for parent in parents:
            self.sync(parent)

    def publish(self, folder: Path, files: Mapping[str, Path]) -> None:
        *others, last = files
        self.place(folder, {name: files[name] for name in others})
        self.place(folder, {last: files[last]})

    def sync(self, path: Path) -> None:
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
        path.unlink(missing_ok=True)

    def remove_all(self, paths: Iterable[Path]) -> None:
        for path in paths:
            self.remove(path)

    def remove_leftovers(self, folder: Path) -> None:
        for name in self.list_names(folder):
            if _TEMPORARY.fullmatch(name):
                with suppress(FileNotFoundError):  # it got its own name meanwhile
                    if self.status(folder / name, follow=False).kind == FILE:
                        self.remove(folder / name)

    def make_folder(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):  # before the work whose result is for it
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def remove_empty(self, folder: Path) -> None:
        with suppress(OSError):
            folder.rmdir()

    def lock(self, path: Path, mark: bytes, seconds: float) -> Callable[[], None]:
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
        pass  # the system keeps it until it is freed

    def read_mark(self, path: Path) -> bytes:
        with self.open(path) as file:
            return file.read()


def _make_status(found: os.stat_result) -> Status:
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), OTHER)
    return Status(kind, found.st_size, found.st_mtime_ns, (found.st_dev, found.st_ino))


def _check_regular(path: Address, status: Status) -> None:
    if status.kind != FILE:
        what = f"it is {KIND_NAMES.get(status.kind, 'of another kind')}; a regular file is needed"
        raise OSError(errno.EINVAL, what, str(path))


def _choose_temporary(path: Path) -> Path:
    """A new name in the folder of `path`. If Ctrl-C ends the process, the file of this name is removed."""
    temporary = path.with_name(f".albert-data-{os.urandom(8).hex()}{TEMPORARY_SUFFIX}")
    _open_temporaries.add(temporary)
    return temporary


def _remove_temporary(temporary: Path) -> None:
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
