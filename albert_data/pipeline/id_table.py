"""The table of ids: which records the documents come from, so that they can be found, and left out of another build.

TASK-000.ids             of a map task: Arrow, one record batch of sorted rows
OUT/ids/ids-00000.arrow  all of these, merged: at most 2**20 rows of document_key (uint64) and id (string)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.data import Documents, Lines
from albert_data.shards.manifest import FileEntry
from albert_data.storage import find_storage
from albert_data.storage.files import HashingFile

IDS_FOLDER = "ids"
_BATCH_ROWS, _BATCHES_OF_FILE = 1 << 16, 16
_ROWS_AT_ONCE, _ROWS_OF_FILE = 1 << 18, 512  # in memory: of all files, and on average of each
_KINDS = {"document_key": pyarrow.uint64(), "id": pyarrow.string()}
_SCHEMA = pyarrow.schema([pyarrow.field(name, kind, nullable=False) for name, kind in _KINDS.items()])
Row = tuple[int, str]


class IdWriter:
    """Writes the ids of a task's documents, those with tokens, to files in `folder`."""

    def __init__(self, folder: Path, task: str) -> None:
        self._folder, self._task, self._rows, self._names = folder, task, set[Row](), list[str]()

    def add(self, lines: Lines, documents: Documents) -> None:
        if lines.ids is not None:
            is_in = (np.diff(documents.sentence_offsets[documents.document_offsets]) > 0) & (lines.ids != "")
            self._rows.update(zip(lines.document_keys[is_in].tolist(), lines.ids[is_in].tolist(), strict=True))
        if len(self._rows) >= _ROWS_AT_ONCE:
            self.finish()

    def finish(self) -> list[str]:
        """The names of all files, after the last rows are written."""
        if self._rows:
            self._names.append(f"{self._task}-{len(self._names):03d}.ids")
            _write(self._folder, self._names[-1], [sorted(self._rows)], sync=False)
            self._rows.clear()
        return self._names


def merge_ids(runs: Path, names: Iterable[str], folder: Path) -> tuple[FileEntry, ...]:
    """Write the table into `folder`, as OUT has it. The size of its files and batches depends on its rows alone."""
    rows = _merge(runs, names)
    batches = iter(lambda: list(islice(rows, _BATCH_ROWS)), [])
    return tuple(
        _write(folder, f"{IDS_FOLDER}/ids-{number:05d}.arrow", chain([first], islice(batches, _BATCHES_OF_FILE - 1)))
        for number, first in enumerate(batches)
    )


def _merge(runs: Path, names: Iterable[str]) -> Iterator[Row]:
    """The distinct rows of all files, sorted: a range of keys after another, all rows of a key at once."""
    batches = [pyarrow.ipc.open_file(find_storage(runs).map(runs / name)).get_batch(0) for name in names]
    keys = [batch.column(0).to_numpy() for batch in batches]
    num_ranges = sum(map(len, keys)) // max(_ROWS_AT_ONCE, _ROWS_OF_FILE * len(keys)) + 1
    bounds = np.array([i * 2**64 // num_ranges for i in range(1, num_ranges)], np.uint64)
    cuts = [[0, *np.searchsorted(one, bounds).tolist(), len(one)] for one in keys]
    for number in range(num_ranges):
        rows = set[Row]()
        for batch, (begin, end) in zip(batches, (cut[number : number + 2] for cut in cuts), strict=True):
            rows.update(zip(*(column.to_pylist() for column in batch.slice(begin, end - begin).columns), strict=True))
        yield from sorted(rows)


def _write(folder: Path, name: str, batches: Iterable[list[Row]], *, sync: bool = True) -> FileEntry:
    with find_storage(folder).create(folder / name, sync=sync) as file:
        hashing = HashingFile(file)
        with pyarrow.ipc.new_file(pyarrow.PythonFile(hashing, mode="w"), _SCHEMA) as writer:
            for rows in batches:
                columns = map(pyarrow.array, zip(*rows, strict=True), _KINDS.values())
                writer.write_batch(pyarrow.record_batch(list(columns), schema=_SCHEMA))
    return FileEntry(file=name, sha256=hashing.hexdigest())
