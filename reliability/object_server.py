"""A store of objects on this machine, moto's S3, that can be told to fail."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import boto3
from botocore.config import Config
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

SECRET = "a-secret-that-no-file-may-hold"
_OBSERVER = "observer"  # whose requests never fail


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_: Any) -> None:
        pass


_ERROR = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'
Fault = Callable[[dict[str, Any]], str | None]


class Server:
    """moto behind faults: each takes a request (a WSGI environment) and names what happens to it, or None.

    Faults: "503", "403" or another status with a code as in "403 AccessDenied"; "reset", the connection ends without
    an answer; "late reset", it ends after the request was carried out; "cut", half of the answer's body; "slow".
    """

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self.faults: list[Fault] = []
        self.requests: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()

    @property
    def environment(self) -> dict[str, str]:
        """By which programs find the store."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "user",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id="user",
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
            config=Config(user_agent_extra=_OBSERVER),
        )

    @contextmanager
    def failing(self, *faults: Fault) -> Iterator[None]:
        self.faults += faults
        try:
            yield
        finally:
            self.faults = [fault for fault in self.faults if fault not in faults]

    def _answer(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        is_observer = _OBSERVER in environ.get("HTTP_USER_AGENT", "")
        fault = None if is_observer else next((found for one in list(self.faults) if (found := one(environ))), None)
        with self._lock:
            self.requests[environ["REQUEST_METHOD"]] += 1
        if fault == "slow":
            time.sleep(0.5)
        if fault in (None, "slow"):
            return self._app(environ, start)
        if fault in ("late reset", "cut"):
            return self._spoil(environ, start, fault)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if fault == "reset":
            return _reset(environ, start)
        status, _, code = fault.partition(" ")
        body = _ERROR.replace("{code}", code or "ServiceUnavailable").encode()
        start(
            f"{status} Fault",
            [
                ("Content-Type", "application/xml"),
                ("Content-Length", str(len(body))),
                ("x-amz-bucket-region", "eu-west-1"),
            ],
        )
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _spoil(self, environ: dict[str, Any], start: Any, fault: str) -> Iterable[bytes]:
        answer: list[Any] = []
        body = b"".join(self._app(environ, lambda *args: answer.append(args)))
        if fault == "late reset":
            return _reset(environ, start)
        start(*answer[0])
        return _cut(environ, body)


def _reset(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    start("500 Reset", [])  # nobody receives it
    return []


def _cut(environ: dict[str, Any], body: bytes) -> Iterator[bytes]:
    yield body[: len(body) // 2]
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)


def times(count: int, what: str, *, method: str = "", key: str = "") -> Fault:
    """A fault of the next `count` requests with this method, whose path and query hold `key`."""
    left = [count]

    def fault(environ: dict[str, Any]) -> str | None:
        path = f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        if left[0] and method in environ["REQUEST_METHOD"] and key in path:
            left[0] -= 1
            return what
        return None

    return fault


class Bucket:
    """A new bucket, seen by another library than the one that is tested."""

    _numbers = count()

    def __init__(self, server: Server) -> None:
        self.server, self.name, self._client = server, f"bucket-{next(self._numbers)}", server.client
        self._client.create_bucket(Bucket=self.name)

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    def put(self, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=self.name, Key=key, Body=data)

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=self.name, Key=key)

    def files(self, prefix: str = "") -> dict[str, bytes]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        return {
            key.removeprefix(prefix): self._client.get_object(Bucket=self.name, Key=key)["Body"].read() for key in keys
        }

    def uploads(self) -> list[str]:
        """The keys of uploads that were never completed."""
        found = self._client.list_multipart_uploads(Bucket=self.name).get("Uploads", ())
        return [upload["Key"] for upload in found]
