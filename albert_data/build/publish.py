"""Publish: finished shards to their place, then the manifest that makes them a build.

Every step can be done again after a kill: a shard is where it was made or where it belongs.
"""

from __future__ import annotations

import os
from typing import Any

import albert_data
from albert_data.build.card import write_card
from albert_data.build.mapping import TaskReceipt
from albert_data.build.reducing import ReduceTask
from albert_data.build.workdir import WorkDir
from albert_data.config import BuildConfig
from albert_data.examples.spans import ngram_shares
from albert_data.files import sync_path, write_bytes, write_json
from albert_data.shards.manifest import FORMAT_NAME, MANIFEST_NAME, SPLITS, hash_content, seal_manifest
from albert_data.shards.schema import FORMAT_VERSION, SHARD_SUFFIX
from albert_data.shards.writer import ShardReceipt
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer


def make_manifest(
    plan: dict[str, Any],
    config: BuildConfig,
    tokenizer: Tokenizer,
    total: TaskReceipt,
    shards: list[tuple[ReduceTask, ShardReceipt]],
) -> dict[str, Any]:
    """All that is to be known of a build; docs/format.md describes every key."""
    splits = {split: _describe_split(split, shards) for split in SPLITS}
    counts = {name: total.counts[name] for name in ("documents", "sentences", "text_bytes", "tokens")}
    manifest = {
        "format": FORMAT_NAME,
        "format_version": FORMAT_VERSION,
        "albert_data_version": albert_data.__version__,
        "config": config.to_flat_dict(),
        "ngram_shares": ngram_shares(config.examples.ngram).tolist(),
        "tokenizer": {
            "file": f"tokenizer/{MODEL_NAME}",
            "sha256": tokenizer.sha256,
            "vocab_size": tokenizer.vocab_size,
            **tokenizer.specials.to_dict(),
        },
        "inputs": plan["inputs"],
        "plan": plan,
        "documents_digest": f"{total.documents_digest:016x}",
        "counts": counts,
        "damage": dict(sorted(total.damage.items())),
        "splits": splits,
        "digest": hash_content(splits),
    }
    return seal_manifest(manifest)


def _describe_split(split: str, shards: list[tuple[ReduceTask, ShardReceipt]]) -> dict[str, Any]:
    ours = sorted(((task, receipt) for task, receipt in shards if task.split == split), key=lambda both: both[0].shard)
    described = [{"file": task.file, **vars(receipt)} for task, receipt in ours]
    totals = {name: sum(shard[name] for shard in described) for name in ("num_rows", "num_tokens", "num_masked")}
    return {**totals, "shards": described}


def publish(work: WorkDir, manifest: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Put shards, tokenizer, card and last the manifest into OUT, in place of an older build's."""
    (work.out / MANIFEST_NAME).unlink(missing_ok=True)
    for split in SPLITS:
        _publish_split(work, split, [shard["file"] for shard in manifest["splits"][split]["shards"]])
    (work.out / "tokenizer").mkdir(exist_ok=True)
    write_bytes(work.out / "tokenizer" / MODEL_NAME, tokenizer.model)
    write_card(work.out, manifest)
    write_json(work.out / MANIFEST_NAME, manifest)
    sync_path(work.out)


def _publish_split(work: WorkDir, split: str, files: list[str]) -> None:
    folder = work.out / split
    if files:
        folder.mkdir(exist_ok=True)
    for file in files:
        if (work.shards / file).exists():
            os.replace(work.shards / file, work.out / file)
    if folder.is_dir():
        for stale in folder.glob(f"*{SHARD_SUFFIX}"):
            if f"{split}/{stale.name}" not in files:
                stale.unlink()
        sync_path(folder)
