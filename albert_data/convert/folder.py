"""DIR of a conversion: what it may hold before, what a kill leaves in it, and how it gets all of its files at once.

    DIR/conversion.json      written last: what was converted and to what, and the name, size and hash of each file
    DIR/.convert/lock        locked by the running command
                 plan.json   what is converted, and to what
                 receipts/   a file for each finished shard: what was written for it
                 out/        the files, until all are there
                 conversion.json   written when all are there; from then on out/ is renamed into DIR, entry by entry

DIR must be empty, except for hidden files, such as those of git. So nothing is ever replaced, and what is removed lies
in .convert. Receipts are not synced: each file is compared with the hash of its receipt before it counts.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from albert_data.convert.writers import ConvertTask, FileEntry, hash_quickly
from albert_data.errors import OutputError
from albert_data.files import (
    is_regular,
    is_there,
    list_temporaries,
    read_json,
    remove_temporaries,
    sync_path,
    to_json,
    write_bytes,
    write_json,
)
from albert_data.pipeline.receipts import read_receipt, write_receipt

RECORD_NAME = "conversion.json"
_LOCK_SECONDS = 5.0  # longer than the workers of a killed command live on
_WORK, _LOCK, _PLAN = ".convert", "lock", "plan.json"
_SEAL = "record_sha256"  # of all other values


class ConversionFolder:
    """DIR, and the working folder in it. plan: what decides every byte that is written."""

    def __init__(self, path: Path, plan: Mapping[str, Any]) -> None:
        self.path, self.plan = path, dict(plan)
        self.work = path / _WORK
        self.out, self._receipts = self.work / "out", self.work / "receipts"
        self._lock: int | None = None
        self._made_path = False

    def read_finished(self) -> dict[str, Any] | None:
        """The record of a finished conversion with the same plan; None if DIR holds none yet.

        Raises OutputError if DIR is no folder, or holds another conversion or one whose files were changed since.
        """
        if is_there(self.path) and not self.path.is_dir():
            raise OutputError(f"output {self.path} is no folder; name another one")
        path = self.path / RECORD_NAME
        if not is_there(path):
            return None
        record = _read_record(path)
        if record is None:
            raise OutputError(f"{path} is not as `albert-data convert` writes it; name another folder")
        self._compare(record.get("plan"), f"{self.path} holds a finished conversion", "name another folder")
        for name, size in _sizes(record):
            path = self.path / name
            if not is_regular(path) or size not in (None, path.stat().st_size):
                raise OutputError(f"{path} was changed or removed since the conversion; name another folder")
        return record

    def _compare(self, there: object, what: str, advice: str) -> None:
        """Raise OutputError, naming a difference, unless `there` is the plan."""
        found = there if isinstance(there, dict) else {}
        for key in {**self.plan, **found}:
            old, new = found.get(key, "none"), self.plan.get(key, "none")
            if old != new:
                raise OutputError(f"{what} of another kind: {key} is {old!s:.80} there and {new!s:.80} here; {advice}")

    def open(self) -> None:
        """Lock DIR, and resume what a killed command left there or begin anew.

        Raises OutputError if DIR holds anything else, or another command is writing to it.
        """
        self._check_links()
        try:
            self._made_path = not is_there(self.path)
            self.work.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        except BlockingIOError as error:
            raise OutputError(f"another conversion is writing to {self.path}; wait for it to end") from error
        except OSError as error:
            raise OutputError(f"output {self.path} can't be written: {error.strerror}; name another folder") from error
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _check_links(self) -> None:
        inner = sorted(self.out.iterdir()) if self.out.is_dir() else []
        for path in (self.work, self._receipts, self.out, *inner):
            if path.is_symlink() or (path in (self.work, self._receipts, self.out) and not _is_folder(path)):
                raise OutputError(f"{path} is not a folder of a conversion; move it away, or name another folder")

    def _take_lock(self) -> None:
        """If a command was killed just now, wait until its workers have ended and freed the lock."""
        self._lock = os.open(self.work / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    self._release()
                    raise
                time.sleep(0.05)
        if os.fstat(self._lock).st_nlink == 0:  # another command has just ended, and removed the lock with the folder
            self._release()
            raise BlockingIOError

    def _begin(self) -> None:
        path = self.work / _PLAN
        plan = _read(path)
        if plan is not None:
            self._remove_temporaries()
        if is_there(path) and (plan is None or self._holds_files()):
            unfinished = f"{self.path} holds an unfinished conversion"
            self._compare(plan, unfinished, f"run that command to its end, or remove {self.work}")
        elif plan is None and (foreign := sorted({*os.listdir(self.work)} - {_LOCK} - self._list_temporaries())):
            raise OutputError(f"{self.work} holds {foreign[0]}, but no plan of a conversion; name another folder")
        self._check_foreign()
        if plan != self.plan:
            self._remove_empty()
            write_json(path, self.plan)
        self._receipts.mkdir(exist_ok=True)
        self.out.mkdir(exist_ok=True)

    def _list_temporaries(self) -> set[str]:
        return {path.name for path in list_temporaries(self.work)}

    def _remove_temporaries(self) -> None:
        inner = self.out.iterdir() if self.out.is_dir() else ()
        for folder in (self.work, self._receipts, self.out, *inner):
            if folder.is_dir():
                remove_temporaries(folder)

    def _holds_files(self) -> bool:
        """Whether a shard was converted, or a file of one."""
        return any(path.is_file() for folder in (self.out, self._receipts) for path in folder.rglob("*"))

    def _remove_empty(self) -> None:
        """Remove folders in out/ that hold nothing, so that those of another format are not published."""
        for folder in self.out.glob("*"):
            with suppress(OSError):
                folder.rmdir()

    def _check_foreign(self) -> None:
        record = self.read_sealed()
        ours = {name.split("/")[0] for name, _ in _sizes(record)} if record else set()
        names = {name for name in os.listdir(self.path) if not name.startswith(".")}
        if foreign := sorted(names - ours):
            raise OutputError(
                f"{self.path} holds {foreign[0]}, which no conversion wrote; move it away, or name another folder"
            )

    def read_entries(self, task: ConvertTask) -> list[FileEntry] | None:
        """What was written for a shard before a kill; None if it is not there, whole and unchanged."""
        values = read_receipt(self._receipt(task))
        if values is None:
            return None
        try:
            entries = [FileEntry(**entry) for entry in values["files"]]
            is_whole = all(hash_quickly(self.out / entry.name) == entry.hash for entry in entries)
        except (OSError, KeyError, TypeError):
            return None
        return entries if is_whole else None

    def keep_entries(self, task: ConvertTask, entries: Iterable[FileEntry]) -> None:
        """Write the receipt of a shard."""
        write_receipt(self._receipt(task), {"files": [entry.to_values() for entry in entries]})

    def _receipt(self, task: ConvertTask) -> Path:
        return self._receipts / f"{task.name}.json"

    def read_sealed(self) -> dict[str, Any] | None:
        """The record, if a command was killed while it renamed the files into DIR."""
        return _read_record(self.work / RECORD_NAME)

    def seal(self, record: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        """All shards are converted: write the files that describe them, and then the record."""
        for name, data in files.items():
            (self.out / name).parent.mkdir(exist_ok=True)  # a split without rows has no file in it yet
            write_bytes(self.out / name, data)
        for folder in self.out.iterdir():
            sync_path(folder)
        values = {**record, "plan": self.plan}
        write_json(self.work / RECORD_NAME, {**values, _SEAL: _hash(values)})

    def publish(self) -> None:
        """Rename all files into DIR, the record last. Raises OutputError if something has taken a name meanwhile."""
        for entry in sorted(self.out.iterdir()):
            self._rename(entry)
        sync_path(self.path)
        self._rename(self.work / RECORD_NAME)
        sync_path(self.path)
        self.remove()

    def _rename(self, entry: Path) -> None:
        target = self.path / entry.name
        if is_there(target):
            raise OutputError(f"{target} has appeared meanwhile, and is not replaced; move it away, and try again")
        os.rename(entry, target)

    def sweep(self) -> None:
        """Remove the working folder, if a command was killed just before it did that itself."""
        if self.work.is_dir() and (_read(self.work / _PLAN) == self.plan or {*os.listdir(self.work)} <= {_LOCK}):
            self._check_links()
            self._take_lock()
            self.remove()

    def remove(self) -> None:
        """Remove the working folder, and nothing in it that no conversion wrote. The plan marks it: it goes last."""
        for path in self._receipts.glob("*.json"):
            path.unlink()
        for folder in (self._receipts, self.out):
            with suppress(OSError):
                folder.rmdir()
        for path in (self.work / _PLAN, self.work / _LOCK):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.work.rmdir()
        self._release()

    def close(self) -> None:
        """Free the lock. If nothing was converted, leave DIR as it was before."""
        if self._lock is None:
            return
        plan = self.work / _PLAN
        is_empty = not self._holds_files() and not is_there(self.work / RECORD_NAME)
        if is_empty and (not is_there(plan) or _read(plan) == self.plan):
            self._remove_empty()
            self.remove()
            if self._made_path:
                with suppress(OSError):
                    self.path.rmdir()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _is_folder(path: Path) -> bool:
    return path.is_dir() or not is_there(path)


def _read(path: Path) -> dict[str, Any] | None:
    """A JSON object; None if there is none, it is damaged, or it is a link, which no conversion writes."""
    try:
        return read_json(path) if is_regular(path) else None
    except (OSError, ValueError):
        return None


def _read_record(path: Path) -> dict[str, Any] | None:
    """The values of a record, all as they were written; None otherwise."""
    record = _read(path) or {}
    others = {key: value for key, value in record.items() if key != _SEAL}
    return others if record.get(_SEAL) == _hash(others) else None


def _hash(values: Mapping[str, Any]) -> str:
    return sha256(to_json(values)).hexdigest()


def _sizes(record: Mapping[str, Any]) -> list[tuple[str, int | None]]:
    """The name of each file of a record, and its size; None for one that the user may edit."""
    return [(entry["name"], entry.get("num_bytes")) for entry in record["files"]]
