"""A sample of sentences that depends on the sentences alone, not on the order they come in.

The sentences with the smallest hashes are kept, as many as fit the cap; equal sentences stay or go
together. Memory is bounded by about three caps.
"""

from __future__ import annotations

import numpy as np

from albert_data.draws import mix
from albert_data.kernels import kernel
from albert_data.sentences.text import Text, slice_sentences

_ALL = 2**64 - 1


class SentenceSample:
    """Keeps the sentences of the smallest hashes, at most `max_bytes` of them.

    limit: a sentence with a hash above it can't be in the sample any more.
    """

    def __init__(self, max_bytes: int) -> None:
        self.limit = _ALL
        self._max_bytes, self._num_bytes = max_bytes, 0
        self._kept: list[tuple[int, bytes]] = []

    def add(self, hashes: list[int], sentences: list[bytes]) -> None:
        for key, sentence in zip(hashes, sentences, strict=True):
            if key <= self.limit:
                self._kept.append((key, sentence))
                self._num_bytes += len(sentence)
        if self._num_bytes > 2 * self._max_bytes:
            self._trim()

    def _trim(self) -> None:
        self._kept.sort()
        total, end = 0, 0
        while end < len(self._kept) and total + len(self._kept[end][1]) <= self._max_bytes:
            total += len(self._kept[end][1])
            end += 1
        if end < len(self._kept):
            self.limit = self._kept[end][0]
            # Equal sentences go together: the first that does not fit takes its equals along.
            while end and self._kept[end - 1][0] == self.limit:
                end -= 1
                total -= len(self._kept[end][1])
            self.limit -= 1
        self._kept, self._num_bytes = self._kept[:end], total

    def sentences(self) -> list[bytes]:
        """The sample, in the order of the hashes."""
        self._trim()
        return [sentence for _, sentence in self._kept]


def select_sentences(text: Text, seed: int, limit: int) -> tuple[list[int], list[bytes]]:
    """Hashes and bytes of the sentences whose hash is at most `limit`."""
    begins, ends = text.sentence_begins, text.sentence_ends
    hashes = hash_slices(text.utf8, begins, ends, np.uint64(seed))
    chosen = np.flatnonzero(hashes <= np.uint64(limit))
    return hashes[chosen].tolist(), slice_sentences(text.utf8, begins[chosen], ends[chosen])


@kernel
def hash_slices(utf8: np.ndarray, begins: np.ndarray, ends: np.ndarray, seed: np.uint64) -> np.ndarray:
    """A seeded 64-bit hash of each slice: FNV-1a, scattered."""
    out = np.empty(len(begins), np.uint64)
    for i in range(len(out)):
        value = np.uint64(0xCBF29CE484222325)
        for at in range(begins[i], ends[i]):
            value = (value ^ np.uint64(utf8[at])) * np.uint64(0x100000001B3)
        out[i] = mix(mix(value) ^ seed)
    return out
