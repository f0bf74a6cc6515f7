"""Decompress a file as a stream, in bounded memory, and without losing what comes before damage."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shlex
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from albert_data.errors import InputError

# What is raised on a cut or damaged stream: by gzip any of these, by pyarrow (zst, lz4) and bz2 OSError.
STREAM_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError)
PROGRAMS = {"gz": "zcat", "zst": "zstdcat", "xz": "xzcat", "bz2": "bzcat", "lz4": "lz4 -dc"}
_READ_BYTES = 1 << 16
_XZ_MEMORY = 192 << 20  # xz -9 needs 65 MiB; a dictionary of 128 MiB is as large as the largest window of zstd


def decompress(file: io.RawIOBase, compression: str, path: str) -> io.BufferedIOBase:
    """The decompressed bytes of an open file. Closing the stream closes the file."""
    if compression == "gz":
        return _Gzip(file)
    if compression == "bz2":
        return io.BufferedReader(_Unpacked(file, bz2.BZ2Decompressor))
    if compression == "xz":
        return io.BufferedReader(_Unpacked(file, lambda: _make_xz(path)))
    import pyarrow

    codec = {"zst": "zstd", "lz4": "lz4"}[compression]
    stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), codec)
    return io.BufferedReader(_SmallReads(stream, path))


class _Gzip(gzip.GzipFile):
    def __init__(self, file: io.RawIOBase) -> None:
        super().__init__(fileobj=cast(Any, file), mode="rb")
        self._opened = file

    def close(self) -> None:
        super().close()
        self._opened.close()


def _make_xz(path: str) -> Any:
    return _Xz(lzma.LZMADecompressor(memlimit=_XZ_MEMORY), path)


class _Xz:
    """A decompressor that names the file in its error if the memory for it would be too large."""

    def __init__(self, inner: lzma.LZMADecompressor, path: str) -> None:
        self._inner, self._path = inner, path

    def decompress(self, data: bytes, size: int) -> bytes:
        try:
            return self._inner.decompress(data, size)
        except lzma.LZMAError as error:
            if "Memory usage limit" not in str(error):
                raise
            raise _too_large(self._path, "dictionary", "xz --lzma2=dict=...", "xz -dc") from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Unpacked(io.RawIOBase):
    """One compressed stream after another, as in files that were joined; zeros may follow each."""

    def __init__(self, file: io.RawIOBase, make: Callable[[], Any]) -> None:
        self._file, self._make = file, make
        self._decompressor = make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data:
            rest = b""
            if self._decompressor.eof:
                rest = self._decompressor.unused_data.lstrip(b"\0") or (self._file.read(_READ_BYTES) or b"").lstrip(
                    b"\0"
                )
                if not rest:
                    return 0
                self._decompressor = self._make()
            elif self._decompressor.needs_input and not (rest := self._file.read(_READ_BYTES) or b""):
                raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            data = self._decompressor.decompress(rest, min(len(buffer), _READ_BYTES))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class _SmallReads(io.RawIOBase):
    """Reads little at a time from pyarrow's streams, which loses all bytes of the read that meets damage."""

    def __init__(self, stream: BinaryIO, path: str) -> None:
        self._stream, self._path = stream, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(min(len(buffer), 1 << 16))
        except OSError as error:
            if "too much memory" not in str(error):
                raise
            raise _too_large(self._path, "window", "zstd --long=28 to 31", "zstd -dc --long=31") from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _too_large(path: str, what: str, how: str, program: str) -> InputError:
    return InputError(
        f"input {path} is compressed with a {what} over 128 MiB ({how}), larger than is supported; decompress it on "
        f"the way: `{program} {shlex.quote(path)} | albert-data build - ...`"
    )
