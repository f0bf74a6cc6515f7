"""Chooses the device and the number format of training, and gives the reasons.

bfloat16 has the range of float32 and needs no loss scaling, but GPUs before Ampere (compute capability 8.0) only
emulate it. float16 is fast there and needs a gradient scaler. A CPU trains in float32.
Weights and optimiser state are always float32: the format is that of autocast.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from albert_data.errors import ConfigError

BF16_CAPABILITY = (8, 0)
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

    def autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, dtype=DTYPES[self.format], enabled=self.format != "fp32")

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


def choose_format(precision: str, capability: tuple[int, int] | None) -> tuple[str, str]:
    """Choose by the setting and the compute capability of the GPU; capability is None for a CPU."""
    if precision == "fp16" and capability is None:
        raise ConfigError("precision is 'fp16', which needs a CUDA GPU; on a CPU use fp32 or bf16")
    if precision != "auto":
        return precision, "as asked"
    if capability is None:
        return "fp32", "a CPU trains in float32"
    version = f"compute capability {capability[0]}.{capability[1]}"
    if capability >= BF16_CAPABILITY:
        return "bf16", f"GPUs of {version} support it, and it needs no loss scaling"
    return "fp16", f"GPUs of {version} have no fast bfloat16; the loss is scaled"
