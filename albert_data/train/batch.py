"""Masked examples as the tensors that the model reads, in few shapes: rows padded, or packed one after another.

In: examples.ragged.Examples, ragged and uint16 or uint32. Out: Batch, rectangular. All batches of a BatchShape have
tensors of the same shapes, so that torch.compile makes one program for each; only the rare batch with more masked
tokens than its shape holds is larger. A cell is a position of such a batch, padding included.
Shape letters, here and in all of train/: B rows, T tokens of a row, N masked tokens of the batch, V vocabulary,
E embedding size, H hidden size, A heads, D size of a head, I inner size of the feed-forward, K labels of the sentence
task, F the six sums of metrics.measure.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from albert_data.data import ExampleArrays, Examples
from albert_data.examples.pair_tasks import NO_LABEL as NO_LABEL
from albert_data.kernels import item, kernel, pointer, put
from albert_data.shards.rows import no_rows
from albert_data.train.order import Pack

# Of ids and segments: half the bytes of int64 to write and to copy, and embeddings accept both.
ID_DTYPE = torch.int32
CAPACITY_MULTIPLE = 64
_LEN_MULTIPLE = 8  # tensor cores need sizes that are multiples of 8
_WORD_LEN = 2  # the mean length in tokens of the word that a random token is in: an assumption


class BatchShape(NamedTuple):
    """The shapes of a batch's tensors. num_rows: rows, or packs; row_len: the length of each, with padding.

    mask_capacity: how many masked tokens fit in.
    """

    num_rows: int
    row_len: int
    mask_capacity: int
    pack: Pack | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The input of one step, or of one micro-batch of it.

    input_ids_BT: int32.
    segment_ids_BT: int32, 0 for `[CLS] A [SEP]`, 1 for `B [SEP]`.
    valid_BT: bool, False at padding. The first token of an empty row is valid: attention over none would be NaN.
    masked_indices_N: int64, positions in the flattened batch, row * T + position.
    masked_labels_N: int64, the original ids, and -1 at unused entries.
    sop_labels_B: int64, the label of the sentence task, by default 0 in order and 1 swapped; -1 for no second segment,
    or an empty row. Of packs, an entry for each row.

    On the host, so that no code waits for the GPU:
    num_tokens: the valid tokens of real rows.
    num_masked, num_pairs: the labels that are not -1.
    rows: int64, the numbers of the real rows in the split.

    Only if the batch is packed. Each line of the tensors [B, T] is then a pack: rows one after another, and then empty
    rows up to the end of the line. More empty rows, of no cell, follow the last pack: so all batches have as many rows.
    positions_BT: int32, the position of each token in its row.
    row_offsets_R: int32 [rows + 1], the cell of the flattened batch at which each row begins, and the end of the last.
    longest: the most tokens of a row.
    attended_len: the length of the row that a cell is in, mean over all cells.
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
    positions_BT: Tensor | None = None
    row_offsets_R: Tensor | None = None
    longest: int | None = None
    attended_len: float | None = None

    def to(self, device: torch.device) -> Batch:
        """Copy to a device. From page-locked memory the copy runs in the background."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        moved: dict[str, Any] = {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}
        return dataclasses.replace(self, **moved)


def choose_mask_capacity(num_cells: int, *, mask_prob: float, span_len: float) -> int:
    """Return a multiple of 64 that the number of masked tokens in a batch of `num_cells` cells hardly ever exceeds.

    span_len: the mean length, in words, of the span that a masked word is in.
    It is the mean for a batch without padding, plus one standard deviation of a pessimistic model: spans are
    independent, so the tokens of such a span multiply the binomial variance. That is about eight true deviations
    (measured on English books, 30,000 pieces), because each row masks a nearly fixed number of words, and only their
    lengths vary.
    """
    variance = mask_prob * (1 - mask_prob) * span_len * _WORD_LEN * num_cells
    bound = mask_prob * num_cells + math.sqrt(variance)
    return min(_round_up(math.ceil(bound)), _round_up(num_cells))


def _round_up(capacity: int) -> int:
    return -(-capacity // CAPACITY_MULTIPLE) * CAPACITY_MULTIPLE


def collate(
    examples: Examples,
    *,
    pad_id: int,
    shape: BatchShape | None = None,
    rows: np.ndarray | None = None,
    offsets: np.ndarray | None = None,
    pin: bool = False,
) -> Batch:
    """Lay out rows in tensors of this shape. If they have more masks than fit, the capacity grows to a multiple of 64.

    shape: by default the smallest that holds the rows, padded to a multiple of 8 tokens.
    rows: their numbers in the split.
    offsets: [packs + 1]; rows offsets[i] to offsets[i + 1] are in pack i.
    pin: use page-locked memory, which only a machine with CUDA has.
    """
    num_masked, lengths = int(examples.mask_offsets[-1]), np.diff(examples.offsets)
    if shape is None:
        longest = int(lengths.max(initial=1))
        shape = BatchShape(len(examples), -(-longest // _LEN_MULTIPLE) * _LEN_MULTIPLE, num_masked)
    num_rows, row_len, capacity, pack = shape
    if num_masked > capacity:
        capacity = _round_up(num_masked)
    packed: dict[str, Any] = {}
    if pack is None:
        cells, is_real = np.arange(num_rows + 1) * row_len, np.arange(num_rows) < len(examples)
    else:
        assert offsets is not None
        cells, is_real = place_rows(lengths, offsets, shape, pack)
        positions_BT = (np.arange(cells[-1]) - np.repeat(cells[:-1], np.diff(cells))).reshape(num_rows, row_len)
        for name, values in (("positions_BT", positions_BT), ("row_offsets_R", cells)):
            tensor = torch.from_numpy(values.astype(np.int32))
            packed[name] = tensor.pin_memory() if pin else tensor
        packed |= {"longest": pack.longest, "attended_len": float(np.square(np.diff(cells)).sum() / cells[-1])}
    input_ids_BT, segment_ids_BT = (torch.empty((num_rows, row_len), dtype=ID_DTYPE, pin_memory=pin) for _ in range(2))
    valid_BT = torch.empty((num_rows, row_len), dtype=torch.bool, pin_memory=pin)
    indices_N, labels_N = (torch.empty(capacity, dtype=torch.int64, pin_memory=pin) for _ in range(2))
    sop_labels_B = torch.full((len(is_real),), NO_LABEL, dtype=torch.int64, pin_memory=pin)
    sop_labels_B.numpy()[is_real] = examples.sop_label
    laid = LaidRows(input_ids_BT.numpy(), segment_ids_BT.numpy(), valid_BT.numpy().view(np.uint8), cells, is_real)
    lay_out_rows(examples.arrays, laid, pad_id)
    lay_out_masks(examples.arrays, cells[:-1][is_real], indices_N.numpy(), labels_N.numpy())
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
        **packed,
    )


def empty_batch(shape: BatchShape) -> Batch:
    """Make a batch without rows, to compute a shape before its first batch comes."""
    return collate(no_rows(has_source=False), pad_id=0, shape=shape, offsets=np.zeros(shape.num_rows + 1, int))


def place_rows(
    lengths: np.ndarray, offsets: np.ndarray, shape: BatchShape, pack: Pack
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cell at which each row begins, with the end of the last (int64), and which rows are not empty ones."""
    all_lengths: list[int] = []
    are_real: list[bool] = []
    for begin, end in zip(offsets, offsets[1:], strict=False):
        own = lengths[begin:end].tolist()
        left = shape.row_len - sum(own)
        rest = [min(pack.longest, left - at) for at in range(0, left, pack.longest)]
        all_lengths += [*own, *rest]
        are_real += [*len(own) * [True], *len(rest) * [False]]
    num_unused = shape.num_rows * (pack.max_rows + -(-shape.row_len // pack.longest)) - len(all_lengths)
    cells = np.cumsum([0, *all_lengths, *num_unused * [0]])
    return cells, np.array([*are_real, *num_unused * [False]])


class LaidRows(NamedTuple):
    """Arrays of a Batch that `lay_out_rows` fills, as they are there; valid_BT: uint8.

    cells: int64 [rows + 1], where each row begins, and the end of the last; is_real: bool [rows], False for empty rows.
    """

    input_ids_BT: np.ndarray
    segment_ids_BT: np.ndarray
    valid_BT: np.ndarray
    cells: np.ndarray
    is_real: np.ndarray


@kernel
def lay_out_rows(rows: ExampleArrays, laid: LaidRows, pad_id: int) -> None:
    """Copy the rows, in their order, to the places of real rows."""
    ids, out_ids = pointer(rows.input_ids), pointer(laid.input_ids_BT)
    out_segments, out_valid = pointer(laid.segment_ids_BT), pointer(laid.valid_BT)
    source = 0
    for row in range(len(laid.is_real)):
        begin, length, second = 0, 0, 0  # an empty row; second: the first position of segment 1
        if laid.is_real[row]:
            begin, length = rows.offsets[source], rows.offsets[source + 1] - rows.offsets[source]
            # [CLS] A [SEP] is two tokens longer than A. A row without B ends there, so no token is of segment 1.
            second = min(length, rows.segment_a_len[source] + 2)
            source += 1
        out, row_len = laid.cells[row], laid.cells[row + 1] - laid.cells[row]
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
def lay_out_masks(rows: ExampleArrays, begins: np.ndarray, indices_N: np.ndarray, labels_N: np.ndarray) -> None:
    """Fill the arrays with the masks of all rows; unused entries at the end get index 0 and no label.

    begins: the cell at which each row begins.
    """
    for row in range(len(rows.mask_offsets) - 1):
        for i in range(rows.mask_offsets[row], rows.mask_offsets[row + 1]):
            # In rows padded to 128, position 5 of row 2 has index 2 * 128 + 5 = 261.
            indices_N[i] = begins[row] + rows.masked_positions[i]
            labels_N[i] = rows.masked_ids[i]
    # The MLM head computes unused entries too; without a label they add nothing to the loss.
    for i in range(rows.mask_offsets[-1], len(indices_N)):
        indices_N[i], labels_N[i] = 0, NO_LABEL
