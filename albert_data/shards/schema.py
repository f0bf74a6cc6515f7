"""The columns of a shard, converted from ragged arrays to Arrow and back, and written to a file.

One row is one example. Arrow's list columns are flat values and 32-bit offsets, so only the offsets are copied, in
both directions. docs/reference/format.md describes the columns for other readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.data import Examples
from albert_data.storage import find_storage
from albert_data.storage.files import HashingFile

FORMAT_VERSION = 2
MAX_INT = (1 << 63) - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)]
SHARD_SUFFIX = ".arrow"
SOURCE, DOCUMENT_KEY_B = "source", "document_key_b"  # columns that only some shards have
MAX_QUOTED = 300  # characters of a damaged file that a message quotes


def shard_schema(id_dtype: type[Any], *, has_source: bool = False, has_key_b: bool = False) -> pyarrow.Schema:
    """Columns of a shard whose token ids are uint16 or uint32.

    has_source: whether the documents had languages; has_key_b: whether segment B may be of another document.
    """
    ids = pyarrow.list_(pyarrow.field("item", pyarrow.from_numpy_dtype(id_dtype), nullable=False))
    positions = pyarrow.list_(pyarrow.field("item", pyarrow.uint16(), nullable=False))
    columns = {
        "input_ids": ids,
        "segment_a_len": pyarrow.int32(),
        "sop_label": pyarrow.int8(),
        "masked_positions": positions,
        "masked_ids": ids,
        "document_key": pyarrow.uint64(),
        **({SOURCE: pyarrow.uint16()} if has_source else {}),
        **({DOCUMENT_KEY_B: pyarrow.uint64()} if has_key_b else {}),
    }
    return pyarrow.schema(
        [pyarrow.field(name, kind, nullable=False) for name, kind in columns.items()],
        metadata={"albert_data_format": str(FORMAT_VERSION)},
    )


def to_record_batch(examples: Examples, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """One batch of rows. Arrow's offsets are int32: a build's batches, of about 8 MiB, are far below 2**31 tokens."""
    columns = [
        _to_list(examples.offsets, examples.input_ids),
        _to_array(examples.segment_a_len),
        _to_array(examples.sop_label),
        _to_list(examples.mask_offsets, examples.masked_positions),
        _to_list(examples.mask_offsets, examples.masked_ids),
        _to_array(examples.document_keys),
    ]
    optional = (examples.sources, examples.document_keys_b)
    columns += [_to_array(column) for column in optional if column is not None]
    return pyarrow.record_batch(columns, schema=schema)


def _to_list(offsets: np.ndarray, values: np.ndarray) -> pyarrow.ListArray:
    item = pyarrow.field("item", pyarrow.from_numpy_dtype(values.dtype), nullable=False)
    buffers = [None, pyarrow.py_buffer(offsets.astype(np.int32))]
    return pyarrow.Array.from_buffers(
        pyarrow.list_(item), len(offsets) - 1, buffers, null_count=0, children=[_to_array(values)]
    )


def _to_array(values: np.ndarray) -> pyarrow.Array:
    """Without a copy. pyarrow.array would import pandas, if that is installed, to recognise its types."""
    buffers = [None, pyarrow.py_buffer(np.ascontiguousarray(values))]
    return pyarrow.Array.from_buffers(pyarrow.from_numpy_dtype(values.dtype), len(values), buffers, null_count=0)


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Sums over the rows of a shard or split.

    num_tokens: with the special ones
    num_unpaired: rows without a second segment
    num_random: rows whose second segment is of another document; None where the task has none
    """

    num_rows: Count
    num_tokens: Count
    num_masked: Count
    num_unpaired: Count
    num_random: Count | None = None


@dataclass(frozen=True, kw_only=True)
class ShardReceipt(Totals):
    """What a written shard holds, for the manifest. sha256: as hex."""

    num_bytes: Count
    sha256: str


def write_shard(path: Path, batches: Iterable[Examples], schema: pyarrow.Schema, compression: str) -> ShardReceipt:
    """Write one Arrow file, with a record batch for each of `batches`. The same batches make the same bytes.

    The caller must sync the file: a build does so while workers make the next shards.
    """
    options = pyarrow.ipc.IpcWriteOptions(compression=None if compression == "none" else compression, use_threads=False)
    totals = Counter[str]()
    with find_storage(path).create(path, sync=False) as file:
        hashing = HashingFile(file)
        sink = pyarrow.PythonFile(hashing, mode="w")
        with pyarrow.ipc.new_file(sink, schema, options=options) as writer:
            for examples in batches:
                writer.write_batch(to_record_batch(examples, schema))
                totals.update(count_totals(examples))
        sink.flush()
    counts: dict[str, Any] = {field.name: totals[field.name] for field in fields(Totals)}
    if DOCUMENT_KEY_B not in schema.names:
        counts["num_random"] = None
    return ShardReceipt(**counts, num_bytes=hashing.num_bytes, sha256=hashing.hexdigest())


def count_totals(rows: Examples) -> dict[str, int]:
    """The values of Totals."""
    keys, keys_b = rows.document_keys, rows.document_keys_b
    return {
        "num_rows": len(rows),
        "num_tokens": len(rows.input_ids),
        "num_masked": len(rows.masked_ids),
        "num_unpaired": int(np.count_nonzero(rows.sop_label < 0)),
        "num_random": 0 if keys_b is None else int(np.count_nonzero(keys != keys_b)),
    }


def map_file(path: Path, sha256: str | None = None) -> pyarrow.BufferReader:
    """Map a file into memory. It stays mapped but is closed, as a process may have more shards than open files.

    sha256: of the file, if it is known: `Storage.map` says what it is for.
    """
    return pyarrow.BufferReader(find_storage(path).map(path, sha256))


def explain_damage(error: Exception) -> str:
    """The message of Arrow or the system, in one line of limited length. It may quote a file's bytes."""
    text = (isinstance(error, OSError) and error.strerror) or str(error)
    return shorten(" ".join(text.split()))


def shorten(text: str) -> str:
    """At most MAX_QUOTED characters."""
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."


def describe_columns(schema: pyarrow.Schema) -> str:
    """The message for columns that are not the format's. The caller puts the name of the file in front."""
    found = ", ".join(f"{column.name} {column.type}" for column in schema)
    return f"has the columns {shorten(found)}; see docs/reference/format.md for those that are allowed"


def check_values(batch: pyarrow.RecordBatch) -> None:
    """Raise ValueError unless the values of a batch are undamaged and without nulls."""
    batch.validate(full=True)
    lists = (column.values for column in batch.columns if pyarrow.types.is_list(column.type))
    if any(column.null_count for column in (*batch.columns, *lists)):
        raise ValueError("holds nulls; none are allowed")


def check_batch(batch: pyarrow.RecordBatch, *, has_source: bool = False, has_key_b: bool = False) -> None:
    """Raise ValueError unless a batch has our columns, undamaged and without nulls, and in each row as many
    masked_positions as masked_ids.

    Arrow checks none of this when it reads, and code that follows a damaged offset would read past the end of the file.
    The metadata of the schema may be anything: other writers of the format need not write ours.
    """
    allowed = [shard_schema(dtype, has_source=has_source, has_key_b=has_key_b) for dtype in (np.uint16, np.uint32)]
    if not any(map(batch.schema.equals, allowed)):
        raise ValueError(describe_columns(batch.schema))
    check_values(batch)
    masks, originals = (batch.column(name).offsets.to_numpy() for name in ("masked_positions", "masked_ids"))
    # Only the lengths of the lists must agree: another writer may begin the two columns at different offsets.
    if not np.array_equal(np.diff(masks), np.diff(originals)):
        raise ValueError("has a row with more or fewer masked_positions than masked_ids")


def from_record_batch(batch: pyarrow.RecordBatch) -> Examples:
    """The rows of a batch. Their values stay in Arrow's memory."""
    input_ids, masked = batch.column("input_ids"), batch.column("masked_ids")
    return Examples(
        input_ids=_flat(input_ids),
        offsets=_offsets(input_ids),
        segment_a_len=_values(batch.column("segment_a_len")),
        sop_label=_values(batch.column("sop_label")),
        masked_positions=_flat(batch.column("masked_positions")),
        masked_ids=_flat(masked),
        mask_offsets=_offsets(masked),
        document_keys=_values(batch.column("document_key")),
        sources=_values(batch.column(SOURCE)) if SOURCE in batch.schema.names else None,
        document_keys_b=_values(batch.column(DOCUMENT_KEY_B)) if DOCUMENT_KEY_B in batch.schema.names else None,
    )


def _values(array: pyarrow.Array) -> np.ndarray:
    values: np.ndarray = array.to_numpy(zero_copy_only=True)
    return values


def _flat(array: pyarrow.ListArray) -> np.ndarray:
    return _values(array.flatten())


def _offsets(array: pyarrow.ListArray) -> np.ndarray:
    offsets = _values(array.offsets).astype(np.int64)
    shifted: np.ndarray = offsets - offsets[0]
    return shifted
