"""Shard folders made by hand: whole manifests of any files, and changes to them."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
from row_fixtures import Row, make_examples

from albert_data.config import BuildConfig
from albert_data.data import Examples
from albert_data.examples.spans import span_shares
from albert_data.rules import current_versions
from albert_data.shards.manifest import FORMAT_NAME, MANIFEST_NAME, SEAL, SPLITS, Manifest, hash_content, hash_manifest
from albert_data.shards.schema import FORMAT_VERSION, shard_schema, write_shard
from albert_data.storage.files import hash_file

NO_TOTALS = {"num_rows": 0, "num_tokens": 0, "num_masked": 0, "num_unpaired": 0}
NO_LAYOUT = {"inner_lines": 0, "wrapped_lines": 0, "short_documents": 0}
SPECIALS = {"pad_id": 0, "unk_id": 1, "cls_id": 2, "sep_id": 3, "mask_id": 4}
VERSIONS = dict(zip(("rules_version", "unicode_version", "libraries"), current_versions(), strict=True))


def seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a manifest with the hash of all others."""
    return {**values, SEAL: hash_manifest(values)}


def hash_splits(splits: Mapping[str, Any]) -> str:
    """The digest of a manifest with these splits."""
    return hash_content(shard["sha256"] for name in SPLITS if name in splits for shard in splits[name]["shards"])


def describe_shard(folder: Path, name: str) -> dict[str, Any]:
    """A shard's entry in the manifest, as far as a reader looks at it."""
    return {**NO_TOTALS, "file": name, "num_bytes": (folder / name).stat().st_size, "sha256": hash_file(folder / name)}


def describe_folder(folder: Path, names: Mapping[str, Sequence[str]], vocab_size: int = 1 << 16) -> dict[str, Any]:
    """A manifest that holds every key, of the shards of these names by split."""
    config, inputs = BuildConfig().to_flat_dict(), [{"path": "in.txt", "bytes": 5, "modified_ns": 6}]
    shards = {split: [describe_shard(folder, name) for name in files] for split, files in names.items()}
    splits = {split: {**NO_TOTALS, "shards": described} for split, described in shards.items()}
    manifest = {
        "format": FORMAT_NAME,
        "format_version": FORMAT_VERSION,
        "albert_data_version": "0.1.0",
        **VERSIONS,
        "config": config,
        "ngram_shares": span_shares(config["ngram"]).tolist(),
        "tokenizer": {"file": "tokenizer/spiece.model", "sha256": "0" * 64, "vocab_size": vocab_size, **SPECIALS},
        "inputs": inputs,
        "plan": {**VERSIONS, "version": "0.1.0", "config": config, "inputs": inputs, "tokenizer": {"sha256": "0" * 64}},
        "documents_digest": "0" * 16,
        "counts": {"documents": 1, "sentences": 2, "text_bytes": 5, "tokens": 2, **NO_LAYOUT},
        "damage": {},
        "splits": splits,
        "digest": hash_splits(splits),
    }
    return seal(manifest)


def write_rows(
    folder: Path,
    splits: Mapping[str, Sequence[Sequence[list[Row]]]],
    *,
    dtype: type = np.uint16,
    sources: Sequence[str] = (),
    compression: str = "none",
) -> Path:
    """A finished build of these rows: of each split the shards, of each shard the record batches. A row's source is its
    number in the batch, modulo the number of sources.
    """
    schema = shard_schema(dtype, has_source=bool(sources))
    names: dict[str, list[str]] = {}
    for split, shards in splits.items():
        (folder / split).mkdir(parents=True)
        names[split] = [f"{split}/{number}.arrow" for number in range(len(shards))]
        for name, batches in zip(names[split], shards, strict=True):
            numbers = [[number % len(sources) for number in range(len(rows))] if sources else None for rows in batches]
            parts = map(make_examples, batches, repeat(dtype), numbers)
            write_shard(folder / name, parts, schema, compression)
    manifest = describe_folder(folder, names, vocab_size=1 << (16 if dtype is np.uint16 else 20))
    if sources:
        manifest["sources"] = list(sources)
    (folder / MANIFEST_NAME).write_text(json.dumps(seal(manifest)))
    return folder


def write_shards(folder: Path, shards: Sequence[Sequence[list[Row]]], compression: str = "none") -> Path:
    """The same of training shards."""
    return write_rows(folder, {"train": shards}, compression=compression)


def write_like(folder: Path, splits: Mapping[str, Sequence[Examples]], manifest: Manifest) -> Path:
    """A shard of each split, a record batch for each of its parts; config, tokenizer and digest are the manifest's."""
    names = {split: [f"{split}/0.arrow"] for split in splits}
    for split, parts in splits.items():
        (folder / split).mkdir(parents=True)
        write_shard(folder / names[split][0], parts, shard_schema(np.uint16), "none")
    whole, wanted = describe_folder(folder, names), manifest.to_values()
    for split, parts in splits.items():
        whole["splits"][split]["num_rows"] = sum(map(len, parts))
    for key in ("config", "tokenizer"):
        whole[key] = {**whole[key], **wanted[key]}
    (folder / MANIFEST_NAME).write_text(json.dumps(seal({**whole, "digest": manifest.digest})))
    return folder


@contextmanager
def limit_files(count: int) -> Iterator[None]:
    """Let this process open so many more files at once."""
    used = {int(number) for number in os.listdir("/dev/fd")}
    # The limit is on the number of a descriptor, and a file gets the lowest free number.
    free = (number for number in range(max(used) + count + 1) if number not in used)
    last = next(islice(free, count - 1, None))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest and seal it again, so that its other values stand against it alone."""
    manifest = json.loads((folder / MANIFEST_NAME).read_text())
    change(manifest)
    (folder / MANIFEST_NAME).write_text(json.dumps(seal(manifest)))


def describe_again(folder: Path) -> None:
    """Make the manifest agree with the sizes and hashes of the shards that lie there."""

    def change(manifest: dict[str, Any]) -> None:
        for split in manifest["splits"].values():
            for shard in split["shards"]:
                found = describe_shard(folder, shard["file"])
                shard.update(num_bytes=found["num_bytes"], sha256=found["sha256"])
        manifest["digest"] = hash_splits(manifest["splits"])

    change_manifest(folder, change)
