"""Whether a manifest was changed after it was written.

In: a manifest whose keys are there. Out: what of it contradicts the rest of it. Its seal tells that any value
was changed; what it says twice, or what follows from its other values, tells which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from albert_data.examples.spans import ngram_shares
from albert_data.shards.manifest import SEAL, hash_content, hash_manifest

_ABSENT = "missing"
_TOTALS = ("num_rows", "num_tokens", "num_masked")


def find_value_faults(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What was changed, a line each."""
    found = 0
    for fault in chain(_compare_plan(manifest), _compare_derived(manifest), _compare_totals(manifest["splits"])):
        found += 1
        yield fault
    if SEAL not in manifest:
        yield f"{SEAL} is missing, so that its values can't be trusted; move it away and build anew"
    elif manifest[SEAL] != (sealed := hash_manifest(manifest)):
        hint = "" if found else ": some value was changed, wherever it stands"
        yield f"its values have the SHA-256 {sealed}; {SEAL} says {manifest[SEAL]!s:.64}{hint}"


def _compare_plan(manifest: Mapping[str, Any]) -> Iterator[str]:
    """The plan, by which a build knows its own command again, says most of the manifest a second time."""
    plan = manifest["plan"]
    twice = [
        *(
            (f"config.{name}", manifest["config"].get(name, _ABSENT), _get(plan.get("config"), name))
            for name in sorted(manifest["config"].keys() | _keys(plan.get("config")))
        ),
        ("albert_data_version", manifest["albert_data_version"], plan.get("version", _ABSENT)),
        ("inputs", manifest["inputs"], plan.get("inputs", _ABSENT)),
    ]
    if "sha256" in _keys(plan.get("tokenizer")):  # or the build trained it
        twice.append(("tokenizer.sha256", manifest["tokenizer"]["sha256"], plan["tokenizer"]["sha256"]))
    for name, value, planned in twice:
        if value != planned or type(value) is not type(planned):
            yield f"{name} is {_shorten(value)}; plan says {_shorten(planned)}"


def _keys(value: object) -> set[str]:
    return set(value) if isinstance(value, dict) else set()


def _get(value: object, name: str) -> object:
    return value.get(name, _ABSENT) if isinstance(value, dict) else _ABSENT


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _compare_derived(manifest: Mapping[str, Any]) -> Iterator[str]:
    shares = ngram_shares(manifest["config"]["ngram"]).tolist()
    if manifest["ngram_shares"] != shares:
        yield f"ngram_shares is {_shorten(manifest['ngram_shares'])}; config.ngram makes it {shares}"
    digest = hash_content(manifest["splits"])
    if manifest["digest"] != digest:
        yield f"digest is {manifest['digest']:.64}; the shards' hashes make it {digest}"


def _compare_totals(splits: Mapping[str, Any]) -> Iterator[str]:
    for name, split in splits.items():
        for total in _TOTALS:
            summed = sum(shard[total] for shard in split["shards"])
            if summed != split[total]:
                yield f"splits.{name}.{total} is {split[total]:,}; its shards add up to {summed:,}"
