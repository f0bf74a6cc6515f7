"""Where files lie: what readers and writers need of a storage, and the disk, which is the only one so far.

Every reader and writer of corpus/, pipeline/, shards/ and convert/ asks `find_storage` for the storage of a path, and
touches no file in another way. docs/architecture.md says what a store of objects will have to do for each operation.
"""

from __future__ import annotations

import fcntl
import glob
import io
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

from albert_data.errors import StorageError
from albert_data.interrupts import before_exit

if TYPE_CHECKING:
    import pyarrow

Address = str | os.PathLike[str]

FILE, FOLDER, LINK, PIPE, SOCKET, DEVICE, OTHER = "file", "folder", "link", "pipe", "socket", "device", "other"
_KINDS = {
    stat.S_IFREG: FILE,
    stat.S_IFDIR: FOLDER,
    stat.S_IFLNK: LINK,
    stat.S_IFIFO: PIPE,
    stat.S_IFSOCK: SOCKET,
    stat.S_IFCHR: DEVICE,
    stat.S_IFBLK: DEVICE,
}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+:)/(/?)")  # two letters or more: c:/ is a drive
TEMPORARY_SUFFIX = ".tmp"
_TEMPORARY = re.compile(r"\.albert-data-[0-9a-f]{16}\.tmp")
_open_temporaries: set[Path] = set()


class Status(NamedTuple):
    """What lies at a path. If a file has another status than before, it was replaced or changed.

    kind: FILE, FOLDER, ...; modified_ns: in nanoseconds since the epoch; version: differs for two files of one name.
    """

    kind: str
    num_bytes: int
    modified_ns: int
    version: object


class Storage(Protocol):
    """What readers and writers need. Every operation raises OSError if it fails.

    A file is seen whole or not at all under its name, whatever happens while it is written.
    """

    # ---- looking ----

    def status(self, path: Address, *, follow: bool = True) -> Status:
        """What lies at a path; follow: if it is a link, what it leads to. Raises FileNotFoundError for nothing."""

    def resolve(self, path: Address) -> str:
        """The absolute path without `..` and links. Raises ValueError for a zero byte."""

    def list_names(self, folder: Path) -> list[str]:
        """The names in a folder, in any order; none where there is no folder."""

    def walk(self, folder: Address, refuse: Callable[[OSError], object]) -> Iterator[tuple[str, list[str], list[str]]]:
        """A folder and those below it, as os.walk gives them; `refuse` is called for one that can't be read."""

    def glob(self, pattern: str) -> Iterator[str]:
        """The paths that match a pattern, in which ** stands for any folders."""

    # ---- reading ----

    def open(self, path: Address) -> io.BufferedReader:
        """Open a file for reading and seeking."""

    def read(self, path: Path, most: int) -> tuple[bytes, Status]:
        """All of a file, and the status that belongs to these bytes. Raises ValueError for more than `most` bytes.

        Never waits: a pipe that has just taken the file's place gives what is in it.
        """

    def read_into(self, path: Path, begin: int, buffer: memoryview) -> int:
        """Fill a buffer with a file's bytes from byte `begin` on; returns how many there were."""

    def map(self, path: Path) -> pyarrow.Buffer:
        """The bytes of a file, which take memory only while they are used. No file stays open."""

    # ---- writing ----

    def create(self, path: Path, *, sync: bool = True) -> AbstractContextManager[BinaryIO]:
        """Open a file for writing. It gets its name when the block ends without an error.

        sync: wait until it is safe from a crash of the machine. An OSError without a file name, such as that of a full
        disk, is raised again with this file's name.
        """

    def replace_together(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Replace files of a folder that belong together.

        If there is no space for all of them, nothing changes. A kill can leave too few files, but never old and new
        ones mixed, and never others without the first, which describes them.
        """

    def publish(self, folder: Path, files: Mapping[str, Path | bytes], scratch: Path) -> None:
        """Give files their names in a folder, one after another, and the last when all others are safe from a crash.

        So what finds the last finds them all. files: for each name a finished file, which is moved, or its content. A
        file that is no longer there has been moved already, by a publication that was killed. scratch: where content is
        written first, so that a kill leaves nothing else in the folder.
        """

    def sync(self, path: Path) -> None:
        """Wait until the bytes of a file, or the names in a folder, are safe from a crash of the machine."""

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""

    def remove_leftovers(self, folder: Path) -> None:
        """Remove what kills left of unfinished files in a folder."""

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it, if they are missing."""

    def remove_empty(self, folder: Path) -> None:
        """Remove a folder if it is there and empty. Raises nothing."""

    def lock(self, path: Path, mark: bytes, seconds: float) -> Callable[[], None]:
        """Lock a file and write a mark to it; returns what frees the lock, as does the end of all processes with it.

        Waits up to `seconds` for it. Raises BlockingIOError if another has it, or has removed the file.
        """


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

    def open(self, path: Address) -> io.BufferedReader:
        return open(path, "rb")

    def read(self, path: Path, most: int) -> tuple[bytes, Status]:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
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

    def map(self, path: Path) -> pyarrow.Buffer:
        import pyarrow

        # As bytes: pyarrow takes text paths only in UTF-8. The buffer keeps the mapping alive after the file is closed.
        with pyarrow.memory_map(os.fsencode(path)) as file:
            return file.read_buffer()

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
                self._write(written[name], data)  # synced, and complete before any old file is removed
            for name in reversed(list(files)):
                self.remove(folder / name)
            for name, temporary in written.items():
                os.replace(temporary, folder / name)
        finally:
            for temporary in written.values():
                _remove_temporary(temporary)

    def publish(self, folder: Path, files: Mapping[str, Path | bytes], scratch: Path) -> None:
        *others, last = (folder / name for name in files)
        for path, made in zip((*others, last), files.values(), strict=True):
            self.make_folder(path.parent)
            if path is last:
                for parent in {other.parent for other in others} - {folder}:
                    self.sync(parent)
            if isinstance(made, bytes):
                self._write_through(scratch, path, made)
            elif os.path.exists(made):
                os.replace(made, path)
        self.sync(folder)

    def _write(self, path: Path, data: bytes) -> None:
        with self.create(path) as file:
            file.write(data)

    def _write_through(self, scratch: Path, path: Path, data: bytes) -> None:
        try:
            self._write(scratch, data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        os.replace(scratch, path)

    def sync(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_leftovers(self, folder: Path) -> None:
        for name in self.list_names(folder):
            if _TEMPORARY.fullmatch(name) and find_kind(folder / name, follow=False) == FILE:
                self.remove(folder / name)

    def make_folder(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

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


_disk: Storage = Disk()


def find_storage(path: Address) -> Storage:
    """The storage of a path. Raises StorageError for a URL, such as s3://bucket/key."""
    text = os.fspath(path)
    if ":/" in text and (url := _URL.match(text)):
        scheme, second_slash = url.groups()
        # pathlib drops the second slash. On a disk `corpus:/a.txt` is a file in the folder `corpus:`.
        if second_slash or (isinstance(path, PurePath) and not os.path.lexists(scheme)):
            raise StorageError(
                f"{scheme}//{text[url.end() :]} is not on a disk, and nothing else can be read or written; copy it to "
                "a disk first, or name a folder on a disk and copy that afterwards"
            )
    return _disk


def find_kind(path: Address, *, follow: bool = True) -> str | None:
    """What lies at a path: FILE, FOLDER, ...; None for nothing, or if the system does not say.

    follow: if it is a link, what it leads to; None if it leads to nothing.
    """
    storage = find_storage(path)
    try:
        return storage.status(path, follow=follow).kind
    except (OSError, ValueError):  # ValueError: a zero byte
        return None


def _make_status(found: os.stat_result) -> Status:
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), OTHER)
    return Status(kind, found.st_size, found.st_mtime_ns, (found.st_dev, found.st_ino))


def _choose_temporary(path: Path) -> Path:
    """A new name in the folder of `path`. If Ctrl-C ends the process, the file of this name is removed."""
    temporary = path.with_name(f".albert-data-{os.urandom(8).hex()}{TEMPORARY_SUFFIX}")
    _open_temporaries.add(temporary)
    return temporary


def _remove_temporary(temporary: Path) -> None:
    with suppress(OSError):  # what failed before is the error to report
        temporary.unlink(missing_ok=True)
    _open_temporaries.discard(temporary)


@before_exit
def _remove_open_temporaries() -> None:
    for temporary in list(_open_temporaries):
        _remove_temporary(temporary)
