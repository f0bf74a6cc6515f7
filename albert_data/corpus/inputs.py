"""Find the files of a corpus and open them.

In: what the user named: files, folders, globs, `-`. Out: a sorted list of `Input`, each of a known format.
"""

from __future__ import annotations

import glob
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from albert_data.errors import InputError

STDIN = "-"
FORMATS = {".txt": "txt", ".jsonl": "jsonl"}
COMPRESSIONS = {".gz": "gz", ".zst": "zst"}
ALLOWED_NAMES = ".txt and .jsonl, plain or with .gz or .zst"

# What the decompressors raise on a cut or damaged stream; pyarrow raises OSError.
STREAM_ERRORS = (EOFError, OSError, zlib.error)


@dataclass(frozen=True, kw_only=True)
class Input:
    """One file of a corpus, or stdin.

    size: bytes on the disk, 0 for stdin; modified_ns: nanoseconds since the epoch, 0 for stdin.
    """

    path: str
    format: str
    compression: str | None
    size: int
    modified_ns: int

    @property
    def is_splittable(self) -> bool:
        """Whether several workers can each read a range of it."""
        return self.compression is None and self.path != STDIN


def find_inputs(names: Sequence[str]) -> list[Input]:
    """Resolve files, folders (searched to the bottom), globs and `-`; each file once, sorted by path.

    Raises InputError where a name leads to nothing, or a named file is of no known format.
    """
    found: dict[str, Input] = {}
    for name in names:
        for path in _expand(name):
            found.setdefault(path if path == STDIN else os.path.realpath(path), _describe(path))
    return sorted(found.values(), key=lambda item: item.path)


def _expand(name: str) -> Iterable[str]:
    if name == STDIN:
        return [STDIN]
    if os.path.isdir(name):
        return _walk(name)
    if os.path.exists(name):
        return [name]
    matches = [path for path in glob.glob(name, recursive=True) if os.path.isfile(path)]
    if not matches:
        kind = "matches no file" if glob.has_magic(name) else "does not exist"
        raise InputError(f"input {name} {kind}; name files, folders, globs in quotes, or - for stdin")
    return matches


def _walk(folder: str) -> list[str]:
    found = []
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(root, name) for name in files if not name.startswith(".") and _match(name) is not None]
    if not found:
        raise InputError(f"folder {folder} holds no readable file; readable are {ALLOWED_NAMES}")
    return found


def _match(name: str) -> tuple[str, str | None] | None:
    """Format and compression by the name's endings, or None."""
    stem, ending = os.path.splitext(name.lower())
    compression = COMPRESSIONS.get(ending)
    if compression is not None:
        ending = os.path.splitext(stem)[1]
    return (FORMATS[ending], compression) if ending in FORMATS else None


def _describe(path: str) -> Input:
    if path == STDIN:
        return Input(path=STDIN, format="auto", compression=None, size=0, modified_ns=0)
    matched = _match(os.path.basename(path))
    if matched is None:
        raise InputError(f"input {path} is of no known kind; readable are {ALLOWED_NAMES}")
    try:
        status = os.stat(path)
        with open(path, "rb"):
            pass
    except OSError as error:
        raise InputError(f"input {path} can't be read: {error.strerror}") from error
    return Input(
        path=path,
        format=matched[0],
        compression=matched[1],
        size=status.st_size,
        modified_ns=status.st_mtime_ns,
    )


class SmallReads(io.RawIOBase):
    """A decompressing stream that reads little at a time: of the read that meets damage, it loses all."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), 1 << 16))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_input(item: Input) -> io.BufferedIOBase:
    """Open for reading from the start, decompressed."""
    if item.path == STDIN:
        if sys.stdin is None:
            raise InputError("stdin is closed; pipe text into it, or name files instead of -")
        # A buffer of our own: the interpreter aborts if it ends while a thread waits in that of sys.stdin.
        raw = getattr(sys.stdin.buffer, "raw", None)
        return io.BufferedReader(raw) if raw else cast(io.BufferedIOBase, sys.stdin.buffer)
    if item.compression == "gz":
        return gzip.open(item.path, "rb")
    if item.compression == "zst":
        import pyarrow

        stream = pyarrow.CompressedInputStream(pyarrow.OSFile(item.path, "rb"), "zstd")
        return io.BufferedReader(SmallReads(stream))
    return io.BufferedReader(io.FileIO(item.path))
