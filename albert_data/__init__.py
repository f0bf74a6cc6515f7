"""albert-data: text corpora into ALBERT pretraining shards, exactly and reproducibly.

The public Python interface; each name is loaded on first use, so that importing the package is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from albert_data.sentences.text import split_sentences
    from albert_data.shards.reader import Shards, open_shards
    from albert_data.tokenizer.model import Tokenizer, load_tokenizer

__version__ = "0.3.0"
__all__ = ["Shards", "Tokenizer", "__version__", "load_tokenizer", "open_shards", "split_sentences"]

_HOMES = {
    "Shards": "albert_data.shards.reader",
    "open_shards": "albert_data.shards.reader",
    "split_sentences": "albert_data.sentences.text",
    "Tokenizer": "albert_data.tokenizer.model",
    "load_tokenizer": "albert_data.tokenizer.model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'albert_data' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
