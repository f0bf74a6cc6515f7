"""The number format is chosen by the machine, with a reason."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from albert_data.errors import ConfigError
from albert_data.train.distributed import Ranks
from albert_data.train.model import precision
from albert_data.train.model.precision import check_gpus, choose_device, choose_format, choose_precision


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


@pytest.fixture
def show_gpus(monkeypatch):
    """Make PyTorch find so many GPUs."""

    def show(num_gpus: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
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


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_each_rank_uses_the_gpu_of_its_number(show_gpus, device):
    show_gpus(4)
    ranks = [Ranks(rank=8 + number, num_ranks=16, local_rank=number) for number in range(4)]
    assert [choose_device(device, rank)[0].index for rank in ranks] == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match="finds 4 CUDA GPUs"):
        choose_device(device, Ranks(rank=4, num_ranks=5, local_rank=4))


def test_a_rank_that_is_shown_a_single_gpu_uses_it(show_gpus):
    show_gpus(1)
    assert choose_device("auto", Ranks(rank=3, num_ranks=4, local_rank=3)) == (torch.device("cuda", 0), "GPU 0")


def test_one_gpu_for_all_ranks_is_refused(show_gpus):
    show_gpus(2)
    assert choose_device("cuda:1")[0].index == 1
    with pytest.raises(ConfigError, match="device is 'cuda:1', one GPU for all of 2 processes; leave out --device"):
        choose_device("cuda:1", Ranks(num_ranks=2))


def test_ranks_that_share_a_gpu_are_refused(monkeypatch):
    shown = SimpleNamespace(uuid="GPU-1")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: shown)
    monkeypatch.setattr(Ranks, "sum", lambda ranks, values: [max(values)] * len(values))
    with pytest.raises(ConfigError, match="2 processes use 1 GPU; start one process for each GPU"):
        check_gpus(torch.device("cuda", 0), Ranks(num_ranks=2))
    monkeypatch.setattr(Ranks, "sum", lambda ranks, values: [value + i for i, value in enumerate(values)])
    check_gpus(torch.device("cuda", 0), Ranks(num_ranks=2))
    check_gpus(torch.device("cpu"), Ranks(num_ranks=2))
    check_gpus(torch.device("cuda", 0), Ranks())
