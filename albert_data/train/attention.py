"""Attention within rows: padded ones by a mask, packed ones by a kernel, which is found by trying.

PyTorch's `varlen_attn` is FlashAttention 2 (Dao 2023). It can use another kernel in its place, as FlashAttention 4 of
the package flash-attn-4. Each is tried on the device of the run: one that fails, or gives wrong values or gradients, is
left out, and of the others the fastest is taken. cuDNN's is no candidate: its gradient has NaN at some lengths.
Shape letters: see batch.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.attention as kernels
import torch.nn.functional as F
from torch import Tensor

from albert_data.train.config import AlbertConfig
from albert_data.train.device import DTYPES, Precision
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


# ---- which kernel ----

FLASH_2 = "FA2"
# Kernels compute tiles of 64 or 128 tokens: one row shorter than any, one that ends before, at and behind an end.
_LENGTHS = (1, 63, 64, 192, 320)
_TIMED_TOKENS, _TIMED_SECONDS = 32_768, 0.5


@dataclass(frozen=True, kw_only=True)
class AttentionChoice:
    """kernel: for packed rows. notes: lines on the choice. obstacle: why rows can't be packed; None if they can."""

    kernel: str = FLASH_2
    notes: tuple[str, ...] = ()
    obstacle: str | None = None


def list_kernels() -> list[str]:
    """The kernels that PyTorch can use; before version 2.11 only its own."""
    return [FLASH_2, *getattr(kernels, "list_flash_attention_impls", list)()]


def use_kernel(name: str) -> None:
    """Let the whole process compute `varlen_attn` by a kernel. Raises ImportError if its package is not installed."""
    if name != FLASH_2:
        kernels.activate_flash_attention_impl(name)
    elif len(list_kernels()) > 1 and kernels.current_flash_attention_impl() is not None:
        kernels.restore_flash_attention_impl()


def choose_attention(
    precision: Precision, config: AlbertConfig, windows: Sequence[int], longest: int, names: Sequence[str] | None = None
) -> AttentionChoice:
    """Choose the kernel, and activate it; or say why rows are padded.

    windows: those of the run, 0 for whole rows. longest: tokens of a row. names: the candidates, by default all.
    """
    if precision.device.type != "cuda":
        return AttentionChoice(obstacle="packed rows are for CUDA GPUs")
    if varlen_attn is None:
        return AttentionChoice(obstacle=f"PyTorch {torch.__version__} has no varlen_attn; 2.10 has it")
    if config.dropout or precision.format == "fp32":
        return AttentionChoice(obstacle=f"varlen_attn has no {'dropout' if config.dropout else 'float32'}")
    seconds, faults = dict[str, float](), dict[str, str]()
    names = list_kernels() if names is None else names
    for name in names:
        try:
            use_kernel(name)
            tried = _make_trial(precision, config, [*_LENGTHS, longest])
            wrong = next((window for window in windows if not is_right(*tried, window)), None)
            rows = [longest] * max(1, _TIMED_TOKENS // longest)
            if wrong is None:  # one that is alone need not be timed
                seconds[name] = _time(*_make_trial(precision, config, rows)) if len(names) > 1 else 0.0
            else:
                faults[name] = "gives wrong results here" + (f" with a window of {wrong}" if wrong else "")
        except ImportError:
            if len(names) == 1:  # otherwise it is not missed
                faults[name] = "is not installed"
        except Exception as error:  # of any type; an older GPU, heads of a size that it does not take
            faults[name] = f"fails here: {explain(error)}"
    notes = tuple(f"{name} {fault}" for name, fault in faults.items() if seconds)
    if not seconds:
        use_kernel(FLASH_2)
        named = [f"{'varlen_attn' if name == FLASH_2 else name} {fault}" for name, fault in faults.items()]
        return AttentionChoice(obstacle="; ".join(named))
    best = min(seconds, key=seconds.__getitem__)
    use_kernel(best)
    others = [f"{time / seconds[best]:.2f} times as fast as {name}" for name, time in seconds.items() if name != best]
    return AttentionChoice(kernel=best, notes=(*([f"{best}, {', '.join(others)}"] if others else []), *notes))


def _make_trial(precision: Precision, config: AlbertConfig, lengths: Sequence[int]) -> tuple[Tensor, PackedRows]:
    """Queries, keys and values [1, T, 3, A, D] of a pack with rows of these lengths, and an empty one behind them."""
    offsets = torch.tensor([0, *lengths, 0], device=precision.device).cumsum(0).to(torch.int32)
    shape = (1, sum(lengths), 3, config.num_heads, config.hidden_size // config.num_heads)
    numbers = torch.arange(shape[1] * 3 * config.hidden_size, device=precision.device).sin().view(shape)
    return numbers.to(DTYPES[precision.format]), PackedRows(offsets, max(lengths))


def is_right(qkv_BT3AD: Tensor, rows: PackedRows, window: int = 0) -> bool:
    """Whether the values and gradients of `attend_packed` are those of a mask, up to rounding."""
    found = []
    for attend, dtype in ((attend_packed, qkv_BT3AD.dtype), (_attend_by_mask, torch.float32)):
        given = qkv_BT3AD.to(dtype).detach().requires_grad_()
        q_BATD, k_BATD, v_BATD = given.permute(2, 0, 3, 1, 4)
        mixed_BATD = attend(q_BATD, k_BATD, v_BATD, rows._replace(window=window), 0.0)
        (gradient,) = torch.autograd.grad(mixed_BATD.float().square().sum(), given)
        found.append((mixed_BATD.float(), gradient.float()))
    # Values and gradients are of up to about 1. A wrong result is off by as much, rounding to bfloat16 by a hundredth.
    return all(torch.allclose(one, other, rtol=0.1, atol=0.1) for one, other in zip(*found, strict=True))


def _time(qkv_BT3AD: Tensor, rows: PackedRows) -> float:
    """The seconds of a forward and a backward pass, in half a second."""
    given, passes, began = qkv_BT3AD.detach().requires_grad_(), 0, time.perf_counter()
    while (seconds := time.perf_counter() - began) < _TIMED_SECONDS or not passes:
        q_BATD, k_BATD, v_BATD = given.permute(2, 0, 3, 1, 4)
        mixed_BATD = attend_packed(q_BATD, k_BATD, v_BATD, rows, 0.0)
        (gradient,) = torch.autograd.grad(mixed_BATD, given, mixed_BATD)
        float(gradient.flatten()[0])  # waits for the device
        passes += 1
    return seconds / passes
