"""Sentences in one buffer, and arrays that grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from albert_data.data import Text


class Sentences(NamedTuple):
    """Sentences in one buffer, as kernels take them.

    utf8: uint8 [N]
    begins, ends: int64 [S], in bytes, in order
    """

    utf8: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

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


def encode_strings(texts: list[str], size: int) -> Iterator[Sentences]:
    """Yield strings in buffers of at most `size` characters, or of one string.

    Raises TypeError for an item that is no string, UnicodeEncodeError for a surrogate.
    """
    import pyarrow  # takes a while to load; only lists of strings need it here

    lens = np.fromiter(map(str.__len__, texts), np.int64, len(texts))
    ends = np.cumsum(lens)
    for chosen in Sentences(np.empty(0, np.uint8), ends - lens, ends).slices(size):
        _, offsets, utf8 = pyarrow.array(texts[chosen], pyarrow.large_string()).buffers()
        bounds = np.frombuffer(offsets, np.int64)
        yield Sentences(np.frombuffer(utf8, np.uint8), bounds[:-1], bounds[1:])


def grow(array: np.ndarray, capacity: int) -> np.ndarray:
    """The array itself if it holds `capacity` items, else a copy that is at least twice as long."""
    if capacity <= len(array):
        return array
    grown = np.empty(max(capacity, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown
