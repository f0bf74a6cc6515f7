"""Requests to Google Cloud Storage: its JSON API, with the credentials of the library google-auth.

A version is the generation of an object. Sources: "JSON API" and "Resumable uploads" in Google's documentation.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import quote

import google.auth
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from requests.adapters import HTTPAdapter

from albert_data.storage.retries import CONNECT_SECONDS, NEW, Connection, Got, PreconditionFailed, Refusal
from albert_data.storage.status import FILE, Status
from albert_data.storage.urls import StoreURL

PAGE_ENTRIES = 1000  # the most that Google gives
_ADDRESS = "https://storage.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_STORED_SIZE = "x-goog-stored-content-length"
_CONNECTIONS = 32
_STATUS_FIELDS = "size,generation,timeCreated"
_UNFINISHED, _CANCELLED = 308, 499  # what Google answers to a part, and to the end of an upload
_REASON = re.compile(rb'"reason": *"(\w+)"')


class _Reply(NamedTuple):
    """values: the body's JSON, if it has some."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    values: dict[str, Any]


class GCS(Connection[AuthorizedSession]):
    """The requests of `S3`, made of Google's."""

    most_deletes = 1  # Google's batches are no single requests

    def _connect(self) -> AuthorizedSession:
        if "STORAGE_EMULATOR_HOST" in os.environ:
            credentials = AnonymousCredentials()
        else:
            credentials, _ = google.auth.default(scopes=[_SCOPE])
        session = AuthorizedSession(credentials)
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS))
        return session

    def _call(self, url: StoreURL, method: str, path: str, *, missing: str = "NoSuchKey", **arguments: Any) -> _Reply:
        """One request. missing: what is not there if the answer is 404; arguments: of `_send`."""
        address = os.environ.get("STORAGE_EMULATOR_HOST", _ADDRESS).rstrip("/") + path
        return self.repeat(url, lambda: self._send(method, address, missing, **arguments))

    def _send(
        self, method: str, address: str, missing: str, *, headers: Mapping[str, str] | None = None, **arguments: Any
    ) -> _Reply:
        """arguments: `params` and `data`, as requests has them."""
        is_media = arguments.get("params", {}).get("alt") == "media"
        headers = {"Accept-Encoding": "gzip", **(headers or {})}  # or Google unpacks what was put as gzip
        with self.client().request(
            method,
            address,
            headers=headers,
            timeout=(min(CONNECT_SECONDS, self.read_seconds), self.read_seconds),
            stream=True,
            allow_redirects=False,
            **arguments,
        ) as answer:
            body = answer.raw.read(decode_content=not is_media or answer.status_code >= 400)
            status, is_whole = answer.status_code, answer.raw.tell() >= int(answer.headers.get("Content-Length", 0))
        if not is_whole:
            raise ConnectionError("the answer broke off")
        if status >= 400 and status != _CANCELLED:
            reason = found[1].decode() if (found := _REASON.search(body)) else str(status)
            if status in (404, 410):
                reason = "NoSuchBucket" if b"bucket does not exist" in body else missing
            raise Refusal(reason, status)
        if (300 <= status < 400 and status != _UNFINISHED) or (is_media and _STORED_SIZE not in answer.headers):
            raise ValueError("not an answer of Google's store")
        values = json.loads(body) if body and not is_media and status < 300 else {}
        return _Reply(status, answer.headers, body, values)

    # ---- looking ----

    def head(self, url: StoreURL) -> Status:
        return _status_of(self._call(url, "GET", _path(url), params={"fields": _STATUS_FIELDS}).values)

    def is_folder(self, url: StoreURL) -> bool:
        return any(page.get("items") for page in self._list(url, prefix=url.prefix, maxResults="1"))

    def _list(self, url: StoreURL, **params: str) -> Iterator[dict[str, Any]]:
        """Pages of a listing. One may be empty although others follow."""
        bucket = url._replace(key="")
        params["fields"] = f"nextPageToken,prefixes,items(name,{_STATUS_FIELDS})"
        while True:
            page = self._call(bucket, "GET", _path(bucket), missing="NoSuchBucket", params=params).values
            yield page
            if "nextPageToken" not in page:
                return
            params["pageToken"] = page["nextPageToken"]

    def entries(self, folder: StoreURL) -> Iterator[tuple[str, Status | None]]:
        for page in self._list(folder, prefix=folder.prefix, delimiter="/", maxResults=str(PAGE_ENTRIES)):
            yield from ((inner, None) for inner in page.get("prefixes", ()))
            yield from ((item["name"], _status_of(item)) for item in page.get("items", ()))

    # ---- reading ----

    def get(self, url: StoreURL, begin: int = 0, num_bytes: int | None = None, version: str | None = None) -> Got:
        params = {"alt": "media"} if version is None else {"alt": "media", "ifGenerationMatch": version}
        headers = {} if num_bytes is None else {"Range": f"bytes={begin}-{begin + num_bytes - 1}"}
        answer = self._call(url, "GET", _path(url), params=params, headers=headers)
        size = int(answer.headers[_STORED_SIZE])
        return Got(answer.body, size, answer.headers["x-goog-generation"])

    def get_aged(self, url: StoreURL) -> tuple[bytes, str, float]:
        while True:
            answer = self._call(url, "GET", _path(url), params={"fields": _STATUS_FIELDS})
            now, values = parsedate_to_datetime(answer.headers["Date"]), answer.values
            with suppress(PreconditionFailed):  # it was replaced between the two requests
                got = self.get(url, version=values["generation"])
                return got.data, got.version, (now - _parse_time(values)).total_seconds()

    # ---- writing ----

    def put(self, url: StoreURL, data: bytes, version: str | None = None) -> str:
        params = {"uploadType": "media", "name": url.key, "fields": "generation"}
        if version is not None:
            params["ifGenerationMatch"] = "0" if version == NEW else version
        return str(self._insert(url, params, data).values["generation"])

    def _insert(self, url: StoreURL, params: Mapping[str, str], data: bytes) -> _Reply:
        path = f"/upload{_path(url._replace(key=''))}"
        headers = {"Content-Type": "application/octet-stream"}
        return self._call(url, "POST", path, missing="NoSuchBucket", params=params, data=data, headers=headers)

    def delete(self, url: StoreURL) -> None:
        with suppress(FileNotFoundError):
            self._call(url, "DELETE", _path(url))

    def delete_all(self, urls: list[StoreURL]) -> None:
        for url in urls:
            self.delete(url)

    def copy(self, source: StoreURL, target: StoreURL) -> None:
        path, params = f"{_path(source)}/rewriteTo{_path(target, '')}", {"fields": "done,rewriteToken"}
        # A large copy between places or classes of storage takes several requests.
        while not (values := self._call(source, "POST", path, params=params).values)["done"]:
            params["rewriteToken"] = values["rewriteToken"]

    def begin_upload(self, url: StoreURL) -> str:
        """The id is the address of the upload, which works without credentials. So it is a secret."""
        answer = self._insert(url, {"uploadType": "resumable", "name": url.key}, b"")
        return answer.headers["Location"]

    def upload_part(self, url: StoreURL, upload: str, number: int, begin: int, data: bytes) -> str:
        self._upload(url, upload, begin, data, "*")
        return ""

    def complete_upload(self, url: StoreURL, upload: str, parts: list[str], num_bytes: int, rest: bytes = b"") -> None:
        self._upload(url, upload, num_bytes - len(rest), rest, str(num_bytes))

    def _upload(self, url: StoreURL, upload: str, begin: int, data: bytes, total: str) -> None:
        """Send bytes until the store holds them all. total: of the object, with the last bytes; otherwise "*"."""
        end = begin + len(data)
        held = begin

        def request() -> None:
            nonlocal held
            place = f"{held}-{end - 1}" if held < end else "*"
            headers = {"Content-Range": f"bytes {place}/{total}"}
            answer = self._send("PUT", upload, "NoSuchUpload", data=data[held - begin :], headers=headers)
            if answer.status == _UNFINISHED:
                first, _, last = answer.headers.get("Range", "").rpartition("-")
                held = max(held, int(last) + 1) if first else held
                if held < end or total != "*":
                    raise ConnectionError("the store took only some of the bytes")  # the others are sent next

        self.repeat(url, request)

    def abort_upload(self, url: StoreURL, upload: str) -> None:
        self.repeat(url, lambda: self._send("DELETE", upload, "NoSuchUpload"))

    def list_uploads(self, folder: StoreURL) -> Iterator[tuple[StoreURL, str]]:
        """Google lists none. It removes them after a week."""
        return iter(())


def _path(url: StoreURL, root: str = "/storage/v1") -> str:
    """The path of an object, or of a bucket's objects."""
    return f"{root}/b/{url.bucket}/o" + (f"/{quote(url.key, safe='')}" if url.key else "")


def _parse_time(values: Mapping[str, Any]) -> datetime:
    """When an object was put. Its metadata may be changed later."""
    return datetime.fromisoformat(values["timeCreated"])


def _status_of(values: Mapping[str, Any]) -> Status:
    made = int(_parse_time(values).timestamp()) * 10**9
    return Status(FILE, int(values.get("size", 0)), made, values["generation"])
