"""Rows as records: each row is one contiguous stretch of memory, so rows that lie together are read together.

In: columns of rows. Out: a buffer of records; and from records columns again, in whatever order is asked for.
A record is a whole number of uint64. Positions below are relative to its start:

    u64 0       shuffle key
    u64 1       document key
    i32 4       low 16 bits: pass; above them: label + 1
    i32 5       index: the row's number in its document and pass
    i32 6, 7    number of ids, number of masks
    i32 8       length of segment A
    i32 9       source code (see `DocumentColumns`); 0 where the build has one language
    u64 5       form (see `DocumentColumns`); 0 where the document is in NFC
    u64 6 ...   ids, masked ids, masked positions, then zero bytes up to the next uint64

Equal rows are equal records, byte for byte: the padding is zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from albert_data.data import ExampleArrays, Examples
from albert_data.kernels import I64, copy_items, helper, kernel, pointer, prefetch
from albert_data.survey.made import Dropped

_FORM, _HEAD_U64 = 5, 6
_PASS, _INDEX, _NUM_IDS, _NUM_MASKS, _A_LEN, _SOURCE_CODE = range(4, 10)  # positions of the i32 above
_PASS_BITS = 16  # the label, from -1 on, is stored above them as label + 1, so that it is never negative
_PASS_MASK = (1 << _PASS_BITS) - 1
_PREFETCH_ROWS = 8  # rows are taken in random order, so the head of a record is prefetched this many rows ahead


class RowKeys(NamedTuple):
    """The sort keys of rows, the most significant first: uint64, uint64, uint16, uint32, uint64."""

    shuffle_keys: np.ndarray
    document_keys: np.ndarray
    passes: np.ndarray
    indices: np.ndarray
    forms: np.ndarray

    @classmethod
    def empty(cls, num_rows: int) -> RowKeys:
        return cls(*(np.empty(num_rows, dtype) for dtype in (np.uint64, np.uint64, np.uint16, np.uint32, np.uint64)))

    def take(self, rows: Any) -> RowKeys:
        """The keys of some rows: an array of row numbers, a mask or a slice."""
        return RowKeys(*(column[rows] for column in self))

    def order(self) -> np.ndarray:
        """The row numbers in the order of these keys: int64."""
        order = np.argsort(self.shuffle_keys, kind="stable")
        keys = self.shuffle_keys[order]
        is_tie = keys[1:] == keys[:-1]
        # Few shuffle keys are equal. Only those rows are sorted by the other keys.
        tied = np.flatnonzero(np.append(is_tie, False) | np.append(False, is_tie))
        rows = order[tied]
        order[tied] = rows[np.lexsort([column[rows] for column in reversed(self)])]
        return order

    def find_ties(self, order: np.ndarray) -> np.ndarray:
        """For each row in this order, whether all its keys equal those of the row before: bool."""
        is_tie = np.zeros(len(order), bool)
        is_tie[1:] = self.shuffle_keys[order[1:]] == self.shuffle_keys[order[:-1]]
        if is_tie.any():
            for column in self:
                is_tie[1:] &= column[order[1:]] == column[order[:-1]]
        return is_tie


class RowBuffer(NamedTuple):
    """Four views of one buffer of records. ids: uint16 or uint32."""

    u64: np.ndarray
    i32: np.ndarray
    u16: np.ndarray
    ids: np.ndarray


class FoundRows(NamedTuple):
    """Rows in a buffer of records: the u64 at which each record begins (int64), and its keys."""

    starts: np.ndarray
    keys: RowKeys

    @classmethod
    def empty(cls, num_rows: int) -> FoundRows:
        return cls(np.empty(num_rows, np.int64), RowKeys.empty(num_rows))

    def take(self, rows: Any) -> FoundRows:
        return FoundRows(self.starts[rows], self.keys.take(rows))


class RowScratch:
    """A buffer of records that is reused: touching new pages costs more time than reading a file into them."""

    def __init__(self, id_dtype: Any) -> None:
        self._id_dtype, self._u64 = id_dtype, np.empty(0, np.uint64)

    def reserve(self, num_u64: int) -> RowBuffer:
        """The buffer, with a capacity of at least `num_u64`. Its contents are lost only where it must grow."""
        if num_u64 > len(self._u64):
            # An eighth more than needed, so that the buffer does not grow for each slightly larger request.
            self._u64 = np.empty(num_u64 * 9 // 8, np.uint64)
        buffer = self._u64
        return RowBuffer(buffer, buffer.view(np.int32), buffer.view(np.uint16), buffer.view(self._id_dtype))


@helper
def _count_u64(num_ids: Any, num_masks: Any, id_bytes: int) -> Any:
    """The length of a record in u64. A mask has an id and a position of 2 bytes."""
    return _HEAD_U64 + (num_ids * id_bytes + num_masks * (id_bytes + 2) + 7) // 8


def measure_rows_u64(examples: Examples) -> np.ndarray:
    """The length of each row's record in u64: int64."""
    num_u64: np.ndarray = _count_u64(
        np.diff(examples.offsets), np.diff(examples.mask_offsets), examples.input_ids.itemsize
    )
    return num_u64


def put_examples(
    records: RowBuffer, starts: np.ndarray, examples: Examples, keys: RowKeys, source_codes: np.ndarray
) -> None:
    """Write rows as records. starts: int64, the u64 at which each begins; source_codes: uint32."""
    put_rows(records, starts, keys, examples.arrays._replace(sources=source_codes))


def take_examples(records: RowBuffer, starts: np.ndarray, sources: np.ndarray | None = None) -> Examples:
    """The rows whose records begin at these u64 (int64), as `find_rows` found them.

    sources: uint32, source codes in the order of the manifest's `sources`; None for shards without that
    column.
    """
    columns = take_rows(records, starts)
    found = None if sources is None else _find_sources(sources, columns.sources)
    return Examples(**{**columns._asdict(), "sources": found})


def _find_sources(sources: np.ndarray, source_codes: np.ndarray) -> np.ndarray:
    order = np.argsort(sources)
    found: np.ndarray = order[np.searchsorted(sources, source_codes, sorter=order)].astype(np.uint16)
    return found


def read_sources(records: RowBuffer, starts: np.ndarray) -> np.ndarray:
    """The numbers of the sources of rows, in a mixture: int64. starts: int64, the u64 at which their records begin."""
    sources: np.ndarray = records.i32[2 * starts + _SOURCE_CODE].astype(np.int64)
    return sources


def order_rows(records: RowBuffer, found: FoundRows) -> tuple[np.ndarray, np.ndarray]:
    """The row numbers in the total order (int64), and for each whether it is a copy of the row before it (bool).

    Where all keys are equal, the bytes of the records decide. Mostly these are equal too: the document occurs twice.
    They differ where the keys of two documents collide.
    """
    starts, order = found.starts, found.keys.order()
    is_tie = found.keys.find_ties(order)
    is_copy = find_copies(records, starts[order], is_tie)
    differs = np.flatnonzero(is_tie & ~is_copy)
    if not len(differs):
        return order, is_copy
    group_begins = np.append(np.flatnonzero(~is_tie), len(order))  # a group: rows of equal keys
    for group in np.unique(np.searchsorted(group_begins, differs, side="right") - 1):
        rows = order[group_begins[group] : group_begins[group + 1]]  # a view: assigning to it changes `order`
        rows[:] = sorted(rows.tolist(), key=lambda row: _read_row(records, int(starts[row])))
    return order, find_copies(records, starts[order], is_tie)


def _read_row(records: RowBuffer, start: int) -> bytes:
    num_ids, num_masks = records.i32[2 * start + _NUM_IDS :][:2].tolist()
    return records.u64[start : start + _count_u64(num_ids, num_masks, records.ids.itemsize)].tobytes()


@kernel
def find_copies(records: RowBuffer, starts: np.ndarray, is_tie: np.ndarray) -> np.ndarray:
    """For each record, which begins at a u64 of `starts`, whether it equals the one before it: bool.

    is_tie: bool. Records are compared only where it is true; all others differ in their keys.
    """
    u64, is_copy = records.u64, np.zeros(len(starts), np.bool_)
    for row in range(1, len(starts)):
        if is_tie[row]:
            start, other, i = starts[row], starts[row - 1], 0
            num_ids, num_masks = records.i32[2 * start + _NUM_IDS], records.i32[2 * start + _NUM_MASKS]
            num_u64 = _count_u64(I64(num_ids), I64(num_masks), records.ids.itemsize)
            # The head holds both lengths and comes first: records of different length differ before the shorter ends.
            while i < num_u64 and u64[start + i] == u64[other + i]:
                i += 1
            is_copy[row] = i == num_u64
    return is_copy


def count_dropped(records: RowBuffer, starts: np.ndarray) -> Dropped:
    """Count the rows whose records begin at these u64 (int64)."""
    i32 = records.i32
    first = starts[i32[2 * starts + _PASS] & _PASS_MASK == 0]  # rows of the first pass
    num_specials = np.where(i32[2 * first + _PASS] >> _PASS_BITS == 0, 2, 3)  # a row of label -1 has one [SEP] less
    documents = first[i32[2 * first + _INDEX] == 0]  # each document has one row of index 0 in a pass
    return Dropped(
        rows=len(starts),
        documents=len(documents),
        tokens=int((i32[2 * first + _NUM_IDS] - num_specials).sum()),
        digest=int(records.u64[documents + 1].sum(dtype=np.uint64)),
    )


@kernel
def put_rows(records: RowBuffer, starts: np.ndarray, keys: RowKeys, columns: ExampleArrays) -> None:
    """Write rows as records, row i from u64 `starts[i]` on. columns: with source codes (uint32) as sources."""
    u64, i32, id_bytes = records.u64, records.i32, records.ids.itemsize
    offsets, mask_offsets = columns.offsets, columns.mask_offsets
    ids, positions = pointer(records.ids), pointer(records.u16)
    from_ids, from_masked = pointer(columns.input_ids), pointer(columns.masked_ids)
    from_positions = pointer(columns.masked_positions)
    for row in range(len(starts)):
        start, num_ids = starts[row], offsets[row + 1] - offsets[row]
        num_masks = mask_offsets[row + 1] - mask_offsets[row]
        # Scratch memory holds older bytes, and records are compared by whole u64, so the padding must be zeroed. It is
        # in the last u64. What is written after it overwrites the rest of that u64.
        u64[start + _count_u64(num_ids, num_masks, id_bytes) - 1] = 0
        u64[start], u64[start + 1] = keys.shuffle_keys[row], keys.document_keys[row]
        u64[start + _FORM] = keys.forms[row]
        # Pass 3 with label -1, 0 or 1 is 0x00003, 0x10003 or 0x20003. An i32 index is twice a u64 index.
        i32[2 * start + _PASS] = I64(keys.passes[row]) | (I64(columns.sop_label[row]) + 1) << _PASS_BITS
        i32[2 * start + _INDEX] = keys.indices[row]
        i32[2 * start + _NUM_IDS], i32[2 * start + _NUM_MASKS] = num_ids, num_masks
        i32[2 * start + _A_LEN], i32[2 * start + _SOURCE_CODE] = columns.segment_a_len[row], columns.sources[row]
        # Where ids of 4 bytes end, positions of 2 bytes can begin: 10 ids and 3 masks of 4 bytes end at byte 100 of a
        # record, which is u16 number 50.
        at = (start + _HEAD_U64) * 8 // id_bytes
        copy_items(ids, at, from_ids, offsets[row], num_ids)
        copy_items(ids, at + num_ids, from_masked, mask_offsets[row], num_masks)
        copy_items(positions, (at + num_ids + num_masks) * id_bytes // 2, from_positions, mask_offsets[row], num_masks)


@kernel
def find_rows(
    records: RowBuffer, begin: int, end: int, low: np.uint64, high: np.uint64, found: FoundRows, count: int
) -> tuple[int, int]:
    """Write the records in u64 [begin, end) with shuffle keys in [low, high] to `found`, after `count` others.

    Returns how many there are now, and where the last of these ends. Raises ValueError where the bytes are no records.
    """
    u64, i32, keys = records.u64, records.i32, found.keys
    id_bytes = records.ids.itemsize
    start = last_end = begin
    while start < end:
        # The bytes come from a file that may be damaged. -1 stands for a head that is cut off; it fails the test below,
        # as does any length that would lead out of the range, so nothing is read beyond it.
        num_ids = num_masks = I64(-1)
        if start + _HEAD_U64 <= end:
            num_ids, num_masks = I64(i32[2 * start + _NUM_IDS]), I64(i32[2 * start + _NUM_MASKS])
        next_start = start + _count_u64(num_ids, num_masks, id_bytes)
        if num_ids < 0 or num_masks < 0 or next_start > end or count >= len(found.starts):
            raise ValueError("a record lies outside its run")
        # The index has an entry for several rows (sorted_runs.py), so some rows at both ends may be outside the keys.
        if low <= u64[start] <= high:
            found.starts[count] = start
            keys.shuffle_keys[count], keys.document_keys[count] = u64[start], u64[start + 1]
            keys.passes[count] = i32[2 * start + _PASS] & _PASS_MASK
            keys.indices[count], keys.forms[count] = i32[2 * start + _INDEX], u64[start + _FORM]
            count, last_end = count + 1, next_start
        start = next_start
    return count, last_end


@kernel
def take_rows(records: RowBuffer, starts: np.ndarray) -> ExampleArrays:
    """Copy rows out of records, in the order of `starts`, with source codes (uint32) as sources."""
    num_rows, i32 = len(starts), records.i32
    offsets, mask_offsets = np.zeros(num_rows + 1, np.int64), np.zeros(num_rows + 1, np.int64)
    segment_a_len, sop_label = np.empty(num_rows, np.int32), np.empty(num_rows, np.int8)
    document_keys, source_codes = np.empty(num_rows, np.uint64), np.empty(num_rows, np.uint32)
    u64 = pointer(records.u64)
    # The heads first: they give the lengths of all rows, and so the sizes of the columns.
    for row in range(num_rows):
        prefetch(u64, starts[min(row + _PREFETCH_ROWS, num_rows - 1)])
        head = 2 * starts[row]
        offsets[row + 1] = offsets[row] + i32[head + _NUM_IDS]
        mask_offsets[row + 1] = mask_offsets[row] + i32[head + _NUM_MASKS]
        segment_a_len[row], source_codes[row] = i32[head + _A_LEN], i32[head + _SOURCE_CODE]
        sop_label[row] = (i32[head + _PASS] >> _PASS_BITS) - 1
        document_keys[row] = records.u64[starts[row] + 1]
    input_ids, masked_ids = np.empty(offsets[-1], records.ids.dtype), np.empty(mask_offsets[-1], records.ids.dtype)
    masked_positions = np.empty(mask_offsets[-1], np.uint16)
    id_bytes = records.ids.itemsize
    ids, positions = pointer(records.ids), pointer(records.u16)
    # These arrays are returned, so they live at least as long as the pointers are used.
    to_ids, to_masked, to_positions = pointer(input_ids), pointer(masked_ids), pointer(masked_positions)
    for row in range(num_rows):
        num_ids, num_masks = offsets[row + 1] - offsets[row], mask_offsets[row + 1] - mask_offsets[row]
        # The three lists follow one another; `at` counts ids first, then u16, as in `put_rows`.
        at = (starts[row] + _HEAD_U64) * 8 // id_bytes
        copy_items(to_ids, offsets[row], ids, at, num_ids)
        copy_items(to_masked, mask_offsets[row], ids, at + num_ids, num_masks)
        at = (at + num_ids + num_masks) * id_bytes // 2
        copy_items(to_positions, mask_offsets[row], positions, at, num_masks)
    return ExampleArrays(
        input_ids,
        offsets,
        segment_a_len,
        sop_label,
        masked_positions,
        masked_ids,
        mask_offsets,
        document_keys,
        source_codes,
    )
