"""The stores of the tests: reliability's servers, and the environment by which commands find them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from memory_store import MemoryBucket

from albert_data.storage.objects import ObjectStore, make_store

pytest.importorskip("s3fs", reason="the s3 extra is not installed")
_object_server = pytest.importorskip("reliability.object_server", reason="the test extra is not installed")
SECRET, Bucket, Server, times = (getattr(_object_server, name) for name in ("SECRET", "Bucket", "Server", "times"))


@contextmanager
def _serve(server: Any) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as environment:
        for name, value in server.environment.items():
            environment.setenv(name, value)
        yield server
    server.stop()


def serve_s3() -> Iterator[Server]:
    """The one S3 of the tests, which commands find by the environment."""
    with _serve(Server()) as server, pytest.MonkeyPatch.context() as environment:
        environment.setattr("albert_data.storage.s3._ATTEMPTS", 1)  # botocore's own waits take seconds
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            environment.delenv(name, raising=False)
        yield server


def serve_google() -> Iterator[Any]:
    """The one imitation of Google's store."""
    from reliability.google_server import GoogleServer

    with _serve(GoogleServer()) as server:
        yield server


def make_bucket(request: pytest.FixtureRequest, scheme: str) -> Any:
    """A new bucket, for tests that take one of each kind of store, or "memory", without a server."""
    if scheme == "memory":
        return MemoryBucket(request.getfixturevalue("monkeypatch"))
    if scheme == "s3":
        return Bucket(request.getfixturevalue("s3_server"))
    pytest.importorskip("google.auth", reason="the gs extra is not installed")
    from reliability.google_server import GoogleBucket

    return GoogleBucket(request.getfixturevalue("google_server"))


def other_process(bucket: Any) -> ObjectStore:
    """The storage as another process has it, with its own connections and locks."""
    return make_store(bucket.url.partition(":")[0])
