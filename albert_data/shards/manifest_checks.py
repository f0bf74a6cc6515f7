"""Whether a manifest was changed after it was written.

In: a manifest that has all keys. Out: values that contradict each other, a line for each. The seal only shows that
something was changed. Values that the manifest holds twice, or that follow from others, show what was changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from albert_data.examples.spans import span_shares
from albert_data.shards.manifest import SEAL, TOTALS, VERSIONS, Manifest, hash_content, hash_manifest
from albert_data.shards.manifest_file import ManifestFile

_ABSENT = "missing"


def find_value_faults(file: ManifestFile) -> Iterator[str]:
    """What was changed, a line for each fault."""
    faults = [*_compare_plan(file.values), *_compare_derived(file.manifest), *_compare_totals(file.manifest)]
    yield from faults
    if SEAL not in file.values:
        yield f"{SEAL} is missing, so the other values can't be trusted; move the file away and build anew"
    elif not file.is_sealed:
        hint = "" if faults else ": a value was changed, but it can't be known which"
        sealed = hash_manifest(file.values)
        yield f"its values have the SHA-256 {sealed}; {SEAL} says {file.values[SEAL]!s:.64}{hint}"


def _compare_plan(values: Mapping[str, Any]) -> Iterator[str]:
    """Compare with the plan inside the manifest, which repeats most of its values."""
    plan, config = values["plan"], values["config"]
    twice = [
        *(
            (f"config.{name}", config.get(name, _ABSENT), plan["config"].get(name, _ABSENT))
            for name in sorted(config.keys() | plan["config"].keys())
        ),
        ("albert_data_version", values["albert_data_version"], plan["version"]),
        *((name, values.get(name, _ABSENT), plan.get(name, _ABSENT)) for name in VERSIONS),
        ("inputs", values["inputs"], plan["inputs"]),
    ]
    if "sha256" in plan["tokenizer"]:  # missing if the build trained its tokenizer
        twice.append(("tokenizer.sha256", values["tokenizer"]["sha256"], plan["tokenizer"]["sha256"]))
    for name, value, planned in twice:
        if value != planned or type(value) is not type(planned):  # in Python 1 == 1.0 == True
            yield f"{name} is {_shorten(value)}; plan says {_shorten(planned)}"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _compare_derived(manifest: Manifest) -> Iterator[str]:
    config = manifest.config.examples
    shares = span_shares(config.longest_span, config.masking).tolist()
    if list(manifest.ngram_shares) != shares:
        yield f"ngram_shares is {_shorten(list(manifest.ngram_shares))}; config.masking, config.ngram make it {shares}"
    if manifest.label_names != (names := config.task.label_names):
        yield f"label_names is {_shorten(manifest.label_names)}; config.pairs makes it {_shorten(names)}"
    digest = hash_content(shard.sha256 for shard in manifest.shards)
    if manifest.digest != digest:
        yield f"digest is {manifest.digest:.64}; the shards' hashes make it {digest}"


def _compare_totals(manifest: Manifest) -> Iterator[str]:
    for name, split in manifest.splits.items():
        for total in TOTALS:
            said, parts = getattr(split, total), [getattr(shard, total) for shard in split.shards]
            summed = None if None in parts else sum(parts)  # only some tasks have num_random
            if said is not None and summed is not None and summed != said:
                yield f"splits.{name}.{total} is {said:,}; its shards add up to {summed:,}"
    if manifest.source_tokens is not None:
        said, summed = sum(manifest.source_tokens), sum(split.num_tokens for split in manifest.splits.values())
        if said != summed or len(manifest.source_tokens) != len(manifest.sources or ()):
            yield f"source_tokens has {len(manifest.source_tokens)} values, {said:,} in all; the splits have {summed:,}"
