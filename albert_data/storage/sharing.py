"""A lock for objects that threads share and that forked processes inherit."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager


class SharedLock:
    """A reentrant lock of each process: free in a forked child, even if a thread of the parent held it at the fork."""

    def __init__(self) -> None:
        self._by_process = dict[int, AbstractContextManager[bool]]()

    def hold(self) -> AbstractContextManager[bool]:
        """Hold it in a `with` block."""
        return self._by_process.setdefault(os.getpid(), threading.RLock())
