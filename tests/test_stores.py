"""A store of objects does what the disk does, and its failures are waited out or told in one line."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_store import MemoryRequests
from refusals import check_refused
from store_fixtures import SECRET, Bucket, other_process, times

from albert_data import storage
from albert_data.errors import StorageError
from albert_data.storage import (
    FILE,
    FOLDER,
    Disk,
    Storage,
    find_kind,
    find_storage,
    make_path,
    objects,
    remember_listings,
    retries,
)
from albert_data.storage.urls import StoreURL
from benchmarks.object_store import count_puts

pytestmark = pytest.mark.slow
KEYS = ("a.txt", "b/c.txt", "b/d/e.txt", "b/d/.hidden", ".h/x.txt", "b/[1]/f.txt", "b/d.txt", "z/y/x/w.txt")
MIB = 1 << 20


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_FIRST_WAIT_SECONDS", 0.01)


@pytest.fixture
def store(bucket: Bucket) -> Storage:
    return find_storage(bucket.url)


def write(store: Storage, url: str, data: bytes) -> None:
    with store.create(make_path(url)) as file:
        file.write(data)


def fill(bucket: Bucket, folder: Path) -> None:
    """The same files in a store and on the disk."""
    for key in KEYS:
        bucket.put(key, key.encode())
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(key.encode())


# ---- as on the disk ----


PATTERNS = (
    "* *.txt b/* */*.txt ** **/*.txt b/** b/**/*.txt b/*/e.txt b/d/.h* .h/* ?.txt "
    "b/[[]1]/* b/[cd].txt none/* a.txt a.txt/* **/x/** b/d */d"
)


def test_a_glob_finds_what_it_finds_on_the_disk(bucket, store, tmp_path):
    fill(bucket, tmp_path)
    for pattern in PATTERNS.split():
        on_disk = [os.path.relpath(path, tmp_path) for path in Disk().glob(f"{tmp_path}/{pattern}")]
        found = [url.removeprefix(f"{bucket.url}/") for url in store.glob(f"{bucket.url}/{pattern}")]
        assert {name for name in found if name in KEYS} == {name for name in on_disk if name in KEYS}, pattern
        assert all(os.path.exists(tmp_path / name) for name in found), pattern
        assert len(set(found)) == len(found), pattern


def test_a_store_is_walked_and_described_as_the_disk_is(bucket, store, tmp_path):
    fill(bucket, tmp_path)

    def walk(storage: Storage, root: str) -> Iterator[tuple[str, list[str], list[str]]]:
        for parent, folders, files in storage.walk(root, pytest.fail):
            folders[:] = sorted(name for name in folders if name != "y")
            yield parent.removeprefix(root), list(folders), sorted(files)

    assert list(walk(store, bucket.url)) == list(walk(Disk(), str(tmp_path)))
    for name in ("", "b", "b/d", "b/d/e.txt", "b/d/e", "none", "b/d/.hidden"):
        path, there = make_path(f"{bucket.url}/{name}"), tmp_path / name
        assert find_kind(path) == find_kind(there)
        if find_kind(path) == FOLDER:
            assert sorted(store.list_names(path)) == sorted(os.listdir(there))
    assert store.list_names(make_path(f"{bucket.url}/none")) == []


def test_the_objects_by_which_programs_mark_folders_are_no_files(bucket, store):
    for key in ("in/", "in/a.txt", "in/empty/", "in/a.txt/both"):
        bucket.put(key, b"")
    assert find_kind(f"{bucket.url}/in") == find_kind(f"{bucket.url}/in/empty/") == FOLDER
    assert find_kind(f"{bucket.url}/in/a.txt") == FILE
    assert store.list_names(make_path(f"{bucket.url}/in")) == ["a.txt", "empty"]
    assert store.list_names(make_path(f"{bucket.url}/in/empty")) == []
    assert list(store.glob(f"{bucket.url}/in/*.txt")) == [f"{bucket.url}/in/a.txt"]
    bucket.put("in//odd", b"")  # text that could not be named, and must not be left out in silence
    with pytest.raises(StorageError, match="in// holds objects whose names have an empty part"):
        store.list_names(make_path(f"{bucket.url}/in"))


def test_listings_come_in_pages_and_tell_of_each_object(bucket, store, store_server, monkeypatch):
    names = {f"{number:03}.txt" for number in range(35)}
    for name in names:
        bucket.put(f"many/{name}", name.encode())
    monkeypatch.setattr("albert_data.storage.s3.PAGE_ENTRIES", 10)
    before = store_server.requests["GET"]
    folder = make_path(f"{bucket.url}/many")
    with remember_listings():
        assert set(store.list_names(folder)) == names
        listed = [store.status(folder / name) for name in names]
    assert {status.num_bytes for status in listed} == {7}
    assert store_server.requests["GET"] - before == 4
    assert store.status(folder / "000.txt") in listed


def test_calls_at_once_give_results_in_order_and_know_what_was_listed(bucket, store, store_server):
    names = [f"{number}.txt" for number in range(40)]
    for name in names:
        bucket.put(name, name.encode())
    folder, asked = make_path(bucket.url), store_server.requests["HEAD"]
    with remember_listings():
        store.list_names(folder)
        found = store.at_once(lambda name: store.status(folder / name).num_bytes, names)
        assert list(found) == [len(name) for name in names]
    assert store_server.requests["HEAD"] == asked
    begun: list[int] = []
    results = store.at_once(begun.append, range(10_000))
    next(results)
    results.close()
    assert len(begun) < 100  # however many there are, few results wait in memory
    with pytest.raises(FileNotFoundError):
        list(store.at_once(store.open, [folder / "0.txt", folder / "none", folder / "1.txt"]))


@pytest.mark.quick
@given(data=st.data())
def test_any_reads_and_seeks_give_the_bytes_of_the_object(data):
    content = os.urandom(data.draw(st.integers(0, 400_000)))
    url, requests = StoreURL("memory", "file"), MemoryRequests()
    requests.put(url, content)
    file, wanted = io.BufferedReader(objects._ObjectFile(requests, url), 1000), io.BytesIO(content)
    for _ in range(data.draw(st.integers(1, 8))):
        at, size = data.draw(st.integers(0, 500_000)), data.draw(st.integers(-1, 200_000))
        if data.draw(st.booleans()):
            assert file.seek(at) == wanted.seek(at)
        assert file.read(size) == wanted.read(size)
        assert file.tell() == wanted.tell()


@pytest.mark.quick
def test_no_more_of_an_object_is_read_than_asked_for(bucket, store):
    path = make_path(f"{bucket.url}/file")
    bucket.put("file", b"0123456789")
    bucket.put("empty", b"")
    before = bucket.server.requests.total()
    assert store.read(path, most=10) == b"0123456789"
    assert bucket.server.requests.total() - before == 1
    with pytest.raises(ValueError, match="it has 10 bytes; at most 9 are allowed"):
        store.read(path, most=9)
    for begin, size, wanted in ((0, 4, b"0123"), (8, 4, b"89"), (20, 4, b""), (0, 0, b"")):
        buffer = bytearray(size)
        assert store.read_into(path, begin, memoryview(buffer)) == len(wanted)
        assert bytes(buffer) == wanted.ljust(size, b"\0")
    assert store.open(f"{bucket.url}/empty").read() == store.read(make_path(f"{bucket.url}/empty"), 5) == b""


def test_what_is_missing_is_an_error_to_read_and_none_to_remove(bucket, store):
    path = make_path(f"{bucket.url}/none")
    for call in (store.status, store.open, store.map, lambda path: store.read(path, 9)):
        with pytest.raises(FileNotFoundError) as caught:
            call(path)
        assert caught.value.filename == str(path)
    store.remove(path)
    store.remove_leftovers(path / ".x")


def test_an_object_that_is_replaced_while_it_is_read_is_an_error(bucket, store):
    bucket.put("file", b"1" * 100_000)
    before = store.status(f"{bucket.url}/file")
    with store.open(f"{bucket.url}/file") as file:
        assert file.read(1) == b"1"
        bucket.put("file", b"2" * 100_000)
        file.seek(90_000)
        with pytest.raises(OSError, match="it was replaced while it was read"):
            file.read(1)
    assert store.status(f"{bucket.url}/file") != before
    with pytest.raises(OSError, match="it was replaced while it was read"):
        store.open(f"{bucket.url}/file", before)


# ---- writing ----


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PART_BYTES", 5 * MIB)


@pytest.mark.parametrize("size", [0, 1, 5 * MIB - 1, 5 * MIB, 5 * MIB + 1, 11 * MIB])
@pytest.mark.usefixtures("small_parts")
def test_an_object_has_its_key_when_it_is_complete(size, bucket, store):
    content, made = os.urandom(size), bucket.server.requests
    before = made["PUT"] + made["POST"]
    with store.create(make_path(f"{bucket.url}/file")) as file:
        for begin in range(0, size, 2 * MIB):
            file.write(content[begin : begin + 2 * MIB])
        assert bucket.files() == {}
    if size:
        assert made["PUT"] + made["POST"] - before == count_puts(size), "what the benchmark of clusters counts"
    assert bucket.files() == {"file": content}
    assert bucket.uploads() == []


@pytest.mark.parametrize("size", [1, 6 * MIB])
@pytest.mark.usefixtures("small_parts")
def test_a_write_that_fails_leaves_nothing(size, bucket, store):
    def fail() -> None:
        with store.create(make_path(f"{bucket.url}/file")) as file:
            file.write(bytes(size))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert bucket.files() == {}
    assert bucket.uploads() == []


def test_uploads_that_a_kill_left_are_aborted_in_hidden_folders_alone(bucket, store):
    client = bucket.server.client
    for key in ("out/.build/runs/a.run", "out/.build/plan", "out/train/b.arrow", "out/.buildings/c"):
        client.create_multipart_upload(Bucket=bucket.name, Key=key)
    for folder in ("out", "out/train", "out/.build"):
        store.remove_leftovers(make_path(f"{bucket.url}/{folder}"))
    assert sorted(bucket.uploads()) == ["out/.buildings/c", "out/train/b.arrow"]


@pytest.mark.parametrize("largest_copy", [5 << 30, MIB])
def test_published_files_are_moved_and_the_last_is_never_replaced(largest_copy, bucket, store, monkeypatch):
    monkeypatch.setattr(objects, "LARGEST_COPY_BYTES", largest_copy)
    out = make_path(f"{bucket.url}/out")
    made = {name: make_path(f"{bucket.url}/{name}") for name in ("1", "2", "gone")}
    shard = os.urandom(3 * MIB)
    bucket.put("1", shard)
    bucket.put("2", b"all are there")
    bucket.put("out/b/moved", b"before a kill")
    store.publish(out, {"a/first": made["1"], "b/moved": made["gone"], "last": made["2"]})
    assert bucket.files() == {"out/a/first": shard, "out/b/moved": b"before a kill", "out/last": b"all are there"}
    store.publish(out, {"last": made["gone"]})  # as after a kill
    bucket.put("2", b"all are there")
    store.publish(out, {"last": made["2"]})  # as after an answer that was lost
    bucket.put("2", b"other")
    with pytest.raises(FileExistsError, match="another process has published here meanwhile"):
        store.publish(out, {"last": made["2"]})
    for names in (("a/lost", "other"), ("other", "a/lost")):
        with pytest.raises(FileNotFoundError):
            store.publish(out, {name: made["2" if name == "other" else "gone"] for name in names})
        store.remove(out / "other")
    assert bucket.files("out/last") == {"": b"all are there"}


@pytest.mark.parametrize("fault", [None, "501 NotImplemented"])
def test_many_files_are_removed_by_few_requests_where_the_store_knows_how(fault, bucket, store):
    for number in range(30):
        bucket.put(f"in/{number} ü", b"text")
    paths = [make_path(f"{bucket.url}/in/{number} ü") for number in range(5, 31)]  # the last is not there
    faults = [times(1, fault, method="POST")] if fault else []
    before = bucket.server.requests["DELETE"]
    with bucket.server.failing(*faults):
        store.remove_all(paths)
    assert bucket.files("in/").keys() == {f"{number} ü" for number in range(5)}
    assert bucket.server.requests["DELETE"] - before == (len(paths) if fault else 0)


@pytest.mark.parametrize("key", ["a b.txt", "50%25.txt", "%2F/ü/漢.txt", "q?x#y&z=+.txt", "b/o/c/rewriteTo/b/x/o/y"])
def test_any_name_can_be_written_found_read_copied_and_removed(key, bucket, store):
    path = make_path(f"{bucket.url}/in/{key}")
    write(store, str(path), b"text")
    write(store, str(path.parent / "large"), bytes(MIB))
    assert bucket.files("in/") == {key: b"text", f"{key.rpartition('/')[0]}/large".lstrip("/"): bytes(MIB)}
    assert path.name in store.list_names(path.parent)
    assert store.read(path, 9) == b"text"
    bucket.put("end", b"")
    store.publish(make_path(f"{bucket.url}/out"), {key: path, "last": make_path(f"{bucket.url}/end")})
    assert bucket.files("out/") == {key: b"text", "last": b""}
    store.remove(make_path(f"{bucket.url}/out/{key}"))
    assert bucket.files("out/") == {"last": b""}


# ---- faults ----


@pytest.mark.parametrize(
    "what",
    ["503", "500 InternalError", "503 SlowDown", "reset", "cut", "slow", "409 OperationAborted", "429 rateLimit"],
)
def test_faults_are_waited_out(what, bucket, store, store_server, small_parts):
    path, content = make_path(f"{bucket.url}/.build/file"), os.urandom(6 * MIB)
    with store_server.failing(*(times(3, what, method=method) for method in ("GET", "PUT", "POST", "HEAD"))):
        with store.create(path) as file:
            file.write(content)
        assert store.status(path).num_bytes == len(content)
        assert store.open(path).read() == content
    store.remove_leftovers(path.parent)  # one that was begun, but the answer with its id was lost
    assert bucket.uploads() == []


def test_answers_that_are_lost_do_no_harm(bucket, store, store_server, small_parts):
    out, made = make_path(f"{bucket.url}/out"), make_path(f"{bucket.url}/made")
    bucket.put("made", b"manifest")
    with store_server.failing(*(times(1, "late reset", method=method) for method in ("GET", "PUT", "POST", "DELETE"))):
        store.publish(out, {"last": made})
        free = store.lock(out / "lock", b"mark\n", 0)
        free()
    complete = times(1, "late reset", method="POST", key="uploadId")
    with store_server.failing(complete), store.create(out / "large") as file:
        file.write(bytes(6 * MIB))
    store.remove(out / "last")
    assert {name: len(data) for name, data in bucket.files("out/").items()} == {"lock": 10, "large": 6 * MIB}
    assert bucket.uploads() == []


def test_a_store_that_does_not_answer_is_told_once_while_it_is_waited_for(
    bucket, store, store_server, monkeypatch, caplog
):
    monkeypatch.setattr(retries, "_SAID_AFTER_SECONDS", 0.05)
    store.list_names(make_path(bucket.url))  # it answers, so its address is right
    with store_server.failing(times(6, "503")):
        store.list_names(make_path(bucket.url))
    [line] = caplog.messages
    assert line == f"{bucket.url} gives no answer (ServiceUnavailable); trying again for up to 300 s"


def test_a_store_that_stayed_away_is_not_waited_for_as_long_again(bucket, store, store_server, monkeypatch):
    monkeypatch.setattr(retries, "RETRY_SECONDS", 1.0)
    monkeypatch.setattr(retries, "LOST_RETRY_SECONDS", 0.0)

    def count_requests() -> int:
        before = store_server.requests.total()
        with store_server.failing(times(1000, "503")), pytest.raises(StorageError, match="gave no answer for"):
            find_kind(f"{bucket.url}/x")  # not None: nobody knows whether there is such an object
        return store_server.requests.total() - before

    store.list_names(make_path(bucket.url))
    assert count_requests() > 1
    assert count_requests() == 1
    store.list_names(make_path(bucket.url))  # it answers again
    assert count_requests() > 1


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("403 AccessDenied", r"the store does not permit that \(AccessDenied\); grant these credentials"),
        ("403 InvalidAccessKeyId", "the store does not accept the credentials"),
        ("403 SignatureDoesNotMatch", "the store does not accept the credentials"),
        ("301 PermanentRedirect", "lies in the region eu-west-1; set AWS_REGION to its region"),
        ("400 IllegalLocationConstraintException", "lies in the region eu-west-1"),
        ("501 NotImplemented", r"the store refused the request \(NotImplemented\)"),
    ],
)
def test_what_the_store_refuses_is_never_repeated(what, message, bucket, store, store_server):
    before = store_server.requests.total()
    with store_server.failing(times(1000, what)), pytest.raises(StorageError, match=message) as caught:
        store.read(make_path(f"{bucket.url}/x"), 10)
    assert store_server.requests.total() - before <= 3  # botocore itself may ask for the region
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_store_without_credentials_says_what_to_do_and_uses_those_that_are_set_then(bucket, monkeypatch):
    bucket.put("x", b"text")
    store, url = other_process(), f"{bucket.url}/x"
    with monkeypatch.context() as without:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            without.delenv(name)
        check_refused(lambda: store.status(url), StorageError, "there are no credentials & set AWS_ACCESS_KEY_ID")
        without.setenv("AWS_PROFILE", "none")
        check_refused(lambda: other_process().status(url), StorageError, "there is no such profile & AWS_PROFILE")
    assert store.status(url).num_bytes == 4


def test_a_wrong_address_or_a_missing_package_says_what_to_do(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "no address")
    check_refused(
        lambda: other_process().status(f"{bucket.url}/x"), StorageError, "not valid; check & AWS_ENDPOINT_URL"
    )
    monkeypatch.setattr(storage, "_connect", storage._connect.__wrapped__)  # which keeps no connection
    monkeypatch.setitem(sys.modules, "albert_data.storage.s3", None)
    check_refused(lambda: find_storage("s3://bucket/x"), StorageError, "needs s3fs & 'albert-data[s3]'")
