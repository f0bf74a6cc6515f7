"""Bytes made valid UTF-8: each invalid sequence becomes U+FFFD, and a document with some counts once."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from albert_data.corpus.damage import Damage


def repair(data: bytes, path: str, start: int, damage: Damage) -> str:
    """Decode one document or line. start: where it begins in the file, in bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        damage.add("invalid_utf8", path, start + error.start, f"byte 0x{data[error.start]:02x}")
        return data.decode(errors="replace")


def repair_parts(parts: Iterator[bytes], path: str, start: int, damage: Damage) -> Iterator[bytes]:
    """The same for one that comes in parts, which may end inside a character."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    for part in parts:
        state = decoder.getstate()
        try:
            yield decoder.decode(part).encode()
        except UnicodeDecodeError as error:
            if decoder.errors == "strict":
                at = start - len(state[0]) + error.start
                damage.add("invalid_utf8", path, at, f"byte 0x{error.object[error.start]:02x}")
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            decoder.setstate(state)
            yield decoder.decode(part).encode()
        start += len(part)
    if left := decoder.getstate()[0]:
        if decoder.errors == "strict":
            damage.add("invalid_utf8", path, start - len(left), f"byte 0x{left[0]:02x}")
        yield "\ufffd".encode()
