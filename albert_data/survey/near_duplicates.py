"""Find near-duplicates: documents similar to one that stays.

In: the parts that map tasks wrote (parts.py). Out: the keys of the documents to drop, in a file. Of similar documents
that of the first source stays, then the longest, then the one with the least key; so a document is dropped only if it
is similar to one that stays, and the result depends on the set of documents alone.

1. All bands are merged by their hashes: documents with an equal hash form a bucket. Copies of a text are one document.
2. Documents in full buckets, those of more than 16, also form buckets by their rare shingles (staying.py).
3. Other buckets with the same documents become one: two similar documents mostly share many.
4. Documents in buckets are read in the order in which they stay, and compared exactly with those that stayed.

All steps sort on the disk. What is held is a few numbers for each document that enters a bucket (staying.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np

from albert_data.survey.parts import SHINGLE_BYTES, ShingleReader, SignedPart, copy_ranges
from albert_data.survey.shingles import hash_shingles
from albert_data.survey.signatures import Bands, make_signatures
from albert_data.survey.sorted_columns import (
    ROWS_AT_ONCE,
    SortedFile,
    find_changes,
    find_keys,
    find_shared,
    map_columns,
    map_u64,
    merge_columns,
    rank_inside,
    write_columns,
    write_u64,
)
from albert_data.survey.staying import (
    MOST_STAYING,
    BucketedDocuments,
    Buckets,
    choose_first,
    choose_staying,
    list_shingles,
)

_NUM_PAIRS = 20
_BATCH_SHINGLES = 4 << 20
_DROPPED = "near-duplicates.keys"


@dataclass(kw_only=True)
class NearDuplicates:
    """What was found.

    file: in the folder of the parts, the keys of all documents to drop, ascending; None if there are none
    digest: the sum of these keys modulo 2**64, of one key for each language
    documents, tokens: by source code
    num_partly_compared: see `NearDuplicateEntry`
    pairs: those with the least keys: of the one to drop, of the one that stays, and their similarity
    """

    file: str | None = None
    digest: int = 0
    documents: Counter[int] = field(default_factory=Counter)
    tokens: Counter[int] = field(default_factory=Counter)
    num_partly_compared: int = 0
    pairs: list[tuple[int, int, float]] = field(default_factory=list)


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

    def take(self, thin_out: Callable[[np.ndarray], np.ndarray] | None = None) -> Iterator[np.ndarray]:
        """All rows, sorted, in blocks; see `merge_columns`. The files are removed."""
        if self._held:
            self._write()
        yield from merge_columns(self._folder, self._files, thin_out=thin_out, numbered=False)
        for file in self._files:
            (self._folder / file.name).unlink()

    def _write(self) -> None:
        name = f"{self._name}-{len(self._files):04d}.scratch"
        self._files.append(write_columns(self._folder, name, np.concatenate(self._held, axis=1)))
        self._held.clear()


class _Corpus:
    """The distinct documents of all parts, numbered from 1 on in the order in which they stay.

    keys: by these numbers; full: the hashes of full buckets, ascending
    sizes, num_rare: uint32, of each document in full buckets the distinct shingles, and those that are rare
    """

    def __init__(self, folder: Path, parts: Sequence[SignedPart], scratch: Path) -> None:
        self._folder, self._parts, self._scratch = folder, parts, scratch
        self._reader, self.full = ShingleReader(folder, parts), np.zeros(0, np.uint64)
        self._offsets = np.cumsum([0, *(part.num_documents for part in parts)], dtype=np.uint64)
        most = int(self._offsets[-1]) + 1
        assert most < 2**32, "numbers have 32 bits"
        # The number of each document of the parts, 0 for a copy; by these numbers rank, key, place in the parts, begin
        # and count of shingles.
        with TemporaryFile(dir=scratch) as numbers, TemporaryFile(dir=scratch) as columns:
            self._numbers, self.sizes, self.num_rare = np.memmap(numbers, np.uint32, "w+", shape=(3, most))
            self._columns = np.memmap(columns, np.uint64, "w+", shape=(5, most))
        self.keys, by_rank, first = self._columns[1], _Columns(scratch, "by-rank"), 1
        for rows in merge_columns(folder, [part.documents for part in parts]):
            keys, ranks, _, _, begins, counts, places = rows[:, find_changes(rows[:1])]
            by_rank.add(np.stack([ranks, keys, places, begins, counts]))
        for rows in by_rank.take():
            end = first + rows.shape[1]
            self._columns[:, first:end], self._numbers[rows[2]] = rows, np.arange(first, end)
            first = end

    def read(self, numbers: np.ndarray) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
        """Yield the bounds of some of the documents, their shingles, and the offsets of these."""
        places, begins, counts = self._columns[2:, numbers].astype(np.int64)
        parts = np.searchsorted(self._offsets, places, "right") - 1
        firsts = np.flatnonzero(np.diff(np.cumsum(counts) // _BATCH_SHINGLES, prepend=-1))
        for first, end in pairwise([*firsts.tolist(), len(numbers)]):
            yield first, end, *self._reader.read(parts[first:end], begins[first:end], counts[first:end])

    def merge_bands(self) -> Iterator[np.ndarray]:
        """Yield the rows of all buckets that are not full, see `_name_buckets`."""
        files, full = [part.bands for part in self._parts], list[np.ndarray]()
        for rows in merge_columns(self._folder, files, thin_out=self._thin_out, ties=False):
            rows = self._thin_out(rows[:, find_shared(rows[0])])
            full.append(rows[0, rank_inside(rows[0]) == MOST_STAYING])
            rows = rows[:, ~np.isin(rows[0], full[-1])]
            yield self._name_buckets(rows[0], self._find_numbers(rows))
        self.full = np.concatenate([*full, self.full])

    def _thin_out(self, rows: np.ndarray) -> np.ndarray:
        """Without copies, and of each hash 17. rows: hash of a band, document of a part, number of the row."""
        rows = rows[:, self._find_numbers(rows) > 0]
        return rows[:, rank_inside(rows[0]) <= MOST_STAYING]

    def _find_numbers(self, rows: np.ndarray) -> np.ndarray:
        parts = np.searchsorted(self._offsets * np.uint64(self._parts[0].num_bands), rows[2], "right") - 1
        return np.asarray(self._numbers[self._offsets[parts] + rows[1]])

    def _name_buckets(self, hashes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The sum of all keys, and the number of each document, of buckets of several. hashes: sorted."""
        is_shared = find_shared(hashes)
        hashes, numbers = hashes[is_shared], numbers[is_shared]
        begins = np.flatnonzero(find_changes(hashes[None]))
        sums = np.add.reduceat(self.keys[numbers], begins) if len(begins) else hashes
        return np.stack([np.repeat(sums, np.diff(begins, append=len(hashes))), numbers])

    def list_full(self) -> Iterator[np.ndarray]:
        """Yield the number of each document in full buckets, and the bucket: that of its hash in `full`."""
        for part, offset in zip(self._parts if len(self.full) else (), self._offsets, strict=False):
            hashes, inside = map_columns(self._folder, part.bands)
            is_full, buckets = find_keys(hashes, self.full)
            rows = np.stack([self._numbers[offset + inside[is_full]], buckets[is_full].astype(np.uint64)])
            rows = rows[:, rows[0] > 0]
            self.sizes[rows[0]] = 1  # until they are counted
            yield rows

    def merge_rare(self, similarity: float) -> Iterator[np.ndarray]:
        """Yield the rows of buckets by rare shingles, see `_name_buckets`."""
        by_shingle, known = _Columns(self._scratch, "by-shingle"), np.zeros((2, 1 << 18), np.uint32)
        for begin, end in pairwise(self._offsets.tolist()):
            numbers = self._numbers[begin:end]
            numbers = numbers[self.sizes[numbers] > 0]
            numbers = numbers[np.argsort(self._columns[3, numbers])]  # as they lie on the disk
            for first, last, shingles, offsets in self.read(numbers):
                by_shingle.add(list_shingles(shingles, offsets, numbers[first:last], self.sizes, known))
        for rows in by_shingle.take(lambda rows: rows[:, rank_inside(rows[0]) <= MOST_STAYING]):
            yield self._name_buckets(*rows[:, choose_first(rows, self.sizes, self.num_rare, similarity)])


def find_near_duplicates(folder: Path, parts: Sequence[SignedPart], similarity: float, scratch: Path) -> NearDuplicates:
    """Find the documents that are similar to one that stays, and write their keys to a file in `folder`.

    scratch: a folder on a disk of this machine.
    """
    by_bucket, by_number, dropped = (_Columns(scratch, name) for name in ("by-bucket", "by-number", "dropped"))
    found, corpus = NearDuplicates(), _Corpus(folder, parts, scratch)
    for rows in corpus.merge_bands():
        by_bucket.add(rows)
    for rows in corpus.list_full():
        by_number.add(rows)
    for rows in corpus.merge_rare(similarity):
        by_bucket.add(rows)
    num_buckets = len(corpus.full)
    for rows in by_bucket.take():
        sums, numbers = rows[:, find_changes(rows)]
        places = np.cumsum(find_changes(sums[None])) + num_buckets - 1
        by_number.add(np.stack([numbers, places.astype(np.uint64)]))
        num_buckets = int(places[-1]) + 1
    with TemporaryFile(dir=scratch) as sets:
        buckets = Buckets.empty(len(corpus.full), num_buckets, by_number.num_rows)
        for rows in by_number.take():
            for pairs in _compare(rows, corpus, buckets, similarity, sets):
                dropped.add(pairs)
    found.num_partly_compared = int(buckets.counts[3])
    path = write_u64(folder / _DROPPED, _keep_pairs(dropped.take(), found))
    if path is not None:
        found.file = path.name
        _count(found, folder, parts, map_u64(path))
    return found


def _keep_pairs(blocks: Iterator[np.ndarray], found: NearDuplicates) -> Iterator[np.ndarray]:
    """Yield the keys to drop. blocks: sorted, such a key, that of the document that stays, and how similar in bits."""
    for dropped, kept, bits in blocks:
        columns = (
            column[: _NUM_PAIRS - len(found.pairs)].tolist() for column in (dropped, kept, bits.view(np.float64))
        )
        found.pairs += zip(*columns, strict=True)
        yield dropped


def _count(found: NearDuplicates, folder: Path, parts: Sequence[SignedPart], dropped: np.ndarray) -> None:
    """Count the documents to drop by their keys. What is left of copies counts: in the first source, one a language."""
    for rows in merge_columns(folder, [part.documents for part in parts]):
        rows = rows[:, find_keys(rows[0], dropped)[0]]
        begins = np.flatnonzero(find_changes(rows[:1]))
        is_first = rows[1] == np.repeat(rows[1, begins], np.diff(begins, append=rows.shape[1]))
        keys, _, codes, tokens = rows[:4, find_changes(rows[:3]) & is_first]
        found.digest = (found.digest + int(keys.sum(dtype=np.uint64))) % 2**64
        for code, num_tokens in zip(codes.tolist(), tokens.tolist(), strict=True):
            found.documents[code] += 1
            found.tokens[code] += num_tokens


def _compare(
    rows: np.ndarray, corpus: _Corpus, buckets: Buckets, similarity: float, sets: IO[bytes]
) -> Iterator[np.ndarray]:
    """Compare documents with those that stayed, and yield pairs, see `_keep_pairs`.

    rows: number of a document, and of a bucket, sorted; sets: a file for the shingles of those that stayed.
    """
    sizes = corpus.sizes[rows[0]].astype(np.int64)
    common = sizes - corpus.num_rare[rows[0]]
    matters = (rows[1] >= np.uint64(buckets.num_full)) | (common / np.maximum(sizes, 1) >= similarity)
    rows, common = rows[:, matters], common[matters]
    begins = np.flatnonzero(find_changes(rows[:1]))
    bounds, numbers, mine = np.append(begins, rows.shape[1]), rows[0, begins], rows[1].astype(np.int64)
    for first, end, shingles, shingle_offsets in corpus.read(numbers):
        at, some = bounds[first : end + 1], numbers[first:end]
        documents = BucketedDocuments(
            some, common[at[:-1]], at - at[0], mine[at[0] : at[-1]], shingle_offsets, shingles
        )
        sets.flush()
        num_old, new = sets.tell() // SHINGLE_BYTES, np.empty(len(shingles), np.uint32)
        old = np.memmap(sets, np.uint32, "c", shape=(num_old,)) if num_old else np.zeros(0, np.uint32)
        similar_to, similarities, num_new = choose_staying(documents, buckets, similarity, old, new)
        sets.write(new[:num_new].data)
        is_dropped = similar_to >= 0
        kept = buckets.documents[similar_to[is_dropped], 0]
        bits = similarities[is_dropped].view(np.uint64)
        yield np.stack([corpus.keys[some[is_dropped]], corpus.keys[kept], bits])


def compile_comparing() -> None:
    """Compile the kernels that are needed to find near-duplicates."""
    shingles, offsets = hash_shingles(np.frombuffer("a \u4e00\n".encode(), np.uint8), np.array([0, 6]))
    make_signatures(shingles, offsets, Bands(1, 1))
    zeros, numbers, counts = np.zeros(1, np.int64), np.zeros(1, np.uint64), np.zeros((3, 1), np.uint32)
    copy_ranges(np.frombuffer(shingles.tobytes(), np.uint32), zeros, offsets, zeros, shingles)
    rows = list_shingles(shingles, offsets, counts[0], counts[1], np.zeros((2, 1), np.uint32))
    choose_first(rows, counts[1], counts[2], 1.0)
    documents = BucketedDocuments(numbers, zeros, np.array([0, 1]), zeros, offsets, shingles)
    choose_staying(documents, Buckets.empty(0, 1, 1), 1.0, counts[0, :0], shingles.copy())
