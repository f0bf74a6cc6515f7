"""Masked examples as the padded tensors that the model reads.

In: examples.ragged.Examples, ragged and uint16. Out: Batch, rectangular and int64.
Shape letters, here and in all of train/: B rows, T tokens of the longest row, N masked tokens of the
batch, V vocabulary, E embedding, H hidden, D a head, A heads, F figures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from albert_data.examples.ragged import Examples

LENGTH_MULTIPLE = 8  # what tensor cores and the masked attention kernels of a GPU want


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """What one step reads.

    valid_BT: bool, False where a row is padded; segment_ids_BT: 0 for `[CLS] A [SEP]`, 1 for `B [SEP]`.
    masked_indices_N: positions in the batch laid flat, row * T + position; masked_labels_N: the originals.
    sop_labels_B: 0 in order, 1 swapped, -1 no second segment.
    num_tokens: valid tokens, known on the host so that nobody has to ask the GPU.
    """

    input_ids_BT: Tensor
    segment_ids_BT: Tensor
    valid_BT: Tensor
    masked_indices_N: Tensor
    masked_labels_N: Tensor
    sop_labels_B: Tensor
    num_tokens: int

    def to(self, device: torch.device) -> Batch:
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> Batch:
        """Move to page-locked memory, from where a copy to the GPU runs beside the computation."""
        return self._map(lambda tensor: tensor.pin_memory())

    def _map(self, move: Callable[[Tensor], Tensor]) -> Batch:
        return Batch(
            input_ids_BT=move(self.input_ids_BT),
            segment_ids_BT=move(self.segment_ids_BT),
            valid_BT=move(self.valid_BT),
            masked_indices_N=move(self.masked_indices_N),
            masked_labels_N=move(self.masked_labels_N),
            sop_labels_B=move(self.sop_labels_B),
            num_tokens=self.num_tokens,
        )


def padded_len(num_tokens: int) -> int:
    """The next multiple of 8."""
    return -(-num_tokens // LENGTH_MULTIPLE) * LENGTH_MULTIPLE


def collate(examples: Examples, *, pad_id: int) -> Batch:
    """Pad the rows to the length of the longest, rounded up to a multiple of 8."""
    lengths_B = np.diff(examples.offsets)
    num_rows, row_len = len(lengths_B), padded_len(int(lengths_B.max(initial=1)))
    place_T = np.arange(row_len)
    valid_BT = place_T < lengths_B[:, None]
    ids_BT = np.full((num_rows, row_len), pad_id, np.int64)
    ids_BT[valid_BT] = examples.input_ids
    in_b_BT = (place_T >= examples.segment_a_len[:, None] + 2) & valid_BT
    row_of_N = np.repeat(np.arange(num_rows), np.diff(examples.mask_offsets))
    return Batch(
        input_ids_BT=torch.from_numpy(ids_BT),
        segment_ids_BT=torch.from_numpy(in_b_BT.astype(np.int64)),
        valid_BT=torch.from_numpy(valid_BT),
        masked_indices_N=torch.from_numpy(row_of_N * row_len + examples.masked_positions),
        masked_labels_N=torch.from_numpy(examples.masked_ids.astype(np.int64)),
        sop_labels_B=torch.from_numpy(examples.sop_label.astype(np.int64)),
        num_tokens=int(lengths_B.sum()),
    )
