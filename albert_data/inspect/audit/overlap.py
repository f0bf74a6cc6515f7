"""Rows of validation whose text was seen in training.

In: rows, and the document of each. Out: the rows of validation that were found. Training is streamed; of it, only the
row in which each gram of validation was seen last is kept. Grams are hashes of consecutive tokens, as they were before
masking, in the order of the document.

A row is seen if half of its 13-grams stand in training. Where a tenth of the words were changed, only a third of these
are left. But half of the 8-grams are, and in one document, while those of idioms and quotations are in many. So a row
is altered if a fifth of its 8-grams were seen last in one document. In a row mostly of scripts without spaces 5-grams
take their place, which hold about eight characters: a longer one would rarely have none that was changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from albert_data.data import ExampleArrays, Examples
from albert_data.examples.pair_tasks import RANDOM_B, SWAPPED
from albert_data.inspect.audit.rows import Subject, read_batches
from albert_data.kernels import U64, kernel
from albert_data.kernels.draws import mix
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.survey.gram_index import GramIndex, find_gram, index_grams, sort_grams
from albert_data.survey.shingles import find_unspaced

LONG, SHORT, SHORT_UNSPACED = 13, 8, 5  # tokens of a gram
SEEN_SHARE, ALTERED_SHARE = 0.5, 0.2
MIN_GRAMS = 12  # long ones: a row of under 24 tokens is not judged, as it may be one idiom
MAX_TOKENS = 4_000_000  # of validation, about; rows are shuffled, so its first ones are a random sample
_BASE = U64(0x9E3779B97F4A7C15)  # of the polynomial that hashes a gram


class Overlap(NamedTuple):
    """The rows of validation, arrays of one value a row."""

    is_judged: np.ndarray  # bool
    is_seen: np.ndarray  # bool
    is_altered: np.ndarray  # bool
    shares: np.ndarray  # float64, of the grams that say so
    training_rows: np.ndarray  # int64, a row of training that has most of them


def find_overlap(subject: Subject) -> Overlap:
    """Compare the rows of validation with those of training. subject: of both splits."""
    num_long, num_seen, *_ = _count_seen(subject, (LONG, LONG))
    num_short, _, most, training_rows = _count_seen(subject, (SHORT, SHORT_UNSPACED))
    is_judged = num_long >= MIN_GRAMS
    seen_shares, altered_shares = num_seen / np.maximum(num_long, 1), most / np.maximum(num_short, 1)
    is_seen = is_judged & (seen_shares >= SEEN_SHARE)
    is_altered = is_judged & ~is_seen & (altered_shares >= ALTERED_SHARE)
    return Overlap(is_judged, is_seen, is_altered, np.where(is_seen, seen_shares, altered_shares), training_rows)


def _count_seen(subject: Subject, gram_lens: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """What `count_seen` returns, for the rows of validation. gram_lens: see `read_grams`."""
    train, validation = subject.shards
    grams = [part.hashes.copy() for part in read_grams(subject, _take_first(validation), gram_lens)]
    index, row = index_grams(sort_grams(np.concatenate(grams))), 0
    last_rows = np.full(len(index.hashes), -1)
    for part in read_grams(subject, read_batches([train]), gram_lens):
        mark_seen(index, last_rows, part, row)
        row += len(part.offsets) - 1
    counts = [
        count_seen(index, last_rows, part, subject.owners)
        for part in read_grams(subject, _take_first(validation), gram_lens)
    ]
    return tuple(map(np.concatenate, zip(*counts, strict=True)))


def _take_first(shards: Shards) -> Iterator[Examples]:
    num_tokens = 0
    for batch in shards.batches():
        if num_tokens >= MAX_TOKENS:
            return
        yield batch
        num_tokens += len(batch.input_ids)


@kernel
def mark_seen(index: GramIndex, last_rows: np.ndarray, grams: RowGrams, first_row: int) -> None:
    """Enter the rows of training that have grams of validation. first_row: the number of the first.

    last_rows: int64, of each gram of the index, the last row that has it, -1 where none has.
    """
    for row in range(len(grams.offsets) - 1):
        for i in range(grams.offsets[row], grams.offsets[row + 1]):
            at = find_gram(index, grams.hashes[i])
            if at >= 0:
                last_rows[at] = first_row + row


@kernel
def count_seen(
    index: GramIndex, last_rows: np.ndarray, grams: RowGrams, owners: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """For each row of validation: its grams, those seen, the most seen last in one document, and a row of that.

    owners: int64, the document of each row of training. The row is -1 if no gram was seen.
    """
    num_rows = len(grams.offsets) - 1
    num_grams, num_seen = grams.offsets[1:] - grams.offsets[:-1], np.zeros(num_rows, np.int64)  # np.diff compiles long
    most, rows = np.zeros(num_rows, np.int64), np.full(num_rows, -1)
    for row in range(num_rows):
        found = np.empty(num_grams[row], np.int64)
        for i in range(num_grams[row]):
            at = find_gram(index, grams.hashes[grams.offsets[row] + i])
            if last_rows[at] >= 0:
                found[num_seen[row]] = last_rows[at]
                num_seen[row] += 1
        found = found[: num_seen[row]]
        found = found[np.argsort(owners[found])]
        count = 0
        for i in range(len(found)):
            count = count + 1 if i > 0 and owners[found[i]] == owners[found[i - 1]] else 1
            if count > most[row]:
                most[row], rows[row] = count, found[i]
    return num_grams, num_seen, most, rows


# ---- grams ----


class RowGrams(NamedTuple):
    """The grams of rows."""

    hashes: np.ndarray  # uint64
    offsets: np.ndarray  # int64 [rows + 1], where those of each row begin


def read_grams(subject: Subject, batches: Iterable[Examples], gram_lens: tuple[int, int]) -> Iterator[RowGrams]:
    """The grams of each batch. gram_lens: their tokens, the second in rows mostly of scripts without spaces."""
    swapped, random = (subject.config.task.label_of(order) for order in (SWAPPED, RANDOM_B))
    is_letter = find_unspaced()
    is_unspaced = np.array([any(is_letter[ord(one)] for one in piece) for piece in subject.tokenizer.piece_texts])
    for batch in batches:
        yield RowGrams(*hash_grams(batch.arrays, restore_ids(batch), swapped, random, gram_lens, is_unspaced))


@kernel
def hash_grams(
    batch: ExampleArrays,
    original: np.ndarray,
    swapped: int,
    random: int,
    gram_lens: tuple[int, int],
    is_unspaced: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The fields of `RowGrams`. original: the ids before masking; swapped, random: labels of pairs.

    gram_lens: of most rows, and of those whose tokens are mostly of scripts without spaces, by `is_unspaced` (bool, of
    each piece). A gram may lie in both segments, except of a pair whose B is of another document.
    """
    num_rows, count = len(batch.sop_label), 0
    hashes, offsets = np.empty(len(original), np.uint64), np.zeros(num_rows + 1, np.int64)
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
                hashes[count] = mix(sums[at + gram_len] - sums[at] * leaving)
                count += 1
        offsets[row + 1] = count
    return hashes[:count], offsets
