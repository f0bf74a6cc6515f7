"""Chooses the device and the number format of training, and gives the reasons.

bfloat16 has the range of float32 and needs no loss scaling, but GPUs before Ampere (compute capability 8.0) only
emulate it. float16 is fast there and needs a gradient scaler. A CPU trains in bfloat16 if it has instructions for
products of it, which are twice as fast as those of float32; otherwise in float32.
Weights and optimiser state are always float32: the format is that of autocast.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch

from albert_data.errors import ConfigError
from albert_data.text.wording import count_of
from albert_data.train.config import DEFAULT_PRESETS
from albert_data.train.distributed import ALONE, Ranks

BF16_CAPABILITY = (8, 0)
BF16_FLAGS = ("amx_bf16", "avx512_bf16")  # as Linux names them
CPU_INFO = Path("/proc/cpuinfo")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True, kw_only=True)
class Precision:
    """A device and a number format, and the reasons for both, which are shown to the user.

    device_info: of a GPU, the name that CUDA gives it; of a CPU, the reason why it was chosen, such as "as asked".
    format: bf16, fp16 or fp32.
    """

    device: torch.device
    device_info: str
    format: str
    format_reason: str

    def autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, dtype=DTYPES[self.format], enabled=self.format != "fp32")

    @property
    def is_scaled(self) -> bool:
        """Whether the loss is scaled. In the other formats the scaler's scale stays 1; it only skips updates."""
        return self.format == "fp16"


def choose_precision(precision: str, device: str, ranks: Ranks = ALONE) -> Precision:
    """Choose by two settings of TrainConfig and the machine. Raises ConfigError if the machine lacks the device.

    Of several ranks, each uses the GPU of its number on the machine, or the only one that its launcher shows to it.
    On a GPU, the whole process computes attention without cuDNN from now on, and products of float32 as TF32 if float32
    was chosen.
    """
    chosen, device_info = choose_device(device, ranks)
    is_gpu = chosen.type == "cuda"
    name, reason = choose_format(precision, torch.cuda.get_device_capability(chosen) if is_gpu else None)
    if is_gpu:
        torch.cuda.set_device(chosen)  # NCCL uses the current device
        # On Hopper (PyTorch 2.11 and later, issue 196678) cuDNN's backward pass returns NaN for rows of 64, 192, 320,
        # ... tokens with a mask. A context around the forward pass would not cover layers that are recomputed.
        torch.backends.cuda.enable_cudnn_sdp(False)
    if is_gpu and name == "fp32":
        torch.set_float32_matmul_precision("high")
        reason += "; products of float32 run as TF32"
    return Precision(device=chosen, device_info=device_info, format=name, format_reason=reason)


def choose_device(device: str, ranks: Ranks = ALONE) -> tuple[torch.device, str]:
    """Return the device of this process, and its `device_info`. Raises ConfigError if the machine lacks it."""
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto" and num_gpus == 0:
        return torch.device("cpu"), "PyTorch finds no CUDA GPU"
    if device == "cpu":
        return torch.device("cpu"), "as asked"
    number = device.partition(":")[2]
    if number and ranks.num_ranks > 1:
        raise ConfigError(
            f"device is {device!r}, one GPU for all of {ranks.num_ranks} processes; leave out --device, and each uses "
            "a GPU of its own; CUDA_VISIBLE_DEVICES chooses which GPUs"
        )
    index = int(number or (0 if num_gpus == 1 else ranks.local_rank))
    if index >= num_gpus:
        raise ConfigError(
            f"device is {device!r}, but PyTorch {torch.__version__} finds {num_gpus} CUDA GPUs; "
            "choose another with --device, or --device cpu"
        )
    return torch.device("cuda", index), torch.cuda.get_device_name(index)


def choose_preset(device: str) -> str:
    """Choose the preset of a run that names none. Raises ConfigError if the machine lacks the device."""
    return DEFAULT_PRESETS[choose_device(device)[0].type]


def check_gpus(device: torch.device, ranks: Ranks) -> None:
    """Raise ConfigError if two ranks use the same GPU, which NCCL can't do."""
    if device.type == "cpu" or ranks.num_ranks == 1:
        return
    num_gpus = len(set(ranks.gather_hashes(str(torch.cuda.get_device_properties(device).uuid))))
    if num_gpus < ranks.num_ranks:
        raise ConfigError(
            f"{ranks.num_ranks} processes use {count_of(num_gpus, 'GPU')}; start one process for each GPU: "
            "torchrun --nproc-per-node N with the number of GPUs of a machine"
        )


def choose_format(precision: str, capability: tuple[int, int] | None) -> tuple[str, str]:
    """Choose by the setting and the compute capability of the GPU; capability is None for a CPU."""
    if precision == "fp16" and capability is None:
        raise ConfigError("precision is 'fp16', which needs a CUDA GPU; on a CPU use fp32 or bf16")
    if precision != "auto":
        return precision, "as asked"
    if capability is None:
        flags = _read_cpu_flags()
        found = [flag for flag in BF16_FLAGS if flag in flags]
        if not found:
            return "fp32", "the processor has no products of bfloat16"
        return "bf16", f"the processor multiplies it fast ({found[0]})"
    version = f"compute capability {capability[0]}.{capability[1]}"
    if capability >= BF16_CAPABILITY:
        return "bf16", f"GPUs of {version} support it, and it needs no loss scaling"
    return "fp16", f"GPUs of {version} have no fast bfloat16; the loss is scaled"


def _read_cpu_flags() -> list[str]:
    """The features of the first processor, by Linux' names; none where the system has no such file."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        return []
    return next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
