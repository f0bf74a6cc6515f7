"""What the audit knows about all rows of a folder, gathered in one pass over the shards.

In: the splits that have rows. Out: a few numbers for each row, and its document. Texts are compared by 64-bit hashes of
the original ids, rows by hashes of the masks too: among 10 million, the chance that two different ones are equal is 1
in 400,000.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.data import ExampleArrays, Examples
from albert_data.examples.pair_tasks import SWAPPED
from albert_data.inspect.sources import SourceCounter, SourceStatistics
from albert_data.inspect.words import find_text_words
from albert_data.kernels import kernel
from albert_data.kernels.draws import mix
from albert_data.shards.decoding import Example, find_byte_pieces
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.tokenizer.model import Tokenizer

_APOSTROPHES = ("'", "\u2019", "\u2581'")  # punctuation, yet inside a word


@dataclass(frozen=True, kw_only=True)
class RowFacts:
    """Arrays of one value a row."""

    lens_a: np.ndarray  # int32, tokens of segment A
    lens_b: np.ndarray  # int32, 0 without a pair
    labels: np.ndarray  # int8
    keys: np.ndarray  # uint64, of the document of A
    keys_b: np.ndarray  # uint64, of the document of B
    sources: np.ndarray  # uint16, 0 where rows have no sources
    texts: np.ndarray  # uint64, hash of the text in the order of the document, wherever A and B meet
    rows: np.ndarray  # uint64, hash of the row with its masks
    is_equal: np.ndarray  # bool, A is B
    num_inside: np.ndarray  # int8, segments that begin inside a word
    num_unknown: np.ndarray  # int32, original ids that are <unk>
    num_bytes: np.ndarray  # int32, original ids that are byte pieces
    num_masked: np.ndarray  # int32

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_text(self) -> np.ndarray:
        """Tokens without [CLS] and [SEP]: int32."""
        total: np.ndarray = self.lens_a + self.lens_b
        return total


def read_batches(opened: Sequence[Shards]) -> Iterator[Examples]:
    """The rows of these splits, one after another. Raises ShardError at a row that leaves its bounds."""
    return (batch for shards in opened for batch in shards.batches())


@dataclass(frozen=True, kw_only=True)
class Subject:
    """All rows and documents of a folder."""

    shards: list[Shards]
    begins: list[int]  # the first row of each split, and last the number of all rows
    facts: RowFacts  # of all splits, one after another
    documents: np.ndarray  # uint64, the keys of all documents, sorted
    owners: np.ndarray  # int64, the index of each row's document in these
    by_source: tuple[SourceStatistics, ...]  # of all splits; empty where rows have no sources

    @cached_property
    def groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Documents, one that two sources have being two: each row's number (int64), and the source of each."""
        pairs = self.owners * (int(self.facts.sources.max(initial=0)) + 1) + self.facts.sources
        _, first, groups = np.unique(pairs, return_index=True, return_inverse=True)
        return groups, self.facts.sources[first]

    @property
    def tokenizer(self) -> Tokenizer:
        return self.shards[0].tokenizer

    @property
    def config(self) -> ExampleConfig:
        return self.shards[0].manifest.config.examples

    def read_row(self, row: int) -> Example:
        """A row by its number in all splits, one after another."""
        number = int(np.searchsorted(self.begins, row, side="right")) - 1
        return self.shards[number][row - self.begins[number]]

    def add_by_document(self, values: np.ndarray) -> np.ndarray:
        """The sum of `values`, one for each row, over the rows of each document: float64."""
        summed: np.ndarray = np.bincount(self.owners, values, len(self.documents))
        return summed


def gather_subject(opened: list[Shards]) -> Subject:
    """Gather the facts about every row of these splits. Raises ShardError at a row that leaves its bounds."""
    tokenizer, manifest = opened[0].tokenizer, opened[0].manifest
    # The words of language, also where the build masks single pieces.
    words, pieces = find_text_words(tokenizer), tokenizer.piece_texts
    kinds = {"num_unknown": np.arange(len(pieces)) == tokenizer.unk_id, "num_bytes": find_byte_pieces(tokenizer)}
    starts_inside = ~((words.starts > 0) | words.is_apart | kinds["num_unknown"] | kinds["num_bytes"])
    is_apostrophe = np.array([piece in _APOSTROPHES for piece in pieces])
    parts_words = (words.standalone > 0) & ~is_apostrophe
    swapped, parts, sources = manifest.config.examples.task.label_of(SWAPPED), [], SourceCounter(opened[0])
    for batch in read_batches(opened):
        sources.add(batch)
        original, num_around = restore_ids(batch), np.where(batch.sop_label < 0, 2, 3)
        measured = measure_rows(batch.arrays, original, starts_inside, parts_words, swapped)
        begins, lens_b = batch.offsets[:-1], np.diff(batch.offsets) - batch.segment_a_len - num_around
        columns = {
            "lens_a": batch.segment_a_len.astype(np.int32),
            "lens_b": np.maximum(lens_b, 0).astype(np.int32),
            "labels": batch.sop_label,
            "keys": batch.document_keys,
            "keys_b": batch.document_keys if batch.document_keys_b is None else batch.document_keys_b,
            "sources": np.zeros(len(batch), np.uint16) if batch.sources is None else batch.sources,
            "num_masked": np.diff(batch.mask_offsets).astype(np.int32),
            **dict(zip(_MEASURED, measured, strict=True)),
            **{name: np.add.reduceat(is_so[original], begins, dtype=np.int32) for name, is_so in kinds.items()},
        }
        parts.append({name: column.copy() for name, column in columns.items()})  # so that no batch is kept
    facts = RowFacts(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    documents, owners = np.unique(facts.keys, return_inverse=True)
    return Subject(
        shards=opened,
        begins=np.cumsum([0, *map(len, opened)]).tolist(),
        facts=facts,
        documents=documents,
        owners=owners,
        by_source=sources.finish(),
    )


_MEASURED = ("texts", "rows", "is_equal", "num_inside")


@kernel
def measure_rows(
    batch: ExampleArrays, original: np.ndarray, starts_inside: np.ndarray, parts_words: np.ndarray, swapped: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The fields _MEASURED of RowFacts.

    original: the ids before masking; swapped: the label of swapped pairs
    starts_inside, parts_words: bool [vocabulary], a segment that begins with the piece begins inside a word, except
    after a piece after which a word begins, such as a dash
    """
    num_rows = len(batch.sop_label)
    texts, rows = np.empty(num_rows, np.uint64), np.empty(num_rows, np.uint64)
    is_equal, num_inside = np.zeros(num_rows, np.bool_), np.zeros(num_rows, np.int8)
    for row in range(num_rows):
        begin, end = batch.offsets[row], batch.offsets[row + 1]
        sep = begin + 1 + batch.segment_a_len[row]
        whole = mix(batch.document_keys[row] ^ np.uint64(batch.segment_a_len[row]))
        for at in range(begin, end):
            whole = mix(whole ^ (np.uint64(batch.input_ids[at]) << np.uint64(32)) ^ np.uint64(original[at]))
        is_swapped = batch.sop_label[row] == swapped
        text = np.uint64(0)
        for part in range(2):
            first, last = (sep + 1, end - 1) if (part == 0) == is_swapped else (begin + 1, sep)
            for at in range(first, last):
                text = mix(text + np.uint64(1) + np.uint64(original[at]))  # mix(0) is 0: so that an id of 0 counts
        rows[row], texts[row] = whole, text
        is_equal[row] = np.array_equal(original[begin + 1 : sep], original[sep + 1 : end - 1])
        num_inside[row] = starts_inside[original[begin + 1]]
        if sep + 1 < end - 1:
            num_inside[row] += starts_inside[original[sep + 1]]
            # The later segment may follow a dash that ends the earlier one: then it begins a word.
            later, before = (begin + 1, end - 2) if is_swapped else (sep + 1, sep - 1)
            num_inside[row] -= starts_inside[original[later]] and parts_words[original[before]]
    return texts, rows, is_equal, num_inside
