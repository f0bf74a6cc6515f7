"""The stores of the tests: reliability's servers, and the environment by which commands find them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from memory_store import MemoryBucket

from albert_data.storage.objects import ObjectStore, make_store

pytest.importorskip("s3fs", reason="the s3 extra is not installed")
_object_server = pytest.importorskip("reliability.object_server", reason="the test extra is not installed")
SECRET, Bucket, Server, times = (getattr(_object_server, name) for name in ("SECRET", "Bucket", "Server", "times"))


def serve_s3() -> Iterator[Server]:
    """The one S3 of the tests, which commands find by the environment."""
    server = Server()
    with pytest.MonkeyPatch.context() as environment:
        for name, value in server.environment.items():
            environment.setenv(name, value)
        environment.setattr("albert_data.storage.s3._ATTEMPTS", 1)  # botocore's own waits take seconds
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            environment.delenv(name, raising=False)
        yield server
    server.stop()


def make_bucket(request: pytest.FixtureRequest, kind: str) -> Any:
    """A new bucket of the server "s3", or one in "memory", without a server."""
    if kind == "memory":
        return MemoryBucket(request.getfixturevalue("monkeypatch"))
    return Bucket(request.getfixturevalue("s3_server"))


def other_process() -> ObjectStore:
    """The storage as another process has it, with its own connections and locks."""
    return make_store()
