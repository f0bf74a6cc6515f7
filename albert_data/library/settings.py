"""The keywords of public functions that are settings, with their types, where type checkers and `help` find them.

tests/test_typing.py holds each class to the dataclass with the defaults: a setting that is added there is added here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, Required, TypedDict

from albert_data.config import BuildConfig
from albert_data.corpus.mixtures import Names
from albert_data.library.arguments import PathName
from albert_data.tokenizer.model import Tokenizer

Normalization = Literal["none", "albert-v2"]
Recipe = Literal["quick", "gpu", "muon", "paper"]
Sizes = Literal["tiny", "mini", "base", "large", "xlarge", "xxlarge"]
Preset = Literal[Sizes, "base-v1", "large-v1", "xlarge-v1", "xxlarge-v1"]


class ArrowStream(Protocol):
    """A table, or a stream of record batches: of pyarrow, pandas, Polars, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


Documents = Iterable[str | dict[str, Any]] | ArrowStream


class SourceSettings(TypedDict, total=False):  # those of TextConfig that a source of a mixture may have of its own
    sentences: Literal["prose", "lines"]
    language: str
    text_field: str
    document_rule: Literal["blank-line", "line", "file"]
    document_separator: str | None
    unwrap: bool
    encoding: str | None
    unicode: Literal["as-is", "nfc"]
    where: str | Sequence[str] | None
    min_chars: int | None
    exclude: str | None
    delimiter: str
    quoting: Literal["auto", "none", "long"]
    header: bool
    format: Literal["auto", "txt", "jsonl", "json", "csv", "tsv", "wiki", "parquet", "arrow"]


class Source(SourceSettings, total=False):
    """A source of a mixture, with the keys of a [[source]] in its file, but `inputs` for `paths`, or `documents`."""

    name: Required[str]
    inputs: Names
    documents: Documents
    weight: float
    tokens: int


class TextSettings(SourceSettings, total=False):  # of TextConfig, and what takes the place of inputs
    documents: Documents | None
    sources: Iterable[Source] | None
    strict: bool
    language_field: str | None
    group_field: str | None
    id_field: str | None
    drop_repeated_lines: int | None
    abbreviations: str | None


class ExampleSettings(TypedDict, total=False):  # of ExampleConfig
    max_seq_len: int
    pairs: Literal["sop", "nsp", "order3", "none"]
    short_seq_prob: float
    masking: Literal["ngram", "span", "word", "token"]
    ngram: int
    mask_prob: float
    replace: str
    whole_word: bool
    dupe_factor: int
    seed: int


class BuildSettings(TextSettings, ExampleSettings, total=False):  # of BuildConfig, and what else makes a build
    validation: Names
    validation_documents: Documents | None
    tokenizer: PathName | Tokenizer | None
    normalization: Normalization
    words: PathName
    special: Mapping[str, str] | None
    config: BuildConfig | None
    validation_fraction: float | None
    num_shards: int | None
    compression: Literal["none", "zstd", "lz4"]
    keep_duplicates: bool
    drop_near_duplicates: bool
    similarity: float
    alpha: float | None
    max_passes: float
    sample: float | None


class VocabSettings(TextSettings, total=False):  # of VocabConfig
    vocab_size: int
    model_type: Literal["unigram", "bpe"]
    character_coverage: float
    required_chars: str
    cased: bool
    dummy_prefix: bool | None
    sample_bytes: int
    seed: int
    normalization: Normalization
    alpha: float | None
    max_passes: float


class ScoreSettings(TypedDict, total=False):  # of ScoreConfig
    batch_tokens: int
    device: str
    precision: Literal["auto", "bf16", "fp16", "fp32"]


class TrainSettings(ScoreSettings, total=False):  # of TrainConfig, without its preset
    steps: int | None
    epochs: float | None
    minutes: float | None
    micro_tokens: int | None
    optimizer: Literal["adamw", "lamb", "muon"]
    lr: float
    warmup_share: float
    weight_decay: float
    beta1: float
    beta2: float
    epsilon: float
    max_grad_norm: float
    dropout: float | None
    remask: bool
    mask_prob: float | None
    last_mask_prob: float | None
    weight_init: Literal["paper", "sinusoid"]
    first_window: int
    window_share: float
    sentence_weight: float
    eval_every: int | None
    eval_rows: int | None
    save_every: int | None
    keep: int
    log_every: int | None
    seed: int
    recompute: bool
    compile: bool | None
    graphs: bool | None
    guesses: bool
    profile: bool
