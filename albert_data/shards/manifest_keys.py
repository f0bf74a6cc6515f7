"""What the manifest of a shard folder must hold before anyone may count on it.

In: the values of a manifest. Out: what is missing, of another kind or out of range, and the settings. A key that is not
known is no fault.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from albert_data.config import BuildConfig, ExampleConfig
from albert_data.errors import ConfigError

SPLITS = ("train", "validation")


class _Count(int):
    """The kind of what is counted: no boolean, and not below 0."""


_KINDS = {
    int: "a whole number",
    _Count: "a whole number from 0 on",
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
_TOTALS = {"num_rows": _Count, "num_tokens": _Count, "num_masked": _Count}
_SHARD = {"file": str, **_TOTALS, "num_bytes": _Count, "sha256": str}
_SPLIT = {**_TOTALS, "shards": list}
_COUNTS = {"documents": _Count, "sentences": _Count, "text_bytes": _Count, "tokens": _Count}
_SPECIAL_IDS = {"pad_id": _Count, "unk_id": _Count, "cls_id": _Count, "sep_id": _Count, "mask_id": _Count}
_TOKENIZER = {"file": str, "sha256": str, "vocab_size": _Count, **_SPECIAL_IDS}
_INPUT = {"path": str, "bytes": _Count, "modified_ns": int}
_PLAN = {"version": str, "config": dict, "tokenizer": dict, "inputs": list}
_CONFIG = {
    field.name: {"int": int, "float": float, "bool": bool}[str(field.type)]
    for field in dataclasses.fields(ExampleConfig)
}
# Settings that the reading of rows does not need: a manifest may lack one that came in a later version.
_OTHER_CONFIG = {
    name: type(value)
    for name, value in BuildConfig().to_flat_dict().items()
    if name not in _CONFIG and value is not None
}


def read_example_config(manifest: Mapping[str, Any]) -> ExampleConfig:
    """The settings that the rows were made with. Raises ConfigError where one is out of range."""
    return ExampleConfig(**{name: manifest["config"][name] for name in _CONFIG})


def find_key_faults(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What is missing in a manifest, of another kind than it must be, or out of range."""
    top = list(_compare(manifest, _TOP, ""))
    yield from top
    if top:
        return
    yield from _find_config_faults(manifest)
    yield from _find_tokenizer_faults(manifest["tokenizer"])
    yield from _compare(manifest["counts"], _COUNTS, "counts.")
    yield from _compare(manifest["damage"], dict.fromkeys(manifest["damage"], _Count), "damage.")
    yield from _compare_items(manifest["inputs"], _INPUT, "inputs")
    yield from find_plan_faults(manifest["plan"], "plan.")
    if "card" in manifest:  # version 0.3.0 recorded none
        yield from _compare(manifest["card"], {"file": str, "sha256": str}, "card.")
    for i, share in enumerate(manifest["ngram_shares"]):
        yield from _compare_value(share, float, f"ngram_shares[{i}]")
    for name, split in manifest["splits"].items():
        yield from _find_split_faults(name, split)


def find_plan_faults(plan: object, where: str = "") -> Iterator[str]:
    """The same in what a build knows its own command again by. where: what stands before the names of keys."""
    faults = list(_compare(plan, _PLAN, where))
    yield from faults
    if isinstance(plan, dict) and not faults:
        yield from _compare_items(plan["inputs"], _INPUT, f"{where}inputs")


def _find_config_faults(manifest: Mapping[str, Any]) -> Iterator[str]:
    config = manifest["config"]
    faults = list(_compare(config, _CONFIG, "config."))
    yield from faults or _find_range_faults(manifest)
    yield from _compare(config, {name: kind for name, kind in _OTHER_CONFIG.items() if name in config}, "config.")


def _find_range_faults(manifest: Mapping[str, Any]) -> Iterator[str]:
    try:
        read_example_config(manifest)
    except ConfigError as error:
        yield f"config.{error}"


def _find_tokenizer_faults(tokenizer: Mapping[str, Any]) -> Iterator[str]:
    faults = list(_compare(tokenizer, _TOKENIZER, "tokenizer."))
    yield from faults
    if not faults:
        for name in _SPECIAL_IDS:
            if tokenizer[name] >= tokenizer["vocab_size"]:
                allowed = f"allowed are ids below vocab_size, {tokenizer['vocab_size']}"
                yield f"tokenizer.{name} is {tokenizer[name]}; {allowed}"


def _find_split_faults(name: str, split: object) -> Iterator[str]:
    if name not in SPLITS:
        yield f"splits holds {name!a:.40}; allowed are {', '.join(SPLITS)}"
        return
    faults = list(_compare(split, _SPLIT, f"splits.{name}."))
    yield from faults
    if isinstance(split, dict) and not faults:
        yield from _compare_items(split["shards"], _SHARD, f"splits.{name}.shards")


def _compare_items(values: list[object], kinds: Mapping[str, type], where: str) -> Iterator[str]:
    for i, value in enumerate(values):
        yield from _compare(value, kinds, f"{where}[{i}].")


def _compare(value: object, kinds: Mapping[str, type], where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield from _compare_value(value, dict, where.removesuffix(".") or "it")
        return
    for key, kind in kinds.items():
        if key not in value:
            yield f"{where}{key} is missing; {_KINDS[kind]} is needed"
        else:
            yield from _compare_value(value[key], kind, f"{where}{key}")


def _compare_value(value: object, kind: type, where: str) -> Iterator[str]:
    if not _is_kind(value, kind):
        yield f"{where} is {value!r:.40}; {_KINDS[kind]} is needed"


def _is_kind(value: object, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is _Count:
        return isinstance(value, int) and value >= 0
    return isinstance(value, (int, float) if kind is float else kind)
