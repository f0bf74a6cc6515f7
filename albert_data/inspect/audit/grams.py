"""The grams of rows: hashes of consecutive tokens, as they were before masking, in the order of the document.

Text that is not in NFC has the tokens of its NFC, so that all forms of a text have equal grams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from albert_data.data import ExampleArrays, Examples
from albert_data.examples.pair_tasks import RANDOM_B, SWAPPED
from albert_data.inspect.audit.rows import Subject
from albert_data.kernels import U64, kernel
from albert_data.kernels.draws import mix
from albert_data.shards.decoding import find_byte_pieces
from albert_data.shards.rows import restore_ids
from albert_data.survey.shingles import find_unspaced
from albert_data.text.nfc import compose, may_change
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE

_BASE = U64(0x9E3779B97F4A7C15)  # of the polynomial that hashes a gram


class RowGrams(NamedTuple):
    """The grams of rows.

    hashes: uint64; offsets: int64 [rows + 1], where those of each row begin
    places: int32, the first token of each in its row's text, without [CLS] and [SEP]
    """

    hashes: np.ndarray
    offsets: np.ndarray
    places: np.ndarray


def read_grams(subject: Subject, batches: Iterable[Examples], gram_lens: tuple[int, int]) -> Iterator[RowGrams]:
    """The grams of each batch. gram_lens: their tokens, the second in rows mostly of scripts without spaces."""
    swapped, random = (subject.config.task.label_of(order) for order in (SWAPPED, RANDOM_B))
    pieces, is_letter = subject.tokenizer.piece_texts, find_unspaced()
    is_unspaced = np.array([any(is_letter[ord(letter)] for letter in piece) for piece in pieces])
    may_move = _find_moving(subject.tokenizer)
    for batch in batches:
        arrays, ids = _compose_rows(batch.arrays, restore_ids(batch), subject.tokenizer, may_move)
        yield RowGrams(*hash_grams(arrays, ids, swapped, random, gram_lens, is_unspaced))


def _find_moving(tokenizer: Tokenizer) -> np.ndarray:
    """Which pieces may be part of text that is not in NFC: bool; none if the tokenizer composes text itself."""
    composed, decomposed = (tokenizer.encode([text])[0].tolist() for text in ("\u00e9", "e\u0301"))
    if composed == decomposed:
        return np.zeros(tokenizer.vocab_size, bool)
    may_move = find_byte_pieces(tokenizer)
    may_move |= [may_change(piece) for piece in tokenizer.piece_texts]
    return may_move


def _compose_rows(
    batch: ExampleArrays, ids: np.ndarray, tokenizer: Tokenizer, may_move: np.ndarray
) -> tuple[ExampleArrays, np.ndarray]:
    """The same rows with the tokens of their text in NFC, as far as `hash_grams` reads them."""
    has_moving = np.logical_or.reduceat(may_move[ids], batch.offsets[:-1])
    if not has_moving.any():
        return batch, ids
    rows, lens_a = np.split(ids, batch.offsets[1:-1]), batch.segment_a_len.copy()
    for row in np.flatnonzero(has_moving):
        whole, sep = rows[row], 1 + lens_a[row]
        a, b = (_compose_ids(part, tokenizer) for part in (whole[1:sep], whole[sep + 1 : -1]))
        rows[row], lens_a[row] = np.concatenate([whole[:1], a, whole[sep : sep + 1], b, whole[sep + 1 :][-1:]]), len(a)
    offsets = np.append(0, np.cumsum([len(row) for row in rows]))
    return batch._replace(offsets=offsets, segment_a_len=lens_a), np.concatenate(rows).astype(ids.dtype)


def _compose_ids(ids: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    # Only a tokenizer without a prefix gives other ids without the space before the text, which decoding drops.
    has_space = not tokenizer.has_prefix and len(ids) and tokenizer.piece_texts[ids[0]].startswith(VISIBLE_SPACE)
    text = np.frombuffer((" " * has_space + tokenizer.decode(ids)).encode(), np.uint8)
    composed = compose(text)
    return ids if composed is text else tokenizer.encode([composed.tobytes().decode()])[0]


@kernel
def hash_grams(
    batch: ExampleArrays,
    original: np.ndarray,
    swapped: int,
    random: int,
    gram_lens: tuple[int, int],
    is_unspaced: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The fields of `RowGrams`. original: the ids before masking; swapped, random: labels of pairs.

    gram_lens: of most rows, and of those whose tokens are mostly of scripts without spaces, by `is_unspaced` (bool, of
    each piece). A gram may lie in both segments, except of a pair whose B is of another document.
    """
    num_rows, count = len(batch.sop_label), 0
    hashes, places = np.empty(len(original), np.uint64), np.empty(len(original), np.int32)
    offsets = np.zeros(num_rows + 1, np.int64)
    sums = np.zeros(len(original) + 1, np.uint64)  # of the row's text so far, as polynomials
    for row in range(num_rows):
        begin, end = batch.offsets[row], batch.offsets[row + 1]
        sep = begin + 1 + batch.segment_a_len[row]
        num_tokens, first_len, num_unspaced = 0, 0, 0
        for part in range(2):
            is_b = (part == 0) == (batch.sop_label[row] == swapped)
            for at in range(sep + 1 if is_b else begin + 1, end - 1 if is_b else sep):
                sums[num_tokens + 1] = sums[num_tokens] * _BASE + U64(original[at]) + U64(1)
                num_unspaced += is_unspaced[original[at]]
                num_tokens += 1
            first_len = num_tokens if part == 0 and batch.sop_label[row] == random else first_len
        gram_len = gram_lens[1] if 2 * num_unspaced > num_tokens else gram_lens[0]
        leaving = U64(1)  # the factor of what stands before a gram
        for _ in range(gram_len):
            leaving *= _BASE
        for at in range(num_tokens - gram_len + 1):
            if not first_len - gram_len < at < first_len:  # not in both
                hashes[count], places[count] = mix(sums[at + gram_len] - sums[at] * leaving), at
                count += 1
        offsets[row + 1] = count
    return hashes[:count], offsets, places[:count]
