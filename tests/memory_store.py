"""A store of objects in memory: what `ObjectStore` asks of S3, without a server."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from albert_data import storage
from albert_data.storage import FILE, Status
from albert_data.storage.objects import ObjectStore
from albert_data.storage.retries import NEW, Got, PreconditionFailed
from albert_data.storage.urls import StoreURL


class Died(BaseException):
    """What a process does that is killed: nothing more."""


class MemoryRequests:
    """The requests of `S3` for one bucket. It has no uploads in parts, and nobody waits for a lock.

    objects: the content and the version of each key. changes_left: how many are put or removed before the process dies.
    """

    def __init__(self) -> None:
        self.objects, self._versions = dict[str, tuple[bytes, str]](), count()
        self.changes_left = 1 << 30

    def count_changes(self, work: Callable[[], object]) -> int:
        before = self.changes_left = 1 << 30
        work()
        return before - self.changes_left

    def _change(self, key: str, data: bytes | None) -> None:
        if data is None or b"held " not in data[-40:]:  # a lock is renewed at any time
            if not self.changes_left:
                raise Died
            self.changes_left -= 1
        if data is None:
            del self.objects[key]
        else:
            self.objects[key] = data, str(next(self._versions))

    def head(self, url: StoreURL) -> Status:
        found = self.get(url)
        return Status(FILE, found.num_bytes, 0, found.version)

    def is_folder(self, url: StoreURL) -> bool:
        return any(key.startswith(url.prefix) for key in self.objects)

    def entries(self, folder: StoreURL) -> Iterator[tuple[str, Status | None]]:
        inner = [key.removeprefix(folder.prefix) for key in self.objects if key.startswith(folder.prefix)]
        for key in sorted({folder.prefix + "".join(key.partition("/")[:2]) for key in inner}):
            yield key, None if key.endswith("/") else self.head(folder._replace(key=key))

    def get(self, url: StoreURL, begin: int = 0, num_bytes: int | None = None, version: str | None = None) -> Got:
        if url.key not in self.objects:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(url))
        data, found = self.objects[url.key]
        if version not in (None, found):
            raise PreconditionFailed
        if num_bytes is not None and begin >= len(data):
            raise OSError(errno.EINVAL, "behind the end")
        return Got(data[begin:] if num_bytes is None else data[begin : begin + num_bytes], len(data), found)

    def get_aged(self, url: StoreURL) -> tuple[bytes, str, float]:
        found = self.get(url)
        return found.data, found.version, 1e9

    def put(self, url: StoreURL, data: bytes, version: str | None = None) -> str:
        if version not in (None, self.objects.get(url.key, (b"", NEW))[1]):
            raise PreconditionFailed
        self._change(url.key, data)
        return self.objects[url.key][1]

    def delete(self, url: StoreURL) -> None:
        if url.key in self.objects:
            self._change(url.key, None)

    def delete_all(self, urls: list[StoreURL]) -> None:
        for url in urls:
            self.delete(url)

    def copy(self, source: StoreURL, target: StoreURL) -> None:
        self.put(target, self.get(source).data)

    def list_uploads(self, folder: StoreURL) -> Iterator[tuple[StoreURL, str]]:
        return iter(())


class MemoryBucket:
    """A new bucket, which commands of this process find."""

    url = "s3://memory"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests = MemoryRequests()
        store = ObjectStore(self.requests, self.requests)
        monkeypatch.setattr(storage, "_connect", lambda: store)

    def put(self, key: str, data: bytes) -> None:
        self.requests.objects[key] = data, key

    def delete(self, key: str) -> None:
        del self.requests.objects[key]

    def files(self, prefix: str = "") -> dict[str, bytes]:
        found = self.requests.objects.items()
        return {key.removeprefix(prefix): data for key, (data, _) in found if key.startswith(prefix)}

    def uploads(self) -> list[str]:
        return []
