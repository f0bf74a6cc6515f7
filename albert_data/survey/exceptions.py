"""Exceptions: the rows that the merge drops, one sorted file that it maps into memory.

An entry is a document as its rows know it, and why they are dropped in each split:

    document key, source, form, reasons     uint64

source: its number where sources have passes of their own, 0 in other builds. There is one entry for a key, source and
form: copies of a document that equal one another in these go for one reason. Rows without an exception stay, each once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from albert_data.shards.manifest import SPLITS
from albert_data.storage import find_storage
from albert_data.survey.sorted_columns import SortedFile, find_changes, map_columns, sort_columns, write_columns

# Why a row is dropped: another document of its text stays; it is of validation, so training leaves it out; a decision
# that has counted its document. Of several reasons the lowest number wins.
COPY, LEFT_OUT, COUNTED = 1, 2, 3
_BITS, _MASK = np.uint64(2), np.uint64(3)  # of the reasons in one split; those of train are the lowest
_FILE = "exceptions.columns"


class ExceptionWriter:
    """Writes the file, a range of document keys after another, in ascending order."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._files = folder, list[SortedFile]()

    def add(
        self, keys: np.ndarray, sources: np.ndarray | int, forms: np.ndarray, reasons: dict[str, np.ndarray]
    ) -> None:
        """reasons: of each split, uint64, 0 for documents that stay there."""
        packed = reasons["train"] | reasons["validation"] << _BITS
        rows = np.empty((4, len(keys)), np.uint64)
        rows[0], rows[1], rows[2], rows[3] = keys, sources, forms, packed
        rows = sort_columns(rows[:, packed > 0])
        if rows.size:
            name = f"{len(self._files):05d}-{_FILE}"
            self._files.append(write_columns(self._folder, name, rows[:, find_changes(rows)]))

    def finish(self) -> SortedFile | None:
        """The file; None if there are no exceptions."""
        if len(self._files) < 2:
            return self._files[0] if self._files else None
        with find_storage(self._folder).create(self._folder / _FILE, sync=False) as out:
            for column in range(4):
                for file in self._files:
                    out.write(np.ascontiguousarray(map_columns(self._folder, file)[column]).data)
        return SortedFile(_FILE, 4, sum(file.num_rows for file in self._files))


class Exceptions:
    """Finds the exceptions among rows of one split."""

    def __init__(self, folder: Path, file: SortedFile, split: str) -> None:
        self._keys, self._sources, self._forms, packed = map_columns(folder, file)
        self._reasons = packed
        self._shift = _BITS * np.uint64(SPLITS.index(split))

    def find(self, keys: np.ndarray, sources: np.ndarray, forms: np.ndarray) -> np.ndarray:
        """The reason for which each row is dropped: uint64, 0 for one that stays. sources: int64; others uint64."""
        reasons = np.zeros(len(keys), np.uint64)
        at = np.searchsorted(self._keys, keys)
        rows = np.arange(len(keys))
        while True:  # each exception of a row's key in turn; few have several
            is_near = at < len(self._keys)
            is_near[is_near] = self._keys[at[is_near]] == keys[rows[is_near]]
            rows, at = rows[is_near], at[is_near]
            if not len(rows):
                return reasons
            fits = (self._sources[at] == sources[rows].astype(np.uint64)) & (self._forms[at] == forms[rows])
            reasons[rows[fits]] = self._reasons[at[fits]] >> self._shift & _MASK
            at = at + 1
