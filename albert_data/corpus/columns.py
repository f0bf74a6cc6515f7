"""The text and language columns of tables: where a schema has them, and their values.

A name is that of a column, else a path through structs: `article.text`. Text is a string column of any kind (large,
view, dictionary), or one of nulls alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import pyarrow

from albert_data.corpus.field_names import split_names
from albert_data.corpus.fields import name_field
from albert_data.corpus.records import Value
from albert_data.errors import InputError

_SHOWN_FIELDS = 8


def find_column(schema: pyarrow.Schema, name: str) -> tuple[str, ...] | None:
    """The path of a field: names of a column and of fields in its structs; None if the schema has no such field."""
    if name in schema.names:
        return (name,)
    path = tuple(name.split("."))
    return path if find_type(schema, path) is not None else None


def find_type(schema: pyarrow.Schema, path: tuple[str, ...]) -> pyarrow.DataType | None:
    """The type of a field, None if the schema has no such field or has it twice."""
    if schema.get_field_index(path[0]) < 0:
        return None
    kind = schema.field(path[0]).type
    for name in path[1:]:
        if not pyarrow.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(name).type
    return kind


def find_text_columns(schema: pyarrow.Schema, field: str, path: str) -> list[tuple[str, ...]]:
    """The paths of the text fields. Raises InputError, with the fields that there are, if one is missing or no text."""
    names = (field,) if field in schema.names else split_names(field)
    return [_find_text_column(schema, name, path) for name in names]


def _find_text_column(schema: pyarrow.Schema, name: str, path: str) -> tuple[str, ...]:
    column = find_column(schema, name)
    if column is None:
        raise InputError(f"input {path} has no field {name_field(name)}; {_describe_fields(schema)}")
    kind = find_type(schema, column)
    if not _is_text(kind):
        raise InputError(
            f"input {path}: the field {name_field(name)} is of the type {kind}, no text; {_describe_fields(schema)}"
        )
    return column


def _describe_fields(schema: pyarrow.Schema) -> str:
    """The fields of a schema with their types, and the option that names one of text."""
    fields = list(list_fields("", schema))
    shown = ", ".join(f"{name_field(name)} ({str(kind):.60})" for name, kind in fields[:_SHOWN_FIELDS]) or "none"
    more = f" and {len(fields) - _SHOWN_FIELDS} more" if len(fields) > _SHOWN_FIELDS else ""
    texts = [name for name, kind in fields if _is_text(kind) and not pyarrow.types.is_null(kind)]
    advice = f"pass --text-field {shlex.quote(texts[0])}" if len(texts) == 1 else "name one of text with --text-field"
    return f"the fields are {shown}{more}; {advice if texts else 'none of them is text'}"


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
    """A column, or a field of its structs, which is null where a struct is."""
    column = batch.column(batch.schema.get_field_index(path[0]))
    if len(path) == 1:
        return column
    import pyarrow.compute  # which takes a quarter of a second

    return pyarrow.compute.struct_field(column, list(path[1:]))


def join_texts(columns: list[Iterator[Value]]) -> Iterator[Value]:
    """The texts of each row, joined by line feeds; None where all are null."""
    if len(columns) == 1:
        return columns[0]
    rows = ([value for value in row if value is not None] for row in zip(*columns, strict=True))
    return (b"\n".join(row) if row else None for row in rows)


def read_texts(array: pyarrow.Array) -> Iterator[Value]:
    """The values of a column of text, each a view of the column's memory; None for nulls."""
    kind = array.type
    if pyarrow.types.is_null(kind):
        return repeat(None, len(array))
    if pyarrow.types.is_dictionary(kind):
        array.validate(full=True)  # an index may be too large in a damaged file
        values = list(read_texts(array.dictionary))
        return (None if index is None else values[index] for index in array.indices.to_pylist())
    if _is_view(kind):
        array.validate(full=True)
        array = array.cast(pyarrow.large_string())
    return _read_strings(array)


def _read_strings(array: pyarrow.Array) -> Iterator[Value]:
    _, offsets, data = array.buffers()
    if not len(array) or offsets is None:
        return iter(())
    width = np.int64 if pyarrow.types.is_large_string(array.type) else np.int32
    bounds = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
    view = memoryview(data or b"").cast("B")
    if len(bounds) <= len(array) or bounds[0] < 0 or bounds[-1] > len(view) or (np.diff(bounds) < 0).any():
        raise pyarrow.ArrowInvalid("the offsets of a column are not ascending positions in its data")
    views = (view[begin:end] for begin, end in pairwise(bounds.tolist()))
    if not array.null_count:
        return views
    is_valid = array.is_valid().to_pylist()
    return (value if known else None for value, known in zip(views, is_valid, strict=True))
