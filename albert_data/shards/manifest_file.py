"""Reads manifest.json from the disk, within limits, and notices if it is replaced.

In: a shard folder. Out: its manifest, and the status by which a later check notices that the file was replaced. The
manifest is written last: a folder without one is unfinished. A manifest may come from anywhere, so its size, and the
number and depth of its values, are limited.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from albert_data.errors import ShardError
from albert_data.shards.manifest import FORMAT_NAME, MANIFEST_NAME, SEAL, Manifest, Plan, hash_manifest
from albert_data.shards.paths import check_folder
from albert_data.shards.schema import FORMAT_VERSION, explain_damage
from albert_data.storage import FOLDER, Status, find_kind, find_storage
from albert_data.storage.files import MAX_BYTES, is_there, parse_object
from albert_data.text.escaping import quote

WORK_NAME = ".build"  # where a build keeps what it has until it is finished
PLAN_NAME = "plan.json"
_parse = msgspec.json.decode  # refuses NaN, numbers beyond float64 and half of a surrogate pair


class ManifestDamage(ShardError):
    """There is a manifest, but it can't be read, or not by this version."""


@dataclass(frozen=True, kw_only=True)
class ManifestFile:
    """What was read, and the status of the file at that time. values: all, including those of unknown keys."""

    path: Path
    values: dict[str, Any]
    status: Status

    @cached_property
    def manifest(self) -> Manifest:
        """Raises ManifestDamage where a key of docs/reference/format.md is missing or its value is not allowed."""
        try:
            return Manifest.from_values(self.values)
        except ShardError as error:
            raise ManifestDamage(f"{self.path}: {error}; move it away and build anew") from error

    @property
    def is_sealed(self) -> bool:
        """Whether all values are as the build wrote them."""
        return bool(self.values.get(SEAL) == hash_manifest(self.values))

    def check_current(self) -> None:
        """Raise ShardError if the file was replaced since it was read: shards may be of the old or the new build."""
        try:
            is_current = find_storage(self.path).status(self.path) == self.status
        except OSError:
            is_current = False
        if not is_current:
            raise ShardError(
                f"{self.path} was replaced meanwhile, probably by a build; wait until that is done, then try again"
            )


def read_manifest(folder: Path) -> Manifest:
    """Read a finished folder's manifest. Raises ShardError where there is none, not one of ours, or a damaged one."""
    return load_manifest(folder).manifest


def load_manifest(folder: Path) -> ManifestFile:
    """As read_manifest, with the file's values and status. Raises ManifestDamage for a manifest that is there."""
    path = folder / MANIFEST_NAME
    check_folder(folder)
    if not is_there(path):
        raise ShardError(_explain_missing(folder))
    try:
        read = read_file(path)
    except (OSError, ValueError) as error:
        if not is_there(path):  # a build removed it just now
            raise ShardError(_explain_missing(folder)) from error
        what = f"{path} can't be read: {explain_damage(error)}"
        raise ManifestDamage(f"{what}; make it readable, or move it away and build anew") from error
    name, version = (read.values.get(key) for key in ("format", "format_version"))
    if (name, version) != (FORMAT_NAME, FORMAT_VERSION) or type(version) is not int:  # in Python 2 == 2.0
        raise ManifestDamage(
            f"{path} is of format {name!s:.40} {version!s:.40}; this version reads {FORMAT_NAME} {FORMAT_VERSION}: "
            "build it again, or use the version of albert-data that built it"
        )
    _ = read.manifest  # raises where a key is missing or its value is not allowed
    return read


def _explain_missing(folder: Path) -> str:
    """Why a folder has no manifest, and what to do: a build that was stopped can be resumed."""
    if find_kind(folder / WORK_NAME) != FOLDER:
        what = f"{folder} holds no {MANIFEST_NAME}, so it is no finished build"
        if is_there(folder / "shards" / MANIFEST_NAME):  # where quickstart puts them
            return f"{what}; name {folder / 'shards'}, which holds one"
        return f"{what}; make one with `albert-data build INPUT... -o {quote(folder)}`"
    return (
        f"{folder} is a build that is not finished; give its command again to resume it: "
        f"albert-data build INPUT... -o {quote(folder)}, with the same options"
    )


def read_file(path: Path) -> ManifestFile:
    """Read a JSON object. Raises OSError if it is no regular file or can't be read, ValueError for its content."""
    storage = find_storage(path)
    status = storage.status(path)  # first: of a file that is replaced before it is read, `check_current` says so
    return ManifestFile(path=path, values=parse_object(storage.read(path, MAX_BYTES), _parse), status=status)


def check_readable(made: Manifest | Plan) -> None:
    """Raise ShardError for a plan or manifest that readers would refuse. It is called before the file is written."""
    try:
        made.from_values(parse_object(json.dumps(made.to_values()).encode(), _parse))
    except (ValueError, ShardError) as error:
        raise ShardError(
            f"no command could read the manifest of this build: {error}; give what holds it otherwise"
        ) from error
