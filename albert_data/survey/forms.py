"""Which of the forms of a text stay: documents with one key that differ in bytes, since some are not in NFC.

Map lists every document with its form, and keeps the texts of those that are not in NFC. Out: the forms that are
dropped, a file of hashes. Of several forms that of the first source stays; of one source,
or with `alpha` of all, that in NFC, then the text whose UTF-8 bytes sort first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np

from albert_data.data import Lines
from albert_data.storage import find_storage
from albert_data.survey.document_lists import RANGE_DOCUMENTS, DocumentList
from albert_data.survey.sorted_columns import SortedFile, find_changes, map_u64, merge_columns, write_columns, write_u64

_LOST = "lost.forms"
_SIZE_BITS = 24  # of a document: none is longer than 4 MiB (corpus/lines/long_documents.py)


class FormTexts:
    """The file of a task with the texts that are not in NFC. files: closes it, also if the task fails."""

    def __init__(self, folder: Path, task: str, files: ExitStack) -> None:
        self._path, self._files = folder / f"{task}.texts", files
        self._file: BinaryIO | None = None
        self._num_bytes = 0

    def add(self, lines: Lines) -> np.ndarray:
        """Write the texts of these documents. Returns where each lies: uint64, begin << 24 | bytes; 0 in NFC."""
        places = np.zeros(len(lines.document_keys), np.uint64)
        if lines.columns.forms is None:
            return places
        if self._file is None:
            self._file = self._files.enter_context(find_storage(self._path).create(self._path, sync=False))
        bounds = lines.line_offsets[lines.document_offsets].tolist()
        for number in np.flatnonzero(lines.columns.forms).tolist():
            text = lines.utf8[bounds[number] : bounds[number + 1]]
            self._file.write(text.data)
            places[number] = self._num_bytes << _SIZE_BITS | len(text)
            self._num_bytes += len(text)
        return places

    def finish(self) -> str | None:
        """The name of the file; None if all texts are in NFC."""
        self._files.close()
        return self._path.name if self._file else None


def find_lost(folder: Path, lists: Sequence[DocumentList], *, by_source: bool) -> np.ndarray | None:
    """The forms that are dropped, ascending; None if there are none. by_source: whether the first source counts.

    folder: that of the lists, whose texts are read where two forms of a text are not in NFC.
    """
    files = list[SortedFile]()
    for rows in merge_columns(folder, [item.file for item in lists], RANGE_DOCUMENTS):
        if lost := list(_choose_lost(folder, lists, rows, by_source)):
            files.append(write_columns(folder, f"{len(files)}-{_LOST}", np.array([lost], np.uint64)))
    merged = merge_columns(folder, files, numbered=False)
    path = write_u64(folder / _LOST, (rows[0, find_changes(rows)] for rows in merged))
    return None if path is None else map_u64(path)


def _choose_lost(folder: Path, lists: Sequence[DocumentList], rows: np.ndarray, by_source: bool) -> Iterator[int]:
    """Yield the forms that are dropped. rows: of the lists, all of each key that they have."""
    keys, sources, forms, _, _, places, numbers = rows
    ends = np.cumsum([item.num_documents for item in lists])
    files = np.searchsorted(ends, numbers.astype(np.int64), "right")  # of each document the list that has it
    sources = sources if by_source else np.zeros_like(sources)
    order = np.lexsort((forms, sources, keys))
    keys, sources, forms, places, files = (column[order] for column in (keys, sources, forms, places, files))
    begins = np.flatnonzero(find_changes(keys[None]))
    counts = np.diff(begins, append=len(keys))
    least, first = np.repeat(forms[begins], counts), np.repeat(sources[begins], counts)
    is_other = (sources == first) & (forms != least)
    yield from forms[is_other & (least == 0)].tolist()
    unsure = np.unique(keys[is_other & (least != 0)])
    for begin, end in zip(*(np.searchsorted(keys, unsure, side).tolist() for side in ("left", "right")), strict=True):
        here = begin + np.flatnonzero(sources[begin:end] == sources[begin])
        here = here[np.unique(forms[here], return_index=True)[1]]
        texts = {int(forms[row]): _read_text(folder, lists[int(files[row])], int(places[row])) for row in here}
        yield from sorted(texts, key=lambda form: texts[form])[1:]


def _read_text(folder: Path, listed: DocumentList, place: int) -> bytes:
    assert listed.texts is not None, "a document of it is not in NFC"
    path, out = folder / listed.texts, bytearray(place & (1 << _SIZE_BITS) - 1)
    find_storage(path).read_into(path, place >> _SIZE_BITS, memoryview(out))
    return bytes(out)
