"""Masked examples as the padded tensors that the model reads, in few shapes.

In: examples.ragged.Examples, ragged and uint16 or uint32. Out: Batch, rectangular. All batches of a BatchShape have
tensors of the same shapes, so torch.compile makes one program for each shape: a batch of fewer rows is filled up with
empty rows, and its masked tokens with entries that have no label. Only the rare batch with more masked tokens than its
shape holds is larger. A cell is a position of such a batch, padding included.
Shape letters, here and in all of train/: B rows, T tokens of a row, N masked tokens of the batch, V vocabulary,
E embedding size, H hidden size, A heads, D size of a head, I inner size of the feed-forward, F the six sums of
metrics.measure.
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
# Of ids and segments: half the bytes of int64 to write and to copy, and embeddings accept both.
ID_DTYPE = torch.int32
CAPACITY_MULTIPLE = 64
_LEN_MULTIPLE = 8  # tensor cores need sizes that are multiples of 8
# The mean length in tokens of the word that a random token is in: an assumption. choose_mask_capacity says how far off
# the result is.
_WORD_LEN = 2


class BatchShape(NamedTuple):
    """Rows, the length that each is padded to, and how many masked tokens fit into the batch."""

    num_rows: int
    row_len: int
    mask_capacity: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The input of one step, or of one micro-batch of it.

    input_ids_BT and segment_ids_BT are int32, labels and indices int64.
    valid_BT: bool, False at padding; segment_ids_BT: 0 for `[CLS] A [SEP]`, 1 for `B [SEP]`.
    masked_indices_N: positions in the flattened batch, row * T + position; masked_labels_N: the original ids, and -1
    at unused entries.
    sop_labels_B: 0 in order, 1 swapped, -1 no second segment, or an empty row. The first token of an empty row is
    valid, all others are padding: attention over no token at all would be NaN.
    On the host, so that no code waits for the GPU: num_tokens, the valid tokens of real rows; num_masked and
    num_pairs, the labels that are not -1; rows, the numbers of the real rows in the split (int64).
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
        """Copy to a device. From page-locked memory the copy runs in the background."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        moved: dict[str, Any] = {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}
        return dataclasses.replace(self, **moved)


def choose_mask_capacity(num_cells: int, *, mask_prob: float, ngram: int) -> int:
    """Return a multiple of 64 that the number of masked tokens in a batch of `num_cells` cells hardly ever exceeds.

    It is the mean for a batch without padding, plus one standard deviation of a pessimistic model. That is about eight
    true deviations (measured on English books, 30,000 pieces), because each row masks a nearly fixed number of words,
    and only their lengths vary.
    The model: spans are drawn independently, and a token is masked with probability p = mask_prob. A span of n words, 1
    to ngram, is drawn with probability ~ 1/n and masks n words. So a masked word is equally likely to be in a span of
    each length, on average of (ngram + 1) / 2 words. Masking whole spans multiplies the binomial variance by the tokens
    of such a span:

        variance = p (1 - p) * cells * (ngram + 1) / 2 * tokens per word
    """
    variance = mask_prob * (1 - mask_prob) * (ngram + 1) / 2 * _WORD_LEN * num_cells
    bound = mask_prob * num_cells + math.sqrt(variance)
    return min(_round_up(math.ceil(bound)), _round_up(num_cells))


def make_blank(shape: BatchShape, device: torch.device) -> Batch:
    """Make a batch of zeros, without padding and as many masked tokens as fit."""
    num_rows, row_len, capacity = shape
    # Tensors of their own: torch.compile makes another program for two inputs that are one tensor.
    input_ids_BT, segment_ids_BT = (torch.zeros(num_rows, row_len, dtype=ID_DTYPE, device=device) for _ in range(2))
    return Batch(
        input_ids_BT=input_ids_BT,
        segment_ids_BT=segment_ids_BT,
        valid_BT=torch.ones(num_rows, row_len, dtype=torch.bool, device=device),
        masked_indices_N=torch.arange(capacity, device=device) % (num_rows * row_len),
        masked_labels_N=torch.zeros(capacity, dtype=torch.int64, device=device),
        sop_labels_B=torch.zeros(num_rows, dtype=torch.int64, device=device),
        num_tokens=num_rows * row_len,
        num_masked=capacity,
        num_pairs=num_rows,
    )


def _round_up(capacity: int) -> int:
    return -(-capacity // CAPACITY_MULTIPLE) * CAPACITY_MULTIPLE


def collate(
    examples: Examples,
    *,
    pad_id: int,
    shape: BatchShape | None = None,
    rows: np.ndarray | None = None,
    pin: bool = False,
) -> Batch:
    """Lay out rows in tensors of this shape. If they have more masks than fit, the capacity grows to a multiple of 64.

    shape: by default the smallest that holds the rows, padded to a multiple of 8 tokens. rows: their numbers in the
    split. pin: use page-locked memory, which only a machine with CUDA has.
    """
    num_masked = int(examples.mask_offsets[-1])
    if shape is None:
        longest = int(np.diff(examples.offsets).max(initial=1))
        shape = BatchShape(len(examples), -(-longest // _LEN_MULTIPLE) * _LEN_MULTIPLE, num_masked)
    num_rows, row_len, capacity = shape
    if num_masked > capacity:
        capacity = _round_up(num_masked)
    input_ids_BT, segment_ids_BT = (torch.empty((num_rows, row_len), dtype=ID_DTYPE, pin_memory=pin) for _ in range(2))
    valid_BT = torch.empty((num_rows, row_len), dtype=torch.bool, pin_memory=pin)
    indices_N, labels_N = (torch.empty(capacity, dtype=torch.int64, pin_memory=pin) for _ in range(2))
    sop_labels_B = torch.full((num_rows,), NO_LABEL, dtype=torch.int64, pin_memory=pin)
    sop_labels_B.numpy()[: len(examples)] = examples.sop_label
    padded = PaddedRows(input_ids_BT.numpy(), segment_ids_BT.numpy(), valid_BT.numpy().view(np.uint8))
    lay_out_rows(RaggedRows(examples.input_ids, examples.offsets, examples.segment_a_len), padded, pad_id)
    masks = RaggedMasks(examples.masked_positions, examples.masked_ids, examples.mask_offsets)
    lay_out_masks(masks, row_len, indices_N.numpy(), labels_N.numpy())
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


class RaggedRows(NamedTuple):
    """Columns of Examples that `lay_out_rows` reads."""

    ids: np.ndarray
    offsets: np.ndarray
    segment_a_len: np.ndarray


class PaddedRows(NamedTuple):
    """Tensors of a Batch that `lay_out_rows` fills: valid_BT as uint8, the others of any integer type."""

    input_ids_BT: np.ndarray
    segment_ids_BT: np.ndarray
    valid_BT: np.ndarray


class RaggedMasks(NamedTuple):
    """Columns of Examples that `lay_out_masks` reads."""

    positions: np.ndarray
    ids: np.ndarray
    offsets: np.ndarray


@kernel
def lay_out_rows(rows: RaggedRows, padded: PaddedRows, pad_id: int) -> None:
    """Copy the rows to the beginning of the padded ones; the rows after them become empty."""
    ids, out_ids = pointer(rows.ids), pointer(padded.input_ids_BT)
    out_segments, out_valid = pointer(padded.segment_ids_BT), pointer(padded.valid_BT)
    num_rows, row_len = padded.input_ids_BT.shape
    for row in range(num_rows):
        begin, length, second = 0, 0, 0  # an empty row; second: the first position of segment 1
        if row < len(rows.segment_a_len):
            begin, length = rows.offsets[row], rows.offsets[row + 1] - rows.offsets[row]
            # [CLS] A [SEP] is two tokens longer than A. A row without B ends there, so no token is of segment 1.
            second = min(length, rows.segment_a_len[row] + 2)
        out = row * row_len
        # A loop for each output: each is a plain copy or comparison, which LLVM turns into vector instructions.
        for i in range(length):
            put(out_ids, out + i, item(ids, begin + i))
        for i in range(length, row_len):
            put(out_ids, out + i, pad_id)
        for i in range(row_len):
            put(out_segments, out + i, (i >= second) & (i < length))
        for i in range(row_len):
            put(out_valid, out + i, i < max(length, 1))  # the first token is valid in empty rows too: see Batch


@kernel
def lay_out_masks(masks: RaggedMasks, row_len: int, indices_N: np.ndarray, labels_N: np.ndarray) -> None:
    """Fill the arrays with the masks of all rows; unused entries at the end get index 0 and no label."""
    for row in range(len(masks.offsets) - 1):
        for i in range(masks.offsets[row], masks.offsets[row + 1]):
            # With row_len 128, position 5 of row 2 has index 2 * 128 + 5 = 261.
            indices_N[i] = row * row_len + masks.positions[i]
            labels_N[i] = masks.ids[i]
    # The MLM head computes unused entries too; without a label they add nothing to the loss.
    for i in range(masks.offsets[-1], len(indices_N)):
        indices_N[i], labels_N[i] = 0, NO_LABEL
