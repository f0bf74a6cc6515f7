"""Masked examples as the padded tensors that the model reads, in few shapes.

In: examples.ragged.Examples, ragged and uint16 or uint32. Out: Batch, rectangular. Every batch of a shape is alike
in all of its tensors, so that torch.compile makes one program a shape: short batches are filled up with empty
rows, and the masked tokens with places that have no label.
Shape letters, here and in all of train/: B rows, T tokens of a row, N masked tokens of the
batch, V vocabulary, E embedding, H hidden, D a head, A heads, F figures.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from albert_data.examples.ragged import Examples
from albert_data.kernels import item, kernel, pointer, put

NO_LABEL = -1
# Ids and segments: half the bytes of int64 to write and to copy, and embeddings take either.
ID_DTYPE = torch.int32
PLACES_MULTIPLE = 64
_LEN_MULTIPLE = 8  # what tensor cores want at least
_WORD_LEN = 2  # tokens of the word that a token stands in, on average


class BatchShape(NamedTuple):
    """Rows, padded length of each, and masked tokens."""

    num_rows: int
    row_len: int
    num_places: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """What one step reads.

    input_ids_BT and segment_ids_BT are int32, labels and indices int64.
    valid_BT: bool, False where a row is padded; segment_ids_BT: 0 for `[CLS] A [SEP]`, 1 for `B [SEP]`.
    masked_indices_N: positions in the batch laid flat, row * T + position; masked_labels_N: the originals, and -1
    where a place is left over.
    sop_labels_B: 0 in order, 1 swapped, -1 no second segment, or no row. A row too many is padding but for its first
    token, which is valid so that attention has something to attend to.
    On the host, so that nobody has to ask the GPU: num_tokens, valid ones of real rows; num_masked and num_pairs,
    labels that are not -1; rows, the real rows' numbers in the split (int64).
    """

    input_ids_BT: Tensor
    segment_ids_BT: Tensor
    valid_BT: Tensor
    masked_indices_N: Tensor
    masked_labels_N: Tensor
    sop_labels_B: Tensor
    num_tokens: int
    num_masked: int
    num_pairs: int
    rows: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def to(self, device: torch.device) -> Batch:
        """Copy to a device; from page-locked memory nobody waits for the copy."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        moved: dict[str, Any] = {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}
        return dataclasses.replace(self, **moved)


def bound_places(num_cells: int, *, mask_prob: float, ngram: int) -> int:
    """A number of masked tokens that a batch of so many cells hardly ever exceeds: a multiple of 64.

    Each token is masked with probability p = mask_prob, together with its span: of n words with p(n) ~ 1/n up to N =
    ngram, so that the span of a masked word has (N + 1) / 2 words on average, and each of these some tokens. The
    number would have a variance of p (1 - p) (N + 1) / 2 * tokens a word * cells if words were masked by chance. But
    a row masks a fixed number of words, nearly, and only their lengths vary: measured, on English books with 30,000
    pieces, the deviation is an eighth of that. The bound is the mean of a batch without padding and one deviation
    of the formula.
    """
    variance = mask_prob * (1 - mask_prob) * (ngram + 1) / 2 * _WORD_LEN * num_cells
    bound = mask_prob * num_cells + math.sqrt(variance)
    return min(_round_up(math.ceil(bound)), _round_up(num_cells))


def _round_up(num_places: int) -> int:
    return -(-num_places // PLACES_MULTIPLE) * PLACES_MULTIPLE


def collate(
    examples: Examples,
    *,
    pad_id: int,
    shape: BatchShape | None = None,
    rows: np.ndarray | None = None,
    pin: bool = False,
) -> Batch:
    """Lay out rows in tensors of this shape; more places, up to the next multiple of 64, if the masks need them.

    shape: left out, it is the least that holds the rows, padded to a multiple of 8 tokens. rows: their numbers in the
    split. pin: in page-locked memory, which only a machine with CUDA has.
    """
    num_masked = int(examples.mask_offsets[-1])
    if shape is None:
        longest = int(np.diff(examples.offsets).max(initial=1))
        shape = BatchShape(len(examples), -(-longest // _LEN_MULTIPLE) * _LEN_MULTIPLE, num_masked)
    num_rows, row_len, num_places = shape
    if num_masked > num_places:
        num_places = _round_up(num_masked)
    input_ids_BT, segment_ids_BT = (torch.empty((num_rows, row_len), dtype=ID_DTYPE, pin_memory=pin) for _ in range(2))
    valid_BT = torch.empty((num_rows, row_len), dtype=torch.bool, pin_memory=pin)
    indices_N, labels_N = (torch.empty(num_places, dtype=torch.int64, pin_memory=pin) for _ in range(2))
    sop_labels_B = torch.full((num_rows,), NO_LABEL, dtype=torch.int64, pin_memory=pin)
    sop_labels_B.numpy()[: len(examples)] = examples.sop_label
    lay_out_rows(
        examples.input_ids,
        examples.offsets,
        examples.segment_a_len,
        pad_id,
        row_len,
        input_ids_BT.numpy(),
        segment_ids_BT.numpy(),
        valid_BT.numpy().view(np.uint8),
    )
    lay_out_masks(
        examples.mask_offsets,
        examples.masked_positions,
        examples.masked_ids,
        row_len,
        indices_N.numpy(),
        labels_N.numpy(),
    )
    return Batch(
        input_ids_BT=input_ids_BT,
        segment_ids_BT=segment_ids_BT,
        valid_BT=valid_BT,
        masked_indices_N=indices_N,
        masked_labels_N=labels_N,
        sop_labels_B=sop_labels_B,
        num_tokens=int(examples.offsets[-1]),
        num_masked=num_masked,
        num_pairs=int(np.count_nonzero(examples.sop_label != NO_LABEL)),
        rows=np.zeros(0, np.int64) if rows is None else rows,
    )


@kernel
def lay_out_rows(
    ids: np.ndarray,
    offsets: np.ndarray,
    segment_a_len: np.ndarray,
    pad_id: int,
    row_len: int,
    input_ids_BT: np.ndarray,
    segment_ids_BT: np.ndarray,
    valid_BT: np.ndarray,
) -> None:
    """Fill the arrays: valid_BT uint8, the others of any whole numbers. Rows beyond the examples are empty."""
    source, out_ids = pointer(ids), pointer(input_ids_BT)
    out_segments, out_valid = pointer(segment_ids_BT), pointer(valid_BT)
    for row in range(len(input_ids_BT)):
        begin, length, second = 0, 0, 0
        if row < len(segment_a_len):
            begin, length = offsets[row], offsets[row + 1] - offsets[row]
            second = min(length, segment_a_len[row] + 2)
        out = row * row_len
        for at in range(length):
            put(out_ids, out + at, item(source, begin + at))
        for at in range(length, row_len):
            put(out_ids, out + at, pad_id)
        for at in range(row_len):
            put(out_segments, out + at, (at >= second) & (at < length))
        for at in range(row_len):
            put(out_valid, out + at, at < max(length, 1))


@kernel
def lay_out_masks(
    mask_offsets: np.ndarray,
    positions: np.ndarray,
    originals: np.ndarray,
    row_len: int,
    indices_N: np.ndarray,
    labels_N: np.ndarray,
) -> None:
    """Fill the arrays with the masks of all rows, and what is left over of them with index 0 and no label."""
    for row in range(len(mask_offsets) - 1):
        for i in range(mask_offsets[row], mask_offsets[row + 1]):
            indices_N[i] = row * row_len + positions[i]
            labels_N[i] = originals[i]
    for i in range(mask_offsets[-1], len(indices_N)):
        indices_N[i], labels_N[i] = 0, -1
