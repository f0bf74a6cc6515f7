"""Compiles a model with torch.compile where that works, and computes every shape of batch before a timed run.

It needs a compiler: Triton and a C compiler for a GPU that Triton supports, a C++ compiler for a CPU. Only trying shows
whether all of that is there.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from albert_data.shards.reader import Shards
from albert_data.train.config import TrainConfig
from albert_data.train.data.batch import BatchShape, empty_batch
from albert_data.train.data.loader import ShardLoader, fixed_shapes
from albert_data.train.data.order import BUCKET, padded_len
from albert_data.train.model.model import Albert
from albert_data.train.run.memory import halve_batches
from albert_data.train.run.state import Session

# Compiled programs of a function for each length of rows: training, evaluation, other micro-batches, many masks.
GRAPHS_PER_LEN = 8
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
    limits.optimize_ddp = False  # it divides graphs where a bucket of gradients ends
    num_pairs = len(set(model.encoder.inner_layers))
    num_graphs = GRAPHS_PER_LEN * padded_len(model.config.max_positions) // BUCKET * num_pairs
    for name in ("recompile_limit", "accumulated_recompile_limit"):
        setattr(limits, name, max(getattr(limits, name), num_graphs))
    dynamic = is_for_all_shapes(model.mlm_head.bias.device)
    model.embeddings.compile(dynamic=dynamic)
    for owner, name in ((model.encoder, "run_inner_layer"), (model.mlm_head, "measure")):
        setattr(owner, name, torch.compile(getattr(owner, name), dynamic=dynamic))


def is_for_all_shapes(device: torch.device) -> bool:
    """Whether a program is compiled for all shapes: on a CPU it is as fast as one for each shape, and made once."""
    return device.type == "cpu"


def warm_up(
    session: Session,
    loader: ShardLoader,
    validation: Shards | None,
    *,
    must_stop: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    """Compute a batch of zeros of each shape: forward and backward as in an update, or forward as in an evaluation.

    Otherwise most of the compiling would happen in the first updates, and the learning rate, which follows the clock,
    would rise to its peak in a few of them. The first evaluation would tell a wrong time for the last one.
    Changes no weight, gradient, random state or figure, and the ranks do not wait for each other. If memory runs out,
    the loader's micro-batches are halved. must_stop: called before each shape; at True the rest is left out.
    """
    # A program for all shapes is compiled by the first.
    last = slice(-1, None) if is_for_all_shapes(session.precision.device) else slice(None)
    work = [(shape, True) for shape in loader.shapes()[last]]
    if validation is not None:
        num_rows, batch_tokens = session.config.eval_rows or len(validation), loader.tokens_at_once
        pack = loader.find_pack(validation)
        shapes = fixed_shapes(validation, num_rows=num_rows, batch_tokens=batch_tokens, pack=pack)
        work += [(shape, False) for shape in shapes[last]]
    say(f"compiling for {len(work)} shapes of batches, before the learning rate begins to rise")
    for shape, is_update in work:
        if must_stop():
            break
        try:
            _compute(session, shape, is_update=is_update)
        except torch.cuda.OutOfMemoryError as error:
            say(halve_batches(session, loader, (shape.num_rows, shape.row_len), error))
            return warm_up(session, loader, validation, must_stop=must_stop, say=say)


def _compute(session: Session, shape: BatchShape, *, is_update: bool) -> None:
    device = session.precision.device
    session.model.train(is_update)
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.set_grad_enabled(is_update):
        with session.precision.autocast():
            window = session.config.first_window if is_update else 0
            output = session.model(empty_batch(shape).to(device), window)
        if is_update:
            torch.autograd.grad(output.mlm_nats + output.sop_nats, list(session.model.parameters()))
    session.model.train()
