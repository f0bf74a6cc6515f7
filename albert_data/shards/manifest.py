"""manifest.json: what a shard folder holds, where it came from, and the proof that it is finished.

It is written last. A folder without one is unfinished; docs/format.md describes every key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from albert_data.errors import ShardError
from albert_data.shards.manifest_file import ManifestFile, read_file
from albert_data.shards.manifest_keys import SPLITS as SPLITS
from albert_data.shards.manifest_keys import find_key_faults
from albert_data.shards.places import check_folder
from albert_data.shards.schema import FORMAT_VERSION

MANIFEST_NAME = "manifest.json"
FORMAT_NAME = "albert-data"
SEAL = "manifest_sha256"
WORK_NAME = ".build"  # where a build keeps what it has until it is finished
PLAN_NAME = "plan.json"


class ManifestDamage(ShardError):
    """There is a manifest, but not one that this version reads."""


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
    """Read a finished folder's manifest, sure to hold every key of docs/format.md, each of its kind.

    Raises ShardError where there is none, not one of ours, or one that lacks something. Unknown keys are kept.
    """
    return load_manifest(folder).values


def load_manifest(folder: Path) -> ManifestFile:
    """The same, with what is needed to notice that another build took its place."""
    read = load_unchecked(folder)
    for what in find_key_faults(read.values):
        raise ShardError(f"{read.path}: {what}; move it away and build anew")
    return read


def load_unchecked(folder: Path) -> ManifestFile:
    """Read a manifest of our format, whatever it lacks. Raises ShardError where there is none, or ManifestDamage."""
    path = folder / MANIFEST_NAME
    check_folder(folder)
    if not os.path.lexists(path):
        raise ShardError(_explain_missing(folder))
    try:
        read = read_file(path)
    except OSError as error:
        if not os.path.lexists(path):  # a build took it away just now
            raise ShardError(_explain_missing(folder)) from error
        raise ManifestDamage(f"{path} can't be read: {error.strerror}; make it readable") from error
    except ShardError as error:
        raise ManifestDamage(f"{path} {error}; move it away and build anew") from error
    except ValueError as error:
        raise ManifestDamage(f"{path} can't be read: {error}; move it away and build anew") from error
    name, version = (read.values.get(key) for key in ("format", "format_version"))
    if name != FORMAT_NAME or type(version) is not int or version != FORMAT_VERSION:
        raise ManifestDamage(
            f"{path} is of format {name!s:.40} {version!s:.40}; this version reads {FORMAT_NAME} {FORMAT_VERSION}: "
            "use the version of albert-data that built it, or a newer one"
        )
    return read


def _explain_missing(folder: Path) -> str:
    """Why a folder has no manifest, and what to do: a build that was stopped goes on."""
    if not (folder / WORK_NAME).is_dir():
        return f"{folder} holds no {MANIFEST_NAME}, so no finished build; run `albert-data build` on it"
    inputs = "INPUT..."
    with suppress(OSError, ValueError, LookupError, TypeError, ShardError):
        plan = read_file(folder / WORK_NAME / PLAN_NAME).values
        inputs = " ".join(item["path"] for item in plan["inputs"][:3])
    return (
        f"{folder} is a build that is not finished; give its command again, and it goes on: "
        f"albert-data build {inputs} -o {folder}, with the same options"
    )
