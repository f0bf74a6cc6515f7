"""Single requests to a store of objects, in one interface, which `s3.py` and `gcs.py` have.

`Connection.repeat` says what each may raise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Protocol

from albert_data.errors import StorageError
from albert_data.storage.protocol import Status
from albert_data.storage.urls import StoreURL

# What a store has listed, for as long as nobody changes the files: one request tells of 1,000 objects.
# Of this thread alone: another one may change files of its own meanwhile.
_listed: ContextVar[dict[StoreURL, Status] | None] = ContextVar("listed", default=None)


@contextmanager
def remember_listings() -> Iterator[None]:
    """Within the block, a store is not asked again about what it has listed. For files that nobody changes."""
    token = _listed.set(_listed.get() or {})
    try:
        yield
    finally:
        _listed.reset(token)


def recall() -> dict[StoreURL, Status]:
    """What was listed in this block. Outside of one, a dictionary that nobody else sees."""
    known = _listed.get()
    return {} if known is None else known


NEW = "*"  # as the version of `put`: only if there is no object


class Found(NamedTuple):
    """An entry of a listing: an object, or a folder if `status` is None."""

    name: str
    status: Status | None

    @classmethod
    def of_folder(cls, parent: StoreURL, prefix: str) -> Found:
        """A folder, by what its keys begin with."""
        if name := prefix.removeprefix(parent.prefix).rstrip("/"):
            return cls(name, None)
        raise StorageError(
            f"{parent}// holds objects whose names have an empty part, which no path can have; rename them"
        )


class Got(NamedTuple):
    """Some bytes of an object; the size and the version of the whole."""

    data: bytes
    num_bytes: int
    version: str


class Requests(Protocol):
    """The requests that a storage of objects makes. most_deletes: objects for one call of `delete_all`."""

    most_deletes: int

    # ---- looking ----

    def head(self, url: StoreURL) -> Status:
        """The status of an object."""

    def check_bucket(self, url: StoreURL) -> None:
        """Raise StorageError if there is no such bucket, or if it may not be listed."""

    def is_folder(self, url: StoreURL) -> bool:
        """Whether there is an object in a folder, or one that marks an empty folder: its key ends in a slash."""

    def entries(self, folder: StoreURL) -> Iterator[Found]:
        """What lies directly in a folder, a page at a time."""

    # ---- reading ----

    def get(self, url: StoreURL, begin: int = 0, num_bytes: int | None = None, version: str | None = None) -> Got:
        """Bytes of an object from `begin` on. version: the only one that may be read."""

    def get_aged(self, url: StoreURL) -> tuple[bytes, str, float]:
        """All of an object, its version, and the seconds since it was put, by the store's own clock."""

    # ---- writing ----

    def put(self, url: StoreURL, data: bytes, version: str | None = None) -> str:
        """Put an object, and return its version. version: the one to replace, or NEW; None for any."""

    def delete(self, url: StoreURL) -> None:
        """Delete an object, if it is there."""

    def delete_all(self, urls: list[StoreURL]) -> None:
        """Delete objects of one bucket, if they are there."""

    def copy(self, source: StoreURL, target: StoreURL) -> None:
        """Copy an object within the store."""

    def begin_upload(self, url: StoreURL) -> str:
        """Begin an upload in parts; returns its id."""

    def upload_part(self, url: StoreURL, upload: str, number: int, begin: int, data: bytes) -> str:
        """Upload a part, of 5 MiB or more and a multiple of 256 KiB; returns its version.

        number: from 1 on, in order. begin: the part's place in the object, in bytes.
        """

    def complete_upload(self, url: StoreURL, upload: str, parts: list[str], num_bytes: int, rest: bytes = b"") -> None:
        """Make an object of the parts, which are given by their versions, and of the rest, which may be short.

        num_bytes: of all of it.
        """

    def abort_upload(self, url: StoreURL, upload: str) -> None:
        """End an upload, and remove its parts."""

    def list_uploads(self, folder: StoreURL) -> Iterator[tuple[StoreURL, str]]:
        """The keys and ids of uploads into a folder, or one below it, that were never completed.

        Empty for a store that can't list them.
        """
