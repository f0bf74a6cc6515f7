"""Rows out of many record batches, copied in one compiled loop.

In: the record batches of a split, memory-mapped where they are not compressed. Out: any of their rows.
The rows of a training batch lie all over a split. To ask Arrow for the record batch of each takes 50 microseconds
a time, so a table keeps where each column of each record batch begins, and the kernel reads from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow

from albert_data.examples.ragged import Examples
from albert_data.kernels import I64, Pointer, copy_items, helper, item, kernel, pointer, pointer_at
from albert_data.shards.schema import SOURCE


class Addresses(NamedTuple):
    """Where the columns of each record batch begin, and how many values its lists have: int64 [record batches].

    sources: of a column that shards may lack; then 0.
    """

    offsets: np.ndarray
    input_ids: np.ndarray
    num_ids: np.ndarray
    segment_a_len: np.ndarray
    sop_label: np.ndarray
    mask_offsets: np.ndarray
    masked_positions: np.ndarray
    masked_ids: np.ndarray
    num_masks: np.ndarray
    document_keys: np.ndarray
    sources: np.ndarray


class Columns:
    """The columns of record batches; keeps these in memory, or mapped."""

    def __init__(self, batches: Sequence[pyarrow.RecordBatch]) -> None:
        """Raises ValueError if not all have the same columns."""
        if any(batch.schema != batches[0].schema for batch in batches):
            raise ValueError("not all record batches have the same columns")
        self._batches = list(batches)
        found = np.array([_find_addresses(batch) for batch in batches], np.int64).reshape(-1, len(Addresses._fields))
        self._addresses = Addresses(*np.ascontiguousarray(found.T))
        self._has_source = SOURCE in batches[0].schema.names
        self._no_ids = np.zeros(0, batches[0].column("input_ids").values.to_numpy(zero_copy_only=True).dtype)

    def take(self, batches: np.ndarray, rows: np.ndarray) -> Examples:
        """Copy rows, each given by its record batch and its number in it (int64).

        A number beyond the record batch reads what lies there. Raises ValueError for lists that lead outside their
        values.
        """
        ids, offsets, segment_a_len, sop_label, positions, masked, mask_offsets, keys, sources = copy_rows(
            self._addresses, batches, rows, self._no_ids, self._has_source
        )
        return Examples(
            input_ids=ids,
            offsets=offsets,
            segment_a_len=segment_a_len,
            sop_label=sop_label,
            masked_positions=positions,
            masked_ids=masked,
            mask_offsets=mask_offsets,
            document_keys=keys,
            sources=sources if self._has_source else None,
        )


def _find_addresses(batch: pyarrow.RecordBatch) -> list[int]:
    ids, positions, originals = (batch.column(name) for name in ("input_ids", "masked_positions", "masked_ids"))
    return [
        _address(ids.offsets),
        _address(ids.values),
        len(ids.values),
        _address(batch.column("segment_a_len")),
        _address(batch.column("sop_label")),
        _address(originals.offsets),
        _address(positions.values),
        _address(originals.values),
        min(len(positions.values), len(originals.values)),
        _address(batch.column("document_key")),
        _address(batch.column(SOURCE)) if SOURCE in batch.schema.names else 0,
    ]


def _address(array: pyarrow.Array) -> int:
    return int(array.to_numpy(zero_copy_only=True).ctypes.data)


@helper
def measure_list(offsets: Pointer, row: int, num_values: int) -> I64:
    """The length of a list. Raises ValueError where it leads outside its values."""
    begin, end = I64(item(offsets, row)), I64(item(offsets, row + 1))
    if begin < 0 or end < begin or end > num_values:
        raise ValueError("a row lies outside its values")
    return end - begin


@kernel
def copy_rows(
    addresses: Addresses, batches: np.ndarray, rows: np.ndarray, no_ids: np.ndarray, has_source: bool
) -> tuple[np.ndarray, ...]:
    """Copy rows: the columns of `Examples`, in their order. no_ids: an array of the type of the ids."""
    num_rows = len(rows)
    offsets, mask_offsets = np.zeros(num_rows + 1, np.int64), np.zeros(num_rows + 1, np.int64)
    segment_a_len, sop_label = np.empty(num_rows, np.int32), np.empty(num_rows, np.int8)
    document_keys, sources = np.empty(num_rows, np.uint64), np.empty(num_rows if has_source else 0, np.uint16)
    # Pointers to int32, int8, ..: the types of those to the columns.
    ints, bytes_, words, shorts = pointer(segment_a_len), pointer(sop_label), pointer(document_keys), pointer(sources)
    for i in range(num_rows):
        batch, row = batches[i], rows[i]
        lists, masks = pointer_at(ints, addresses.offsets[batch]), pointer_at(ints, addresses.mask_offsets[batch])
        offsets[i + 1] = offsets[i] + measure_list(lists, row, addresses.num_ids[batch])
        mask_offsets[i + 1] = mask_offsets[i] + measure_list(masks, row, addresses.num_masks[batch])
        segment_a_len[i] = item(pointer_at(ints, addresses.segment_a_len[batch]), row)
        sop_label[i] = item(pointer_at(bytes_, addresses.sop_label[batch]), row)
        document_keys[i] = item(pointer_at(words, addresses.document_keys[batch]), row)
        if has_source:
            sources[i] = item(pointer_at(shorts, addresses.sources[batch]), row)
    input_ids, masked_ids = np.empty(offsets[-1], no_ids.dtype), np.empty(mask_offsets[-1], no_ids.dtype)
    masked_positions = np.empty(mask_offsets[-1], np.uint16)
    out_ids, out_masked, out_positions = pointer(input_ids), pointer(masked_ids), pointer(masked_positions)
    for i in range(num_rows):
        batch, row = batches[i], rows[i]
        begin = I64(item(pointer_at(ints, addresses.offsets[batch]), row))
        source = pointer_at(out_ids, addresses.input_ids[batch])
        copy_items(out_ids, offsets[i], source, begin, offsets[i + 1] - offsets[i])
        begin = I64(item(pointer_at(ints, addresses.mask_offsets[batch]), row))
        count = mask_offsets[i + 1] - mask_offsets[i]
        positions = pointer_at(out_positions, addresses.masked_positions[batch])
        copy_items(out_positions, mask_offsets[i], positions, begin, count)
        originals = pointer_at(out_ids, addresses.masked_ids[batch])
        copy_items(out_masked, mask_offsets[i], originals, begin, count)
    return (
        input_ids,
        offsets,
        segment_a_len,
        sop_label,
        masked_positions,
        masked_ids,
        mask_offsets,
        document_keys,
        sources,
    )
