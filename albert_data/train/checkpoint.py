"""Checkpoints: files that appear whole or not at all, and the newest of which a run goes on from.

RUN/checkpoints/step-00001000.pt holds, as tensors, numbers and strings alone: model, optimizer, scaler,
step, random states, the sums of the open metrics line, the configs, the run's identity. It is read
with weights_only=True, so no code hides in it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from albert_data.errors import CheckpointError, OutputError
from albert_data.files import replace_file
from albert_data.train.config import AlbertConfig
from albert_data.train.model import Albert

FORMAT_VERSION = 1
FOLDER = "checkpoints"
NUM_KEPT = 2


def list_checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    found = (run / FOLDER).glob("step-*.pt")
    return sorted((path for path in found if re.fullmatch(r"step-\d+\.pt", path.name)), key=_step_of)


def save_checkpoint(run: Path, step: int, state: dict[str, Any]) -> Path:
    """Write the checkpoint of a step, then delete all but the last two. Raises OutputError on a full disk."""
    path = run / FOLDER / f"step-{step:08d}.pt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as file:
            torch.save({"format_version": FORMAT_VERSION, "step": step, **state}, file)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        raise OutputError(f"{path}: can't write the checkpoint: {error}; free some space, then --resume") from error
    for old in list_checkpoints(run)[:-NUM_KEPT]:
        old.unlink()
    return path


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint to the CPU. Raises CheckpointError if it is damaged or of another format."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        version = state["format_version"]
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: there is no such checkpoint") from error
    except Exception as error:  # torch.load raises whatever the damaged bytes lead it to
        raise CheckpointError(
            f"{path}: can't be read as a checkpoint ({type(error).__name__}); delete it, and --resume "
            "goes on from the one before"
        ) from error
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format version {version}, allowed is {FORMAT_VERSION}; use the albert-data that wrote it"
        )
    return state


def load_model(path: Path) -> Albert:
    """Build the model of a checkpoint, on the CPU, in evaluation mode."""
    state = load_checkpoint(path)
    model = Albert(AlbertConfig(**state["model_config"]))
    model.load_state_dict(state["model"])
    return model.eval()


def _step_of(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))
