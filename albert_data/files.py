"""Write files so that a reader sees all of one or nothing of it, whatever happens in between.

A file is written under a temporary name, synced, then renamed; a kill leaves at most a `*.tmp`. What is not synced
outlives a kill too, but not a loss of power.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, cast

TEMPORARY_SUFFIX = ".tmp"


@contextmanager
def replace_file(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Open for writing; the file takes its name when the block ends without an error."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes, *, sync: bool = True) -> None:
    with replace_file(path, sync=sync) as file:
        file.write(data)


def write_json(path: Path, value: object, *, sync: bool = True) -> None:
    """Indented, in a fixed order of keys, so that equal values are equal bytes."""
    write_bytes(path, (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode(), sync=sync)


def read_json(path: Path) -> dict[str, Any]:
    """Raises ValueError where the file holds no JSON object."""
    value = json.loads(path.read_text(encoding="utf-8"))
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
