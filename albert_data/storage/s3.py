"""Requests to S3 and to stores that speak its protocol, through s3fs.

s3fs holds the settings (environment, profiles, endpoint), the sessions and the sockets. Its file objects and its caches
of listings are not used: what a build needs are single requests, whose conditions and failures it decides itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from fsspec.asyn import sync
from s3fs import S3FileSystem

from albert_data.errors import StorageError
from albert_data.storage.retries import CONNECT_SECONDS, NEW, Connection, Got
from albert_data.storage.status import FILE, Status
from albert_data.storage.urls import StoreURL

PAGE_ENTRIES = 1000  # the most that S3 gives
_ATTEMPTS = 3  # by botocore, which repeats at once what is likely to succeed then


class S3(Connection):
    """The requests that a store of objects is asked. `Connection.repeat` says what they raise."""

    def _connect(self) -> S3FileSystem:
        settings = {
            "retries": {"mode": "standard", "total_max_attempts": _ATTEMPTS},
            "connect_timeout": min(CONNECT_SECONDS, self.read_seconds),
            "read_timeout": self.read_seconds,
            "max_pool_connections": 32,
        }
        store = S3FileSystem(skip_instance_cache=True, use_listings_cache=False, config_kwargs=settings)
        store.retries = 1
        store.connect()  # before another thread sees it: s3fs is not ready for two at once until then
        return store

    def _call(self, method: str, url: StoreURL, **arguments: Any) -> Mapping[str, Any]:
        """One request for an object, or for the bucket where the URL has no key."""
        key = {"Key": url.key} if url.key else {}
        return self.repeat(url, lambda: self.client().call_s3(method, Bucket=url.bucket, **key, **arguments))

    # ---- looking ----

    def head(self, url: StoreURL) -> Status:
        """The status of an object."""
        answer = self._call("head_object", url)
        return _status_of(answer["ContentLength"], answer["LastModified"], answer["ETag"])

    def is_folder(self, url: StoreURL) -> bool:
        """Whether there is an object in a folder, or one that marks an empty folder: its key ends in a slash.

        Raises StorageError if there is no such bucket, or if it may not be listed.
        """
        page = self._call("list_objects_v2", url._replace(key=""), Prefix=url.prefix, MaxKeys=1)
        return bool(page.get("Contents"))

    def entries(self, folder: StoreURL) -> Iterator[tuple[str, Status | None]]:
        """The keys directly in a folder, with the status of objects; those of folders end in a slash, and have none."""
        bucket, prefix, more = folder._replace(key=""), folder.prefix, dict[str, str]()
        while True:
            page = self._call("list_objects_v2", bucket, Prefix=prefix, Delimiter="/", MaxKeys=PAGE_ENTRIES, **more)
            for entry in page.get("CommonPrefixes", ()):
                yield entry["Prefix"], None
            for entry in page.get("Contents", ()):
                yield entry["Key"], _status_of(entry["Size"], entry["LastModified"], entry["ETag"])
            if not page.get("IsTruncated"):
                return
            more["ContinuationToken"] = page["NextContinuationToken"]

    # ---- reading ----

    def get(self, url: StoreURL, begin: int = 0, num_bytes: int | None = None, version: str | None = None) -> Got:
        """Bytes of an object from `begin` on. version: the only one that may be read."""
        arguments: dict[str, Any] = {} if version is None else {"IfMatch": version}
        if num_bytes is not None:
            arguments["Range"] = f"bytes={begin}-{begin + num_bytes - 1}"
        data, answer = self._fetch(url, arguments)
        return Got(data, _find_size(answer), answer["ETag"])

    def get_aged(self, url: StoreURL) -> tuple[bytes, str, float]:
        """All of an object, its version, and the seconds since it was put, by the store's own clock."""
        data, answer = self._fetch(url, {})
        now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return data, str(answer["ETag"]), (now - answer["LastModified"]).total_seconds()

    def _fetch(self, url: StoreURL, arguments: Mapping[str, Any]) -> tuple[bytes, Mapping[str, Any]]:
        async def fetch(store: S3FileSystem) -> tuple[bytes, Mapping[str, Any]]:
            answer = await store._call_s3("get_object", Bucket=url.bucket, Key=url.key, **arguments)
            async with answer["Body"] as body:
                return await body.read(), answer

        def request() -> tuple[bytes, Mapping[str, Any]]:
            store = self.client()
            data, answer = sync(store.loop, fetch, store)
            if len(data) != answer["ContentLength"]:
                raise ConnectionError("the answer broke off")
            return data, answer

        return self.repeat(url, request)

    # ---- writing ----

    def put(self, url: StoreURL, data: bytes, version: str | None = None) -> str:
        """Put an object, and return its version. version: the one to replace, or NEW; None for any."""
        condition = {} if version is None else {"IfNoneMatch": "*"} if version == NEW else {"IfMatch": version}
        return str(self._call("put_object", url, Body=data, **condition)["ETag"])

    def delete(self, url: StoreURL) -> None:
        """Delete an object, if it is there."""
        self._call("delete_object", url)

    def delete_all(self, urls: list[StoreURL]) -> None:
        """Delete objects of one bucket, if they are there."""
        listed = {"Objects": [{"Key": url.key} for url in urls], "Quiet": True}
        try:
            refused = self._call("delete_objects", urls[0]._replace(key=""), Delete=listed).get("Errors", ())
        except (StorageError, FileNotFoundError):  # some stores know no such request, or not its checksum
            refused = listed["Objects"]
        for entry in refused:
            self.delete(urls[0]._replace(key=entry["Key"]))  # says what is wrong

    def copy(self, source: StoreURL, target: StoreURL) -> None:
        """Copy an object of at most 5 GiB within the store."""
        self._call("copy_object", target, CopySource={"Bucket": source.bucket, "Key": source.key})

    def begin_upload(self, url: StoreURL) -> str:
        """Begin an upload in parts; returns its id."""
        return str(self._call("create_multipart_upload", url)["UploadId"])

    def upload_part(self, url: StoreURL, upload: str, number: int, data: bytes) -> str:
        """Upload a part, of 5 MiB or more unless it is the last; returns its version. number: from 1 on."""
        answer = self._call("upload_part", url, UploadId=upload, PartNumber=number, Body=data)
        return str(answer["ETag"])

    def complete_upload(self, url: StoreURL, upload: str, parts: list[str]) -> None:
        """Make an object of the parts, which are given by their versions.

        Raises FileNotFoundError also if an earlier request did it, whose answer was lost.
        """
        listed = [{"PartNumber": number, "ETag": part} for number, part in enumerate(parts, 1)]
        self._call("complete_multipart_upload", url, UploadId=upload, MultipartUpload={"Parts": listed})

    def abort_upload(self, url: StoreURL, upload: str) -> None:
        """End an upload, and remove its parts."""
        self._call("abort_multipart_upload", url, UploadId=upload)

    def list_uploads(self, folder: StoreURL) -> Iterator[tuple[StoreURL, str]]:
        """The keys and ids of uploads into a folder, or one below it, that were never completed."""
        bucket, more = folder._replace(key=""), dict[str, Any]()
        while True:
            page = self._call("list_multipart_uploads", bucket, Prefix=folder.prefix, **more)
            for entry in page.get("Uploads", ()):
                yield folder._replace(key=entry["Key"]), entry["UploadId"]
            if not page.get("IsTruncated"):
                return
            more = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


def _find_size(answer: Mapping[str, Any]) -> int:
    """Of the whole object, in bytes."""
    return int(answer.get("ContentRange", "").rpartition("/")[2] or answer["ContentLength"])


def _status_of(num_bytes: int, modified: datetime, version: str) -> Status:
    """Listings may give fractions of a second, where answers about an object give whole ones."""
    return Status(FILE, num_bytes, int(modified.timestamp()) * 10**9, version)
