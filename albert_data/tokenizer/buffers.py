"""Sentences in one buffer, and arrays that grow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Sentences(NamedTuple):
    """Sentences in one buffer. utf8: uint8; begins, ends: int64, the positions of each sentence in it, in order."""

    utf8: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    def part(self, chosen: slice | np.ndarray) -> Sentences:
        return self._replace(begins=self.begins[chosen], ends=self.ends[chosen])


class GrowingArray:
    """Collects items part by part into one array."""

    def __init__(self, dtype: type[Any]) -> None:
        self._items, self._filled = np.empty(0, dtype), 0

    def __len__(self) -> int:
        return self._filled

    def append(self, items: np.ndarray) -> None:
        end = self._filled + len(items)
        self._items = grow(self._items, end)
        self._items[self._filled : end] = items
        self._filled = end

    def reserve(self, capacity: int) -> None:
        """Allocate memory for `capacity` items in all."""
        self._items = grow(self._items, capacity)

    def take(self) -> np.ndarray:
        """All items. Nothing can be appended afterwards."""
        self._items.resize(self._filled, refcheck=False)  # without a copy
        return self._items


def grow(array: np.ndarray, capacity: int) -> np.ndarray:
    """The array itself if it holds `capacity` items, else a copy that is at least twice as long."""
    if capacity <= len(array):
        return array
    grown = np.empty(max(capacity, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown
