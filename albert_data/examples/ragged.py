"""The ragged arrays of rows: flat values and offsets, never lists of lists.

Row i of a flat array `x` with offsets `o` is `x[o[i]:o[i + 1]]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Unmasked examples, each `[CLS] A [SEP] B [SEP]` (or `[CLS] A [SEP]` where no pair could be made).

    ids: uint16 or uint32, flat; offsets: int64, num_rows + 1.
    segment_a_len: int32, tokens of A alone.
    sop_label: int8; what it means depends on the task (pair_tasks.py); -1 no second segment.
    document_keys: uint64, the key of the document that the row was made from.
    indices: uint32, the row's number in its document and pass.
    source_codes: uint32, see `Lines`; the pipeline turns them into the shards' `sources`.
    """

    ids: np.ndarray
    offsets: np.ndarray
    segment_a_len: np.ndarray
    sop_label: np.ndarray
    document_keys: np.ndarray
    indices: np.ndarray
    source_codes: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.segment_a_len)


class ExampleArrays(NamedTuple):
    """The arrays of `Examples` as kernels take them. sources: empty where the shards have no such column."""

    input_ids: np.ndarray
    offsets: np.ndarray
    segment_a_len: np.ndarray
    sop_label: np.ndarray
    masked_positions: np.ndarray
    masked_ids: np.ndarray
    mask_offsets: np.ndarray
    document_keys: np.ndarray
    sources: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Masked examples, the columns of a shard.

    input_ids: uint16 or uint32, flat, masks applied; offsets: int64, num_rows + 1.
    segment_a_len: int32; sop_label: int8; document_keys: uint64 (see Pairs).
    masked_positions: uint16, flat, rising inside a row, counted from the row's [CLS];
    masked_ids: as input_ids, the originals; mask_offsets: int64, num_rows + 1.
    sources: uint16, indices into the manifest's `sources`; None where the shards have no such column.
    document_keys_b: uint64, the key of the document of segment B, or without a B that of A; None where the shards have
    no such column, since both segments are always of one document.
    """

    input_ids: np.ndarray
    offsets: np.ndarray
    segment_a_len: np.ndarray
    sop_label: np.ndarray
    masked_positions: np.ndarray
    masked_ids: np.ndarray
    mask_offsets: np.ndarray
    document_keys: np.ndarray
    sources: np.ndarray | None = None
    document_keys_b: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.segment_a_len)

    @property
    def arrays(self) -> ExampleArrays:
        """For kernels. An empty array stands for no sources, so that Numba compiles each kernel once for both."""
        values = {name: getattr(self, name) for name in ExampleArrays._fields}
        return ExampleArrays(**(values if self.sources is not None else {**values, "sources": np.zeros(0, np.uint16)}))
