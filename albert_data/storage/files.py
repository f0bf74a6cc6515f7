"""Files that the program writes and reads as a whole: bytes, JSON, what the user named, and their hashes."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from albert_data.errors import OutputError
from albert_data.storage import FILE, Address, find_kind, find_storage, is_remote, remember_listings
from albert_data.storage.disk import find_cache_folder as find_cache_folder  # for kernels/cache.py
from albert_data.storage.status import TEMPORARY_SUFFIX as TEMPORARY_SUFFIX  # for train/

# Of a file that is read as a whole, and of JSON: a manifest of 800,000 inputs with paths of 30 bytes. A build of more
# inputs is refused (pipeline/plan.py).
MAX_BYTES, MAX_VALUES = 1 << 28, 1 << 23
MAX_DEPTH = 32  # of lists and objects in each other


def sync_path(path: Path) -> None:
    find_storage(path).sync(path)


def is_regular(path: Path) -> bool:
    """Return whether a path is a regular file and not a link."""
    return find_kind(path, follow=False) == FILE


def is_there(path: Path) -> bool:
    """Return whether a path exists, even as a link to nothing."""
    return find_kind(path, follow=False) is not None


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """All of a file that was found, not named for its content: at most `most` bytes, and of a regular file alone.

    A link may lead to it. Raises OSError for anything else at once: a FIFO would wait, and a device may have no end.
    """
    try:
        return find_storage(path).read(path, most)
    except ValueError as error:  # too many bytes
        raise OSError(errno.EFBIG, str(error), str(path)) from error


def write_bytes(path: Path, data: bytes, *, sync: bool = True) -> None:
    with find_storage(path).create(path, sync=sync) as file:
        file.write(data)


def remove_files(folder: Path, is_ours: Callable[[str], object]) -> None:
    """Remove the files whose names are ours, and what a kill left of others. Links and folders stay."""
    storage = find_storage(folder)
    with remember_listings():
        found = [folder / name for name in storage.list_names(folder) if is_ours(name)]
        storage.remove_all(filter(is_regular, found))
    storage.remove_leftovers(folder)


def to_json(value: object) -> bytes:
    """Return a value as indented JSON with sorted keys: equal values give equal bytes.

    A lone surrogate, which JSON can hold and UTF-8 can't, stays an escape.
    """
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode(errors="backslashreplace")


def write_json(path: Path, value: object, *, sync: bool = True) -> None:
    write_bytes(path, to_json(value), sync=sync)


def check_output(path: Path, read: Iterable[Address]) -> None:
    """Raise OutputError if a file that the user named for output can't be written, or is one that the command reads.

    read: all that the command has read or will read: files, and folders, in which a new file may be written, but none
    that is there. "-" is stdin. A file is recognised under any name: through links, hard links, `..` and other cases.
    What the shell has opened (/dev/stdout), a pipe and a device can always be written.
    """
    real = os.path.realpath(path)
    if os.path.isdir(real):
        raise OutputError(f"{path} is a folder; name a file to write")
    if not os.path.isdir(os.path.dirname(real)):
        raise OutputError(f"{path} can't be written: {path.parent} is not a folder; make it, or name another file")
    if _find_descriptor(path) is not None or (os.path.exists(real) and not os.path.isfile(real)):
        return
    if not os.access(real if os.path.islink(path) and os.path.exists(real) else os.path.dirname(real), os.W_OK):
        raise OutputError(f"{path} can't be written: {os.strerror(errno.EACCES)}; name another file")
    file = _identify(real)
    # The file that is there, and the folders around it.
    known = {file, *map(_identify, Path(real).parents)} if file else set()
    for other in read:
        there = "/dev/stdin" if other == "-" else other
        if is_remote(there):
            continue
        if _identify(there) in known or _holds(there, file) if file else os.path.realpath(there) == real:
            where = "in " if os.path.isdir(there) else ""
            what = "a file" if os.fspath(path) == os.fspath(other) else f"{where}{other},"
            raise OutputError(f"{path} is {what} which is read here; name another file to write")


def _identify(path: Address) -> tuple[int, int] | None:
    """Equal for two names of one file or folder. None for nothing."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _holds(folder: Address, file: tuple[int, int]) -> bool:
    """Whether a folder holds a link to a file, of any kind."""
    return any(_identify(os.path.join(root, name)) == file for root, _, names in os.walk(folder) for name in names)


def _find_descriptor(path: Path) -> int | None:
    """Return the number in /dev/fd/1 and similar paths. Opening such a path again would empty the file behind it."""
    name = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}.get(str(path), str(path))
    found = re.fullmatch(r"/(?:dev|proc/self)/fd/([0-9]+)", name)
    return int(found[1]) if found else None


def write_output(path: Path, data: bytes) -> bool:
    """Write a file that the user named: a regular file as a whole or not at all, anything else in place.

    So a link, a pipe or a device (`/dev/stdout`) stays what it is. Returns whether there is a regular file at this path
    afterwards, which the caller can name to the user: False for /dev/stdout and the like. Raises OutputError if it
    can't be written.
    """
    try:
        if is_regular(path) or not is_there(path):
            write_bytes(path, data)
            return True
        number = _find_descriptor(path)
        with path.open("wb") if number is None else open(number, "wb", closefd=False) as file:
            file.write(data)
            return number is None and stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise OutputError(f"{path} can't be written: {error.strerror or error}; name another file") from error


def count_values(data: bytes) -> int:
    """About how many values a JSON text holds, and no fewer."""
    return sum(map(data.count, (b",", b"[", b"{")))


def parse_json(data: bytes, parse: Callable[[str], Any] = json.loads) -> Any:
    """Parse JSON in UTF-8. Raises ValueError for anything else, and for so many values that they fill the memory."""
    # Counted before parsing, which makes an object in memory for each value.
    if (num_values := count_values(data)) > MAX_VALUES:
        raise ValueError(f"it holds about {num_values:,} values; at most {MAX_VALUES:,} are allowed")
    try:
        return parse(data.decode())
    except RecursionError as error:
        raise ValueError("its lists and objects are nested too deep") from error


def parse_object(data: bytes, parse: Callable[[str], Any] = json.loads) -> dict[str, Any]:
    """Parse a JSON object as `parse_json` does. Raises ValueError also where it is nested deeper than MAX_DEPTH."""
    value = parse_json(data, parse)
    if not isinstance(value, dict):
        raise ValueError("it holds no JSON object")
    level: list[Any] = [value]  # recursion would fail at a depth that depends on the caller's stack
    for _ in range(MAX_DEPTH):
        lists = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = list(chain.from_iterable(lists))
    if level:
        raise ValueError(f"it nests its values deeper than {MAX_DEPTH} levels")
    return value


def read_json(path: Path, most: int = MAX_BYTES) -> dict[str, Any]:
    """Read a JSON object, as `read_bytes` reads. Raises OSError, or ValueError as `parse_object` does."""
    return parse_object(read_bytes(path, most))


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    hashing = sha256()
    with find_storage(path).open(path) as file:
        while chunk := file.read(1 << 20):
            hashing.update(chunk)
    return hashing.hexdigest()


class HashingFile:
    """A binary file that hashes and counts the bytes written to it. digest: SHA-256 unless another is given."""

    def __init__(self, file: BinaryIO, digest: Any = None) -> None:
        self._file, self._digest = file, digest or sha256()
        self.num_bytes = 0

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes | memoryview) -> int:
        self._digest.update(data)
        self.num_bytes += len(data)
        self._file.write(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()

    def hexdigest(self) -> str:
        return self._digest.hexdigest()
