"""manifest.json: what a shard folder holds, where it came from, and the proof that it is finished.

It is written last. A folder without one is unfinished; docs/format.md describes every key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from albert_data.errors import ShardError
from albert_data.files import read_json
from albert_data.shards.schema import FORMAT_VERSION

MANIFEST_NAME = "manifest.json"
WORK_NAME = ".build"  # what a build that is not finished has instead
FORMAT_NAME = "albert-data"
SPLITS = ("train", "validation")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a finished folder's manifest. Raises ShardError where there is none or not one of ours."""
    path = folder / MANIFEST_NAME
    if folder.exists() and not folder.is_dir():
        raise ShardError(f"{folder} is no folder; name one that `albert-data build` made")
    if not folder.is_dir():
        raise ShardError(f"shard folder {folder} does not exist; make one with `albert-data build`")
    if not path.is_file() and (folder / WORK_NAME).is_dir():
        raise ShardError(
            f"{folder} is a build that is not finished; give its `albert-data build` command again, and it goes on"
        )
    if not path.is_file():
        raise ShardError(f"{folder} holds no {MANIFEST_NAME}, so no finished build; run `albert-data build` on it")
    try:
        manifest = read_json(path)
    except (OSError, ValueError) as error:
        raise ShardError(f"{path} can't be read: {error}; build anew with --overwrite") from error
    if manifest.get("format") != FORMAT_NAME or manifest.get("format_version") != FORMAT_VERSION:
        found = f"{manifest.get('format')} {manifest.get('format_version')}"
        raise ShardError(
            f"{path} is of format {found}; this version reads {FORMAT_NAME} {FORMAT_VERSION}: "
            "read it with the albert-data that wrote it, or build anew"
        )
    return manifest
