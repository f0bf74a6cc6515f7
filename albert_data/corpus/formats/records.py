"""Texts of records into blocks of whole documents, in bounded memory.

In: the values of the text field and of the language field, as a reader of a format yields them. Out: `Block`s. Records
without text are counted, as for JSON lines. A text of over 16 MiB is read as a text file that is one document, so it is
cut in the same places.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

from albert_data.config import TextConfig
from albert_data.corpus import blocks
from albert_data.corpus.blocks import RECORDS, Block, Origin
from albert_data.corpus.damage import Damage
from albert_data.corpus.labels import Labels
from albert_data.corpus.lines.white_space import has_text

Value = bytes | memoryview | None  # UTF-8, or what is damaged of it; None for no text
_SURE_BYTES = 4096  # most texts have some text in so many bytes


@dataclass(frozen=True, kw_only=True)
class Records:
    """Consecutive records.

    texts: None stands for a record without text; None instead of all: no record has one. languages: the values of the
    language field, None if the settings name none or the records have no such field; names: of the first fields;
    unit, first: what the records are numbered by, and the number of the first: "row", 5; num_rows: how many they are.
    """

    texts: Iterable[Value] | None
    languages: Iterable[Any] | None
    names: tuple[str, ...]
    unit: str
    first: int
    num_rows: int


def make_blocks(
    parts: Iterable[Records],
    origin: Origin,
    text: TextConfig,
    damage: Damage,
    block_bytes: blocks.BlockBytes = lambda position: blocks.BLOCK_BYTES,
) -> Iterator[Block]:
    """Yield the texts of all records as blocks.

    block_bytes: gives, for the bytes of text so far, the size that the next block should have.
    """
    gathering, num_bytes = _Gathering(origin, text, damage), 0
    want = block_bytes(num_bytes)
    for records in parts:
        gathering.begin(records)
        if records.texts is None:
            gathering.count_nulls(records.num_rows)
            continue
        for value, language in zip(records.texts, records.languages or repeat(None), strict=False):
            giant = gathering.add(value, language)
            if len(gathering.data) >= want or (giant and gathering.data):
                num_bytes += len(gathering.data)
                yield gathering.take()
                want = block_bytes(num_bytes)
            if giant:
                yield from gathering.read_giant(giant)
    if gathering.data:
        yield gathering.take()


class _Gathering:
    """Gathers the documents of one block."""

    def __init__(self, origin: Origin, text: TextConfig, damage: Damage) -> None:
        self._origin, self._text, self._damage = origin, text, damage
        self._labels = Labels(text, origin.language, damage)
        self._source_codes: list[int] = []
        self._ends: list[int] = []
        self._number = self._first = 0
        self.data = bytearray()

    def begin(self, records: Records) -> None:
        """Go on with these records."""
        self._records, self._number = records, records.first - 1
        if not self.data:
            self._first = records.first

    @property
    def _place(self) -> str:
        return f"{self._records.unit} {self._number}"

    def add(self, value: Value, language: Any) -> Value:
        """Add the text of the next record. A long one is returned instead."""
        if value is None:
            self.count_nulls(1)
            return None
        self._number += 1
        if not _has_text(value):
            self._damage.add("empty_document", self._origin.path, self._place)
            return None
        code = self._read_language(language)
        if len(value) >= blocks.GIANT_BYTES:
            self._giant_code = code
            return value
        if not self.data:
            self._first = self._number
        self.data += value
        self.data += b"\n"
        self._ends.append(len(self.data))
        self._source_codes.append(code)
        return None

    def count_nulls(self, count: int) -> None:
        """Count the next records, which have no text."""
        self._number += 1
        for fields in self._damage.fields_of(self._origin.path):
            fields.add(dict.fromkeys(self._records.names), count)
        self._damage.add("field_not_text", self._origin.path, self._place, "no text, but null", count)

    def _read_language(self, language: Any) -> int:
        if self._text.language_field is None:
            return 0
        is_there = self._records.languages is not None
        if not is_there:
            self._damage.unlabelled.add(dict.fromkeys(self._records.names))
        return self._labels.read(language, is_there, self._origin.path, self._place)

    def take(self) -> Block:
        block = Block(
            data=bytes(self.data),
            format=RECORDS,
            path=self._origin.path,
            start=self._first,
            ends=tuple(self._ends),
            language=self._origin.language,
            source_codes=tuple(self._source_codes) if self._text.language_field else None,
            unit=self._records.unit,
        )
        self.data, self._ends, self._source_codes = bytearray(), [], []
        return block

    def read_giant(self, value: bytes | memoryview) -> Iterator[Block]:
        origin = self._origin
        if self._text.language_field:
            origin = origin._replace(language=self._labels.names[self._giant_code])
        stream = io.BufferedReader(_ViewReader(memoryview(value)))
        # A start of 1, because a byte order mark belongs to the text of a record.
        text = replace(self._text, documents="file")
        yield from blocks.read_blocks(stream, origin._replace(format="txt"), self._damage, start=1, text=text)


class _ViewReader(io.RawIOBase):
    """Reads from memory without a copy of all of it."""

    def __init__(self, view: memoryview) -> None:
        self._view = view

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part, self._view = self._view[: len(buffer)], self._view[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _has_text(value: bytes | memoryview) -> bool:
    # The last two bytes may be the beginning of a white space character.
    return has_text(bytes(value[:_SURE_BYTES]), 2) or has_text(bytes(value))
