"""A connection to a store for each process, whose requests are repeated."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

from albert_data.errors import StorageError
from albert_data.sharing import SharedLock
from albert_data.storage.retries import Answer, Retrying
from albert_data.storage.urls import StoreURL

Client = TypeVar("Client")


class Connection(Generic[Client]):
    """connect: makes a client, which takes up to seconds. Threads of a process share one."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect, self._retrying, self._connecting = connect, Retrying(), SharedLock()
        # Neither sockets nor threads survive a fork, so each process has its own. Those of the parent stay referenced:
        # a destructor would close its sockets.
        self._by_process: dict[int, Client] = {}

    def get(self) -> Client:
        with self._connecting:
            if (found := self._by_process.get(os.getpid())) is None:
                found = self._by_process[os.getpid()] = self._connect()
            return found

    def repeat(self, url: StoreURL, request: Callable[[], Answer]) -> Answer:
        """Make a request until the store answers it. `Retrying.call` says what it raises."""
        try:
            return self._retrying.call(url, request)
        except StorageError:  # perhaps wrong settings, which the next connection reads again
            self._by_process.pop(os.getpid(), None)
            raise
