"""What the audit knows about all rows of a folder, gathered in one pass over the shards; windows take a second pass.

In: the splits that have rows. Out: a few numbers for each row, and its document; and all windows of a sample of
documents. A window is WINDOW consecutive tokens of a segment. Texts are compared by 64-bit hashes of the original ids,
rows by hashes of the masks too: among 10 million, the chance that two different ones are equal is 1 in 400,000.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.data import ExampleArrays, Examples
from albert_data.examples.pair_tasks import SWAPPED
from albert_data.inspect.statistics import find_text_words
from albert_data.kernels import kernel
from albert_data.kernels.draws import mix, threshold
from albert_data.shards.decoding import Example, find_byte_pieces
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.tokenizer.model import Tokenizer

WINDOW = 12
MAX_WINDOWS = 1_000_000  # the sample of windows; sorting them takes half a second
MIN_DOCUMENTS = 1_000  # so that 1 % of the sampled documents are ten
_SAMPLING = np.uint64(0xD1B54A32D192ED03)  # any constant: makes the order of the sample independent of the keys
_BASE = np.uint64(0x9E3779B97F4A7C15)  # of the polynomial that hashes a window
_APOSTROPHES = ("'", "\u2019", "\u2581'")  # punctuation, yet inside a word
# Traits of pieces, as bits: a segment that begins with it begins inside a word, except after a piece that parts words;
# it stands for text that is lost; a word begins after it, such as a dash; it is a part of a character.
STARTS_INSIDE, IS_UNKNOWN, PARTS_WORDS, IS_BYTES = 1, 2, 4, 8


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
    num_special: np.ndarray  # int32, original ids that are special pieces, without [CLS] and [SEP] around segments

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_text(self) -> np.ndarray:
        """Tokens without [CLS] and [SEP]: int32."""
        total: np.ndarray = self.lens_a + self.lens_b
        return total


class Windows(NamedTuple):
    """Sampled windows."""

    hashes: np.ndarray  # uint64
    rows: np.ndarray  # int64, of all splits
    positions: np.ndarray  # int32, of the first token in the row


def read_batches(opened: Sequence[Shards]) -> Iterator[Examples]:
    """The rows of these splits, one after another. Raises ShardError at a row that leaves its bounds."""
    return (batch for shards in opened for batch in shards.batches())


def choose_documents(keys: np.ndarray, lens: np.ndarray) -> tuple[np.ndarray, float]:
    """A sample of documents with about MAX_WINDOWS tokens, and the share of their windows to take, at most 1.

    lens: tokens of each document. Out: bool, for each. Where documents are long, at least MIN_DOCUMENTS are taken, or
    all, with a smaller share of their windows. A window's hash decides whether it is taken, so a header that documents
    share is taken from all of them or from none.
    """
    ranks: Any = keys ^ _SAMPLING  # mixed, they are random numbers that the keys alone decide
    order = np.argsort(mix(ranks))
    sizes = np.cumsum(lens[order])
    count = max(int(np.searchsorted(sizes, MAX_WINDOWS, side="right")), min(MIN_DOCUMENTS, len(keys)))
    is_chosen = np.zeros(len(keys), np.bool_)
    is_chosen[order[:count]] = True
    return is_chosen, min(1.0, MAX_WINDOWS / max(float(sizes[count - 1]), 1.0))


def gather_windows(opened: Sequence[Shards], is_chosen: np.ndarray, share: float) -> Windows:
    """A share of the windows of the chosen rows. is_chosen: bool, for each row of all splits, one after another."""
    parts, row = [], 0
    for batch in read_batches(opened):
        chosen = is_chosen[row : row + len(batch)]
        if chosen.any():
            ids = restore_ids(batch)
            hashes, rows, positions = sample_windows(ids, batch.offsets, batch.segment_a_len, chosen, threshold(share))
            parts.append((hashes, rows + row, positions))
        row += len(batch)
    return Windows(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


@dataclass(frozen=True, kw_only=True)
class Subject:
    """All rows and documents of a folder."""

    shards: list[Shards]
    begins: list[int]  # the first row of each split, and last the number of all rows
    facts: RowFacts  # of all splits, one after another
    documents: np.ndarray  # uint64, the keys of all documents, sorted
    owners: np.ndarray  # int64, the index of each row's document in these

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
    is_special = tokenizer.specials.is_special
    is_bytes, is_unknown = find_byte_pieces(tokenizer), np.arange(len(pieces)) == tokenizer.unk_id
    starts_inside = ~((words.starts > 0) | words.is_apart | is_unknown | is_bytes)
    is_apostrophe = np.array([piece in _APOSTROPHES for piece in pieces])
    parts_words = (words.standalone > 0) & ~is_apostrophe
    bits = (STARTS_INSIDE, IS_UNKNOWN, PARTS_WORDS, IS_BYTES)
    traits = np.stack([starts_inside, is_unknown, parts_words, is_bytes], axis=1) @ np.array(bits, np.uint8)
    swapped, parts = manifest.config.examples.task.label_of(SWAPPED), []
    for batch in read_batches(opened):
        original, num_around = restore_ids(batch), np.where(batch.sop_label < 0, 2, 3)
        measured = measure_rows(batch.arrays, original, traits, swapped)
        lens_b = np.diff(batch.offsets) - batch.segment_a_len - num_around
        columns = {
            "lens_a": batch.segment_a_len.astype(np.int32),
            "lens_b": np.maximum(lens_b, 0).astype(np.int32),
            "labels": batch.sop_label,
            "keys": batch.document_keys,
            "keys_b": batch.document_keys if batch.document_keys_b is None else batch.document_keys_b,
            "sources": np.zeros(len(batch), np.uint16) if batch.sources is None else batch.sources,
            "num_special": np.add.reduceat(is_special[original], batch.offsets[:-1], dtype=np.int32) - num_around,
            **dict(zip(_MEASURED, measured, strict=True)),
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
    )


_MEASURED = ("texts", "rows", "is_equal", "num_inside", "num_unknown", "num_bytes")


@kernel
def measure_rows(
    batch: ExampleArrays, original: np.ndarray, traits: np.ndarray, swapped: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The fields _MEASURED of RowFacts.

    original: the ids before masking; traits: uint8 [vocabulary]; swapped: the label of swapped pairs.
    """
    num_rows = len(batch.sop_label)
    texts, rows = np.empty(num_rows, np.uint64), np.empty(num_rows, np.uint64)
    is_equal, num_inside = np.zeros(num_rows, np.bool_), np.zeros(num_rows, np.int8)
    num_unknown, num_bytes = np.zeros(num_rows, np.int32), np.zeros(num_rows, np.int32)
    for row in range(num_rows):
        begin, end = batch.offsets[row], batch.offsets[row + 1]
        sep = begin + 1 + batch.segment_a_len[row]
        whole = mix(batch.document_keys[row] ^ np.uint64(batch.segment_a_len[row]))
        for at in range(begin, end):
            whole = mix(whole ^ (np.uint64(batch.input_ids[at]) << np.uint64(32)) ^ np.uint64(original[at]))
            num_unknown[row] += (traits[original[at]] & IS_UNKNOWN) > 0
            num_bytes[row] += (traits[original[at]] & IS_BYTES) > 0
        is_swapped = batch.sop_label[row] == swapped
        text = np.uint64(0)
        for part in range(2):
            first, last = (sep + 1, end - 1) if (part == 0) == is_swapped else (begin + 1, sep)
            for at in range(first, last):
                text = mix(text + np.uint64(1) + np.uint64(original[at]))  # mix(0) is 0: so that an id of 0 counts
        rows[row], texts[row] = whole, text
        is_equal[row] = np.array_equal(original[begin + 1 : sep], original[sep + 1 : end - 1])
        num_inside[row] = traits[original[begin + 1]] & STARTS_INSIDE
        if sep + 1 < end - 1:
            num_inside[row] += traits[original[sep + 1]] & STARTS_INSIDE
            # The later segment may follow a dash that ends the earlier one: then it begins a word.
            later, before = (begin + 1, end - 2) if is_swapped else (sep + 1, sep - 1)
            if traits[original[later]] & STARTS_INSIDE and traits[original[before]] & PARTS_WORDS:
                num_inside[row] -= 1
    return texts, rows, is_equal, num_inside, num_unknown, num_bytes


def sample_windows(
    ids: np.ndarray, offsets: np.ndarray, segment_a_len: np.ndarray, is_chosen: np.ndarray, limit: np.uint64
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The windows in a segment of a chosen row whose hash is at most `limit`: hash, row, position of the first token.

    The hash decides, so equal windows are all taken or all left out.
    """
    lens = np.where(is_chosen, np.diff(offsets), 0)
    places = np.flatnonzero(np.repeat(is_chosen, np.diff(offsets)))  # of all tokens of chosen rows
    rows, codes = np.repeat(np.arange(len(lens)), lens), ids[places].astype(np.uint64) + np.uint64(1)
    positions = (places - offsets[rows]).astype(np.int32)
    # [CLS], both [SEP], and a number more for the end: a window is in one segment if it holds none of them.
    is_special = (positions == 0) | (positions == 1 + segment_a_len[rows]) | (positions == lens[rows] - 1)
    num_specials = np.concatenate(([0], np.cumsum(is_special)))
    num_windows = max(len(codes) - WINDOW + 1, 0)
    is_inside = num_specials[WINDOW : WINDOW + num_windows] == num_specials[:num_windows]
    hashes: Any = np.zeros(num_windows, np.uint64)
    for i in range(WINDOW):  # a polynomial of the ids
        hashes = hashes * _BASE + codes[i : i + num_windows]
    hashes = mix(hashes)
    taken = np.flatnonzero(is_inside & (hashes <= limit))
    return hashes[taken], rows[taken], positions[taken]
