"""What the audit looks at: all rows of a folder, and the documents that they are from.

In: the splits that have rows. Out: facts about each row, and its document.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from albert_data.inspect.audit.rows import RowFacts, gather_facts, join_facts, make_traits
from albert_data.shards.reader import Shards
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.proto import read_settings

_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
_APOSTROPHES = ("'", "\u2019")  # punctuation, yet inside a word


@dataclass(frozen=True, kw_only=True)
class Subject:
    """facts: of all splits, one after another; begins: the first row of each split.

    documents: uint64, sorted, all keys; owners: int64, the place of each row's document in them.
    """

    shards: list[Shards]
    begins: list[int]
    facts: RowFacts
    documents: np.ndarray
    owners: np.ndarray
    has_prefix: bool

    @property
    def tokenizer(self) -> Tokenizer:
        return self.shards[0].tokenizer

    def add_by_document(self, values: np.ndarray) -> np.ndarray:
        """Sums over the rows of each document: float64."""
        summed: np.ndarray = np.bincount(self.owners, values, len(self.documents))
        return summed


def gather_subject(opened: list[Shards]) -> Subject:
    """Look at every row of these splits. Raises ShardError at one outside the vocabulary."""
    tokenizer = opened[0].tokenizer
    words, pieces = tokenizer.word_rule(opened[0].manifest.rules_version), tokenizer.pieces
    is_byte = np.array([_BYTE_PIECE.fullmatch(piece) is not None for piece in pieces])
    is_unknown = is_byte.copy()
    is_unknown[tokenizer.unk_id] = True
    starts_inside = ~((words.starts > 0) | tokenizer.specials.is_special | is_unknown)
    is_apostrophe = np.array([piece in _APOSTROPHES for piece in pieces])
    traits = make_traits(starts_inside, is_unknown, (words.standalone > 0) & ~is_apostrophe)
    parts = [gather_facts(shards, traits) for shards in opened]
    begins = np.cumsum([0, *map(len, parts)]).tolist()
    facts = join_facts(parts)
    documents, owners = np.unique(facts.keys, return_inverse=True)
    has_prefix = read_settings(tokenizer.model).add_dummy_prefix
    return Subject(shards=opened, begins=begins, facts=facts, documents=documents, owners=owners, has_prefix=has_prefix)
