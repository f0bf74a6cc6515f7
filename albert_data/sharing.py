"""A lock for objects that threads share and that forked processes inherit."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from weakref import WeakSet


class SharedLock:
    """A reentrant lock that is free in a forked child, even where another thread of the parent held it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Forget who holds it."""
        self._lock = threading.RLock()


_LOCKS: WeakSet[SharedLock] = WeakSet()


def _acquire_all() -> None:
    """So that no other thread is at work on what a lock guards while the process forks: the child gets it whole."""
    _HELD.extend(_LOCKS)
    for lock in _HELD:
        lock.__enter__()


def _release_all() -> None:
    while _HELD:
        _HELD.pop().__exit__(None, None, None)


def _renew_all() -> None:
    _HELD.clear()
    for lock in list(_LOCKS):
        lock.renew()


_HELD: list[SharedLock] = []
os.register_at_fork(before=_acquire_all, after_in_parent=_release_all, after_in_child=_renew_all)
