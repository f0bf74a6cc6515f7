"""Convert a shard folder to the files of another trainer, in parallel.

In: a finished shard folder. Out: DIR with the files of one format, whole or not at all (folder.py). Each shard becomes
files of its own, so the number of workers changes no byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow

from albert_data.config import check_choice
from albert_data.convert import FORMATS
from albert_data.convert.folder import ConversionFolder
from albert_data.convert.mds import MDSWriter
from albert_data.convert.writers import ConvertTask, ShardFolder, Writer, WrittenFile, find_place
from albert_data.errors import OutputError, ShardError
from albert_data.jobs.compiling import compile_with_notice
from albert_data.jobs.engine import Engine, PreparedJob
from albert_data.jobs.progress import NullProgress, Progress
from albert_data.shards.card import describe_text
from albert_data.shards.manifest import MANIFEST_NAME, SPLITS, Manifest, to_value
from albert_data.shards.manifest_file import load_manifest
from albert_data.shards.packing import check_pack
from albert_data.shards.reader import check_split
from albert_data.storage import find_storage, make_path
from albert_data.storage.files import sync_path
from albert_data.text.wording import count_of
from albert_data.version import __version__

_TRIED = 16  # shards among which a row is looked for


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What a conversion wrote. record: the values of conversion.json."""

    record: Mapping[str, Any]

    def __repr__(self) -> str:
        rows = ", ".join(f"{count_of(rows, 'row')} of {split}" for split, rows in self.record["num_rows"].items())
        return f"Conversion({rows}, {count_of(len(self.record['files']), 'file')})"

    def to_dict(self) -> dict[str, Any]:
        """The figures for JSON, by stable names: those of conversion.json, with two sums in place of its files."""
        written = [entry["num_bytes"] for entry in self.record["files"] if "num_bytes" in entry]  # not the card
        others = {name: value for name, value in self.record.items() if name != "files"}
        return {**others, "num_files": len(written), "num_bytes": sum(written)}


def convert_folder(
    shards: Path,
    out: Path,
    to: str,
    engine: Engine,
    *,
    split: str | None = None,
    unmasked: bool = False,
    pack: int | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Write the rows of a shard folder to the folder `out`.

    The arguments are those of `library.shards.convert_shards`.
    Raises the same errors, or OSError if the disk fails.
    """
    check_choice("to", to, FORMATS)
    read = load_manifest(shards)
    if pack is not None:
        check_pack(pack, read.manifest, shards)
    source = ShardFolder(shards, read.manifest, pack)
    if make_path(find_storage(out).resolve(out)).is_relative_to(find_storage(shards).resolve(shards)):
        raise OutputError(f"output {out} lies inside the shard folder {shards}; name a folder outside it")
    tasks = _list_tasks(source, split)
    said = describe_text(read.manifest) if to == "parquet" else {}
    settings = {"unmasked": unmasked or None, "pack": pack, **said}
    folder, plan = ConversionFolder(out), _make_plan(read.manifest, to, tasks, settings)
    try:
        folder.begin(plan)
        writer = _make_writer(source, to, unmasked)
        files = _convert(ConvertJob(source, folder, writer), tasks, engine, progress or NullProgress())
        read.check_current()
        record = folder.seal({**_describe(files), "plan": plan}, writer.describe(files))
        folder.publish(record)
        return Conversion(record=record)
    finally:
        folder.close()


def _list_tasks(source: ShardFolder, chosen: str | None) -> list[ConvertTask]:
    """A task for each shard of a split, or of all."""
    found = source.manifest.splits
    if chosen is not None:
        check_split(source.folder, chosen, list(found))
        if not found[chosen].shards:
            raise ShardError(
                f"split {chosen} of {source.folder} holds no rows; leave out --split to convert what there is"
            )
    tasks = [
        ConvertTask(split=split, number=number, count=len(found[split].shards), shard=entry)
        for split in SPLITS
        if split in ([chosen] if chosen else found)
        for number, entry in enumerate(found[split].shards)
    ]
    if not tasks:
        raise ShardError(f"{source.folder} holds no rows to convert; build from a corpus with text")
    return tasks


def _make_plan(manifest: Manifest, to: str, tasks: list[ConvertTask], settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "to": to,
        "albert_data": __version__,
        "shards": manifest.digest,
        "tokenizer": manifest.tokenizer.sha256,
        "max_seq_len": manifest.config.examples.max_seq_len,
        "splits": sorted({task.split for task in tasks}),
        **({"pyarrow": pyarrow.__version__} if to == "parquet" else {}),
        **{name: value for name, value in settings.items() if value is not None},
    }


def _make_writer(source: ShardFolder, to: str, unmasked: bool) -> Writer:
    if to == "mds":
        return MDSWriter(source, unmasked=unmasked)
    from albert_data.convert.parquet import ParquetWriter  # pyarrow.parquet loads in a tenth of a second

    return ParquetWriter(source, unmasked=unmasked)


@dataclass(frozen=True)
class ConvertJob:
    """A job that converts a shard."""

    source: ShardFolder
    folder: ConversionFolder
    writer: Writer

    def __call__(self, task: ConvertTask) -> list[WrittenFile]:
        packs = self.source.plan(task)
        entries = self.writer.write(self.folder.path, task, self.source.read(task, self.writer.max_rows, packs))
        if packs is not None:
            entries[:1] = [replace(entry, packs=packs.measure()) for entry in entries[:1]]
        return entries

    def prepare(self, tasks: list[ConvertTask]) -> None:
        """Run the kernels on the first row, so that forked workers have them."""
        next(chain.from_iterable(self.source.read(task, 1) for task in tasks), None)


def _convert(
    job: ConvertJob, tasks: list[ConvertTask], engine: Engine, progress: Progress
) -> dict[str, list[WrittenFile]]:
    """Convert all shards. Returns the files of each split, in order."""
    places = (str(job.source.folder / MANIFEST_NAME), str(job.folder.plan_path))
    prepared = PreparedJob(job=job, name="convert", prepare=partial(job.prepare, tasks[:_TRIED]), places=places)
    compile_with_notice(prepared.prepare, progress.say)
    progress.start("converting", sum(task.shard.num_bytes for task in tasks))
    done = dict[ConvertTask, list[WrittenFile]]()
    for task, entries in engine.run(prepared, tasks):
        done[task] = entries
        for entry in entries:  # while workers convert the next ones
            sync_path(find_place(job.folder.path, entry.name))
        progress.advance(task.shard.num_bytes)
    files: dict[str, list[WrittenFile]] = {}
    for task in tasks:
        files.setdefault(task.split, []).extend(done[task])
    return files


def _describe(files: dict[str, list[WrittenFile]]) -> dict[str, Any]:
    entries = [entry for split in files.values() for entry in split]
    packed = [entry.packs for entry in entries if entry.packs is not None]
    return {
        **({"packs": {key: sum(counts[key] for counts in packed) for key in packed[0]}} if packed else {}),
        "num_rows": {split: sum(entry.num_rows for entry in entries) for split, entries in files.items()},
        "digest": sha256("".join(f"{entry.name} {entry.hash}\n" for entry in entries).encode()).hexdigest(),
        "files": [to_value(entry) for entry in entries],
    }
