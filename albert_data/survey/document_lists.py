"""Lists of documents: what is known of each between map and merge, by which is decided what becomes of it.

A map task writes a list beside its sorted runs: sorted columns of uint64, a row a document, copies and documents that
are not used included. All lists are read together, a range of keys after another.

    key, source, form, tokens, group, text

source: see `find_source`; form: see `Lines`; tokens: of text; group: what decides the split; text: where the text lies
that is not in NFC (forms.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from albert_data.config import BuildConfig
from albert_data.corpus.sources import MixtureSource
from albert_data.corpus.tasks import ReadTask
from albert_data.data import Documents
from albert_data.survey.passes import number_sources
from albert_data.survey.sorted_columns import SortedFile, find_changes, find_keys, merge_columns, write_columns

RANGE_DOCUMENTS = 1 << 20  # read at once: keys are random, so lists are read by ranges of keys, in bounded memory
VALIDATION_SOURCE = 0
_NUM_COLUMNS = 6


class DocumentList(NamedTuple):
    """A list on the disk. name: of the file; source: see `find_source`.

    texts: the file of the texts that are not in NFC; None without any
    """

    name: str
    source: int
    num_documents: int
    texts: str | None = None

    @property
    def file(self) -> SortedFile:
        return SortedFile(self.name, _NUM_COLUMNS, self.num_documents)


def find_source(task: ReadTask) -> int:
    """The source of a task's documents among all: of several that are alike, one of the first source stays.

    In a mixture it is its number. In other builds the inputs for validation are a source that comes before all others.
    """
    return task.source.number if task.source else VALIDATION_SOURCE + (not task.is_validation)


def list_documents(documents: Documents, source: int | None, texts: np.ndarray | None = None) -> np.ndarray:
    """The documents that give rows: uint64, the columns of a list, [6, num_documents].

    source: of all documents, see `find_source`; None where each names its own. texts: see `FormTexts`.
    """
    keys, source_codes, groups, forms = documents.columns
    tokens = np.diff(documents.sentence_offsets[documents.document_offsets])
    sources = source_codes if source is None else np.full(len(tokens), source)
    assert sources is not None, "each document has a source"
    none = np.zeros(len(tokens), np.uint64)
    forms, texts = none if forms is None else forms, none if texts is None else texts
    columns = (keys, sources, forms, tokens, keys if groups is None else groups, texts)
    return np.stack([column.astype(np.uint64) for column in columns])[:, tokens > 0]


def write_list(folder: Path, task: str, source: int, parts: Sequence[np.ndarray], texts: str | None) -> DocumentList:
    """Write the list of a task. parts: of its blocks, as `list_documents` returns them; texts: see `DocumentList`."""
    file = write_columns(folder, f"{task}.documents", np.concatenate(parts, axis=1))
    return DocumentList(file.name, source, file.num_rows, texts)


class Listed(NamedTuple):
    """Documents of all lists in a range of keys, sorted by key and source.

    keys, forms, groups: uint64; sources (numbers), tokens: int64
    is_foreign: bool, whether the text belongs to an earlier source; is_lost: whether another form of the text stays;
    is_similar: whether a similar document stays; is_own: whether it counts: neither foreign, lost nor a copy
    """

    keys: np.ndarray
    sources: np.ndarray
    forms: np.ndarray
    tokens: np.ndarray
    groups: np.ndarray
    is_foreign: np.ndarray
    is_lost: np.ndarray
    is_similar: np.ndarray
    is_own: np.ndarray


class DocumentReader:
    """Reads all lists of a build, as often as is asked for.

    sources: those that have passes of their own; none elsewhere
    lost, similar: the forms and the keys of documents that are not used, ascending; None without any
    """

    def __init__(
        self, folder: Path, lists: Sequence[DocumentList], sources: Sequence[MixtureSource], config: BuildConfig
    ) -> None:
        self.folder, self.lists, self.sources, self.config = folder, lists, sources, config
        self.lost: np.ndarray | None = None
        self.similar: np.ndarray | None = None

    def read(self) -> Iterator[Listed]:
        """All documents, a range of keys after another."""
        for rows in merge_columns(self.folder, [item.file for item in self.lists], RANGE_DOCUMENTS, numbered=False):
            yield self._judge(rows)

    def _judge(self, rows: np.ndarray) -> Listed:
        keys, codes, forms, tokens, groups, _ = rows
        sources = number_sources(codes, self.sources) if self.sources else codes.astype(np.int64)
        nothing = np.zeros(len(keys), bool)
        is_lost = nothing if self.lost is None else find_keys(forms, self.lost)[0]
        is_similar = nothing if self.similar is None else find_keys(keys, self.similar)[0]
        is_foreign, is_own = nothing, ~nothing
        if not self.config.keep_duplicates:
            firsts = np.flatnonzero(find_changes(keys[None]))
            owners = np.repeat(sources[firsts], np.diff(firsts, append=len(keys)))
            if self.config.alpha is None:  # else a text of two languages belongs to both
                is_foreign = sources != owners
            is_own = find_changes(rows[:4]) & ~is_foreign & ~is_lost
        tokens = tokens.astype(np.int64)
        return Listed(keys, sources, forms, tokens, groups, is_foreign, is_lost, is_similar, is_own)
