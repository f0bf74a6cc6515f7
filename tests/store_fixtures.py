"""The store of the tests: reliability's server, and the environment by which commands find it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("s3fs", reason="the s3 extra is not installed")
_object_server = pytest.importorskip("reliability.object_server", reason="the test extra is not installed")
SECRET, Bucket, Server, times = (getattr(_object_server, name) for name in ("SECRET", "Bucket", "Server", "times"))


def serve() -> Iterator[Server]:
    """The one server of the tests, which commands find by the environment."""
    server = Server()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL", server.url)
        environment.setenv("AWS_ACCESS_KEY_ID", "user")
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        environment.setenv("AWS_REGION", "us-east-1")
        environment.setattr("albert_data.storage.s3._ATTEMPTS", 1)  # botocore's own waits take seconds
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            environment.delenv(name, raising=False)
        yield server
    server.stop()
