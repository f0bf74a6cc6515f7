"""What identifies a build, how another one differs from it, and what inputs a build refuses before it starts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from albert_data.config import AUTO, BuildConfig, VocabConfig
from albert_data.corpus.formats.recognition import TABLES
from albert_data.corpus.inputs import Input
from albert_data.errors import ConfigError, InputError, OutputError
from albert_data.rules import current_versions
from albert_data.shards.manifest import InputEntry, Manifest, Plan, ShardEntry, SourceEntry
from albert_data.shards.manifest_file import MAX_INT
from albert_data.storage.files import MAX_BYTES, MAX_VALUES
from albert_data.storage.hub import list_commits, name_origin
from albert_data.survey.mixed_sources import describe_sources
from albert_data.text.escaping import name_as_text
from albert_data.text.wording import count_of, list_some
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer
from albert_data.version import __version__

# Estimates for an input, on average of its entries in `inputs` and in `plan`. Bytes of JSON beside its path: keys, a
# size of up to 10 digits, a time of 19, a language, white space; escapes in the path are not counted. Values: the entry
# and its fields.
_INPUT_BYTES, _INPUT_VALUES = 130, 1 + len(dataclasses.fields(InputEntry))
# At most, for a shard whose counts have ten digits.
_SHARD_BYTES, _SHARD_VALUES = 380, 1 + len(dataclasses.fields(ShardEntry))


def make_plan(inputs: list[Input], tokenizer: Tokenizer | None, config: BuildConfig, vocab: VocabConfig) -> Plan:
    """What identifies a build, so that the same command recognises it later."""
    packages = [*(tokenizer.packages if tokenizer else ())]
    if any(item.is_encoding_found for item in inputs):
        packages.append("chardet")  # which decides encodings
    rules_version, unicode_version, libraries = current_versions(packages)
    return Plan(
        version=__version__,
        rules_version=rules_version,
        unicode_version=unicode_version,
        libraries=libraries,
        config=config.to_flat_dict(),
        tokenizer={"trained": vocab.to_dict()} if tokenizer is None else _identify(tokenizer),
        inputs=tuple(
            InputEntry(
                path=name_origin(item.path) or name_as_text(item.path),
                bytes=item.size,
                # The name of a file of the Hub has its commit. A year beyond 2262 is no whole number of readers.
                modified_ns=0 if name_origin(item.path) else max(-MAX_INT, min(item.modified_ns, MAX_INT)),
                language=item.language,
                split="validation" if item.is_validation else None,
                encoding=item.encoding if item.is_encoding_found else None,
            )
            for item in inputs
        ),
        mixture=describe_sources(inputs),
        hub=list_commits(),
    )


def _identify(tokenizer: Tokenizer) -> dict[str, str]:
    normalization = {} if tokenizer.normalization == "none" else {"normalization": tokenizer.normalization}
    file = {} if tokenizer.file_name == MODEL_NAME else {"file": tokenizer.file_name}
    words = {} if tokenizer.words_sha256 is None else {"words": tokenizer.words_sha256}
    return {"sha256": tokenizer.sha256, **normalization, **file, **words}


def choose_fraction(inputs: list[Input], config: BuildConfig) -> BuildConfig:
    """The settings, with a validation_fraction of 0 if there are inputs for validation.

    Raises ConfigError if they have another one.
    """
    if not any(item.is_validation for item in inputs):
        return config
    if config.validation_fraction not in (0, None):
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


def check_size(plan: Plan, num_shards: int = 0) -> None:
    """Raise InputError for more inputs and shards than readers of a manifest accept.

    It names each input in `inputs` and in `plan`.
    """
    inputs = plan.inputs
    num_bytes = sum(len(item.path.encode()) + _INPUT_BYTES for item in inputs)
    if 2 * num_bytes > MAX_BYTES or 2 * _INPUT_VALUES * len(inputs) > MAX_VALUES:
        raise InputError(
            f"the corpus is {len(inputs):,} files, more than a manifest can name; "
            "join small files, as in: cat folder/*.jsonl > corpus.jsonl"
        )
    most = min(
        (MAX_BYTES - 2 * num_bytes) // _SHARD_BYTES, (MAX_VALUES - 2 * _INPUT_VALUES * len(inputs)) // _SHARD_VALUES
    )
    if num_shards > most:
        raise InputError(
            f"the build has {num_shards:,} shards, and beside {count_of(len(inputs), 'input')} a manifest can name "
            f"{most:,}; use a smaller --num-shards, or join small inputs"
        )


def check_finished(manifest: Manifest, plan: Plan, out: Path) -> None:
    """Raise OutputError if a finished build is not the one that is asked for. The message names a difference."""
    if other_rules := find_other_rules(manifest.plan, plan):
        raise OutputError(
            f"{out} holds a finished build by {other_rules}; "
            "the same command may make other rows now: replace it with --overwrite, or choose another output folder"
        )
    if difference := find_difference(manifest.plan, plan):
        raise OutputError(
            f"{out} holds a finished build of another kind: {difference}; "
            "choose another output folder, or replace it with --overwrite"
        )


def find_other_rules(there: Plan, here: Plan) -> str | None:
    """Name the rules, Unicode tables or library that made a build, if they are not those of this program.

    A build is a pure function of documents, tokenizer and config only for one version of each. Libraries count because
    they decide bytes: pyarrow writes and compresses the shards; SentencePiece normalises text, tokenises what the chunk
    table can't, and trains vocabularies. Whether two versions differ in that can't be known here. So a build by another
    version is neither taken for the result of this command nor resumed: the user decides, with --overwrite.
    """
    if there.rules_version != here.rules_version:
        # Newer rules don't come this far: manifests and plans of theirs are refused when they are read.
        return f"older rules (version {there.rules_version}, this is {here.rules_version})"
    if there.unicode_version != here.unicode_version:
        return f"other Unicode tables ({there.unicode_version} there, {here.unicode_version} here)"
    old, new = there.libraries, here.libraries
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            return f"another version of {name} ({old.get(name, 'none')} there, {new.get(name, 'none')} here)"
    return None


def find_difference(there: Plan, asked: Plan) -> str | None:
    """Name the first difference between two plans: a setting with both values, the tokenizer, or an input."""
    for name, new in asked.config.items():
        if (old := there.config.get(name)) != new:
            return f"{name} is {old} there and {new} here"
    if there.mixture != asked.mixture:
        return _find_mixed_difference(there.mixture or (), asked.mixture or ())
    if there.tokenizer != asked.tokenizer:
        is_list = {**there.tokenizer, "words": None} == {**asked.tokenizer, "words": None}
        return f"the {'word list' if is_list else 'tokenizer'} differs"
    if there.inputs != asked.inputs:
        if renamed := find_renaming(there, asked):
            return f"the inputs differ in {renamed}; if their text is the same, add --trust-inputs"
        changed = sorted({item.path for item in set(there.inputs) ^ set(asked.inputs)})
        old, new = ({item.path: f"{item.bytes:,}" for item in plan.inputs}.get(changed[0]) for plan in (there, asked))
        sizes = f": {old} bytes there, {new} here" if old and new and old != new else ""
        return f"the inputs differ ({list_some([f'{name:.300}' for name in changed], 1)}{sizes})"
    return None


def find_renaming(there: Plan, asked: Plan) -> str | None:
    """What differs between inputs that differ, one by one in their order, in time or name alone; None for others.

    An input that has another time too may lie in another folder, but keeps the name in it.
    """
    kinds, names = set[str](), list[str]()
    stays = {item.path for item in there.inputs} & {item.path for item in asked.inputs}
    for old, new in zip_longest(there.inputs, asked.inputs):
        if not old or not new or dataclasses.replace(old, path=new.path, modified_ns=new.modified_ns) != new:
            return None
        is_touched, is_moved = old.modified_ns != new.modified_ns, old.path != new.path
        if (is_touched or not old.modified_ns) and os.path.basename(old.path) != os.path.basename(new.path):
            return None
        if is_moved and {old.path, new.path} & stays:  # another file has its name now
            return None
        kinds |= {kind for kind, found in (("time", is_touched), ("name", is_moved)) if found}
        names += [f"{old.path:.200}, here {new.path:.200}" if is_moved else old.path] if old != new else []
    return f"{' and '.join(sorted(kinds))} alone ({list_some(names, 1)})"


def _find_mixed_difference(there: Sequence[SourceEntry], asked: Sequence[SourceEntry]) -> str:
    for old, new in zip(there, asked, strict=False):
        for name, value in vars(new).items():
            if getattr(old, name) != value:
                return f"{name} of source {new.name} is {_show(getattr(old, name))} there and {_show(value)} here"
    return f"the mixture has {count_of(len(there), 'source')} there and {len(asked)} here"


def _show(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)
