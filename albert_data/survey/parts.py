"""What map tasks write of each document, so that similar ones can be found when all are known.

A task writes a part, or several of about 131,072 documents, each of them three files:

    NAME.signed      sorted columns: those of `SignedDocuments`, copies of a text in one language once
    NAME.bands       columns sorted by the first: the hash of a band, and which of the documents it is of
    NAME.shingles    uint32: the shingles of all documents, one after another
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from albert_data.data import Lines
from albert_data.errors import OutputError
from albert_data.kernels import kernel
from albert_data.storage import find_storage, is_remote
from albert_data.survey.shingles import hash_shingles
from albert_data.survey.signatures import Bands, make_signatures
from albert_data.survey.sorted_columns import SortedFile, find_changes, sort_columns, write_columns
from albert_data.text.nfc import compose_lines

PART_DOCUMENTS = 1 << 17
SHINGLE_BYTES = 4
_MOST_BYTES = (1 << 24) - 1  # of a document; none is longer than 4 MiB (corpus/lines/long_documents.py)


class SignedPart(NamedTuple):
    """A part on the disk: its name without the ending, its documents, and the bands of each."""

    name: str
    num_documents: int
    num_bands: int

    @property
    def files(self) -> list[str]:
        return [f"{self.name}.{kind}" for kind in ("signed", "bands", "shingles")]

    @property
    def documents(self) -> SortedFile:
        return SortedFile(f"{self.name}.signed", len(SignedDocuments._fields), self.num_documents)

    @property
    def bands(self) -> SortedFile:
        return SortedFile(f"{self.name}.bands", 2, self.num_documents * self.num_bands)


class SignedDocuments(NamedTuple):
    """Documents of a part: uint64 [N] each.

    ranks: of two similar documents, that of the lower rank stays: 16 bits of the place of its source, 24 that are lower
        for longer texts, and the upper 24 of the key
    source_codes: see `DocumentColumns`; tokens: of its text
    begins, counts: of its shingles in the part
    """

    keys: np.ndarray
    ranks: np.ndarray
    source_codes: np.ndarray
    tokens: np.ndarray
    begins: np.ndarray
    counts: np.ndarray


def rank_documents(place: int, sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The ranks of documents of one source: uint64. sizes: int64, bytes of text."""
    assert sizes.max(initial=0) <= _MOST_BYTES, "a longer document is cut"
    lengths = (np.uint64(place) << np.uint64(24)) + (_MOST_BYTES - sizes).astype(np.uint64)
    ranks: np.ndarray = lengths << np.uint64(24) | keys >> np.uint64(40)
    return ranks


class PartWriter:
    """Writes the parts of one task.

    place: of its source in the order in which documents stay; files: closes the open file, also if the task fails.
    """

    def __init__(self, folder: Path, task: str, place: int, bands: Bands, files: ExitStack) -> None:
        self._folder, self._task, self._place, self._bands, self._files = folder, task, place, bands, files
        self._parts: list[SignedPart] = []
        self._begin_part()

    def _begin_part(self) -> None:
        self._file: BinaryIO | None = None
        self._documents: list[np.ndarray] = []
        self._signatures: list[np.ndarray] = []
        self._num_shingles = 0

    def add(self, lines: Lines, tokens: np.ndarray | None = None, source_codes: np.ndarray | None = None) -> None:
        """Sign documents. tokens: int64, of each, where only those with tokens count; source_codes: of each."""
        tokens = np.ones(len(lines.document_keys), np.int64) if tokens is None else tokens
        lines = compose_lines(lines)
        bounds = lines.line_offsets[lines.document_offsets]
        shingles, offsets = hash_shingles(lines.utf8, bounds)
        columns = SignedDocuments(
            keys=lines.document_keys,
            ranks=rank_documents(self._place, np.diff(bounds), lines.document_keys),
            source_codes=np.broadcast_to(0 if source_codes is None else source_codes, len(tokens)).astype(np.uint64),
            tokens=tokens.astype(np.uint64),
            begins=(offsets[:-1] + self._num_shingles).astype(np.uint64),
            counts=np.diff(offsets).astype(np.uint64),
        )
        if self._file is None:
            name = f"{self._task}-{len(self._parts):03d}.shingles"
            self._file = self._files.enter_context(find_storage(self._folder).create(self._folder / name, sync=False))
        self._file.write(shingles.data)
        self._num_shingles += len(shingles)
        self._documents.append(np.stack(columns)[:, tokens > 0])
        self._signatures.append(make_signatures(shingles, offsets, self._bands)[tokens > 0])
        if sum(part.shape[1] for part in self._documents) >= PART_DOCUMENTS:
            self._end_part()

    def finish(self) -> list[SignedPart]:
        self._end_part()
        return self._parts

    def _end_part(self) -> None:
        self._files.close()  # the shingles get their name
        if num_documents := sum(part.shape[1] for part in self._documents):
            numbers = np.arange(num_documents, dtype=np.uint64)
            documents = sort_columns(np.concatenate([np.concatenate(self._documents, axis=1), numbers[None]]))
            documents = documents[:, find_changes(documents[:4])]
            order = documents[-1].astype(np.int64)
            part = SignedPart(f"{self._task}-{len(self._parts):03d}", len(order), self._bands.num_bands)
            signatures = np.concatenate(self._signatures)[order]
            numbers = np.repeat(numbers[: len(order)], self._bands.num_bands)
            write_columns(self._folder, part.bands.name, np.stack([signatures.ravel(), numbers]), ties=False)
            write_columns(self._folder, part.documents.name, documents[:-1])
            self._parts.append(part)
        self._begin_part()


class ShingleReader:
    """Reads shingles of any documents. On a disk each file is mapped once; in a store only ranges of it are read."""

    def __init__(self, folder: Path, parts: Sequence[SignedPart]) -> None:
        self._folder, self._parts = folder, parts
        self._storage, self._is_remote = find_storage(folder), is_remote(folder)
        self._mapped: dict[int, np.ndarray] = {}

    def read(self, parts: np.ndarray, begins: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The shingles of documents, one after another, and their offsets: uint32, int64.

        parts: the numbers of the parts in which they are. Raises OutputError if a file is truncated.
        """
        offsets = np.append(0, np.cumsum(counts))
        shingles = np.empty(offsets[-1], np.uint32)
        if self._is_remote:

            def fetch(i: int) -> None:
                out = shingles[offsets[i] : offsets[i + 1]].data.cast("B")
                num_read = self._storage.read_into(self._find_path(parts[i]), int(begins[i]) * SHINGLE_BYTES, out)
                self._check(parts[i], len(out), num_read)

            for _ in self._storage.at_once(fetch, range(len(parts))):
                pass
            return shingles, offsets
        order = np.argsort(parts)
        for rows in np.split(order, np.flatnonzero(np.diff(parts[order])) + 1):
            part = int(parts[rows[0]])
            if part not in self._mapped:
                content = self._storage.map(self._find_path(part))
                self._mapped[part] = np.frombuffer(content, np.uint32, len(content) // SHINGLE_BYTES)
            self._check(part, (begins[rows] + counts[rows]).max(), len(self._mapped[part]))
            copy_ranges(self._mapped[part], begins, offsets, rows, shingles)
        return shingles, offsets

    def _check(self, part: int, wanted: int, found: int) -> None:
        if found < wanted:
            raise OutputError(f"{self._find_path(part)} is cut short; start again with --overwrite")

    def _find_path(self, part: int) -> Path:
        return self._folder / self._parts[part].files[-1]


@kernel
def copy_ranges(values: np.ndarray, begins: np.ndarray, offsets: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Copy `values` from `begins` on to `out` between `offsets`, for some rows. begins, offsets, rows: int64."""
    for row in rows:
        count = offsets[row + 1] - offsets[row]
        out[offsets[row] : offsets[row + 1]] = values[begins[row] : begins[row] + count]
