"""Some rows of ragged arrays, and none."""

from __future__ import annotations

import numpy as np

from albert_data.examples.ragged import Examples


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
