"""The device of a training run, its number format with the reasons, and the processes that train together.

bfloat16 has the range of float32 and needs no loss scaling, but GPUs before Ampere (compute capability 8.0) only
emulate it. float16 is fast there and needs a gradient scaler. A CPU trains in bfloat16 if it has instructions for
products of it, which are twice as fast as those of float32; otherwise in float32.
Weights and optimiser state are always float32: the format is that of autocast.

A run has one process for each GPU, as torchrun starts them, or a single one. At each step the processes agree on
counts, the clock and whether to stop. They exchange these by gloo on the CPU, so that nobody waits for a GPU. Gradients
go over NCCL, or by gloo on CPUs.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from albert_data.errors import ConfigError, WorkerError
from albert_data.text.wording import count_of
from albert_data.train.reading import explain

# Of an exchange: the first process may evaluate, save and write the page meanwhile.
TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The processes of a run. local_rank: the number of this process on its machine, and of its GPU."""

    rank: int = 0
    num_ranks: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the sums over all ranks, the same on each."""
        if self.num_ranks == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return [float(value) for value in total]

    def follow_first(self, measure: Callable[[], float]) -> float:
        """Return what the first rank measures, on every rank: its clock and its files decide for all."""
        return self.sum([measure() if self.is_first else 0.0])[0]

    def gather(self, value: float) -> list[float]:
        """Return the values of all ranks in their order, the same on each."""
        return self.sum([value if rank == self.rank else 0.0 for rank in range(self.num_ranks)])

    def gather_hashes(self, text: str) -> list[float]:
        """Return a hash of each rank's text. It has 48 bits, which a float holds exactly."""
        return self.gather(int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big"))

    def wait(self) -> None:
        """Wait until all ranks have come here."""
        self.sum([0.0])

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of the first rank."""
        for tensor in tensors if self.num_ranks > 1 else ():
            dist.broadcast(tensor, 0)

    def add_up(self, tensors: Sequence[Tensor], dtype: torch.dtype) -> None:
        """Replace tensors by their sums over all ranks, which are sent in `dtype`.

        All at once: the gradients of a shared layer are complete only at the end of the backward pass.
        """
        if self.num_ranks > 1:
            flat = torch.cat([tensor.flatten().to(dtype) for tensor in tensors])
            dist.all_reduce(flat)
            for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
                tensor.copy_(part.view_as(tensor))

    @contextmanager
    def share_out_of_memory(self) -> Iterator[None]:
        """Raise OutOfMemoryError on all ranks if memory runs out on one. Nothing in the block waits for ranks."""
        failure = None
        try:
            yield
        except torch.cuda.OutOfMemoryError as error:
            failure = error
        if self.sum([failure is not None])[0]:
            raise failure or torch.cuda.OutOfMemoryError("the memory of another process ran out")


ALONE = Ranks()


def read_ranks() -> Ranks:
    """Read torchrun's environment variables; without them there is one rank. Raises ConfigError for a bad value."""
    names = {"rank": "RANK", "num_ranks": "WORLD_SIZE", "local_rank": "LOCAL_RANK"}
    try:
        return Ranks(**{field: int(os.environ[name]) for field, name in names.items() if name in os.environ})
    except ValueError as error:
        raise ConfigError(f"the environment of torchrun is damaged: {error}") from error


@contextmanager
def join_ranks(device_type: str) -> Iterator[Ranks]:
    """Connect to the other ranks, and disconnect at the end."""
    ranks = read_ranks()
    if ranks.num_ranks == 1:
        yield ranks
        return
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo", timeout=TIMEOUT)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(
            f"WORLD_SIZE is {ranks.num_ranks}, but the processes can't connect: {error}; start them with torchrun; on "
            "several machines set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the network interface between them"
        ) from error
    try:
        yield ranks
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        raise WorkerError(
            f"process {ranks.rank} of {ranks.num_ranks} lost the connection to another one, whose message says why; "
            "start all of them again with --resume"
        ) from error
    # Not after an error: it may wait for ever for a process that is gone.
    dist.destroy_process_group()


def _is_lost(error: RuntimeError) -> bool:
    """Whether an exchange failed because of another process. gloo has no class of errors of its own."""
    return isinstance(error, dist.DistBackendError) or "gloo" in str(error)


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
    with warnings.catch_warnings(action="ignore"):  # of a driver that is too old, in several lines
        num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto" and num_gpus == 0:
        return torch.device("cpu"), f"PyTorch finds no CUDA GPU{_explain_no_gpu()}"
    if device == "cpu":
        return torch.device("cpu"), "as asked"
    number = device.partition(":")[2]
    index = int(number or (0 if num_gpus == 1 else ranks.local_rank))
    if index >= num_gpus:
        raise ConfigError(
            f"device is {device!r}, but PyTorch {torch.__version__} finds {num_gpus} CUDA GPUs"
            f"{'' if num_gpus else _explain_no_gpu()}; "
            "choose another with --device, or --device cpu"
        )
    return torch.device("cuda", index), torch.cuda.get_device_name(index)


def _explain_no_gpu() -> str:
    """Why a PyTorch for CUDA finds no GPU, as that the driver is too old. Empty for one without CUDA."""
    if torch.version.cuda is None:
        return ""
    try:
        torch.empty(0, device="cuda")
    except Exception as error:  # of several types
        return f" ({explain(error)})"
    return ""


def check_gpus(device: torch.device, ranks: Ranks) -> None:
    """Raise ConfigError if two ranks use the same GPU, which NCCL can't do."""
    if device.type == "cpu" or ranks.num_ranks == 1:
        return
    num_gpus = len(set(ranks.gather_hashes(str(torch.cuda.get_device_properties(device).uuid))))
    if num_gpus < ranks.num_ranks:
        raise ConfigError(
            f"{ranks.num_ranks} processes use {count_of(num_gpus, 'GPU')}; start one process for each GPU: torchrun "
            "--nproc-per-node N with the number of GPUs of a machine, and no --device cuda:N"
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


# ---- memory ----


def peak_gb(device: torch.device) -> dict[str, float]:
    """The most GPU memory that tensors took so far, in GB, as a part of a metrics line; empty for a CPU."""
    return {} if device.type == "cpu" else {"peak_gb": round(torch.cuda.max_memory_allocated(device) / 1e9, 2)}


@contextmanager
def explain_out_of_memory(device_info: str) -> Iterator[None]:
    """Turn running out of GPU memory for the weights or the optimiser's state into a ConfigError."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise ConfigError(
            f"the weights and the optimiser's state do not fit on {device_info}; end other programs that use it, "
            "or start another run with a smaller --preset"
        ) from error
