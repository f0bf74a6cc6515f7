"""A store of objects, s3://: whole objects under flat keys, in which `/` makes folders.

There are no renames, links or empty folders, and nothing to sync: what is put is safe and seen by all at once.
docs/guides/stores.md says what each operation does, and how many requests it makes.
"""

from __future__ import annotations

import errno
import fnmatch
import glob
import io
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from albert_data.errors import StorageError
from albert_data.storage.cache import get_copy
from albert_data.storage.disk import Item, Result
from albert_data.storage.listings import recall
from albert_data.storage.locks import LOCK_READ_SECONDS, StoreLock, strip_state
from albert_data.storage.retries import NEW, Got, PreconditionFailed
from albert_data.storage.status import FOLDER, Address, Status
from albert_data.storage.urls import StoreURL, make_path, parse_url, resolve_url

if TYPE_CHECKING:
    import pyarrow

    from albert_data.storage.s3 import S3

_FOLDER = Status(FOLDER, 0, 0, None)
_FIRST_READ_BYTES, _LARGEST_READ_BYTES = 64 << 10, 8 << 20
LARGEST_COPY_BYTES = 5 << 30  # by one request of S3; what is larger is read and written again
PART_BYTES = 64 << 20  # of an upload, which has at most 10,000: a shard of the default size is one put
_REQUESTS_AT_ONCE = 32  # as many connections as s3.py keeps
_MOST_DELETES = 1000  # by one request
_READ_SECONDS = 60.0
_WORKING_FOLDERS = {".build", ".convert", ".vocab"}


class ObjectStore:
    """The objects of a store. `Disk` says what each operation promises."""

    def __init__(self, requests: S3, lock_requests: S3) -> None:
        """lock_requests: those of locks, which expire while a request waits for a connection that has stalled."""
        self._requests, self._lock_requests = requests, lock_requests
        self._locks: dict[StoreURL, StoreLock] = {}

    # ---- looking ----

    def status(self, path: Address, *, follow: bool = True) -> Status:
        url = _parse(path)
        if (known := recall().get(url)) is not None:
            return known
        if not url.key:
            self._requests.is_folder(url)  # raises StorageError if there is no such bucket
            return _FOLDER
        try:
            return self._requests.head(url)
        except FileNotFoundError:
            if self._requests.is_folder(url):
                return _FOLDER
            raise

    def resolve(self, path: Address) -> str:
        text = os.fspath(path)
        if "\0" in text:
            raise ValueError("embedded null byte")
        return resolve_url(text)

    def _scan(self, folder: StoreURL) -> Iterator[tuple[str, bool]]:
        """Names in a folder, and whether each is a folder."""
        known = recall()
        for key, status in self._requests.entries(folder):
            if name := key.removeprefix(folder.prefix).removesuffix("/"):
                known[folder.join(name)] = status or _FOLDER
                yield name, status is None
            elif status is None:
                raise StorageError(
                    f"{folder}// holds objects whose names have an empty part, which no path can have; rename them"
                )

    def list_names(self, folder: Path) -> list[str]:
        return sorted({name for name, _ in self._scan(_parse(folder))})

    def walk(self, folder: Address, refuse: Callable[[OSError], object]) -> Iterator[tuple[str, list[str], list[str]]]:
        url = _parse(folder)
        try:
            found = list(self._scan(url))
        except OSError as error:
            refuse(error)
            return
        folders = [name for name, is_folder in found if is_folder]
        yield str(url), folders, [name for name, is_folder in found if not is_folder]
        for name in folders:  # those that the caller left in the list
            yield from self.walk(str(url.join(name)), refuse)

    def glob(self, pattern: str) -> Iterator[str]:
        url = _parse(pattern)
        # A name may be both an object and a folder, and then comes twice.
        yield from dict.fromkeys(map(str, self._match(url._replace(key=""), url.key.split("/"))))

    def _match(self, folder: StoreURL, parts: list[str]) -> Iterator[StoreURL]:
        """What matches a pattern below a folder, by the rules of Python's glob. parts: of the pattern, one a folder."""
        part, rest = parts[0], parts[1:]
        if not glob.has_magic(part):
            inner = folder.join(part)
            if rest:
                yield from self._match(inner, rest)
            else:
                with suppress(FileNotFoundError):
                    self.status(str(inner))
                    yield inner
            return
        is_deep = part == "**"
        if is_deep and rest:
            yield from self._match(folder, rest)
        for name, is_folder in list(self._scan(folder)):
            is_hidden = name.startswith(".") and not part.startswith(".")
            if is_hidden or not fnmatch.fnmatchcase(name, part):
                continue
            if not rest:
                yield folder.join(name)
            if is_folder and (rest or is_deep):
                yield from self._match(folder.join(name), parts if is_deep else rest)

    # ---- reading ----

    def open(self, path: Address, known: Status | None = None) -> io.BufferedReader:
        version = None if known is None else str(known.version)
        return io.BufferedReader(_ObjectFile(self._requests, _parse(path), version), _FIRST_READ_BYTES)

    def read(self, path: Path, most: int) -> bytes:
        got = _get(self._requests, _parse(path), 0, most + 1)
        if got.num_bytes > most:
            raise ValueError(f"it has {got.num_bytes:,} bytes; at most {most:,} are allowed")
        return got.data

    def read_into(self, path: Path, begin: int, buffer: memoryview) -> int:
        if not len(buffer):
            return 0
        data = _get(self._requests, _parse(path), begin, len(buffer)).data
        buffer[: len(data)] = data
        return len(data)

    def map(self, path: Path, sha256: str | None = None) -> pyarrow.Buffer:
        import pyarrow

        while True:
            copy = get_copy(self._requests, _parse(path), sha256)
            with suppress(FileNotFoundError), pyarrow.memory_map(os.fsencode(copy)) as file:
                return file.read_buffer()
            # Another process needed the room, and removed the copy before it was mapped.

    def at_once(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        ahead = deque[Future[Result]]()  # a bounded number, or results would pile up
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
            try:
                for item in items:
                    # Each call has a context of its own, in which it knows what was listed.
                    ahead.append(pool.submit(copy_context().run, work, item))
                    if len(ahead) > 2 * _REQUESTS_AT_ONCE:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    # ---- writing ----

    @contextmanager
    def create(self, path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
        upload = _Upload(self._requests, _parse(path))
        try:
            yield cast(BinaryIO, upload)
            upload.complete()
        except BaseException:
            upload.abort()
            raise

    def replace_together(self, folder: Path, files: Mapping[str, bytes]) -> None:
        url = _parse(folder)
        for name in reversed(list(files)):
            self._requests.delete(url.join(name))
        for name, data in files.items():
            self._requests.put(url.join(name), data)

    def place(self, folder: Path, files: Mapping[str, Path]) -> None:
        url = _parse(folder)
        for _ in self.at_once(lambda name: self._copy(url.join(name), _parse(files[name])), files):
            pass
        self.remove_all(files.values())

    def publish(self, folder: Path, files: Mapping[str, Path]) -> None:
        url = _parse(folder)
        *others, last = files
        self._check_locks(url)
        self.place(folder, {name: files[name] for name in others})
        self._check_locks(url)
        target, source = url.join(last), _parse(files[last])
        try:
            data = self._requests.get(source).data
        except FileNotFoundError:
            self._requests.head(target)  # published before a kill; raises FileNotFoundError if it was not
            return
        self._put_new(target, data)
        self._requests.delete(source)

    def _copy(self, target: StoreURL, source: StoreURL) -> None:
        try:
            if self._requests.head(source).num_bytes <= LARGEST_COPY_BYTES:
                self._requests.copy(source, target)
                return
            with self.open(str(source)) as file, self.create(make_path(str(target))) as copied:
                shutil.copyfileobj(file, copied, _LARGEST_READ_BYTES)
        except FileNotFoundError:
            self._requests.head(target)  # it was moved before a kill; raises FileNotFoundError if it was not

    def _put_new(self, target: StoreURL, data: bytes) -> None:
        try:
            self._requests.put(target, data, NEW)
        except PreconditionFailed as error:
            if self._requests.get(target).data != data:  # else it is this very put, whose answer was lost
                raise OSError(errno.EEXIST, "another process has published here meanwhile", str(target)) from error

    def _check_locks(self, folder: StoreURL) -> None:
        for lock in list(self._locks.values()):
            if lock.url.bucket == folder.bucket and lock.url.key.startswith(folder.prefix):
                lock.check(asks=True)

    def sync(self, path: Path) -> None:
        pass

    make_folder = remove_empty = sync  # there are no folders

    def remove(self, path: Path) -> None:
        url = _parse(path)
        if (lock := self._locks.get(url)) is not None:
            lock.check(asks=True)  # or the lock of another would go
            lock.forget()
            del self._locks[url]
        recall().pop(url, None)
        self._requests.delete(url)

    def remove_all(self, paths: Iterable[Path]) -> None:
        urls = map(_parse, paths)
        batches = iter(lambda: list(islice(urls, _MOST_DELETES)), [])
        for _ in self.at_once(self._requests.delete_all, batches):
            pass

    def remove_leftovers(self, folder: Path) -> None:
        """Abort the uploads to a working folder, which are ours. Elsewhere they may be of another program."""
        url = _parse(folder)
        if _WORKING_FOLDERS.isdisjoint(url.key.split("/")):
            return
        with suppress(StorageError):  # not permitted: a rule of the bucket may abort them (docs/guides/stores.md)
            for target, upload in list(self._requests.list_uploads(url)):
                with suppress(FileNotFoundError):
                    self._requests.abort_upload(target, upload)

    def lock(self, path: Path, mark: bytes, seconds: float) -> Callable[[], None]:
        url = _parse(path)
        self._locks[url] = lock = StoreLock(self._lock_requests, url, mark)

        def free() -> None:
            if self._locks.get(url) is lock:
                del self._locks[url]
            lock.free()

        return free

    def check_lock(self, path: Path, *, asks: bool = True) -> None:
        if (lock := self._locks.get(_parse(path))) is not None:
            lock.check(asks=asks)

    def read_mark(self, path: Path) -> bytes:
        return strip_state(self.open(path).read())


def make_store() -> ObjectStore:
    """A connection to the store. Raises ModuleNotFoundError if s3fs is missing."""
    from albert_data.storage.s3 import S3

    return ObjectStore(S3(_READ_SECONDS), S3(LOCK_READ_SECONDS))


def _parse(path: Address) -> StoreURL:
    url = parse_url(path)
    if url is None:
        raise StorageError(f"{os.fspath(path)} is a path on the disk, where one in a store is needed")
    return url


def _get(store: S3, url: StoreURL, begin: int, num_bytes: int, version: str | None = None) -> Got:
    """Some bytes of an object, fewer at its end."""
    try:
        return store.get(url, begin, num_bytes, version)
    except PreconditionFailed as error:
        raise OSError(errno.ESTALE, "it was replaced while it was read", str(url)) from error
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    status = store.head(url)  # the range begins at the end of the object, or behind it
    return Got(b"", status.num_bytes, str(status.version))


class _ObjectFile(io.RawIOBase):
    """An object that is read by ranges, all of one version. The ranges grow while it is read in order."""

    def __init__(self, store: S3, url: StoreURL, version: str | None = None) -> None:
        """The first range is read at once: it gives the size. Raises FileNotFoundError. version: None for any."""
        self._store, self._url = store, url
        self._block, self._num_bytes, self._version = _get(store, url, 0, _FIRST_READ_BYTES, version)
        self._block_at = self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._num_bytes}[whence]
        if origin + offset < 0:
            raise ValueError("a position before the beginning of the file")
        self._position = origin + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        out = memoryview(buffer).cast("B")
        left = self._num_bytes - self._position
        if left <= 0 or not len(out):
            return 0
        end = self._block_at + len(self._block)
        if not self._block_at <= self._position < end:
            size = min(2 * len(self._block), _LARGEST_READ_BYTES) if self._position == end else 0
            size = min(max(size, len(out), _FIRST_READ_BYTES), left)
            self._block = _get(self._store, self._url, self._position, size, self._version).data
            self._block_at = self._position
        at = self._position - self._block_at
        part = self._block[at : at + len(out)]
        out[: len(part)] = part
        self._position += len(part)
        return len(part)


class _Upload(io.RawIOBase):
    """An object that is written in order: by one request if it is small, else by an upload in parts.

    It has its key when all of it is there. What a kill leaves is an upload without a key, which
    `Storage.remove_leftovers` aborts.
    """

    def __init__(self, store: S3, url: StoreURL) -> None:
        self._store, self._url = store, url
        self._buffer, self._upload = io.BytesIO(), ""  # its `getvalue` copies nothing
        self._parts: list[str] = []
        self._num_bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._num_bytes

    def write(self, data: Any) -> int:
        taken = rest = memoryview(data).cast("B")
        while rest:
            room = PART_BYTES - self._buffer.tell()
            self._num_bytes += self._buffer.write(rest[:room])
            if len(rest) >= room:
                self._send()
            rest = rest[room:]
        return len(taken)

    def _send(self) -> None:
        if not self._upload:
            self._upload = self._store.begin_upload(self._url)
        data, self._buffer = self._buffer.getvalue(), io.BytesIO()
        self._parts.append(self._store.upload_part(self._url, self._upload, len(self._parts) + 1, data))

    def complete(self) -> None:
        if not self._upload:
            self._store.put(self._url, self._buffer.getvalue())
            return
        if self._buffer.tell():
            self._send()
        try:
            self._store.complete_upload(self._url, self._upload, self._parts)
        except FileNotFoundError:
            # It may have been completed by a request whose answer was lost.
            if self._store.head(self._url).num_bytes != self._num_bytes:
                raise

    def abort(self) -> None:
        """Leave nothing in the store. Raises nothing: what failed before is the error to report."""
        if self._upload:
            with suppress(OSError, StorageError):
                self._store.abort_upload(self._url, self._upload)
