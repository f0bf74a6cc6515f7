"""What Google's store has of its own: credentials, generations, uploads in order, copies in several requests."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from store_fixtures import SECRET, make_bucket, other_process, times

from albert_data.errors import StorageError
from albert_data.storage import FOLDER, find_kind, find_storage, make_path, objects, retries
from albert_data.storage.objects import ObjectStore

pytest.importorskip("google.auth", reason="the gs extra is not installed")
MIB = 1 << 20


@pytest.fixture
def bucket(request: pytest.FixtureRequest) -> Any:
    return make_bucket(request, "gs")


@pytest.fixture
def store(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A storage whose uploads have parts of 1 MiB, and which waits little."""
    monkeypatch.setattr(retries, "_FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(objects, "PART_BYTES", MIB)
    return other_process(bucket)


def write(store: ObjectStore, url: str, data: bytes) -> None:
    with store.create(make_path(url)) as file:
        file.write(data)


@pytest.mark.parametrize("size", [2 * MIB, 2 * MIB + 1, 3 * MIB - 1])
@pytest.mark.parametrize("most_bytes", [256 << 10, 768 << 10, 1 << 30])
def test_a_part_of_which_the_store_keeps_only_some_is_sent_further(
    size: int, most_bytes: int, bucket: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bucket.server.store, "most_bytes", most_bytes)
    content = os.urandom(size)
    with bucket.server.failing(times(1, "late reset", method="PUT"), times(2, "503", method="PUT")):
        write(store, f"{bucket.url}/file", content)
    assert bucket.files() == {"file": content}
    assert bucket.uploads() == []


def test_an_upload_that_the_store_has_forgotten_is_an_error(bucket: Any, store: ObjectStore):
    def forget() -> None:
        with store.create(make_path(f"{bucket.url}/file")) as file:
            file.write(bytes(MIB))
            bucket.server.store.uploads.clear()
            file.write(bytes(MIB))

    with pytest.raises(FileNotFoundError):
        forget()
    assert bucket.files() == {}


def test_objects_that_were_put_as_gzip_are_read_as_they_are_stored(bucket: Any, store: ObjectStore):
    content = gzip.compress(b"text " * 50_000 + os.urandom(100_000))
    bucket.put("file.gz", content, encoding="gzip")
    assert store.open(f"{bucket.url}/file.gz").read() == content
    assert store.status(f"{bucket.url}/file.gz").num_bytes == len(content)


def test_a_large_copy_takes_several_requests(bucket: Any, store: ObjectStore):
    content = os.urandom(3 * MIB)
    bucket.put("made", content)
    bucket.put("end", b"")
    names = {"a/named": "made", "last": "end"}
    store.publish(make_path(bucket.url), {name: make_path(f"{bucket.url}/{made}") for name, made in names.items()})
    assert bucket.files() == {"a/named": content, "last": b""}


@pytest.mark.parametrize("key", ["a b.txt", "50%25.txt", "%2F/ü/漢.txt", "q?x#y&z=+.txt", "b/o/c/rewriteTo/b/x/o/y"])
def test_any_name_can_be_written_found_read_copied_and_removed(key: str, bucket: Any, store: ObjectStore):
    path = make_path(f"{bucket.url}/in/{key}")
    write(store, str(path), b"text")
    write(store, str(path.parent / "large"), bytes(MIB))
    assert bucket.files("in/") == {key: b"text", f"{key.rpartition('/')[0]}/large".lstrip("/"): bytes(MIB)}
    assert path.name in store.list_names(path.parent)
    assert store.status(path) == store.read_with_status(path, 9)[1]
    bucket.put("end", b"")
    store.publish(make_path(f"{bucket.url}/out"), {key: path, "last": make_path(f"{bucket.url}/end")})
    assert bucket.files("out/") == {key: b"text", "last": b""}
    store.remove(make_path(f"{bucket.url}/out/{key}"))
    assert bucket.files("out/") == {"last": b""}


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("403 forbidden", r"the store does not permit that \(forbidden\); grant these credentials"),
        ("401 authError", r"the store does not accept the credentials \(authError\)|there are no valid credentials"),
        ("400 invalid", r"the store refused the request \(invalid\)"),
        ("501 notImplemented", r"the store refused the request \(notImplemented\)"),
    ],
)
def test_what_the_store_refuses_is_never_repeated(what: str, message: str, bucket: Any, store: ObjectStore):
    before = bucket.server.requests.total()
    with bucket.server.failing(times(1000, what)), pytest.raises(StorageError, match=message) as caught:
        store.read(make_path(f"{bucket.url}/x"), 10)
    assert bucket.server.requests.total() - before == 1
    assert "\n" not in str(caught.value)


def test_an_upload_that_is_refused_does_not_tell_its_address(bucket: Any, store: ObjectStore):
    fault = times(1000, "403 forbidden", method="PUT")
    with bucket.server.failing(fault), pytest.raises(StorageError) as caught:
        write(store, f"{bucket.url}/file", bytes(2 * MIB))
    assert "session" not in str(caught.value)
    assert bucket.uploads() == []


def test_a_redirect_to_another_server_is_no_answer(bucket: Any, store: ObjectStore):
    """A redirect must not be taken for a missing object either."""
    bucket.put("file", b"text")
    for ask in (store.status, store.open, find_kind, lambda path: list(store.list_names(make_path(path)))):
        with (
            bucket.server.failing(times(1000, "301 Moved")),
            pytest.raises(StorageError, match="its address or another setting is not valid; check"),
        ):
            ask(f"{bucket.url}/file")
    assert store.read(make_path(f"{bucket.url}/file"), 9) == b"text"


def test_too_many_requests_are_waited_out(bucket: Any, store: ObjectStore):
    with bucket.server.failing(times(3, "429 rateLimitExceeded")):
        write(store, f"{bucket.url}/file", b"text")
    assert bucket.files() == {"file": b"text"}


def test_a_bucket_that_does_not_exist_is_told_whatever_is_asked(bucket: Any, store: ObjectStore):
    path = make_path("gs://none/in/x")
    message = "bucket gs://none does not exist; check its name"
    for call in (store.status, store.open, store.list_names, find_kind, lambda path: write(store, path, b"")):
        with pytest.raises(StorageError, match=message):
            call(path)
    with pytest.raises(StorageError, match=message):
        write(store, str(path), bytes(2 * MIB))
    assert find_kind(bucket.url) == FOLDER


# ---- credentials ----


@pytest.fixture
def key_file(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The key of a service account, as Google gives it. The server takes only the token that belongs to it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    server = bucket.server
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "client_email": "builds@project.iam.gserviceaccount.com",
        "private_key": key.decode(),
        "private_key_id": "1",
        "token_uri": f"{server.url}/token",
    }
    path = tmp_path / "key.json"
    path.write_text(json.dumps(account))
    monkeypatch.setattr(server.store, "token", SECRET)
    monkeypatch.setattr("albert_data.storage.gcs._ADDRESS", server.url)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    return path


def test_credentials_are_found_used_and_renewed(
    key_file: Path, bucket: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
):
    path = make_path(f"{bucket.url}/file")
    with pytest.raises(StorageError, match="there are no valid credentials; set GOOGLE_APPLICATION_CREDENTIALS"):
        store.status(path)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    with bucket.server.failing(times(2, "reset", key="/token")):
        write(store, str(path), bytes(2 * MIB))
    monkeypatch.setattr(bucket.server.store, "token", "another")  # as when one expires
    assert store.read(path, 2 * MIB) == bytes(2 * MIB)


@pytest.mark.parametrize(
    ("what", "key", "message"),
    [
        ("401 authError", "storage", "the store does not accept the credentials"),
        ("400 invalid", "storage", "the store refused the request"),
        ("400 invalid_grant", "/token", "its credentials are not accepted; renew or correct them"),
    ],
)
def test_a_refusal_does_not_tell_the_credentials(
    what: str, key: str, message: str, key_file: Path, bucket: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    with bucket.server.failing(times(1000, what, key=key)), pytest.raises(StorageError, match=message) as caught:
        store.status(f"{bucket.url}/file")
    assert not any(secret in str(caught.value) for secret in (SECRET, "Bearer", "builds@"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{}", '{"type": "service_account"}'])
def test_a_file_that_is_no_key_is_told(
    text: str, key_file: Path, bucket: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
):
    key_file.write_text(text)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    with pytest.raises(StorageError, match="there are no valid credentials; set GOOGLE_APPLICATION_CREDENTIALS"):
        store.status(f"{bucket.url}/file")


def test_a_wrong_address_or_a_missing_package_says_what_to_do(
    bucket: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "no address")
    with pytest.raises(StorageError, match="its address is not valid; check STORAGE_EMULATOR_HOST"):
        store.status(f"{bucket.url}/x")
    monkeypatch.setattr("albert_data.storage._stores", {})
    monkeypatch.setitem(__import__("sys").modules, "albert_data.storage.gcs", None)
    with pytest.raises(StorageError, match=r"gs:// needs google-auth; install it with: pip .* 'albert-data\[gs\]'"):
        find_storage("gs://bucket/x")
