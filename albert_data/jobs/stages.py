"""How long each stage of a build took, over all workers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


class Stages(dict[str, float]):
    """Seconds of wall time of each stage."""

    @contextmanager
    def time(self, stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self[stage] = self.get(stage, 0.0) + time.perf_counter() - begin

    def time_each(self, stage: str, items: Iterable[Item]) -> Iterator[Item]:
        """Time how long the iterator takes to make each item, without what the caller does with it."""
        iterator = iter(items)
        while True:
            with self.time(stage):
                item = next(iterator, None)
            if item is None:
                return
            yield item

    def add(self, other: dict[str, float]) -> None:
        for stage, seconds in other.items():
            self[stage] = self.get(stage, 0.0) + seconds
