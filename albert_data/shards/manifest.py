"""manifest.json: what a shard folder holds, where it came from, and the proof that it is finished.

It is written last. A folder without one is unfinished; docs/format.md describes every key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from albert_data.errors import ShardError
from albert_data.files import read_json
from albert_data.shards.schema import FORMAT_VERSION

MANIFEST_NAME = "manifest.json"
FORMAT_NAME = "albert-data"
SPLITS = ("train", "validation")
SEAL = "manifest_sha256"
WORK_NAME = ".build"  # where a build keeps what it has until it is finished
PLAN_NAME = "plan.json"


def seal_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with the hash of all its other values."""
    return {**manifest, SEAL: hash_manifest(manifest)}


def hash_manifest(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of all values but the seal, however the file is laid out."""
    values = {key: value for key, value in manifest.items() if key != SEAL}
    return sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def hash_content(splits: Mapping[str, Any]) -> str:
    """SHA-256 over the shards' hashes, split by split: one name for the content of a build."""
    content = "".join(shard["sha256"] for name in SPLITS if name in splits for shard in splits[name]["shards"])
    return sha256(content.encode()).hexdigest()


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a finished folder's manifest. Raises ShardError where there is none or not one of ours."""
    path = folder / MANIFEST_NAME
    if folder.exists() and not folder.is_dir():
        raise ShardError(f"{folder} is no folder; name one that `albert-data build` made")
    if not folder.is_dir():
        raise ShardError(f"shard folder {folder} does not exist; make one with `albert-data build`")
    if not path.is_file():
        raise ShardError(_explain_missing(folder))
    try:
        manifest = read_json(path)
    except (OSError, ValueError, RecursionError) as error:
        raise ShardError(f"{path} can't be read: {error}; build anew with --overwrite") from error
    if manifest.get("format") != FORMAT_NAME or manifest.get("format_version") != FORMAT_VERSION:
        found = f"{manifest.get('format')!s:.40} {manifest.get('format_version')!s:.40}"
        raise ShardError(
            f"{path} is of format {found}; this version reads {FORMAT_NAME} {FORMAT_VERSION}: "
            "use the version of albert-data that built it, or a newer one"
        )
    return manifest


def _explain_missing(folder: Path) -> str:
    """Why a folder has no manifest, and what to do: a build that was stopped goes on."""
    if not (folder / WORK_NAME).is_dir():
        return f"{folder} holds no {MANIFEST_NAME}, so no finished build; run `albert-data build` on it"
    inputs = "INPUT..."
    with suppress(OSError, ValueError, LookupError, TypeError):
        inputs = " ".join(item["path"] for item in read_json(folder / WORK_NAME / PLAN_NAME)["inputs"][:3])
    return (
        f"{folder} is a build that is not finished; give its command again, and it goes on: "
        f"albert-data build {inputs} -o {folder}, with the same options"
    )
