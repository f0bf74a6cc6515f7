"""Read Parquet and Arrow files: only the columns that are needed, in bounded memory.

A file is split at its row groups (Parquet) or record batches (Arrow). Each of these begins at a byte of the file; in
Parquet and in an Arrow file it is the byte that its number suggests, which is enough to share the work. Whatever a
worker gets, a row group is read in batches of some rows, and the columns of an Arrow file are mapped into memory.

Damage inside of a row group or record batch is counted, and the rest of it is lost. A file whose schema or list of
parts can't be read is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block, Origin
from albert_data.corpus.columns import (
    decode_labels,
    find_column,
    find_text_columns,
    join_texts,
    list_fields,
    read_texts,
    take_column,
)
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import MAX_NAMES
from albert_data.corpus.records import Records, make_blocks
from albert_data.corpus.saved_datasets import read_indices, refuse_indices
from albert_data.errors import InputError
from albert_data.storage import find_storage, make_path

# Rows that are read at a time: about 1 MiB by the average of the row group, and no more than 256, because a few rows
# may be much longer than the average.
_BATCH_BYTES = 1 << 20
_MAX_BATCH_ROWS = 256
_SLICE_ROWS = 4096  # rows whose values are objects of Python at a time; the values themselves are not copied
_PAGE_READ_BYTES = 1 << 16
_MANY_ROWS, _MAX_ROWS_PER_BYTE = 1 << 26, 1000  # a column of nulls has 600 rows in a byte of Parquet
_ARROW_FILE, _ARROW_MESSAGE, _OLD_FEATHER = b"ARROW1", b"\xff\xff\xff\xff", b"FEA1"
_ERRORS = (pyarrow.ArrowException, OSError, ValueError)


def list_begins(path: str, format: str, text: TextConfig) -> list[int]:
    """The bytes at which the parts of a table begin; of the first one 0.

    Raises InputError if the table can't be read, or does not have the text field, or has another field in its place.
    """
    table = _open(path, format)
    _find_columns(table.schema, path, text)
    return table.list_begins()


def read_table(
    origin: Origin, start: int, end: int, text: TextConfig, damage: Damage, indices: str | None = None
) -> Iterator[Block]:
    """Yield the documents of the parts that begin in bytes [start, end) of a table.

    indices: a file of the rows to read, for the whole table.
    """
    table = _open(origin.path, origin.format)
    wanted = _find_columns(table.schema, origin.path, text)

    def read() -> Iterator[Records]:
        for unit, batches in table.read_parts(start, end, wanted.all):
            first = 0
            try:
                for batch in batches:
                    for records in _read_batch(batch, wanted, unit, first):
                        yield records
                        first = records.first + records.num_rows
            except _ERRORS as error:
                _check_cause(error, origin.path)
                if indices is not None:  # which number the rows of the whole file
                    raise _can_not_read(origin.path, origin.format, error) from error
                damage.add("damaged_table", origin.path, f"{unit} {first} or later", _shorten(error))

    return make_blocks(read() if indices is None else _select(read(), indices), origin, text, damage)


class _Wanted(NamedTuple):
    """The columns of the text and of the language, and the names of all."""

    texts: list[tuple[str, ...]]
    label: tuple[str, ...] | None
    names: tuple[str, ...]

    @property
    def all(self) -> list[tuple[str, ...]]:
        return self.texts if self.label is None else [*self.texts, self.label]


def _find_columns(schema: Any, path: str, text: TextConfig) -> _Wanted:
    """Raises InputError for a field that is missing, or no text."""
    label = None if text.language_field is None else find_column(schema, text.language_field, path)
    return _Wanted(find_text_columns(schema, text.text_field, path), label, tuple(schema.names[:MAX_NAMES]))


def _read_batch(batch: pyarrow.RecordBatch, wanted: _Wanted, unit: str, first: int) -> Iterator[Records]:
    """Some rows at a time, because a value as an object of Python takes more than its bytes."""
    texts = [take_column(batch, column) for column in wanted.texts]
    labels = None if wanted.label is None else take_column(batch, wanted.label)
    is_null = all(column.null_count == len(batch) for column in texts)
    num_rows = max(len(batch), 1) if is_null else _SLICE_ROWS  # a column of nulls may have 2**40 rows in a few bytes
    for at in range(0, len(batch), num_rows):
        yield Records(
            texts=None if is_null else join_texts([read_texts(column.slice(at, num_rows)) for column in texts]),
            languages=None if labels is None or is_null else decode_labels(labels.slice(at, num_rows)),
            names=wanted.names,
            unit=unit,
            first=first + at,
            num_rows=min(num_rows, len(batch) - at),
        )


Parts = Iterator[tuple[str, Iterator[pyarrow.RecordBatch]]]


def _select(parts: Iterator[Records], path: str) -> Iterator[Records]:
    """The records of a table that a file of indices names, as often as it names each."""
    indices, first = read_indices(path), 0
    for part in parts:
        chosen = indices[slice(*np.searchsorted(indices, (first, first + part.num_rows)))] - first
        first += part.num_rows
        if part.texts is None:
            yield replace(part, num_rows=len(chosen))
            continue
        counts = np.bincount(chosen, minlength=part.num_rows).tolist()
        languages = None if part.languages is None else chain.from_iterable(map(repeat, part.languages, counts))
        texts = chain.from_iterable(map(repeat, part.texts, counts))
        yield replace(part, texts=texts, languages=languages, num_rows=len(chosen))
    if len(indices) and indices[-1] >= first:
        raise refuse_indices(path, f"they name row {indices[-1]}, and the data has {first} rows")


class _Table(Protocol):
    schema: Any

    def list_begins(self) -> list[int]:
        """The bytes at which the parts begin."""

    def read_parts(self, start: int, end: int, columns: list[tuple[str, ...]]) -> Parts:
        """The name of each part that begins in bytes [start, end), with what its rows are called, and its rows."""


def _open(path: str, format: str) -> _Table:
    try:
        table: _Table = _Parquet(path) if format == "parquet" else _open_arrow(path)
        list(list_fields("", table.schema))  # raises an error where a name is damaged
        return table
    except _ERRORS as error:
        _check_cause(error, path)
        raise _can_not_read(path, format, error) from error


def _can_not_read(path: str, format: str, error: BaseException) -> InputError:
    name = "Parquet" if format == "parquet" else "Arrow"
    return InputError(f"input {path} can't be read as {name}: {_shorten(error)}; restore it, or name other inputs")


def _check_cause(error: BaseException, path: str) -> None:
    """Raise InputError if not the bytes of the file are damaged, but the disk fails or they are encrypted."""
    if "crypt" in str(error).replace(path, ""):  # encrypt, decrypt
        raise InputError(f"input {path} is encrypted; write it again without encryption") from error
    if isinstance(error, OSError) and error.errno is not None:
        raise InputError(f"input {path} can't be read: {error.strerror}; check the disk and try again") from error


def _shorten(error: BaseException) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _open_arrow(path: str) -> _Table:
    storage = find_storage(path)
    file = pyarrow.BufferReader(storage.map(make_path(path)) if storage.status(path).num_bytes else b"")
    beginning = file.read(len(_ARROW_FILE))
    if beginning.startswith(_OLD_FEATHER):
        raise InputError(
            f"input {path} is in version 1 of Feather; write it again, by pandas for example, in version 2"
        )
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

    def read_parts(self, start: int, end: int, columns: list[tuple[str, ...]]) -> Parts:
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
                yield f"row group {number}, row", batches


class _ArrowFile:
    """An Arrow IPC file, or Feather file of version 2. Its parts are record batches."""

    def __init__(self, file: pyarrow.NativeFile) -> None:
        self._file = file
        self.schema = pyarrow.ipc.open_file(file).schema

    def list_begins(self) -> list[int]:
        return _spread(pyarrow.ipc.open_file(self._file).num_record_batches, self._file.size())

    def read_parts(self, start: int, end: int, columns: list[tuple[str, ...]]) -> Parts:
        fields = sorted({self.schema.get_field_index(column[0]) for column in columns})
        options = pyarrow.ipc.IpcReadOptions(use_threads=False, included_fields=fields)
        reader = pyarrow.ipc.open_file(self._file, options=options)
        for number, begin in enumerate(self.list_begins()):
            if start <= begin < end:
                yield f"record batch {number}, row", _read_once(partial(reader.get_batch, number))


class _ArrowStream:
    """An Arrow IPC stream, as `datasets` writes it. Its parts are record batches; if it has dictionaries, it is one."""

    def __init__(self, file: pyarrow.NativeFile) -> None:
        self._file = file
        self.schema = pyarrow.ipc.open_stream(file).schema
        file.seek(0)
        pyarrow.ipc.read_message(file)
        self._first = file.tell()
        self._is_one = _has_dictionary(self.schema)

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

    def read_parts(self, start: int, end: int, columns: list[tuple[str, ...]]) -> Parts:
        if self._is_one:
            self._file.seek(0)
            yield "row", iter(pyarrow.ipc.open_stream(self._file))
            return
        self._file.seek(start or self._first)
        while (at := self._file.tell()) < end:
            yield f"record batch at byte {at}, row", _read_once(self._read_next)

    def _read_next(self) -> pyarrow.RecordBatch | None:
        """The next batch, None at the end of the stream. Damage ends the stream, because no more can be found."""
        try:
            return pyarrow.ipc.read_record_batch(pyarrow.ipc.read_message(self._file), self.schema)
        except EOFError:
            self._file.seek(self._file.size())
            return None
        except _ERRORS:
            self._file.seek(self._file.size())
            raise


def _has_dictionary(kind: Any) -> bool:
    """Whether a schema or type holds a dictionary at any depth."""
    fields = kind if isinstance(kind, pyarrow.Schema) else [kind.field(i) for i in range(kind.num_fields)]
    return any(pyarrow.types.is_dictionary(field.type) or _has_dictionary(field.type) for field in fields)


def _read_once(read: Callable[[], pyarrow.RecordBatch | None]) -> Iterator[pyarrow.RecordBatch]:
    batch = read()
    if batch is not None:
        yield batch
