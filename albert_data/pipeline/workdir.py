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
    manifests/          while publishing: of this build and of those whose files are in OUT (see ownership.py)

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

from albert_data.errors import OutputError, ShardError, StorageError
from albert_data.files import is_regular, is_there, read_bytes, read_json, remove_files, write_bytes, write_json
from albert_data.jobs.work_folder import LOCK_SECONDS
from albert_data.pipeline.card import CARD_NAME
from albert_data.pipeline.ownership import Ours, check_empty, read_our_manifest
from albert_data.rules import RULES_VERSION
from albert_data.shards.manifest import MANIFEST_NAME, SPLITS, Manifest, Plan, SourceEntry, parse
from albert_data.shards.manifest_file import PLAN_NAME, WORK_NAME, read_file
from albert_data.shards.schema import SHARD_SUFFIX
from albert_data.storage import FOLDER, find_kind, find_storage, is_remote
from albert_data.tokenizer.lexicon import WORDS_NAME
from albert_data.tokenizer.model import MODEL_NAMES
from albert_data.vocab.folder import FILES as VOCABULARY_FILES
from albert_data.wording import count_of

_MARK = b"albert-data build\n"
_SYNCED = "synced"
_LOCK_NAME, _BOOT_NAME, _BASIS_NAME = "lock", "boot", "basis"
# The files that a build writes into each folder below .build. A folder comes after its subfolders, because it can only
# be removed when it is empty.
_SHARD_FILES = {
    "shards/receipts": ("*.json",),
    **{f"shards/{split}": (f"*{SHARD_SUFFIX}",) for split in SPLITS},
    "shards/tokenizer": (*MODEL_NAMES, WORDS_NAME),
    "shards": (_BASIS_NAME, CARD_NAME),
}
_WORK_FILES = {
    "runs": ("*.run", "*.documents", "*.sources"),
    "receipts": ("*.json",),
    **_SHARD_FILES,
    "tokenizer": VOCABULARY_FILES,
    "candidates": ("*.candidates",),
}
_MANIFEST_FILES = {"manifests": ("*.json",)}


class WorkDir:
    """The paths of a build in OUT, and the lock on it."""

    def __init__(self, out: Path) -> None:
        self._storage = find_storage(out)
        self.out = out
        self.root = out / WORK_NAME
        self.runs, self.receipts = self.root / "runs", self.root / "receipts"
        self.shards, self.tokenizer = self.root / "shards", self.root / "tokenizer"
        self.candidates, self._manifests = self.root / "candidates", self.root / "manifests"
        self.plan_path, self._lock_path = self.root / PLAN_NAME, self.root / _LOCK_NAME
        self._boot, self._basis = self.root / _BOOT_NAME, self.shards / _BASIS_NAME
        self._replaced: Manifest | None = None  # of the finished build that was in OUT when this one began
        self._unlock: Callable[[], None] | None = None
        self._made_out = False

    def open(self) -> None:
        """Make the folder and lock it. Raises OutputError if it can't, or if OUT is not new, empty or ours."""
        try:
            if find_kind(self.out) not in (None, FOLDER):
                raise OutputError(f"output {self.out} is a file; name a folder")
            self._check_root()
            if not self._is_marked() and read_our_manifest(self.out) is None:
                check_empty(self.out)
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
        for path in (self.root, *(self.root / name for name in _WORK_FILES | _MANIFEST_FILES)):
            if find_kind(path, follow=False) not in (None, FOLDER):
                raise OutputError(f"{path} is not a folder of a build; move it away, or name another folder")
        if self._is_marked():
            return
        # A build that was killed at once may have written no mark, or a part of it.
        is_lock = is_regular(self._lock_path) and _MARK.startswith(self._storage.read_mark(self._lock_path))
        if foreign := sorted(set(self._storage.list_names(self.root)) - ({_LOCK_NAME} if is_lock else set())):
            raise OutputError(f"{self.root} holds {foreign[0]}, but no mark of a build; name a new or empty folder")

    def _is_marked(self) -> bool:
        return is_regular(self._lock_path) and self._storage.read_mark(self._lock_path) == _MARK

    def begin(self, plan: Plan, overwrite: bool, *, syncs: bool = False) -> bool:
        """Resume a killed build of this plan, or start one.

        syncs: whether every file of this build is synced before its receipt. Returns whether it has to be: a build that
        began so goes on so, and any machine can resume it.
        Raises OutputError if there is an unfinished build of another plan, or if a file that no build wrote has a name
        that builds give to theirs.
        """
        self._replaced = read_our_manifest(self.out)
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
        Ours(self.out, self.read_manifests()).check()
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
        self._storage.make_folder(self._manifests)
        if self._replaced:
            data = read_bytes(self.out / MANIFEST_NAME)
            write_bytes(self._manifests / f"{self._replaced.manifest_sha256}.json", data)
        made = self._manifests / f"{manifest.manifest_sha256}.json"
        write_json(made, manifest.to_values())
        for folder in (self._manifests, self.root):
            self._storage.sync(folder)
        return made

    def _read_plan(self) -> Plan | None:
        """The plan of an unfinished build. None if it is missing, unreadable, or a link, which no build writes."""
        try:
            plan, _ = parse(Plan, read_json(self.plan_path))
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
        for folder in ("receipts", "tokenizer", *SPLITS):
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
        """Remove what an unfinished build left, except the lock and manifests.

        The plan goes first: with a plan still there, a build could resume from the rest if this is killed halfway.
        """
        self.check_lock()
        for path in (self.plan_path, self._boot):
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

        Manifests and lock stay while OUT has no manifest: only they then say which files in OUT are ours.
        """
        self.clear()
        is_publishing = any(name.endswith(".json") for name in self._storage.list_names(self._manifests))
        if not is_publishing or find_kind(self.out / MANIFEST_NAME):
            self._drop(_MANIFEST_FILES)
            self._storage.remove(self._lock_path)
            self.close()  # before the folder is removed: NFS keeps a file that is open
            self._storage.remove_empty(self.root)  # another build may have begun here since
        self.close()

    def sweep(self, plan: Plan) -> None:
        """Remove what a build of this plan left if it was killed after it had written its manifest.

        It may have been killed while it removed its folder: then the plan is gone, and the mark may be.
        """
        self._storage.remove_empty(self.root)
        left = self._read_plan()
        if left == plan or (left is None and self._is_marked()):
            self.open()
            self.remove()

    def close(self) -> None:
        if self._unlock is not None:
            self._unlock()
            self._unlock = None


def _is_ours(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


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
    old, new = there.libraries, here.libraries
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            return f"another version of {name} ({old.get(name, 'none')} there, {new.get(name, 'none')} here)"
    return None


def find_difference(there: Plan, asked: Plan) -> str | None:
    """Name the first difference between two plans: a setting with both values, the tokenizer, or an input."""
    for name, new in asked.config.items():
        if (old := there.config.get(name)) != new:
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
