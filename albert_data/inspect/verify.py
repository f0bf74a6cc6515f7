"""Checks that a shard folder is still what its manifest says, byte for byte, and that its rows keep all rules.

In: a shard folder, in any state. Out: faults, each with its file, and its row where that is known. Damage of any
kind gives faults, never an exception. Nearly all time is spent in hashing, Arrow and kernels, which release the
GIL, so threads check several shards at once; or the workers of an engine do. Validation comes first: none of its
documents may be in training.
"""

from __future__ import annotations

import dataclasses
import errno
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.errors import ShardError, TokenizerError
from albert_data.inspect.row_checks import RowRules, find_row_faults, make_row_rules
from albert_data.jobs.engine import AnyTask, Engine, PreparedJob, Result
from albert_data.jobs.progress import NullProgress, Progress
from albert_data.shards import schema
from albert_data.shards.manifest import (
    MANIFEST_NAME,
    SEAL,
    SPLITS,
    TOTALS,
    FileEntry,
    Manifest,
    ShardEntry,
    TokenizerEntry,
    hash_manifest,
)
from albert_data.shards.manifest_file import ManifestDamage, ManifestFile, load_manifest, read_manifest
from albert_data.shards.paths import find_file
from albert_data.storage import find_storage, make_path
from albert_data.storage.files import hash_file
from albert_data.text.escaping import name_as_text
from albert_data.text.wording import count_of
from albert_data.tokenizer.lexicon import NO_WORDS
from albert_data.tokenizer.model import Tokenizer, load_tokenizer

MAX_SHARD_FAULTS = 10
_MAX_THREADS = 64  # each keeps a file open; more would only wait for the same cores and disk
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # errors of the machine, not of the file
_TRAIN = SPLITS[0]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong. file: relative to the folder; row: in that file, counted from 0."""

    file: str
    what: str
    row: int | None = None

    def __str__(self) -> str:
        row = "" if self.row is None else f", row {self.row:,}"
        return f"{self.file}{row}: {self.what}"

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "file": name_as_text(self.file)}


def verify(
    folder: Path,
    *,
    quick: bool = False,
    workers: int = 1,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Iterator[Fault]:
    """Check all that a manifest says, and every row. The arguments are those of `library.shards.verify_shards`.

    For the rows of a shard the first MAX_SHARD_FAULTS faults are given, and the number of the others. Raises ShardError
    if the folder has no manifest, so it is no finished build, and if a build replaced the manifest meanwhile, as the
    faults may then be of the old or the new build.
    """
    try:
        file = load_manifest(folder)
    except ManifestDamage as error:
        yield Fault(file=MANIFEST_NAME, what=str(error))
        return
    for fault in _find_faults(folder, file, quick, engine or _Threads(min(workers, _MAX_THREADS)), progress):
        file.check_current()
        yield fault
    file.check_current()


def _find_faults(
    folder: Path, file: ManifestFile, quick: bool, engine: Engine, progress: Progress | None
) -> Iterator[Fault]:
    manifest = file.manifest
    yield from (Fault(file=MANIFEST_NAME, what=what) for what in _find_changes(file))
    yield from _find_unlisted(folder, manifest)
    yield from filter(None, (check_file(folder, entry)[0] for entry in manifest.ids or ()))
    rules = yield from _check_tokenizer(folder, manifest, quick)
    yield from _check_splits(folder, manifest, rules, engine, progress or NullProgress())


def _find_changes(file: ManifestFile) -> Iterator[str]:
    if SEAL not in file.values:
        yield f"{SEAL} is missing, so the other values can't be trusted; move the file away and build anew"
    elif not file.is_sealed:
        sealed = hash_manifest(file.values)
        yield f"a value was changed: its values have the SHA-256 {sealed}; {SEAL} says {file.values[SEAL]!s:.64}"


def _find_unlisted(folder: Path, manifest: Manifest) -> Iterator[Fault]:
    listed = Counter([*(shard.file for shard in manifest.shards), *(entry.file for entry in manifest.ids or ())])
    for name, times in listed.items():
        if times > 1:
            yield Fault(file=name, what=f"is listed {times} times in the manifest; allowed is once")
    for path in sorted(_find_shards(folder)):
        name = path.relative_to(folder).as_posix()
        if name not in listed:
            yield Fault(file=name, what="is not listed in the manifest; a shard folder holds no other shards")


def _find_shards(folder: Path) -> Iterator[Path]:
    """All files named as shards, except in hidden folders, where a running build has files. Folders may vanish."""
    for parent, folders, files in find_storage(folder).walk(folder, lambda error: None):
        folders[:] = [name for name in folders if not name.startswith(".")]
        shards = (name for name in files if name.endswith(schema.SHARD_SUFFIX) and not name.startswith("."))
        yield from (make_path(parent) / name for name in shards)


def _check_tokenizer(folder: Path, manifest: Manifest, quick: bool) -> Generator[Fault, None, RowRules | None]:
    """Yield the faults; return the rules for the rows, or None if rows are not checked."""
    expected, words = manifest.tokenizer, manifest.words
    entries: list[FileEntry] = [expected, *([words] if words else [])]
    faults = [fault for entry in entries if (fault := check_file(folder, entry)[0])]
    yield from faults
    yield from (fault for entry in expected.added or () if (fault := check_file(folder, entry)[0]))
    if quick:
        return None
    try:
        if faults:
            raise TokenizerError("the file is not the one of the build")  # reported below
        tokenizer = load_tokenizer(
            find_file(folder, expected.file)[0],
            normalization=expected.normalization or "none",
            words=find_file(folder, words.file)[0] if words else NO_WORDS,
            to_encode=False,
        )
    except TokenizerError as error:
        file = faults[0].file if faults else expected.file
        yield Fault(file=file, what=f"no row is checked, as that needs the tokenizer: {error}")
        return None
    yield from _compare_specials(tokenizer, expected)
    return make_row_rules(tokenizer, manifest)


def _compare_specials(tokenizer: Tokenizer, expected: TokenizerEntry) -> Iterator[Fault]:
    found = {"vocab_size": tokenizer.vocab_size, **tokenizer.specials.to_dict()}
    for key, value in found.items():
        if value != (said := getattr(expected, key)):
            yield Fault(file=expected.file, what=f"has the {key} {value}; the manifest says {said}")


def _check_splits(
    folder: Path, manifest: Manifest, rules: RowRules | None, engine: Engine, progress: Progress
) -> Iterator[Fault]:
    progress.start("verifying", sum(shard.num_bytes for shard in manifest.shards))
    for name in sorted(manifest.splits, key=SPLITS.index, reverse=True):
        tasks = list(map(CheckTask, manifest.splits[name].shards))
        check = ShardCheck(folder=folder, rules=rules, keeps_keys=name != _TRAIN)
        prepare = partial(check, tasks[0]) if tasks else int  # a check compiles the kernels
        job = PreparedJob(job=check, name="verify", prepare=prepare, places=(str(folder / MANIFEST_NAME),))
        faults, keys = list[Fault](), [np.empty(0, np.uint64)]
        for task, checked in engine.run(job, tasks):
            progress.advance(task.shard.num_bytes)
            faults += checked.faults
            keys += checked.keys
        yield from sorted(faults, key=lambda fault: fault.file)  # an engine gives results in any order
        if rules is not None and name != _TRAIN:
            rules = dataclasses.replace(rules, validation_keys=np.unique(np.concatenate(keys)))


class _Threads:
    """An engine that runs tasks in threads of this process, and gives the results in order."""

    def __init__(self, count: int) -> None:
        self._count = count

    def run(self, job: Callable[[AnyTask], Result], tasks: Iterable[AnyTask]) -> Iterator[tuple[AnyTask, Result]]:
        pool, tasks = ThreadPoolExecutor(self._count), list(tasks)
        try:
            yield from zip(tasks, pool.map(job, tasks), strict=True)
        finally:
            pool.shutdown(cancel_futures=True)


def count_contents(folder: Path) -> dict[str, int]:
    """How much a folder without faults holds, in all splits."""
    splits = read_manifest(folder).splits.values()
    return {
        "num_shards": sum(len(split.shards) for split in splits),
        "num_rows": sum(split.num_rows for split in splits),
        "num_tokens": sum(split.num_tokens for split in splits),
    }


def describe_sound(counts: Mapping[str, int], *, quick: bool = False) -> str:
    """The contents of a folder without faults, in one line."""
    found = [count_of(count, name.removeprefix("num_").removesuffix("s")) for name, count in counts.items()]
    proof = "sizes and hashes are as the manifest says; no row was checked" if quick else "all is as the manifest says"
    return f"{', '.join(found)}: {proof}"


# ---- one file ----


@dataclass(frozen=True)
class CheckTask:
    """A shard to check."""

    shard: ShardEntry

    def describe(self) -> str:
        return self.shard.file


@dataclass(kw_only=True)
class Checked:
    """The result for one shard."""

    faults: list[Fault] = field(default_factory=list)
    keys: list[np.ndarray] = field(default_factory=list)  # uint64, of the documents in it, if they were asked for


def check_file(folder: Path, expected: FileEntry | ShardEntry) -> tuple[Fault | None, bool]:
    """Check that a file has the SHA-256 that the manifest gives, and a shard also the size.

    Returns the fault, and whether the file is there, sound or changed.
    """
    name = expected.file
    try:
        path, num_bytes = find_file(folder, name)
        found = hash_file(path)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _SHORTAGES:
            raise
        why = schema.explain_damage(error)
        return Fault(file=name, what=f"is listed in the manifest, but can't be read: {why}"), False
    if num_bytes != (said := getattr(expected, "num_bytes", num_bytes)):
        return Fault(file=name, what=f"has {num_bytes:,} bytes; the manifest says {said:,}"), True
    if found != expected.sha256:
        return Fault(file=name, what=f"has the SHA-256 {found}; the manifest says {expected.sha256}"), True
    return None, True


@dataclass(frozen=True, kw_only=True)
class ShardCheck:
    """Checks shards, one a call."""

    folder: Path
    rules: RowRules | None  # None for sizes and hashes alone
    keeps_keys: bool  # whether Checked.keys is wanted

    def __call__(self, task: CheckTask) -> Checked:
        fault, is_there = check_file(self.folder, task.shard)
        checked = Checked(faults=[fault] if fault else [])
        if self.rules is not None and is_there:
            self._check_rows(task.shard, self.rules, checked)
        return checked

    def _check_rows(self, shard: ShardEntry, rules: RowRules, checked: Checked) -> None:
        """Check the rows of a shard that is there, and their number."""
        name, totals, num_faults = shard.file, Counter[str](), 0
        try:
            for batch in read_batches(self.folder / name, rules.schema):
                found = find_row_faults(batch, rules)
                for row, what in found[: max(0, MAX_SHARD_FAULTS - num_faults)]:
                    checked.faults.append(Fault(file=name, what=what, row=totals["num_rows"] + row))
                num_faults += len(found)
                rows = schema.from_record_batch(batch)
                totals.update(schema.count_totals(rows))
                if self.keeps_keys:
                    keys = (rows.document_keys, rows.document_keys_b)
                    checked.keys += [np.unique(some) for some in keys if some is not None]
        except ShardError as error:
            checked.faults.append(Fault(file=name, what=str(error)))
            return
        if num_faults > MAX_SHARD_FAULTS:
            what = f"{count_of(num_faults - MAX_SHARD_FAULTS, 'more row')} at fault"
            checked.faults.append(Fault(file=name, what=what))
        for total in TOTALS:
            said = getattr(shard, total)
            if said is not None and totals[total] != said:
                what = f"{total} is {totals[total]:,}; the manifest says {said:,}"
                checked.faults.append(Fault(file=name, what=what))


def read_batches(path: Path, expected: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
    """The record batches of a shard. Raises ShardError at the first that is damaged or holds nulls."""
    at = "the footer, the end of the file"
    try:
        reader = pyarrow.ipc.open_file(schema.map_file(path))
        if not reader.schema.equals(expected):
            raise ShardError(schema.describe_columns(reader.schema))
        for i in range(reader.num_record_batches):
            at = f"record batch {i}"
            batch = reader.get_batch(i)
            schema.check_values(batch)
            yield batch
    except (OSError, ValueError, pyarrow.ArrowException) as error:  # ValueError: a column name that is not UTF-8
        raise ShardError(f"can't be read as Arrow at {at}: {schema.explain_damage(error)}") from error
