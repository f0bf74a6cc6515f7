"""Read .csv and .tsv: a header, then a record a row, by Python's csv module (excel and excel-tab: quotes may hold line
ends, and are doubled inside of quotes).

A row is read whole, so one of over 32 MiB or a million fields ends the file: mostly a quote is not closed. It takes up
to 0.6 GB. pyarrow's reader is faster, but fails at a row that is longer than its block.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from albert_data.config import TextConfig
from albert_data.corpus import blocks
from albert_data.corpus.blocks import Block, Origin
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import MAX_NAMES, list_names, name_field, split_names
from albert_data.corpus.formats.compression import STREAM_ERRORS
from albert_data.corpus.formats.records import Records, make_blocks
from albert_data.errors import InputError

_DIALECTS = {"csv": "excel", "tsv": "excel-tab"}
_END = "\0end\0"  # a last line of our own: it becomes part of a row whose quote is not closed
_PART_BYTES, _ROW_BYTES = 1 << 18, 256  # of the rows of a part; what a row takes beside its text
MAX_ROW, _MAX_FIELDS = 32 << 20, 1 << 20
_CHUNK = 1 << 20


class _TooLong(Exception):
    pass


def read_rows(
    stream: io.BufferedIOBase, origin: Origin, text: TextConfig, damage: Damage, block_bytes: blocks.BlockBytes
) -> Iterator[Block]:
    """Yield the documents of an open file as blocks."""
    return make_blocks(_read_parts(stream, origin, text, damage), origin, text, damage, block_bytes)


def _read_parts(stream: io.BufferedIOBase, origin: Origin, text: TextConfig, damage: Damage) -> Iterator[Records]:
    rows = _read_rows(stream, origin, damage)
    header = next(rows, (0, []))[1]
    if not header:
        return
    columns = _find_columns(header, text.text_field, origin.path)
    label = None
    if text.language_field is not None and text.language_field in header:
        label = _find_column(header, text.language_field, origin.path)
    part = _Part(tuple(header[:MAX_NAMES]), 1)
    for number, row in rows:
        if number != part.first + len(part.texts) or part.num_bytes >= _PART_BYTES:
            yield part.make(label is not None)
            part = _Part(part.names, number)
        part.texts.append("\n".join([row[i] for i in columns]).encode(errors="surrogateescape"))
        part.labels.append("" if label is None else row[label])
        part.num_bytes += _ROW_BYTES + len(part.texts[-1]) + len(part.labels[-1])
    yield part.make(label is not None)


@dataclass
class _Part:
    """Rows that follow each other: the first, and of each its text and language. num_bytes: that they hold, about."""

    names: tuple[str, ...]
    first: int
    texts: list[bytes] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    num_bytes: int = 0

    def make(self, has_labels: bool) -> Records:
        return Records(
            texts=self.texts,
            languages=self.labels if has_labels else None,
            names=self.names,
            unit="row",
            first=self.first,
            num_rows=len(self.texts),
        )


def _find_columns(header: list[str], field: str, path: str) -> list[int]:
    names = (field,) if field in header else split_names(field)
    return [_find_column(header, name, path) for name in names]


def _find_column(header: list[str], name: str, path: str) -> int:
    if name not in header:
        raise InputError(
            f"input {path} has no field {name_field(name)}; its header has the fields {list_names(header)}; "
            "name one of text with --text-field"
        )
    if (count := header.count(name)) > 1:
        raise InputError(f"input {path} has {count} fields {name_field(name)}; give each a name of its own")
    return header.index(name)


def _read_rows(stream: io.BufferedIOBase, origin: Origin, damage: Damage) -> Iterator[tuple[int, list[str]]]:
    """The header, then the rows as wide as it, each with its number; blank lines are no rows.

    Bytes that are no UTF-8 become surrogates.
    """
    decoded = io.TextIOWrapper(cast(Any, stream), "utf-8-sig", errors="surrogateescape", newline="")
    try:
        yield from _parse_rows(decoded, origin, damage)
    finally:
        if not decoded.closed:
            decoded.detach()  # without it, the end of `decoded` would close the stream


def _parse_rows(decoded: io.TextIOWrapper, origin: Origin, damage: Damage) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(MAX_ROW)  # of the whole process; by default no field may have over 128 KB
    dialect = csv.get_dialect(_DIALECTS[origin.format])
    lines = _Lines(decoded, dialect.delimiter)
    reader, number, width = csv.reader(lines, dialect), -1, None
    while True:
        place = f"row {number + 1}"
        try:
            row = next(reader)
        except STREAM_ERRORS as error:
            blocks.count_broken(error, origin.path, place, damage)
            return
        except (_TooLong, csv.Error):
            damage.add("row_too_long", origin.path, place, f"over {MAX_ROW} bytes or {_MAX_FIELDS} fields")
            return
        lines.num_bytes = lines.num_delimiters = 0
        if lines.is_ended:
            if row != [_END]:
                damage.add("malformed_row", origin.path, place, "a quote is not closed")
            return
        if not row:
            continue
        number += 1
        width = width or len(row)
        if len(row) != width:
            damage.add("malformed_row", origin.path, place, f"{len(row)} fields, but the header has {width}")
        else:
            yield number, row


class _Lines:
    """Lines for the reader of a csv file. num_bytes, num_delimiters: since the last row; is_ended: if _END was given.

    They are counted before the reader sees them: it takes fifty times the bytes of short fields.
    """

    def __init__(self, text: io.TextIOWrapper, delimiter: str) -> None:
        self._text, self._delimiter = text, delimiter
        self.num_bytes, self.num_delimiters, self.is_ended = 0, 0, False

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if self.is_ended:
            raise StopIteration
        line = part = self._read()
        if len(part) == _CHUNK:  # the beginning of a longer line
            parts = [part]
            while part and part[-1] not in "\r\n":
                parts.append(part := self._read())
            line = "".join(parts)
        self.is_ended = not line
        return line or _END

    def _read(self) -> str:
        """The rest of a line, or some of it."""
        part = self._text.readline(_CHUNK)
        self.num_bytes += len(part) if part.isascii() else len(part.encode(errors="surrogateescape"))
        self.num_delimiters += part.count(self._delimiter)
        if self.num_bytes > MAX_ROW or self.num_delimiters > _MAX_FIELDS:
            raise _TooLong
        return part
