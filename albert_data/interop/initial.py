"""Loads, from another run, a checkpoint or a Hugging Face folder, the weights that a run begins with."""

from __future__ import annotations

from pathlib import Path

from albert_data.errors import CheckpointError
from albert_data.files import hash_file
from albert_data.interop.huggingface import import_model
from albert_data.tokenizer.model import MODEL_NAME
from albert_data.train.checkpoint import STATE_FILE, list_checkpoints, load_checkpoint, load_model
from albert_data.train.folder import RUN_FILE, TOKENIZER_KEY
from albert_data.train.session import Initial


def load_initial(path: Path) -> Initial:
    """Load weights to begin with.

    Raises CheckpointError if they are missing or damaged, ConfigError for another kind of model.
    """
    if (path / RUN_FILE).is_file():
        checkpoints = list_checkpoints(path)
        if not checkpoints:
            raise CheckpointError(
                f"{path}: the run has no checkpoint yet; begin with another run, or without --init-from"
            )
        path = checkpoints[-1]
    if (path / STATE_FILE).is_file():
        _, _, state = load_checkpoint(path)
        identity = state.get("identity")
        if not isinstance(identity, dict):
            raise CheckpointError(
                f"{path / STATE_FILE}: lacks identity, so its vocabulary is not known; "
                "begin with another checkpoint, or without --init-from"
            )
        return Initial(model=load_model(path), tokenizer_sha256=identity.get(TOKENIZER_KEY), origin=path)
    if (path / "config.json").is_file():
        tokenizer = path / MODEL_NAME
        digest = hash_file(tokenizer) if tokenizer.is_file() else None
        return Initial(model=import_model(path), tokenizer_sha256=digest, origin=path)
    raise CheckpointError(
        f"{path}: holds no weights to begin with; --init-from takes a run, a checkpoint, or a Hugging Face folder"
    )
