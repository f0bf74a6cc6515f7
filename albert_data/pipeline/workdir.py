"""The working folder of a build: its lock, and what a killed build left there.

OUT/.build/lock         locked by the running build; its text marks the folder as one of a build
    plan.json           what is being built: config, tokenizer, inputs, versions
    boot                the boot id of the machine when the build began (see `_boot_id`), or "synced"
    runs/ receipts/     sorted runs and receipts of map tasks; of a mixture, also the lists of its documents
    shards/             finished shards, until they are published
    shards/receipts/    the receipts of these shards
    shards/basis        what the shards are made of: digest, counts, names of the runs
    tokenizer/          a vocabulary that was trained for this build
    candidates/         on a cluster: sentences from which its sample is chosen (see candidates.py)
    journal.json        while publishing: the files in OUT that this build and earlier ones wrote (see ownership.py)
    placed              the next file to be renamed into OUT

A killed build resumes by its receipts: a task or shard with a receipt is finished. On one machine runs and receipts are
never synced, and shards only once they are finished. So after a crash of the machine none of them is trusted, and the
build begins anew. Only Linux shows that there was a crash (see `_boot_id`). On a cluster each file is synced before its
receipt, so a build is resumed after any crash, and from any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from albert_data.config import NEWER
from albert_data.errors import OutputError, StorageError
from albert_data.files import is_regular, is_there, read_bytes, read_json, remove_files, write_bytes, write_json
from albert_data.pipeline.card import CARD_NAME
from albert_data.pipeline.ownership import (
    WORDS_FILE,
    Record,
    Records,
    check_targets,
    name_tokenizer,
    read_journal,
    read_our_manifest,
    record_files,
    write_journal,
)
from albert_data.pipeline.vocabulary_folder import FILES as VOCABULARY_FILES
from albert_data.rules import RULES_VERSION
from albert_data.shards.manifest import MANIFEST_NAME, SPLITS, Manifest, Plan, SourceEntry, parse_plan
from albert_data.shards.manifest_file import PLAN_NAME, WORK_NAME
from albert_data.shards.schema import SHARD_SUFFIX
from albert_data.storage import FOLDER, TEMPORARY_SUFFIX, find_kind, find_storage, is_remote
from albert_data.tokenizer.model import MODEL_NAME
from albert_data.wording import count_of

LOCK_SECONDS = 5.0
_MARK = b"albert-data build\n"
_SYNCED = "synced"
_LOCK_NAME, _BOOT_NAME, _BASIS_NAME, _JOURNAL_NAME, _PLACED_NAME = "lock", "boot", "basis", "journal.json", "placed"
_FIRST_SHARD = f"{SPLITS[0]}/shard-00000{SHARD_SUFFIX}"
# The files that a build writes into each folder below .build. A folder comes after its subfolders, because it can only
# be removed when it is empty.
_SHARD_FILES = {
    "shards/receipts": ("*.json",),
    **{f"shards/{split}": (f"*{SHARD_SUFFIX}",) for split in SPLITS},
    "shards": (_BASIS_NAME,),
}
_WORK_FILES = {
    "runs": ("*.run", "*.documents", "*.sources"),
    "receipts": ("*.json",),
    **_SHARD_FILES,
    "tokenizer": VOCABULARY_FILES,
    "candidates": ("*.candidates",),
}


class WorkDir:
    """The paths of a build in OUT, and the lock on it."""

    def __init__(self, out: Path) -> None:
        self._storage = find_storage(out)
        self.out = out
        self.root = out / WORK_NAME
        self.runs, self.receipts = self.root / "runs", self.root / "receipts"
        self.shards, self.tokenizer = self.root / "shards", self.root / "tokenizer"
        self.candidates = self.root / "candidates"
        self.plan_path, self._lock_path = self.root / PLAN_NAME, self.root / _LOCK_NAME
        self._boot, self._basis = self.root / _BOOT_NAME, self.shards / _BASIS_NAME
        self._journal, self.placed = self.root / _JOURNAL_NAME, self.root / _PLACED_NAME
        self._unlock: Callable[[], None] | None = None
        self._made_out = False

    def open(self) -> None:
        """Make the folder and lock it. Raises OutputError if it can't, or if .build was not made by a build."""
        try:
            if find_kind(self.out) not in (None, FOLDER):
                raise OutputError(f"output {self.out} is a file; name a folder")
            self._check_root()
            self._made_out = find_kind(self.out) is None
            self._storage.make_folder(self.root)
            # If a build has just been killed, its processes have to end first.
            self._unlock = self._storage.lock(self._lock_path, _MARK, LOCK_SECONDS)
        except BlockingIOError as error:
            raise OutputError(f"another build is writing to {self.out}; wait for it to end") from error
        except OSError as error:
            raise OutputError(f"output {self.out} can't be written: {error.strerror}") from error

    def _check_root(self) -> None:
        """Raise OutputError unless .build is missing, was made by a build, or holds nothing that could be lost."""
        folders = [self.root, *(self.root / name for name in _WORK_FILES)]
        for path in folders:
            if find_kind(path, follow=False) not in (None, FOLDER):
                raise OutputError(f"{path} is not a folder of a build; move it away, or name another folder")
        if not is_there(self.root) or self._is_marked() or self._read_plan() is not None:
            return
        # A build that was killed at once may have written no mark, or a part of it.
        is_lock = is_regular(self._lock_path) and _MARK.startswith(self._storage.read_mark(self._lock_path))
        if foreign := sorted(set(self._storage.list_names(self.root)) - ({_LOCK_NAME} if is_lock else set())):
            raise OutputError(
                f"{self.root} holds {foreign[0]}, but no plan of a build; move it away, or name another folder"
            )

    def _is_marked(self) -> bool:
        return is_regular(self._lock_path) and self._storage.read_mark(self._lock_path) == _MARK

    def begin(self, plan: Plan, overwrite: bool, *, syncs: bool = False) -> bool:
        """Resume a killed build of this plan, or start one.

        syncs: whether every file of this build is synced before its receipt. Returns whether it has to be: a build that
        began so goes on so, and any machine can resume it.
        Raises OutputError if there is an unfinished build of another plan, or if a file that no build wrote has a name
        that this build will certainly use.
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
        # Another version may write sorted runs and receipts in another form, so its unfinished build is not resumed.
        is_same = left is not None and not other_rules and not difference and left.version == plan.version
        before = self._read_boot()
        now = self._present_boot(syncs=syncs or (is_same and before == _SYNCED))
        if not is_same or before not in (_SYNCED, self._present_boot()):
            self.clear()
            write_bytes(self._boot, now.encode(), sync=False)
            write_json(self.plan_path, plan.to_values())
        elif before != now:
            if syncs:
                self._sync_files()
            write_bytes(self._boot, now.encode())
        for folder in (self.runs, self.receipts):
            self._storage.make_folder(folder)
        return now == _SYNCED

    def check_lock(self, *, asks: bool = True) -> None:
        """Raise OSError if another build has taken the lock, which can happen in a store: then this one must end.

        asks: see `Storage.check_lock`.
        """
        self._storage.check_lock(self._lock_path, asks=asks)

    def _sync_files(self) -> None:
        """Sync what an engine of this machine alone has written."""
        for folder in (self.runs, self.receipts, self.shards / "receipts", *(self.shards / split for split in SPLITS)):
            for name in self._storage.list_names(folder):
                self._storage.sync(folder / name)

    def _check_targets(self, plan: Plan) -> None:
        """Check the files that every build writes, so that it stops now and not after hours of work."""
        tokenizer_file = name_tokenizer(plan.tokenizer.get("file", MODEL_NAME))
        records, names = self.records(), [_FIRST_SHARD, tokenizer_file]
        if not records:
            names.append(CARD_NAME)  # where a build has written before, an edited card is no obstacle: it stays
        if "sha256" in plan.tokenizer:  # the same model may lie there: --tokenizer may even name OUT's own
            records |= {Record(name=tokenizer_file, sha256=plan.tokenizer["sha256"])}
        if "words" in plan.tokenizer:
            names.append(WORDS_FILE)
            records |= {Record(name=WORDS_FILE, sha256=plan.tokenizer["words"])}
        check_targets(self.out, names, records)

    def records(self) -> Records:
        """The files in OUT that builds wrote. Raises OutputError if the manifest there is not as a build wrote it."""
        manifest = read_our_manifest(self.out)
        return read_journal(self._journal) | (record_files(manifest) if manifest else frozenset())

    def keep_records(self, records: Records) -> None:
        """Write the journal."""
        write_journal(self._journal, records)
        self._storage.sync(self.root)

    def _read_plan(self) -> Plan | None:
        """The plan of an unfinished build. None if it is missing, unreadable, or a link, which no build writes."""
        try:
            plan, _ = parse_plan(read_json(self.plan_path))
        except (OSError, ValueError):
            return None
        return plan if is_regular(self.plan_path) else None

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
            self._drop(_SHARD_FILES)
        for folder in ("receipts", *SPLITS):
            self._storage.make_folder(self.shards / folder)
        write_bytes(self._basis, basis.encode())

    def remove_if_empty(self) -> None:
        """Remove the folder of a build that failed before it made a sorted run or a vocabulary.

        Not if that fails: another build may have taken the lock.
        """
        with suppress(OSError, StorageError):
            self._remove_if_empty()

    def _remove_if_empty(self) -> None:
        has_run = any(name.endswith(".run") for name in self._storage.list_names(self.runs))
        if not has_run and not is_there(self.tokenizer / "vocab.json"):
            self.remove()
            if self._made_out:
                self._storage.remove_empty(self.out)

    def clear(self) -> None:
        """Remove what an unfinished build left, except lock and journal.

        The plan goes first: with a plan still there, a build could resume from the rest if this is killed halfway.
        """
        self.check_lock()
        for path in (self.plan_path, self._boot, self.placed):
            if is_regular(path):
                self._storage.remove(path)
        self._drop(_WORK_FILES)
        self._storage.remove_leftovers(self.root)

    def _drop(self, names: Mapping[str, tuple[str, ...]]) -> None:
        """Remove files with these names from folders below .build, and then the folders that are empty."""
        for folder, patterns in names.items():
            path = self.root / folder
            remove_files(path, partial(_is_ours, patterns))
            self._storage.remove_empty(path)  # it stays if it holds a file that no build wrote

    def remove(self) -> None:
        """Remove the working folder.

        Journal and lock stay while OUT has no manifest: only the journal then says which files in OUT are ours.
        """
        self.clear()
        if find_kind(self.out / MANIFEST_NAME):
            self._storage.remove(self._journal)
        if not find_kind(self._journal):
            self._storage.remove(self._lock_path)
            self.close()  # before the folder is removed: NFS keeps a file that is open
            self._storage.remove_empty(self.root)  # another build may have begun here since
        self.close()

    def sweep(self, plan: Plan) -> None:
        """Remove what a build of this plan left if it was killed after it had written its manifest.

        It may have been killed while it removed its folder: then the plan is gone, and only the mark is left.
        """
        left = self._read_plan()
        if left == plan or (left is None and self._is_marked()):
            self.open()
            self.remove()

    def close(self) -> None:
        if self._unlock is not None:
            self._unlock()
            self._unlock = None


def _is_ours(patterns: tuple[str, ...], name: str) -> bool:
    base = name.removesuffix(TEMPORARY_SUFFIX)  # version 0.3.0 named temporary files so: x.run.tmp
    return any(fnmatchcase(base, pattern) for pattern in patterns)


def _boot_id() -> str:
    """A text that is new after each start of the machine.

    Only Linux gives it. Elsewhere it is always empty, so a crash of the machine goes unnoticed, and a resumed build
    trusts what it finds. Receipts still carry a hash, and the size of each sorted run is checked.
    """
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text() if path.exists() else ""


def check_finished(manifest: Manifest, plan: Plan, out: Path) -> None:
    """Raise OutputError if a finished build is not the one that is asked for. The message names a difference."""
    if other_rules := find_other_rules(manifest.plan, plan):
        raise OutputError(
            f"{out} holds a finished build by {other_rules}; "
            "the same command may make other rows now: replace it with --overwrite, or choose another output folder"
        )
    if difference := find_difference(manifest.plan, plan):
        raise OutputError(
            f"{out} holds a finished build of another kind: {difference}; "
            "choose another output folder, or replace it with --overwrite"
        )


def find_other_rules(there: Plan, here: Plan) -> str | None:
    """Name the rules, Unicode tables or library that made a build, if they are not those of this program.

    A build is a pure function of documents, tokenizer and config only for one version of each. Libraries count because
    they decide bytes: pyarrow writes and compresses the shards; SentencePiece normalises text, tokenises what the chunk
    table can't, and trains vocabularies. Whether two versions differ in that can't be known here. So a build by another
    version is neither taken for the result of this command nor resumed: the user decides, with --overwrite.
    """
    if there.rules_version != here.rules_version:
        # Newer rules don't come this far: manifests and plans of theirs are refused when they are read.
        return f"older rules (version {there.rules_version}, this is {here.rules_version})"
    if there.unicode_version != here.unicode_version:
        return f"other Unicode tables ({there.unicode_version} there, {here.unicode_version} here)"
    old, new = there.libraries or {}, here.libraries or {}
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            return f"another version of {name} ({old.get(name, 'none')} there, {new.get(name, 'none')} here)"
    return None


def find_difference(there: Plan, asked: Plan) -> str | None:
    """Name the first difference between two plans: a setting with both values, the tokenizer, or an input."""
    old_settings, new_settings = ({**NEWER, **plan.config} for plan in (there, asked))
    for name, new in new_settings.items():
        old = old_settings.get(name)
        if old != new:
            return f"{name} is {old} there and {new} here"
    if there.mixture != asked.mixture:
        return _find_mixed_difference(there.mixture or (), asked.mixture or ())
    if there.tokenizer != asked.tokenizer:
        is_list = {**there.tokenizer, "words": None} == {**asked.tokenizer, "words": None}
        return f"the {'word list' if is_list else 'tokenizer'} differs"
    if there.inputs != asked.inputs:
        changed = sorted({item.path for item in set(there.inputs) ^ set(asked.inputs)})
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"the inputs differ ({changed[0]}{more})"
    return None


def _find_mixed_difference(there: Sequence[SourceEntry], asked: Sequence[SourceEntry]) -> str:
    for old, new in zip(there, asked, strict=False):
        for name, value in vars(new).items():
            if getattr(old, name) != value:
                return f"{name} of source {new.name} is {_show(getattr(old, name))} there and {_show(value)} here"
    return f"the mixture has {count_of(len(there), 'source')} there and {len(asked)} here"


def _show(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)
