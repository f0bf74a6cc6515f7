"""The lock in a store, which one process holds at a time, and local copies of objects, which are made once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from store_fixtures import Bucket, other_process

from albert_data.errors import StorageError
from albert_data.pipeline.build_folder import BuildFolder
from albert_data.pipeline.publish import publish
from albert_data.storage import Storage, cache, find_storage, make_path
from albert_data.storage.locks import StoreLock
from albert_data.storage.retries import NEW
from albert_data.storage.urls import StoreURL

pytestmark = pytest.mark.slow


@pytest.fixture
def store(bucket: Bucket) -> Storage:
    return find_storage(bucket.url)


# ---- locks ----


@pytest.fixture
def brief_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RENEW_SECONDS", "_POLL_SECONDS"):
        monkeypatch.setattr(f"albert_data.storage.locks.{name}", 0.1)


@pytest.fixture
def dead_locks(monkeypatch: pytest.MonkeyPatch, brief_locks: None) -> None:
    """Processes that never renew a lock, as if they slept, and a lock that others may soon take."""
    monkeypatch.setattr("albert_data.storage.locks.EXPIRY_SECONDS", 1.5)
    monkeypatch.setattr(StoreLock, "_renew", lambda lock: None)


@pytest.mark.quick
@pytest.mark.usefixtures("brief_locks")
def test_a_lock_excludes_others_until_it_is_freed(bucket, store):
    path = make_path(f"{bucket.url}/lock")
    free = store.lock(path, b"mark\n", 0)
    with pytest.raises(BlockingIOError):
        other_process().lock(path, b"mark\n", 0)
    free()
    assert bucket.files()["lock"] == b"mark\nfree\n"
    other_process().lock(path, b"mark\n", 0)()
    assert bucket.files()["lock"] == b"mark\nfree\n"


@pytest.mark.usefixtures("dead_locks")
def test_the_lock_of_a_dead_process_is_waited_for_and_taken_and_its_owner_publishes_nothing_more(bucket, store, caplog):
    out, other = make_path(f"{bucket.url}/out"), other_process()
    other.lock(out / "connects", b"", 0)()  # which takes longer than the other lock lives
    free = store.lock(out / ".build/lock", b"mark\n", 0)
    free_other = other.lock(out / ".build/lock", b"mark\n", 0)
    [line] = caplog.messages
    assert line.startswith(f"{out}/.build/lock is locked; waiting up to 2 s")
    with pytest.raises(OSError, match="another process has taken the lock"):
        store.publish(out, {"last": out / ".build/manifest"})
    free()
    assert "out/last" not in bucket.files()
    assert not bucket.files()["out/.build/lock"].endswith(b"free\n")
    free_other()


@pytest.mark.usefixtures("dead_locks")
def test_a_build_whose_lock_was_taken_changes_nothing_of_the_other(bucket):
    work = BuildFolder(make_path(f"{bucket.url}/out"))
    work.lock()
    free_other = other_process().lock(work.plan_path.parent / "lock", b"", 0)
    bucket.put("out/manifest.json", b"of the other")
    bucket.put("out/.build/plan.json", b"of the other")
    before = bucket.files()
    for step in (work.clear, work.remove, work.check_lock):
        with pytest.raises(OSError, match="another process has taken the lock"):
            step()
    with pytest.raises(OSError, match="another process has taken the lock"):
        publish(work, Mock(), Mock(), [], Mock())
    work.remove_if_empty()
    work.unlock()
    assert bucket.files() == before
    free_other()


@pytest.mark.parametrize("ignores", [lambda version: True, lambda version: version != NEW], ids=["all", "If-Match"])
def test_a_store_that_ignores_conditions_gives_no_lock(ignores, bucket, monkeypatch):
    store = other_process()
    put = store._lock_requests.put

    def put_anyway(url: StoreURL, data: bytes, version: str | None = None) -> str:
        return put(url, data, None if version is None or ignores(version) else version)

    monkeypatch.setattr(store._lock_requests, "put", put_anyway)
    with pytest.raises(StorageError, match="the store ignores conditions of puts"):
        store.lock(make_path(f"{bucket.url}/lock"), b"mark\n", 0)


@pytest.mark.usefixtures("brief_locks")
def test_of_many_processes_that_want_a_lock_one_gets_it(bucket):
    path, got, refused = make_path(f"{bucket.url}/lock"), [], []

    def try_it() -> None:
        try:
            got.append(other_process().lock(path, b"mark\n", 0))
        except BlockingIOError:
            refused.append(1)

    threads = [threading.Thread(target=try_it) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), len(refused)) == (1, 4)
    got[0]()


# ---- copies ----


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Counts the bytes of the local copies, which lie in a folder of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return lambda: sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())


def test_an_object_is_copied_once_however_many_want_it(bucket, store, store_server, copies):
    bucket.put("file", b"0123456789")
    url, found = make_path(f"{bucket.url}/file"), []
    digest = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882"
    threads = [threading.Thread(target=lambda: found.append(store.map(url, digest).to_pybytes())) for _ in range(8)]
    before = store_server.requests["GET"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [b"0123456789"] * 8
    assert store_server.requests["GET"] - before == 1
    assert copies() == 10
    assert store.map(url).to_pybytes() == b"0123456789"  # without a hash it is named by its version
    bucket.put("file", b"9876543210")
    assert store.map(url).to_pybytes() == b"9876543210"


@pytest.mark.parametrize(
    ("digest", "message"),
    [
        *((digest, "the manifest's SHA-256 is not one") for digest in ("", "../../../notes", "A" * 64)),
        ("0" * 64, "its bytes are not those of the manifest's SHA-256"),
    ],
)
def test_a_copy_has_the_hash_that_is_asked_for_and_names_no_other_file(
    digest, message, bucket, store, copies, tmp_path
):
    bucket.put("file", b"text")
    (tmp_path / "notes.part").write_text("mine")
    with pytest.raises(OSError, match=message):
        store.map(make_path(f"{bucket.url}/file"), digest)
    assert copies() == 4


def test_copies_take_no_more_than_their_bound(bucket, store, copies, monkeypatch):
    monkeypatch.setattr(cache, "MOST_BYTES", 2500)
    mapped = []
    for number in range(4):
        bucket.put(f"{number}", bytes([number]) * 1000)
        mapped.append(store.map(make_path(f"{bucket.url}/{number}")))
        assert copies() <= 2500
    assert [buffer.to_pybytes() for buffer in mapped] == [bytes([number]) * 1000 for number in range(4)]
    bucket.put("large", bytes(3000))
    with pytest.raises(OSError, match="no room for a copy of 3,000 bytes; allowed are 2,500"):
        store.map(make_path(f"{bucket.url}/large"))
