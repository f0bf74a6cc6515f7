"""Checkpoints: folders that appear whole or not at all, and the newest of which a run goes on from.

    RUN/checkpoints/step-00001000/  model.safetensors  training.safetensors  state.json

model.safetensors has the weights by the names of model.py; training.safetensors the tensors of the optimiser and
the open metrics line; state.json all that is no tensor. Nothing in them is code, and nothing is unpickled.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from albert_data.errors import CheckpointError, OutputError
from albert_data.files import TEMPORARY_SUFFIX, read_json, sync_path, write_json
from albert_data.train.config import AlbertConfig
from albert_data.train.model import Albert

FORMAT_VERSION = 2
FOLDER = "checkpoints"
WEIGHTS_FILE, TENSORS_FILE, STATE_FILE = "model.safetensors", "training.safetensors", "state.json"

Tensors = dict[str, Tensor]


def list_checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    found = (path for path in (run / FOLDER).glob("step-*") if re.fullmatch(r"step-\d+", path.name))
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def save_checkpoint(
    run: Path, step: int, *, weights: Tensors, tensors: Tensors, state: dict[str, Any], keep: int
) -> Path:
    """Write the checkpoint of a step, then delete all but the last `keep`. Raises OutputError on a full disk."""
    path = run / FOLDER / f"step-{step:08d}"
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        for old in (run / FOLDER).glob(f"*{TEMPORARY_SUFFIX}"):  # of a run that was killed
            shutil.rmtree(old)
        temporary.mkdir(parents=True)
        for name, content in ((WEIGHTS_FILE, weights), (TENSORS_FILE, tensors)):
            save_file({key: tensor.contiguous() for key, tensor in content.items()}, temporary / name)
            _sync(temporary / name)
        write_json(temporary / STATE_FILE, {"format_version": FORMAT_VERSION, "step": step, **state})
        sync_path(temporary)
        temporary.rename(path)
        sync_path(path.parent)
    except (OSError, SafetensorError) as error:  # safetensors has an error of its own for a full disk
        shutil.rmtree(temporary, ignore_errors=True)
        raise OutputError(f"{path}: can't write the checkpoint: {error}; free some space, then --resume") from error
    for old in list_checkpoints(run)[:-keep]:
        shutil.rmtree(old)
    return path


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def load_checkpoint(path: Path) -> tuple[Tensors, Tensors, dict[str, Any]]:
    """Read weights, tensors and state to the CPU. Raises CheckpointError if one is damaged or of another format."""
    if not path.is_dir():
        raise CheckpointError(f"{path}: there is no such checkpoint")
    try:
        state = read_json(path / STATE_FILE)
        version = state["format_version"]
        if version == FORMAT_VERSION:
            return load_file(path / WEIGHTS_FILE), load_file(path / TENSORS_FILE), state
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: can't be read as a checkpoint ({error}); delete it, and --resume goes on from the one before"
        ) from error
    raise CheckpointError(
        f"{path}: format version {version}, allowed is {FORMAT_VERSION}; use the albert-data that wrote it"
    )


def load_model(path: Path) -> Albert:
    """Build the model of a checkpoint, on the CPU, in evaluation mode."""
    weights, _, state = load_checkpoint(path)
    try:
        with torch.device("meta"):
            model = Albert(AlbertConfig(**state["model_config"]))
        model.load_state_dict(weights, assign=True)
    except (TypeError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{path}: its weights are not those of its config ({error})") from error
    return model.eval()


def pack_optimizer(optimizer: torch.optim.Optimizer) -> Tensors:
    """The tensors of an optimiser, by "optimizer.PARAMETER.NAME"."""
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{i}.{name}": tensor for i, tensors in state.items() for name, tensor in tensors.items()}


def unpack_optimizer(optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    """Take over what `pack_optimizer` gave: of no step, or of each parameter all.

    Raises ValueError for anything else, for the fused kernels of PyTorch look at no shape.
    """
    state: dict[int, Tensors] = {}
    for key, tensor in tensors.items():
        room, _, rest = key.partition(".")
        if room == "optimizer":
            number, _, name = rest.partition(".")
            state.setdefault(int(number), {})[name] = tensor
    parameters: list[Tensor] = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if state and set(state) != set(range(len(parameters))):
        raise ValueError("the optimiser's state is not that of its parameters")
    for at, found in state.items():
        shapes = dict.fromkeys(("exp_avg", "exp_avg_sq"), parameters[at].shape)
        if isinstance(optimizer, torch.optim.AdamW):
            shapes["step"] = torch.Size()
        kinds = {name: (tensor.shape, tensor.dtype) for name, tensor in found.items()}
        if kinds != {name: (shape, torch.float32) for name, shape in shapes.items()}:
            raise ValueError(f"the optimiser's state of parameter {at} has other shapes")
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
