"""Copies rows out of many record batches, in one compiled loop.

In: the record batches of a split, memory-mapped where they are not compressed. Out: any of their rows.
The rows of a training batch are spread over the whole split. To ask Arrow for a row's record batch takes 50
microseconds, so a table holds the addresses of the columns of each record batch, and the kernel reads from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow

from albert_data.data import Examples
from albert_data.errors import ShardError
from albert_data.kernels import I64, Pointer, copy_items, helper, item, kernel, pointer, pointer_at
from albert_data.shards.schema import DOCUMENT_KEY_B, SOURCE


class Addresses(NamedTuple):
    """Where each column of each record batch begins in memory: int64 [record batches].

    A list column has the addresses of its offsets (int32) and of its values. Each has offsets of its own: in a file by
    another writer masked_positions and masked_ids may begin at different ones.
    sources, document_keys_b: 0 in shards without the column
    """

    id_offsets: np.ndarray
    input_ids: np.ndarray
    position_offsets: np.ndarray
    masked_positions: np.ndarray
    masked_offsets: np.ndarray
    masked_ids: np.ndarray
    segment_a_len: np.ndarray
    sop_label: np.ndarray
    document_keys: np.ndarray
    sources: np.ndarray
    document_keys_b: np.ndarray


class Columns:
    """The columns of record batches. It keeps the batches alive, in memory or mapped."""

    def __init__(self, batches: Sequence[pyarrow.RecordBatch]) -> None:
        """Take one or more record batches. Raises ShardError if not all have the same columns."""
        if any(batch.schema != batches[0].schema for batch in batches):
            raise ShardError("not all record batches of a split have the same columns; run `albert-data verify`")
        self._batches = list(batches)
        found = np.array([_find_addresses(batch) for batch in batches], np.int64).reshape(-1, len(Addresses._fields))
        self._addresses = Addresses(*np.ascontiguousarray(found.T))
        self._has_source, self._has_key_b = (name in batches[0].schema.names for name in (SOURCE, DOCUMENT_KEY_B))
        self._no_ids = np.zeros(0, batches[0].column("input_ids").values.to_numpy(zero_copy_only=True).dtype)

    def take(self, batch_numbers: np.ndarray, rows: np.ndarray) -> Examples:
        """Copy rows, each given by the number of its record batch and its number in that batch (int64).

        The caller must check these numbers, and with `check_batch` the batches: damaged ones read other memory.
        """
        copied = copy_rows(self._addresses, batch_numbers, rows, self._no_ids, self._has_source, self._has_key_b)
        found: dict[str, Any] = dict(zip(Examples.__dataclass_fields__, copied, strict=True))
        if not self._has_source:
            found["sources"] = None
        if not self._has_key_b:
            found["document_keys_b"] = None
        return Examples(**found)


def _find_addresses(batch: pyarrow.RecordBatch) -> list[int]:
    """The fields of `Addresses` for one record batch."""
    lists = [batch.column(name) for name in ("input_ids", "masked_positions", "masked_ids")]
    others = ("segment_a_len", "sop_label", "document_key", SOURCE, DOCUMENT_KEY_B)
    return [
        *(number for one in lists for number in (_address(one.offsets), _address(one.values))),
        *(_address(batch.column(name)) if name in batch.schema.names else 0 for name in others),
    ]


def _address(array: pyarrow.Array) -> int:
    return int(array.to_numpy(zero_copy_only=True).ctypes.data)


@helper
def measure_list(offsets: Pointer, row: int) -> I64:
    """The length of a row's list: list i has the values [offsets[i], offsets[i + 1])."""
    return I64(item(offsets, row + 1)) - I64(item(offsets, row))


@helper
def copy_list(out: Pointer, out_at: int, values: int, offsets: Pointer, row: int, count: int) -> None:
    """Copy the first `count` values of a row's list. values: the address of an array of the same type as `out`."""
    copy_items(out, out_at, pointer_at(out, values), I64(item(offsets, row)), count)


@kernel
def copy_rows(
    addresses: Addresses,
    batch_numbers: np.ndarray,
    rows: np.ndarray,
    no_ids: np.ndarray,
    has_source: bool,
    has_key_b: bool,
) -> tuple[np.ndarray, ...]:
    """Copy rows: the columns of `Examples`, in their order. no_ids: an empty array of the type of the ids."""
    num_rows = len(rows)
    offsets, mask_offsets = np.zeros(num_rows + 1, np.int64), np.zeros(num_rows + 1, np.int64)
    segment_a_len, sop_label = np.empty(num_rows, np.int32), np.empty(num_rows, np.int8)
    document_keys, sources = np.empty(num_rows, np.uint64), np.empty(num_rows if has_source else 0, np.uint16)
    keys_b = np.empty(num_rows if has_key_b else 0, np.uint64)
    # pointer_at makes a pointer of the same type as another one. These four serve as examples of their types here.
    i32, i8, u64, u16 = pointer(segment_a_len), pointer(sop_label), pointer(document_keys), pointer(sources)
    # First pass: measure the lists and copy the single values.
    for i in range(num_rows):
        batch, row = batch_numbers[i], rows[i]
        offsets[i + 1] = offsets[i] + measure_list(pointer_at(i32, addresses.id_offsets[batch]), row)
        # A row has as many positions as originals, so they share mask_offsets in the result.
        mask_offsets[i + 1] = mask_offsets[i] + measure_list(pointer_at(i32, addresses.masked_offsets[batch]), row)
        segment_a_len[i] = item(pointer_at(i32, addresses.segment_a_len[batch]), row)
        sop_label[i] = item(pointer_at(i8, addresses.sop_label[batch]), row)
        document_keys[i] = item(pointer_at(u64, addresses.document_keys[batch]), row)
        if has_source:
            sources[i] = item(pointer_at(u16, addresses.sources[batch]), row)
        if has_key_b:
            keys_b[i] = item(pointer_at(u64, addresses.document_keys_b[batch]), row)
    # Now the sizes of the lists are known. The arrays are returned, so the pointers to them stay valid.
    input_ids, masked_ids = np.empty(offsets[-1], no_ids.dtype), np.empty(mask_offsets[-1], no_ids.dtype)
    masked_positions = np.empty(mask_offsets[-1], np.uint16)
    out_ids, out_masked, out_positions = pointer(input_ids), pointer(masked_ids), pointer(masked_positions)
    for i in range(num_rows):
        batch, row = batch_numbers[i], rows[i]
        lists = pointer_at(i32, addresses.id_offsets[batch])
        copy_list(out_ids, offsets[i], addresses.input_ids[batch], lists, row, offsets[i + 1] - offsets[i])
        at, count = mask_offsets[i], mask_offsets[i + 1] - mask_offsets[i]
        lists = pointer_at(i32, addresses.position_offsets[batch])
        copy_list(out_positions, at, addresses.masked_positions[batch], lists, row, count)
        lists = pointer_at(i32, addresses.masked_offsets[batch])
        copy_list(out_masked, at, addresses.masked_ids[batch], lists, row, count)
    masks = masked_positions, masked_ids, mask_offsets
    return input_ids, offsets, segment_a_len, sop_label, *masks, document_keys, sources, keys_b
