"""Read .csv and .tsv: a header, then a record a row, by Python's csv module (excel and excel-tab: quotes may hold line
ends, and are doubled inside of quotes).

A row is read whole, so one of over 128 MiB ends the file: mostly a quote is not closed. pyarrow's reader is faster, but
fails at a row that is longer than its block.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any, cast

from albert_data.config import TextConfig
from albert_data.corpus import blocks
from albert_data.corpus.blocks import Block, Origin
from albert_data.corpus.compression import STREAM_ERRORS
from albert_data.corpus.damage import Damage
from albert_data.corpus.field_names import split_names
from albert_data.corpus.fields import list_names, name_field
from albert_data.corpus.records import Records, make_blocks
from albert_data.errors import InputError

_DIALECTS = {"csv": "excel", "tsv": "excel-tab"}
_END = "\0end\0"  # a last line of our own: it becomes part of a row whose quote is not closed
_ROWS = 256  # of a part


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
    texts = _find_columns(header, text.text_field, origin.path)
    label = header.index(text.language_field) if text.language_field in header else None
    first, held = 1, list[list[str]]()
    for number, row in rows:
        if number != first + len(held) or len(held) == _ROWS:
            yield _make_records(header, held, texts, label, first)
            first, held = number, []
        held.append(row)
    yield _make_records(header, held, texts, label, first)


def _find_columns(header: list[str], field: str, path: str) -> list[int]:
    names = (field,) if field in header else split_names(field)
    for name in names:
        if name not in header:
            raise InputError(
                f"input {path} has no field {name_field(name)}; its header has the fields {list_names(header)}; "
                "name one of text with --text-field"
            )
    return [header.index(name) for name in names]


def _make_records(header: list[str], rows: list[list[str]], texts: list[int], label: int | None, first: int) -> Records:
    return Records(
        texts=["\n".join([row[i] for i in texts]).encode(errors="surrogateescape") for row in rows],
        languages=None if label is None else [row[label] for row in rows],
        names=tuple(header),
        unit="row",
        first=first,
        num_rows=len(rows),
    )


def _read_rows(stream: io.BufferedIOBase, origin: Origin, damage: Damage) -> Iterator[tuple[int, list[str]]]:
    """The header, then the rows as wide as it, each with its number; blank lines are no rows.

    Bytes that are no UTF-8 become surrogates.
    """
    decoded = io.TextIOWrapper(cast(Any, stream), "utf-8-sig", errors="surrogateescape", newline="")
    try:
        yield from _parse_rows(_Lines(decoded), origin, damage)
    finally:
        if not decoded.closed:
            decoded.detach()  # without it, the end of `decoded` would close the stream


def _parse_rows(lines: _Lines, origin: Origin, damage: Damage) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(blocks.MAX_JSON_LINE)  # of the whole process; by default no field may have over 128 KB
    reader, number, width = csv.reader(lines, _DIALECTS[origin.format]), -1, None
    while True:
        place = f"row {number + 1}"
        try:
            row = next(reader)
        except STREAM_ERRORS as error:
            blocks.count_broken(error, origin.path, place, damage)
            return
        except (_TooLong, csv.Error):
            damage.add("row_too_long", origin.path, place, f"over {blocks.MAX_JSON_LINE} characters")
            return
        lines.num_characters = 0
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
    """Lines for the reader of a csv file. num_characters: since the last row; is_ended: whether _END was given."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text, self.num_characters, self.is_ended = text, 0, False

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if self.is_ended:
            raise StopIteration
        line = self._text.readline(blocks.MAX_JSON_LINE + 1)
        self.num_characters += len(line)
        if self.num_characters > blocks.MAX_JSON_LINE:
            raise _TooLong
        self.is_ended = not line
        return line or _END
