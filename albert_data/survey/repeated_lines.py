"""Find the lines that stand in many documents, by sorting on the disk.

A task writes the hash of each of its lines with the key of its document, sorted. These files are merged, and a line is
repeated if it has enough distinct documents. So equal documents count once, and the result depends on the set of
documents alone. A file holds no more documents of a line than are asked for, and a merge holds twice as many.

    NAME-000.lines      sorted columns: hash of a line, key of a document
    repeated.hashes     uint64, ascending: 0, then the hashes of repeated lines
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from albert_data.clean.documents import clean_documents
from albert_data.clean.repetition import hash_lines
from albert_data.config import DEFAULT_TEXT, TextConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import STDIN, Input, count_bytes, list_samples
from albert_data.corpus.tasks import WARMING_BLOCK, ReadTask, compile_reading, read_tasks
from albert_data.data import Lines
from albert_data.errors import InputError
from albert_data.jobs.compiling import compile_with_notice
from albert_data.jobs.engine import Engine, PreparedJob, spans_machines
from albert_data.jobs.progress import Progress
from albert_data.storage import FILE, find_kind, find_storage
from albert_data.storage.scratch import machine_scratch
from albert_data.survey.sorted_columns import (
    ROWS_AT_ONCE,
    SortedFile,
    find_changes,
    map_u64,
    merge_columns,
    rank_inside,
    sort_columns,
    write_columns,
)
from albert_data.survey.without import Without

_NAME = "repeated.hashes"


class LineJob:
    """Writes the lines of a task with their documents, as they are before any line is removed or joined.

    least: documents that a repeated line has
    folder: where the files are written; without: the file with the documents to leave out
    """

    def __init__(self, strict: bool, least: int, folder: Path, without: Path | None = None) -> None:
        self._strict, self._least, self._folder, self._without = strict, least, folder, without

    def __call__(self, task: ReadTask) -> list[SortedFile]:
        text = dataclasses.replace(task.text, unwrap=False, drop_repeated_lines=None, min_chars=None)
        task = dataclasses.replace(task, text=text)
        stays = Without(self._without)
        damage, files, held = Damage(strict=self._strict), list[SortedFile](), np.zeros((2, 0), np.uint64)
        for block in task.read(damage):
            found = _keep_first(list_lines(clean_documents(block, text, damage, stays=stays)), self._least)
            held = np.concatenate([held, found], axis=1)
            if held.shape[1] >= ROWS_AT_ONCE:
                files.append(self._write(task, len(files), held))
                held = held[:, :0]
        return [*files, self._write(task, len(files), held)] if held.size else files

    def _write(self, task: ReadTask, number: int, columns: np.ndarray) -> SortedFile:
        return write_columns(self._folder, f"{task.name}-{number:03d}.lines", _keep_first(columns, self._least))


def _keep_first(columns: np.ndarray, least: int) -> np.ndarray:
    """Sorted rows, of each line those of its `least` documents with the least keys. columns: line, key, any others."""
    columns = sort_columns(columns)
    columns = columns[:, find_changes(columns[:2])]
    return columns[:, rank_inside(columns[0]) < least]


def list_lines(lines: Lines) -> np.ndarray:
    """The hash of each line and the key of its document, the same for all parts of a long one: uint64 [2, lines]."""
    _, hashes = hash_lines(lines.utf8)
    keys = lines.document_keys if lines.wholes is None else lines.wholes
    return np.stack([hashes, np.repeat(keys, np.diff(lines.document_offsets))])


def write_repeated(folder: Path, files: Iterable[SortedFile], least: int) -> Path:
    """Merge what all tasks wrote, remove it, and write the hashes of repeated lines. Returns the path of these."""
    files, storage, path = sorted(files), find_storage(folder), folder / _NAME
    with storage.create(path) as out:
        out.write(np.zeros(1, np.uint64).data)  # no hash of a line: an empty file can't be mapped
        for hashes in _merge(folder, files, least):
            out.write(hashes.data)
    for file in files:
        storage.remove(folder / file.name)
    return path


def _merge(folder: Path, files: list[SortedFile], least: int) -> Iterator[np.ndarray]:
    for columns in merge_columns(folder, files, ROWS_AT_ONCE, partial(_keep_first, least=least)):
        hashes = columns[0, find_changes(columns[:2])]
        yield np.ascontiguousarray(hashes[rank_inside(hashes) == least - 1])


def check_rereadable(inputs: Sequence[Input], text: TextConfig) -> None:
    """Raise InputError if lines are to be counted in an input that can be read only once."""
    streams = [item.path for item in inputs if item.is_stream]
    if streams and text.drop_repeated_lines is not None:
        name = "stdin" if streams[0] == STDIN else streams[0]
        raise InputError(
            f"--drop-repeated-lines reads the corpus twice, and {name} can be read only once; write it to a file, and "
            "give that"
        )


def compile_counting() -> None:
    """Run the kernels of a LineJob on a few words."""
    compile_reading()
    list_lines(clean_documents(WARMING_BLOCK, DEFAULT_TEXT, Damage()))


def find_repeated_lines(
    inputs: list[Input],
    text: TextConfig,
    folder: Path,
    engine: Engine,
    progress: Progress,
    without: Path | None = None,
) -> Path | None:
    """The file with the hashes of repeated lines; None if the settings remove none.

    folder: that every worker sees. If the file is there, a killed command has written it for the same inputs.
    without: see `LineJob`
    """
    least, path = text.drop_repeated_lines, folder / _NAME
    if least is None or find_kind(path) == FILE:
        return None if least is None else path
    find_storage(folder).make_folder(folder)
    compile_with_notice(compile_counting, progress.say)
    prepared = PreparedJob[ReadTask, list[SortedFile]](
        job=LineJob(text.strict, least, folder, without),
        name="count lines",
        prepare=compile_counting,
        places=tuple(list_samples(inputs)),
    )
    progress.start("counting lines", count_bytes(inputs))
    files = []
    tasks = read_tasks(inputs, text, Damage(strict=text.strict), lambda task: spans_machines(engine))
    for task, found in engine.run(prepared, tasks):
        files += found
        progress.advance(task.num_bytes)
    return write_repeated(folder, files, least)


def count_here(inputs: list[Input], text: TextConfig) -> np.ndarray | None:
    """The hashes of repeated lines, found in this process as a build finds them; None if the settings remove none."""
    if text.drop_repeated_lines is None:
        return None
    with machine_scratch() as folder:
        job = LineJob(False, text.drop_repeated_lines, folder)
        files = [file for task in read_tasks(inputs, text, Damage()) for file in job(task)]
        return map_u64(write_repeated(folder, files, text.drop_repeated_lines)).copy()
