"""Chooses the device and the number format of training, and gives the reasons.

bfloat16 has the range of float32 and needs no loss scaling, but GPUs before Ampere (compute capability 8.0) only
emulate it. float16 is fast there and needs a gradient scaler. A CPU trains in bfloat16 if it has instructions for
products of it, which are twice as fast as those of float32; otherwise in float32.
Weights and optimiser state are always float32: the format is that of autocast.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from albert_data.errors import ConfigError
from albert_data.train.config import DEFAULT_PRESETS

BF16_CAPABILITY = (8, 0)
# Without cuDNN: on Hopper (PyTorch 2.11 and later, issue 196678) its backward pass returns NaN for rows of 64, 192,
# 320, ... tokens with a mask.
SDPA_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
BF16_FLAGS = ("amx_bf16", "avx512_bf16")  # as Linux names them
CPU_INFO = Path("/proc/cpuinfo")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True, kw_only=True)
class Precision:
    """A device, the name of a format, and the reasons for both, which are shown to the user.

    device_info: of a GPU, the name that CUDA gives it; of a CPU, the reason why it was chosen, such as "as asked".
    """

    device: torch.device
    device_info: str
    format: str
    format_reason: str

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """A context for the model's forward pass: its format, and on CUDA the kernels of attention that are allowed."""
        kernels = sdpa_kernel(SDPA_BACKENDS) if self.device.type == "cuda" else nullcontext()
        with kernels, torch.autocast(self.device.type, dtype=DTYPES[self.format], enabled=self.format != "fp32"):
            yield

    @property
    def is_scaled(self) -> bool:
        """Whether the loss is scaled. In the other formats the scaler's scale stays 1; it only skips updates."""
        return self.format == "fp16"

    def gradient_scaler(self) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(self.device.type, init_scale=2.0**16 if self.is_scaled else 1.0)


def choose_precision(precision: str, device: str, *, local_rank: int = 0) -> Precision:
    """Choose by two settings of TrainConfig and the machine. Raises ConfigError if the machine lacks the device.

    local_rank: the number of this process on its machine; it uses the GPU of that number.
    With float32 on a GPU, matrix products run as TF32 from now on, in the whole process.
    """
    chosen, device_info = choose_device(device, local_rank)
    capability = torch.cuda.get_device_capability(chosen) if chosen.type == "cuda" else None
    name, format_reason = choose_format(precision, capability)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)  # NCCL uses the current device
    if chosen.type == "cuda" and name == "fp32":
        torch.set_float32_matmul_precision("high")
        format_reason += "; products of float32 run as TF32"
    return Precision(device=chosen, device_info=device_info, format=name, format_reason=format_reason)


def choose_device(device: str, local_rank: int = 0) -> tuple[torch.device, str]:
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto" and num_gpus == 0:
        return torch.device("cpu"), "PyTorch finds no CUDA GPU"
    if device == "cpu":
        return torch.device("cpu"), "as asked"
    index = int(device.partition(":")[2] or local_rank)
    if index >= num_gpus:
        raise ConfigError(
            f"device is {device!r}, but PyTorch {torch.__version__} finds {num_gpus} CUDA GPUs; "
            "choose another with --device, or --device cpu"
        )
    return torch.device("cuda", index), f"{torch.cuda.get_device_name(index)}"


def choose_preset(device: str) -> str:
    """Choose the preset of a run that names none. Raises ConfigError if the machine lacks the device."""
    return DEFAULT_PRESETS[choose_device(device)[0].type]


def choose_format(precision: str, capability: tuple[int, int] | None) -> tuple[str, str]:
    """Choose by the setting and the compute capability of the GPU; capability is None for a CPU."""
    if precision == "fp16" and capability is None:
        raise ConfigError("precision is 'fp16', which needs a CUDA GPU; on a CPU use fp32 or bf16")
    if precision != "auto":
        return precision, "as asked"
    if capability is None:
        found = next((flag for flag in BF16_FLAGS if flag in _read_cpu_flags()), None)
        if found is None:
            return "fp32", "the processor has no products of bfloat16"
        return "bf16", f"the processor multiplies it fast ({found})"
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
