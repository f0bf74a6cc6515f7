"""Where files lie: on a disk, or in a store of objects, s3://.

Every reader and writer of corpus/, pipeline/, shards/ and convert/ asks `find_storage` for the storage of a path, and
touches no file in another way. `Disk` says what each operation promises, and docs/guides/stores.md what a store does.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Union

from albert_data.errors import StorageError
from albert_data.storage.disk import Disk
from albert_data.storage.listings import remember_listings
from albert_data.storage.status import DEVICE, FILE, FOLDER, KIND_NAMES, LINK, PIPE, SOCKET, Address, Status
from albert_data.storage.urls import is_remote, make_path, strip_file_scheme

if TYPE_CHECKING:
    from albert_data.storage.objects import ObjectStore

__all__ = ["DEVICE", "FILE", "FOLDER", "KIND_NAMES", "LINK", "PIPE", "SOCKET", "Address", "Disk", "Status", "Storage"]
__all__ += ["find_kind", "find_storage", "is_remote", "make_path", "remember_listings", "strip_file_scheme"]
Storage = Union[Disk, "ObjectStore"]  # noqa: UP007  # the second is imported when a store is used
_disk = Disk()


def find_storage(path: Address) -> Storage:
    """The storage of a path. Raises StorageError for a URL of another kind or with a password, and without s3fs."""
    return _connect() if is_remote(path) else _disk


@cache
def _connect() -> ObjectStore:
    try:
        from albert_data.storage.objects import make_store

        return make_store()
    except ImportError as error:
        raise StorageError("s3:// needs s3fs; install it with: pip install 'albert-data[s3]'") from error


def find_kind(path: Address, *, follow: bool = True) -> str | None:
    """What lies at a path: FILE, FOLDER, ...; None for nothing, or if the system does not say.

    follow: if it is a link, what it leads to; None if it leads to nothing. Raises StorageError as `find_storage` does,
    and for a store that can't be reached or does not permit the question.
    """
    storage = find_storage(path)
    try:
        return storage.status(path, follow=follow).kind
    except (OSError, ValueError):  # ValueError: a zero byte
        return None
