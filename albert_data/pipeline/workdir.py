"""The folder of a build: who may write there, and what a killed build left.

OUT/.build/lock         held by the build at work; its text tells that the folder is of a build
    plan.json           what is being built: config, tokenizer, inputs
    boot                since which start of the machine: runs aren't synced, so what a crash left is not trusted
    runs/ receipts/     of map tasks
    shards/             finished shards and their receipts, until they are published
    tokenizer/          a vocabulary that was trained for this build
    journal.json        while publishing: the files in OUT that this build and earlier ones wrote (see ownership.py)
    placed              the next file to be renamed into OUT
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from albert_data.errors import OutputError
from albert_data.files import (
    TEMPORARY_SUFFIX,
    is_regular,
    list_temporaries,
    read_json,
    sync_path,
    write_bytes,
    write_json,
)
from albert_data.pipeline.card import CARD_NAME
from albert_data.pipeline.ownership import (
    TOKENIZER_FILE,
    Record,
    Records,
    check_targets,
    read_journal,
    read_our_manifest,
    record_files,
    write_journal,
)
from albert_data.pipeline.vocabulary import FILES as VOCABULARY_FILES
from albert_data.rules import RULES_VERSION
from albert_data.shards.manifest import MANIFEST_NAME, SPLITS, Manifest, Plan, parse_plan
from albert_data.shards.manifest_file import PLAN_NAME, WORK_NAME
from albert_data.shards.schema import SHARD_SUFFIX

LOCK_SECONDS = 5.0
_MARK = b"albert-data build\n"
_JOURNAL_NAME, _PLACED_NAME, _LOCK_NAME, _BASIS_NAME = "journal.json", "placed", "lock", "basis"
_FIRST_SHARD = f"{SPLITS[0]}/shard-00000{SHARD_SUFFIX}"
# The names of what a build writes into each folder below .build; a folder comes after those in it.
_SHARD_FILES = {
    "shards/receipts": ("*.json",),
    **{f"shards/{split}": (f"*{SHARD_SUFFIX}",) for split in SPLITS},
    "shards": (_BASIS_NAME,),
}
_WORK_FILES = {"runs": ("*.run",), "receipts": ("*.json",), **_SHARD_FILES, "tokenizer": VOCABULARY_FILES}


class WorkDir:
    """The paths of a build in OUT, and the lock on it."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.root = out / WORK_NAME
        self.runs, self.receipts = self.root / "runs", self.root / "receipts"
        self.shards, self.tokenizer = self.root / "shards", self.root / "tokenizer"
        self._plan, self._lock_path = self.root / PLAN_NAME, self.root / _LOCK_NAME
        self._journal, self._placed = self.root / _JOURNAL_NAME, self.root / _PLACED_NAME
        self._lock: int | None = None
        self._made_out = False

    def open(self) -> None:
        """Make the folder and lock it. Raises OutputError if that can't be, or where .build is not of a build."""
        try:
            if self.out.exists() and not self.out.is_dir():
                raise OutputError(f"output {self.out} is a file; name a folder")
            self._check_root()
            self._made_out = not self.out.exists()
            self.root.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        except BlockingIOError as error:
            self.close()
            raise OutputError(f"another build is writing to {self.out}; wait for it to end") from error
        except OSError as error:
            self.close()
            raise OutputError(f"output {self.out} can't be written: {error.strerror}") from error

    def _check_root(self) -> None:
        """Raise OutputError unless .build is missing, of a build, or holds nothing that could be lost."""
        folders = [self.root, *(self.root / name for name in _WORK_FILES)]
        for path in folders:
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                raise OutputError(f"{path} is no folder of a build; move it away, or name another folder")
        if not self.root.exists() or self._is_marked() or self._read_plan() is not None:
            return
        # A kill may have left the mark unwritten.
        is_lock = is_regular(self._lock_path) and _MARK.startswith(self._lock_path.read_bytes())
        if foreign := sorted(set(os.listdir(self.root)) - ({_LOCK_NAME} if is_lock else set())):
            raise OutputError(
                f"{self.root} holds {foreign[0]}, and no plan of a build; move it away, or name another folder"
            )

    def _is_marked(self) -> bool:
        return is_regular(self._lock_path) and self._lock_path.read_bytes() == _MARK

    def _take_lock(self) -> None:
        """Lock the folder. The processes of a build that was killed just now hold it until they are gone."""
        self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        deadline = time.monotonic() + LOCK_SECONDS
        while not self._try_lock(self._lock):
            if time.monotonic() > deadline:
                raise BlockingIOError
            time.sleep(0.05)
        if os.fstat(self._lock).st_nlink == 0:
            raise BlockingIOError  # its owner dropped it just now, with the folder
        os.pwrite(self._lock, _MARK, 0)

    @staticmethod
    def _try_lock(lock: int) -> bool:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def begin(self, plan: Plan, overwrite: bool) -> None:
        """Go on with a killed build of this plan, or start one.

        Raises OutputError if another is half done, or where a file that no build wrote is in the way for sure.
        """
        if not overwrite and (newer := self._find_newer_rules()):
            raise OutputError(
                f"{self.out} holds an unfinished build by newer rules (version {newer}, this is {RULES_VERSION}); "
                "finish it with the version of albert-data that began it, or start anew with --overwrite"
            )
        left = self._read_plan()
        other_rules = left and find_other_rules(left, plan)
        if other_rules and not overwrite:
            raise OutputError(
                f"{self.out} holds an unfinished build by {other_rules}; "
                "finish it with the versions that began it, or start anew with --overwrite"
            )
        difference = left and find_difference(left, plan)
        if difference and not overwrite:
            raise OutputError(
                f"{self.out} holds an unfinished build of another kind: {difference}; "
                "run that command to its end, or start anew with --overwrite"
            )
        self._check_targets(plan)
        is_same = left is not None and not other_rules and not difference and left.version == plan.version
        if not is_same or self._read_boot() != _boot_id():
            self.clear()
            (self.root / "boot").write_text(_boot_id())
            write_json(self._plan, plan.to_values())
        for folder in (self.runs, self.receipts):
            folder.mkdir(exist_ok=True)

    def _check_targets(self, plan: Plan) -> None:
        """Better to stop now than after hours: this much every build writes. A card of ours may have been changed."""
        records, names = self.records(), [_FIRST_SHARD, TOKENIZER_FILE]
        if not records:
            names.append(CARD_NAME)
        asked = frozenset([Record(name=TOKENIZER_FILE, sha256=plan.tokenizer.get("sha256"))])
        check_targets(self.out, names, records | (asked if "sha256" in plan.tokenizer else frozenset()))

    def records(self) -> Records:
        """The files in OUT that builds wrote. Raises OutputError where its manifest is not as a build wrote it."""
        manifest = read_our_manifest(self.out / MANIFEST_NAME)
        return read_journal(self._journal) | (record_files(manifest) if manifest else frozenset())

    def keep_records(self, records: Records) -> None:
        """Keep these until the build is finished."""
        write_journal(self._journal, records)
        sync_path(self.root)

    def place(self, name: str, data: bytes) -> None:
        """Write a file into OUT, whole or not at all, and nothing else if that is killed."""
        path = self.out / name
        path.parent.mkdir(exist_ok=True)
        try:
            write_bytes(self._placed, data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        os.replace(self._placed, path)

    def _read_plan(self) -> Plan | None:
        """The plan of an unfinished build, None where there is none that can be read."""
        try:
            plan, _ = parse_plan(read_json(self._plan))
        except (OSError, ValueError):
            return None
        return plan if is_regular(self._plan) else None

    def _find_newer_rules(self) -> int | None:
        """The version of the rules of an unfinished build, where this program does not know it yet."""
        try:
            version = read_json(self._plan).get("rules_version")
        except (OSError, ValueError):
            return None
        return version if isinstance(version, int) and version > RULES_VERSION else None

    def _read_boot(self) -> str:
        with suppress(OSError, ValueError):
            return (self.root / "boot").read_text()
        return "none"

    def begin_shards(self, basis: str) -> None:
        """Keep the shards that were made of these very runs, drop others."""
        path = self.shards / _BASIS_NAME
        if not is_regular(path) or path.read_bytes() != basis.encode():
            self._drop(_SHARD_FILES)
        for folder in ("receipts", *SPLITS):
            (self.shards / folder).mkdir(parents=True, exist_ok=True)
        write_bytes(path, basis.encode())

    def remove_if_empty(self) -> None:
        """Drop the folder of a build that failed before it made anything worth keeping."""
        if not any(self.runs.glob("*.run")) and not (self.tokenizer / "vocab.json").exists():
            self.remove()
            if self._made_out and not any(self.out.iterdir()):
                self.out.rmdir()

    def clear(self) -> None:
        """Drop what an unfinished build left, except lock and journal; the plan first, for receipts count by it."""
        for name in (PLAN_NAME, "boot", _PLACED_NAME):
            if is_regular(self.root / name):
                (self.root / name).unlink()
        self._drop(_WORK_FILES)
        for path in list_temporaries(self.root):
            path.unlink()

    def _drop(self, names: Mapping[str, tuple[str, ...]]) -> None:
        """Remove files of these names from folders below .build, and the folders that are empty then."""
        for folder, patterns in names.items():
            path = self.root / folder
            if not path.is_dir():
                continue
            found = [
                file for pattern in patterns for end in ("", TEMPORARY_SUFFIX) for file in path.glob(pattern + end)
            ]
            for file in {*found, *list_temporaries(path)}:
                if is_regular(file):
                    file.unlink()
            with suppress(OSError):  # a file of somebody else's is in it, and stays
                path.rmdir()

    def remove(self) -> None:
        """Drop all that a build needs while it runs."""
        self.clear()
        if (self.out / MANIFEST_NAME).exists():
            self._journal.unlink(missing_ok=True)
        if not self._journal.exists():
            self._lock_path.unlink()
            with suppress(OSError):  # another build may have begun here since
                self.root.rmdir()
        self.close()

    def sweep(self, plan: Plan) -> None:
        """Drop what a build of this plan left that was killed after its manifest was written."""
        if (self._is_marked() or self._read_plan() is not None) and self._read_plan() in (None, plan):
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


def find_finished(out: Path) -> Manifest | None:
    """The manifest of a finished build in `out`, if there is one. Raises OutputError for a manifest of no build."""
    return read_our_manifest(out / MANIFEST_NAME)


def check_finished(manifest: Manifest, plan: Plan, out: Path) -> None:
    """Raise OutputError, naming what differs, if a finished build is not the one that is asked for."""
    if other_rules := find_other_rules(manifest.plan, plan):
        raise OutputError(
            f"{out} holds a finished build by {other_rules}; "
            "the same command makes other rows now: replace it with --overwrite, or choose another output folder"
        )
    if difference := find_difference(manifest.plan, plan):
        raise OutputError(
            f"{out} holds a finished build of another kind: {difference}; "
            "choose another output folder, or replace it with --overwrite"
        )


def find_other_rules(there: Plan, here: Plan) -> str | None:
    """Name what made a build, where that is not what would make it now: versions of rules, tables and libraries."""
    if there.rules_version != here.rules_version:
        return f"older rules (version {there.rules_version}, this is {here.rules_version})"
    if there.unicode_version != here.unicode_version:
        return f"other Unicode tables ({there.unicode_version} there, {here.unicode_version} here)"
    old, new = there.libraries or {}, here.libraries or {}
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            return f"another version of {name} ({old.get(name, 'none')} there, {new.get(name, 'none')} here)"
    return None


def find_difference(there: Plan, asked: Plan) -> str | None:
    """Name the first setting that differs, and both values."""
    for name, new in asked.config.items():
        old = there.config.get(name)
        if old != new:
            return f"{name} is {old} there and {new} here"
    if there.tokenizer != asked.tokenizer:
        return "the tokenizer differs"
    if there.inputs != asked.inputs:
        old_paths, new_paths = ({item.path: item for item in plan.inputs} for plan in (there, asked))
        changed = sorted(
            path for path in old_paths.keys() | new_paths.keys() if old_paths.get(path) != new_paths.get(path)
        )
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"the inputs differ ({changed[0]}{more})"
    return None
