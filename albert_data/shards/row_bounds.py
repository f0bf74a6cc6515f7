"""Whether rows keep to their own bounds and to the vocabulary, so that nobody who follows them leaves an array.

In: rows out of a shard, in any state. Out: the first row that does not, and what is wrong with it. That the rows are
those of the build is for `verify` to tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from albert_data.examples.ragged import Examples
from albert_data.kernels import kernel
from albert_data.shards.rows import slice_rows

LEAST_LEN = 2  # [CLS] and [SEP]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """vocab_size: ids are below it; max_seq_len: the most tokens of a row; num_sources: sources are below it."""

    vocab_size: int
    max_seq_len: int
    num_sources: int = 0

    def find_unsound(self, rows: Examples) -> int | None:
        """The number of the first row that leaves its bounds."""
        unframed = find_unframed_row(
            rows.offsets,
            rows.segment_a_len,
            rows.sop_label,
            rows.masked_positions,
            rows.mask_offsets,
            self.max_seq_len,
        )
        found = [int(unframed)] if unframed >= 0 else []
        for ids, offsets in ((rows.input_ids, rows.offsets), (rows.masked_ids, rows.mask_offsets)):
            if ids.max(initial=0) >= self.vocab_size:  # which one is looked for only then
                first = int(np.argmax(ids >= self.vocab_size))
                found.append(int(np.searchsorted(offsets, first, side="right")) - 1)
        if rows.sources is not None and (is_beyond := rows.sources >= self.num_sources).any():
            found.append(int(np.argmax(is_beyond)))
        return min(found, default=None)

    def explain(self, rows: Examples, row: int) -> str:
        """What is wrong with an unsound row."""
        one = slice_rows(rows, row, row + 1)
        num_tokens, a_len, label = len(one.input_ids), int(one.segment_a_len[0]), int(one.sop_label[0])
        if not LEAST_LEN <= num_tokens <= self.max_seq_len:
            return f"it has {num_tokens:,} tokens; allowed are {LEAST_LEN} to {self.max_seq_len:,}"
        if not 0 <= a_len <= num_tokens - LEAST_LEN:
            return f"segment_a_len is {a_len:,}; allowed are 0 to {num_tokens - LEAST_LEN:,}"
        if not -1 <= label <= 1:
            return f"sop_label is {label}; allowed are 0, 1 and -1"
        for name, values, end in (
            ("masked_positions", one.masked_positions, num_tokens),
            ("input_ids", one.input_ids, self.vocab_size),
            ("masked_ids", one.masked_ids, self.vocab_size),
        ):
            if (values >= end).any():
                return f"{name} holds {values.max():,}; allowed are 0 to {end - 1:,}"
        if one.sources is not None and one.sources[0] >= self.num_sources:
            return f"source is {one.sources[0]}; the manifest lists {self.num_sources} under `sources`"
        raise AssertionError("the row is sound")


@kernel
def find_unframed_row(
    offsets: np.ndarray,
    segment_a_len: np.ndarray,
    sop_label: np.ndarray,
    positions: np.ndarray,
    mask_offsets: np.ndarray,
    max_seq_len: int,
) -> int:
    """The first row whose length, segments, label or positions are out of range, or -1."""
    for row in range(len(segment_a_len)):
        length = offsets[row + 1] - offsets[row]
        if length < 2 or length > max_seq_len:
            return row
        if segment_a_len[row] < 0 or segment_a_len[row] > length - 2 or sop_label[row] < -1 or sop_label[row] > 1:
            return row
        for i in range(mask_offsets[row], mask_offsets[row + 1]):
            if positions[i] >= length:
                return row
    return -1
