"""Choose, reorder and join rows of ragged arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from albert_data.examples.ragged import Examples
from albert_data.kernels import copy_items, kernel, pointer


def no_rows() -> Examples:
    """Not one row."""
    ids, offsets = np.zeros(0, np.uint16), np.zeros(1, np.int64)
    return Examples(
        input_ids=ids,
        offsets=offsets,
        segment_a_len=np.zeros(0, np.int32),
        sop_label=np.zeros(0, np.int8),
        masked_positions=np.zeros(0, np.uint16),
        masked_ids=ids,
        mask_offsets=offsets,
        document_keys=np.zeros(0, np.uint64),
    )


def take_rows(examples: Examples, rows: np.ndarray) -> Examples:
    """The rows of these numbers (int64), in this order."""
    input_ids, offsets = gather(examples.input_ids, examples.offsets, rows)
    masked_ids, mask_offsets = gather(examples.masked_ids, examples.mask_offsets, rows)
    masked_positions, _ = gather(examples.masked_positions, examples.mask_offsets, rows)
    return Examples(
        input_ids=input_ids,
        offsets=offsets,
        segment_a_len=examples.segment_a_len[rows],
        sop_label=examples.sop_label[rows],
        masked_positions=masked_positions,
        masked_ids=masked_ids,
        mask_offsets=mask_offsets,
        document_keys=examples.document_keys[rows],
    )


def slice_rows(examples: Examples, begin: int, end: int) -> Examples:
    """Rows begin .. end, without a copy of their values."""
    offsets, mask_offsets = examples.offsets[begin : end + 1], examples.mask_offsets[begin : end + 1]
    tokens, masks = slice(offsets[0], offsets[-1]), slice(mask_offsets[0], mask_offsets[-1])
    return Examples(
        input_ids=examples.input_ids[tokens],
        offsets=offsets - offsets[0],
        segment_a_len=examples.segment_a_len[begin:end],
        sop_label=examples.sop_label[begin:end],
        masked_positions=examples.masked_positions[masks],
        masked_ids=examples.masked_ids[masks],
        mask_offsets=mask_offsets - mask_offsets[0],
        document_keys=examples.document_keys[begin:end],
    )


def join_rows(parts: Sequence[Examples]) -> Examples:
    """All rows of one or more parts, one part after another."""
    return Examples(
        input_ids=np.concatenate([part.input_ids for part in parts]),
        offsets=join_offsets([part.offsets for part in parts]),
        segment_a_len=np.concatenate([part.segment_a_len for part in parts]),
        sop_label=np.concatenate([part.sop_label for part in parts]),
        masked_positions=np.concatenate([part.masked_positions for part in parts]),
        masked_ids=np.concatenate([part.masked_ids for part in parts]),
        mask_offsets=join_offsets([part.mask_offsets for part in parts]),
        document_keys=np.concatenate([part.document_keys for part in parts]),
    )


def join_offsets(parts: list[np.ndarray]) -> np.ndarray:
    """Offsets of ragged arrays, each from any number on, into those of all of them, from 0 on."""
    lengths = np.concatenate([np.diff(part) for part in parts])
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


@kernel
def gather(values: np.ndarray, offsets: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Copy rows of a ragged array: flat values and offsets (int64). Raises ValueError for offsets that lead outside."""
    out_offsets = np.empty(len(rows) + 1, np.int64)
    out_offsets[0] = 0
    for i in range(len(rows)):
        begin, end = offsets[rows[i]], offsets[rows[i] + 1]
        if begin < 0 or end < begin or end > len(values):
            raise ValueError("a row lies outside its values")
        out_offsets[i + 1] = out_offsets[i] + end - begin
    out = np.empty(out_offsets[-1], values.dtype)
    source, target = pointer(values), pointer(out)
    for i in range(len(rows)):
        copy_items(target, out_offsets[i], source, offsets[rows[i]], out_offsets[i + 1] - out_offsets[i])
    return out, out_offsets
