"""Trains a model on a shard folder: batches, model, checkpoints. Only this room and `interop` import torch.

The two classes are imported at their first use: --help reads the config, and would otherwise wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from albert_data.train.batch import Batch
    from albert_data.train.loader import ShardLoader

__all__ = ["Batch", "ShardLoader"]

_HOMES = {"Batch": "albert_data.train.batch", "ShardLoader": "albert_data.train.loader"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'albert_data.train' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
