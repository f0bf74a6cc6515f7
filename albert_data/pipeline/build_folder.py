"""OUT of a build: which files there are ours, and the working folder OUT/.build with what a killed build left.

OUT is new, empty or ours: it holds a manifest as a build wrote it, or a .build with our mark. There a file is ours if
a manifest names it and it is a regular file of the size or SHA-256 in that manifest, in a folder that is no link. No
other file is ever replaced or removed. The manifests are that of OUT, and those that a publication keeps in .build.

OUT/.build/lock         see jobs/work_folder.py
    plan.json           what is being built: config, tokenizer, inputs, versions; and the boot id of the machine when
                        the build began (see `_boot_id`), or "synced"
    runs/ receipts/     sorted runs and receipts of map tasks, the lists of their documents, and the texts that are not
                        in NFC (forms.py); where near-duplicates are dropped, also signatures and shingles
                        (survey/parts.py), and when they are compared the keys of those to drop, with a receipt; with
                        groups or ids, these
    shards/             finished shards and ids, until they are published, and receipts of shards; a hash of the plan
                        and of the sorted runs is part of their names
    tokenizer/          a vocabulary that was trained for this build
    candidates/         on a cluster: sentences from which its sample is chosen (vocab/reading.py)
    lines/              the hashes of repeated lines
    manifests/          while publishing: of this build and of those whose files are in OUT

A killed build resumes by its receipts: a task or shard with a receipt is finished. On one machine runs and receipts are
never synced, and shards only once they are finished. So after a crash of the machine none of them is trusted, and the
build begins anew. Only Linux shows that there was a crash (see `_boot_id`). On a cluster each file is synced before its
receipt, so a build that began there is resumed after any crash, and from any machine.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from albert_data.errors import OutputError, ShardError, StorageError
from albert_data.jobs.work_folder import WorkFolder
from albert_data.pipeline.id_table import IDS_FOLDER
from albert_data.pipeline.plan import find_other
from albert_data.shards.manifest import MANIFEST_NAME, SPLITS, Manifest, Plan
from albert_data.shards.manifest_file import PLAN_NAME, WORK_NAME, check_readable, load_manifest, read_file
from albert_data.shards.paths import CARD_NAME
from albert_data.shards.schema import SHARD_SUFFIX
from albert_data.storage import FOLDER, LINK, find_kind, find_storage, is_remote, remember_listings
from albert_data.storage.files import hash_file, is_regular, is_there, read_json, write_json
from albert_data.text.wording import list_some
from albert_data.tokenizer.lexicon import WORDS_NAME
from albert_data.tokenizer.model import MODEL_NAMES
from albert_data.tokenizer.tokenizer_json import CONFIG_NAME
from albert_data.vocab.folder import FILES as VOCABULARY_FILES

_BOOT, _SYNCED = "boot", "synced"  # a key of plan.json, and its value where each file is synced before its receipt
_MADE = (
    "runs",
    "receipts",
    "shards/receipts",
    *(f"shards/{split}" for split in SPLITS),
    "shards/tokenizer",
    "shards/ids",
)
_WORK = (*_MADE, "shards", "tokenizer", "candidates", "lines")
_MANIFESTS = "manifests"
_FILES = (
    *("*.run", "*.documents", "*.columns", "*.signed", "*.bands", "*.shingles", "*.keys", "*.scratch", "*.texts"),
    *("*.ids", "*.forms", "*.candidates", "*.lines", "*.hashes", "*.json", f"*{SHARD_SUFFIX}", CARD_NAME),
    *(*MODEL_NAMES, WORDS_NAME, *VOCABULARY_FILES),
)
TOKENIZER_FOLDER = "tokenizer"
WORDS_FILE = f"{TOKENIZER_FOLDER}/{WORDS_NAME}"
_FOLDERS = (TOKENIZER_FOLDER, *SPLITS, IDS_FOLDER)  # of OUT
_ID_NAME = re.compile(rf"{IDS_FOLDER}/ids-[0-9]{{5,}}{re.escape(SHARD_SUFFIX)}")
_SHARD_NAME = re.compile(rf"({'|'.join(SPLITS)})/shard-[0-9]{{5,}}{re.escape(SHARD_SUFFIX)}")
_TOKENIZER_FILES = {WORDS_FILE, *(f"{TOKENIZER_FOLDER}/{name}" for name in (*MODEL_NAMES, CONFIG_NAME))}


# ---- OUT ----


def check_empty(out: Path, noun: str = "build") -> None:
    """Raise OutputError unless OUT is missing or empty. Hidden files, as those of systems and of git, do not count."""
    if names := sorted(name for name in find_storage(out).list_names(out) if not name.startswith(".")):
        raise OutputError(f"{out} holds {list_some(names, 1)}, but no {noun}; name a new or empty folder")


def read_our_manifest(out: Path) -> Manifest | None:
    """The manifest of the finished build in `out`, or None. Raises OutputError if it is not as a build wrote it."""
    path = out / MANIFEST_NAME
    if not is_there(path):
        return None
    why = "it is no regular file, or was changed since the build"
    try:
        read = load_manifest(out)
        if is_regular(path) and read.is_sealed:
            return read.manifest
    except ShardError as error:
        why = str(error)
    raise OutputError(
        f"{path} is not as a build wrote it, so nothing there is replaced; name a new or empty folder ({why})"
    )


class Ours:
    """The files in OUT that manifests name.

    Anybody may have written a manifest, so only names that a build gives to its files count.
    """

    def __init__(self, out: Path, manifests: Iterable[Manifest]) -> None:
        self._out = out
        self._files = defaultdict[str, set[int | str]](set)
        for name, content in (entry for manifest in manifests for entry in _list_files(manifest)):
            if name == CARD_NAME or _is_name(name):
                self._files[name].add(content)

    def holds(self, name: str) -> bool:
        """Whether OUT holds a file of this name as a manifest describes it."""
        path, known = self._out / name, self._files.get(name)
        if not known or not is_regular(path):
            return False
        if _SHARD_NAME.fullmatch(name):
            return find_storage(path).status(path).num_bytes in known
        return hash_file(path) in known

    def check(self) -> None:
        """Raise OutputError for a file that is not ours but has a name that builds give, and for a folder's link.

        The card is no obstacle: one that was edited stays.
        """
        for folder in _FOLDERS:
            path = self._out / folder
            if (found := find_kind(path, follow=False)) not in (None, FOLDER):
                kind = "a link" if found == LINK else "not a folder"
                raise OutputError(f"{path} is {kind}, and a build would write there; move it away")
            with remember_listings():
                for name in find_storage(path).list_names(path):
                    # On some disks two names are the same in upper and lower case.
                    if _is_name(f"{folder}/{name.lower()}") and not self.holds(f"{folder}/{name}"):
                        raise OutputError(
                            f"{path / name} was not written by a build, or was changed since, and a build would "
                            "replace it; move it away, or name a new or empty folder"
                        )

    def remove(self, kept: Collection[str]) -> None:
        """Remove these files, except the card and those named in `kept`."""
        storage = find_storage(self._out)
        with remember_listings():
            for folder in _FOLDERS:
                storage.list_names(self._out / folder)
            others = self._files.keys() - {CARD_NAME, *kept}
            paths = [self._out / name for name in others if self.holds(name)]
        storage.remove_all(paths)
        for parent in {path.parent for path in paths}:
            storage.sync(parent)  # or they could be back after a crash, beside those of the new build


def _list_files(manifest: Manifest) -> Iterator[tuple[str, int | str]]:
    """The files that a manifest names, with the size of a shard, which is large, or the SHA-256 of another file."""
    if manifest.card is not None:  # `publish` makes the card last
        yield CARD_NAME, manifest.card.sha256
    for entry in (manifest.tokenizer, *(manifest.tokenizer.added or ())):
        yield entry.file, entry.sha256
    if manifest.words:
        yield WORDS_FILE, manifest.words.sha256
    yield from ((entry.file, entry.sha256) for entry in manifest.ids or ())
    yield from ((shard.file, shard.num_bytes) for shard in manifest.shards)


def _is_name(name: str) -> bool:
    """Whether a build gives this name to a shard, or to a file of the ids or the tokenizer."""
    return name in _TOKENIZER_FILES or any(one.fullmatch(name) for one in (_ID_NAME, _SHARD_NAME))


# ---- OUT/.build ----


class BuildFolder(WorkFolder):
    """The paths of a build in OUT, and the lock on it."""

    def __init__(self, out: Path) -> None:
        super().__init__(out, WORK_NAME, "build", _FILES, (*_WORK, _MANIFESTS))
        self.plan_path, self._manifests = self.path / PLAN_NAME, self.path / _MANIFESTS
        self.runs, self.receipts, self.shards = self.path / "runs", self.path / "receipts", self.path / "shards"
        self.tokenizer, self.lines = self.path / TOKENIZER_FOLDER, self.path / "lines"
        self.candidates = self.path / "candidates"
        self._replaced: Manifest | None = None  # of the finished build that was in OUT when this one began

    def check(self) -> None:
        """Raise OutputError unless OUT is new, empty or ours."""
        for path in (self.out, *(() if is_remote(self.out) else self.out.parents)):
            if find_kind(path) not in (None, FOLDER):
                raise OutputError(f"output {self.out} can't be written: Not a directory; name another folder")
        super().check()
        if not self.is_marked and read_our_manifest(self.out) is None:
            check_empty(self.out)

    def compare(self, plan: Plan, *, overwrite: bool) -> None:
        """Raise OutputError if a build of this plan may not begin in OUT.

        So if there is an unfinished build of another plan, or a file that no build wrote under a name that builds give
        to theirs.
        """
        self._replaced = read_our_manifest(self.out)
        if not overwrite and (what := find_other(self._read_values(), self.read_plan(), plan)):
            raise OutputError(
                f"{self.out} holds an unfinished build {what}; run the command that began it to its end, with the "
                "versions that began it, or start anew with --overwrite"
            )
        self.find_ours().check()

    def begin(self, plan: Plan, *, overwrite: bool, syncs: bool = False) -> bool:
        """Resume a killed build of this plan, or start one, or raise what `compare` raises.

        syncs: whether every file is synced before its receipt. Returns whether it has to be: a build that began so goes
        on so, and any machine can resume it.
        """
        self.compare(plan, overwrite=overwrite)
        boot = self._read_values().get(_BOOT)
        # A plan names the version: another one may write sorted runs and receipts in another form.
        if self.read_plan() != plan or boot not in (_SYNCED, _boot_id()):
            boot = _SYNCED if syncs or is_remote(self.out) else _boot_id()  # a store loses nothing
            self.clear()
            write_json(self.plan_path, plan.to_values() | {_BOOT: boot})
        for folder in _MADE:
            self._storage.make_folder(self.path / folder)
        return syncs or boot == _SYNCED

    def find_ours(self) -> Ours:
        """The files of builds in OUT: of its own manifest, and of publications that were killed.

        Raises OutputError if OUT's own was put there, removed or changed since `begin`.
        """
        if read_our_manifest(self.out) != self._replaced:
            raise OutputError(
                f"{self.out / MANIFEST_NAME} was changed by something else while this build ran; restore or remove it, "
                "and give the command again"
            )
        kept = (_read_sealed(self._manifests / name) for name in self._storage.list_names(self._manifests))
        return Ours(self.out, (manifest for manifest in (self._replaced, *kept) if manifest is not None))

    def keep_manifest(self, manifest: Manifest) -> Path:
        """Keep the manifest of this build until it is moved to OUT; returns where it is.

        OUT's is moved there too, so that readers don't take a mixture of shards for a build.
        """
        check_readable(manifest)
        self._storage.make_folder(self._manifests)
        made = self._manifests / f"{manifest.manifest_sha256}.json"
        write_json(made, manifest.to_values())
        for folder in (self._manifests, self.path):
            self._storage.sync(folder)
        self.check_lock()
        if self._replaced:
            old = f"{self._replaced.manifest_sha256}.json"
            self._storage.place(self._manifests, {old: self.out / MANIFEST_NAME})
        return made

    def read_plan(self) -> Plan | None:
        """The plan of an unfinished build. None if it is missing, unreadable, or a link, which no build writes."""
        with suppress(ShardError):
            return Plan.from_values(self._read_values())
        return None

    def _read_values(self) -> dict[str, Any]:
        """What plan.json holds; nothing if it can't be read."""
        with suppress(OSError, ValueError):
            return read_json(self.plan_path) if is_regular(self.plan_path) else {}
        return {}

    def clear(self) -> None:
        """Remove what an unfinished build left, except the lock and manifests."""
        self.drop(("", *_WORK))

    def remove_if_empty(self) -> None:
        """Remove the folder of a build that failed before it made a sorted run or a vocabulary.

        Manifests and lock stay while OUT has no manifest: only they then say which files in OUT are ours. Not if it
        fails: another build may have taken the lock.
        """
        with suppress(OSError, StorageError):
            has_run = any(name.endswith(".run") for name in self._storage.list_names(self.runs))
            if has_run or is_there(self.tokenizer / "vocab.json"):
                return
            self.clear()
            if is_there(self.out / MANIFEST_NAME) or not self._storage.list_names(self._manifests):
                self.remove()


def find_plan(out: Path, *, overwrite: bool) -> Plan | None:
    """The plan of the build in `out` that a command may go on with: of the finished one, or of an unfinished one.

    overwrite: whether the command replaces a finished one.
    """
    finished = None if overwrite else read_our_manifest(out)
    return finished.plan if finished else BuildFolder(out).read_plan()


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
