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
_U64 = np.dtype("<u8")  # samples are stored, so the byte order is fixed


def _make_empty() -> np.ndarray:
    return np.zeros(0, _U64)


@dataclass(kw_only=True)
class SizeSample:
    """hashes, sizes: uint64, of the documents in the sample, in ascending order of hashes."""

    hashes: np.ndarray = field(default_factory=_make_empty)
    sizes: np.ndarray = field(default_factory=_make_empty)

    def add(self, hashes: np.ndarray, sizes: np.ndarray) -> None:
        """Add documents. hashes: uint64, equal for equal documents, otherwise random; sizes: bytes of each."""
        # Sort only what can enter the sample: hashes up to its largest if it is full, else the SAMPLE least new ones.
        largest = self.hashes[-1:] if len(self.hashes) == SAMPLE else np.unique(hashes)[:SAMPLE][-1:]
        is_low = hashes <= largest
        hashes = np.append(self.hashes, hashes[is_low])
        sizes = np.append(self.sizes, sizes[is_low].astype(_U64))
        order = np.lexsort((sizes, hashes))
        hashes, sizes = hashes[order], sizes[order]
        # Equal hashes with different sizes are different documents whose hashes collide, so both are new. The slice is
        # for no documents at all, since `append` gives at least one item.
        is_new = np.append(True, (hashes[1:] != hashes[:-1]) | (sizes[1:] != sizes[:-1]))[: len(hashes)]
        self.hashes, self.sizes = hashes[is_new][:SAMPLE], sizes[is_new][:SAMPLE]

    def estimate(self) -> int:
        """The sum of the sizes of all documents, each once."""
        if len(self.hashes) < SAMPLE:
            return int(self.sizes.sum())
        # The first SAMPLE - 1 documents are all those with hashes below the sample's largest one, so they are the share
        # largest / 2**64 of all. Counting the last as well would bias the estimate upwards.
        return int(self.sizes[:-1].sum()) * _HASHES // max(int(self.hashes[-1]), 1)

    def to_text(self) -> str:
        return (self.hashes.tobytes() + self.sizes.tobytes()).hex()

    @classmethod
    def from_text(cls, text: str) -> SizeSample:
        hashes, sizes = np.frombuffer(bytes.fromhex(text), _U64).reshape(2, -1)
        return cls(hashes=hashes, sizes=sizes)
