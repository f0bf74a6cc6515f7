"""Local copies of objects, for what has to be mapped into memory.

A folder of the user's cache holds them, at most `MOST_BYTES` and never more than half of what is free there. A copy is
named by the SHA-256 of its content where the caller knows it, which is checked, and otherwise by URL and version. One
process of a machine downloads an object, and the others wait for it. The copies that were used longest ago are removed
first; one that is mapped stays readable, as the system keeps it until then.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from albert_data.errors import StorageError
from albert_data.storage.disk import find_cache_folder
from albert_data.storage.retries import PreconditionFailed
from albert_data.storage.status import Status
from albert_data.storage.urls import StoreURL

if TYPE_CHECKING:
    from albert_data.storage.s3 import S3

MOST_BYTES = 64 << 30
_READ_BYTES = 16 << 20
_COPY, _PART, _LOCK = ".copy", ".part", ".lock"
_DIGEST = re.compile("[0-9a-f]{64}")


def get_copy(store: S3, url: StoreURL, digest: str | None = None) -> Path:
    """The path of a local copy of an object, which is downloaded if there is none. digest: its SHA-256.

    Raises OSError if the object is missing, has another hash, or does not fit on the disk.
    """
    if digest is not None and not _DIGEST.fullmatch(digest):  # it becomes a file name
        raise OSError(errno.EINVAL, "the manifest's SHA-256 is not one", str(url))
    folder = _make_folder()
    status = None if digest else store.head(url)
    name = digest or sha256(f"{url} {status and status.version}".encode()).hexdigest()
    path = folder / f"{name}{_COPY}"
    if _touch(path):
        return path
    with _lock(folder / f"{name[:2]}{_LOCK}"):  # 256 files, which stay
        if not _touch(path):  # another process may have made it meanwhile
            _download(store, url, path, status or store.head(url), digest)
    return path


def _touch(path: Path) -> bool:
    """Whether a copy is there. From now on it counts as used at last."""
    with suppress(FileNotFoundError):
        os.utime(path)
        return True
    return False


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # closing it would not free the lock in a process forked meanwhile


def _download(store: S3, url: StoreURL, path: Path, status: Status, digest: str | None) -> None:
    make_room(path.parent, status.num_bytes)
    part, found = path.with_suffix(_PART), sha256()
    try:
        with part.open("wb") as file:
            for begin in range(0, status.num_bytes, _READ_BYTES):
                count = min(_READ_BYTES, status.num_bytes - begin)
                data = store.get(url, begin, count, str(status.version)).data
                found.update(data)
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if digest is not None and found.hexdigest() != digest:
            raise OSError(errno.EIO, "its bytes are not those of the manifest's SHA-256", str(url))
        os.replace(part, path)
        make_room(path.parent, 0)  # others may have downloaded at the same time
    except PreconditionFailed as error:
        raise OSError(errno.ESTALE, "it was replaced while it was read", str(url)) from error
    finally:
        part.unlink(missing_ok=True)


def measure_limit() -> int:
    """How many bytes the copies may take on this machine."""
    return _list_copies(_make_folder())[1]


def _list_copies(folder: Path) -> tuple[list[tuple[int, int, Path]], int]:
    """The time, size and path of each copy, and how many bytes all may take."""
    copies = []
    for path in folder.glob(f"*{_COPY}"):
        with suppress(FileNotFoundError):  # another process removed it meanwhile
            found = path.stat()
            copies.append((found.st_mtime_ns, found.st_size, path))
    used = sum(size for _, size, _ in copies)
    return copies, min(MOST_BYTES, (used + shutil.disk_usage(folder).free) // 2)


def _make_folder() -> Path:
    try:
        folder = find_cache_folder("stores")
    except RuntimeError as error:
        raise StorageError("this user has no home for copies of a store's files; set XDG_CACHE_HOME") from error
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_room(folder: Path, num_bytes: int) -> None:
    """Remove the copies that were used longest ago, until there is room. Raises OSError if there can be none."""
    copies, limit = _list_copies(folder)
    if num_bytes > limit:
        raise OSError(errno.ENOSPC, f"no room for a copy of {num_bytes:,} bytes; allowed are {limit:,}", str(folder))
    used = num_bytes
    for _, size, path in sorted(copies, reverse=True):
        used += size
        if used > limit:
            path.unlink(missing_ok=True)
