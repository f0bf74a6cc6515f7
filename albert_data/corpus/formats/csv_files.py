"""Read .csv and .tsv: a header, then a record a row; or rows alone, whose fields are numbers from 1.

A field that begins with a quotation mark is quoted if the next single mark stands before a delimiter, a line end or the
file's end, or blanks before these. It may hold delimiters, line ends, and marks, which are doubled (RFC 4180). Its mark
is a character if it is not closed, if the row is as wide as the header only without quotes, or if over 64 line ends or
1 MiB lie between the two marks and most lines there are as wide as the header. After 16 such marks without a quoted
field between them all are characters. So a stray mark costs no other row. Reading ahead ends at the next mark, so no
text is read ahead more than twice.

Python's csv module reads the rows, but those that it refuses where it is strict. pyarrow's reader is faster, but fails
at a row that is longer than its block.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, cast

from albert_data.config import AUTO, LONG_QUOTES, NO_QUOTES, TextConfig
from albert_data.corpus import blocks
from albert_data.corpus.blocks import Origin
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import list_names, name_field, split_names
from albert_data.corpus.formats.records import FieldColumns, Records, find_columns
from albert_data.corpus.streams import STREAM_ERRORS
from albert_data.errors import InputError
from albert_data.text.wording import count_of, list_some

OF_NAME = {"csv": ",", "tsv": "\t"}
_DELIMITERS = ",;\t|"  # those that are found
_EXCEL = re.compile(r'"?sep=([^"\r\n])"?[\r\n]*', re.IGNORECASE)  # a first line that names the delimiter
_SAMPLE_LINES, _SAMPLE_LEN = 100, 1 << 14
MAX_ROW, _MAX_FIELDS = 32 << 20, 1 << 20
_CHUNK = 1 << 20
_MAX_STRAY = 16
_MAX_LINE_ENDS, _MAX_QUOTED = 64, 1 << 20  # of a quoted field whose lines may be rows
_MOST_LINES = 1 << 16  # of any quoted field
_SHORT = 1 << 18  # characters of a row for the csv module, so that no field has over 1 MiB


def read_rows(stream: io.BufferedIOBase, origin: Origin, text: TextConfig, damage: Damage) -> Iterator[Records]:
    """Yield the rows of an open file."""
    file = _decode(stream)
    rows = _read_rows(_Lines(file.readline), origin, text, damage)
    if first := next(rows, None):
        header = _name_columns(first[1], text)
        yield _name_fields(header, rows if text.header else chain([first], rows), origin.path, text)
    file.detach()  # otherwise its end closes the stream


def find_delimiter(stream: io.BufferedIOBase, origin: Origin, text: TextConfig) -> str:
    """The delimiter of an open file. Raises InputError if it is not found, or the header lacks the text fields."""
    table = _open(_Lines(_decode(stream).readline), origin, text)
    if first := next(table.read(), None):
        _find_columns(_name_columns(first, text), origin.path, text)
    return table.delimiter


def _name_columns(first: list[str], text: TextConfig) -> list[str]:
    """The names of the fields, by the first row."""
    return first if text.header else [str(number) for number in range(1, len(first) + 1)]


def _decode(stream: io.BufferedIOBase) -> io.TextIOWrapper:
    """Text, in which bytes that are no UTF-8 are surrogates."""
    return io.TextIOWrapper(cast(Any, stream), "utf-8-sig", errors="surrogateescape", newline="")


def _name_fields(header: list[str], rows: Iterable[tuple[int, list[str]]], path: str, text: TextConfig) -> Records:
    columns = _find_columns(header, path, text)
    texts, language, group, id, compared = columns.texts, columns.language, columns.group, columns.id, columns.compared
    return Records(
        rows=(
            (
                number,
                ("\n".join([row[i] for i in texts]).encode(errors="surrogateescape"),),
                [None if i is None else row[i] for i in compared],
                None if language is None else row[language],
                None if group is None else row[group],
                None if id is None else row[id],
            )
            for number, row in rows
        ),
        columns=columns,
        unit="row",
    )


def _find_columns(header: Sequence[str], path: str, text: TextConfig) -> FieldColumns:
    """Raises RefusedInput if a header has no text field."""
    find = partial(_find_column, header, path)
    is_number = text.header and all(name.isdecimal() for name in split_names(text.text_field))
    advice = ("pass --no-header if the first row is data: then fields are numbers from 1",) if is_number else ()
    return find_columns(text, header, path, find, lambda: list_names(header), *advice)


def _find_column(header: Sequence[str], path: str, name: str, option: str | None) -> int | None:
    places = [str(number) for number, one in enumerate(header, 1) if one == name]
    if len(places) > 1:
        raise InputError(
            f"input {path} has {len(places)} fields {name_field(name)}; give each a name of its own: they are "
            f"the columns {list_some(places, 8)}"
        )
    return int(places[0]) - 1 if places else None


def _read_rows(lines: _Lines, origin: Origin, text: TextConfig, damage: Damage) -> Iterator[tuple[int, list[str]]]:
    """The header or first row, then the rows as wide as it, each with its number; blank lines are no rows."""
    table, num_stray, num_malformed, start = _open(lines, origin, text), 0, 0, 0 if text.header else 1
    number, first = start - 1, "header" if text.header else "first row"

    def count(reason: str, detail: str, times: int = 1) -> None:
        damage.add(reason, origin.path, f"row {number}", detail, times)

    for number, row in enumerate(table.read(), start):
        if table.num_stray > num_stray:
            count("stray_quote", "a quotation mark encloses no field; see --quoting", table.num_stray - num_stray)
            num_stray = table.num_stray
        if row is None:
            count("row_too_long", f"over {MAX_ROW} bytes or {_MAX_FIELDS} fields")
            if number == start:  # nothing says what the columns are
                return
        elif len(row) == table.width:
            yield number, row
        else:
            num_malformed += 1
            if num_malformed == 1:  # the others are counted at the end, which takes a fifth of the time
                count("malformed_row", f"{len(row)} fields, but the {first} has {table.width}")
    if num_malformed > 1:
        count("malformed_row", "", num_malformed - 1)
    if lines.error is not None:
        blocks.count_broken(lines.error, origin.path, f"row {number + 1}", damage)


# ---- the delimiter ----


def _open(lines: _Lines, origin: Origin, text: TextConfig) -> _Table:
    """A table with the delimiter that the settings or a first line names, or that is found. Raises InputError."""
    sample, size = list[str](), 0
    while len(sample) < _SAMPLE_LINES and size < _SAMPLE_LEN and (line := lines.read()) is not None:
        sample.append(line)
        size += len(line)
    named = _EXCEL.fullmatch(sample[0]) if sample else None
    lines.put_back(sample[1:] if named else sample)
    delimiter = text.delimiter
    if delimiter == AUTO:
        delimiter = named[1] if named else _find_delimiter(sample, origin, text)
    return _Table(lines, delimiter, text)


def _find_delimiter(sample: list[str], origin: Origin, text: TextConfig) -> str:
    """That of the most rows as wide as the header; of several, the one that gives it the most fields."""
    tables = {one: _Table(_Lines(lambda size: "", sample), one, text) for one in _DELIMITERS}
    found = {one: rows for one, table in tables.items() if (rows := table.read()) and len(next(rows, None) or ()) > 1}
    if len(found) < 2:
        return next(iter(found), OF_NAME[origin.format])
    ranks = {
        one: (sum(len(row or ()) == tables[one].width for row in rows), tables[one].width)
        for one, rows in found.items()
    }
    best = [one for one, rank in ranks.items() if rank == max(ranks.values())]
    num_rows, num_fields = ranks[best[0]]
    if not num_rows and OF_NAME[origin.format] in best:  # a header alone, as in an empty part of a corpus
        return OF_NAME[origin.format]
    if len(best) > 1:
        raise InputError(
            f"input {origin.path} may have the delimiter {best[0]!r} or {best[1]!r}: either makes {num_fields} fields "
            f"of the header and of {count_of(num_rows, 'row')} behind it; name one with --delimiter"
        )
    return best[0]


# ---- lines into rows ----


class _Table:
    """Splits lines into rows.

    width: fields of the header, 0 before it is read
    num_stray: marks that begin a field and were read as characters; run: of these, since the last quoted field
    """

    def __init__(self, lines: _Lines, delimiter: str, text: TextConfig) -> None:
        self.delimiter, self.width, self.num_stray, self._run, self._lines = delimiter, 0, 0, 0, lines
        self._max_stray, self._is_long = 0 if text.quoting == NO_QUOTES else _MAX_STRAY, text.quoting == LONG_QUOTES
        self._has_header = text.header
        # Some of a quoted field up to the end of a line, or all of it, the mark that closes it, and blanks behind that.
        blank = " *" if delimiter != " " else ""
        self._quoted = re.compile(rf'((?:[^"]++|"")*+)(?:"({blank})(?=[{re.escape(delimiter)}\r\n]|\Z))?')
        self._row = list[str]()  # the lines of the present row

    def read(self) -> Iterator[list[str] | None]:
        """Yield the fields of each row, None for one that is too long."""
        reader = self._make_reader()
        while True:
            self._row.clear()
            row: list[str] | None = None
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error:
                pass  # a stray mark, or a long row
            if row == []:  # a blank line
                continue
            read = row
            if read is None or len(read) != self.width:
                row = self._read_odd(read)
                if read is None or self._run >= self._max_stray:
                    reader = self._make_reader()
            if (
                0 < self._run < self._max_stray
                and '"' in self._row[0]
                and row is read
                and f'{self.delimiter}"' in self.delimiter + self._row[0]
            ):
                self._run = 0  # it has a quoted field
            yield row

    def _make_reader(self) -> Iterator[list[str]]:
        if self._run >= self._max_stray:
            return csv.reader(self._feed(), delimiter=self.delimiter, quoting=csv.QUOTE_NONE)
        return csv.reader(self._feed(), delimiter=self.delimiter, strict=True)

    def _feed(self) -> Iterator[str]:
        size = 0
        while (line := self._lines.read()) is not None:
            size = len(line) + (size if self._row else 0)
            self._row.append(line)
            if size > _SHORT or not line or len(self._row) > _MAX_LINE_ENDS:
                raise csv.Error
            yield line

    def _read_odd(self, row: list[str] | None) -> list[str] | None:
        """A row that the csv module refuses, or that is not as wide as the header."""
        first, num_stray, run = self._row[0], self.num_stray, self._run
        if row is not None and self.width and '"' not in first and len(row) <= _MAX_FIELDS:
            return row  # no mark has divided it in another way
        if not first or first.count(self.delimiter) > _MAX_FIELDS:
            return None
        if row is None or (self._row[1:] and len(row) > self.width):
            self._lines.put_back(self._row[1:])
            row = self._split(first)
        self.width = self.width or len(row)
        plain = first.rstrip("\r\n").split(self.delimiter)
        if len(row) == self.width or len(plain) != self.width:
            return row
        self._lines.put_back(self._row[1:])
        num_more = sum(field.startswith('"') for field in plain)
        self.num_stray, self._run = num_stray + num_more, run + num_more
        return plain

    def _split(self, line: str) -> list[str]:
        """The fields of the row that begins with a line, one after another. Too wide, it takes no more lines."""
        fields, at, size = list[str](), 0, 0
        del self._row[1:]
        while True:
            is_mark, closed = line.startswith('"', at) and self._run < self._max_stray, None
            is_full = size > MAX_ROW or len(fields) > (self.width or _MAX_FIELDS)
            if is_mark:
                closed = self._close(line, at + 1, takes_lines=not is_full)
            if closed is None:
                self.num_stray += is_mark and not is_full
                self._run += is_mark and not is_full
                end = line.find(self.delimiter, at)
                value, at = (line[at:].rstrip("\r\n"), len(line)) if end < 0 else (line[at:end], end)
            else:
                value, more, at = closed
                self._run = 0
                line = more[-1] if more else line
                self._row += more
                size += sum(map(len, more))
            fields.append(value)
            if not line.startswith(self.delimiter, at):
                return fields
            at += 1

    def _close(self, line: str, at: int, *, takes_lines: bool) -> tuple[str, list[str], int] | None:
        """A quoted field from behind its mark, the further lines that it takes, and the place in the last line behind
        the mark that closes it. None if none does: then it takes no line.
        """
        parts, more, num_bytes = list[str](), list[str](), 0
        while True:
            found = self._quoted.match(line, at)
            assert found is not None, "it matches nothing too"
            parts.append(found[1])
            num_bytes += _count_bytes(found[1])
            if found[2] is not None:
                is_short = not more or (len(more) <= _MAX_LINE_ENDS and num_bytes <= _MAX_QUOTED)
                if is_short or self._is_long or self._are_no_rows(more):
                    return "".join(parts).replace('""', '"') + found[2], more, found.end()
                break
            is_ended = found.end() < len(line) or num_bytes > MAX_ROW or len(more) == _MOST_LINES or not takes_lines
            if is_ended or (following := self._lines.read()) is None:
                break
            more.append(following)
            if not following:
                break
            line, at = following, 0
        self._lines.put_back(more)
        return None

    def _are_no_rows(self, lines: list[str]) -> bool:
        """Whether most lines differ from the header in their width: so they are text, and no rows between two marks."""
        if not self.width and not self._has_header:  # nothing says what rows are
            return True
        num_odd = sum(line.count(self.delimiter) != self.width - 1 for line in lines)
        return self.width > 1 and 2 * num_odd > len(lines)


class _Lines:
    """The lines of a file, each with its end. One of over MAX_ROW bytes is an empty one.

    ahead: lines that come first
    error: what ended the file, if it is damaged
    """

    def __init__(self, readline: Callable[[int], str], ahead: Sequence[str] = ()) -> None:
        self.error: Exception | None = None
        self._readline, self._ahead = readline, deque(ahead)

    def put_back(self, lines: Sequence[str]) -> None:
        self._ahead.extendleft(reversed(lines))

    def read(self) -> str | None:
        """The next line; None at the end."""
        if self._ahead:
            return self._ahead.popleft()
        if self.error is not None:
            return None
        try:
            line = self._readline(_CHUNK)
            return self._read_rest(line) if len(line) == _CHUNK else line or None
        except STREAM_ERRORS as error:
            self.error = error
            return None

    def _read_rest(self, part: str) -> str:
        """The line that begins with so much."""
        parts, num_bytes = list[str](), 0
        while True:
            num_bytes += _count_bytes(part)
            parts.append(part)
            if num_bytes > MAX_ROW:
                parts.clear()
            if not part or part[-1] in "\r\n":
                return "".join(parts)
            part = self._readline(_CHUNK)


def _count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogateescape"))
