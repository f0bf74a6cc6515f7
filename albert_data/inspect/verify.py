"""Checks that a shard folder is still what its manifest says, byte for byte, and that its rows keep all rules.

In: a shard folder, in any state. Out: faults, each with its file, and its row or byte where that is known.
Threads check several shards at once, or the workers of an engine. Validation comes first: none of its documents may be
in training.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from albert_data.errors import ShardError, TokenizerError
from albert_data.files import hash_file
from albert_data.inspect.row_checks import RowRules, make_row_rules
from albert_data.inspect.shard_checks import Advance, Checked, Fault, ShardCheck, check_file
from albert_data.jobs.engine import Engine, PreparedJob
from albert_data.jobs.progress import NullProgress, Progress
from albert_data.shards.manifest import (
    MANIFEST_NAME,
    SPLITS,
    FileEntry,
    Manifest,
    ShardEntry,
    TokenizerEntry,
    parse,
)
from albert_data.shards.manifest_checks import find_value_faults
from albert_data.shards.manifest_file import ManifestDamage, ManifestFile, load_unchecked, read_manifest
from albert_data.shards.paths import find_file, measure_file
from albert_data.shards.schema import SHARD_SUFFIX
from albert_data.storage import find_storage, make_path
from albert_data.tokenizer.lexicon import NO_WORDS
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.wording import count_of

_TRAIN = SPLITS[0]
_MAX_ENTRY_FAULTS = 20
_MAX_THREADS = 64  # each keeps a file open; more would only wait for the same cores and disk
Run = Callable[[ShardCheck, Sequence[ShardEntry]], Iterator[Checked]]  # checks shards at the same time, in order


def verify(
    folder: Path,
    *,
    quick: bool = False,
    workers: int = 1,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Iterator[Fault]:
    """Check all that a manifest says, and every row.

    quick: only sizes and hashes. workers: threads; engine: in their place, as a RayEngine.
    For the rows of a shard the first MAX_SHARD_FAULTS faults are given, and the number of the others. Raises ShardError
    if the folder has no manifest, so it is no finished build, and if a build replaced the manifest meanwhile, as the
    faults may then be of the old or the new build.
    """
    try:
        file = load_unchecked(folder)
    except ManifestDamage as error:
        yield Fault(file=MANIFEST_NAME, what=str(error))
        return
    run = partial(_run_threads, min(workers, _MAX_THREADS)) if engine is None else partial(_run_engine, engine)
    for fault in _find_faults(folder, file, quick, run, progress or NullProgress()):
        file.check_current()
        yield fault
    file.check_current()


def _find_faults(folder: Path, file: ManifestFile, quick: bool, run: Run, progress: Progress) -> Iterator[Fault]:
    manifest, entry_faults = parse(Manifest, file.values)
    yield from (Fault(file=MANIFEST_NAME, what=what) for what in entry_faults[:_MAX_ENTRY_FAULTS])
    if rest := entry_faults[_MAX_ENTRY_FAULTS:]:
        yield Fault(file=MANIFEST_NAME, what=f"{count_of(len(rest), 'more key')} at fault")
    if manifest is None:
        return
    yield from (Fault(file=MANIFEST_NAME, what=what) for what in find_value_faults(file))
    yield from _find_unlisted(folder, manifest)
    rules = yield from _check_tokenizer(folder, manifest, quick)
    with _count_bytes(manifest, progress, with_rows=rules is not None) as advance:
        yield from _check_splits(folder, manifest, rules, run, advance)


def _find_unlisted(folder: Path, manifest: Manifest) -> Iterator[Fault]:
    listed = Counter(shard.file for shard in manifest.shards)
    for name, times in listed.items():
        if times > 1:
            yield Fault(file=name, what=f"is listed {times} times in the manifest; allowed is once")
    for path in sorted(_find_shards(folder)):
        name = path.relative_to(folder).as_posix()
        if name not in listed:
            what = "is not listed in the manifest; a shard folder holds no other shards"
            yield Fault(file=name, what=what + _name_twin(path, manifest))


def _find_shards(folder: Path) -> Iterator[Path]:
    """All files named as shards, except in hidden folders, where a running build has files. Folders may vanish."""
    for parent, folders, files in find_storage(folder).walk(folder, lambda error: None):
        folders[:] = [name for name in folders if not name.startswith(".")]
        shards = (name for name in files if name.endswith(SHARD_SUFFIX) and not name.startswith("."))
        yield from (make_path(parent) / name for name in shards)


def _name_twin(path: Path, manifest: Manifest) -> str:
    """The listed shard whose bytes an unlisted file holds, if any: it was renamed or copied."""
    with suppress(OSError, ShardError):  # it can't be read, or is no regular file
        num_bytes = measure_file(path)
        same_size = [shard for shard in manifest.shards if shard.num_bytes == num_bytes]
        found = hash_file(path) if same_size else ""
        for shard in same_size:
            if shard.sha256 == found:
                return f". It holds the bytes of {shard.file}"
    return ""


def _check_tokenizer(folder: Path, manifest: Manifest, quick: bool) -> Generator[Fault, None, RowRules | None]:
    """Yield the faults; return the rules for the rows, or None if rows are not checked."""
    expected, words = manifest.tokenizer, manifest.words
    entries: list[FileEntry] = [expected, *([words] if words else [])]
    faults = [fault for entry in entries if (fault := check_file(folder, entry, {}, lambda num_bytes: None))]
    yield from faults
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


@contextmanager
def _count_bytes(manifest: Manifest, progress: Progress, *, with_rows: bool) -> Iterator[Advance]:
    """A function by which threads report bytes done. Each byte is hashed, and read again if rows are checked."""
    size, lock = sum(shard.num_bytes for shard in manifest.shards), threading.Lock()
    progress.start("verifying", 2 * size if with_rows else size)

    def advance(num_bytes: int) -> None:
        with lock:
            progress.advance(num_bytes)

    yield advance


def _check_splits(
    folder: Path, manifest: Manifest, rules: RowRules | None, run: Run, advance: Advance
) -> Iterator[Fault]:
    check = ShardCheck(
        folder=folder,
        rules=rules,
        others={shard.sha256: shard.file for shard in manifest.shards},
        compression=manifest.config.compression,
        keeps_keys=True,
        advance=advance,
    )
    for name in sorted(manifest.splits, key=SPLITS.index, reverse=True):
        check = dataclasses.replace(check, keeps_keys=name != _TRAIN)
        keys = [np.empty(0, np.uint64)]
        for checked in run(check, manifest.splits[name].shards):
            yield from checked.faults
            keys += checked.keys
        if check.rules is not None and name != _TRAIN:
            rules = dataclasses.replace(check.rules, validation_keys=np.unique(np.concatenate(keys)))
            check = dataclasses.replace(check, rules=rules)


def _run_threads(workers: int, check: ShardCheck, shards: Sequence[ShardEntry]) -> Iterator[Checked]:
    pool = ThreadPoolExecutor(workers)
    try:
        yield from pool.map(check, shards)
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _CheckTask:
    number: int
    shard: ShardEntry

    def describe(self) -> str:
        return self.shard.file


@dataclass(frozen=True)
class _CheckJob:
    check: ShardCheck

    def __call__(self, task: _CheckTask) -> Checked:
        return self.check(task.shard)


def _run_engine(engine: Engine, check: ShardCheck, shards: Sequence[ShardEntry]) -> Iterator[Checked]:
    """Check shards where the engine's workers are. The results are yielded in the order of the shards."""
    there = dataclasses.replace(check, advance=_ignore)  # bytes can't be counted as they are read there
    job = PreparedJob(
        job=_CheckJob(there),
        prepare=partial(_check_first, there, shards[:1]),
        places=(str(check.folder / MANIFEST_NAME),),
    )
    done: dict[int, Checked] = {}
    awaited = 0
    for task, checked in engine.run(job, itertools.starmap(_CheckTask, enumerate(shards))):
        check.advance(task.shard.num_bytes * (1 if check.rules is None else 2))
        done[task.number] = checked
        while awaited in done:
            yield done.pop(awaited)
            awaited += 1


def _ignore(num_bytes: int) -> None:
    pass


def _check_first(check: ShardCheck, shards: Sequence[ShardEntry]) -> None:
    """Check shards for the sake of the kernels, which this compiles."""
    for shard in shards:
        check(shard)


def describe_sound(folder: Path, *, quick: bool = False) -> str:
    """The contents of a folder without faults, in one line."""
    splits = read_manifest(folder).splits.values()
    shards, rows, tokens = (
        sum(len(split.shards) for split in splits),
        sum(split.num_rows for split in splits),
        sum(split.num_tokens for split in splits),
    )
    counts = (count_of(shards, "shard"), count_of(rows, "row"), count_of(tokens, "token"))
    proof = "sizes and hashes are as the manifest says; no row was checked" if quick else "all is as the manifest says"
    return f"{', '.join(counts)}: {proof}"
