"""Counts the FLOPs of a training step and knows the peaks of some GPUs. Imports no torch.

docs/explanation/architecture.md has the formula, and says what counts. Model FLOPs utilisation (MFU) is the FLOPs of a
step, divided by its seconds and by the peak of the GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from albert_data.train.config import AlbertConfig

if TYPE_CHECKING:
    from albert_data.train.batch import Batch

FORWARD_AND_BACKWARD = 3  # each product of the forward pass has two of its size in the backward pass

# Published peaks of dense products of bf16 and fp16, accumulated in float32, in 10^12 FLOPs a second, by the name that
# CUDA gives a GPU, from NVIDIA's data sheets. That of TF32, which float32 runs as, is half of it.
PEAK_TFLOPS = {
    "NVIDIA B200": 2250,
    "NVIDIA H200": 989.4,
    "NVIDIA H100 80GB HBM3": 989.4,
    "NVIDIA H100 PCIe": 756,
    "NVIDIA A100-SXM4-80GB": 312,
    "NVIDIA A100-SXM4-40GB": 312,
}


def training_flops(
    config: AlbertConfig, *, num_rows: int, row_len: float, num_masked: int, num_tokens: int | None = None
) -> int:
    """Count one step: forward and backward over num_rows rows padded to row_len.

    num_masked: the tokens that the MLM head computes, unused entries of the capacity included. For packed rows,
    num_tokens are the cells of the batch, and row_len the mean number of tokens that a token attends to.
    """
    num_tokens = round(num_rows * row_len) if num_tokens is None else num_tokens
    h, e, num_labels = config.hidden_size, config.embedding_size, len(config.task.orders)
    num_layers, pooler = len(config.inner_layers()), h * h if num_labels else 0
    num_read = num_masked + (num_rows if num_labels else 0)
    # Queries, keys and values; scores and the mixing of values, over all heads. Then out, up and down, in the last
    # layer only of the cells that the heads read.
    mixing = num_layers * (6 * num_tokens * h * h + round(4 * num_tokens * h * row_len))
    rest = ((num_layers - 1) * num_tokens + num_read) * (h * h + 2 * h * config.ffn_size)
    rest += num_tokens * e * h + num_rows * (pooler + h * num_labels) + num_masked * (h * e + e * config.vocab_size)
    return FORWARD_AND_BACKWARD * (mixing + 2 * rest)


def peak_flops(device_name: str, precision: str) -> float | None:
    """The published dense peak of a GPU in FLOPs a second, None if it is not known. precision: bf16, fp16 or fp32."""
    peak = PEAK_TFLOPS.get(device_name)
    return None if peak is None else peak * (0.5e12 if precision == "fp32" else 1e12)


def batch_flops(config: AlbertConfig, batch: Batch) -> int:
    """The FLOPs of one update with this batch alone."""
    return training_flops(
        config,
        num_rows=len(batch.sop_labels_B),
        num_tokens=batch.input_ids_BT.numel(),
        row_len=batch.attended_len or batch.input_ids_BT.shape[1],
        num_masked=len(batch.masked_indices_N),
    )
