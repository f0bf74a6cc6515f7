"""An imitation of Google Cloud Storage on this machine, in memory: the requests of its JSON API that are made.

Written after Google's documentation. It refuses what Google refuses: parts that are no multiple of 256 KiB or have a
gap before them, and conditions that do not hold.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from reliability.object_server import Server

_OBJECT = re.compile(r"(/upload)?/storage/v1/b/([^/]+)/o(?:/([^/]+))?(?:/rewriteTo/b/([^/]+)/o/([^/]+))?")
_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_QUANTUM_BYTES = 256 << 10
_COPY_BYTES = 1 << 20  # a larger copy takes more than one request
_Reply = tuple[int, dict[str, str], bytes]  # status, headers, body


@dataclass(frozen=True)
class Object:
    data: bytes
    generation: str
    created: str
    encoding: str = ""

    def describe(self, name: str) -> dict[str, str]:
        created, size = self.created, str(len(self.data))
        return {"name": name, "size": size, "generation": self.generation, "timeCreated": created}


class _Refusal(Exception):
    def __init__(self, status: int, reason: str, message: str = "no") -> None:
        super().__init__(reason)
        error = {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}
        self.status, self.body = status, json.dumps({"error": error}).encode()


@dataclass
class _Upload:
    bucket: str
    params: dict[str, str]
    held: bytearray
    answer: _Reply | None = None


class GoogleStore:
    """A WSGI application. most_bytes: of a part that are kept; token: that requests must have."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, Object]] = {}
        self.uploads: dict[str, _Upload] = {}
        self.most_bytes, self.token = 1 << 30, ""
        self._generations, self._numbers = count(time.time_ns() // 1000), count(1)
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        try:
            with self._lock:
                status, headers, answer = self._route(environ, body)
        except _Refusal as refusal:
            status, headers, answer = refusal.status, {}, refusal.body
        start(f"{status} Status", [*{**headers, "Content-Length": str(len(answer))}.items()])
        return [answer]

    def _route(self, environ: dict[str, Any], body: bytes) -> _Reply:
        method, address = environ["REQUEST_METHOD"], urlsplit(environ["REQUEST_URI"])
        params = dict(parse_qsl(address.query))
        if address.path == "/token":
            return 200, {}, json.dumps({"access_token": self.token, "expires_in": 3600}).encode()
        if address.path.startswith("/session/"):
            return self._take_part(method, address.path, environ.get("HTTP_CONTENT_RANGE", ""), body)
        if self.token and environ.get("HTTP_AUTHORIZATION") != f"Bearer {self.token}":
            raise _Refusal(401, "authError")
        if (found := _OBJECT.fullmatch(address.path)) is None:
            raise _Refusal(400, "invalid")
        is_upload, name, key, other, target = (unquote(part or "") for part in found.groups())
        bucket = self._find(name)
        if is_upload:
            if params["uploadType"] == "media":
                return self._answer(self._insert(name, params, body))
            path = f"/session/{next(self._numbers)}"
            self.uploads[path] = _Upload(name, params, bytearray())
            return 200, {"Location": f"http://{environ['HTTP_HOST']}{path}"}, b""
        if not key:
            return self._list(bucket, params)
        if key not in bucket:
            raise _Refusal(404, "notFound", f"No such object: {name}/{key}")
        self._check(bucket[key], params)
        if target:
            return self._copy(bucket[key], other, target, params)
        if method == "DELETE":
            del bucket[key]
            return 204, {}, b""
        return self._read(bucket[key], environ) if params.get("alt") == "media" else self._answer(bucket[key])

    def _find(self, name: str) -> dict[str, Object]:
        if name not in self.buckets:
            raise _Refusal(404, "notFound", "The specified bucket does not exist.")
        return self.buckets[name]

    def _check(self, found: Object | None, params: dict[str, str]) -> None:
        if params.get("ifGenerationMatch") not in (None, found.generation if found else "0"):
            raise _Refusal(412, "conditionNotMet")

    def _answer(self, found: Object) -> _Reply:
        return 200, {}, json.dumps(found.describe("")).encode()

    def make(self, data: bytes, encoding: str = "") -> Object:
        return Object(
            data, str(next(self._generations)), datetime.now(UTC).isoformat(timespec="milliseconds"), encoding
        )

    def _insert(self, name: str, params: dict[str, str], data: bytes) -> Object:
        bucket = self._find(name)
        self._check(bucket.get(params["name"]), params)
        bucket[params["name"]] = made = self.make(data)
        return made

    def _list(self, bucket: dict[str, Object], params: dict[str, str]) -> _Reply:
        prefix, most, begin = params.get("prefix", ""), int(params["maxResults"]), int(params.get("pageToken", -1))
        entries: dict[str, Object | None] = {}
        for key in sorted(key for key in bucket if key.startswith(prefix)):
            head, slash, _ = key.removeprefix(prefix).partition(params.get("delimiter", "\0"))
            entries[f"{prefix}{head}{slash}"] = None if slash else bucket[key]
        # A page may be empty although others follow.
        end = 0 if most == 1 and begin < 0 else max(begin, 0) + most
        taken = list(entries.items())[max(begin, 0) : end]
        page: dict[str, Any] = {
            "items": [found.describe(key) for key, found in taken if found],
            "prefixes": [key for key, found in taken if not found],
            "nextPageToken": str(end) if end < len(entries) else "",
        }
        return 200, {}, json.dumps({name: value for name, value in page.items() if value}).encode()

    def _read(self, found: Object, environ: dict[str, Any]) -> _Reply:
        headers = {"x-goog-generation": found.generation, "x-goog-stored-content-length": str(len(found.data))}
        if found.encoding:
            if "gzip" not in environ.get("HTTP_ACCEPT_ENCODING", ""):
                return 200, headers, gzip.decompress(found.data)
            headers["Content-Encoding"] = found.encoding
        if "HTTP_RANGE" not in environ:
            return 200, headers, found.data
        begin, end = map(int, environ["HTTP_RANGE"].removeprefix("bytes=").split("-"))
        if begin >= len(found.data):
            raise _Refusal(416, "requestedRangeNotSatisfiable")
        return 206, headers, found.data[begin : end + 1]

    def _copy(self, source: Object, name: str, key: str, params: dict[str, str]) -> _Reply:
        done = int(params.get("rewriteToken", 0)) + _COPY_BYTES
        if done < len(source.data):
            return 200, {}, json.dumps({"done": False, "rewriteToken": str(done)}).encode()
        self._find(name)[key] = self.make(source.data, source.encoding)
        return 200, {}, json.dumps({"done": True}).encode()

    def _take_part(self, method: str, path: str, place: str, body: bytes) -> _Reply:
        if (upload := self.uploads.get(path)) is None:
            raise _Refusal(404, "notFound")
        if method == "DELETE":
            del self.uploads[path]
            return 499, {}, b""
        if upload.answer is not None:
            return upload.answer
        first, last, total = _RANGE.fullmatch(place).groups()
        held = upload.held
        if first:
            begin, end = int(first), int(last) + 1
            if begin > len(held) or end - begin != len(body) or (total == "*" and len(body) % _QUANTUM_BYTES):
                raise _Refusal(400, "invalid")
            held += body[len(held) - begin :][: self.most_bytes]  # what is held already is ignored
        if total == str(len(held)):
            upload.answer = self._answer(self._insert(upload.bucket, upload.params, bytes(held)))
            return upload.answer
        return 308, {"Range": f"bytes=0-{len(held) - 1}"} if held else {}, b""


class GoogleServer(Server):
    """The imitation behind the faults of `Server`."""

    _error = '{"error": {"message": "no", "errors": [{"reason": "{code}"}]}}'

    def _make_app(self) -> GoogleStore:
        self.store = GoogleStore()
        return self.store

    @property
    def environment(self) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": self.url}


class GoogleBucket:
    """A new bucket, seen without requests."""

    _numbers = count()

    def __init__(self, server: GoogleServer) -> None:
        self.server, self.name = server, f"bucket-{next(self._numbers)}"
        self._objects = server.store.buckets[self.name] = {}

    @property
    def url(self) -> str:
        return f"gs://{self.name}"

    def put(self, key: str, data: bytes, encoding: str = "") -> None:
        self._objects[key] = self.server.store.make(data, encoding)

    def files(self, prefix: str = "") -> dict[str, bytes]:
        found = sorted(self._objects.items())
        return {key.removeprefix(prefix): made.data for key, made in found if key.startswith(prefix)}

    def uploads(self) -> list[str]:
        """The keys of uploads that were never completed."""
        uploads = list(self.server.store.uploads.values())
        return [one.params["name"] for one in uploads if one.bucket == self.name and one.answer is None]
