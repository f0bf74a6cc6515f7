"""The number format is chosen by the machine, with a reason."""

from __future__ import annotations

import re
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from refusals import check_refused, refused

from albert_data.errors import ConfigError
from albert_data.train import device as precision
from albert_data.train.device import Ranks, check_gpus, choose_device, choose_format, choose_precision


@pytest.mark.parametrize(
    ("asked", "capability", "expected", "reason"),
    [
        ("auto", (7, 5), "fp16", "7.5"),
        ("auto", (8, 0), "bf16", "8.0"),
        ("auto", (9, 0), "bf16", "9.0"),
        ("fp32", (9, 0), "fp32", "as asked"),
        ("fp16", (9, 0), "fp16", "as asked"),
        ("bf16", None, "bf16", "as asked"),
    ],
)
def test_auto_chooses_the_format_that_the_gpu_supports_and_another_is_used(asked, capability, expected, reason):
    name, why = choose_format(asked, capability)
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


def test_autocast_computes_in_the_format_except_for_fp32():
    x = torch.ones(2, 2)
    with choose_precision("bf16", "cpu").autocast():
        assert (x @ x).dtype == torch.bfloat16
    with choose_precision("fp32", "cpu").autocast():
        assert (x @ x).dtype == torch.float32


@pytest.fixture
def show_gpus(monkeypatch):
    """Make PyTorch find so many GPUs."""

    def show(num_gpus: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")

    return show


def test_on_a_gpu_attention_never_uses_cudnn_whose_gradient_is_wrong_on_hopper(show_gpus, monkeypatch):
    show_gpus(1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    assert torch.backends.cuda.cudnn_sdp_enabled()
    try:
        choose_precision("auto", "cpu")
        assert torch.backends.cuda.cudnn_sdp_enabled(), "training on a CPU changes nothing in the process"
        choose_precision("auto", "cuda")
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.flash_sdp_enabled()
        assert torch.backends.cuda.mem_efficient_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


def test_each_rank_uses_the_gpu_of_its_number_or_the_only_one_it_is_shown(show_gpus):
    show_gpus(4)
    ranks = [Ranks(rank=8 + number, num_ranks=16, local_rank=number) for number in range(4)]
    for device in ("auto", "cuda"):
        assert [choose_device(device, rank)[0].index for rank in ranks] == [0, 1, 2, 3]
    assert choose_device("cuda:1")[0].index == 1
    show_gpus(1)
    assert choose_device("auto", Ranks(rank=3, num_ranks=4, local_rank=3)) == (torch.device("cuda", 0), "GPU 0")
    show_gpus(0)
    assert choose_device("auto") == (torch.device("cpu"), "PyTorch finds no CUDA GPU")
    check_refused(lambda: choose_device("cuda"), ConfigError, "finds 0 CUDA GPUs")


@refused(
    (lambda: choose_format("fp16", None), ConfigError, "needs a CUDA GPU"),
    (lambda: choose_device("cuda:4"), ConfigError, "finds 4 CUDA GPUs & --device cpu"),
    (lambda: choose_device("cuda", Ranks(rank=4, num_ranks=5, local_rank=4)), ConfigError, "'cuda' & finds 4 CUDA"),
    (lambda: choose_device("auto", Ranks(rank=4, num_ranks=5, local_rank=4)), ConfigError, "'auto' & finds 4 CUDA"),
)
def test_a_gpu_that_is_not_there_or_for_all_is_refused(show_gpus, call, kind, named):
    show_gpus(4)
    check_refused(call, kind, named)


def test_ranks_that_share_a_gpu_are_refused(monkeypatch):
    shown = SimpleNamespace(uuid="GPU-1")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: shown)
    monkeypatch.setattr(Ranks, "sum", lambda ranks, values: [max(values)] * len(values))
    named = "2 processes use 1 GPU & one process for each GPU & no --device cuda:N"
    check_refused(lambda: check_gpus(torch.device("cuda", 0), Ranks(num_ranks=2)), ConfigError, named)
    monkeypatch.setattr(Ranks, "sum", lambda ranks, values: [value + i for i, value in enumerate(values)])
    check_gpus(torch.device("cuda", 0), Ranks(num_ranks=2))
    check_gpus(torch.device("cpu"), Ranks(num_ranks=2))
    check_gpus(torch.device("cuda", 0), Ranks())


def test_why_there_is_no_gpu_is_told_in_one_line(monkeypatch):
    fails = Mock(side_effect=RuntimeError("The NVIDIA driver on your\nsystem is too old (found version 11040)."))
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch, "empty", fails)
    why = "(The NVIDIA driver on your system is too old (found version 11040).)"
    assert choose_device("auto")[1] == f"PyTorch finds no CUDA GPU {why}"
    with pytest.raises(ConfigError, match=re.escape(f"finds 0 CUDA GPUs {why}; choose another with --device")):
        choose_device("cuda")
