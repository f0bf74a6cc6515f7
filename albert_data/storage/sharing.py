"""A lock for objects that threads share and that forked processes inherit."""

from __future__ import annotations

import os
import threading
from weakref import WeakSet


class SharedLock:
    """A reentrant lock that is free in a forked child, even if another thread of the parent held it at the fork."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Make the lock free in a child that was forked just now, unless the thread that forked holds it."""
        if self._lock.acquire(blocking=False):  # it is free, or this thread has it and goes on with what it guards
            self._lock.release()
            return
        self._lock = threading.RLock()  # the thread that has the old lock does not exist in the child


_LOCKS: WeakSet[SharedLock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_LOCKS):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
