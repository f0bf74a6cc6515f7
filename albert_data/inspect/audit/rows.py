"""What the audit knows about all rows of a folder, gathered in one pass over the shards; windows take a second pass.

In: the splits that have rows. Out: a few numbers for each row, and its document; and all windows of a sample of
documents. A window is WINDOW consecutive tokens of a segment. Texts are compared by 64-bit hashes of the original ids,
rows by hashes of the masks too: among 10 million, the chance that two different ones are equal is 1 in 400,000.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from albert_data.data import ExampleArrays
from albert_data.draws import mix, threshold
from albert_data.inspect.decoding import find_byte_pieces
from albert_data.kernels import kernel
from albert_data.pair_tasks import SWAPPED
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.tokenizer.model import Tokenizer

WINDOW = 12
MAX_WINDOWS = 1_000_000  # the sample of windows; sorting them takes half a second
MIN_DOCUMENTS = 1_000  # so that 1 % of the sampled documents are ten
_SAMPLING = np.uint64(0xD1B54A32D192ED03)  # any constant: makes the order of the sample independent of the keys
_APOSTROPHES = ("'", "\u2019", "\u2581'")  # punctuation, yet inside a word
_STARTS_INSIDE, _IS_UNKNOWN, _PARTS_WORDS, _IS_BYTES = 1, 2, 4, 8


@dataclass(frozen=True, kw_only=True)
class RowFacts:
    """Arrays of one value a row.

    lens_a, lens_b: int32; labels: int8; keys, keys_b: uint64, of the documents of A and of B; num_unknown, num_bytes:
    int32, original ids that are <unk>, or a byte piece.
    texts: uint64, hash of the text in the order of the document, wherever the boundary between A and B is.
    rows: uint64, hash of the row with its masks.
    is_equal: bool, A is B; num_inside: int8, segments that begin inside a word.
    sources: uint16, 0 where rows have no sources.
    """

    lens_a: np.ndarray
    lens_b: np.ndarray
    labels: np.ndarray
    keys: np.ndarray
    keys_b: np.ndarray
    num_unknown: np.ndarray
    num_bytes: np.ndarray
    texts: np.ndarray
    rows: np.ndarray
    is_equal: np.ndarray
    num_inside: np.ndarray
    sources: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_text(self) -> np.ndarray:
        """Tokens without [CLS] and [SEP]: int32."""
        total: np.ndarray = self.lens_a + self.lens_b
        return total


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Sampled windows. hashes: uint64; rows: int64, of all splits; positions: int32, of the first token in the row."""

    hashes: np.ndarray
    rows: np.ndarray
    positions: np.ndarray

    def __len__(self) -> int:
        return len(self.hashes)


def join_facts(parts: Sequence[RowFacts]) -> RowFacts:
    """All rows of one or more parts."""
    return RowFacts(
        **{field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(RowFacts)}
    )


def gather_facts(shards: Shards, traits: np.ndarray) -> RowFacts:
    """The facts about every row of a split.

    traits: uint8 over the vocabulary, see make_traits. Raises ShardError at a row that leaves its bounds.
    """
    parts, swapped = [], shards.manifest.config.examples.task.label_of(SWAPPED)
    for batch in shards.batches():
        original = restore_ids(batch)
        lens_b = np.diff(batch.offsets) - batch.segment_a_len - np.where(batch.sop_label < 0, 2, 3)
        texts, rows, is_equal, num_inside, num_unknown, num_bytes = measure_rows(
            batch.arrays, original, traits, swapped
        )
        keys_b = batch.document_keys if batch.document_keys_b is None else batch.document_keys_b
        parts.append(
            RowFacts(
                lens_a=batch.segment_a_len.astype(np.int32),
                lens_b=np.maximum(lens_b, 0).astype(np.int32),
                labels=batch.sop_label.copy(),
                keys=batch.document_keys.copy(),
                keys_b=keys_b.copy(),
                num_unknown=num_unknown,
                num_bytes=num_bytes,
                texts=texts,
                rows=rows,
                is_equal=is_equal,
                num_inside=num_inside,
                sources=np.zeros(len(batch), np.uint16) if batch.sources is None else batch.sources.copy(),
            )
        )
    return join_facts(parts)


def choose_documents(keys: np.ndarray, lens: np.ndarray) -> tuple[np.ndarray, float]:
    """A sample of documents with about MAX_WINDOWS tokens, and the share of their windows to take, at most 1.

    lens: tokens of each document. Out: bool, for each. Where documents are long, at least MIN_DOCUMENTS are taken, or
    all, with a smaller share of their windows. A window's hash decides whether it is taken, so a header that documents
    share is taken from all of them or from none.
    """
    order = np.argsort(rank_documents(keys))
    sizes = np.cumsum(lens[order])
    count = max(int(np.searchsorted(sizes, MAX_WINDOWS, side="right")), min(MIN_DOCUMENTS, len(keys)))
    is_chosen = np.zeros(len(keys), np.bool_)
    is_chosen[order[:count]] = True
    return is_chosen, min(1.0, MAX_WINDOWS / max(float(sizes[count - 1]), 1.0))


def gather_windows(opened: Sequence[Shards], is_chosen: np.ndarray, share: float) -> Windows:
    """A share of the windows of the chosen rows. is_chosen: bool, for each row of all splits, one after another."""
    parts, row = [], 0
    for batch in (batch for shards in opened for batch in shards.batches()):
        chosen = is_chosen[row : row + len(batch)]
        if chosen.any():
            ids = restore_ids(batch)
            hashes, rows, positions = sample_windows(ids, batch.offsets, batch.segment_a_len, chosen, threshold(share))
            # Copies, because slices would keep the buffers alive, which are much larger.
            parts.append((hashes.copy(), rows + row, positions.copy()))
        row += len(batch)
    hashes, rows, positions = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Windows(hashes=hashes, rows=rows, positions=positions)


def make_traits(
    starts_inside: np.ndarray, is_unknown: np.ndarray, parts_words: np.ndarray, is_bytes: np.ndarray
) -> np.ndarray:
    """Traits of pieces, uint8 over the vocabulary.

    starts_inside: a segment that begins with such a piece begins inside a word, except after a piece that parts words;
    is_unknown: stands for text that is lost; parts_words: a word begins after it, such as a dash; is_bytes: is a part
    of a character.
    """
    traits: np.ndarray = starts_inside * _STARTS_INSIDE + is_unknown * _IS_UNKNOWN + parts_words * _PARTS_WORDS
    traits += is_bytes * _IS_BYTES
    return traits.astype(np.uint8)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """All rows and documents of a folder. facts: of all splits, one after another.

    begins: the first row of each split, and last the number of all rows; documents: uint64, all keys, sorted; owners:
    int64, the index of each row's document in these; has_prefix: whether the tokenizer puts a space before each text.
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
        """The sum of `values`, one for each row, over the rows of each document: float64."""
        summed: np.ndarray = np.bincount(self.owners, values, len(self.documents))
        return summed


def gather_subject(opened: list[Shards]) -> Subject:
    """Gather the facts about every row of these splits. Raises ShardError at a row that leaves its bounds."""
    tokenizer = opened[0].tokenizer
    # The words of language, also where the build masks single pieces.
    words, pieces = tokenizer.word_rule(), tokenizer.piece_texts
    is_bytes, is_unknown = find_byte_pieces(tokenizer), np.arange(len(pieces)) == tokenizer.unk_id
    starts_inside = ~((words.starts > 0) | tokenizer.specials.is_special | is_unknown | is_bytes)
    is_apostrophe = np.array([piece in _APOSTROPHES for piece in pieces])
    traits = make_traits(starts_inside, is_unknown, (words.standalone > 0) & ~is_apostrophe, is_bytes)
    parts = [gather_facts(shards, traits) for shards in opened]
    begins = np.cumsum([0, *map(len, parts)]).tolist()
    facts = join_facts(parts)
    documents, owners = np.unique(facts.keys, return_inverse=True)
    return Subject(
        shards=opened, begins=begins, facts=facts, documents=documents, owners=owners, has_prefix=tokenizer.has_prefix
    )


@kernel
def measure_rows(
    batch: ExampleArrays, original: np.ndarray, traits: np.ndarray, swapped: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """RowFacts.texts, rows, is_equal, num_inside, num_unknown and num_bytes.

    original: the ids before masking; swapped: the label of swapped pairs.
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
            num_unknown[row] += (traits[original[at]] & _IS_UNKNOWN) > 0
            num_bytes[row] += (traits[original[at]] & _IS_BYTES) > 0
        is_swapped = batch.sop_label[row] == swapped
        text = np.uint64(0)
        for part in range(2):
            first, last = (sep + 1, end - 1) if (part == 0) == is_swapped else (begin + 1, sep)
            for at in range(first, last):
                text = mix(text + np.uint64(1) + np.uint64(original[at]))  # mix(0) is 0: so that an id of 0 counts
        rows[row], texts[row] = whole, text
        is_equal[row] = end - 1 - (sep + 1) == sep - (begin + 1)  # equal lengths; then token by token
        for at in range(begin + 1, sep):
            if not is_equal[row]:
                break
            is_equal[row] = original[at] == original[at + sep - begin]
        num_inside[row] = traits[original[begin + 1]] & _STARTS_INSIDE
        if sep + 1 < end - 1:
            num_inside[row] += traits[original[sep + 1]] & _STARTS_INSIDE
            # The later segment may follow a dash that ends the earlier one: then it begins a word.
            later, before = (begin + 1, end - 2) if is_swapped else (sep + 1, sep - 1)
            if traits[original[later]] & _STARTS_INSIDE and traits[original[before]] & _PARTS_WORDS:
                num_inside[row] -= 1
    return texts, rows, is_equal, num_inside, num_unknown, num_bytes


@kernel
def rank_documents(keys: np.ndarray) -> np.ndarray:
    """A random number for each document, drawn from its key alone: uint64. The lowest are sampled first."""
    ranks = np.empty(len(keys), np.uint64)
    for i in range(len(keys)):
        ranks[i] = mix(keys[i] ^ _SAMPLING)
    return ranks


@kernel
def sample_windows(
    ids: np.ndarray, offsets: np.ndarray, segment_a_len: np.ndarray, is_chosen: np.ndarray, limit: np.uint64
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The windows in a segment of a chosen row whose hash is at most `limit`: hash, row, position of the first token.

    The hash decides, so equal windows are all taken or all left out.
    """
    # A rolling hash, a polynomial of the ids: each step multiplies by the base, adds the id that enters the window and
    # subtracts the one that leaves it, times base ** WINDOW.
    base, leaving = np.uint64(0x9E3779B97F4A7C15), np.uint64(1)
    for _ in range(WINDOW):
        leaving *= base
    capacity = 0
    for row in range(len(segment_a_len)):
        if is_chosen[row]:
            capacity += offsets[row + 1] - offsets[row]
    hashes, rows, positions = np.empty(capacity, np.uint64), np.empty(capacity, np.int64), np.empty(capacity, np.int32)
    count = 0
    for row in range(len(segment_a_len)):
        if not is_chosen[row]:
            continue
        begin, end = offsets[row], offsets[row + 1]
        sep = begin + 1 + segment_a_len[row]
        rolling, filled = np.uint64(0), 0  # filled: tokens in the window, up to WINDOW
        for at in range(begin + 1, end - 1):
            if at == sep:
                rolling, filled = np.uint64(0), 0
                continue
            rolling = rolling * base + np.uint64(ids[at]) + np.uint64(1)  # + 1, so that an id of 0 counts
            if filled == WINDOW:
                rolling -= leaving * (np.uint64(ids[at - WINDOW]) + np.uint64(1))
            else:
                filled += 1
            if filled == WINDOW:
                mixed = mix(rolling)
                if mixed <= limit:
                    hashes[count], rows[count], positions[count] = mixed, row, at - WINDOW + 1 - begin
                    count += 1
    return hashes[:count], rows[:count], positions[:count]
