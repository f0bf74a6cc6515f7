"""Pipes, devices and sockets: skipped in a folder, read once like stdin where they are named. Compressed text."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from corpus_fixtures import read
from refusals import check_refused

from albert_data.corpus.inputs import find_inputs, open_input
from albert_data.errors import InputError

TEXT = "ein Wört\n\nzwei\n".encode()
JSON = b'{"text": "one"}\n{"text": "two"}\n'


def make_pipe(path: Path, data: bytes | None = None) -> Path:
    """A named pipe, into which a thread writes if there is anything to write."""
    os.mkfifo(path)
    if data is not None:
        threading.Thread(target=path.write_bytes, args=(data,), daemon=True).start()
    return path


# ---- in folders ----


def test_what_is_no_file_is_passed_over_in_a_folder(tmp_path):
    """And no pipe is opened: that would wait for a writer."""
    (tmp_path / "a.txt").write_bytes(TEXT)
    make_pipe(tmp_path / "pipe.jsonl")
    (tmp_path / "link.txt").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s.txt"))
    said: list[str] = []
    assert [item.path for item in find_inputs([str(tmp_path)], said.append)] == [str(tmp_path / "a.txt")]
    assert said == [
        f"skipped pipes, no files (1): {tmp_path}/pipe.jsonl; name one as an input to read it",
        f"skipped sockets, no files (1): {tmp_path}/s.txt",
        f"skipped devices, no files (1): {tmp_path}/link.txt; name one as an input to read it",
    ]
    said.clear()
    assert [item.path for item in find_inputs([f"{tmp_path}/*.txt"], said.append)] == [str(tmp_path / "a.txt")]
    assert len(said) == 2


def test_a_link_to_a_folder_is_named_and_not_followed(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.txt").write_bytes(TEXT)
    (tmp_path / "deep" / "up").symlink_to(tmp_path)
    said: list[str] = []
    assert len(find_inputs([str(tmp_path)], said.append)) == 1
    assert said == [f"skipped links to folders (1): {tmp_path}/deep/up; name one as an input to read it"]


def test_a_link_that_leads_to_itself_or_nowhere_is_refused_by_name(tmp_path):
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    for name in (tmp_path, tmp_path / "loop.txt", tmp_path / "*.txt"):
        with pytest.raises(InputError, match=r"loop\.txt can't be read: Too many levels of symbolic links; .* or name"):
            find_inputs([str(name)])
    (tmp_path / "loop.txt").unlink()
    (tmp_path / "gone.txt").symlink_to("nowhere")
    for name in (tmp_path, tmp_path / "gone.txt", tmp_path / "g*.txt"):
        with pytest.raises(InputError, match=r"gone\.txt can't be read: No such file"):
            find_inputs([str(name)])


def test_a_folder_that_can_not_be_read_is_no_empty_one(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_bytes(TEXT)
    (tmp_path / "deep").mkdir()
    scan = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("deep"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match=r"folder .*deep can't be read: Permission denied; grant"):
        find_inputs([str(tmp_path)])


# ---- named ----


@pytest.mark.parametrize(
    ("name", "pack", "data", "format"),
    [
        ("pipe", bytes, TEXT, "auto"),
        ("pipe", bytes, JSON, "auto"),
        ("pipe.jsonl", bytes, JSON, "jsonl"),
        ("pipe.txt.gz", gzip.compress, TEXT, "txt"),
        ("pipe.gz", gzip.compress, JSON, "auto"),
        ("pipe.jsonl.zst", lambda data: pyarrow.compress(data, "zstd", asbytes=True), JSON, "jsonl"),
    ],
)
def test_a_named_pipe_is_read_once_like_stdin(tmp_path, name, pack, data, format):
    path = make_pipe(tmp_path / name, pack(data))
    (item,) = find_inputs([str(path), str(path)])
    assert (item.format, item.size, item.modified_ns, item.is_stream, item.is_splittable) == (format, 0, 0, True, False)
    with open_input(item)[0] as stream:
        assert read(stream, item.format) == read(data, "jsonl" if data == JSON else "txt")


def test_an_open_descriptor_is_read_like_stdin(tmp_path):
    reading, writing = os.pipe()
    os.write(writing, TEXT)
    os.close(writing)
    (item,) = find_inputs([f"/dev/fd/{reading}"])
    with open_input(item)[0] as stream:
        assert stream.read() == TEXT
    os.close(reading)
    with (tmp_path / "no ending").open("wb+") as file:
        file.write(TEXT)
        file.flush()
        (item,) = find_inputs([f"/dev/fd/{file.fileno()}"])
        assert (item.format, item.is_stream) == ("auto", True)
        with open_input(item)[0] as stream:
            assert stream.read() == TEXT


def test_stdin_by_several_names_is_read_once():
    find = "from albert_data.corpus.inputs import find_inputs"
    program = f"{find}; print(len(find_inputs(['-', '/dev/stdin', '/dev/fd/0'])))"
    done = subprocess.run([sys.executable, "-c", program], input=b"", capture_output=True, check=True)
    assert done.stdout == b"1\n"


def test_what_is_no_stream_of_text_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="input - is closed"):
        find_inputs(["-"])
    with pytest.raises(InputError, match="/dev/zero is no text"):
        open_input(*find_inputs(["/dev/zero"]))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        with pytest.raises(InputError, match="is a socket, which can't be opened; name files, pipes, or - for stdin"):
            find_inputs([str(tmp_path / "s")])


def test_a_fault_of_the_disk_is_no_damage():
    class Faulty(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise OSError(errno.EIO, "Input/output error")
            return super().read1(5)

    with pytest.raises(InputError, match=r"p, byte 5 can't be read: Input/output error; check the disk"):
        read(Faulty(TEXT))


# ---- compressed text ----

MANY = b"".join(b"document %d\n\n" % number for number in range(50_000))
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": lambda data: bytes(pyarrow.compress(data, "zstd", asbytes=True)),
    "xz": lambda data: lzma.compress(data, preset=0),
    "bz2": bz2.compress,
    "lz4": lambda data: bytes(pyarrow.compress(data, "lz4", asbytes=True)),
}
# Of zstd a frame of one byte whose header asks for a window of 2 GiB, and one to skip.
LONG_WINDOW = bytes.fromhex("28b52ffd 00 a8 09 0000") + b"a"
SKIPPABLE = bytes.fromhex("502a4d18 04000000") + b"skip"


def read_packed(folder: Path, ending: str, data: bytes, **options: Any) -> tuple[list[bytes], Counter[str]]:
    path = folder / f"a b.txt.{ending}"
    path.write_bytes(data)
    with open_input(*find_inputs([str(path)]))[0] as stream:
        return read(stream, **options)


def noise(size: int) -> bytes:
    """Documents that hardly compress."""
    numbers = np.random.default_rng(0).integers(0, 2**62, size // 16)
    return b"".join(b"%x\n\n" % number for number in numbers.tolist())[:size]


@pytest.mark.parametrize("ending", ["", *PACK])
def test_joined_files_are_read_and_their_bytes_counted_as_they_lie_on_the_disk(tmp_path, ending):
    text = noise(1_500_000)
    packed = PACK[ending](text) if ending else text
    path = tmp_path / f"a.txt.{ending}".removesuffix(".")
    path.write_bytes(packed + packed)
    (item,) = find_inputs([str(path)])
    stream, count_read = open_input(item)
    with stream:
        assert stream.read(len(text)) == text
        assert 0.9 * len(packed) < count_read() < 1.6 * len(packed)
        assert b"".join(iter(lambda: stream.read1(1000), b"")) == text
        assert count_read() == 2 * len(packed)
    assert item.is_splittable == (not ending)


@pytest.mark.parametrize(
    ("ending", "layout"),
    [
        ("gz", "one, nothing, zeros"),
        ("gz", "nothing, one, nothing, one, nothing, zeros"),
        ("zst", "skip, one, nothing, skip, one, skip"),
        ("xz", "one, zeros, one, zeros"),
        *((ending, "") for ending in ("gz", "zst")),
    ],
)
def test_empty_parts_and_those_to_skip_are_no_damage(tmp_path, ending, layout):
    parts = {"one": PACK[ending](MANY), "nothing": PACK[ending](b""), "skip": SKIPPABLE, "zeros": bytes(8), "": b""}
    found = read_packed(tmp_path, ending, b"".join(parts[name] for name in layout.split(", ")), strict=True)
    assert found == read(MANY * layout.count("one"))


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("damage", ["cut", "changed", "no such format", "more"])
def test_damage_is_counted_and_what_precedes_it_is_kept(tmp_path, ending, damage):
    parts = [PACK[ending](part) for part in (MANY, b"the last\n\n" * 100_000)]
    whole = b"".join(parts)
    middle = len(parts[0]) + len(parts[1]) // 2
    data = {
        "cut": whole[:middle],
        "changed": whole[:middle] + b"\xaa" * 9 + whole[middle + 9 :],
        "no such format": b"no such format",
        "more": parts[0] + b"??",
    }[damage]
    found, counts = read_packed(tmp_path, ending, data)
    assert counts == {"damaged_compression": 1}
    expected = [] if damage == "no such format" else [b"document %d\n" % number for number in range(45_000)]
    assert found[: len(expected)] == expected  # pyarrow (lz4) loses up to 64 KiB before the damage
    with pytest.raises(InputError, match=r"^p, byte \d+: damaged compression: "):
        read_packed(tmp_path, ending, data, strict=True)


def test_a_wrong_sum_of_gzip_is_damage(tmp_path):
    assert read_packed(tmp_path, "gz", gzip.compress(b"a\n")[:-1] + b"?")[1] == {"damaged_compression": 1}


@pytest.mark.parametrize("before", [b"", PACK["zst"](MANY)], ids=["at once", "later"])
def test_a_window_that_is_too_large_is_no_damage(tmp_path, before):
    named = f"window over 128 MiB & `zstd -dc --long=31 '{tmp_path}/a b.txt.zst' | albert-data build - ...`"
    check_refused(lambda: read_packed(tmp_path, "zst", before + LONG_WINDOW), InputError, named)
