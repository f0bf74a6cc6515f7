"""Estimate how many bytes the distinct documents of a split make, from a sample that every task keeps.

In: a hash and a size of each document, copies included. Out: an estimate that is a function of the set of documents.
The sample holds the documents with the SAMPLE least hashes (a bottom-k sketch: Cohen and Kaplan, Summarizing Data using
Bottom-k Sketches, 2007). The samples of all tasks merge into the sample of the corpus, and a document that occurs twice
is in it once. With fewer than SAMPLE documents the sum is exact. With more, its standard error is about
sqrt((1 + v**2) / SAMPLE), where v is the coefficient of variation of the sizes: 4 % for sizes that vary as much as
their mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from albert_data.config import MIN_VALIDATION, SPECIALS_PER_PAIR, ExampleConfig
from albert_data.shards.manifest import SPLITS

SAMPLE = 1024
_HASHES = 2**64
# Arrow bytes of a row beside its ids and masks: document_key 8, segment_a_len 4, sop_label 1, three list offsets of 4,
# source 2; rounded up. It decides how many shards there are, so another value would change the bytes of builds.
_ROW_BYTES = 30


def measure_rows(num_rows: Any, num_tokens: Any, num_masked: Any, id_bytes: int) -> Any:
    """About how many bytes rows have as Arrow data."""
    return _ROW_BYTES * num_rows + num_tokens * id_bytes + num_masked * (2 + id_bytes)


def estimate_bytes(tokens: np.ndarray, passes: Any, config: ExampleConfig, id_bytes: int) -> np.ndarray:
    """About how many bytes the rows of documents have. tokens: int64, of each; passes: over each."""
    rows = -(-tokens // config.max_tokens)  # as few as the tokens fill
    masked = (tokens * config.mask_prob).astype(np.int64)
    sizes: np.ndarray = passes * measure_rows(rows, tokens + rows * SPECIALS_PER_PAIR, masked, id_bytes)
    return sizes


@dataclass(kw_only=True)
class SizeSample:
    """hashes, sizes: uint64, of the documents in the sample, in ascending order of hashes. limit: of their number."""

    hashes: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))
    sizes: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))
    limit: int = SAMPLE

    def add(self, hashes: np.ndarray, sizes: np.ndarray) -> None:
        """Add documents. hashes: uint64, equal for equal documents, otherwise random; sizes: bytes of each."""
        # Sort only what can enter the sample: hashes up to its largest if it is full, else the least new ones.
        largest = self.hashes[-1:] if len(self.hashes) == self.limit else _find_largest(hashes, self.limit)
        is_low = hashes <= largest
        hashes = np.append(self.hashes, hashes[is_low])
        sizes = np.append(self.sizes, sizes[is_low].astype(np.uint64))
        order = np.lexsort((sizes, hashes))
        hashes, sizes = hashes[order], sizes[order]
        # Of several forms of a text (forms.py) the smallest counts. `append` gives an item also for no documents.
        is_new = np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]
        self.hashes, self.sizes = hashes[is_new][: self.limit], sizes[is_new][: self.limit]

    def estimate(self) -> int:
        """The sum of the sizes of all documents, each once."""
        if len(self.hashes) < self.limit:
            return int(self.sizes.sum())
        # All but the last are all documents with hashes below the sample's largest one, so they are the share
        # largest / 2**64 of all. Counting the last as well would bias the estimate upwards.
        return int(self.sizes[:-1].sum()) * _HASHES // max(int(self.hashes[-1]), 1)

    def leave_out(self, hashes: np.ndarray) -> None:
        """Count no bytes of these documents. hashes: uint64."""
        self.sizes = np.where(np.isin(self.hashes, hashes), np.uint64(0), self.sizes)

    def count(self) -> int:
        """The number of documents; of a full sample, as many as it holds."""
        return len(self.hashes)


def _find_largest(hashes: np.ndarray, limit: int) -> np.ndarray:
    """The largest of the `limit` least distinct hashes, as an array of one; empty for no hashes."""
    # To sort all of many hashes would take ten times as long.
    least = np.partition(hashes, 2 * limit)[: 2 * limit] if len(hashes) > 2 * limit else hashes
    if len(distinct := np.unique(least)) < limit:  # there are many copies
        distinct = np.unique(hashes)
    largest: np.ndarray = distinct[:limit][-1:]
    return largest


@dataclass(kw_only=True)
class SplitSizes:
    """About how many bytes documents make.

    samples: of the documents of each split. nearest: of those with the least split keys, as many as validation gets at
    least, and the next one: they may have to change their split (see splits.py).
    """

    samples: dict[str, SizeSample] = field(default_factory=lambda: {split: SizeSample() for split in SPLITS})
    nearest: SizeSample = field(default_factory=lambda: SizeSample(limit=MIN_VALIDATION + 1))

    def add(self, other: SplitSizes) -> None:
        for split, sample in other.samples.items():
            self.samples[split].add(sample.hashes, sample.sizes)
        self.nearest.add(other.nearest.hashes, other.nearest.sizes)

    def add_documents(self, is_validation: np.ndarray, hashes: np.ndarray, bits: np.ndarray, sizes: np.ndarray) -> None:
        """hashes: uint64, equal for equal documents, otherwise random; bits: uint64, split keys; sizes: bytes."""
        for sample, is_here in zip(self.samples.values(), (~is_validation, is_validation), strict=True):
            sample.add(hashes[is_here], sizes[is_here])
        self.nearest.add(bits, sizes)
