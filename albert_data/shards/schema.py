"""The columns of a shard, and ragged arrays to and from Arrow.

One row is one example. Arrow's list columns are flat values and 32-bit offsets, so both ways are
zero-copy but for the width of the offsets. docs/format.md describes the columns for other readers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from albert_data.examples.ragged import Examples

FORMAT_VERSION = 2
READABLE_VERSIONS = (1, FORMAT_VERSION)  # their columns are the same
SHARD_SUFFIX = ".arrow"
SOURCE = "source"  # the column that only some shards have
MAX_TOLD = 300  # characters of what a damaged file says of itself


def shard_schema(
    id_dtype: type[Any], format_version: int = FORMAT_VERSION, *, has_source: bool = False
) -> pyarrow.Schema:
    """Columns of a shard whose token ids are uint16 or uint32. has_source: whether the documents had languages."""
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
    }
    return pyarrow.schema(
        [pyarrow.field(name, kind, nullable=False) for name, kind in columns.items()],
        metadata={"albert_data_format": str(format_version)},
    )


def to_record_batch(examples: Examples, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """One batch of rows. The batch must hold fewer than 2**31 tokens."""
    columns = [
        _to_list(examples.offsets, examples.input_ids),
        _to_array(examples.segment_a_len),
        _to_array(examples.sop_label),
        _to_list(examples.mask_offsets, examples.masked_positions),
        _to_list(examples.mask_offsets, examples.masked_ids),
        _to_array(examples.document_keys),
    ]
    if examples.sources is not None:
        columns.append(_to_array(examples.sources))
    return pyarrow.record_batch(columns, schema=schema)


def _to_list(offsets: np.ndarray, values: np.ndarray) -> pyarrow.ListArray:
    item = pyarrow.field("item", pyarrow.from_numpy_dtype(values.dtype), nullable=False)
    buffers = [None, pyarrow.py_buffer(offsets.astype(np.int32))]
    return pyarrow.Array.from_buffers(
        pyarrow.list_(item), len(offsets) - 1, buffers, null_count=0, children=[_to_array(values)]
    )


def _to_array(values: np.ndarray) -> pyarrow.Array:
    """Without a copy. pyarrow.array would import pandas, where that is installed, to look for its types."""
    buffers = [None, pyarrow.py_buffer(np.ascontiguousarray(values))]
    return pyarrow.Array.from_buffers(pyarrow.from_numpy_dtype(values.dtype), len(values), buffers, null_count=0)


def map_file(path: Path) -> pyarrow.BufferReader:
    """Map a file into memory. It stays mapped, but not open: a process may have more shards than open files.

    pyarrow takes a path as text in UTF-8, or as bytes of any kind.
    """
    with pyarrow.memory_map(os.fsencode(path)) as file:
        return pyarrow.BufferReader(file.read_buffer())


def explain_damage(error: Exception) -> str:
    """What Arrow or the system says, in one line that a terminal can show; it may quote a file's bytes."""
    text = (isinstance(error, OSError) and error.strerror) or str(error)
    return shorten(" ".join(text.split()))


def shorten(text: str) -> str:
    """At most MAX_TOLD characters."""
    return text if len(text) <= MAX_TOLD else f"{text[:MAX_TOLD]}..."


def describe_columns(schema: pyarrow.Schema) -> str:
    """The columns of another format, in a fault."""
    found = ", ".join(f"{column.name} {column.type}" for column in schema)
    return f"has the columns {shorten(found)}; see docs/format.md for those that are allowed"


def check_batch(batch: pyarrow.RecordBatch, *, has_source: bool = False) -> None:
    """Raise ValueError unless a batch has our columns, whole and without nulls, and as many masks as originals.

    Arrow looks at none of this when it reads, and who follows a damaged offset reads beyond the file.
    """
    if not any(batch.schema.equals(shard_schema(dtype, has_source=has_source)) for dtype in (np.uint16, np.uint32)):
        raise ValueError(describe_columns(batch.schema))
    batch.validate(full=True)
    if any(has_nulls(column) for column in batch.columns):
        raise ValueError("holds nulls; none are allowed")
    masks, originals = (batch.column(name).offsets.to_numpy() for name in ("masked_positions", "masked_ids"))
    if not np.array_equal(masks - masks[:1], originals - originals[:1]):
        raise ValueError("has other numbers of masked_positions than of masked_ids")


def has_nulls(column: pyarrow.Array) -> bool:
    if column.null_count:
        return True
    return pyarrow.types.is_list(column.type) and bool(column.values.null_count)


def from_record_batch(batch: pyarrow.RecordBatch) -> Examples:
    """The rows of a batch, their values still where Arrow has them."""
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
