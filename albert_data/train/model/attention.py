"""Attention within rows that are padded, or packed one after another.

In: queries, keys and values, and where the rows are. Out: the mixed values. Packed rows are computed by PyTorch's
`varlen_attn`: no mask, and no work for padding. It needs PyTorch 2.10, a GPU of compute capability 8.0, bfloat16 or
float16, and no dropout. Elsewhere a mask gives the same values, more slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from albert_data.train.config import AlbertConfig
from albert_data.train.model.precision import DTYPES, Precision
from albert_data.train.reading import explain

varlen_attn: Callable[..., Any] | None = None
with suppress(ImportError):  # before PyTorch 2.10
    from torch.nn.attention.varlen import varlen_attn
LONGEST_BY_PRODUCTS = 256  # tokens


class PackedRows(NamedTuple):
    """Where rows are in the flattened batch.

    Every cell is in a row: the kernel leaves other cells as they are in memory, and NaN would reach the gradients. Rows
    of no cells are allowed: the kernel skips them.

    offsets: int32 [rows + 1], where each begins, and the end of the last.
    longest: tokens of the longest.
    window: how many tokens before and after a token it attends to; 0: to all of its row.
    """

    offsets: Tensor
    longest: int
    window: int = 0


def is_short_on_cpu(q_BATD: Tensor) -> bool:
    """Whether PyTorch's attention for CPUs is slower here than three plain operations.

    Measured on rows of 128 in bfloat16: 3 times as slow, most of it in the backward pass; from 512 on it is faster.
    """
    return q_BATD.device.type == "cpu" and q_BATD.dtype == torch.bfloat16 and q_BATD.shape[2] <= LONGEST_BY_PRODUCTS


def attend_by_products(q_BATD: Tensor, k_BATD: Tensor, v_BATD: Tensor, mask_B1ST: Tensor, dropout: float) -> Tensor:
    """`F.scaled_dot_product_attention` as two products and a softmax in float32; keeps scores of all pairs.

    mask_B1ST: which keys count. S is T, or 1 if they are the same for all queries.
    """
    scores_BATT = (q_BATD * q_BATD.shape[-1] ** -0.5) @ k_BATD.transpose(-1, -2)
    probs_BATT = scores_BATT.float().masked_fill(~mask_B1ST, -torch.inf).softmax(-1).to(v_BATD.dtype)
    return F.dropout(probs_BATT, dropout) @ v_BATD


def attend_packed(q_BATD: Tensor, k_BATD: Tensor, v_BATD: Tensor, rows: PackedRows, dropout: float) -> Tensor:
    """Compute `scaled_dot_product_attention` within packed rows."""
    if dropout or varlen_attn is None or not can_use_varlen(q_BATD):
        return _attend_by_mask(q_BATD, k_BATD, v_BATD, rows, dropout)
    q_NAD, k_NAD, v_NAD = [x_BATD.transpose(1, 2).flatten(0, 1) for x_BATD in (q_BATD, k_BATD, v_BATD)]
    near = {"window_size": (rows.window, rows.window)} if rows.window else {}  # PyTorch 2.10 has none
    mixed_NAD: Tensor = varlen_attn(q_NAD, k_NAD, v_NAD, rows.offsets, rows.offsets, rows.longest, rows.longest, **near)
    return mixed_NAD.view(q_BATD.transpose(1, 2).shape).transpose(1, 2)


def can_use_varlen(q_BATD: Tensor) -> bool:
    """Whether the kernel takes tensors of this kind."""
    return q_BATD.is_cuda and q_BATD.dtype in (torch.bfloat16, torch.float16)


def _attend_by_mask(q_BATD: Tensor, k_BATD: Tensor, v_BATD: Tensor, rows: PackedRows, dropout: float) -> Tensor:
    num_packs, _, pack_len, _ = q_BATD.shape
    cells_N = torch.arange(num_packs * pack_len, device=rows.offsets.device, dtype=rows.offsets.dtype)
    row_BT = torch.searchsorted(rows.offsets, cells_N, right=True).view(num_packs, pack_len)
    mask_B1TT = mask_groups(row_BT, rows.window)
    return F.scaled_dot_product_attention(q_BATD, k_BATD, v_BATD, mask_B1TT, dropout_p=dropout)


def mask_groups(group_BT: Tensor, window: int = 0) -> Tensor:
    """Whether two cells attend to each other: those of one group, up to `window` cells apart. bool [B, 1, T, T]."""
    mask_BTT = group_BT[:, :, None] == group_BT[:, None, :]
    if window:
        cells_T = torch.arange(group_BT.shape[1], device=group_BT.device)
        mask_BTT &= (cells_T[:, None] - cells_T).abs() <= window
    return mask_BTT[:, None]


def explain_padding(precision: Precision, config: AlbertConfig, window: int = 0) -> str | None:
    """Return None if rows can be packed, which is tried here on the device, or else say why they are padded.

    window: the first one of the run.
    """
    if precision.device.type != "cuda":
        return "packed rows are for CUDA GPUs"
    if varlen_attn is None:
        return f"PyTorch {torch.__version__} has no varlen_attn; 2.10 has it"
    if config.dropout or precision.format == "fp32":
        return f"varlen_attn has no {'dropout' if config.dropout else 'float32'}"
    try:
        is_right = try_varlen(precision.device, DTYPES[precision.format], config, window)
    except Exception as error:  # of any type; an older GPU, heads of a size that it does not take
        return f"varlen_attn fails here: {explain(error)}"
    return None if is_right else "varlen_attn gives wrong results here"


def try_varlen(device: torch.device, dtype: torch.dtype, config: AlbertConfig, window: int = 0) -> bool:
    """Whether the values and gradients of two packs are those of a mask, up to rounding."""
    rows = PackedRows(torch.tensor([0, 60, 64, 128, 128], dtype=torch.int32, device=device), 64, window)
    shape = (2, 64, 3, config.num_heads, config.hidden_size // config.num_heads)
    numbers = torch.arange(2 * 64 * 3 * config.hidden_size, device=device).sin().view(shape).to(dtype)
    found = []
    for attend, kind in ((attend_packed, dtype), (_attend_by_mask, torch.float32)):
        qkv_BT3AD = numbers.to(kind).detach().requires_grad_()
        q_BATD, k_BATD, v_BATD = qkv_BT3AD.permute(2, 0, 3, 1, 4)
        mixed_BATD = attend(q_BATD, k_BATD, v_BATD, rows, 0.0)
        (gradient,) = torch.autograd.grad(mixed_BATD.float().square().sum(), qkv_BT3AD)
        found.append((mixed_BATD.float(), gradient.float()))
    # Values and gradients are of up to about 1. A wrong result is off by as much, rounding to bfloat16 by a hundredth.
    return all(torch.allclose(one, other, rtol=0.1, atol=0.1) for one, other in zip(*found, strict=True))
