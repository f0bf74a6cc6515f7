"""What identifies a build, how another one differs from it, and what a build refuses before it starts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from albert_data.config import BuildConfig, VocabConfig
from albert_data.corpus.inputs import Input
from albert_data.errors import ConfigError, InputError, OutputError
from albert_data.rules import current_versions
from albert_data.shards.manifest import InputEntry, Manifest, Plan, ShardEntry
from albert_data.shards.schema import MAX_INT
from albert_data.storage.files import MAX_BYTES, MAX_VALUES, count_values, to_json
from albert_data.storage.hub import list_commits, name_origin
from albert_data.survey.mixed_sources import describe_sources
from albert_data.text.escaping import name_as_text
from albert_data.text.wording import count_of, list_some
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer
from albert_data.version import __version__

# At most, of a shard in a manifest whose counts have ten digits.
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


def check_size(plan: Plan, num_shards: int = 0) -> None:
    """Raise InputError for more inputs and shards than readers of a manifest accept.

    It names each input in `inputs` and in `plan`.
    """
    data = to_json(plan.to_values())
    if (
        2 * len(data) + _SHARD_BYTES * num_shards > MAX_BYTES
        or 2 * count_values(data) + _SHARD_VALUES * num_shards > MAX_VALUES
    ):
        raise InputError(
            f"the corpus is {count_of(len(plan.inputs), 'file')}, more than a manifest can name beside "
            f"{count_of(num_shards, 'shard')}; join small files, as in: cat folder/*.jsonl > corpus.jsonl, or use a "
            "smaller --num-shards"
        )


def find_other(values: Mapping[str, Any], there: Plan | None, asked: Plan) -> str | None:
    """How a build that is there is not the one that is asked for, as it follows on "holds a build"; None if it is.

    values: those of its plan; there: the same, None if this program can't read them.
    """
    if isinstance(values.get("rules_version"), int) and (rules := _find_other_rules(values, asked)):
        return f"by {rules}"
    if there and (difference := _find_difference(there, asked)):
        return f"of another kind: {difference}"
    return None


def check_finished(manifest: Manifest, plan: Plan, out: Path) -> None:
    """Raise OutputError if a finished build is not the one that is asked for. The message names a difference."""
    if what := find_other(vars(manifest.plan), manifest.plan, plan):
        raise OutputError(
            f"{out} holds a finished build {what}; choose another output folder, or replace it with --overwrite"
        )


def _find_other_rules(there: Mapping[str, Any], here: Plan) -> str | None:
    """Name the rules, Unicode tables or library that made a build, if they are not those of this program.

    A build is a pure function of documents, tokenizer and config only for one version of each. Libraries count because
    they decide bytes: pyarrow writes and compresses the shards; SentencePiece normalises text, tokenises what the chunk
    table can't, and trains vocabularies. Whether two versions differ in that can't be known here. So a build by another
    version is neither taken for the result of this command nor resumed: the user decides, with --overwrite.
    """
    rules = {"rules_version": "other rules", "unicode_version": "other Unicode tables"}
    pairs = [(what, there.get(name), getattr(here, name)) for name, what in rules.items()]
    libraries, new = there.get("libraries"), here.libraries
    old = libraries if isinstance(libraries, Mapping) else {}
    for name in sorted({*old, *new}):
        pairs.append((f"another version of {name}", old.get(name, "none"), new.get(name, "none")))
    return next((f"{what} ({one} there, {other} here)" for what, one, other in pairs if one != other), None)


def _find_difference(there: Plan, asked: Plan) -> str | None:
    """Name the first difference between two plans: a setting with both values, the tokenizer, or an input."""
    old_sources, new_sources = there.mixture or (), asked.mixture or ()
    settings = [("", there.config, asked.config)]
    for old, new in zip(old_sources, new_sources, strict=False):
        settings.append((f" of source {new.name}", vars(old), vars(new)))
    for owner, before, now in settings:
        # A setting of another version, which this one lacks, differs where it was set.
        for name, value in {**dict.fromkeys(before), **now}.items():
            if before.get(name) != value and (name in now or before[name]):
                one, other = (", ".join(f"{one}".splitlines())[:200] for one in (before.get(name), value))
                return f"{name}{owner} is {one} there and {other} here"
    if len(old_sources) != len(new_sources):
        return f"the mixture has {count_of(len(old_sources), 'source')} there and {len(new_sources)} here"
    if there.tokenizer != asked.tokenizer:
        return "the tokenizer differs, or its word list"
    if there.inputs == asked.inputs:
        return None
    names = sorted({f"{item.path:.300}" for item in set(there.inputs) ^ set(asked.inputs)})
    if is_moved(there, asked):
        where = f"time or name alone ({list_some(names, 1)})"
        return f"the inputs differ in {where}; if their text is the same, add --trust-inputs"
    return f"the inputs differ ({list_some(names, 1)})"


def is_moved(there: Plan, asked: Plan) -> bool:
    """Whether inputs differ, one by one in their order, in time or name alone.

    An input that has another time too may lie in another folder, but keeps the name in it.
    """
    if len(there.inputs) != len(asked.inputs):
        return False
    pairs = list(zip(there.inputs, asked.inputs, strict=True))
    stays = {item.path for item in there.inputs} & {item.path for item in asked.inputs}
    for old, new in pairs:
        is_renamed = os.path.basename(old.path) != os.path.basename(new.path)
        if (
            dataclasses.replace(old, path=new.path, modified_ns=new.modified_ns) != new
            or (is_renamed and (old.modified_ns != new.modified_ns or not old.modified_ns))
            or (old.path != new.path and {old.path, new.path} & stays)  # another file has its name now
        ):
            return False
    return there.inputs != asked.inputs


def trust_moved(plan: Plan, there: Plan | None, say: Callable[[str], object]) -> Plan:
    """The plan with the inputs of a build that is there, if its own differ from them in time or name alone."""
    if there is None or not is_moved(there, plan):
        return plan
    say("trusting that the text of the inputs is the same, though they differ in time or name")
    return dataclasses.replace(plan, inputs=there.inputs)
