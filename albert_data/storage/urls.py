"""URLs of objects, as in s3://bucket/key, as text and as paths.

A path of the standard library drops the second slash of s3://bucket, so there is a class of paths for stores.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, NamedTuple, cast

from albert_data.errors import StorageError
from albert_data.storage.status import Address

_SCHEME, _FILE_SCHEME = "s3", "file"
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(/?)")  # two letters or more: c:/ is a drive
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_QUERY = re.compile(r"\?[A-Za-z][\w-]*=")  # and not the ? of a glob


class StoreURL(NamedTuple):
    """The name of an object, of a prefix of keys, or of a bucket, whose key is empty."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{_SCHEME}://{self.bucket}{'/' if self.key else ''}{self.key}"

    @property
    def prefix(self) -> str:
        """What the keys of all objects in this folder begin with."""
        return f"{self.key}/" if self.key else ""

    def join(self, name: str) -> StoreURL:
        return self._replace(key=f"{self.prefix}{name}")


class StorePath(PurePosixPath):
    """The path of an object. It has the operations on names of `pathlib.Path`, and none that touches a file."""

    __slots__ = ()

    def __str__(self) -> str:
        text = super().__str__()
        scheme, colon, rest = text.partition(":/")
        return f"{scheme}://{rest}" if colon and scheme == _SCHEME else text

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(Path, name):
            raise StorageError(f"{self} is not on a disk, and this works on a disk alone; copy it to a disk first")
        raise AttributeError(name)


def parse_url(address: Address) -> StoreURL | None:
    """The parts of the URL of a store; None for a path on a disk. Raises StorageError for any other URL.

    Folders may end in a slash. pathlib's s3:/bucket counts, unless there is a folder named `s3:`.
    """
    text = os.fspath(address)
    if ":/" not in text or not (found := _URL.match(text)):
        return None
    scheme, second_slash = found.groups()
    if scheme == _FILE_SCHEME:
        return None
    # On a disk `corpus:/a.txt` is a file in the folder `corpus:`.
    is_path = isinstance(address, PurePath) and not isinstance(address, StorePath)
    if not second_slash and (not is_path or os.path.lexists(f"{scheme}:")):
        return None
    rest = text[found.end() :]
    shown = f"{scheme}://{_hide_secrets(rest)}"
    if scheme != _SCHEME:
        advice = "copy it to a disk first, or name a folder on a disk and copy that afterwards"
        if scheme == "gs":
            advice = "mount the bucket (gcsfuse), or copy it to or from a disk (gcloud storage cp)"
        raise StorageError(
            f"{shown} is not on a disk, and of other places only {_SCHEME}:// can be read and written; {advice}"
        )
    bucket, _, key = rest.partition("/")
    key = key.rstrip("/")
    if "@" in bucket or ":" in bucket or _QUERY.search(rest):
        raise StorageError(
            f"{shown} holds a user name, a password or a query, which would end up in files and messages; leave it "
            "out: credentials are taken from the environment (see docs/guides/stores.md)"
        )
    if not _BUCKET.fullmatch(bucket):
        raise StorageError(f"{shown} names no bucket; write {_SCHEME}://BUCKET/KEY")
    if key and any(part in ("", ".", "..") for part in key.split("/")):
        raise StorageError(f"{shown} has a part that is empty, . or .., which no path can have; rename the object")
    return StoreURL(bucket, key)


def _hide_secrets(rest: str) -> str:
    """The part of a URL after the slashes, without the user, the password and the query."""
    # A password may hold slashes: so all before the last @ is left out.
    bucket, slash, key = _QUERY.split(rest)[0].rpartition("@")[2].partition("/")
    return f"{bucket.partition(':')[0]}{slash}{key}"


def make_path(address: Address) -> Path:
    """A path on a disk or in a store. It is typed as one on a disk, since both have the same operations on names.

    Raises StorageError for a URL of another kind than s3:// and file://, and for what is no path.
    """
    if not isinstance(address, str | os.PathLike):
        raise StorageError(f"{address!r:.80} is no path; give a str or a Path, not {type(address).__name__}")
    if (url := parse_url(address)) is not None:
        return cast(Path, StorePath(str(url)))
    text = strip_file_scheme(address)
    try:
        is_path = text != "" and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # half of a surrogate pair
        is_path = False
    if not is_path:
        raise StorageError(f"{text!r:.80} is no path; name a file or folder, or . for the present folder")
    return Path(text)


def strip_file_scheme(address: Address) -> str:
    """The path on the disk that file:///path names; any other text as it is."""
    text = os.fspath(address)
    if isinstance(address, PurePath) and text.startswith("file:/") and not os.path.lexists("file:"):
        return text.removeprefix("file:")  # pathlib drops two of three slashes
    return text.removeprefix("file://") if text.startswith("file:///") else text


def is_remote(address: Address) -> bool:
    """Whether an address is in a store. Raises StorageError for a URL of another kind."""
    return parse_url(address) is not None


def resolve_url(address: Address) -> str:
    """A URL without `.` and `..`, which lead out of no bucket."""
    scheme, _, rest = str(StorePath(os.fspath(address))).partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}{os.path.normpath('/' + key).rstrip('/')}"
