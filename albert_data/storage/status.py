"""What lies at a path, on a disk or in a store."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from albert_data.errors import InputError

Address = str | os.PathLike[str]

FILE, FOLDER, LINK, PIPE, SOCKET, DEVICE, OTHER = "file", "folder", "link", "pipe", "socket", "device", "other"
KIND_NAMES = {FILE: "a file", FOLDER: "a folder", PIPE: "a FIFO", SOCKET: "a socket", DEVICE: "a device"}
_KINDS = {
    **{stat.S_IFREG: FILE, stat.S_IFDIR: FOLDER, stat.S_IFLNK: LINK, stat.S_IFIFO: PIPE, stat.S_IFSOCK: SOCKET},
    **{stat.S_IFCHR: DEVICE, stat.S_IFBLK: DEVICE},
}
TEMPORARY_SUFFIX = ".tmp"


class Status(NamedTuple):
    """What lies at a path. If a file has another status than before, it was replaced or changed.

    kind: FILE, FOLDER, ...; modified_ns: in nanoseconds since the epoch; version: differs for two files of one name.
    """

    kind: str
    num_bytes: int
    modified_ns: int
    version: object

    @classmethod
    def of(cls, found: os.stat_result) -> Status:
        """That of a path on the disk."""
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), OTHER)
        return cls(kind, found.st_size, found.st_mtime_ns, (found.st_dev, found.st_ino))


def check_same(path: Address, now: Status, known: Status | None) -> None:
    """Raise InputError if a file is not as it was found. The version of one on a disk differs between machines."""
    if known and (now[:3] != known[:3] or (isinstance(now.version, str) and now.version != known.version)):
        kind = f"another of {now.num_bytes:,} bytes" if now.kind == FILE else KIND_NAMES.get(now.kind, "no file")
        raise InputError(
            f"input {os.fspath(path)} has changed since it was found: it was a file of {known.num_bytes:,} bytes, and "
            f"is {kind} now; give the command again when no program writes to it"
        )


def check_regular(path: Address, status: Status) -> None:
    """Raise OSError unless it is a regular file: to open a FIFO waits for a writer, and a device may have no end."""
    if status.kind != FILE:
        what = f"it is {KIND_NAMES.get(status.kind, 'of another kind')}; a regular file is needed"
        raise OSError(errno.EINVAL, what, str(path))
