"""Find near-duplicates: documents similar to one that stays.

In: the parts that map tasks wrote (parts.py). Out: the keys of the documents to drop, in a file. Of similar documents
that of the first source stays, then the longest, then the one with the least key; so a document is dropped only if it
is similar to one that stays, and the result depends on the set of documents alone.

1. All bands are merged by their hashes: documents with an equal hash form a bucket. Copies of a text are one document.
2. Buckets with the same documents become one: two similar documents mostly share many.
3. Documents in buckets are read in the order of their ranks, and compared exactly with those that stayed (staying.py).

Steps 1 and 2 sort on the disk. What is held for step 3 is a few numbers for each document in a bucket that stays.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

import numpy as np

from albert_data.dedup.parts import SHINGLE_BYTES, ShingleReader, SignedPart, map_documents
from albert_data.dedup.shingles import hash_shingles
from albert_data.dedup.signatures import Bands, make_signatures
from albert_data.dedup.sorted_columns import (
    ROWS_AT_ONCE,
    SortedFile,
    find_changes,
    find_keys,
    map_u64,
    merge_columns,
    sort_columns,
    write_columns,
    write_u64,
)
from albert_data.dedup.staying import BucketedDocuments, Buckets, HashSet, choose_staying

NUM_EXAMPLES = 20
_BATCH_SHINGLES = 4 << 20
_DROPPED = "near-duplicates.keys"
# A place is the number of a part, then that of a document in it.
_NUMBER_BITS, _NUMBER_MASK = np.uint64(32), np.uint64(2**32 - 1)


class SimilarPair(NamedTuple):
    """Two documents by their keys, and their similarity."""

    dropped: int
    kept: int
    similarity: float


@dataclass(kw_only=True)
class NearDuplicates:
    """What was found.

    file: in the folder of the parts, the keys of all documents to drop, ascending; None if there are none
    digest: the sum of these keys modulo 2**64, of one key for each language
    documents, tokens: by source code
    examples: those with the least keys
    """

    file: str | None = None
    digest: int = 0
    documents: Counter[int] = field(default_factory=Counter)
    tokens: Counter[int] = field(default_factory=Counter)
    examples: list[SimilarPair] = field(default_factory=list)


class _Columns:
    """Rows that are sorted on the disk."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._held: list[np.ndarray] = []
        self._files: list[SortedFile] = []
        self.num_rows = 0

    def add(self, columns: np.ndarray) -> None:
        """columns: uint64 [columns, rows]."""
        self._held.append(columns)
        self.num_rows += columns.shape[1]
        if sum(part.shape[1] for part in self._held) >= ROWS_AT_ONCE:
            self._write()

    def take(self) -> Iterator[np.ndarray]:
        """All rows, sorted, in blocks; see `merge_columns`. The files are removed."""
        if self._held:
            self._write()
        for columns in merge_columns(self._folder, self._files):
            yield columns[:-1]
        for file in self._files:
            (self._folder / file.name).unlink()

    def _write(self) -> None:
        name = f"{self._name}-{len(self._files):04d}.scratch"
        self._files.append(write_columns(self._folder, name, np.concatenate(self._held, axis=1)))
        self._held.clear()


def find_near_duplicates(folder: Path, parts: Sequence[SignedPart], similarity: float, scratch: Path) -> NearDuplicates:
    """Find the documents that are similar to one that stays, and write their keys to a file in `folder`.

    scratch: a folder on a disk of this machine.
    """
    by_bucket, by_rank, dropped = (_Columns(scratch, name) for name in ("by-bucket", "by-rank", "dropped"))
    for rows in _find_buckets(folder, parts):
        by_bucket.add(rows)
    num_buckets = 0
    for rows in by_bucket.take():
        joined, count = _join_equal(rows, num_buckets)
        by_rank.add(joined)
        num_buckets += count
    found = NearDuplicates()
    with TemporaryFile(dir=scratch) as sets:
        comparing = _Comparing(folder, parts, similarity, Buckets.empty(num_buckets, by_rank.num_rows), sets)
        for rows in by_rank.take():
            for keys in comparing.compare(rows, found):
                dropped.add(keys[None])
    path = write_u64(folder / _DROPPED, (keys for (keys,) in dropped.take()))
    if path is not None:
        found.file = path.name
        _count(found, folder, parts, map_u64(path), scratch)
    return found


def _count(
    found: NearDuplicates, folder: Path, parts: Sequence[SignedPart], dropped: np.ndarray, scratch: Path
) -> None:
    """Count the documents to drop by their keys. What is left of copies counts: in the first source, one a language."""
    columns = _Columns(scratch, "counted")
    for part in parts:
        documents = map_documents(folder, part)
        is_dropped, _ = find_keys(documents.keys, dropped)
        kept = documents.keys, documents.ranks, documents.source_codes, documents.tokens
        columns.add(np.stack([column[is_dropped] for column in kept]))
    for rows in columns.take():
        begins = np.flatnonzero(find_changes(rows[:1]))
        is_first = rows[1] == np.repeat(rows[1, begins], np.diff(begins, append=rows.shape[1]))
        keys, _, codes, tokens = rows[:, find_changes(rows) & is_first]
        found.digest = (found.digest + int(keys.sum(dtype=np.uint64))) % 2**64
        for code, num_tokens in zip(codes.tolist(), tokens.tolist(), strict=True):
            found.documents[code] += 1
            found.tokens[code] += num_tokens


def _find_buckets(folder: Path, parts: Sequence[SignedPart]) -> Iterator[np.ndarray]:
    """Yield the rows of buckets with several documents.

    A row has a hash of the bucket's documents, and rank, key and place of one of them.
    """
    for hashes, numbers, at in merge_columns(folder, [part.bands for part in parts]):
        is_shared = _find_shared(hashes)
        places = at[is_shared] << _NUMBER_BITS | numbers[is_shared]
        keys, ranks, codes = (np.empty_like(places) for _ in range(3))
        for part, rows, inside in _divide_places(places):
            documents = map_documents(folder, parts[part])
            keys[rows], ranks[rows] = documents.keys[inside], documents.ranks[inside]
            codes[rows] = documents.source_codes[inside]
        # Of copies of a text, the first one counts.
        rows = sort_columns(np.stack([hashes[is_shared], keys, ranks, codes, places]))
        rows = rows[:, find_changes(rows[:2])]
        hashes, keys, ranks, _, places = rows[:, _find_shared(rows[0])]
        if len(keys):
            begins = np.flatnonzero(find_changes(hashes[None]))
            sums = np.repeat(np.add.reduceat(keys, begins), np.diff(begins, append=len(keys)))
            yield np.stack([sums, ranks, keys, places])


def _join_equal(rows: np.ndarray, num_before: int) -> tuple[np.ndarray, int]:
    """Number the buckets from `num_before` on, and those of the same documents alike.

    rows: as `_find_buckets` yields them, sorted. Returns rank, key, bucket and place of each row, and how many buckets
    there are.
    """
    sums, ranks, keys, places = rows[:, find_changes(rows[:3])]
    numbers = np.cumsum(find_changes(sums[None])).astype(np.uint64)
    return np.stack([ranks, keys, numbers + np.uint64(num_before) - np.uint64(1), places]), int(numbers[-1])


def _find_shared(values: np.ndarray) -> np.ndarray:
    """Which of some sorted values occur several times: bool."""
    is_tie = values[1:] == values[:-1]
    shared: np.ndarray = (np.append(is_tie, False) | np.append(False, is_tie))[: len(values)]
    return shared


def _divide_places(places: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """For each part: its number, which of the places are in it, and the numbers of their documents there (int64)."""
    order = np.argsort(places, kind="stable")
    parts, numbers = places[order] >> _NUMBER_BITS, (places[order] & _NUMBER_MASK).astype(np.int64)
    begins = np.flatnonzero(find_changes(parts[None])).tolist()
    for begin, end in pairwise([*begins, len(places)]):
        yield int(parts[begin]), order[begin:end], numbers[begin:end]


class _Located(NamedTuple):
    """Documents in the order of their ranks: uint64 each, see `SignedDocuments`."""

    keys: np.ndarray
    places: np.ndarray
    begins: np.ndarray
    counts: np.ndarray


class _Comparing:
    """Compares documents with those that stayed. sets: a file for the shingles of the latter."""

    def __init__(
        self, folder: Path, parts: Sequence[SignedPart], similarity: float, buckets: Buckets, sets: IO[bytes]
    ) -> None:
        self._folder, self._parts, self._similarity = folder, parts, similarity
        self._reader = ShingleReader(folder, parts)
        self._buckets, self._sets, self._table = buckets, sets, HashSet.empty(0)
        self._kept_keys = np.zeros(len(buckets.stayed), np.uint64)  # of each document that stayed

    def compare(self, rows: np.ndarray, found: NearDuplicates) -> Iterator[np.ndarray]:
        """Add what is dropped to `found`, and yield its keys. rows: as `_join_equal` returns them, sorted."""
        begins = np.flatnonzero(find_changes(rows[:2]))
        bounds, buckets = np.append(begins, rows.shape[1]), rows[2].astype(np.int64)
        documents = self._find_documents(rows[:, begins])
        for first, end in _make_batches(documents.counts):
            some = _Located(*(column[first:end] for column in documents))
            parts = (some.places >> _NUMBER_BITS).astype(np.int64)
            shingles, shingle_offsets = self._reader.read(parts, some.begins, some.counts.astype(np.int64))
            at = bounds[first : end + 1]
            bucketed = BucketedDocuments(at - at[0], buckets[at[0] : at[-1]], shingle_offsets, shingles)
            similar_to, similarities = self._decide(bucketed)
            is_dropped = similar_to >= 0
            staying, dropped = some.keys[~is_dropped], some.keys[is_dropped]
            self._kept_keys[self._buckets.counts[1] - len(staying) : self._buckets.counts[1]] = staying
            columns = dropped, self._kept_keys[similar_to[is_dropped]], similarities[is_dropped]
            least = np.argsort(dropped)[:NUM_EXAMPLES]
            pairs = map(SimilarPair, *(column[least].tolist() for column in columns))
            found.examples = heapq.nsmallest(NUM_EXAMPLES, [*found.examples, *pairs])
            yield dropped

    def _decide(self, documents: BucketedDocuments) -> tuple[np.ndarray, np.ndarray]:
        """See `choose_staying`."""
        if len(self._table.values) < 2 * (most := int(np.diff(documents.shingle_offsets).max())):
            self._table = HashSet.empty(most)
        num_old = self._sets.tell() // SHINGLE_BYTES
        self._sets.flush()
        old = np.memmap(self._sets, np.uint32, "c", shape=(num_old,)) if num_old else np.zeros(0, np.uint32)
        new = np.empty(len(documents.shingles), np.uint32)
        similar_to, similarities, num_new = choose_staying(
            documents, self._buckets, self._similarity, old, new, self._table
        )
        self._sets.write(new[:num_new].data)
        return similar_to, similarities

    def _find_documents(self, rows: np.ndarray) -> _Located:
        """rows: one of each document."""
        _, keys, _, places = rows
        begins, counts = np.empty_like(places), np.empty_like(places)
        for part, at, inside in _divide_places(places):
            documents = map_documents(self._folder, self._parts[part])
            begins[at], counts[at] = documents.begins[inside], documents.counts[inside]
        return _Located(keys, places, begins, counts)


def _make_batches(counts: np.ndarray) -> Iterator[tuple[int, int]]:
    """Bounds of batches of documents with about as many shingles. counts: uint64, of each."""
    batches = np.cumsum(counts) // np.uint64(_BATCH_SHINGLES)
    yield from pairwise([0, *(np.flatnonzero(np.diff(batches)) + 1).tolist(), len(counts)])


def compile_comparing() -> None:
    """Compile the kernels that are needed to find near-duplicates."""
    shingles, offsets = hash_shingles(np.frombuffer("a \u4e00\n".encode(), np.uint8), np.array([0, 6]))
    make_signatures(shingles, offsets, Bands(1, 1))
    documents = BucketedDocuments(np.array([0, 1]), np.zeros(1, np.int64), offsets, shingles)
    sets = np.zeros(0, np.uint32), np.zeros(len(shingles), np.uint32)
    choose_staying(documents, Buckets.empty(1, 1), 1.0, *sets, HashSet.empty(2))
