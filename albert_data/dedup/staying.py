"""Which documents stay: the kernels that compare each with those that stayed before it.

Documents come in the order of their ranks, each with its buckets and shingles. A document is dropped if it is similar
to one that stayed and shares a bucket with it. A bucket holds the first 16 that stayed, so that time is linear however
many documents share a template: those that are similar to each other mostly meet in other buckets too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.kernels import I64, U64, helper, kernel

MOST_STAYING = 16  # of a bucket, with which others are compared
_FACTOR, _32 = U64(0x9E3779B97F4A7C15), U64(32)


class BucketedDocuments(NamedTuple):
    """Some documents, in the order of their ranks.

    bucket_offsets: int64 [N + 1], buckets: int64, the numbers of each document's buckets
    shingle_offsets: int64 [N + 1], shingles: uint32
    """

    bucket_offsets: np.ndarray
    buckets: np.ndarray
    shingle_offsets: np.ndarray
    shingles: np.ndarray


class Buckets(NamedTuple):
    """The documents that stayed, and the list of them that each bucket has.

    heads: int64 [buckets], the last entry of each plus 1; sizes: uint8 [buckets]
    before: int64 [entries], the entry before it in its bucket plus 1; stayed: int64 [entries], its document
    set_begins, set_counts: int64, of each document that stayed, its distinct shingles
    compared: int64, the document with which each was compared last
    counts: int64 [3], of entries, of documents that stayed, and of all documents so far
    """

    heads: np.ndarray
    sizes: np.ndarray
    before: np.ndarray
    stayed: np.ndarray
    set_begins: np.ndarray
    set_counts: np.ndarray
    compared: np.ndarray
    counts: np.ndarray

    @classmethod
    def empty(cls, num_buckets: int, num_entries: int) -> Buckets:
        before, stayed, set_begins, set_counts, compared = (np.zeros(num_entries, np.int64) for _ in range(5))
        return cls(
            heads=np.zeros(num_buckets, np.int64),
            sizes=np.zeros(num_buckets, np.uint8),
            before=before,
            stayed=stayed,
            set_begins=set_begins,
            set_counts=set_counts,
            compared=compared,
            counts=np.zeros(3, np.int64),
        )


class HashSet(NamedTuple):
    """The set of one document's shingles: values uint32, and stamps int64 that say whose a slot is."""

    values: np.ndarray
    stamps: np.ndarray

    @classmethod
    def empty(cls, num_values: int) -> HashSet:
        size = 1 << max(4, (2 * num_values).bit_length())
        return cls(np.zeros(size, np.uint32), np.zeros(size, np.int64))


@kernel
def choose_staying(
    documents: BucketedDocuments,
    buckets: Buckets,
    similarity: float,
    old_sets: np.ndarray,
    new_sets: np.ndarray,
    table: HashSet,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Decide for each document whether it stays, and enter those that do into their buckets.

    old_sets, new_sets: uint32, one after another the distinct shingles of all that stayed; new ones are added.
    Returns for each document the document to which it is similar, -1 if it stays (int64), and how similar (float64);
    then the length of what was added.
    """
    num_documents, counts = len(documents.bucket_offsets) - 1, buckets.counts
    similar_to, similarities = np.full(num_documents, I64(-1)), np.zeros(num_documents)
    num_new = 0
    for i in range(num_documents):
        shingles = documents.shingles[documents.shingle_offsets[i] : documents.shingle_offsets[i + 1]]
        mine = documents.buckets[documents.bucket_offsets[i] : documents.bucket_offsets[i + 1]]
        counts[2] += 1
        distinct = new_sets[num_new:]
        num_distinct = fill_table(table, counts[2], shingles, distinct)
        similar_to[i], similarities[i] = find_similar(
            mine, buckets, table, num_distinct, similarity, old_sets, new_sets
        )
        if similar_to[i] < 0:
            document = counts[1]
            buckets.set_begins[document], buckets.set_counts[document] = len(old_sets) + num_new, num_distinct
            num_new += num_distinct
            counts[1] += 1
            enter_buckets(mine, buckets, document)
    return similar_to, similarities, num_new


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
    mine: np.ndarray,
    buckets: Buckets,
    table: HashSet,
    num_distinct: int,
    similarity: float,
    old_sets: np.ndarray,
    new_sets: np.ndarray,
) -> tuple[int, float]:
    """The first document in these buckets to which the one in the table is similar, and how similar; -1 for none."""
    stamp = buckets.counts[2]
    for bucket in mine:
        entry = buckets.heads[bucket]
        while entry:
            document = buckets.stayed[entry - 1]
            entry = buckets.before[entry - 1]
            if buckets.compared[document] == stamp:
                continue
            buckets.compared[document] = stamp
            begin, count = buckets.set_begins[document], buckets.set_counts[document]
            # Two sets are at most as similar as the smaller is large beside the larger.
            if min(count, num_distinct) / max(count, num_distinct) < similarity:
                continue
            is_old = begin < len(old_sets)
            begin -= 0 if is_old else len(old_sets)
            shared = count_shared(table, stamp, (old_sets if is_old else new_sets)[begin : begin + count])
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
def enter_buckets(mine: np.ndarray, buckets: Buckets, document: int) -> None:
    """Add a document that stays to its buckets that are not full."""
    counts = buckets.counts
    for bucket in mine:
        if buckets.sizes[bucket] < MOST_STAYING:
            entry = counts[0]
            buckets.before[entry], buckets.stayed[entry] = buckets.heads[bucket], document
            buckets.heads[bucket] = entry + 1
            buckets.sizes[bucket] += 1
            counts[0] += 1
