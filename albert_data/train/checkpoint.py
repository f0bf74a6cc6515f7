"""Checkpoints: folders that appear complete or not at all. A run resumes from the newest.

    RUN/checkpoints/step-00001000/  model.safetensors  training.safetensors  state.json

model.safetensors has the weights by the names of model.py; training.safetensors the tensors of the optimiser;
state.json everything else. No file holds code, and nothing is unpickled. Only these three files are ever removed, and a
folder only if it holds nothing else. A link is never removed, but read like what it points to.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save_file
from torch import Tensor

from albert_data.errors import CheckpointError, ConfigError, OutputError
from albert_data.storage import find_storage
from albert_data.storage.files import TEMPORARY_SUFFIX, is_regular, sync_path
from albert_data.text.escaping import name_as_text
from albert_data.train.config import AlbertConfig
from albert_data.train.folder import CHECKPOINTS_FOLDER, check_shape
from albert_data.train.model import Albert
from albert_data.train.reading import advise, explain, read_object, show

FORMAT_VERSION = 2
WEIGHTS_FILE, TENSORS_FILE, STATE_FILE = "model.safetensors", "training.safetensors", "state.json"
FILES = (WEIGHTS_FILE, TENSORS_FILE, STATE_FILE)

Tensors = dict[str, Tensor]


def list_checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first: folders named step-N with a file of a checkpoint."""
    named = (path for path in (run / CHECKPOINTS_FOLDER).glob("step-*") if re.fullmatch(r"step-[0-9]{8,}", path.name))
    found = (path for path in named if any((path / name).exists() for name in FILES))
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def find_newest(run: Path, advice: str) -> Path:
    """Return the newest checkpoint. Raises CheckpointError, with advice, if there is none."""
    checkpoints = list_checkpoints(run)
    if not checkpoints:
        raise CheckpointError(f"{run}: the run has no checkpoint yet; {advice}")
    return checkpoints[-1]


def save_checkpoint(run: Path, step: int, *, weights: Tensors, tensors: Tensors, state: dict[str, Any]) -> Path:
    """Write the checkpoint of a step. On a full disk it removes what it wrote and raises OutputError."""
    folder = run / CHECKPOINTS_FOLDER
    path = folder / f"step-{step:08d}"
    with _explain_failure(path):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"step-*{TEMPORARY_SUFFIX}"):  # left by a run that was killed
            if re.fullmatch(r"step-[0-9]{8,}\.[0-9a-f]+\.tmp", old.name):
                _remove(old)
        temporary = _name_temporary(path)
        try:
            temporary.mkdir()
            text = json.dumps({"format_version": FORMAT_VERSION, "step": step, **state}, indent=2, sort_keys=True)
            (temporary / STATE_FILE).write_text(text + "\n")
            sync_path(temporary / STATE_FILE)
            # safetensors makes its files readable only by their owner, whatever the umask is.
            mode = stat.S_IMODE((temporary / STATE_FILE).stat().st_mode)
            for name, content in ((WEIGHTS_FILE, weights), (TENSORS_FILE, tensors)):
                save_file({key: tensor.contiguous() for key, tensor in content.items()}, temporary / name)
                (temporary / name).chmod(mode)
                sync_path(temporary / name)
            sync_path(temporary)
            temporary.rename(path)
        except BaseException:
            _remove(temporary)
            raise
        sync_path(folder)
    return path


def _name_temporary(path: Path) -> Path:
    return path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")


@contextmanager
def _explain_failure(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:  # safetensors raises its own error for a full disk
        if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.ENOTDIR, errno.EEXIST):
            raise OutputError(f"{path} is not a checkpoint of this run; move it away, then --resume") from error
        raise OutputError(
            f"{path}: can't write the checkpoint: {error}; older ones are complete: free some space, then --resume"
        ) from error


def prune_checkpoints(run: Path, *, keep: int) -> None:
    """Remove all checkpoints except the last `keep`. Links stay, and so do folders with other files in them."""
    for path in list_checkpoints(run)[:-keep]:
        with _explain_failure(path):
            if _holds_only_ours(path):
                renamed = path.rename(_name_temporary(path))  # so that a kill leaves no half of it under this name
                _remove(renamed)
            elif not path.is_symlink():
                _remove_files(path)


def _holds_only_ours(folder: Path) -> bool:
    if folder.is_symlink() or not folder.is_dir():
        return False
    return all(name in FILES and is_regular(folder / name) for name in os.listdir(folder))


def _remove(folder: Path) -> None:
    """Remove a folder that we made, if it holds only our files."""
    if _holds_only_ours(folder):
        _remove_files(folder)
        folder.rmdir()


def _remove_files(folder: Path) -> None:
    for path in (folder / name for name in FILES):
        if is_regular(path):
            path.unlink()


def load_checkpoint(path: Path) -> tuple[Tensors, Tensors, dict[str, Any]]:
    """Read weights, tensors and state to the CPU. Raises CheckpointError if one is damaged or has another format."""
    if not path.is_dir():
        raise CheckpointError(f"{path}: there is no such checkpoint")
    try:
        state = read_object(path / STATE_FILE)
        version = state["format_version"]
        if version == FORMAT_VERSION:
            weights = load_tensors(path / WEIGHTS_FILE)
            for name, tensor in weights.items():
                if tensor.dtype != torch.float32:
                    raise ValueError(f"{name} is of {tensor.dtype}; torch.float32 is needed")
            return weights, load_tensors(path / TENSORS_FILE), state
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path} can't be read as a checkpoint ({explain(error)}); "
            f"{advise(error, 'delete it, and --resume continues from the one before')}"
        ) from error
    raise CheckpointError(
        f"{path}: format version {show(version)}, allowed is {FORMAT_VERSION}; use the albert-data that wrote it"
    )


def load_tensors(path: Path) -> Tensors:
    """Read a safetensors file to the CPU. Raises OSError, and ValueError if it is damaged."""
    try:
        with find_storage(path).open(path) as file:  # a regular file; safetensors opens names in UTF-8 only
            return load_file(path) if name_as_text(path) == str(path) else load(file.read())
    except OSError:
        raise
    except Exception as error:  # safetensors and torch raise many kinds of errors for damaged files
        raise ValueError(f"{path.name}: {explain(error)}") from error


def load_model(path: Path) -> Albert:
    """Build the model of a checkpoint, on the CPU, in evaluation mode."""
    weights, _, state = load_checkpoint(path)
    try:
        check_shape(state["model_config"])
        with torch.device("meta"):  # allocates nothing: a damaged config may name huge sizes
            model = Albert(AlbertConfig(**state["model_config"]))
        model.load_state_dict(weights, assign=True)
    except (TypeError, KeyError, RuntimeError, ConfigError) as error:
        raise CheckpointError(f"{path}: its weights do not match its config ({explain(error)})") from error
    return model.eval()
