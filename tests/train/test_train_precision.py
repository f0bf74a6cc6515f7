"""The number format follows from the machine, and says why."""

from __future__ import annotations

import pytest
import torch

from albert_data.errors import ConfigError
from albert_data.train.precision import choose_device, choose_format, choose_precision


@pytest.mark.parametrize(
    ("capability", "expected", "reason"),
    [(None, "fp32", "CPU"), ((7, 5), "fp16", "7.5"), ((8, 0), "bf16", "8.0"), ((9, 0), "bf16", "9.0")],
)
def test_auto_takes_the_format_that_the_hardware_computes_in(capability, expected, reason):
    name, why = choose_format("auto", capability)
    assert name == expected
    assert reason in why


def test_what_is_asked_for_is_taken():
    assert choose_format("fp32", (9, 0))[0] == "fp32"
    assert choose_format("bf16", None)[0] == "bf16"


def test_fp16_on_a_cpu_is_refused():
    with pytest.raises(ConfigError, match="needs a CUDA GPU"):
        choose_format("fp16", None)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="finds 1 CUDA GPUs"):
        choose_device("cuda:1")


def test_no_gpu_at_all_means_the_cpu_unless_a_gpu_was_asked_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    device, why = choose_device("auto")
    assert device.type == "cpu"
    assert "no CUDA GPU" in why
    with pytest.raises(ConfigError, match="finds 0 CUDA GPUs"):
        choose_device("cuda")


def test_autocast_computes_in_the_format_and_fp32_leaves_all_alone():
    x = torch.ones(2, 2)
    with choose_precision("bf16", "cpu").autocast():
        assert (x @ x).dtype == torch.bfloat16
    with choose_precision("fp32", "cpu").autocast():
        assert (x @ x).dtype == torch.float32
