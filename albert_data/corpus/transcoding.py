"""Read a stream of another encoding as UTF-8, in bounded memory.

In: a stream of bytes and the name of a codec. Out: a stream of UTF-8. What can't be decoded becomes bytes that are not
UTF-8, so that the reader of the stream repairs and counts them like damaged UTF-8.
"""

from __future__ import annotations

import codecs
import io
from typing import Any

from albert_data.errors import InputError

_CHUNK = 1 << 20
_DAMAGED = "albert_data.damaged"  # the name of the error handler


def _mark_damage(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace damage by bytes 0xFF, which no UTF-8 holds.

    It is called twice: decoding puts U+DCFF for damage, a character that can't be encoded, and encoding puts 0xFF for
    that. Some codecs report several damaged bytes as one error: each byte becomes one such character. In UTF-16 and
    UTF-32 each error becomes one, because there a character is several bytes.
    """
    if isinstance(error, UnicodeDecodeError):
        is_wide = error.encoding.lower().replace("-", "").startswith(("utf16", "utf32"))
        return "\udcff" * (1 if is_wide else error.end - error.start), error.end
    if isinstance(error, UnicodeEncodeError):
        return b"\xff" * (error.end - error.start), error.end
    raise error


codecs.register_error(_DAMAGED, _mark_damage)


class Transcoded(io.RawIOBase):
    """A stream as UTF-8. strict: raise InputError at the first byte that can't be decoded."""

    def __init__(self, stream: io.BufferedIOBase, codec: str, path: str, *, strict: bool) -> None:
        self._stream, self._codec, self._path = stream, codec, path
        self._decoder = codecs.getincrementaldecoder(codec)("strict" if strict else _DAMAGED)
        self._ready, self._taken, self._at, self._ended = b"", 0, 0, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while self._taken == len(self._ready) and not self._ended:
            self._ready, self._taken = self._read(), 0
        data = self._ready[self._taken : self._taken + len(buffer)]
        buffer[: len(data)] = data
        self._taken += len(data)
        return len(data)

    def _read(self) -> bytes:
        data = self._stream.read1(_CHUNK)
        self._ended = not data
        # Bytes of a cut character that the decoder kept from the last read; error.start counts from the first of them.
        held = len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            at = self._at - held + error.start
            raise InputError(
                f"{self._path}, byte {at}: not {self._codec}: byte 0x{error.object[error.start]:02x}, {error.reason}; "
                "fix the file, name its encoding with --encoding, or leave out --strict to repair such places"
            ) from error
        self._at += len(data)
        return text.encode(errors=_DAMAGED)

    def close(self) -> None:
        self._stream.close()
        super().close()
