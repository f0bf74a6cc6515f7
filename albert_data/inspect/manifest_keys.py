"""What the manifest of a shard folder must hold before anyone may count on it.

In: a manifest that `read_manifest` accepted. Out: what is missing or of another kind, and the settings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from albert_data.config import ExampleConfig
from albert_data.errors import ConfigError, ShardError
from albert_data.shards.manifest import MANIFEST_NAME, SPLITS, read_manifest

_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
    dict: "an object",
    list: "a list",
}
_TOP = {
    "albert_data_version": str,
    "config": dict,
    "ngram_shares": list,
    "tokenizer": dict,
    "inputs": list,
    "plan": dict,
    "documents_digest": str,
    "counts": dict,
    "damage": dict,
    "splits": dict,
    "digest": str,
}
_TOTALS = {"num_rows": int, "num_tokens": int, "num_masked": int}
_SHARD = {"file": str, **_TOTALS, "num_bytes": int, "sha256": str}
_SPLIT = {**_TOTALS, "shards": list}
_COUNTS = {"documents": int, "sentences": int, "text_bytes": int, "tokens": int}
_SPECIAL_IDS = {"pad_id": int, "unk_id": int, "cls_id": int, "sep_id": int, "mask_id": int}
_TOKENIZER = {"file": str, "sha256": str, "vocab_size": int, **_SPECIAL_IDS}
_CONFIG = {
    field.name: {"int": int, "float": float, "bool": bool}[str(field.type)]
    for field in dataclasses.fields(ExampleConfig)
}


def read_checked_manifest(folder: Path) -> dict[str, Any]:
    """Read a manifest that holds all it must. Raises ShardError where there is none such."""
    manifest = read_manifest(folder)
    for what in find_key_faults(manifest):
        raise ShardError(f"{folder / MANIFEST_NAME}: {what}; build anew with --overwrite")
    return manifest


def read_example_config(manifest: Mapping[str, Any]) -> ExampleConfig:
    """The settings that the rows were made with. Raises ConfigError where one is out of range."""
    return ExampleConfig(**{name: manifest["config"][name] for name in _CONFIG})


def find_key_faults(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What is missing in a manifest, of another kind than it must be, or out of range."""
    top = list(_compare(manifest, _TOP, ""))
    yield from top
    if top:
        return
    config = list(_compare(manifest["config"], _CONFIG, "config."))
    yield from config or _find_range_faults(manifest)
    yield from _compare(manifest["tokenizer"], _TOKENIZER, "tokenizer.")
    yield from _compare(manifest["counts"], _COUNTS, "counts.")
    yield from _compare(manifest["damage"], dict.fromkeys(manifest["damage"], int), "damage.")
    for name, split in manifest["splits"].items():
        yield from _find_split_faults(name, split)


def _find_range_faults(manifest: Mapping[str, Any]) -> Iterator[str]:
    try:
        read_example_config(manifest)
    except ConfigError as error:
        yield f"config.{error}"


def _find_split_faults(name: str, split: object) -> Iterator[str]:
    if name not in SPLITS:
        yield f"splits holds {name!r}; allowed are {', '.join(SPLITS)}"
        return
    faults = list(_compare(split, _SPLIT, f"splits.{name}."))
    yield from faults
    if isinstance(split, dict) and not faults:
        for i, shard in enumerate(split["shards"]):
            yield from _compare(shard, _SHARD, f"splits.{name}.shards[{i}].")


def _compare(value: object, kinds: Mapping[str, type], where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where.removesuffix('.')} is {value!r:.40}; an object is needed"
        return
    for key, kind in kinds.items():
        if key not in value:
            yield f"{where}{key} is missing; {_KINDS[kind]} is needed"
        elif not _is_kind(value[key], kind):
            yield f"{where}{key} is {value[key]!r:.40}; {_KINDS[kind]} is needed"


def _is_kind(value: object, kind: type) -> bool:
    if kind in (int, float) and isinstance(value, bool):
        return False
    if isinstance(value, str) and not value.isprintable() and not _is_utf8(value):
        return False
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def _is_utf8(value: str) -> bool:
    """Whether it is text: JSON can write half a surrogate pair, which nothing can print or open."""
    try:
        return value.encode() is not None
    except UnicodeEncodeError:
        return False
