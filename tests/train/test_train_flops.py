"""The FLOPs of a step are those that PyTorch counts on the model; peaks of GPUs are from a table, never guessed."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from albert_data.train.config import AlbertConfig
from albert_data.train.flops import peak_flops, training_flops
from albert_data.train.loader import fixed_batches
from albert_data.train.model import Albert

SMALL = AlbertConfig(vocab_size=40, embedding_size=24, hidden_size=32, num_layers=3, num_heads=4, ffn_size=80)


CONFIGS = {
    "shared": {},
    "two groups": {"num_layers": 4, "num_groups": 2},
    "two inner groups": {"num_inner_groups": 2},
    "nothing shared": {"share": "none", "num_heads": 2},
    "large vocabulary": {"vocab_size": 5000, "ffn_size": 32},
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_formula_is_what_pytorch_counts(toys, kind):
    rows, config = toys.make_shards(9, vocab_size=40, max_seq_len=30), dataclasses.replace(SMALL, **CONFIGS[kind])
    (batch,) = fixed_batches(rows, num_rows=9, batch_tokens=9 * 64)
    model = Albert(config)
    # Fused attention counts its scores again in the backward pass; the plain one computes each product once.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        output = model(batch)
        (output.mlm_nats + output.sop_nats).backward()
    num_rows, row_len = batch.input_ids_BT.shape
    shape = {"num_rows": num_rows, "row_len": row_len, "num_masked": len(batch.masked_labels_N)}
    assert training_flops(config, **shape) == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_layers_count_as_they_are_executed_not_as_they_are_stored():
    def count(**config) -> float:
        return training_flops(AlbertConfig(**config), num_rows=2, row_len=128, num_masked=40)

    assert count() == count(share="none")
    tokens, hidden = 2 * 128, 768
    per_layer = 3 * 2 * tokens * (4 * hidden**2 + 2 * hidden * 3072 + 2 * hidden * 128)
    assert count(num_layers=2) - count(num_layers=1) == per_layer


@pytest.mark.parametrize(
    ("name", "precision", "teraflops"),
    [
        ("NVIDIA H200", "bf16", 989.4),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4),
        ("NVIDIA H100 PCIe", "fp32", 378),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
    ],
)
def test_the_published_peak_is_found_by_cudas_name_of_the_gpu(name, precision, teraflops):
    assert peak_flops(name, precision) == teraflops * 1e12


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("AMD EPYC 7B13", "fp32"),
        ("NVIDIA Unheard-of 9000", "bf16"),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "bf16"),
        ("NVIDIA H100 NVL", "bf16"),
    ],
)
def test_no_peak_is_guessed(name, precision):
    assert peak_flops(name, precision) is None


def test_counting_and_reading_a_run_need_no_torch():
    modules = "albert_data.train.flops, albert_data.runs.page"
    code = f"import sys; import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
