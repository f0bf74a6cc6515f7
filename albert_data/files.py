"""Write files so that a reader sees all of one or nothing of it, whatever happens in between.

A file is written under a random hidden name beside its own, synced, then renamed; a kill leaves at most that hidden
`.albert-data-<16 hex digits>.tmp`. What is not synced outlives a kill too, but not a loss of power.
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
    """Open for writing; the file takes its name when the block ends without an error.

    An OSError that names no file, as that of a full disk, is raised anew with this one's name.
    """
    temporary = _choose_temporary(path)
    try:
        with temporary.open("xb") as file:  # x: never through a link, nor over a file that is there
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
    temporary = path.with_name(f".albert-data-{os.urandom(8).hex()}{TEMPORARY_SUFFIX}")
    _open_temporaries.add(temporary)
    return temporary


def _remove_temporary(temporary: Path) -> None:
    with suppress(OSError):  # the error before it tells more
        temporary.unlink(missing_ok=True)
    _open_temporaries.discard(temporary)


@before_exit
def _remove_open_temporaries() -> None:
    for temporary in list(_open_temporaries):
        _remove_temporary(temporary)


def remove_temporaries(folder: Path) -> None:
    """Remove what a killed `replace_file` left in a folder."""
    for path in list_temporaries(folder):
        path.unlink(missing_ok=True)


def list_temporaries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _TEMPORARY.fullmatch(path.name) and is_regular(path)]


def is_regular(path: Path) -> bool:
    """Whether a regular file stands there, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def is_there(path: Path) -> bool:
    """Whether anything stands there, even a link that leads nowhere."""
    return os.path.lexists(path)


def write_bytes(path: Path, data: bytes, *, sync: bool = True) -> None:
    with replace_file(path, sync=sync) as file:
        file.write(data)


def replace_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write some files of a folder in place of those of the same names.

    All are written before the first of the older ones is removed, so a full disk changes none. They take their names in
    the order given.
    """
    written: dict[str, Path] = {}
    try:
        for name, data in files.items():
            written[name] = _choose_temporary(folder / name)
            write_bytes(written[name], data)
        for name in files:
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
    """Indented, in a fixed order of keys, so that equal values are equal bytes."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def write_json(path: Path, value: object, *, sync: bool = True) -> None:
    write_bytes(path, to_json(value), sync=sync)


def check_output(path: Path, spared: Iterable[Path]) -> None:
    """Raise OutputError where a file that the user named for writing is a folder, or one that is read.

    spared: the inputs, and the files of the shard folder or run that is shown.
    """
    if path.is_dir():
        raise OutputError(f"{path} is a folder; name a file to write")
    for other in spared:
        with suppress(OSError):  # one of the two is not there
            if path.samefile(other):
                raise OutputError(f"{path} is {other}, which is read here; name another file to write")


def _find_descriptor(path: Path) -> int | None:
    """The number in /dev/fd/1 and the like: to open such a path again would empty the file behind it."""
    name = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}.get(str(path), str(path))
    found = re.fullmatch(r"/(?:dev|proc/self)/fd/([0-9]+)", name)
    return int(found[1]) if found else None


def write_output(path: Path, data: bytes) -> bool:
    """Write a file that the user named: a regular one whole or not at all, anything else through what is there.

    So a link, a pipe or a device (`/dev/stdout`) stays what it is. Returns whether it is a regular file.
    Raises OutputError where it can't be written.
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
    """Raises OSError, or ValueError where it is no regular file or holds no JSON object that can be read."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise ValueError(f"{path} is no regular file")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return cast(dict[str, Any], value)


def sync_path(path: Path) -> None:
    """Make the bytes of a file durable, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def hash_file(path: Path, advance: Callable[[int], object] | None = None) -> str:
    """SHA-256 of a file, in hexadecimal. advance: told of the bytes as they are read."""
    digest = sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            if advance is not None:
                advance(len(chunk))
    return digest.hexdigest()


class HashingFile:
    """A binary file that hashes and counts what is written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest = file, sha256()
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
