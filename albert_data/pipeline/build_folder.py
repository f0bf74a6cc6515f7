"""The working folder of a build: its lock, and what a killed build left there.

OUT/.build/lock         see jobs/work_folder.py
    plan.json           what is being built: config, tokenizer, inputs, versions
    boot                the boot id of the machine when the build began (see `_boot_id`), or "synced"
    runs/ receipts/     sorted runs and receipts of map tasks, the lists of their documents, and the texts that are not
                        in NFC (forms.py); where near-duplicates are dropped, also signatures and shingles
                        (survey/parts.py), and when they are compared the keys of those to drop, with a receipt; with
                        groups, these
    shards/             finished shards, until they are published; a hash of the plan is part of their names
    shards/receipts/    the receipts of these shards, named likewise
    shards/basis        what the shards are made of: digest, counts, names of the runs
    tokenizer/          a vocabulary that was trained for this build
    candidates/         on a cluster: sentences from which its sample is chosen (vocab/candidates.py)
    manifests/          while publishing: of this build and of those whose files are in OUT (see ownership.py)

A killed build resumes by its receipts: a task or shard with a receipt is finished. On one machine runs and receipts are
never synced, and shards only once they are finished. So after a crash of the machine none of them is trusted, and the
build begins anew. Only Linux shows that there was a crash (see `_boot_id`). On a cluster each file is synced before its
receipt, so a build is resumed after any crash, and from any machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from albert_data.errors import OutputError, ShardError, StorageError
from albert_data.jobs.work_folder import WorkFolder
from albert_data.pipeline.identity import find_difference, find_other_rules, find_renaming
from albert_data.pipeline.ownership import Ours, check_empty, read_our_manifest
from albert_data.rules import RULES_VERSION
from albert_data.shards.manifest import MANIFEST_NAME, SPLITS, Manifest, Plan, parse
from albert_data.shards.manifest_file import GIVEN, PLAN_NAME, WORK_NAME, check_readable, read_file
from albert_data.shards.paths import CARD_NAME
from albert_data.shards.schema import SHARD_SUFFIX
from albert_data.shards.typed_values import to_value
from albert_data.storage import FOLDER, find_kind, find_storage, is_remote
from albert_data.storage.files import is_regular, is_there, read_bytes, read_json, write_bytes, write_json
from albert_data.survey.repeated_lines import LINE_FILES
from albert_data.tokenizer.lexicon import WORDS_NAME
from albert_data.tokenizer.model import MODEL_NAMES
from albert_data.vocab.folder import FILES as VOCABULARY_FILES

_SYNCED = "synced"
_BOOT_NAME, _BASIS_NAME = "boot", "basis"
# The files that a build writes into each folder below .build, see WorkFolder.
_SHARD_FILES = {
    "shards/receipts": ("*.json",),
    **{f"shards/{split}": (f"*{SHARD_SUFFIX}",) for split in SPLITS},
    "shards/tokenizer": (*MODEL_NAMES, WORDS_NAME),
    "shards": (_BASIS_NAME, CARD_NAME),
}
_WORK_FILES = {
    "runs": (
        *("*.run", "*.documents", "*.columns", "*.signed", "*.bands"),
        *("*.shingles", "*.keys", "*.scratch", "*.texts", "*.forms"),
    ),
    "receipts": ("*.json",),
    **_SHARD_FILES,
    "tokenizer": VOCABULARY_FILES,
    "candidates": ("*.candidates",),
    "lines": LINE_FILES,
}
_MANIFEST_FILES = {"manifests": ("*.json",)}
_PLAN_FILES = {"": (PLAN_NAME, _BOOT_NAME)}


class BuildFolder:
    """The paths of a build in OUT, and the lock on it."""

    def __init__(self, out: Path) -> None:
        self._storage = find_storage(out)
        self._folder = WorkFolder(out, WORK_NAME, "build", {**_WORK_FILES, **_MANIFEST_FILES, **_PLAN_FILES})
        self.out, root = out, self._folder.path
        self.runs, self.receipts = root / "runs", root / "receipts"
        self.shards, self.tokenizer = root / "shards", root / "tokenizer"
        self.candidates, self.lines, self._manifests = root / "candidates", root / "lines", root / "manifests"
        self.plan_path, self._boot, self._basis = root / PLAN_NAME, root / _BOOT_NAME, self.shards / _BASIS_NAME
        self._replaced: Manifest | None = None  # of the finished build that was in OUT when this one began
        self.check_lock, self.close = self._folder.check_lock, self._folder.unlock

    def open(self, *, dry_run: bool = False) -> None:
        """Make the folder and lock it. Raises OutputError if it can't, or if OUT is not new, empty or ours.

        dry_run: only raise what can be known before.
        """
        if find_kind(self.out) not in (None, FOLDER):
            raise OutputError(f"output {self.out} is a file; name a folder")
        if not is_remote(self.out) and any(find_kind(path) not in (None, FOLDER) for path in self.out.parents):
            raise OutputError(f"output {self.out} can't be written: Not a directory; name another folder")
        self._folder.check()
        if not self._folder.is_marked and read_our_manifest(self.out) is None:
            check_empty(self.out)
        if not dry_run:
            self._folder.lock()

    def begin(
        self, plan: Plan, overwrite: bool, *, syncs: bool = False, given: Sequence[str] = (), dry_run: bool = False
    ) -> bool:
        """Resume a killed build of this plan, or start one.

        given: the words that name the inputs on a command line, for who wants to resume it.
        syncs: whether every file of this build is synced before its receipt. Returns whether it has to be: a build that
        began so goes on so, and any machine can resume it. dry_run: only raise errors, also without the lock.
        Raises OutputError if there is an unfinished build of another plan, or if a file that no build wrote has a name
        that builds give to theirs.
        """
        self._replaced = read_our_manifest(self.out)
        left = self.read_plan()
        other_rules, difference = left and find_other_rules(left, plan), left and find_difference(left, plan)
        what = other_rules and f"by {other_rules}; finish it with the versions that began it"
        if newer := self._find_newer_rules():
            what = f"by newer rules (version {newer}, this is {RULES_VERSION}); "
            what += "finish it with the version of albert-data that began it"
        elif difference and not other_rules:
            what = f"of another kind: {difference}; run that command to its end"
        if what and not overwrite:
            raise OutputError(f"{self.out} holds an unfinished build {what}, or start anew with --overwrite")
        Ours(self.out, self.read_manifests()).check()
        if dry_run:
            return syncs
        # Another version may write sorted runs and receipts in another form, so its unfinished build is not resumed.
        is_same = left is not None and not other_rules and not difference and left.version == plan.version
        before = self._read_boot()
        now = self._present_boot(syncs=syncs or (is_same and before == _SYNCED))
        if not is_same or before not in (_SYNCED, self._present_boot()):
            self.clear()
            write_bytes(self._boot, now.encode(), sync=False)
            write_json(self.plan_path, to_value(plan) | {GIVEN: given})
        elif before != now:
            if syncs:
                self._sync_files()
            write_bytes(self._boot, now.encode())
        for folder in (self.runs, self.receipts):
            self._storage.make_folder(folder)
        return now == _SYNCED

    def _sync_files(self) -> None:
        """Sync what an engine of this machine alone has written."""
        for folder in (self.runs, self.receipts, self.shards / "receipts", *(self.shards / split for split in SPLITS)):
            for name in self._storage.list_names(folder):
                self._storage.sync(folder / name)

    def read_manifests(self) -> list[Manifest]:
        """Those that name the files of builds in OUT: its own, and those of publications that were killed.

        Raises OutputError if OUT's own was put there, removed or changed since `begin`.
        """
        if read_our_manifest(self.out) != self._replaced:
            raise OutputError(
                f"{self.out / MANIFEST_NAME} was changed by something else while this build ran; restore or remove it, "
                "and give the command again"
            )
        kept = (_read_sealed(self._manifests / name) for name in self._storage.list_names(self._manifests))
        return [manifest for manifest in (self._replaced, *kept) if manifest is not None]

    def keep_manifests(self, manifest: Manifest) -> Path:
        """Keep OUT's manifest, and that of this build until it is moved there; returns where the latter is."""
        check_readable(manifest)
        self._storage.make_folder(self._manifests)
        if self._replaced:
            data = read_bytes(self.out / MANIFEST_NAME)
            write_bytes(self._manifests / f"{self._replaced.manifest_sha256}.json", data)
        made = self._manifests / f"{manifest.manifest_sha256}.json"
        write_json(made, manifest.to_values())
        for folder in (self._manifests, self._folder.path):
            self._storage.sync(folder)
        return made

    def read_plan(self) -> Plan | None:
        """The plan of an unfinished build. None if it is missing, unreadable, or a link, which no build writes."""
        try:
            plan, _ = parse(Plan, read_json(self.plan_path))
        except (OSError, ValueError):
            return None
        return plan if is_regular(self.plan_path) else None

    def trust(self, plan: Plan, say: Callable[[str], object], *, overwrite: bool) -> Plan:
        """The plan with the inputs of the build in OUT, if its own differ from them in time or name alone."""
        finished = None if overwrite else read_our_manifest(self.out)
        there = finished.plan if finished else self.read_plan()
        if there is None or there.inputs == plan.inputs or (renamed := find_renaming(there, plan)) is None:
            return plan
        say(f"trusting that the text of the inputs is the same, though they differ in {renamed}")
        return dataclasses.replace(plan, inputs=there.inputs)

    def _find_newer_rules(self) -> int | None:
        """The version of the rules that began an unfinished build, if this program does not know it yet; else None."""
        try:
            version = read_json(self.plan_path).get("rules_version")
        except (OSError, ValueError):
            return None
        return version if isinstance(version, int) and version > RULES_VERSION else None

    def _present_boot(self, *, syncs: bool = False) -> str:
        """What `boot` has to hold if nothing was lost since. A store loses nothing, whatever machine resumes."""
        return _SYNCED if syncs or is_remote(self.out) else _boot_id()

    def _read_boot(self) -> str:
        with suppress(OSError, ValueError):
            return read_bytes(self._boot).decode()
        return "none"  # equals no boot id

    def begin_shards(self, basis: str) -> None:
        """Keep finished shards if they were made of the same sorted runs, and remove them otherwise.

        basis: a text that differs if the runs do.
        """
        self.check_lock()
        if not is_regular(self._basis) or read_bytes(self._basis) != basis.encode():
            self._folder.drop(_SHARD_FILES)
        for folder in ("receipts", "tokenizer", *SPLITS):
            self._storage.make_folder(self.shards / folder)
        write_bytes(self._basis, basis.encode())

    def remove_if_empty(self) -> None:
        """Remove the folder of a build that failed before it made a sorted run or a vocabulary.

        Not if that fails: another build may have taken the lock.
        """
        with suppress(OSError, StorageError):
            has_run = any(name.endswith(".run") for name in self._storage.list_names(self.runs))
            if not has_run and not is_there(self.tokenizer / "vocab.json"):
                self.remove()

    def clear(self) -> None:
        """Remove what an unfinished build left, except the lock and manifests.

        The plan goes first: with a plan still there, a build could resume from the rest if this is killed halfway.
        """
        self.check_lock()
        self._folder.drop(_PLAN_FILES)
        self._folder.drop(_WORK_FILES)

    def remove(self) -> None:
        """Remove the working folder.

        Manifests and lock stay while OUT has no manifest: only they then say which files in OUT are ours.
        """
        self.clear()
        is_publishing = any(name.endswith(".json") for name in self._storage.list_names(self._manifests))
        if not is_publishing or find_kind(self.out / MANIFEST_NAME):
            self._folder.remove()
        self.close()

    def sweep(self, plan: Plan) -> None:
        """Remove what a build of this plan left if it was killed after it had written its manifest.

        It may have been killed while it removed its folder: then the plan is gone, and the mark may be.
        """
        self._storage.remove_empty(self._folder.path)
        left = self.read_plan()
        if left == plan or (left is None and self._folder.is_marked):
            self.open()
            self.remove()


def read_commits(out: Path, *, overwrite: bool) -> Mapping[str, str] | None:
    """What names on the Hugging Face Hub mean to the build in `out`: to an unfinished one, or to one that stays.

    None if it uses none, or there is no build.
    """
    if plan := BuildFolder(out).read_plan():
        return plan.hub
    with suppress(OSError, ValueError, ShardError):
        return None if overwrite else read_file(out / MANIFEST_NAME).manifest.plan.hub
    return None


def _read_sealed(path: Path) -> Manifest | None:
    """A manifest in .build; None if it is not as a build wrote it."""
    with suppress(OSError, ValueError, ShardError):
        read = read_file(path)
        if is_regular(path) and read.is_sealed:
            return read.manifest
    return None


def _boot_id() -> str:
    """A text that is new after each start of the machine.

    Only Linux gives it. Elsewhere it is always empty, so a crash of the machine goes unnoticed, and a resumed build
    trusts what it finds. Receipts still carry a hash, and a sorted run that is cut short is an error.
    """
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text() if path.exists() else ""
