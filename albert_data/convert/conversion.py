"""Convert a shard folder to the files of another trainer, in parallel and resumably.

In: a finished shard folder. Out: DIR with the files of one format, whole or not at all (folder.py). Each shard becomes
files of its own, so neither the number of workers nor a kill changes a byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from albert_data import __version__
from albert_data.convert.folder import ConversionFolder
from albert_data.convert.mds import MDSWriter
from albert_data.convert.tfrecord import Shape, TFRecordWriter
from albert_data.convert.writers import ConvertTask, FileEntry, Source, Writer, find_place
from albert_data.errors import OutputError, ShardError
from albert_data.files import sync_path
from albert_data.jobs.compiling import compile_with_notice
from albert_data.jobs.engine import Engine, PreparedJob
from albert_data.jobs.progress import NullProgress, Progress
from albert_data.shards.manifest import MANIFEST_NAME, SPLITS, Manifest
from albert_data.shards.manifest_file import load_manifest
from albert_data.shards.reader import check_split
from albert_data.storage import find_storage, make_path

_MEASURE_ROWS = 1 << 30  # at once: nothing is copied
_TRIED = 16  # shards among which a row is looked for


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What a conversion wrote. record: the values of conversion.json; was_finished: it was there before."""

    record: Mapping[str, Any]
    was_finished: bool


def convert_shards(
    shards: Path,
    out: Path,
    to: str,
    engine: Engine,
    *,
    splits: tuple[str, ...] = (),
    card: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Write the rows of a shard folder to the folder `out`.

    to: one of convert.FORMATS; splits: those to convert, or all that have rows.
    card: "license" (an identifier of the Hugging Face Hub) and "language" (codes), for the card of "parquet".
    Raises ShardError, OutputError, WorkerError, or OSError if the disk fails. Finished shards are kept then, so the
    same call resumes.
    """
    progress, read = progress or NullProgress(), load_manifest(shards)
    manifest = read.manifest
    _check_place(shards, out)
    tasks = _list_tasks(shards, manifest, splits)
    folder = ConversionFolder(out, _make_plan(manifest, to, tasks, card or {}))
    if (record := folder.read_finished()) is not None:
        folder.sweep()
        return Conversion(record=record, was_finished=True)
    try:
        folder.begin()
        if folder.read_sealed() is None:
            writer = _make_writer(Source(shards, manifest), to, card or {}, engine)
            job = ConvertJob(Source(shards, manifest), folder, writer)
            files = _convert(job, tasks, engine, progress)
            read.check_current()
            _seal(folder, writer, files)
        return Conversion(record=folder.publish(), was_finished=False)
    finally:
        folder.close()


def _check_place(shards: Path, out: Path) -> None:
    if make_path(find_storage(out).resolve(out)).is_relative_to(find_storage(shards).resolve(shards)):
        raise OutputError(f"output {out} lies inside the shard folder {shards}; name a folder outside it")


def _list_tasks(shards: Path, manifest: Manifest, splits: tuple[str, ...]) -> list[ConvertTask]:
    for split in splits:
        check_split(shards, split, list(manifest.splits))
    tasks = []
    for split in SPLITS:
        entries = manifest.splits[split].shards if split in manifest.splits else ()
        if not entries and split in splits:
            raise ShardError(f"split {split} of {shards} holds no rows; leave out --split to convert what there is")
        if split in splits or not splits:
            tasks += [
                ConvertTask(split=split, number=number, count=len(entries), shard=entry)
                for number, entry in enumerate(entries)
            ]
    if not tasks:
        raise ShardError(f"{shards} holds no rows to convert; build from a corpus with text")
    return tasks


def _make_plan(manifest: Manifest, to: str, tasks: list[ConvertTask], card: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "to": to,
        "albert_data": __version__,
        "shards": manifest.digest,
        "tokenizer": manifest.tokenizer.sha256,
        "max_seq_len": manifest.config.examples.max_seq_len,
        "splits": sorted({task.split for task in tasks}),
        **({"pyarrow": pyarrow.__version__, **card} if to == "parquet" else {}),
    }


def _make_writer(source: Source, to: str, card: Mapping[str, Any], engine: Engine) -> Writer:
    if to == "mds":
        return MDSWriter(source)
    if to == "parquet":
        from albert_data.convert.parquet import ParquetWriter  # pyarrow.parquet loads in a tenth of a second

        return ParquetWriter(source, card)
    # Over all splits, even if one is converted: a trainer has one number for training and evaluation.
    tasks = _list_tasks(source.folder, source.manifest, ())
    places = (str(source.folder / MANIFEST_NAME),)
    counter = PreparedJob(job=MaskCounter(source), places=places)
    largest = max(largest for _, largest in engine.run(counter, tasks))
    return TFRecordWriter(Shape(source.max_seq_len, max(1, largest), source.manifest.tokenizer.pad_id))


@dataclass(frozen=True)
class MaskCounter:
    """A job that returns the most masks that a row of a shard has."""

    source: Source

    def __call__(self, task: ConvertTask) -> int:
        parts = self.source.read(task, _MEASURE_ROWS)
        return max((int(np.diff(rows.mask_offsets).max(initial=0)) for rows in parts), default=0)


@dataclass(frozen=True)
class ConvertJob:
    """A job that converts a shard."""

    source: Source
    folder: ConversionFolder
    writer: Writer

    def __call__(self, task: ConvertTask) -> list[FileEntry]:
        parts = self.source.read(task, self.writer.max_rows)
        entries = self.writer.write(self.folder.work, task, parts)
        self.folder.keep_entries(task, entries)
        return entries

    @property
    def places(self) -> tuple[str, ...]:
        """Files that every machine must see."""
        return str(self.source.folder / MANIFEST_NAME), str(self.folder.plan_path)

    def prepare(self, tasks: list[ConvertTask]) -> None:
        """Run the kernels on the first row, so that forked workers have them."""
        for row in islice(chain.from_iterable(self.source.read(task, 1) for task in tasks), 1):
            self.writer.encode(row)


def _convert(
    job: ConvertJob, tasks: list[ConvertTask], engine: Engine, progress: Progress
) -> dict[str, list[FileEntry]]:
    """Convert all shards that a killed command has not converted. Returns the files of each split, in order."""
    kept = {task: entries for task in tasks if (entries := job.folder.read_entries(task)) is not None}
    left = [task for task in tasks if task not in kept]
    prepared = PreparedJob(job=job, prepare=partial(job.prepare, left[:_TRIED]), places=job.places)
    compile_with_notice(prepared.prepare, progress)
    progress.start("converting", sum(task.shard.num_bytes for task in tasks))
    done = dict[ConvertTask, list[FileEntry]]()
    for task, entries in chain(kept.items(), engine.run(prepared, left)):
        done[task] = entries
        for entry in entries:  # while workers convert the next ones
            sync_path(find_place(job.folder.work, entry.name))
        progress.advance(task.shard.num_bytes)
    files: dict[str, list[FileEntry]] = {}
    for task in tasks:
        files.setdefault(task.split, []).extend(done[task])
    return files


def _seal(folder: ConversionFolder, writer: Writer, files: dict[str, list[FileEntry]]) -> None:
    described = writer.describe(files)
    entries = [entry for split in files.values() for entry in split]
    record = {
        **writer.facts,
        "num_rows": {split: sum(entry.num_rows for entry in entries) for split, entries in files.items()},
        "digest": sha256("".join(f"{entry.name} {entry.hash}\n" for entry in entries).encode()).hexdigest(),
        "files": [*(entry.to_values() for entry in entries), *({"name": name} for name in described)],
    }
    folder.seal(record, described)
