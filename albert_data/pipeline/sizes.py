"""How many bytes the different documents of a split make, from a sample that every task keeps.

In: a hash and a size of each document, copies included. Out: an estimate that is a function of the set of documents.
The sample is that of the least hashes (a bottom-k sketch: Cohen and Kaplan, Summarizing Data using Bottom-k Sketches,
2007): samples of tasks join to that of all, and a document that comes twice stands in it once. With fewer than SAMPLE
documents the sum is exact; with more its standard error is about sqrt((1 + v**2) / SAMPLE), where v is the coefficient
of variation of the sizes: 4 % where sizes vary as much as their mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

SAMPLE = 1024
_HASHES = 2**64
_WORD = np.dtype("<u8")


def _no_words() -> np.ndarray:
    return np.zeros(0, _WORD)


@dataclass(kw_only=True)
class SizeSample:
    """hashes, sizes: uint64, of the documents in the sample, by rising hash."""

    hashes: np.ndarray = field(default_factory=_no_words)
    sizes: np.ndarray = field(default_factory=_no_words)

    def add(self, hashes: np.ndarray, sizes: np.ndarray) -> None:
        """Take in documents. hashes: uint64, equal for equal documents, otherwise random; sizes: bytes of each."""
        is_full = len(self.hashes) == SAMPLE
        is_low = hashes <= (self.hashes[-1:] if is_full else np.unique(hashes)[:SAMPLE][-1:])
        hashes = np.append(self.hashes, hashes[is_low])
        sizes = np.append(self.sizes, sizes[is_low].astype(_WORD))
        order = np.lexsort((sizes, hashes))
        hashes, sizes = hashes[order], sizes[order]
        is_new = np.append(True, (hashes[1:] != hashes[:-1]) | (sizes[1:] != sizes[:-1]))[: len(hashes)]
        self.hashes, self.sizes = hashes[is_new][:SAMPLE], sizes[is_new][:SAMPLE]

    def estimate(self) -> int:
        """The sum of the sizes of all documents, each once."""
        if len(self.hashes) < SAMPLE:
            return int(self.sizes.sum())
        return int(self.sizes[:-1].sum()) * _HASHES // max(int(self.hashes[-1]), 1)

    def to_text(self) -> str:
        return (self.hashes.tobytes() + self.sizes.tobytes()).hex()

    @classmethod
    def from_text(cls, text: str) -> SizeSample:
        hashes, sizes = np.frombuffer(bytes.fromhex(text), _WORD).reshape(2, -1)
        return cls(hashes=hashes, sizes=sizes)
