"""Streams of bytes: made of parts, or decompressed, in bounded memory and without losing what comes before damage."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from albert_data.errors import InputError
from albert_data.text.escaping import quote

# What is raised on a cut or damaged stream: by gzip any of these, by pyarrow (zst, lz4) and bz2 OSError.
STREAM_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError)

_READ_BYTES = 1 << 16  # pyarrow's streams lose all bytes of a read that meets damage
_Stream = io.RawIOBase | io.BufferedIOBase


class _Joined(io.RawIOBase):
    def __init__(self, parts: Iterator[bytes | memoryview], file: _Stream | None) -> None:
        self._parts, self._file, self._part = parts, file, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._part and (part := next(self._parts, None)) is not None:
            self._part = memoryview(part)
        data, self._part = self._part[: len(buffer)], self._part[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


def join_parts(parts: Iterator[bytes | memoryview], file: _Stream | None = None) -> io.BufferedReader:
    """Parts as one stream. Closing it closes `file`, which the parts are read from."""
    return io.BufferedReader(_Joined(parts, file))


def decompress(file: _Stream, compression: str, path: str) -> io.BufferedIOBase:
    """The decompressed bytes of an open file. Closing the stream closes the file."""
    if compression == "gz":
        return _Gzip(file)
    if compression in ("bz2", "xz"):
        return join_parts(_decompress(file, compression), file)
    import pyarrow

    codec = {"zst": "zstd", "lz4": "lz4"}[compression]
    stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), codec)
    return join_parts(_read_little(stream, path), stream)


class _Gzip(gzip.GzipFile):
    def __init__(self, file: _Stream) -> None:
        super().__init__(fileobj=cast(Any, file), mode="rb")
        self._opened = file

    def close(self) -> None:
        super().close()
        self._opened.close()


def _decompress(file: _Stream, compression: str) -> Iterator[bytes]:
    """One compressed stream after another, as in files that were joined; zeros may follow each."""
    make: Callable[[], Any] = bz2.BZ2Decompressor if compression == "bz2" else lzma.LZMADecompressor
    decompressor = make()
    while True:
        data = b""
        if decompressor.eof:
            data = decompressor.unused_data.lstrip(b"\0") or (file.read(_READ_BYTES) or b"").lstrip(b"\0")
            if not data:
                return
            decompressor = make()
        elif decompressor.needs_input and not (data := file.read(_READ_BYTES) or b""):
            raise EOFError("Compressed file ended before the end-of-stream marker was reached")
        yield decompressor.decompress(data, _READ_BYTES)


def _read_little(stream: BinaryIO, path: str) -> Iterator[bytes]:
    try:
        while data := stream.read(_READ_BYTES):
            yield data
    except OSError as error:
        if "too much memory" not in str(error):
            raise
        raise InputError(
            f"input {path} is compressed with a window over 128 MiB (zstd --long=28 to 31), larger than is supported; "
            f"decompress it on the way: `zstd -dc --long=31 {quote(path)} | albert-data build - ...`"
        ) from error
