"""Raw bytes into blocks of whole documents, in bounded memory.

In: an open file or a range of one. Out: `Block`s of whole documents of one format. In text files a document ends at a
blank line or a divider, or with the file; in JSON lines files it ends with the line. A text document that fills 16 MiB
without an end is cut while it is read, by the rule of long_documents.py, into several documents. In text files all line
ends become line feeds here (line_ends.py); the lines of a JSON lines file end at line feeds alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BufferedIOBase, BufferedReader
from typing import NamedTuple

from albert_data.config import FILE, TextConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.lines.line_ends import break_lines, count_unfinished
from albert_data.corpus.lines.long_documents import cut_document, hash_beginning
from albert_data.corpus.lines.valid_utf8 import repair
from albert_data.corpus.lines.white_space import BLANK_LINE, REST_OF_BLANK_LINE, has_text
from albert_data.corpus.streams import STREAM_ERRORS
from albert_data.errors import InputError
from albert_data.storage import Status, find_storage
from albert_data.text.wording import count_of

RECORDS = "records"  # the format of a block of texts that a reader took out of records
BLOCK_BYTES = 4 << 20
GIANT_BYTES = 16 << 20
MAX_JSON_LINE = 128 << 20
_MAX_INDENTATION = 4096  # bytes of white space that are kept before the first line of a stream, for --unwrap
BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 20

BlockBytes = Callable[[int], int]  # gives, for the position of a block, the size that it should have


class Origin(NamedTuple):
    """The file that documents come from. group, id: of all of them, 0 and "" for none; others as in Input."""

    path: str
    format: str
    language: str | None = None
    group: int = 0
    id: str = ""
    place: str | None = None
    found: Status | None = None

    @property
    def file(self) -> str:
        """What to open."""
        return self.place or self.path

    def open_file(self) -> BufferedReader:
        """Open the file. Raises InputError if it is not as it was found."""
        return find_storage(self.file).open(self.file, self.found)


@dataclass(frozen=True)
class Block:
    """Whole documents.

    origin: with the format of `data`
    start: where `data` begins in the decompressed file, in bytes (only about there in a document that was cut while it
        was read), or the number of the first record
    ends: where each document ends in `data`; None if blank lines or dividers (text) or line feeds (JSON lines) end them
    source_codes, groups, ids: of each record; None if the settings name no field for them
    whole: what identifies the document of which all are parts; 0 if they are none
    unit: what records are numbered by
    """

    data: bytes
    origin: Origin
    start: int = 0
    ends: tuple[int, ...] | None = None
    source_codes: tuple[int, ...] | None = None
    groups: tuple[int, ...] | None = None
    ids: tuple[str, ...] | None = None
    whole: int = 0
    unit: str = "byte"

    def locate(self, offset: int) -> int | str:
        """Where a byte of `data` is in the file, as for Damage.add; about where, in words, in records."""
        return self.start + offset if self.unit == "byte" else f"{self.unit} {self.start} or later"

    def describe(self) -> str:
        if self.unit != "byte":
            return f"{self.origin.path}, from {self.unit} {self.start} on"
        return f"{self.origin.path}, bytes {self.start} to {self.start + len(self.data)} (decompressed)"


def read_blocks(
    stream: BufferedIOBase,
    origin: Origin,
    text: TextConfig,
    damage: Damage,
    block_bytes: BlockBytes = lambda position: BLOCK_BYTES,
    *,
    start: int = 0,
    length: int | None = None,
) -> Iterator[Block]:
    """Yield all documents of a stream, or of its next `length` bytes, as blocks.

    start: the stream's position.
    """
    source = _Buffer(stream, origin, damage, start, length)
    if text.where is not None and source.format == "txt":
        raise InputError(f"input {origin.path} is text without fields, which --where needs; leave --where out")
    is_one = source.format == "txt" and text.document_rule == FILE  # the file is one document
    want = block_bytes(start)
    while source.fill(want):
        whole = 0 if is_one else source.find_end(text.divider)
        end = len(source.pending) if source.ended else whole
        if end > 0:
            at, data = source.start, source.take(end)
            yield source.make_block(data, at, (end,) if is_one else None)
            want = block_bytes(source.start)
        elif source.format == "txt" and len(source.pending) >= GIANT_BYTES:
            parts = _take_all(source) if is_one else _take_document(source, text.divider, damage)
            yield from _read_giant(source, parts, damage, keep_layout=text.unwrap)
        elif source.format == "jsonl" and len(source.pending) > MAX_JSON_LINE:
            damage.add("line_too_long", origin.path, source.start, f"over {MAX_JSON_LINE} bytes")
            source.skip_line()
        else:
            want = len(source.pending) * 3 // 2 + 1  # grows by half each time, so that all searches take linear time


def count_broken(error: Exception, path: str, place: int | str, damage: Damage) -> None:
    """Count a stream that is cut or damaged. Raises InputError if it is the disk that fails. place: for Damage.add."""
    check_disk(error, f"{path}, {f'byte {place}' if isinstance(place, int) else place}")
    damage.add("damaged_compression", path, place, str(error).rstrip("."))


def check_disk(error: Exception, what: str) -> None:
    """Raise InputError if an error does not come from damaged bytes, but from the disk."""
    if isinstance(error, OSError) and error.errno is not None:
        raise InputError(f"{what} can't be read: {error.strerror}; check the disk and try again") from error


class _Buffer:
    """A stream, and its bytes that are read but not yet taken.

    start: where `pending` begins in the file; ended: whether the stream, or its range, is read to the end.
    """

    def __init__(self, stream: BufferedIOBase, origin: Origin, damage: Damage, start: int, length: int | None) -> None:
        self.path, self.format, self._origin = origin.path, origin.format, origin
        self.start, self.ended = start, False
        self.pending = b""
        self._unfinished = b""  # the last bytes read, held back because they may begin a line end or white space
        self._stream, self._damage, self._left = stream, damage, length
        if start == 0:
            self._look_at_beginning()

    def _look_at_beginning(self) -> None:
        """Drop a byte order mark. Find the format of a stream whose name does not show it by its first character."""
        self.fill(len(BOM))
        if self.pending.startswith(BOM):
            self.take(len(BOM))
        if self.format == "auto":
            while not self.pending.strip() and not self.ended:
                self.take(max(len(self.pending) - _MAX_INDENTATION, 0))
                self.fill(len(self.pending) + 1)
            self.format = "jsonl" if self.pending.lstrip().startswith(b"{") else "txt"
            data, self.pending = self.pending, b""
            self._add(data)  # now that the format is known, with the line ends of text replaced

    def fill(self, size: int) -> bool:
        """Read until `size` bytes are pending or the stream ends. Returns whether any are pending."""
        while len(self.pending) < size and not self.ended:
            self._read(size - len(self.pending))
        return bool(self.pending)

    def _read(self, size: int) -> None:
        """Read `size` bytes or more, or to the end."""
        parts, have = [], 0
        while have < size and not self.ended:
            want = max(_CHUNK, size - have)
            # If little would be left of the range, read that, too: it would become a small block.
            if self._left is not None:
                want = self._left if self._left < 2 * want else want
            try:  # read1, because read drops what was decompressed before the damage
                chunk = self._stream.read1(want) if want else b""
            except STREAM_ERRORS as error:
                at = self.start + len(self.pending) + len(self._unfinished) + have
                count_broken(error, self.path, at, self._damage)
                chunk, self._left = b"", 0
            if self._left:
                self._left -= len(chunk)
                if not chunk:
                    raise InputError(
                        f"input {self.path} is {count_of(self._left, 'byte')} shorter than when the work began; try "
                        "again when no program writes to it"
                    )
            parts.append(chunk)
            have += len(chunk)
            self.ended = not chunk or self._left == 0
        self._add(b"".join(filter(None, parts)))  # without the empty last part: join does not copy a single item

    def _add(self, data: bytes) -> None:
        """Append what was read to `pending`; in text, all line ends become line feeds."""
        if self.format == "txt":
            data = self._unfinished + data
            unfinished = 0 if self.ended else count_unfinished(data)
            cut = len(data) - unfinished
            data, self._unfinished = break_lines(data[:cut]), data[cut:]
        self.pending = self.pending + data if self.pending else data

    def take(self, size: int) -> bytes:
        data, self.pending = self.pending[:size], self.pending[size:]
        self.start += size
        return data

    def make_block(self, data: bytes, start: int, ends: tuple[int, ...] | None) -> Block:
        return Block(data, self._origin._replace(format=self.format), start, ends)

    def find_end(self, divider: bytes | None) -> int:
        """Where the last document ends that is surely complete, or 0. divider: of text, None for a blank line."""
        if self.format == "jsonl":
            return self.pending.rfind(b"\n") + 1
        if divider is None:
            return _find_last_blank_line(self.pending)
        return len(self.pending) - len(self.pending.split(divider)[-1]) if divider in self.pending else 0

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
        if begin >= 0 and not has_text(data[begin + 1 : end]):
            return end + 1
        end = begin
    return 0


def _read_giant(source: _Buffer, parts: Iterator[bytes], damage: Damage, *, keep_layout: bool) -> Iterator[Block]:
    """Cut a document given as parts. keep_layout: keep its indentation and blank lines, for unwrapping."""
    start, out, ends, first, whole = source.start, bytearray(), list[int](), 0, 0
    cut = cut_document(repair(parts, source.path, start, damage), keep_layout=keep_layout)
    for number, document in enumerate(cut):
        out += b"\n".join(document) + b"\n"
        ends.append(len(out))
        if number:
            damage.add("long_document_cut", source.path, start)
            whole = first
        else:
            first = hash_beginning(out)
        if number and len(out) >= BLOCK_BYTES:  # only when the second part shows that it is cut
            yield replace(source.make_block(bytes(out), start, tuple(ends)), whole=whole)
            start, out, ends = source.start, bytearray(), []
    if out:
        yield replace(source.make_block(bytes(out), start, tuple(ends)), whole=whole)


def _take_all(source: _Buffer) -> Iterator[bytes]:
    """Take all that is left, in parts."""
    while source.fill(_CHUNK):
        yield source.take(len(source.pending))


def _take_document(source: _Buffer, divider: bytes | None, damage: Damage) -> Iterator[bytes]:
    """Take the bytes up to the next blank line or divider, in parts."""
    while divider is not None and source.fill(1):
        if (at := source.pending.find(divider)) >= 0:
            yield source.take(at)
            damage.matched.add(source.take(len(divider)).decode())
            return
        # A divider may begin in the last bytes.
        yield source.take(len(source.pending) if source.ended else max(len(source.pending) - len(divider) + 1, 0))
        source.fill(_CHUNK)
    is_blank = False  # whether part of the present line is already taken, and all of it was white space
    while source.fill(1):
        found = REST_OF_BLANK_LINE.match(source.pending) if is_blank else None
        found = found or BLANK_LINE.search(source.pending)
        if found:
            yield source.take(found.end())
            return
        line_begin = source.pending.rfind(b"\n") + 1
        is_blank = (is_blank or line_begin > 0) and not has_text(source.pending[line_begin:])
        yield source.take(len(source.pending))
        source.fill(_CHUNK)
