"""Operations on rows in ragged arrays: slice, join, restore the ids from before masking."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from albert_data.data import ExampleArrays, Examples
from albert_data.kernels import kernel


def no_rows(*, has_source: bool = False, has_key_b: bool = False) -> Examples:
    """Examples without rows. The ids are uint16, whatever the vocabulary: there are no ids."""
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
        sources=np.zeros(0, np.uint16) if has_source else None,
        document_keys_b=np.zeros(0, np.uint64) if has_key_b else None,
    )


def slice_rows(examples: Examples, begin: int, end: int) -> Examples:
    """Rows [begin, end), without a copy of their values."""
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
        sources=None if examples.sources is None else examples.sources[begin:end],
        document_keys_b=None if examples.document_keys_b is None else examples.document_keys_b[begin:end],
    )


def restore_ids(rows: Examples) -> np.ndarray:
    """The ids of all rows as they were before masking, in an array of their own."""
    ids: np.ndarray = rows.input_ids.copy()
    put_originals(rows.arrays, ids)
    return ids


@kernel
def put_originals(rows: ExampleArrays, ids: np.ndarray) -> None:
    """Write the original of each masked token into `ids`, which is laid out as rows.input_ids."""
    for row in range(len(rows.segment_a_len)):
        for i in range(rows.mask_offsets[row], rows.mask_offsets[row + 1]):
            # Positions count from the row's [CLS], offsets from the first row's.
            ids[rows.offsets[row] + rows.masked_positions[i]] = rows.masked_ids[i]


def locate_masks(rows: Examples) -> np.ndarray:
    """The index in `rows.input_ids` of each masked token: int64."""
    indices: np.ndarray = np.repeat(rows.offsets[:-1], np.diff(rows.mask_offsets)) + rows.masked_positions
    return indices


def join_rows(parts: Sequence[Examples]) -> Examples:
    """The rows of one or more parts with the same columns, one part after another."""
    return Examples(
        input_ids=np.concatenate([part.input_ids for part in parts]),
        offsets=_join_offsets([part.offsets for part in parts]),
        segment_a_len=np.concatenate([part.segment_a_len for part in parts]),
        sop_label=np.concatenate([part.sop_label for part in parts]),
        masked_positions=np.concatenate([part.masked_positions for part in parts]),
        masked_ids=np.concatenate([part.masked_ids for part in parts]),
        mask_offsets=_join_offsets([part.mask_offsets for part in parts]),
        document_keys=np.concatenate([part.document_keys for part in parts]),
        sources=_join_optional([part.sources for part in parts]),
        document_keys_b=_join_optional([part.document_keys_b for part in parts]),
    )


def _join_offsets(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The offsets of the joined values, from those of the parts."""
    lengths = np.concatenate([np.diff(part) for part in parts])
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def _join_optional(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    there = [part for part in parts if part is not None]
    assert len(there) in (0, len(parts)), "all parts have the column, or none"
    return np.concatenate(there) if there else None
