"""The text and language columns of tables: where a schema has them, and their values.

A name is that of a column, else a path through structs: `article.text`. Text is a string column of any kind (large,
view, dictionary), or one of nulls alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow

from albert_data.corpus.field_names import split_names
from albert_data.corpus.fields import name_field
from albert_data.corpus.records import Value
from albert_data.errors import InputError
from albert_data.wording import list_some

_SHOWN_FIELDS = 8


def find_column(schema: pyarrow.Schema, name: str, path: str) -> tuple[str, ...] | None:
    """The path of a text: names of a column and of fields in its structs; None if the schema has no such field.

    Raises InputError, with the fields that there are, if it is no text or there are two of that name.
    """
    for column in ((name,), tuple(name.split("."))):
        kind = _find_type(schema, column, path)
        if kind is not None and not _is_text(kind):
            raise InputError(
                f"input {path}: the field {name_field(name)} is of the type {str(kind):.60}, no text; "
                f"{_describe_fields(schema)}"
            )
        if kind is not None:
            return column
    return None


def _find_type(schema: pyarrow.Schema, column: tuple[str, ...], path: str) -> pyarrow.DataType | None:
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


def find_text_columns(schema: pyarrow.Schema, field: str, path: str) -> list[tuple[str, ...]]:
    """The paths of the text fields. Raises InputError, with the fields that there are, if one is missing or no text."""
    names = (field,) if field in schema.names else split_names(field)
    return [_find_text_column(schema, name, path) for name in names]


def _find_text_column(schema: pyarrow.Schema, name: str, path: str) -> tuple[str, ...]:
    column = find_column(schema, name, path)
    if column is None:
        raise InputError(f"input {path} has no field {name_field(name)}; {_describe_fields(schema)}")
    return column


def _describe_fields(schema: pyarrow.Schema) -> str:
    """The fields of a schema with their types, and the option that names one of text."""
    fields = list(list_fields("", schema))
    shown = list_some([f"{name_field(name)} ({str(kind):.60})" for name, kind in fields], _SHOWN_FIELDS) or "none"
    texts = [name for name, kind in fields if _is_text(kind) and not pyarrow.types.is_null(kind)]
    advice = f"pass --text-field {shlex.quote(texts[0])}" if len(texts) == 1 else "name one of text with --text-field"
    return f"the fields are {shown}; {advice if texts else 'none of them is text'}"


def list_fields(prefix: str, fields: Any) -> Iterator[tuple[str, pyarrow.DataType]]:
    """The fields of a schema, and of its structs, with their types. Raises ValueError for a name that is not UTF-8."""
    for field in fields:
        if pyarrow.types.is_struct(field.type):
            yield from list_fields(f"{prefix}{field.name}.", field.type)
        else:
            yield prefix + field.name, field.type


def _is_text(kind: Any) -> bool:
    is_kind = pyarrow.types
    if is_kind.is_dictionary(kind):
        kind = kind.value_type
    return bool(is_kind.is_string(kind) or is_kind.is_large_string(kind) or is_kind.is_null(kind) or _is_view(kind))


def _is_view(kind: Any) -> bool:
    return hasattr(pyarrow.types, "is_string_view") and bool(pyarrow.types.is_string_view(kind))


def take_column(batch: pyarrow.RecordBatch, path: tuple[str, ...]) -> pyarrow.Array:
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


def join_texts(columns: list[Iterator[Value]]) -> Iterator[Value]:
    """The texts of each row, joined by line feeds; None where all are null."""
    if len(columns) == 1:
        return columns[0]
    rows = ([value for value in row if value is not None] for row in zip(*columns, strict=True))
    return (b"\n".join(row) if row else None for row in rows)


def decode_labels(array: pyarrow.Array) -> Iterator[str | None]:
    """The values of a short column as str."""
    return (None if value is None else str(value, "utf-8", "replace") for value in read_texts(array))


def read_texts(array: pyarrow.Array) -> Iterator[Value]:
    """The values of a column of text, each a view of the column's memory; None for nulls.

    array: from `take_column`, or a slice of that. Raises ArrowInvalid before the first value if any is damaged.
    """
    if pyarrow.types.is_null(array.type):
        return repeat(None, len(array))
    if not pyarrow.types.is_dictionary(array.type):
        return _read_values(array, np.arange(len(array)))
    places, values = array.indices.to_pylist(), array.dictionary
    used = sorted({place for place in places if place is not None})
    if used and not 0 <= used[0] <= used[-1] < len(values):
        raise pyarrow.ArrowInvalid(f"a column has an index that its dictionary of {len(values)} values does not have")
    found = dict(zip(used, _read_values(values, np.array(used, np.int64)), strict=True))
    return (None if place is None else found[place] for place in places)


def _read_values(array: pyarrow.Array, places: np.ndarray) -> Iterator[Value]:
    """The values at some places of a column of strings; nothing is read that belongs to other places."""
    if not len(places):
        return iter(())
    if _is_view(array.type):
        views = array.view(pyarrow.binary_view())
        views.validate(full=True)
        return (views[place].as_py() for place in places.tolist())
    _, offsets, data = array.buffers()
    width = np.int64 if pyarrow.types.is_large_string(array.type) else np.int32
    bounds = np.frombuffer(offsets, width)[array.offset :]
    begins, ends = bounds[places], bounds[places + 1]
    view = memoryview(data or b"").cast("B")
    if (begins < 0).any() or (begins > ends).any() or (ends > len(view)).any():
        raise pyarrow.ArrowInvalid("the offsets of a column are not ascending positions in its data")
    values = (view[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True))
    if not array.null_count:
        return values
    is_valid = array.is_valid().to_numpy(zero_copy_only=False)[places].tolist()
    return (value if known else None for value, known in zip(values, is_valid, strict=True))
