"""A lock in a store: an object that its holder puts again and again.

The object is made by a conditional put, so one process gets it, and is replaced on the condition that it is still the
version that its holder put last. If it has not been replaced for `EXPIRY_SECONDS`, by the store's own clock, its holder
has died and another may take it, on the same condition. A holder whose lock was taken learns it at the next put, and
publishes nothing.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from albert_data.errors import StorageError
from albert_data.storage.retries import NEW, PreconditionFailed
from albert_data.storage.urls import StoreURL

if TYPE_CHECKING:
    from albert_data.storage.s3 import S3

EXPIRY_SECONDS = 30.0
RENEW_SECONDS = 6.0
LOCK_READ_SECONDS = 5.0  # without an answer; a renewal's pause and three such requests take less than EXPIRY_SECONDS
_POLL_SECONDS = 1.0
_FREE = b"free\n"  # what the object holds after the mark when nobody holds the lock
_STATE = re.compile(rb"(free|held [0-9a-f]{16})\n\Z")
_log = logging.getLogger("albert_data")


class StoreLock:
    """Holds a lock from the moment it is made. mark: what the object begins with.

    Raises BlockingIOError if another holds it and is alive. That takes up to EXPIRY_SECONDS to find out.
    """

    def __init__(self, store: S3, url: StoreURL, mark: bytes) -> None:
        self._store, self.url, self._mark = store, url, mark
        self._version, self._process = self._take(), os.getpid()
        is_known = self._put(NEW) is None
        replaced, self._version = self._version, self._put(self._version) or self._version
        if not is_known or self._put(replaced) is not None:
            raise StorageError(
                f"{url}: the store ignores conditions of puts (If-None-Match or If-Match), so two builds could write "
                "at once; use a store that knows them, as docs/guides/stores.md says"
            )
        self._is_lost = False
        self._freed = threading.Event()
        self._guard = threading.Lock()
        threading.Thread(target=self._renew, daemon=True).start()

    def _take(self) -> str:
        seen = None
        while True:
            if (version := self._put(NEW)) is not None:
                return version
            try:
                held, found, age = self._store.get_aged(self.url)
            except FileNotFoundError:
                continue  # it was removed just now
            if held.endswith(_FREE) or age > EXPIRY_SECONDS:
                if (version := self._put(found)) is not None:
                    return version
            elif seen is None:
                _log.warning(
                    "%s is locked; waiting up to %.0f s to see whether the command that locked it still runs",
                    self.url,
                    EXPIRY_SECONDS,
                )
            elif seen != found:
                raise BlockingIOError(errno.EWOULDBLOCK, "another process holds the lock and renews it", str(self.url))
            seen = found
            time.sleep(_POLL_SECONDS)

    def _put(self, version: str, *, content: bytes | None = None) -> str | None:
        """Replace a version of the object; returns the new one, or None if another process was faster."""
        data = self._mark + (content if content is not None else f"held {os.urandom(8).hex()}\n".encode())
        try:
            return self._store.put(self.url, data, version)
        except FileNotFoundError:
            return None
        except PreconditionFailed:
            # It may be this very put, whose answer was lost.
            with suppress(FileNotFoundError):
                there = self._store.get(self.url)
                if there.data == data and content is None:
                    return there.version
            return None

    def _renew(self) -> None:
        while not (self._freed.wait(RENEW_SECONDS) or self._is_lost):
            with suppress(OSError, StorageError):
                self.check(asks=True)

    def check(self, *, asks: bool) -> None:
        """Raise OSError if the lock is another's now. asks: renew it to know, and not only by the last renewal."""
        if not asks and not self._is_lost:
            return
        with self._guard:
            if self._freed.is_set():
                return
            version = None if self._is_lost else self._put(self._version)
            if version is None:
                self._is_lost = True
                raise OSError(
                    errno.ESTALE, "another process has taken the lock, as this one gave no sign of life", str(self.url)
                )
            self._version = version

    def forget(self) -> None:
        """Renew no longer: the object is being removed."""
        with self._guard:
            self._freed.set()

    def free(self) -> None:
        """Let others have the lock at once. A forked process does not free the lock of its parent."""
        if self._freed.is_set() or os.getpid() != self._process:
            return
        self.forget()
        with suppress(OSError, StorageError):
            self._put(self._version, content=_FREE)


def strip_state(content: bytes) -> bytes:
    """The mark, without what a lock puts after it."""
    return _STATE.sub(b"", content)
