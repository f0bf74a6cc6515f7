"""Sentences in one buffer, and arrays that grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from albert_data.data import Text


class Sentences(NamedTuple):
    """Sentences in one buffer, as kernels take them."""

    utf8: np.ndarray  # uint8 [N]
    begins: np.ndarray  # int64 [S], in bytes, in order
    ends: np.ndarray  # int64 [S]

    @classmethod
    def of(cls, text: Text) -> Sentences:
        return cls(text.utf8, text.sentence_begins, text.sentence_ends)

    def part(self, chosen: slice | np.ndarray) -> Sentences:
        return self._replace(begins=self.begins[chosen], ends=self.ends[chosen])

    def slices(self, size: int) -> Iterator[slice]:
        """Divide the sentences into parts of at most `size` bytes, or of one sentence."""
        begin = 0
        while begin < len(self.begins):
            end = max(begin + 1, int(np.searchsorted(self.ends, self.begins[begin] + size, side="right")))
            yield slice(begin, end)
            begin = end


def join_strings(texts: Sequence[str]) -> Sentences:
    """Strings in one buffer. Raises TypeError for an item that is no string, UnicodeEncodeError for a surrogate."""
    encoded = list(map(str.encode, texts))
    lens = np.fromiter(map(len, encoded), np.int64, len(encoded))
    ends = np.cumsum(lens)
    return Sentences(np.frombuffer(b"".join(encoded), np.uint8), ends - lens, ends)


def grow(array: np.ndarray, capacity: int) -> np.ndarray:
    """The array itself if it holds `capacity` items, else a copy that is at least twice as long."""
    if capacity <= len(array):
        return array
    grown = np.empty(max(capacity, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown
