"""What a mixture uses: whose each document is, and how often, decided between map and reduce.

In: the lists of all map tasks (document_lists.py). Out: a `Choice`, by which reduce keeps rows, and the counts of each
source. A document belongs to the first source that lists it. All this depends on the sets of documents alone, so copies
and layout change nothing.

Keys that several sources list go to files, which reduce maps into memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from albert_data.config import SPECIALS_PER_PAIR, BuildConfig, ExampleConfig
from albert_data.corpus.sources import ONE_PASS, MixtureSource, share_tokens
from albert_data.errors import InputError
from albert_data.kernels.draws import choice_keys, split_keys, threshold
from albert_data.pipeline.mapping import measure_rows
from albert_data.pipeline.receipts import TaskReceipt, make_nearest
from albert_data.pipeline.row_buffer import RowKeys
from albert_data.shards.manifest import SPLITS
from albert_data.storage import find_storage
from albert_data.survey.document_lists import DocumentList, Limits, number_sources, read_lists
from albert_data.survey.sizes import SizeSample
from albert_data.survey.sorted_columns import find_keys, map_u64

_SHARED_KEYS, _SHARED_SOURCES = "shared.documents", "shared.sources"
# Budgets are cut between 2**16 ranges of choice keys, so they err by 1 / 2**16 of a large source. Over 256 sources have
# fewer ranges, so that the counts of all take 128 MB at most.
_BUCKET_BITS, _CELL_BITS = 16, 24
_KEYS = 2**64


class SourceCounts(NamedTuple):
    """What is used of a source. limit: see `MixtureSource.count_limit`.

    documents: those that belong to the source, each once; tokens: their tokens of text in one pass; used_documents:
    those with a pass; used_tokens: in all passes.
    """

    limit: int
    documents: int
    tokens: int
    used_documents: int
    used_tokens: int


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which rows reduce keeps.

    seed: of the build; limits: of each source; shared: the folder of the files of shared keys, None if there are none;
    counts: of each source; num_bytes: of the Arrow data of each split, about.
    """

    seed: int
    limits: Limits
    shared: Path | None
    counts: tuple[SourceCounts, ...]
    num_bytes: dict[str, int]


class Shared(NamedTuple):
    """Keys that several sources list, ascending, and the first of these sources: uint64."""

    keys: np.ndarray
    owners: np.ndarray


def read_shared(choice: Choice) -> Shared | None:
    if choice.shared is None:
        return None
    return Shared(map_u64(choice.shared / _SHARED_KEYS), map_u64(choice.shared / _SHARED_SOURCES))


def find_kept(choice: Choice, shared: Shared | None, keys: RowKeys, sources: np.ndarray) -> np.ndarray:
    """Which rows are kept: bool. keys: of the rows; sources: of each, as numbers."""
    document_keys = keys.document_keys
    choices = choice_keys(np.uint64(choice.seed), document_keys)
    kept: np.ndarray = keys.passes < choice.limits.count_passes(sources, choices)
    if shared is not None:
        is_shared, at = find_keys(document_keys, shared.keys)
        kept &= ~is_shared | (shared.owners[at] == sources)
    return kept


def estimate_bytes(tokens: np.ndarray, passes: Any, config: ExampleConfig, id_bytes: int) -> np.ndarray:
    """About how many bytes the rows of documents have. tokens: int64, of each; passes: over each."""
    rows = -(-tokens // config.max_tokens)  # as few as the tokens fill
    masked = (tokens * config.mask_prob).astype(np.int64)
    sizes: np.ndarray = passes * measure_rows(rows, tokens + rows * SPECIALS_PER_PAIR, masked, id_bytes)
    return sizes


class UsedSizes:
    """About how many bytes the rows of documents have, by what is known of them before they are read again.

    id_bytes: of a token in a shard. num_bytes: int64, of each split, all passes; samples, nearest: see `TaskReceipt`;
    digest: the sum of the keys modulo 2**64.
    """

    def __init__(self, config: BuildConfig, id_bytes: int) -> None:
        self._config, self._id_bytes = config, id_bytes
        self.num_bytes, self.digest = np.zeros(len(SPLITS), np.int64), 0
        self.samples, self.nearest = {split: SizeSample() for split in SPLITS}, make_nearest()

    def add(
        self, keys: np.ndarray, tokens: np.ndarray, passes: np.ndarray | int, is_given: np.ndarray | bool = False
    ) -> None:
        """Add documents, each once. tokens, passes: int64; is_given: whether they are for validation in any case."""
        sizes = estimate_bytes(tokens, passes, self._config.examples, self._id_bytes)
        bits = split_keys(np.uint64(self._config.examples.seed), keys)
        is_validation = (bits < threshold(self._config.drawn_fraction)) | is_given
        np.add.at(self.num_bytes, is_validation.astype(np.int64), sizes)  # in the order of SPLITS
        self.digest = (self.digest + int(keys.sum(dtype=np.uint64))) % _KEYS
        for sample, is_here in zip(self.samples.values(), (~is_validation, is_validation), strict=True):
            sample.add(bits[is_here], sizes[is_here])
        self.nearest.add(bits, sizes)


def choose_documents(
    folder: Path,
    sources: Sequence[MixtureSource],
    config: BuildConfig,
    total: TaskReceipt,
    id_bytes: int,
    removed: Path | None,
    lost: Path | None,
) -> Choice:
    """Decide what is used of each source.

    folder: that of the lists, which gets the files of shared keys; id_bytes: of a token in a shard. removed, lost: the
    files of keys and forms that are not used, see `ReduceRules`. total: of all map
    tasks; its digest, counts of copies and samples become those of what is used. With `keep_duplicates` each
    copy belongs to the source in which it is. Raises InputError if nothing is used.
    """
    counting = _Counting(folder, sources, config, total.lists, id_bytes)
    counting.removed, counting.lost = None if removed is None else map_u64(removed), lost
    limits = counting.find_limits()
    counting.count_all(Limits.divide(limits))
    return counting.finish(limits, total)


class _Listed(NamedTuple):
    """Documents, by key and then source. keys, tokens: uint64; sources, owners: int64.

    owners: the first source that has the key; is_own: bool, whether a document is that of its owner, and no copy.
    """

    keys: np.ndarray
    sources: np.ndarray
    tokens: np.ndarray
    owners: np.ndarray
    is_own: np.ndarray


class _Counting:
    """Reads the lists: once for the budgets if there are any, and once for all else."""

    def __init__(
        self,
        folder: Path,
        sources: Sequence[MixtureSource],
        config: BuildConfig,
        lists: Sequence[DocumentList],
        id_bytes: int,
    ) -> None:
        self._folder, self._sources, self._config, self._lists = folder, sources, config, lists
        self._seed, self._used = np.uint64(config.examples.seed), UsedSizes(config, id_bytes)
        self.removed: np.ndarray | None = None  # keys of documents that are not used, ascending
        self.lost: Path | None = None
        # Of each source: documents, tokens, used documents, used tokens, as in SourceCounts.
        self._counts = np.zeros((4, len(sources)), np.int64)
        self._num_copies = self._copied_tokens = 0
        self._has_shared = False

    def read(self) -> Iterator[_Listed]:
        """All documents, in ranges of keys."""
        for listed in read_lists(self._folder, self._lists, self.lost):
            yield self._own(*listed)

    def _own(self, keys: np.ndarray, sources: np.ndarray, tokens: np.ndarray, is_lost: np.ndarray) -> _Listed:
        sources = number_sources(sources, self._sources)
        order = np.lexsort((tokens, is_lost, sources, keys))
        keys, sources, tokens, is_lost = keys[order], sources[order], tokens[order], is_lost[order]
        if self._config.keep_duplicates:
            return _Listed(keys, sources, tokens, sources, np.ones(len(keys), bool))
        is_tie = np.zeros(len(keys), bool)
        is_tie[1:] = keys[1:] == keys[:-1]
        firsts = np.maximum.accumulate(np.where(is_tie, 0, np.arange(len(keys))))
        owners = sources[firsts] if self._config.alpha is None else sources  # a text of two languages belongs to both
        is_copy = is_tie.copy()
        is_copy[1:] &= (sources[1:] == sources[:-1]) & (tokens[1:] == tokens[:-1])
        is_copy |= is_lost
        return _Listed(keys, sources, tokens, owners, (sources == owners) & ~is_copy)

    def find_limits(self) -> list[int]:
        """The limit of each source; that of a budget or share is the one that comes nearest to it."""
        dupe_factor = self._config.examples.dupe_factor
        limits = [source.count_limit(dupe_factor) for source in self._sources]
        sharing = [source for source in self._sources if source.alpha is not None and source.limit is None]
        wanted = {source: source.tokens for source in self._sources if source.tokens is not None}
        bits = choose_bucket_bits(len(limits))
        counts = np.zeros((len(limits), 1 << bits), np.int64)
        for listed in self.read() if wanted or sharing else ():
            own = listed.is_own & ~self._find_removed(listed.keys)
            choices = choice_keys(self._seed, listed.keys[own]) >> np.uint64(64 - bits)
            np.add.at(counts, (listed.sources[own], choices.astype(np.int64)), listed.tokens[own].astype(np.int64))
        wanted |= share_tokens({source: int(counts[source.number].sum()) for source in sharing})
        for source, tokens in wanted.items():
            number = source.number
            limits[number] = _find_limit(counts[number], tokens, dupe_factor, limits[number])
        return limits

    def count_all(self, limits: Limits) -> None:
        """Count what is used under these limits, and write the files of shared keys."""
        storage = find_storage(self._folder)
        with (
            storage.create(self._folder / _SHARED_KEYS, sync=False) as keys_file,
            storage.create(self._folder / _SHARED_SOURCES, sync=False) as sources_file,
        ):
            for listed in self.read():
                self._count(listed, limits)
                is_foreign = listed.sources != listed.owners
                keys, first = np.unique(listed.keys[is_foreign], return_index=True)
                keys_file.write(keys.data)
                sources_file.write(listed.owners[is_foreign][first].astype(np.uint64).data)
                self._has_shared |= len(keys) > 0

    def _count(self, listed: _Listed, limits: Limits) -> None:
        own = listed.is_own
        self._num_copies += int(np.count_nonzero(~own))
        self._copied_tokens += int(listed.tokens[~own].sum())
        own = own & ~self._find_removed(listed.keys)
        keys, sources, tokens = listed.keys[own], listed.sources[own], listed.tokens[own].astype(np.int64)
        passes = limits.count_passes(sources, choice_keys(self._seed, keys)).astype(np.int64)
        used = passes > 0
        for counts, values in zip(self._counts, (1, tokens, used, tokens * passes), strict=True):
            np.add.at(counts, sources, values)
        self._used.add(keys[used], tokens[used], passes[used])

    def _find_removed(self, keys: np.ndarray) -> np.ndarray:
        """Which documents are not used in any case: bool."""
        return np.zeros(len(keys), bool) if self.removed is None else find_keys(keys, self.removed)[0]

    def finish(self, limits: Sequence[int], total: TaskReceipt) -> Choice:
        if not self._used.nearest.count():
            raise InputError("the mixture uses no document; raise the weights or budgets of its sources")
        total.documents_digest = self._used.digest
        total.counts.update(duplicate_documents=self._num_copies, duplicate_tokens=self._copied_tokens)
        total.samples, total.nearest = self._used.samples, self._used.nearest
        return Choice(
            seed=int(self._seed),
            limits=Limits.divide(limits),
            shared=self._folder if self._has_shared else None,
            counts=tuple(
                SourceCounts(limit, *counts) for limit, counts in zip(limits, self._counts.T.tolist(), strict=True)
            ),
            num_bytes=dict(zip(SPLITS, self._used.num_bytes.tolist(), strict=True)),
        )


def choose_bucket_bits(num_sources: int) -> int:
    """The bits of a choice key that name its range.

    >>> choose_bucket_bits(256), choose_bucket_bits(2000)
    (16, 13)
    """
    return min(_BUCKET_BITS, _CELL_BITS - (num_sources - 1).bit_length())


def _find_limit(counts: np.ndarray, budget: int, dupe_factor: int, most: int) -> int:
    """The limit at which the passes have nearest to `budget` * `dupe_factor` tokens, but at most `most`.

    counts: tokens of the documents by their choice keys, in ranges of equal size, a power of two.
    """
    sums: list[int] = np.append(0, np.cumsum(counts)).tolist()
    if most * sums[-1] <= budget * dupe_factor * ONE_PASS:
        return most
    whole, rest = divmod(budget * dupe_factor, sums[-1])
    at = bisect_left(sums, rest)
    if at > 0 and rest - sums[at - 1] < sums[at] - rest:
        at -= 1
    return min(whole * ONE_PASS + at * (ONE_PASS // len(counts)), most)
