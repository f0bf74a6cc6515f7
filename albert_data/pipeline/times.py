"""How long the stages of a build took, kept in the user's cache under the hash of the build's manifest.

A shard folder is a pure function of its documents, tokenizer and config, so it can't hold times. In: the report of a
build. Out: a small file for `inspect`, which holds no path or name; at most MAX_BUILDS files are kept. A file that is
damaged, or holds anything that this module does not write, counts as missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert_data.files import find_cache_folder, write_json
from albert_data.pipeline.stages import STAGES
from albert_data.storage import FILE, find_kind, find_storage

if TYPE_CHECKING:
    from albert_data.pipeline.build import BuildReport

MAX_BUILDS = 1000
_MAX_FILE_BYTES = 1 << 16
_MAX_SECONDS, _MAX_COUNT = 1e10, 2**63
_CLOCK = "%Y-%m-%dT%H:%M:%SZ"
_SEALED = re.compile(r"[0-9a-f]{64}")
_OURS = re.compile(r"[0-9a-f]{64}\.json(\.tmp)?")  # .tmp: a temporary file of version 0.3.0
_STAGE_KEYS = {stage.replace(" ", "_"): stage for stage in STAGES}


@dataclass(frozen=True, kw_only=True)
class BuildTimes:
    """wall_seconds: how long the last command ran; stages: seconds of each, summed over all workers.

    stages includes the map tasks that earlier, killed commands finished: receipts hold their seconds. It does not
    include the shards that those commands finished. num_resumed_tasks: how many such map tasks there were;
    finished_utc: as 2026-01-31T12:00:00Z. Raises ValueError for a value of another type or out of range.
    """

    wall_seconds: float
    num_workers: int
    text_bytes: int
    num_resumed_tasks: int
    finished_utc: str
    stages: Mapping[str, float]

    def __post_init__(self) -> None:
        for seconds in (self.wall_seconds, *self.stages.values()):
            if type(seconds) not in (int, float) or not 0 <= seconds <= _MAX_SECONDS:  # false for NaN
                raise ValueError(f"{seconds!r} is not a number of seconds")
        for count in (self.num_workers, self.text_bytes, self.num_resumed_tasks):
            if type(count) is not int or not 0 <= count <= _MAX_COUNT:
                raise ValueError(f"{count!r} is not a count")
        if datetime.strptime(self.finished_utc, _CLOCK).strftime(_CLOCK) != self.finished_utc:
            raise ValueError(f"{self.finished_utc!r} is not a time")
        if unknown := self.stages.keys() - set(STAGES):
            raise ValueError(f"{unknown} are not stages")

    def to_dict(self) -> dict[str, Any]:
        """JSON values; the names of the fields and of _STAGE_KEYS are stable."""
        stage_seconds = {key: self.stages[stage] for key, stage in _STAGE_KEYS.items() if stage in self.stages}
        others = {name: value for name, value in vars(self).items() if name != "stages"}
        return {**others, "stage_seconds": stage_seconds}


def find_folder() -> Path:
    """Where the times of this user's builds are kept. Raises RuntimeError for a user without a home."""
    return find_cache_folder("builds")


def save_times(report: BuildReport, num_workers: int) -> str | None:
    """Keep the times of a build that has just finished, and remove the oldest beyond MAX_BUILDS.

    Raises nothing, because the shards are finished and matter more than their times. Returns the reason if the times
    can't be kept, else None.
    """
    try:
        folder = find_folder()
        find_storage(folder).make_folder(folder)
        path = folder / f"{report.manifest.manifest_sha256}.json"
        write_json(path, _make_times(report, num_workers).to_dict(), sync=False)
        _drop_oldest(folder)
    except (OSError, RuntimeError, ValueError) as error:
        return str(error)
    return None


def _make_times(report: BuildReport, num_workers: int) -> BuildTimes:
    return BuildTimes(
        wall_seconds=round(report.seconds, 6),
        num_workers=num_workers,
        text_bytes=report.manifest.counts.text_bytes,
        num_resumed_tasks=report.resumed_tasks,
        finished_utc=datetime.now(UTC).strftime(_CLOCK),
        stages={stage: round(seconds, 6) for stage, seconds in report.stages.items()},
    )


def _drop_oldest(folder: Path) -> None:
    storage = find_storage(folder)
    found = [folder / name for name in storage.list_names(folder) if _OURS.fullmatch(name)]
    if len(found) <= MAX_BUILDS:
        return
    for path in sorted(found, key=_modified, reverse=True)[MAX_BUILDS:]:
        storage.remove(path)


def _modified(path: Path) -> int:
    try:
        return find_storage(path).status(path, follow=False).modified_ns
    except FileNotFoundError:  # another build has just removed it
        return 0


def read_times(seal: str | None) -> BuildTimes | None:
    """The times of the build whose manifest has this hash; None where this user has none."""
    if seal is None or not _SEALED.fullmatch(seal):
        return None
    try:
        path = find_folder() / f"{seal}.json"
        if find_kind(path) != FILE:
            return None
        data, _ = find_storage(path).read(path, _MAX_FILE_BYTES)
        return _parse(json.loads(data))
    except (OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError):
        return None  # deep nesting raises RecursionError, a RuntimeError


def _parse(found: dict[str, Any]) -> BuildTimes:
    """Raises where the value is not exactly what to_dict gives."""
    values = {**found}  # raises TypeError for a list, which `dict(found)` would accept
    stages = {_STAGE_KEYS[key]: seconds for key, seconds in values.pop("stage_seconds").items()}
    return BuildTimes(**values, stages=stages)
