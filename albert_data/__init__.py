"""albert-data: turns text corpora into ALBERT pretraining shards, exactly and reproducibly.

The public Python interface; docs/guides/python.md shows how to use it. Each name is loaded when it is first
used, so importing the package is fast. The commands call the same functions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from albert_data.errors import (
    AlbertDataError,
    ArgumentError,
    CheckpointError,
    ConfigError,
    InputError,
    OutputError,
    ShardError,
    StorageError,
    TokenizerError,
    WorkerError,
)
from albert_data.version import __version__

if TYPE_CHECKING:
    from albert_data.config import BuildConfig, ExampleConfig, TextConfig, VocabConfig
    from albert_data.convert.conversion import Conversion
    from albert_data.inspect.audit.audit import Audit
    from albert_data.interop.sentence_pairs import ScoreConfig, ScoredPairs
    from albert_data.library.building import build, estimate, train_vocab
    from albert_data.library.documents import document_keys
    from albert_data.library.models import ExportedModel, TrainedRun, export_model, score_model, train_model
    from albert_data.library.settings import Source
    from albert_data.library.shards import (
        Inspection,
        Verification,
        audit_shards,
        convert_shards,
        inspect_shards,
        verify_shards,
    )
    from albert_data.library.tokenizers import load_tokenizer
    from albert_data.pipeline.build import BuildReport
    from albert_data.pipeline.estimate import BuildEstimate
    from albert_data.sentences.text import split_sentences
    from albert_data.shards.decoding import Example
    from albert_data.shards.reader import Shards, open_shards
    from albert_data.tokenizer.model import Tokenizer
    from albert_data.train.config import TrainConfig
    from albert_data.vocab.report import VocabReport

__all__ = ["AlbertDataError", "ArgumentError", "Audit", "BuildConfig", "BuildEstimate", "BuildReport"]
__all__ += ["CheckpointError", "ConfigError", "Conversion", "Example", "ExampleConfig", "ExportedModel"]
__all__ += ["InputError", "Inspection", "OutputError", "ScoreConfig", "ScoredPairs", "ShardError", "Shards"]
__all__ += ["Source", "StorageError", "TextConfig", "Tokenizer", "TokenizerError", "TrainConfig", "TrainedRun"]
__all__ += ["Verification", "VocabConfig", "VocabReport", "WorkerError", "__version__", "audit_shards", "build"]
__all__ += [
    "convert_shards",
    "document_keys",
    "estimate",
    "export_model",
    "inspect_shards",
    "load_tokenizer",
    "open_shards",
]
__all__ += ["score_model", "split_sentences", "train_model", "train_vocab", "verify_shards"]

_MODULES = {
    "config": ("BuildConfig", "ExampleConfig", "TextConfig", "VocabConfig"),
    "convert.conversion": ("Conversion",),
    "inspect.audit.audit": ("Audit",),
    "library.building": ("build", "estimate", "train_vocab"),
    "library.documents": ("document_keys",),
    "library.models": ("ExportedModel", "TrainedRun", "export_model", "score_model", "train_model"),
    "library.shards": (
        *("Inspection", "Verification", "audit_shards", "convert_shards", "inspect_shards", "verify_shards"),
    ),
    "library.settings": ("Source",),
    "library.tokenizers": ("load_tokenizer",),
    "pipeline.build": ("BuildReport",),
    "pipeline.estimate": ("BuildEstimate",),
    "sentences.text": ("split_sentences",),
    "shards.decoding": ("Example",),
    "shards.reader": ("Shards", "open_shards"),
    "tokenizer.model": ("Tokenizer",),
    "train.config": ("TrainConfig",),
    "interop.sentence_pairs": ("ScoreConfig", "ScoredPairs"),
    "vocab.report": ("VocabReport",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'albert_data' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"albert_data.{_MODULE_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
