"""Lists of documents, by which is decided whose they are, which form of each stays, and what training leaves out.

A map task writes a list beside its sorted runs. The file is uint64 throughout: the keys of the documents in ascending
order, then, in the same order, their tokens of text, their places, their forms (see `Lines`), and where the texts lie
that are not in NFC (forms.py). Copies are listed too, and documents that are not used. What training leaves out becomes
one file of sorted keys, which reduce maps into memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.corpus.sources import ONE_PASS, MixtureSource
from albert_data.corpus.tasks import ReadTask
from albert_data.data import Documents
from albert_data.errors import InputError
from albert_data.kernels.draws import choice_keys
from albert_data.survey.sorted_columns import SortedFile, find_keys, map_u64, merge_columns, write_columns, write_u64

RANGE_DOCUMENTS = 1 << 20  # read at once: keys are random, so lists are read by ranges of keys, in bounded memory
VALIDATION_PLACE = 0
_LEFT_OUT = "left-out.documents"


class DocumentList(NamedTuple):
    """A list on the disk. name: of the file; source: the number of its source, see `find_place`.

    texts: the file of the texts that are not in NFC; None without any
    """

    name: str
    source: int
    num_documents: int
    texts: str | None = None

    @property
    def file(self) -> SortedFile:
        return SortedFile(self.name, 5, self.num_documents)


def find_place(task: ReadTask) -> int:
    """The place of a task's documents among all: of several that are alike, one of the first place stays.

    In a mixture it is the number of the source. In other builds the inputs for validation come before all others.
    """
    return task.source.number if task.source else VALIDATION_PLACE + (not task.is_validation)


def list_documents(documents: Documents, place: int | None, texts: np.ndarray | None = None) -> np.ndarray:
    """The documents that give rows: uint64, the columns of a list, [5, num_documents].

    place: of all documents, see `find_place`; None where the source code of each is its place. texts: see `FormTexts`.
    """
    tokens = np.diff(documents.sentence_offsets[documents.document_offsets])
    places = documents.source_codes if place is None else np.full(len(tokens), place)
    assert places is not None, "each document has a source"
    none = np.zeros(len(tokens), np.uint64)
    forms, texts = none if documents.forms is None else documents.forms, none if texts is None else texts
    columns = (documents.document_keys, tokens, places, forms, texts)
    return np.stack([column.astype(np.uint64) for column in columns])[:, tokens > 0]


def list_groups(documents: Documents, place: int | None) -> np.ndarray:
    """The documents that give rows: uint64, keys, groups, tokens of text and places, [4, num_documents]."""
    keys, tokens, places = list_documents(documents, place)[:3]
    assert documents.groups is not None, "the settings name a field"
    groups = documents.groups[np.diff(documents.sentence_offsets[documents.document_offsets]) > 0]
    return np.stack([keys, groups, tokens, places])


def write_list(folder: Path, task: str, source: int, parts: Sequence[np.ndarray], texts: str | None) -> DocumentList:
    """Write the list of a task. parts: of its blocks, as `list_documents` returns them; texts: see `DocumentList`."""
    file = write_columns(folder, f"{task}.documents", np.concatenate(parts, axis=1))
    return DocumentList(file.name, source, file.num_rows, texts)


class Listed(NamedTuple):
    """Documents of several lists: uint64, int64, uint64, bool. is_lost: whether another form of the text stays."""

    keys: np.ndarray
    sources: np.ndarray
    tokens: np.ndarray
    is_lost: np.ndarray


def read_lists(folder: Path, lists: Sequence[DocumentList], lost: Path | None = None) -> Iterator[Listed]:
    """The documents of all lists by their keys, a range of these after another. lost: as `find_lost` returns it."""
    for keys, tokens, sources, forms, *_ in merge_columns(folder, [item.file for item in lists], RANGE_DOCUMENTS):
        is_lost = np.zeros(len(keys), bool) if lost is None else find_keys(forms, map_u64(lost))[0]
        yield Listed(keys, sources.astype(np.int64), tokens, is_lost)


def write_left_out(folder: Path, lists: Sequence[DocumentList]) -> Path:
    """Write the keys of all listed documents, ascending, each once. Returns the path of the file."""
    path = write_u64(folder / _LEFT_OUT, (np.unique(listed.keys) for listed in read_lists(folder, lists)))
    assert path is not None, "documents of validation have rows"
    return path


class Limits(NamedTuple):
    """Limits as `MixtureSource.count_limit` has them, in two parts.

    passes, rest: uint64, of each source, whole and left over.

    A document of source s has `passes[s]` passes, and one more if its choice key is below `rest[s]`.
    """

    passes: np.ndarray
    rest: np.ndarray

    @classmethod
    def divide(cls, limits: Sequence[int]) -> Limits:
        parts = np.array([divmod(limit, ONE_PASS) for limit in limits], np.uint64)
        return cls(parts[:, 0], parts[:, 1])

    def count_passes(self, sources: np.ndarray, choices: np.ndarray) -> np.ndarray:
        """The passes over each document: uint64. sources: of each, as numbers; choices: uint64, choice keys."""
        passes: np.ndarray = self.passes[sources] + (choices < self.rest[sources])
        return passes


def name_source(documents: Documents, source: MixtureSource) -> Documents:
    """The documents with the number of their source as source code: shards of a mixture name it, not the language."""
    numbers = np.full(len(documents.document_keys), source.number, np.uint32)
    return dataclasses.replace(documents, source_codes=numbers)


def number_documents(documents: Documents, sources: Sequence[MixtureSource]) -> Documents:
    """The documents with the numbers of their sources as source codes."""
    assert documents.source_codes is not None, "each has a source"
    numbers = number_sources(documents.source_codes, sources).astype(np.uint32)
    return dataclasses.replace(documents, source_codes=numbers)


def number_sources(source_codes: np.ndarray, sources: Sequence[MixtureSource]) -> np.ndarray:
    """The number of the source of each code: int64. Raises InputError for a code that is of none."""
    codes = np.array([source.code for source in sources])
    order = np.argsort(codes)
    is_known, at = find_keys(source_codes, codes[order])
    if not is_known.all():
        raise InputError("an input was changed while it was read: a language is new in it; build again by --overwrite")
    numbers: np.ndarray = order[at]
    return numbers


def choose_passes(
    documents: Documents, sources: Sequence[MixtureSource], config: ExampleConfig
) -> Iterator[tuple[Documents, int]]:
    """Yield the documents of each pass, with the numbers of their sources, and its number.

    sources: with their limits; without any, all documents are used in all passes.
    """
    if not sources or documents.source_codes is None:
        yield from ((documents, number) for number in range(config.dupe_factor))
        return
    limits = Limits.divide([source.count_limit(config.dupe_factor) for source in sources])
    choices = choice_keys(np.uint64(config.seed), documents.document_keys)
    passes = limits.count_passes(documents.source_codes, choices)
    for number in range(int(passes.max(initial=0))):
        is_chosen = passes > number
        yield (documents if is_chosen.all() else _take_documents(documents, is_chosen)), number


def _take_documents(documents: Documents, is_taken: np.ndarray) -> Documents:
    """Some of the documents. is_taken: bool, of each."""
    num_sentences, num_tokens = np.diff(documents.document_offsets), np.diff(documents.sentence_offsets)
    has_sentence = np.repeat(is_taken, num_sentences)
    source_codes = documents.source_codes
    return Documents(
        ids=documents.ids[np.repeat(has_sentence, num_tokens)],
        sentence_offsets=np.append(0, np.cumsum(num_tokens[has_sentence])),
        is_heading=documents.is_heading[has_sentence],
        document_offsets=np.append(0, np.cumsum(num_sentences[is_taken])),
        document_keys=documents.document_keys[is_taken],
        source_codes=None if source_codes is None else source_codes[is_taken],
        groups=None if documents.groups is None else documents.groups[is_taken],
        forms=None if documents.forms is None else documents.forms[is_taken],
    )
