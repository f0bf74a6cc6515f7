"""Where the time of a build went, kept among the user's caches under the manifest's own hash.

A shard folder is a pure function of its documents, tokenizer and config, so that no time can stand in it. In: what a
build did. Out: a small file for `inspect`, with no path or name in it, and at most MAX_BUILDS of them. What is read
is not trusted: a file that is damaged, or not as this module writes it, counts as none.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert_data.files import find_cache_folder, write_json
from albert_data.pipeline.stages import STAGES

if TYPE_CHECKING:
    from albert_data.pipeline.build import BuildReport

MAX_BUILDS = 1000
_MAX_FILE_BYTES = 1 << 16
_MAX_SECONDS, _MAX_COUNT = 1e10, 2**63
_CLOCK = "%Y-%m-%dT%H:%M:%SZ"
_SEALED = re.compile(r"[0-9a-f]{64}")
_OURS = re.compile(r"[0-9a-f]{64}\.json(\.tmp)?")
_STAGE_KEYS = {stage.replace(" ", "_"): stage for stage in STAGES}


@dataclass(frozen=True, kw_only=True)
class BuildTimes:
    """wall_seconds: of the last run of the command, by the clock; stages: seconds of each, over all workers and runs.

    num_resumed_tasks: tasks that an earlier run had done; finished_utc: as 2026-01-31T12:00:00Z. Raises ValueError
    where a value is not of its kind or range.
    """

    wall_seconds: float
    num_workers: int
    text_bytes: int
    num_resumed_tasks: int
    finished_utc: str
    stages: Mapping[str, float]

    def __post_init__(self) -> None:
        for seconds in (self.wall_seconds, *self.stages.values()):
            if type(seconds) not in (int, float) or not 0 <= seconds <= _MAX_SECONDS:  # NaN is in no range
                raise ValueError(f"{seconds!r} is no number of seconds")
        for count in (self.num_workers, self.text_bytes, self.num_resumed_tasks):
            if type(count) is not int or not 0 <= count <= _MAX_COUNT:
                raise ValueError(f"{count!r} is no count")
        if datetime.strptime(self.finished_utc, _CLOCK).strftime(_CLOCK) != self.finished_utc:
            raise ValueError(f"{self.finished_utc!r} is no time")
        if unknown := self.stages.keys() - set(STAGES):
            raise ValueError(f"{unknown} are no stages")

    def to_dict(self) -> dict[str, Any]:
        """For JSON, by stable names."""
        return {
            "wall_seconds": self.wall_seconds,
            "num_workers": self.num_workers,
            "text_bytes": self.text_bytes,
            "num_resumed_tasks": self.num_resumed_tasks,
            "finished_utc": self.finished_utc,
            "stage_seconds": {key: self.stages[stage] for key, stage in _STAGE_KEYS.items() if stage in self.stages},
        }


def find_folder() -> Path:
    """Where the times of this user's builds are kept. Raises RuntimeError for a user without a home."""
    return find_cache_folder("builds")


def save_times(report: BuildReport, num_workers: int) -> str | None:
    """Keep the times of a build that ended just now, and of no more than MAX_BUILDS.

    Returns why they can't be kept, if so, and raises nothing: the shards are finished, and worth more than their times.
    """
    try:
        folder = find_folder()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{report.manifest.manifest_sha256}.json"
        write_json(path, _take_times(report, num_workers).to_dict(), sync=False)
        _drop_oldest(folder)
    except (OSError, RuntimeError, ValueError) as error:
        return str(error)
    return None


def _take_times(report: BuildReport, num_workers: int) -> BuildTimes:
    return BuildTimes(
        wall_seconds=round(report.seconds, 6),
        num_workers=num_workers,
        text_bytes=report.manifest.counts.text_bytes,
        num_resumed_tasks=report.resumed_tasks,
        finished_utc=datetime.now(UTC).strftime(_CLOCK),
        stages={stage: round(seconds, 6) for stage, seconds in report.stages.items()},
    )


def _drop_oldest(folder: Path) -> None:
    found = [entry for entry in os.scandir(folder) if _OURS.fullmatch(entry.name)]
    if len(found) <= MAX_BUILDS:
        return
    for entry in sorted(found, key=_modified, reverse=True)[MAX_BUILDS:]:
        with suppress(FileNotFoundError):  # another build drops it too
            os.unlink(entry.path)


def _modified(entry: os.DirEntry[str]) -> int:
    with suppress(FileNotFoundError):
        return entry.stat(follow_symlinks=False).st_mtime_ns
    return 0


def read_times(seal: str | None) -> BuildTimes | None:
    """The times of the build whose manifest has this hash; None where they are not known here."""
    if seal is None or not _SEALED.fullmatch(seal):
        return None
    try:
        path = find_folder() / f"{seal}.json"
        if not path.is_file():  # a pipe would wait for ever
            return None
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        return _parse(json.loads(data)) if len(data) <= _MAX_FILE_BYTES else None
    except (OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError):
        return None  # RecursionError is a RuntimeError


def _parse(found: dict[str, Any]) -> BuildTimes:
    """Raises where it is not exactly what to_dict gives."""
    values = {**found}  # a list of pairs is no object
    stages = {_STAGE_KEYS[key]: seconds for key, seconds in values.pop("stage_seconds").items()}
    return BuildTimes(**values, stages=stages)
