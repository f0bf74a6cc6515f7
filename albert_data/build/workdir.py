"""The folder of a build: who may write there, and what a killed build left.

OUT/.build/plan.json    what is being built: config, tokenizer, inputs
    boot                since which start of the machine: runs aren't synced, so what a crash left is not trusted
    runs/ receipts/     of map tasks
    shards/             finished shards and their receipts, until they are published
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from albert_data.errors import OutputError
from albert_data.files import read_json, write_bytes, write_json
from albert_data.shards.manifest import MANIFEST_NAME, PLAN_NAME, SPLITS, WORK_NAME, read_manifest

LOCK_SECONDS = 5.0
_OURS = {WORK_NAME, MANIFEST_NAME, "README.md", "tokenizer", *SPLITS}


class WorkDir:
    """The paths of a build in OUT, and the lock on it."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.root = out / WORK_NAME
        self.runs, self.receipts = self.root / "runs", self.root / "receipts"
        self.shards, self.tokenizer = self.root / "shards", self.root / "tokenizer"
        self._plan, self._lock_path = self.root / PLAN_NAME, self.root / "lock"
        self._lock: int | None = None

    def open(self) -> None:
        """Make the folder and lock it. Raises OutputError if that can't be."""
        try:
            if self.out.exists() and not self.out.is_dir():
                raise OutputError(f"output {self.out} is a file; name a folder")
            foreign = sorted({path.name for path in self.out.iterdir()} - _OURS) if self.out.exists() else []
            if foreign and not (self.out / MANIFEST_NAME).exists() and not self._plan.exists():
                raise OutputError(
                    f"output {self.out} holds files that no build wrote ({', '.join(foreign[:3])}); "
                    "name a new or an empty folder"
                )
            self.root.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        except BlockingIOError as error:
            self.close()
            raise OutputError(f"another build is writing to {self.out}; wait for it to end") from error
        except OSError as error:
            raise OutputError(f"output {self.out} can't be written: {error.strerror}") from error

    def _take_lock(self) -> None:
        """Lock the folder. The processes of a build that was killed just now hold it until they are gone."""
        self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + LOCK_SECONDS
        while not self._try_lock(self._lock):
            if time.monotonic() > deadline:
                raise BlockingIOError
            time.sleep(0.05)
        if os.fstat(self._lock).st_nlink == 0:
            raise BlockingIOError  # its owner dropped it just now, with the folder

    @staticmethod
    def _try_lock(lock: int) -> bool:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def begin(self, plan: dict[str, Any], overwrite: bool) -> None:
        """Go on with a killed build of this plan, or start one. Raises OutputError if another is half done."""
        left = self._read_plan()
        difference = find_difference(left, plan) if left else None
        if difference and not overwrite:
            raise OutputError(
                f"{self.out} holds an unfinished build of another kind: {difference}; "
                "run that command to its end, or start anew with --overwrite"
            )
        if left is None or difference or left["version"] != plan["version"] or self._read_boot() != _boot_id():
            self.clear()
            (self.root / "boot").write_text(_boot_id())
            write_json(self._plan, plan)
        for folder in (self.runs, self.receipts):
            folder.mkdir(exist_ok=True)

    def _read_plan(self) -> dict[str, Any] | None:
        try:
            return read_json(self._plan)
        except (FileNotFoundError, ValueError):
            return None

    def _read_boot(self) -> str:
        with suppress(OSError):
            return (self.root / "boot").read_text()
        return "none"

    def begin_shards(self, basis: str) -> None:
        """Keep the shards that were made of these very runs, drop others."""
        path = self.shards / "basis"
        if not path.exists() or path.read_text() != basis:
            shutil.rmtree(self.shards, ignore_errors=True)
        for folder in ("receipts", *SPLITS):
            (self.shards / folder).mkdir(parents=True, exist_ok=True)
        write_bytes(path, basis.encode())

    def remove_if_empty(self) -> None:
        """Drop the folder of a build that failed before it made anything worth keeping."""
        if not any(self.runs.glob("*.run")) and not (self.tokenizer / "vocab.json").exists():
            self.remove()
            if not any(self.out.iterdir()):
                self.out.rmdir()

    def clear(self) -> None:
        """Drop what an unfinished build left, but for the lock; the plan first, for receipts count by it."""
        self._plan.unlink(missing_ok=True)
        for path in self.root.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path != self._lock_path:
                path.unlink()

    def remove(self) -> None:
        """Drop all that a build needs while it runs."""
        self.clear()
        self._lock_path.unlink()
        with suppress(OSError):  # another build may have begun here since
            self.root.rmdir()
        self.close()

    def sweep(self, plan: dict[str, Any]) -> None:
        """Drop what a build of this plan left that was killed after its manifest was written."""
        if self.root.exists() and self._read_plan() in (None, plan):
            self.open()
            self.remove()

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _boot_id() -> str:
    """What differs after each start of the machine, where the system tells (Linux)."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text() if path.exists() else ""


def find_finished(out: Path) -> dict[str, Any] | None:
    """The manifest of a finished build in `out`, if there is one."""
    return read_manifest(out) if (out / MANIFEST_NAME).exists() else None


def check_finished(manifest: dict[str, Any], plan: dict[str, Any], out: Path) -> None:
    """Raise OutputError, naming what differs, if a finished build is not the one that is asked for."""
    if difference := find_difference(manifest["plan"], plan):
        raise OutputError(
            f"{out} holds a finished build of another kind: {difference}; "
            "choose another output folder, or replace it with --overwrite"
        )


def find_difference(there: dict[str, Any], asked: dict[str, Any]) -> str | None:
    """Name the first setting that differs, and both values."""
    for name in asked["config"]:
        old, new = there["config"].get(name), asked["config"][name]
        if old != new:
            return f"{name} is {old} there and {new} here"
    if there["tokenizer"] != asked["tokenizer"]:
        return "the tokenizer differs"
    if there["inputs"] != asked["inputs"]:
        old_paths = {item["path"]: item for item in there["inputs"]}
        new_paths = {item["path"]: item for item in asked["inputs"]}
        changed = sorted(
            path for path in old_paths.keys() | new_paths.keys() if old_paths.get(path) != new_paths.get(path)
        )
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"the inputs differ ({changed[0]}{more})"
    return None
