"""Where files lie: what the disk promises, that nothing else is needed, and that a URL is refused with one line."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import albert_data
from albert_data.cli.main import run
from albert_data.corpus.inputs import find_inputs
from albert_data.errors import StorageError
from albert_data.storage import (
    DEVICE,
    FILE,
    FOLDER,
    LINK,
    PIPE,
    Disk,
    cache,
    find_kind,
    find_storage,
    is_remote,
    make_path,
)
from albert_data.storage.files import find_cache_folder, write_bytes
from albert_data.storage.urls import resolve_url

DISK = Disk()


# ---- the disk ----


def test_a_path_is_described_by_what_lies_there(tmp_path):
    (tmp_path / "file").write_bytes(b"four")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "lost").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe")
    kinds = {"file": FILE, "link": FILE, "pipe": PIPE, "lost": None, "none": None, "file/below": None, "": FOLDER}
    assert {name: find_kind(tmp_path / name) for name in kinds} == kinds
    assert [find_kind(tmp_path / name, follow=False) for name in ("file", "link", "lost")] == [FILE, LINK, LINK]
    assert find_kind("/dev/null") == DEVICE
    assert find_kind("zero\0byte") is None
    assert DISK.status(tmp_path / "link") == DISK.status(tmp_path / "file")
    assert DISK.status(tmp_path / "file").num_bytes == 4


def test_a_file_that_is_replaced_has_another_status(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one")
    before = DISK.status(path)
    assert DISK.read(path, most=3) == b"one"
    write_bytes(path, b"two")
    os.utime(path, ns=(0, before.modified_ns))
    assert DISK.status(path) != before


def test_no_more_of_a_file_is_read_than_asked_for(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with pytest.raises(ValueError, match="it has 10 bytes; at most 9 are allowed"):
        DISK.read(path, most=9)
    for begin, size, wanted in ((0, 4, b"0123"), (8, 4, b"89"), (20, 4, b""), (0, 0, b"")):
        buffer = bytearray(size)
        assert DISK.read_into(path, begin, memoryview(buffer)) == len(wanted)
        assert bytes(buffer) == wanted.ljust(size, b"\0")


def test_only_a_regular_file_is_read_as_a_whole_and_others_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "a FIFO")
    (tmp_path / "a device").symlink_to("/dev/zero")
    (tmp_path / "a folder").mkdir()
    for name in ("a FIFO", "a device", "a folder"):
        with pytest.raises(OSError, match=f"it is {name}; a regular file is needed"):
            DISK.read(tmp_path / name, most=10)
    (tmp_path / "file").write_bytes(b"four")
    (tmp_path / "link").symlink_to("file")
    assert DISK.read(tmp_path / "link", most=4) == b"four"


def test_what_is_missing_is_no_error_where_it_is_to_be_gone(tmp_path):
    assert DISK.list_names(tmp_path / "missing") == []
    DISK.remove(tmp_path / "missing")
    DISK.remove_leftovers(tmp_path / "missing")
    DISK.remove_empty(tmp_path / "missing")
    (tmp_path / "file").touch()
    DISK.remove_empty(tmp_path)
    assert DISK.list_names(tmp_path) == ["file"]


def test_only_our_own_temporary_files_are_left_over(tmp_path):
    ours, others = ".albert-data-0123456789abcdef.tmp", {"x.tmp", ".albert-data-0123.tmp", "y.json"}
    for name in (ours, *others):
        (tmp_path / name).touch()
    (tmp_path / ours.replace("0", "a")).symlink_to("y.json")
    DISK.remove_leftovers(tmp_path)
    assert set(os.listdir(tmp_path)) == {*others, ours.replace("0", "a")}


@pytest.mark.parametrize(("function", "number"), [("flock", errno.ENOLCK), ("fsync", errno.EINVAL)])
def test_a_file_system_without_locks_or_fsync_of_folders_is_written_to(
    corpus, tmp_path, monkeypatch, caplog, function, number
):
    sync = os.fsync

    def refuse(descriptor: int, operation: int = 0) -> None:
        if function == "flock" or stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    monkeypatch.setattr(fcntl if function == "flock" else os, function, refuse)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "model").write_bytes(corpus.tokenizer.model)
    out, build = str(tmp_path / "out"), ["build", str(corpus.path), "--tokenizer", str(tmp_path / "model")]
    for command in (
        [*build, "-o", out, "--drop-repeated-lines", "9"],
        ["convert", out, "--to", "parquet", "-o", f"{out}2"],
        ["vocab", str(corpus.path), "--vocab-size", "150", "-o", f"{out}3"],
    ):
        caplog.clear()
        assert run(command) == 0
        lines = [line for line in caplog.messages if "so two commands at once are not kept apart" in line]
        assert len(lines) == (function == "flock")
    assert run(["verify", out]) == 0
    assert not [path for folder in ("out", "out2", "out3") for path in (tmp_path / folder).glob(".*")]


def test_the_last_file_is_published_when_the_others_are_safe(tmp_path, monkeypatch):
    out, events, made = tmp_path / "out", [], [tmp_path / name for name in ("1", "2", "3")]
    for path in (*made, out / "a/moved before"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"made")
    replace, sync = os.replace, Disk.sync
    monkeypatch.setattr(os, "replace", lambda old, new: (events.append(f"name {Path(new).name}"), replace(old, new)))
    monkeypatch.setattr(Disk, "sync", lambda self, path: (events.append(f"sync {path.name}"), sync(self, path))[1])
    gone = tmp_path / "gone"
    DISK.publish(out, {"a/first": made[0], "a/moved before": gone, "b/second": made[1], "last": made[2]})
    assert events[:2] == ["name first", "name second"]
    assert sorted(events[2:4]) == ["sync a", "sync b"]
    assert events[4:] == ["name last", "sync out"]
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"first", "moved before", "second", "last"}
    with pytest.raises(FileNotFoundError, match="gone"):
        DISK.publish(out, {"lost": gone, "last": made[2]})


def test_a_lock_excludes_others_until_it_is_freed(tmp_path):
    path = tmp_path / "lock"
    free = DISK.lock(path, b"mark", 0)
    with pytest.raises(BlockingIOError):
        DISK.lock(path, b"mark", 0)
    threading.Timer(0.1, free).start()
    DISK.lock(path, b"mark", 10)()
    assert path.read_bytes() == b"mark"


# ---- URLs ----


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("One sentence. Another one.\n")
    return tmp_path


REFUSED = "is not on a disk, and of other places only s3:// can be read and written; copy it to a disk first"
MOUNT = REFUSED.replace("copy it to a disk first", "mount the bucket (gcsfuse), or copy it to or from a disk (gcloud")
IN_STORE = "is in a store, but {} has to be on a disk; name a path there"
SECRETS = "holds a user name, a password or a query, which would end up in files and messages"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("build hf://x/y -o out", "hf://x/y is no data set of the Hugging Face Hub; write hf://datasets/OWNER/NAME"),
        ("build in.txt ftp://x/*.txt:de -o out", f"ftp://x/*.txt:de {REFUSED}"),
        ("build in.txt -o https://x/y", f"https://x/y {REFUSED}"),
        ("build in.txt --tokenizer az://x/y -o out", f"az://x/y {REFUSED}"),
        ("vocab abfs://x/y -o out", f"abfs://x/y {REFUSED}"),
        ("build gs://x/y -o out", f"gs://x/y {MOUNT}"),
        ("build in.txt -o gs://x/y", f"gs://x/y {MOUNT}"),
        ("inspect hdfs://x/y", f"hdfs://x/y {REFUSED}"),
        ("inspect in.txt --html s3://b/x", f"s3://b/x {IN_STORE.format('html')}"),
        ("quickstart in.txt -o s3://b/x", f"s3://b/x {IN_STORE.format('output')}"),
        ("build s3://me:pass/word@b/x -o out", f"s3://b/x {SECRETS}"),
        ("build in.txt -o s3://b/x?X-Amz-Signature=word", f"s3://b/x {SECRETS}"),
        ("verify s3://me:word", f"s3://me {SECRETS}"),
        ("verify s3:///x", "s3:///x names no bucket; write s3://BUCKET/KEY"),
        ("build s3://b//x -o out", "s3://b//x has a part that is empty, . or .., which no path can have"),
    ],
)
def test_a_url_is_refused_in_one_line_and_nothing_is_made(arguments, message, here, capsys):
    assert run(arguments.split()) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"Error: {message}")
    assert told.count("\n") == 1
    assert "word" not in told.replace("a password", "")
    assert os.listdir(here) == ["in.txt"]


@pytest.mark.parametrize("make", [str, Path], ids=["str", "Path"])
def test_the_library_refuses_urls_too_even_if_pathlib_dropped_a_slash(make, here):
    url = make("az://bucket/x")
    for call in (
        lambda: albert_data.build(url, "out"),
        lambda: albert_data.build("in.txt", url),
        lambda: albert_data.train_vocab("in.txt", url),
        lambda: albert_data.open_shards(url),
        lambda: albert_data.load_tokenizer(url),
    ):
        with pytest.raises(StorageError, match=f"^az://bucket/x {REFUSED}"):
            call()
    assert os.listdir(here) == ["in.txt"]


def test_a_colon_in_a_name_makes_no_url(here):
    (here / "corpus:").mkdir()
    (here / "s3:").mkdir()
    paths = "corpus:/a.txt", Path("corpus:/a.txt"), "c:/a", Path("c:/a"), "a:b", "/s3://b", "./s3://b", "://b"
    for path in (*paths, "s3:/b", Path("s3:/b")):
        assert find_storage(path) is find_storage(".")


def test_a_file_url_is_the_path_on_the_disk(here):
    for name in (f"file://{here}/in.txt", Path(f"file://{here}/in.txt"), str(here / "in.txt")):
        assert make_path(name) == here / "in.txt"
    [found] = find_inputs([f"file://{here}/in.txt"])
    assert found.path == str(here / "in.txt")


def test_the_path_of_an_object_has_the_operations_on_names_and_no_other():
    path = make_path("s3://bucket/a/b.txt")
    assert make_path(Path("s3://bucket/a/b.txt")) == path
    assert str(path) == os.fspath(path) == f"{path}" == "s3://bucket/a/b.txt"
    assert str(path.parent / "c") == str(path.with_name("c")) == "s3://bucket/a/c"
    assert (path.name, path.suffix, str(path.relative_to(make_path("s3://bucket")))) == ("b.txt", ".txt", "a/b.txt")
    assert pickle.loads(pickle.dumps(path)) == path
    assert len({path, make_path("s3://bucket/a/b.txt/")}) == 1
    assert is_remote(path)
    assert not is_remote(Path("a/b.txt"))
    with pytest.raises(StorageError, match="s3://bucket/a/b.txt is not on a disk, and this works on a disk alone"):
        path.exists()
    with pytest.raises(AttributeError):
        _ = path.no_such_name


@pytest.mark.parametrize(
    ("url", "resolved"),
    [("s3://b/a/./b/../c", "s3://b/a/c"), ("s3://b/../../x", "s3://b/x"), ("s3://b/", "s3://b"), ("s3://b", "s3://b")],
)
def test_the_dots_of_a_url_lead_out_of_no_bucket(url, resolved):
    assert resolve_url(url) == resolved


def test_copies_of_objects_take_half_of_the_disk_that_they_and_nobody_use(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    assert cache.measure_limit() == 500
    (find_cache_folder("stores") / "one.copy").write_bytes(bytes(600))
    assert cache.measure_limit() == 800
