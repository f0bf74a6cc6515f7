"""Operations on rows in ragged arrays: slice, join, restore the ids from before masking."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow

from albert_data.data import DocumentColumns, Examples, Pairs
from albert_data.shards.schema import from_record_batch, shard_schema


def no_rows(*, has_source: bool = False, has_key_b: bool = False) -> Examples:
    """Examples without rows. The ids are uint16, whatever the vocabulary: there are no ids."""
    schema = shard_schema(np.uint16, has_source=has_source, has_key_b=has_key_b)
    return from_record_batch(pyarrow.RecordBatch.from_pylist([], schema))


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
    ids[locate_masks(rows)] = rows.masked_ids
    return ids


def unmask(rows: Examples) -> Pairs:
    """The pairs that the rows were before masking. Their indices are 0: who masks them anew gives each a key."""
    return Pairs(
        ids=restore_ids(rows),
        offsets=rows.offsets,
        segment_a_len=rows.segment_a_len,
        sop_label=rows.sop_label,
        indices=np.zeros(len(rows), np.uint32),
        columns=DocumentColumns(rows.document_keys),
    )


def locate_masks(rows: Examples) -> np.ndarray:
    """The index in `rows.input_ids` of each masked token: int64."""
    indices: np.ndarray = np.repeat(rows.offsets[:-1], np.diff(rows.mask_offsets)) + rows.masked_positions
    return indices


def mark_segment_b(rows: Examples) -> np.ndarray:
    """Whether each token belongs to `B [SEP]`: bool, one for each of `rows.input_ids`."""
    lengths = np.diff(rows.offsets)
    positions = np.arange(len(rows.input_ids)) - np.repeat(rows.offsets[:-1], lengths)
    # [CLS] A [SEP] is two tokens longer than A, and a row without B ends there.
    in_b: np.ndarray = positions >= np.repeat(rows.segment_a_len + 2, lengths)
    return in_b


def join_rows(parts: Sequence[Examples]) -> Examples:
    """The rows of one or more parts with the same columns, one part after another."""
    joined = {}
    for name, first in vars(parts[0]).items():
        columns = [getattr(part, name) for part in parts]
        if first is None:
            assert columns == [None] * len(parts), "all parts have the column, or none"
        elif name in ("offsets", "mask_offsets"):
            lengths = np.concatenate([np.diff(offsets) for offsets in columns])
            joined[name] = np.append(0, np.cumsum(lengths, dtype=np.int64))
        else:
            joined[name] = np.concatenate(columns)
    return Examples(**joined)
