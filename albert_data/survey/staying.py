"""Which documents stay: the kernels that compare each with those that stayed before it.

A document is dropped if it is similar to one that stayed and shares a bucket with it. A bucket holds the first 16 that
stayed, so that time is linear however many share a template. A bucket of more documents is full; those in it meet by
their rare shingles too, which at most 16 of them hold. Two sets with a Jaccard similarity of t or more share one of the
first (1 - t) n + 1 elements of each, n being its size, in any one order (prefix filter: Chaudhuri, Ganti and Kaushik
2006), here rare shingles first. So two that meet in full buckets alone share no rare shingle, or are not similar.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from albert_data.kernels import I64, U64, helper, kernel

MOST_STAYING = 16  # of a bucket, with which others are compared
_FACTOR, _32 = U64(0x9E3779B97F4A7C15), U64(32)
_Sets = tuple[np.ndarray, np.ndarray]


class BucketedDocuments(NamedTuple):
    """Some documents, in the order in which they stay.

    numbers: uint64; num_common: int64, of the distinct shingles of each those that are not rare
    bucket_offsets: int64 [N + 1], buckets: int64, the numbers of each document's buckets
    shingle_offsets: int64 [N + 1], shingles: uint32
    """

    numbers: np.ndarray
    num_common: np.ndarray
    bucket_offsets: np.ndarray
    buckets: np.ndarray
    shingle_offsets: np.ndarray
    shingles: np.ndarray


class Buckets(NamedTuple):
    """The documents that stayed and entered a bucket, and the list of them that each bucket has.

    num_full: the full buckets come first
    heads: int64 [buckets], the last entry of each plus 1; sizes: uint8 [buckets]
    before: int64 [entries], the entry before it in its bucket plus 1; stayed: int64 [entries], its document
    documents: int64 [documents, 5]: number, `num_common`, begin and count of its distinct shingles, and the document
        with which it was compared last
    counts: int64 [4], of entries, of these documents, of all so far, and of those that stayed and met a bucket of 16
    """

    num_full: int
    heads: np.ndarray
    sizes: np.ndarray
    before: np.ndarray
    stayed: np.ndarray
    documents: np.ndarray
    counts: np.ndarray

    @classmethod
    def empty(cls, num_full: int, num_buckets: int, num_entries: int) -> Buckets:
        heads, before, stayed = (np.zeros(size, np.int64) for size in (num_buckets, num_entries, num_entries))
        sizes, documents = np.zeros(num_buckets, np.uint8), np.zeros((num_entries, 5), np.int64)
        return cls(num_full, heads, sizes, before, stayed, documents, counts=np.zeros(4, np.int64))


class HashSet(NamedTuple):
    """The set of one document's shingles: values uint32, and stamps int64 that say whose a slot is."""

    values: np.ndarray
    stamps: np.ndarray


@kernel
def list_shingles(
    shingles: np.ndarray, offsets: np.ndarray, numbers: np.ndarray, sizes: np.ndarray, known: np.ndarray
) -> np.ndarray:
    """The distinct shingles of documents, each with the document's number: uint64 [2, rows].

    Of a shingle that is not rare 17 rows suffice. sizes: uint32, is set to how many a document has, by its number.
    known: uint32 [2, slots], shingles seen lately and how often; zeros at first. Slots are a power of two.
    """
    rows, distinct, num_rows = np.empty((2, len(shingles)), U64), np.empty_like(shingles), 0
    table = make_table(offsets)
    for i in range(len(numbers)):
        sizes[numbers[i]] = fill_table(table, i + 1, shingles[offsets[i] : offsets[i + 1]], distinct)
        for value in distinct[: sizes[numbers[i]]]:
            slot = I64((U64(value) * _FACTOR) >> _32) & (known.shape[1] - 1)
            if known[1, slot] <= MOST_STAYING:
                known[1, slot] = known[1, slot] + 1 if known[0, slot] == value else 1
                known[0, slot] = value
            elif known[0, slot] == value:
                continue
            rows[0, num_rows], rows[1, num_rows] = value, numbers[i]
            num_rows += 1
    return rows[:, :num_rows]


@kernel
def choose_first(rows: np.ndarray, sizes: np.ndarray, num_rare: np.ndarray, similarity: float) -> np.ndarray:
    """Which rows of `list_shingles`, sorted, are of the first shingles of a document, rare and of several: bool.

    num_rare: uint32, counts the rare shingles of each document.
    """
    begin, is_first = 0, np.zeros(rows.shape[1], np.bool_)
    for end in range(1, rows.shape[1] + 1):
        if end == rows.shape[1] or rows[0, end] != rows[0, begin]:
            for at in range(begin, end if end - begin <= MOST_STAYING else begin):
                number = rows[1, at]
                num_rare[number] += 1
                is_first[at] = end - begin > 1 and num_rare[number] <= math.ceil((1 - similarity) * sizes[number]) + 1
            begin = end
    return is_first


@kernel
def choose_staying(
    documents: BucketedDocuments, buckets: Buckets, similarity: float, old_sets: np.ndarray, new_sets: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """Decide for each document whether it stays, and enter those that do into their buckets.

    old_sets, new_sets: uint32, one after another the distinct shingles of all in `buckets`; new ones are added.
    Returns for each document the one in `buckets` to which it is similar, -1 if it stays (int64), and how similar
    (float64); then the length of what was added.
    """
    num_documents, counts = len(documents.bucket_offsets) - 1, buckets.counts
    similar_to, similarities = np.full(num_documents, I64(-1)), np.zeros(num_documents)
    num_new, table = 0, make_table(documents.shingle_offsets)
    for i in range(num_documents):
        shingles = documents.shingles[documents.shingle_offsets[i] : documents.shingle_offsets[i + 1]]
        mine = documents.buckets[documents.bucket_offsets[i] : documents.bucket_offsets[i + 1]]
        counts[2] += 1
        num_distinct = fill_table(table, counts[2], shingles, new_sets[num_new:])
        sizes = num_distinct, documents.num_common[i]
        similar_to[i], similarities[i] = find_similar(mine, buckets, table, sizes, similarity, (old_sets, new_sets))
        if similar_to[i] < 0 and enter_buckets(mine, buckets):
            row = buckets.documents[counts[1]]
            row[0], row[1], row[2], row[3] = documents.numbers[i], sizes[1], len(old_sets) + num_new, num_distinct
            num_new += num_distinct
            counts[1] += 1
    return similar_to, similarities, num_new


@helper
def make_table(offsets: np.ndarray) -> HashSet:
    """A table for any one of some documents. offsets: of their shingles."""
    size = 16
    for i in range(len(offsets) - 1):
        while size < 2 * (offsets[i + 1] - offsets[i]):
            size *= 2
    return HashSet(np.zeros(size, np.uint32), np.zeros(size, np.int64))


@helper
def fill_table(table: HashSet, stamp: int, shingles: np.ndarray, distinct: np.ndarray) -> int:
    """Put shingles into the emptied table, write each once to `distinct`, and return how many there are."""
    count = 0
    for value in shingles:
        slot = find_slot(table, stamp, value)
        if table.stamps[slot] != stamp:
            table.stamps[slot], table.values[slot], distinct[count] = stamp, value, value
            count += 1
    return count


@helper
def find_slot(table: HashSet, stamp: int, value: np.uint32) -> int:
    """The slot that holds a value, or the empty one where it would be."""
    last = len(table.values) - 1
    slot: int = I64((U64(value) * _FACTOR) >> _32) & last
    while table.stamps[slot] == stamp and table.values[slot] != value:
        slot = (slot + 1) & last
    return slot


@helper
def find_similar(
    mine: np.ndarray, buckets: Buckets, table: HashSet, sizes: tuple[int, int], similarity: float, sets: _Sets
) -> tuple[int, float]:
    """The first document in these buckets to which the one in the table is similar, and how similar; -1 for none.

    sizes: of the one in the table the distinct shingles, and those that are not rare.
    """
    stamp, (num_distinct, num_common) = buckets.counts[2], sizes
    for bucket in mine[::-1]:  # the full ones last
        entry = buckets.heads[bucket]
        while entry:
            document = buckets.stayed[entry - 1]
            entry, other = buckets.before[entry - 1], buckets.documents[document]
            if other[4] == stamp:
                continue
            other[4] = stamp
            begin, count = other[2], other[3]
            most = min(other[1], num_common) if bucket < buckets.num_full else min(count, num_distinct)
            if most / (num_distinct + count - most) < similarity:
                continue
            is_old = begin < len(sets[0])
            begin -= 0 if is_old else len(sets[0])
            shared = count_shared(table, stamp, (sets[0] if is_old else sets[1])[begin : begin + count])
            found = shared / (num_distinct + count - shared)
            if found >= similarity:
                return document, found
    return -1, 0.0


@helper
def count_shared(table: HashSet, stamp: int, shingles: np.ndarray) -> int:
    """How many of some distinct shingles are in the table."""
    count = 0
    for value in shingles:
        count += table.stamps[find_slot(table, stamp, value)] == stamp
    return count


@helper
def enter_buckets(mine: np.ndarray, buckets: Buckets) -> bool:
    """Add the next document to its buckets that do not hold 16 yet. Returns whether there are any."""
    counts, num_entered = buckets.counts, 0
    for bucket in mine:
        if buckets.sizes[bucket] < MOST_STAYING:
            entry = counts[0]
            buckets.before[entry], buckets.stayed[entry] = buckets.heads[bucket], counts[1]
            buckets.heads[bucket] = entry + 1
            buckets.sizes[bucket] += 1
            counts[0] += 1
            num_entered += 1
    counts[3] += num_entered < len(mine)
    return num_entered > 0
