"""Raw bytes into blocks of whole documents, in bounded memory.

In: an open file or a range of one. Out: `Block`s, each a whole number of documents of one format.
A text file's document ends at a blank line, a JSON lines file's at the line's end. A text document that
fills 16 MiB without an end is cut as it is read, by the rule of long_documents.py, and goes out as
several documents.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase

from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import STREAM_ERRORS
from albert_data.corpus.long_documents import WHITESPACE, cut_document

BLOCK_BYTES = 4 << 20
GIANT_BYTES = 16 << 20
MAX_JSON_LINE = 128 << 20
BLANK_LINE = re.compile(rb"\n[ \t\r\x0b\x0c]*\n")
_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Block:
    """Whole documents. start: where `data` begins in the (decompressed) file, in bytes."""

    data: bytes
    format: str
    path: str
    start: int


def read_blocks(
    stream: BufferedIOBase,
    *,
    path: str,
    format: str,
    damage: Damage,
    start: int = 0,
    length: int | None = None,
    block_bytes: Callable[[int], int] = lambda position: BLOCK_BYTES,
) -> Iterator[Block]:
    """Yield all documents of a stream, or of its next `length` bytes, as blocks.

    start: the stream's position; block_bytes: a block's usual size, by its position.
    """
    source = _Source(stream, path, format, damage, start, length)
    want = block_bytes(start)
    while source.fill(want):
        end = len(source.pending) if source.ended else source.find_end()
        if end > 0:
            yield Block(data=source.take(end), format=source.format, path=path, start=source.start - end)
            want = block_bytes(source.start)
        elif source.format == "txt" and len(source.pending) >= GIANT_BYTES:
            yield from _read_giant(source, path, damage)
        elif source.format == "jsonl" and len(source.pending) > MAX_JSON_LINE:
            damage.add("line_too_long", path, source.start, f"over {MAX_JSON_LINE} bytes")
            source.skip_line()
        else:
            want = len(source.pending) * 3 // 2 + 1


class _Source:
    """A stream's bytes that are read but not yet taken."""

    def __init__(
        self, stream: BufferedIOBase, path: str, format: str, damage: Damage, start: int, length: int | None
    ) -> None:
        self.format, self.start, self.ended = format, start, False
        self.pending = b""
        self._stream, self._path, self._damage, self._left = stream, path, damage, length
        if start == 0:
            self._look_at_beginning()

    def _look_at_beginning(self) -> None:
        """Drop a byte order mark; tell stdin's format by its first character."""
        self.fill(len(_BOM))
        if self.pending.startswith(_BOM):
            self.take(len(_BOM))
        size = 1
        while self.format == "auto" and self.fill(size) and not self.pending.strip(WHITESPACE) and not self.ended:
            size = len(self.pending) + 1
        if self.format == "auto":
            self.format = "jsonl" if self.pending.lstrip(WHITESPACE).startswith(b"{") else "txt"

    def fill(self, size: int) -> bool:
        """Read until `size` bytes are pending or the stream ends; tell whether any are."""
        parts, have = [self.pending], len(self.pending)
        while have < size and not self.ended:
            want = max(_CHUNK, size - have)
            if self._left is not None:  # a little more than was asked for is not left for another block
                want = self._left if self._left < 2 * want else want
            try:  # read1, for read drops what was decompressed before the damage
                chunk = self._stream.read1(want) if want else b""
            except STREAM_ERRORS as error:
                self._damage.add("damaged_compression", self._path, self.start + have, str(error).rstrip("."))
                chunk = b""
            if self._left is not None:
                self._left -= len(chunk)
            parts.append(chunk)
            have += len(chunk)
            self.ended = not chunk or self._left == 0
        self.pending = b"".join(filter(None, parts))  # one alone is not copied
        return bool(self.pending)

    def take(self, size: int) -> bytes:
        data, self.pending = self.pending[:size], self.pending[size:]
        self.start += size
        return data

    def find_end(self) -> int:
        """Where the last document that is surely whole ends, or 0."""
        if self.format == "jsonl":
            return self.pending.rfind(b"\n") + 1
        return _find_last_blank_line(self.pending)

    def skip_line(self) -> None:
        while self.fill(1):
            end = self.pending.find(b"\n") + 1
            self.take(end or len(self.pending))
            if end:
                return


def _find_last_blank_line(data: bytes) -> int:
    """Where the line after the last blank line begins, or 0."""
    end = data.rfind(b"\n")
    while end > 0:
        begin = data.rfind(b"\n", 0, end)
        if begin >= 0 and not data[begin:end].strip(WHITESPACE):
            return end + 1
        end = begin
    return 0


def _read_giant(source: _Source, path: str, damage: Damage) -> Iterator[Block]:
    """Cut the document that the source stands in; the blocks hold canonical text."""
    start, out = source.start, bytearray()
    for number, document in enumerate(cut_document(_decode(_take_document(source), source, path, damage))):
        if number:
            damage.add("long_document_cut", path, start)
        out += b"\n".join(document) + b"\n\n"
        if len(out) >= BLOCK_BYTES:
            yield Block(data=bytes(out), format="txt", path=path, start=start)
            start, out = source.start, bytearray()
    if out:
        yield Block(data=bytes(out), format="txt", path=path, start=start)


def _take_document(source: _Source) -> Iterator[bytes]:
    """Take the bytes up to the next blank line, in parts."""
    while source.fill(1):
        found = BLANK_LINE.search(source.pending)
        if found:
            yield source.take(found.end())
            return
        # A blank line may just be beginning: keep a last line of white space back.
        tail = source.pending.rfind(b"\n")
        keep = tail if tail >= 0 and not source.pending[tail:].strip(WHITESPACE) else len(source.pending)
        yield source.take(len(source.pending) if source.ended else keep)
        source.fill(len(source.pending) + _CHUNK)


def _decode(parts: Iterator[bytes], source: _Source, path: str, damage: Damage) -> Iterator[bytes]:
    """Make the parts of one document valid UTF-8; damage counts once, as in any other document."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    for part in parts:
        state = decoder.getstate()
        try:
            yield decoder.decode(part).encode()
        except UnicodeDecodeError as error:
            if decoder.errors == "strict":
                at = source.start - len(part) - len(state[0]) + error.start
                damage.add("invalid_utf8", path, at, f"byte 0x{error.object[error.start]:02x}")
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            decoder.setstate(state)
            yield decoder.decode(part).encode()
    if decoder.getstate()[0]:
        if decoder.errors == "strict":
            left = decoder.getstate()[0]
            damage.add("invalid_utf8", path, source.start - len(left), f"byte 0x{left[0]:02x}")
        yield "\ufffd".encode()
