"""Converts checkpoints to formats of other libraries, and back; gives the rows of a shard folder to their trainers.

Names are imported at their first use: they need torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from albert_data.interop.pack_collator import PackCollator
    from albert_data.interop.torch_dataset import ShardDataset

__all__ = ["PackCollator", "ShardDataset"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'albert_data.interop' has no attribute {name!r}")
    module = "pack_collator" if name == "PackCollator" else "torch_dataset"
    return getattr(importlib.import_module(f"albert_data.interop.{module}"), name)
