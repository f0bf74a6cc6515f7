"""Write files so that a reader sees a whole file or none, whatever happens while it is written.

A file is written in its folder under a random hidden name, synced (unless sync=False), and renamed. A kill leaves at
most the hidden `.albert-data-<16 hex digits>.tmp`. A file that is not synced survives a kill too, but not a loss of
power.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, cast

from albert_data.errors import OutputError
from albert_data.interrupts import before_exit

TEMPORARY_SUFFIX = ".tmp"
_open_temporaries: set[Path] = set()
_TEMPORARY = re.compile(r"\.albert-data-[0-9a-f]{16}\.tmp")


@contextmanager
def replace_file(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing. It gets its name when the block ends without an error.

    An OSError without a file name, such as that of a full disk, is raised again with this file's name.
    """
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


def remove_temporaries(folder: Path) -> None:
    """Remove the temporary files that a kill left in a folder."""
    for path in list_temporaries(folder):
        path.unlink(missing_ok=True)


def list_temporaries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _TEMPORARY.fullmatch(path.name) and is_regular(path)]


def is_regular(path: Path) -> bool:
    """Return whether a path is a regular file and not a link."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def is_there(path: Path) -> bool:
    """Return whether a path exists, even as a link to nothing."""
    return os.path.lexists(path)


def write_bytes(path: Path, data: bytes, *, sync: bool = True) -> None:
    with replace_file(path, sync=sync) as file:
        file.write(data)


def replace_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace files of a folder that belong together.

    All new files are written first, so a full disk changes nothing. Then all old ones are removed, the first one last,
    and the new ones get their names, the first one first. So a kill can leave too few files, but never old and new ones
    mixed, and never others without the first, which describes them.
    """
    written: dict[str, Path] = {}
    try:
        for name, data in files.items():
            written[name] = _choose_temporary(folder / name)
            write_bytes(written[name], data)  # synced, and complete before any old file is removed
        for name in reversed(list(files)):
            (folder / name).unlink(missing_ok=True)
        for name, temporary in written.items():
            os.replace(temporary, folder / name)
    finally:
        for temporary in written.values():
            _remove_temporary(temporary)


def find_cache_folder(name: str) -> Path:
    """A folder for what can be made again, among this user's caches. Raises RuntimeError for a user without a home."""
    asked = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(asked):  # the XDG base directory specification says to ignore a relative one
        root = Path(asked)
    else:
        root = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return root / "albert-data" / name


def to_json(value: object) -> bytes:
    """Return a value as indented JSON with sorted keys: equal values give equal bytes."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def write_json(path: Path, value: object, *, sync: bool = True) -> None:
    write_bytes(path, to_json(value), sync=sync)


def check_output(path: Path, inputs: Iterable[Path]) -> None:
    """Raise OutputError if an output file that the user named is a folder, or the same file as one of `inputs`."""
    if path.is_dir():
        raise OutputError(f"{path} is a folder; name a file to write")
    for other in inputs:
        with suppress(OSError):  # one of the two does not exist
            if path.samefile(other):
                raise OutputError(f"{path} is {other}, which is read here; name another file to write")


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


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises OSError, or ValueError if it is not a regular file or does not hold an object."""
    if path.exists() and not path.is_file():  # reading a pipe would wait
        raise ValueError(f"{path} is no regular file")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return cast(dict[str, Any], value)


def sync_path(path: Path) -> None:
    """Wait until the bytes of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def hash_file(path: Path, advance: Callable[[int], object] | None = None) -> str:
    """Return the SHA-256 of a file, in hexadecimal. advance: called with the number of bytes that were read."""
    digest = sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            if advance is not None:
                advance(len(chunk))
    return digest.hexdigest()


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
