"""What readers and writers need of a storage, in one interface.

docs/explanation/architecture.md says what a disk and a store of objects do for each operation.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol, TypeVar

from albert_data.errors import InputError

if TYPE_CHECKING:
    import pyarrow

Address = str | os.PathLike[str]
Item = TypeVar("Item")
Result = TypeVar("Result")

FILE, FOLDER, LINK, PIPE, SOCKET, DEVICE, OTHER = "file", "folder", "link", "pipe", "socket", "device", "other"
KIND_NAMES = {FILE: "a file", FOLDER: "a folder", PIPE: "a FIFO", SOCKET: "a socket", DEVICE: "a device"}
TEMPORARY_SUFFIX = ".tmp"


class Status(NamedTuple):
    """What lies at a path. If a file has another status than before, it was replaced or changed.

    kind: FILE, FOLDER, ...; modified_ns: in nanoseconds since the epoch; version: differs for two files of one name.
    """

    kind: str
    num_bytes: int
    modified_ns: int
    version: object


def check_same(path: Address, now: Status, known: Status | None) -> None:
    """Raise InputError if a file is not as it was found. The version of one on a disk differs between machines."""
    if known and (now[:3] != known[:3] or (isinstance(now.version, str) and now.version != known.version)):
        kind = f"another of {now.num_bytes:,} bytes" if now.kind == FILE else KIND_NAMES.get(now.kind, "no file")
        raise InputError(
            f"input {os.fspath(path)} has changed since it was found: it was a file of {known.num_bytes:,} bytes, and "
            f"is {kind} now; give the command again when no program writes to it"
        )


class Storage(Protocol):
    """What readers and writers need. Every operation raises OSError if it fails, and StorageError if a store does.

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

    def open(self, path: Address, known: Status | None = None) -> io.BufferedReader:
        """Open a regular file for reading and seeking. Raises OSError for a FIFO or a device, without waiting.

        known: what was found there. Raises InputError or OSError if it was replaced or changed since.
        """

    def read(self, path: Path, most: int) -> bytes:
        """All of a regular file, or of one that a link leads to. In a store it is one request.

        Raises ValueError for more than `most` bytes, and OSError for a FIFO, a device or a folder, without waiting.
        """

    def read_with_status(self, path: Path, most: int) -> tuple[bytes, Status]:
        """The same, and the status that belongs to these bytes."""

    def read_into(self, path: Path, begin: int, buffer: memoryview) -> int:
        """Fill a buffer with a file's bytes from byte `begin` on; returns how many there were."""

    def map(self, path: Path, sha256: str | None = None) -> pyarrow.Buffer:
        """The bytes of a file, which take memory only while they are used. No file stays open.

        sha256: of the bytes, if the caller knows it. A storage that copies them checks the copy.
        """

    def at_once(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Call a function that reads a file for each item, and yield the results in order.

        In a store several calls wait for their answers at the same time; on a disk one call follows another.
        """

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

    def place(self, folder: Path, files: Mapping[str, Path]) -> None:
        """Move files to a folder, and return when they are safe from a crash.

        files: for each name a finished file. One that is no longer there was moved by a publication that was killed;
        raises FileNotFoundError if it is not in the folder either.
        """

    def publish(self, folder: Path, files: Mapping[str, Path]) -> None:
        """Move files to a folder as `place` does, and the last when all others are there and safe.

        So what finds the last finds them all.
        """

    def sync(self, path: Path) -> None:
        """Wait until the bytes of a file, or the names in a folder, are safe from a crash of the machine."""

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""

    def remove_all(self, paths: Iterable[Path]) -> None:
        """Remove files of one folder, if they are there; in a store many by one request."""

    def remove_leftovers(self, folder: Path) -> None:
        """Remove what kills left of unfinished files in a folder."""

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it, if they are missing."""

    def remove_empty(self, folder: Path) -> None:
        """Remove a folder if it is there and empty. Raises nothing."""

    def lock(self, path: Path, mark: bytes, seconds: float) -> Callable[[], None]:
        """Lock a file and write a mark to it; returns what frees the lock, as does the end of all processes with it.

        Waits up to `seconds` for it on a disk; in a store, until it is known whether the holder lives. Raises
        BlockingIOError if another has it, or has removed the file.
        """

    def check_lock(self, path: Path, *, asks: bool = True) -> None:
        """Raise OSError if another process has meanwhile taken a lock of this one on a file.

        asks: make sure of it. Otherwise by what is known from the last seconds.
        """

    def read_mark(self, path: Path) -> bytes:
        """The mark that `lock` wrote to a file; all of the file if it is none of a lock."""
