"""Iterators for threads: one that several threads may advance, and one that a thread reads ahead of the caller."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar, cast

Item = TypeVar("Item")


class SharedIterator(Iterator[Item], Generic[Item]):
    """A generator that several threads may advance: each item goes to one thread, an error is raised in all."""

    def __init__(self, items: Iterator[Item]) -> None:
        self._items, self._lock = items, threading.Lock()
        self._error: Exception | None = None

    def __next__(self) -> Item:
        with self._lock:
            if self._error is not None:
                raise self._error
            try:
                return next(self._items)
            except StopIteration:
                raise
            except Exception as error:  # a generator that failed ends: other threads would take it for the end of data
                self._error = error
                raise


def read_ahead(items: Iterator[Item], *, depth: int) -> Generator[Item, None, None]:
    """Yield the items in order; a thread takes them up to `depth` items ahead. With depth 0 there is no thread."""
    if not depth:
        yield from items
        return
    end = object()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader") as pool:
        pending = deque(pool.submit(next, items, end) for _ in range(depth))
        try:
            while (item := pending.popleft().result()) is not end:
                pending.append(pool.submit(next, items, end))
                yield cast(Item, item)
        finally:
            pool.shutdown(cancel_futures=True)
