"""Compiles a model with torch.compile where that works.

It needs a compiler: Triton and a C compiler for a GPU that Triton supports, a C++ compiler for a CPU. Only trying shows
whether all of that is there.
"""

from __future__ import annotations

import textwrap
import warnings
from typing import Any

import torch
import torch.nn.functional as F

from albert_data.train.config import TrainConfig
from albert_data.train.model import Albert

# On two cores a step of mini takes four fifths of the time when it is compiled. Compiling takes a minute or two.
MIN_CPU_MINUTES = 10
_REASON_LEN = 200
COMPILING = "making the model, and compiling a small function if the model is to be compiled, to see if that works"


def choose_compiling(config: TrainConfig, device: torch.device) -> tuple[bool, str | None]:
    """Return whether to compile for a device, and if the settings ask for it in vain, why it can't be done."""
    is_worth_it = device.type == "cuda" or (config.minutes or 0) >= MIN_CPU_MINUTES
    if not (is_worth_it if config.compile is None else config.compile):
        return False, None
    obstacle = find_obstacle(device)
    return obstacle is None, obstacle


def find_obstacle(device: torch.device) -> str | None:
    """Return in one line why torch.compile does not work on a device, or None if it does.

    It compiles and runs a tiny function, forward and backward. Draws no random number.
    """
    try:
        x = torch.ones(64, device=device, requires_grad=True)
        torch.autograd.grad(torch.compile(lambda x: F.gelu(2 * x).sum())(x), x)
    except Exception as error:  # of any type: PyTorch, Triton and the compilers each raise their own
        lines = [line for line in str(error).splitlines() if line.strip() and not line.endswith(" raised:")]
        return textwrap.shorten((lines or [type(error).__name__])[0], _REASON_LEN, placeholder="...")
    return None


def compile_model(model: Albert) -> None:
    """Compile what takes most of the time, for each BatchShape or all: a shared layer is one graph for all layers."""
    # Products of float32 stay exact beside bf16 ones: they are few.
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
    limits: Any = torch._dynamo.config  # PyTorch documents the setting under this name and has no public one
    limits.recompile_limit = limits.accumulated_recompile_limit = 2**20  # beyond them shapes would run uncompiled
    if hasattr(torch.compiler.config, "dynamic_sources"):  # PyTorch 2.8 has it; before, each window is compiled
        torch.compiler.config.dynamic_sources = "L['rows'].window"
    dynamic = is_for_all_shapes(model.mlm_head.bias.device)
    model.embeddings.compile(dynamic=dynamic)
    for owner, name in ((model.encoder, "run_inner_layer"), (model.mlm_head, "measure")):
        setattr(owner, name, torch.compile(getattr(owner, name), dynamic=dynamic))


def is_for_all_shapes(device: torch.device) -> bool:
    """Whether a program is compiled for all shapes: on a CPU it is as fast as one for each shape, and made once."""
    return device.type == "cpu"
