"""A file that is written to a store: one request if it is small, else an upload in parts.

An object has its key when all of it is there. What a kill leaves is an upload without a key, which
`Storage.remove_leftovers` aborts.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from albert_data.errors import StorageError
from albert_data.storage.urls import StoreURL

if TYPE_CHECKING:
    from albert_data.storage.object_requests import Requests

PART_BYTES = 8 << 20
_PARTS_OF_A_SIZE = 1_000


class Upload(io.RawIOBase):
    """Takes the bytes of an object in order."""

    def __init__(self, store: Requests, url: StoreURL) -> None:
        self._store, self._url = store, url
        self._buffer, self._upload = bytearray(), ""
        self._parts: list[str] = []
        self._num_bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._num_bytes

    def write(self, data: Any) -> int:
        taken = memoryview(data).cast("B")
        self._buffer += taken
        self._num_bytes += len(taken)
        while len(self._buffer) >= self._part_bytes():
            self._send()
        return len(taken)

    def _part_bytes(self) -> int:
        """Parts double after each thousand, so that the 10,000 that are allowed hold the 5 TB of the largest object."""
        return PART_BYTES << (len(self._parts) // _PARTS_OF_A_SIZE)

    def _send(self) -> None:
        if not self._upload:
            self._upload = self._store.begin_upload(self._url)
        begin, data = self._num_bytes - len(self._buffer), bytes(self._buffer[: self._part_bytes()])
        del self._buffer[: len(data)]
        self._parts.append(self._store.upload_part(self._url, self._upload, len(self._parts) + 1, begin, data))

    def complete(self) -> None:
        if not self._upload:
            self._store.put(self._url, bytes(self._buffer))
            return
        self._store.complete_upload(self._url, self._upload, self._parts, self._num_bytes, bytes(self._buffer))

    def abort(self) -> None:
        """Leave nothing in the store. Raises nothing: what failed before is the error to report."""
        if self._upload:
            with suppress(OSError, StorageError):
                self._store.abort_upload(self._url, self._upload)
