"""Read Parquet and Arrow files: only the columns that are needed, in bounded memory.

A file is split at its row groups (Parquet) or record batches (Arrow). Each of these begins at a byte of the file; in
Parquet and in an Arrow file it is the byte that its number suggests, which is enough to share the work. Whatever a
worker gets, a row group is read in batches of some rows, and the columns of an Arrow file are mapped into memory.

Damage inside of a row group or record batch is counted, and the rest of it is lost. A file whose schema or list of
parts can't be read is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import islice, repeat
from typing import Any, TypeAlias

import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.config import TextConfig
from albert_data.corpus.blocks import Origin, check_disk
from albert_data.corpus.conditions import WITHOUT_FIELD, Condition, count_nanoseconds
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import MAX_NAMES, name_field
from albert_data.corpus.formats.records import FieldColumns, Records, Value, find_columns
from albert_data.errors import InputError
from albert_data.storage import find_storage, make_path
from albert_data.storage.status import check_same
from albert_data.text.wording import list_some

# Rows that are read at a time: about 1 MiB by the average of the row group, and no more than 256, because a few rows
# may be much longer than the average.
_BATCH_BYTES = 1 << 20
_MAX_BATCH_ROWS = 256
_SLICE_ROWS = 4096  # rows whose values are objects of Python at a time
_COPIED_BYTES = 8 << 20  # of texts that are copied at once, which is faster than one by one
_PAGE_READ_BYTES = 1 << 16
_MANY_ROWS, _MAX_ROWS_PER_BYTE = 1 << 26, 1000  # a column of nulls has 600 rows in a byte of Parquet
_ARROW_FILE = b"ARROW1"
_ERRORS = (pyarrow.ArrowException, OSError, ValueError)


def list_begins(origin: Origin, text: TextConfig) -> list[int]:
    """The bytes at which the parts of a table begin; of the first one 0.

    Raises InputError if the table can't be read, has no text field, or a field of another type than is needed.
    """
    table = _open(origin)
    _find_wanted(table.schema, origin.path, text)
    return table.list_begins()


def read_table(origin: Origin, text: TextConfig, damage: Damage, *, start: int, end: int) -> Iterator[Records]:
    """Yield the rows of the parts that begin in bytes [start, end) of a table."""
    table = _open(origin)
    columns = _find_wanted(table.schema, origin.path, text)
    wanted = [*columns.texts, *filter(None, (columns.language, columns.group, columns.id, *columns.compared))]
    for unit, batches, num_bytes, num_rows in table.read_parts(start, end, wanted):
        first = 0
        try:
            for batch in batches:
                for records in _read_batch(batch, columns, unit, first, damage):
                    yield records
                    first = records.first + records.num_rows
        except _ERRORS as error:
            check_disk(error, f"input {origin.path}")
            damage.add("damaged_table", origin.path, f"{unit} {first} or later", _shorten(error))
            left = 1 - first / num_rows if num_rows else 1.0
            damage.inputs.of(origin.path).unread_bytes += round(left * num_bytes)


def _read_batch(
    batch: pyarrow.RecordBatch, columns: FieldColumns, unit: str, first: int, damage: Damage
) -> Iterator[Records]:
    """Some rows at a time, because a value as an object of Python takes more than its bytes."""
    texts = [take_column(batch, column) for column in columns.texts]
    named = (columns.language, columns.group, columns.id, *columns.compared)
    language, group, id, *compared = (column and take_column(batch, column) for column in named)
    every = Records(rows=None, first=first, num_rows=len(batch), columns=columns, unit=unit)
    if not len(batch):
        return
    is_there = [column is not None and column.null_count < len(batch) for column in compared]
    can_hold = columns.where.can_hold(is_there)
    if not can_hold or (not compared and all(column.null_count == len(batch) for column in texts)):
        # None is visited: a column of nulls may have 2**40 rows in a few bytes.
        for condition, one in zip(columns.where.conditions, is_there, strict=True):
            damage.look_for(condition.field, one)
        yield replace(every, reason=None if can_hold else WITHOUT_FIELD)
        return
    for at in range(0, len(batch), _SLICE_ROWS):
        values = [read_texts(column.slice(at, _SLICE_ROWS)) for column in texts]
        languages, groups, ids, *others = (
            repeat(None) if column is None else _read_compared(column.slice(at, _SLICE_ROWS))
            for column in (language, group, id, *compared)
        )
        rows = zip(
            range(first + at, first + min(at + _SLICE_ROWS, len(batch))),
            zip(*values, strict=True),
            zip(*others, strict=True) if others else repeat(()),
            languages,
            groups,
            ids,
            strict=False,
        )
        yield replace(every, rows=rows, first=first + at, num_rows=min(_SLICE_ROWS, len(batch) - at))


# ---- the columns of the text, of the language, of the group and of the id: where a schema has them ----
#
# A name is that of a column, or a path through structs: `article.text`. Text is a string column of any kind (large,
# view, dictionary), one of bytes, of lists of these, or of nulls alone.

_SHOWN_FIELDS = 8
_UNITS = {f"timestamp[{unit}": 1000**power for power, unit in enumerate(("ns", "us", "ms", "s"))}
_UNITS |= {"date32[day": 86_400 * 10**9, "date64[ms": 10**6}
_UTC = (None, "UTC", "+00:00")
_STRINGS = {"string": "binary", "large_string": "large_binary", "string_view": "binary_view"}  # types of one layout
_BYTES = {kind: kind for kind in _STRINGS.values()}
Column = tuple[str, ...]  # the names of a column and of fields in its structs


def _find_wanted(schema: pyarrow.Schema, path: str, text: TextConfig) -> FieldColumns:
    """Raises RefusedInput if there is no text field, and InputError for a field of no text."""
    find = partial(_find_column, schema, path)
    columns = find_columns(text, schema.names, path, find, lambda: _describe_fields(schema))
    if not (where := columns.where).conditions:
        return columns
    conditions = tuple(
        one if column is None else _fit_condition(one, _find_type(schema, column, path), path)
        for one, column in zip(where.conditions, columns.compared, strict=True)
    )
    names = [name for name, _ in _list_fields("", schema)]
    return replace(columns, where=where._replace(conditions=conditions), names=tuple(names[:MAX_NAMES]))


def _find_column(schema: pyarrow.Schema, path: str, name: str, option: str | None) -> Column | None:
    """The column of a name; None if there is none. option: what names it; None where its type does not matter.

    Raises InputError if there are two, or it is of another type than it should be.
    """
    is_name = option in ("--group-field", "--id-field")
    for column in ((name,), tuple(name.split("."))):
        kind = _find_type(schema, column, path)
        is_text = _holds_text if option == "--text-field" else _is_text
        if kind is not None and option and not is_text(kind) and not (is_name and _is_number(kind)):
            needed = "text or whole number" if is_name else "text"
            raise InputError(
                f"input {path}: the field {name_field(name)} is of the type {str(kind):.60}, no {needed}; name another "
                f"with {option}"
            )
        if kind is not None:
            return column
    return None


def _find_type(schema: pyarrow.Schema, column: Column, path: str) -> pyarrow.DataType | None:
    kind = schema
    for name in column:
        if kind is not schema and not pyarrow.types.is_struct(kind):
            return None
        numbers = kind.get_all_field_indices(name)
        if len(numbers) > 1:
            raise InputError(
                f"input {path} has {len(numbers)} fields {name_field(name)}; write it again with a name for each"
            )
        if not numbers:
            return None
        kind = kind.field(numbers[0]).type
    return kind


def _describe_fields(schema: pyarrow.Schema) -> str:
    """The fields of a schema with their types."""
    fields = [f"{name_field(name)} ({str(kind):.60})" for name, kind in _list_fields("", schema)]
    return list_some(fields, _SHOWN_FIELDS) or "none"


def _list_fields(prefix: str, fields: Any) -> Iterator[tuple[str, pyarrow.DataType]]:
    """The fields of a schema, and of its structs, with their types. Raises ValueError for a name that is not UTF-8."""
    for field in fields:
        if pyarrow.types.is_struct(field.type):
            yield from _list_fields(f"{prefix}{field.name}.", field.type)
        else:
            yield prefix + field.name, field.type


def _is_text(kind: Any) -> bool:
    return str(_find_values(kind)) in ("null", *_STRINGS)


def _holds_text(kind: Any) -> bool:
    """Whether it is text, bytes, or lists of either."""
    kind = kind.value_type if _is_list(kind) else kind
    return _is_text(kind) or str(_find_values(kind)) in _BYTES


def _is_list(kind: Any) -> bool:
    return isinstance(kind, pyarrow.ListType | pyarrow.LargeListType)


def _is_number(kind: Any) -> bool:
    is_kind, kind = pyarrow.types, _find_values(kind)
    return any(is_a(kind) for is_a in (is_kind.is_integer, is_kind.is_floating, is_kind.is_decimal))


def _find_values(kind: Any) -> Any:
    """The type of the values of a dictionary; any other type as it is."""
    return kind.value_type if pyarrow.types.is_dictionary(kind) else kind


def _find_unit(kind: Any) -> int | None:
    """The nanoseconds of what a column of dates or timestamps counts; None for other types."""
    return _UNITS.get(str(_find_values(kind)).split(",")[0].rstrip("]"))


def _fit_condition(condition: Condition, kind: Any, path: str) -> Condition:
    """A condition on a column of a type; dates and times as numbers of what the column counts, exactly.

    Raises InputError for a type that can't be compared, and for values of another kind.
    """
    values, unit, is_flag = condition.values, _find_unit(kind), pyarrow.types.is_boolean(_find_values(kind))
    advice = "name a field of text, numbers, booleans, dates or timestamps"
    if unit is not None:
        needs_zone = getattr(_find_values(kind), "tz", None) not in _UTC
        advice = f"give a date or time in quotes, such as '2020-01-31{'T12:00+01:00' if needs_zone else ''}'"
        with suppress(TypeError, ValueError):
            moments = [Fraction(count_nanoseconds(one, needs_zone), unit) for one in values]
            return condition._replace(values=tuple(moments))
    elif is_flag or _is_number(kind):
        advice = f"give {'true or false' if is_flag else 'a number'}, without quotes"
        if all(isinstance(one, bool) is is_flag and not isinstance(one, str) for one in values):
            return condition
    elif _is_text(kind):
        return condition
    raise InputError(
        f"input {path}: the field {name_field(condition.field)} is of the type {str(kind):.60}, which --where can't "
        f"compare with {list(map(str, values))!r:.80}; {advice}"
    )


def take_column(batch: pyarrow.RecordBatch, path: Column) -> pyarrow.Array:
    """A column, or a field of its structs, which is null where a struct is; its buffers are as long as they must be.

    Raises ArrowInvalid for others. Nothing may read a column that does not come from here.
    """
    column = batch.column(batch.schema.get_field_index(path[0]))
    column.validate()  # takes the same time for any number of rows, and leaves the values of offsets to `read_texts`
    if len(column) != len(batch):
        raise pyarrow.ArrowInvalid(f"a column has {len(column)} rows, and its batch {len(batch)}")
    if len(path) == 1:
        return column
    from pyarrow import compute  # which takes a quarter of a second

    return compute.struct_field(column, list(path[1:]))


def _read_compared(array: pyarrow.Array) -> Iterator[Any]:
    """The values of a column as objects of Python, None for nulls.

    Moments are what the column counts: many a time is no object of Python.
    """
    if _is_text(array.type):
        return (None if value is None else str(value, "utf-8", "replace") for value in read_texts(array))
    array.validate(full=True)
    if _find_unit(array.type):
        array = array.dictionary_decode() if pyarrow.types.is_dictionary(array.type) else array
        array = array.view(pyarrow.int32() if array.type.bit_width == 32 else pyarrow.int64())
    return iter(array.to_pylist())


def read_texts(array: pyarrow.Array) -> Iterator[Value]:
    """The values of a column of text; None for nulls. Of large ones one at a time is copied.

    array: from `take_column`, or a slice of that. Raises ArrowInvalid before the first value if any is damaged.
    """
    if _is_list(array.type):
        return _join_lists(array)
    if pyarrow.types.is_null(_find_values(array.type)):
        return repeat(None, len(array))
    if pyarrow.types.is_dictionary(array.type):
        array = pyarrow.DictionaryArray.from_arrays(array.indices, _as_bytes(array.dictionary))  # checks the indices
        values, places = array.dictionary, array.indices.to_pylist()
        found = {place: memoryview(values[place].as_buffer()) for place in set(places) if place is not None}
        return map(found.get, places)
    values = _as_bytes(array)
    return iter(values.to_pylist()) if values.nbytes < _COPIED_BYTES else (value.as_py() for value in values)


def _join_lists(array: pyarrow.Array) -> Iterator[Value]:
    """The texts of each list, joined by line feeds; a null in it is none of them."""
    offsets = array.offsets.to_numpy()
    lengths, (first, last) = np.diff(offsets), offsets[[0, -1]].tolist()
    if not 0 <= first <= last <= len(array.values) or (lengths < 0).any():
        raise pyarrow.ArrowInvalid(f"the offsets of lists do not lie in {len(array.values)} values one after another")
    values = read_texts(array.values.slice(first, last - first))
    lists = (list(islice(values, length)) for length in lengths.tolist())
    return (
        b"\n".join([text for text in texts if text is not None]) if is_there else None
        for texts, is_there in zip(lists, array.is_valid().to_pylist(), strict=True)
    )


def _as_bytes(array: pyarrow.Array) -> pyarrow.Array:
    """A column of strings or bytes as one of bytes, whose offsets are checked: they need not be UTF-8."""
    array = array.view(getattr(pyarrow, (_STRINGS | _BYTES)[str(array.type)])())
    array.validate(full=True)
    return array


# ---- the three kinds of files ----

# What the rows of a part are called; the rows; its bytes, with what follows where damage ends the file; and how many
# rows it has, 0 where that is not known.
Parts = Iterator[tuple[str, Iterator[pyarrow.RecordBatch], int, int]]

# Each has its `schema`; `list_begins`, the bytes at which its parts begin; and `read_parts`, the parts that begin in
# bytes [start, end).
_Table: TypeAlias = "_Parquet | _ArrowFile | _ArrowStream"


def _open(origin: Origin) -> _Table:
    path, format = origin.file, origin.format
    try:
        check_same(path, find_storage(path).status(path), origin.found)
        table: _Table = _Parquet(path) if format == "parquet" else _open_arrow(path)
        list(_list_fields("", table.schema))  # raises an error where a name is damaged
        return table
    except _ERRORS as error:
        check_disk(error, f"input {path}")
        name = "Parquet" if format == "parquet" else "Arrow"
        raise InputError(
            f"input {path} can't be read as {name}: {_shorten(error)}; restore it, or name other inputs"
        ) from error


def _shorten(error: BaseException) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _open_arrow(path: str) -> _Table:
    storage = find_storage(path)
    file = pyarrow.BufferReader(storage.map(make_path(path)) if storage.status(path).num_bytes else b"")
    beginning = file.read(len(_ARROW_FILE))
    file.seek(0)
    return _ArrowFile(file) if beginning == _ARROW_FILE else _ArrowStream(file)


def _spread(count: int, size: int) -> list[int]:
    """Bytes for parts of which only the number is known."""
    return [size * number // count for number in range(count)]


class _Parquet:
    """A Parquet file. Its parts are row groups."""

    def __init__(self, path: str) -> None:
        import pyarrow.parquet

        storage = find_storage(path)
        self._size = storage.status(path).num_bytes
        self._file = pyarrow.parquet.ParquetFile(storage.open(path), pre_buffer=False, buffer_size=_PAGE_READ_BYTES)
        self.schema = self._file.schema_arrow
        num_rows = self._file.metadata.num_rows
        if num_rows > max(_MANY_ROWS, _MAX_ROWS_PER_BYTE * self._size):
            raise pyarrow.ArrowInvalid(f"it declares {num_rows} rows in {self._size} bytes")

    def list_begins(self) -> list[int]:
        return _spread(self._file.num_row_groups, self._size)

    def read_parts(self, start: int, end: int, columns: list[Column]) -> Parts:
        names = [".".join(column) for column in columns]
        for number, begin in enumerate(self.list_begins()):
            if start <= begin < end:
                group = self._file.metadata.row_group(number)
                # The size of all columns: to ask for that of an encrypted column ends the process (pyarrow 26).
                num_rows = _BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)
                batches = self._file.iter_batches(
                    batch_size=max(1, min(num_rows, _MAX_BATCH_ROWS)),
                    row_groups=[number],
                    columns=names,
                    use_threads=False,
                )
                size = self._size // self._file.num_row_groups
                yield f"row group {number}, row", batches, size, group.num_rows


class _ArrowFile:
    """An Arrow IPC file, or Feather file of version 2. Its parts are record batches."""

    def __init__(self, file: pyarrow.NativeFile) -> None:
        self._file = file
        self.schema = pyarrow.ipc.open_file(file).schema

    def list_begins(self) -> list[int]:
        return _spread(pyarrow.ipc.open_file(self._file).num_record_batches, self._file.size())

    def read_parts(self, start: int, end: int, columns: list[Column]) -> Parts:
        fields = sorted({self.schema.get_field_index(column[0]) for column in columns})
        options = pyarrow.ipc.IpcReadOptions(use_threads=False, included_fields=fields)
        reader = pyarrow.ipc.open_file(self._file, options=options)
        for number, begin in enumerate(self.list_begins()):
            if start <= begin < end:
                batches = (reader.get_batch(one) for one in [number])
                yield f"record batch {number}, row", batches, self._file.size() // reader.num_record_batches, 0


class _ArrowStream:
    """An Arrow IPC stream, as `datasets` writes it. Its parts are record batches; if it has dictionaries, it is one."""

    def __init__(self, file: pyarrow.NativeFile) -> None:
        self._file = file
        self.schema = pyarrow.ipc.open_stream(file).schema
        file.seek(0)
        pyarrow.ipc.read_message(file)
        self._first = file.tell()
        self._is_one = any("dictionary<" in str(field.type) for field in self.schema)

    def list_begins(self) -> list[int]:
        """Only the heads of the batches are read; a damaged one ends the list."""
        begins, at = [0], self._first
        self._file.seek(at)
        while not self._is_one:
            try:
                pyarrow.ipc.read_message(self._file)
            except (EOFError, *_ERRORS):
                break
            if at > self._first:
                begins.append(at)
            at = self._file.tell()
        return begins

    def read_parts(self, start: int, end: int, columns: list[Column]) -> Parts:
        self._file.seek(0 if self._is_one else start or self._first)
        reader = pyarrow.ipc.open_stream(self._file) if self._is_one else None
        while (at := self._file.tell()) < end:
            yield f"record batch at byte {at}, row", self._read_next(reader), end - at, 0

    def _read_next(self, reader: pyarrow.RecordBatchReader | None) -> Iterator[pyarrow.RecordBatch]:
        """The next batch, none at the end of the stream. Damage ends the stream, because no more can be found.

        reader: of a stream with dictionaries, which it gathers
        """
        try:
            if reader is not None:
                batch = reader.read_next_batch()
            else:
                batch = pyarrow.ipc.read_record_batch(pyarrow.ipc.read_message(self._file), self.schema)
        except (EOFError, StopIteration, *_ERRORS) as error:
            self._file.seek(self._file.size())
            if not isinstance(error, EOFError | StopIteration):
                raise
        else:
            yield batch
