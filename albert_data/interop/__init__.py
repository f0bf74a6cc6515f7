"""Converts checkpoints to formats of other libraries, and back; gives the rows of a shard folder to their trainers.

`ShardDataset` is imported at its first use: it needs torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from albert_data.interop.torch_dataset import ShardDataset

__all__ = ["ShardDataset"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'albert_data.interop' has no attribute {name!r}")
    return getattr(importlib.import_module("albert_data.interop.torch_dataset"), name)
