"""Counts the FLOPs of a training step and knows the peaks of GPUs. Imports no torch.

In: the shape of a model and of a batch, the name of a GPU. Out: numbers. docs/explanation/architecture.md has the
formula, and says what counts. Model FLOPs utilisation (MFU) is the FLOPs of a step, divided by its seconds and by the
peak of the GPU.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from albert_data.train.config import AlbertConfig

if TYPE_CHECKING:
    from albert_data.train.batch import Batch

FORWARD_AND_BACKWARD = 3  # each product of the forward pass has two of its size in the backward pass

# Published peaks of dense matrix products in 10^12 FLOPs a second, accumulated in float32, from NVIDIA's data sheets
# (H100, H200, GH200, HGX B200 and B300, GB200 and GB300 NVL72, A100, A40, A30, A10, L40S, L40, L4, V100, T4, RTX A6000,
# RTX 6000 Ada) and its whitepapers of the GA102, Ada and RTX Blackwell architectures (GeForce). If a sheet gives
# figures "with sparsity", half of them.
# fp32 is TF32 if the tensor cores have it, since device.py enables it; otherwise the figure of the CUDA cores.
# A GPU belongs to the first line whose words are all in its name, so special cases come before general ones.
PEAK_TFLOPS: tuple[tuple[str, dict[str, float]], ...] = (
    ("gb300", {"bf16": 2500, "fp16": 2500, "fp32": 1250}),
    ("gb200", {"bf16": 2500, "fp16": 2500, "fp32": 1250}),
    ("b300", {"bf16": 2250, "fp16": 2250, "fp32": 1125}),
    ("b200", {"bf16": 2250, "fp16": 2250, "fp32": 1125}),
    ("gh200", {"bf16": 990, "fp16": 990, "fp32": 494}),
    ("h200 nvl", {"bf16": 835.5, "fp16": 835.5, "fp32": 417.5}),
    ("h200", {"bf16": 989.4, "fp16": 989.4, "fp32": 494.7}),
    ("h100 nvl", {"bf16": 835.5, "fp16": 835.5, "fp32": 417.5}),
    ("h100 pcie", {"bf16": 756, "fp16": 756, "fp32": 378}),
    ("h100", {"bf16": 989.4, "fp16": 989.4, "fp32": 494.7}),
    ("a100", {"bf16": 312, "fp16": 312, "fp32": 156}),
    ("a40", {"bf16": 149.7, "fp16": 149.7, "fp32": 74.8}),
    ("a30", {"bf16": 165, "fp16": 165, "fp32": 82}),
    ("a10", {"bf16": 125, "fp16": 125, "fp32": 62.5}),
    ("l40s", {"bf16": 362, "fp16": 362, "fp32": 183}),
    ("l40", {"bf16": 181, "fp16": 181, "fp32": 90.5}),
    ("l4", {"bf16": 121, "fp16": 121, "fp32": 60}),
    ("rtx 6000 ada", {"bf16": 364.2, "fp16": 364.2, "fp32": 182.1}),
    ("rtx a6000", {"bf16": 154.8, "fp16": 154.8, "fp32": 77.4}),
    ("rtx 5090", {"bf16": 209.5, "fp16": 209.5, "fp32": 104.8}),
    ("rtx 4090", {"bf16": 165.2, "fp16": 165.2, "fp32": 82.6}),
    ("rtx 4080", {"bf16": 97.5, "fp16": 97.5, "fp32": 48.7}),
    ("rtx 3090", {"bf16": 71, "fp16": 71, "fp32": 35.6}),
    ("v100 sxm2", {"fp16": 125, "fp32": 15.7}),
    ("v100 sxm3", {"fp16": 125, "fp32": 15.7}),
    ("v100 pcie", {"fp16": 112, "fp32": 14}),
    ("t4", {"fp16": 65, "fp32": 8.1}),
)
# Words in the names of variants with another peak: "RTX 4090 Laptop GPU", "RTX 4090 D", "Max-Q", "RTX 3090 Ti",
# "RTX 4080 SUPER", "A100 MIG 1g.5gb".
VARIANT_WORDS = {"laptop", "mobile", "max", "ti", "super", "d", "mig"}


def training_flops(
    config: AlbertConfig, *, num_rows: int, row_len: float, num_masked: int, num_tokens: int | None = None
) -> int:
    """Count one step: forward and backward over num_rows rows padded to row_len.

    num_masked: the tokens that the MLM head computes, unused entries of the capacity included. For packed rows,
    num_tokens are the cells of the batch, and row_len the mean number of tokens that a token attends to.
    """
    num_tokens = round(num_rows * row_len) if num_tokens is None else num_tokens
    h, e, num_labels = config.hidden_size, config.embedding_size, len(config.task.orders)
    # Queries, keys, values and out; up and down; then scores and the mixing of values, over all heads.
    layer = 2 * num_tokens * (4 * h * h + 2 * h * config.ffn_size) + round(4 * num_tokens * h * row_len)
    pooler = h * h if num_labels else 0
    rest = num_tokens * e * h + num_rows * (pooler + h * num_labels) + num_masked * (h * e + e * config.vocab_size)
    return FORWARD_AND_BACKWARD * (len(config.inner_layers()) * layer + 2 * rest)


def peak_flops(device_name: str, precision: str) -> float | None:
    """Return the published dense peak of a GPU in FLOPs a second, or None if none is known.

    device_name: as CUDA has it; precision: bf16, fp16 or fp32. None is known for a CPU, and for a format that the GPU
    has no fast units for (bf16 on a V100).
    """
    words = set(re.findall(r"[a-z0-9]+", device_name.lower()))
    if words & VARIANT_WORDS:
        return None
    for name, peaks in PEAK_TFLOPS:
        if words.issuperset(name.split()):
            return peaks[precision] * 1e12 if precision in peaks else None
    return None


def describe_peak(device_name: str, precision: str) -> str:
    """Say which peak MFU refers to, or why it is not shown."""
    peak = peak_flops(device_name, precision)
    if peak is None:
        return f"MFU is not shown: no published peak of {device_name} in {precision} is known"
    return (
        f"MFU: FLOPs of the products of a step, padding and a backward pass of twice the forward one included, by "
        f"{peak / 1e12:,.0f} TFLOP/s, the published dense peak of {device_name} in {precision}"
    )


def batch_flops(config: AlbertConfig, batch: Batch) -> int:
    """The FLOPs of one update with this batch alone."""
    return training_flops(
        config,
        num_rows=len(batch.sop_labels_B),
        num_tokens=batch.input_ids_BT.numel(),
        row_len=batch.attended_len or batch.input_ids_BT.shape[1],
        num_masked=len(batch.masked_indices_N),
    )
