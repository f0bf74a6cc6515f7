"""albert-data: turns text corpora into ALBERT pretraining shards, exactly and reproducibly.

The public Python interface; docs/guides/python.md shows how to use it. Each name is loaded when it is first
used, so importing the package is fast. The commands call the same functions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from albert_data.version import __version__

if TYPE_CHECKING:
    from albert_data.config import BuildConfig, ExampleConfig, TextConfig, VocabConfig
    from albert_data.errors import AlbertDataError
    from albert_data.pipeline.build import BuildReport, build
    from albert_data.sentences.text import split_sentences
    from albert_data.shards.reader import Example, Shards, open_shards
    from albert_data.tokenizer.model import Tokenizer, load_tokenizer
    from albert_data.vocab.learning import train_vocab
    from albert_data.vocab.report import VocabReport

__all__ = [
    "AlbertDataError",
    "BuildConfig",
    "BuildReport",
    "Example",
    "ExampleConfig",
    "Shards",
    "TextConfig",
    "Tokenizer",
    "VocabConfig",
    "VocabReport",
    "__version__",
    "build",
    "load_tokenizer",
    "open_shards",
    "split_sentences",
    "train_vocab",
]

_MODULES = {
    "albert_data.config": ("BuildConfig", "ExampleConfig", "TextConfig", "VocabConfig"),
    "albert_data.errors": ("AlbertDataError",),
    "albert_data.pipeline.build": ("BuildReport", "build"),
    "albert_data.vocab.learning": ("VocabReport", "train_vocab"),
    "albert_data.sentences.text": ("split_sentences",),
    "albert_data.shards.reader": ("Example", "Shards", "open_shards"),
    "albert_data.tokenizer.model": ("Tokenizer", "load_tokenizer"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'albert_data' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
