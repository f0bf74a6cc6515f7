"""The number format is chosen by the machine, with a reason."""

from __future__ import annotations

import pytest
import torch

from albert_data.errors import ConfigError
from albert_data.train import precision
from albert_data.train.precision import Precision, choose_device, choose_format, choose_precision


@pytest.mark.parametrize(
    ("capability", "expected", "reason"),
    [((7, 5), "fp16", "7.5"), ((8, 0), "bf16", "8.0"), ((9, 0), "bf16", "9.0")],
)
def test_auto_chooses_the_format_that_the_hardware_supports(capability, expected, reason):
    name, why = choose_format("auto", capability)
    assert name == expected
    assert reason in why


@pytest.mark.parametrize(
    ("flags", "expected", "reason"),
    [
        ("fpu sse2 avx512f", "fp32", "no products of bfloat16"),
        ("fpu avx512f avx512_bf16", "bf16", "avx512_bf16"),
        ("fpu avx512_bf16 amx_bf16 amx_tile", "bf16", "amx_bf16"),
        (None, "fp32", "no products of bfloat16"),
    ],
)
def test_a_cpu_trains_in_bf16_if_it_has_the_instructions(monkeypatch, tmp_path, flags, expected, reason):
    monkeypatch.setattr(precision, "CPU_INFO", tmp_path / "cpuinfo")
    if flags is not None:  # otherwise a system without the file, such as macOS
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nmodel name\t: X\nflags\t\t: {flags}\nbugs\t\t:\n")
    name, why = choose_format("auto", None)
    assert name == expected
    assert reason in why


def test_a_given_precision_is_used():
    assert choose_format("fp32", (9, 0))[0] == "fp32"
    assert choose_format("bf16", None)[0] == "bf16"


def test_fp16_on_a_cpu_is_refused():
    with pytest.raises(ConfigError, match="needs a CUDA GPU"):
        choose_format("fp16", None)


def test_a_missing_gpu_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="finds 1 CUDA GPUs"):
        choose_device("cuda:1")


def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    device, why = choose_device("auto")
    assert device.type == "cpu"
    assert "no CUDA GPU" in why
    with pytest.raises(ConfigError, match="finds 0 CUDA GPUs"):
        choose_device("cuda")


def test_autocast_computes_in_the_format_except_for_fp32():
    x = torch.ones(2, 2)
    with choose_precision("bf16", "cpu").autocast():
        assert (x @ x).dtype == torch.bfloat16
    with choose_precision("fp32", "cpu").autocast():
        assert (x @ x).dtype == torch.float32


def sdpa_kernels() -> list[bool]:
    cuda = torch.backends.cuda
    return [
        cuda.flash_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.math_sdp_enabled(),
        cuda.cudnn_sdp_enabled(),
    ]


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_on_cuda_attention_never_uses_cudnn_whose_gradient_is_wrong_on_hopper():
    before = sdpa_kernels()
    with Precision(device=torch.device("cuda"), device_info="H100", format="bf16", format_reason="").autocast():
        assert sdpa_kernels() == [True, True, True, False]
    assert sdpa_kernels() == before


def test_on_a_cpu_the_kernels_of_attention_stay_as_the_process_has_them():
    before = sdpa_kernels()
    with choose_precision("fp32", "cpu").autocast():
        assert sdpa_kernels() == before
