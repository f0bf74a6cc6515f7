"""An array that grows."""

from __future__ import annotations

from typing import Any

import numpy as np


class GrowingArray:
    """Items that come part by part, in one array in the end."""

    def __init__(self, dtype: type[Any]) -> None:
        self._items, self._filled = np.empty(0, dtype), 0

    def __len__(self) -> int:
        return self._filled

    def append(self, items: np.ndarray) -> None:
        end = self._filled + len(items)
        self._items = with_room(self._items, end)
        self._items[self._filled : end] = items
        self._filled = end

    def expect(self, size: int) -> None:
        """Make room for so many items in all."""
        self._items = with_room(self._items, size)

    def take(self) -> np.ndarray:
        """All items. Nothing can be appended any more."""
        self._items.resize(self._filled, refcheck=False)  # without a copy
        return self._items


def with_room(array: np.ndarray, size: int) -> np.ndarray:
    """The array, grown to hold `size` items if it does not."""
    if size <= len(array):
        return array
    grown = np.empty(max(size, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown
