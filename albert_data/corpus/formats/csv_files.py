"""Read .csv and .tsv: a header, then a record a row, by Python's csv module (excel and excel-tab: quotes may hold line
ends, and are doubled inside of quotes).

A row is read whole, so one of over 32 MiB or a million fields ends the file: mostly a quote is not closed. It takes up
to 0.6 GB. pyarrow's reader is faster, but fails at a row that is longer than its block.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any, cast

from albert_data.config import TextConfig
from albert_data.corpus import blocks
from albert_data.corpus.blocks import Block, Origin
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import MAX_NAMES, list_names, name_field, split_names
from albert_data.corpus.formats.records import Records, Value, make_blocks
from albert_data.corpus.streams import STREAM_ERRORS
from albert_data.errors import InputError

_DIALECTS = {"csv": "excel", "tsv": "excel-tab"}
_END = "\0end\0"  # a last line of our own: it becomes part of a row whose quote is not closed
MAX_ROW, _MAX_FIELDS = 32 << 20, 1 << 20
_CHUNK = 1 << 20


class _TooLong(Exception):
    pass


def read_rows(
    stream: io.BufferedIOBase, origin: Origin, text: TextConfig, damage: Damage, block_bytes: blocks.BlockBytes
) -> Iterator[Block]:
    """Yield the documents of an open file as blocks."""
    # Bytes that are no UTF-8 become surrogates.
    decoded = io.TextIOWrapper(cast(Any, stream), "utf-8-sig", errors="surrogateescape", newline="")
    try:
        yield from make_blocks(_read_records(decoded, origin, text, damage), origin, text, damage, block_bytes)
    finally:
        if not decoded.closed:
            decoded.detach()  # without it, the end of `decoded` would close the stream


def _read_records(decoded: io.TextIOWrapper, origin: Origin, text: TextConfig, damage: Damage) -> Iterator[Records]:
    rows = _read_rows(decoded, origin, damage)
    header = next(rows, (0, []))[1]
    if not header:
        return
    columns = [_find_column(header, name, origin.path) for name in split_names(text.text_field, header)]
    label, group = (
        _find_column(header, name, origin.path) if name in header else None
        for name in (text.language_field, text.group_field)
    )
    conditions, fields = text.conditions, dict.fromkeys(header)
    compared = [_find_column(header, one.field, origin.path) if one.field in fields else None for one in conditions]

    def read_text(row: list[str]) -> Value | str:
        values = [None if i is None else row[i] for i in compared]
        excluded = damage.find_exclusion(conditions, values, lambda: fields) if conditions else None
        return excluded or "\n".join([row[i] for i in columns]).encode(errors="surrogateescape")

    yield Records(
        rows=(
            (
                number,
                read_text(row),
                None if label is None else row[label],
                None if group is None else row[group],
            )
            for number, row in rows
        ),
        has_languages=label is not None,
        names=tuple(header[:MAX_NAMES]),
        unit="row",
    )


def _find_column(header: list[str], name: str, path: str) -> int:
    if name not in header:
        raise InputError(
            f"input {path} has no field {name_field(name)}; its header has the fields {list_names(header)}; "
            "name one of text with --text-field"
        )
    if (count := header.count(name)) > 1:
        raise InputError(f"input {path} has {count} fields {name_field(name)}; give each a name of its own")
    return header.index(name)


def _read_rows(decoded: io.TextIOWrapper, origin: Origin, damage: Damage) -> Iterator[tuple[int, list[str]]]:
    """The header, then the rows as wide as it, each with its number; blank lines are no rows."""
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
    """Lines for the reader of a csv file, and _END after them.

    Bytes and delimiters are counted before the reader sees them: it takes fifty times the bytes of short fields.

    num_bytes, num_delimiters: since the last row
    is_ended: whether _END was given
    """

    def __init__(self, text: io.TextIOWrapper, delimiter: str) -> None:
        self._text, self._delimiter = text, delimiter
        self.num_bytes, self.num_delimiters, self.is_ended = 0, 0, False

    def __iter__(self) -> Iterator[str]:
        while line := self._read():
            if len(line) == _CHUNK:  # the beginning of a longer line
                parts = [line]
                while parts[-1] and parts[-1][-1] not in "\r\n":
                    parts.append(self._read())
                line = "".join(parts)
            yield line
        self.is_ended = True
        yield _END

    def _read(self) -> str:
        """The rest of a line, or some of it."""
        part = self._text.readline(_CHUNK)
        self.num_bytes += len(part) if part.isascii() else len(part.encode(errors="surrogateescape"))
        self.num_delimiters += part.count(self._delimiter)
        if self.num_bytes > MAX_ROW or self.num_delimiters > _MAX_FIELDS:
            raise _TooLong
        return part
