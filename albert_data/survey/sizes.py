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

import numpy as np

SAMPLE = 1024
_HASHES = 2**64


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
