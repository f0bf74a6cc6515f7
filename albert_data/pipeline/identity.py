"""What identifies a build, and what inputs a build refuses before it starts."""

from __future__ import annotations

import dataclasses

import albert_data
from albert_data.config import AUTO, BuildConfig, VocabConfig
from albert_data.corpus.formats.recognition import TABLES
from albert_data.corpus.inputs import Input
from albert_data.errors import ConfigError, InputError
from albert_data.escaping import name_as_text
from albert_data.files import MAX_BYTES, MAX_VALUES
from albert_data.pipeline.mixed_sources import describe_sources
from albert_data.rules import current_versions
from albert_data.shards.manifest import InputEntry, Plan
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer

# Estimates for an input, on average of its entries in `inputs` and in `plan`. Bytes of JSON beside its path: keys, a
# size of up to 10 digits, a time of 19, a language, white space; escapes in the path are not counted. Values: the entry
# and its fields.
_INPUT_BYTES, _INPUT_VALUES = 130, 1 + len(dataclasses.fields(InputEntry))


def make_plan(inputs: list[Input], tokenizer: Tokenizer | None, config: BuildConfig, vocab: VocabConfig) -> Plan:
    """What identifies a build, so that the same command recognises it later."""
    packages = [*(tokenizer.packages if tokenizer else ()), *_list_detectors(inputs)]
    rules_version, unicode_version, libraries = current_versions(packages)
    return Plan(
        version=albert_data.__version__,
        rules_version=rules_version,
        unicode_version=unicode_version,
        libraries=libraries,
        config=config.to_flat_dict(),
        tokenizer={"trained": vocab.to_dict()} if tokenizer is None else _identify(tokenizer),
        inputs=tuple(
            InputEntry(
                path=name_as_text(item.path),
                bytes=item.size,
                modified_ns=item.modified_ns,
                language=item.language,
                split="validation" if item.is_validation else None,
                encoding=item.encoding if item.is_encoding_found else None,
            )
            for item in inputs
        ),
        mixture=describe_sources(inputs),
    )


def _list_detectors(inputs: list[Input]) -> list[str]:
    """The library that decides encodings, if one was to be found."""
    return ["chardet"] if any(item.is_encoding_found for item in inputs) else []


def _identify(tokenizer: Tokenizer) -> dict[str, str]:
    normalization = {} if tokenizer.normalization == "none" else {"normalization": tokenizer.normalization}
    file = {} if tokenizer.file_name == MODEL_NAME else {"file": tokenizer.file_name}
    words = {} if tokenizer.words_sha256 is None else {"words": tokenizer.words_sha256}
    return {"sha256": tokenizer.sha256, **normalization, **file, **words}


def choose_fraction(inputs: list[Input], config: BuildConfig) -> BuildConfig:
    """The settings, with a validation_fraction of 0 if there are inputs for validation.

    Raises ConfigError if they have another one than the default.
    """
    if not any(item.is_validation for item in inputs):
        return config
    if config.validation_fraction not in (0, BuildConfig.validation_fraction):
        raise ConfigError(
            f"validation_fraction is {config.validation_fraction}, but inputs for validation are given; leave one out"
        )
    return dataclasses.replace(config, validation_fraction=0.0)


def check_encoding(inputs: list[Input], config: BuildConfig) -> None:
    encoding = config.text.encoding
    texts = [item for item in inputs if item.format not in TABLES and item.source is None]
    if encoding not in (None, "utf-8") and any(
        not item.is_encoding_found if encoding == AUTO else item.encoding != encoding for item in texts
    ):
        raise InputError(
            f"the inputs were not found with the encoding of the settings, {encoding}; "
            "pass these settings to find_inputs: find_inputs(names, text=config.text)"
        )


def check_size(plan: Plan) -> None:
    """Raise InputError for more inputs than readers of a manifest accept: it names each in `inputs` and in `plan`."""
    inputs = plan.inputs
    num_bytes = sum(len(item.path.encode()) + _INPUT_BYTES for item in inputs)
    if 2 * num_bytes > MAX_BYTES or 2 * _INPUT_VALUES * len(inputs) > MAX_VALUES:
        raise InputError(
            f"the corpus is {len(inputs):,} files, more than a manifest can name; "
            "join small files, as in: cat folder/*.jsonl > corpus.jsonl"
        )
