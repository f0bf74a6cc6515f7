"""Which passes a document has: those of its source, by a limit (see `MixtureSource.count_limit`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.corpus.sources import ONE_PASS, MixtureSource
from albert_data.data import Documents, take_items
from albert_data.errors import InputError
from albert_data.kernels.draws import choice_keys
from albert_data.survey.sorted_columns import find_keys


class Limits(NamedTuple):
    """Limits of sources, in two parts: passes and rest, uint64, whole ones and what is left over.

    A document of source s has `passes[s]` passes, and one more if its choice key is below `rest[s]`.
    """

    passes: np.ndarray
    rest: np.ndarray

    @classmethod
    def divide(cls, limits: Sequence[int]) -> Limits:
        parts = np.array([divmod(limit, ONE_PASS) for limit in limits], np.uint64)
        return cls(parts[:, 0], parts[:, 1])

    def count_passes(self, sources: np.ndarray, seed: int, keys: np.ndarray) -> np.ndarray:
        """The passes over each document: uint64. sources: of each, as numbers; keys: uint64, of the documents."""
        choices = choice_keys(np.uint64(seed), keys)
        passes: np.ndarray = self.passes[sources] + (choices < self.rest[sources])
        return passes


def name_source(documents: Documents, source: MixtureSource) -> Documents:
    """The documents with the number of their source as source code: shards of a mixture name it, not the language."""
    return _put_codes(documents, np.full(len(documents.document_keys), source.number, np.uint32))


def number_documents(documents: Documents, sources: Sequence[MixtureSource]) -> Documents:
    """The documents with the numbers of their sources as source codes."""
    assert documents.columns.source_codes is not None, "each has a source"
    return _put_codes(documents, number_sources(documents.columns.source_codes, sources).astype(np.uint32))


def _put_codes(documents: Documents, source_codes: np.ndarray) -> Documents:
    return dataclasses.replace(documents, columns=documents.columns._replace(source_codes=source_codes))


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
    source_codes = documents.columns.source_codes
    if not sources or source_codes is None:
        yield from ((documents, number) for number in range(config.dupe_factor))
        return
    limits = Limits.divide([source.count_limit(config.dupe_factor) for source in sources])
    passes = limits.count_passes(source_codes, config.seed, documents.document_keys)
    for number in range(int(passes.max(initial=0))):
        is_chosen = passes > number
        yield (documents if is_chosen.all() else _take_documents(documents, is_chosen)), number


def _take_documents(documents: Documents, is_taken: np.ndarray) -> Documents:
    """Some of the documents. is_taken: bool, of each."""
    document_offsets, has_sentence = take_items(documents.document_offsets, is_taken)
    sentence_offsets, has_token = take_items(documents.sentence_offsets, has_sentence)
    return Documents(
        ids=documents.ids[has_token],
        sentence_offsets=sentence_offsets,
        is_heading=documents.is_heading[has_sentence],
        document_offsets=document_offsets,
        columns=documents.columns.take(is_taken),
    )
