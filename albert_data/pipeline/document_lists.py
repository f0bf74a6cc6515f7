"""Lists of documents: those of a mixture, by which reduce learns whose they are, and those that training leaves out.

A map task of a mixture, or of inputs for validation, writes a list beside its sorted runs. The file is uint64
throughout: the keys of the documents in ascending order, then their tokens of text, in the same order. Copies are
listed too, and documents that are not used. What training leaves out becomes one file of sorted keys, which reduce maps
into memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.corpus.sources import ONE_PASS, MixtureSource
from albert_data.data import Documents
from albert_data.draws import choice_keys
from albert_data.errors import OutputError
from albert_data.storage import find_storage

RANGE_DOCUMENTS = 1 << 20  # read at once: keys are random, so lists are read by ranges of keys, in bounded memory
_U64_BYTES = 8
_KEYS = 2**64
_LEFT_OUT = "left-out.documents"


class DocumentList(NamedTuple):
    """A list on the disk. name: of the file; source: its number."""

    name: str
    source: int
    num_documents: int


def list_documents(documents: Documents) -> np.ndarray:
    """The documents that give rows: uint64, their keys and their tokens of text, [2, num_documents]."""
    tokens = np.diff(documents.sentence_offsets[documents.document_offsets])
    has_rows = tokens > 0
    return np.stack([documents.document_keys[has_rows], tokens[has_rows].astype(np.uint64)])


def write_list(folder: Path, task: str, source: int, parts: Sequence[np.ndarray]) -> DocumentList:
    """Write the list of a task. parts: of its blocks, as `list_documents` returns them."""
    listed = np.concatenate(parts, axis=1)
    listed = listed[:, np.argsort(listed[0], kind="stable")]
    name = f"{task}.documents"
    with find_storage(folder).create(folder / name, sync=False) as file:
        file.write(np.ascontiguousarray(listed).data)
    return DocumentList(name, source, listed.shape[1])


def map_list(folder: Path, listed: DocumentList) -> np.ndarray:
    """The content of a list: uint64, [2, num_documents]. It takes memory only while it is used.

    Raises OutputError if the file is truncated.
    """
    content = map_u64(folder / listed.name)
    if len(content) != 2 * listed.num_documents:
        raise OutputError(f"{folder / listed.name} is cut short; start again with --overwrite")
    return content.reshape(2, -1)


def map_u64(path: Path) -> np.ndarray:
    """A file as uint64, mapped into memory."""
    content = find_storage(path).map(path)
    return np.frombuffer(content, np.uint64, len(content) // _U64_BYTES)


class Listed(NamedTuple):
    """Documents of several lists: uint64, int64, uint64."""

    keys: np.ndarray
    sources: np.ndarray
    tokens: np.ndarray


def read_lists(folder: Path, lists: Sequence[DocumentList]) -> Iterator[Listed]:
    """The documents of all lists, a range of keys after another; within a range they are in no order."""
    num_ranges = max(1, sum(item.num_documents for item in lists) // RANGE_DOCUMENTS)
    bounds = np.array([number * _KEYS // num_ranges for number in range(1, num_ranges)], np.uint64)
    cuts = [[0, *np.searchsorted(map_list(folder, item)[0], bounds), item.num_documents] for item in lists]
    for number in range(num_ranges):
        parts = []
        for item, (begin, end) in zip(lists, (at[number : number + 2] for at in cuts), strict=True):
            keys, tokens = map_list(folder, item)[:, begin:end]
            parts.append((keys, np.full(len(keys), item.source), tokens))
        yield Listed(*map(np.concatenate, zip(*parts, strict=True)))


def write_left_out(folder: Path, lists: Sequence[DocumentList]) -> Path:
    """Write the keys of all listed documents, ascending, each once. Returns the path of the file."""
    path = folder / _LEFT_OUT
    with find_storage(folder).create(path, sync=False) as file:
        for listed in read_lists(folder, lists):
            file.write(np.unique(listed.keys).data)
    return path


def find_keys(keys: np.ndarray, among: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which keys are among others (bool), and where (int64). among: ascending, at least one."""
    at = np.minimum(np.searchsorted(among, keys), len(among) - 1)
    return among[at] == keys, at


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


def choose_passes(
    documents: Documents, source: MixtureSource | None, config: ExampleConfig
) -> Iterator[tuple[Documents, int]]:
    """Yield the documents of each pass, and its number: those that the source uses so often.

    source: None for a build without a mixture: there, all documents are used in all passes. The source codes of
    documents are replaced by the number of their source, since that is what shards of a mixture tell of a row.
    """
    if source is None:
        yield from ((documents, number) for number in range(config.dupe_factor))
        return
    numbers = np.full(len(documents.document_keys), source.number, np.uint32)
    documents = dataclasses.replace(documents, source_codes=numbers)
    (whole, rest), keys = divmod(source.count_limit(config.dupe_factor), ONE_PASS), documents.document_keys
    for number in range(whole):
        yield documents, number
    if rest and (is_chosen := choice_keys(np.uint64(config.seed), keys) < np.uint64(rest)).any():
        yield _take_documents(documents, is_chosen), whole


def _take_documents(documents: Documents, is_taken: np.ndarray) -> Documents:
    """Some of the documents. is_taken: bool, of each."""
    num_sentences, num_tokens = np.diff(documents.document_offsets), np.diff(documents.sentence_offsets)
    has_sentence = np.repeat(is_taken, num_sentences)
    source_codes = documents.source_codes
    return Documents(
        ids=documents.ids[np.repeat(has_sentence, num_tokens)],
        sentence_offsets=_sum_up(num_tokens[has_sentence]),
        is_heading=documents.is_heading[has_sentence],
        document_offsets=_sum_up(num_sentences[is_taken]),
        document_keys=documents.document_keys[is_taken],
        source_codes=None if source_codes is None else source_codes[is_taken],
    )


def _sum_up(counts: np.ndarray) -> np.ndarray:
    """Offsets: int64, one more than counts."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets
