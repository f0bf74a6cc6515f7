"""DIR of a conversion: what it may hold before, what a kill leaves in it, and how it gets all of its files at once.

    DIR/conversion.json      written last: what was converted and to what, and the name, size and hash of each file
    DIR/.convert/lock        see jobs/work_folder.py
                 plan.json   what is converted, and to what
                 train-00000.receipt ...   for each finished shard: what was written for it
                 the files, until all are there
                 conversion.json   written when all are there; from then on the files are published in DIR

DIR must be empty, except for hidden files, such as those of git. So nothing is ever replaced, and what is removed lies
in .convert. Receipts are not synced: each file is compared with the hash of its receipt before it counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from albert_data.convert.writers import ConvertTask, WrittenFile, find_place, new_hash
from albert_data.errors import OutputError
from albert_data.jobs.receipts import read_receipt, write_receipt
from albert_data.jobs.work_folder import LOCK_NAME, WorkFolder
from albert_data.storage import FOLDER, find_kind
from albert_data.storage.files import hash_file, is_regular, is_there, read_json, to_json, write_bytes, write_json

RECORD_NAME = "conversion.json"
_WORK, _PLAN, _RECEIPT_SUFFIX = ".convert", "plan.json", ".receipt"
SEAL = "record_sha256"  # of all other values


class ConversionFolder(WorkFolder):
    """DIR, which is `out`, and the working folder in it, `path`. plan: what decides every byte that is written."""

    def __init__(self, out: Path, plan: Mapping[str, Any]) -> None:
        super().__init__(out, _WORK, "conversion", (_PLAN, f"*{_RECEIPT_SUFFIX}", RECORD_NAME))
        self.plan, self.plan_path = dict(plan), self.path / _PLAN

    def read_finished(self) -> dict[str, Any] | None:
        """The record of a finished conversion with the same plan; None if DIR holds none yet.

        Raises OutputError if DIR is no folder, or holds another conversion or one whose files were changed since.
        """
        if is_there(self.out) and find_kind(self.out) != FOLDER:
            raise OutputError(f"output {self.out} is no folder; name another one")
        path = self.out / RECORD_NAME
        if not is_there(path):
            return None
        if (record := _read_record(path)) is None:
            raise OutputError(f"{path} is not as `albert-data convert` writes it; name another folder")
        self._compare(record["plan"], f"{self.out} holds a finished conversion", "name another folder")
        for entry in record["files"]:
            path = self.out / entry["name"]
            size = self._storage.status(path).num_bytes if is_regular(path) else None
            if size is None or size != entry.get("num_bytes", size):  # the user may edit a file without a size
                raise OutputError(f"{path} was changed or removed since the conversion; name another folder")
        return record

    def _compare(self, there: Mapping[str, Any], what: str, advice: str) -> None:
        """Raise OutputError, naming a difference, unless `there` is the plan."""
        for key in {**self.plan, **there}:
            old, new = there.get(key, "none"), self.plan.get(key, "none")
            if old != new:
                raise OutputError(f"{what} of another kind: {key} is {old!s:.80} there and {new!s:.80} here; {advice}")

    def begin(self) -> None:
        """Lock DIR, and resume what a killed command left there or begin anew.

        Raises OutputError if DIR holds anything else, or another command is writing to it.
        """
        self.lock()
        self._storage.remove_leftovers(self.path)
        plan = _read(self.plan_path)
        if self._holds_files():
            unfinished = f"{self.out} holds an unfinished conversion"
            self._compare(plan or {}, unfinished, f"run that command to its end, or remove {self.path}")
        self._check_foreign()
        if plan != self.plan:
            write_json(self.plan_path, self.plan)

    def _holds_files(self) -> bool:
        """Whether a shard was converted, or a file of one."""
        return not {LOCK_NAME, _PLAN}.issuperset(self._storage.list_names(self.path))

    def _check_foreign(self) -> None:
        """Raise OutputError if DIR holds anything except hidden files, and what a killed command published there."""
        names = _list_files(self.read_sealed())
        parents = {name.partition("/")[0] for name in names if "/" in name}
        parents = {parent for parent in parents if find_kind(self.out / parent, follow=False) == FOLDER}
        found = {name for name in self._storage.list_names(self.out) if not name.startswith(".")}
        for parent in parents:
            found |= {f"{parent}/{name}" for name in self._storage.list_names(self.out / parent)}
        for name in sorted(found - parents):
            if name not in names or not self._is_published(name):
                raise OutputError(
                    f"{self.out} holds {name}, which no conversion wrote; move it away, or name another folder"
                )

    def _is_published(self, name: str) -> bool:
        """Whether a file in DIR is ours: it is no longer in .convert, or it is the same there."""
        here, there = find_place(self.path, name), self.out / name
        return not is_there(here) or (is_regular(there) and hash_file(here) == hash_file(there))

    def read_entries(self, task: ConvertTask) -> list[WrittenFile] | None:
        """What was written for a shard before a kill; None if it is not there, whole and unchanged."""
        entries = read_receipt(self._receipt(task), list[WrittenFile])
        try:
            hashes = [hash_file(find_place(self.path, entry.name), digest=new_hash()) for entry in entries or ()]
        except OSError:
            return None
        return entries if entries is not None and hashes == [entry.hash for entry in entries] else None

    def keep_entries(self, task: ConvertTask, entries: list[WrittenFile]) -> None:
        """Write the receipt of a shard."""
        write_receipt(self._receipt(task), entries)

    def _receipt(self, task: ConvertTask) -> Path:
        return self.path / f"{task.name}{_RECEIPT_SUFFIX}"

    def read_sealed(self) -> dict[str, Any] | None:
        """The record, if a command was killed while it published the files."""
        return _read_record(self.path / RECORD_NAME)

    def seal(self, record: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        """All shards are converted: write the files that describe them, and then the record.

        Raises OutputError if something has appeared in DIR meanwhile.
        """
        self._check_foreign()
        for name, data in files.items():
            write_bytes(find_place(self.path, name), data)
        self._storage.sync(self.path)
        values = {**record, "plan": self.plan}
        write_json(self.path / RECORD_NAME, {**values, SEAL: _hash(values)})

    def publish(self) -> dict[str, Any]:
        """Give all files their names in DIR, and the record last, which is returned. Call it after `seal`."""
        record = self.read_sealed()
        assert record is not None, "seal wrote it"
        names = (*_list_files(record), RECORD_NAME)
        self._storage.publish(self.out, {name: find_place(self.path, name) for name in names})
        self.remove()
        return record

    def close(self) -> None:
        """Free the lock. If no shard was converted, remove .convert, and an empty DIR."""
        try:
            if self.is_locked and not self._holds_files():
                self.remove()
        finally:  # also if the disk fails, or Ctrl-C comes here: this process could not convert to DIR again
            self.unlock()


def _list_files(record: Mapping[str, Any] | None) -> list[str]:
    return [entry["name"] for entry in record["files"]] if record else []


def _read(path: Path) -> dict[str, Any] | None:
    """A JSON object; None if there is none, it is damaged, or it is a link, which no conversion writes."""
    try:
        return read_json(path) if is_regular(path) else None
    except (OSError, ValueError):
        return None


def _read_record(path: Path) -> dict[str, Any] | None:
    """The values of a record, all as they were written; None otherwise."""
    record = _read(path) or {}
    seal = record.pop(SEAL, None)
    return record if seal == _hash(record) else None


def _hash(values: Mapping[str, Any]) -> str:
    return sha256(to_json(values)).hexdigest()
