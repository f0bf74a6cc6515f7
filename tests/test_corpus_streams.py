"""Pipes, devices and sockets: skipped inside a folder, read once like stdin where they are named."""

from __future__ import annotations

import errno
import gzip
import io
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import build_fixtures as fixtures
import pyarrow
import pytest
from corpus_fixtures import read

from albert_data.corpus.inputs import find_inputs, open_input
from albert_data.errors import InputError
from albert_data.files import read_json
from albert_data.tokenizer.model import Tokenizer

TEXT = "ein Wört\n\nzwei\n".encode()
JSON = b'{"text": "one"}\n{"text": "two"}\n'


def make_pipe(path: Path, data: bytes | None = None) -> Path:
    """A named pipe, into which a thread writes if there is anything to write."""
    os.mkfifo(path)
    if data is not None:
        threading.Thread(target=path.write_bytes, args=(data,), daemon=True).start()
    return path


# ---- in folders ----


def test_what_is_no_file_is_passed_over_in_a_folder(tmp_path: Path):
    """And no pipe is opened: that would wait for a writer."""
    (tmp_path / "a.txt").write_bytes(TEXT)
    make_pipe(tmp_path / "pipe.jsonl")
    (tmp_path / "link.txt").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s.txt"))
    said: list[str] = []
    assert [item.path for item in find_inputs([str(tmp_path)], said.append)] == [str(tmp_path / "a.txt")]
    assert sorted(said) == [
        f"skipped a device, no file: {tmp_path}/link.txt; name it as an input to read it",
        f"skipped a named pipe, no file: {tmp_path}/pipe.jsonl; name it as an input to read it",
        f"skipped a socket, no file: {tmp_path}/s.txt",
    ]
    said.clear()
    assert [item.path for item in find_inputs([f"{tmp_path}/*.txt"], said.append)] == [str(tmp_path / "a.txt")]
    assert len(said) == 2


def test_a_link_to_a_folder_is_named_and_not_followed(tmp_path: Path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.txt").write_bytes(TEXT)
    (tmp_path / "deep" / "up").symlink_to(tmp_path)
    said: list[str] = []
    assert len(find_inputs([str(tmp_path)], said.append)) == 1
    assert said == [f"skipped a link to a folder: {tmp_path}/deep/up; name it as an input to read it"]


def test_a_link_that_leads_to_itself_or_nowhere_is_refused_by_name(tmp_path: Path):
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    for name in (tmp_path, tmp_path / "loop.txt", tmp_path / "*.txt"):
        with pytest.raises(InputError, match=r"loop\.txt can't be read: Too many levels of symbolic links; .* or name"):
            find_inputs([str(name)])
    (tmp_path / "loop.txt").unlink()
    (tmp_path / "gone.txt").symlink_to("nowhere")
    for name in (tmp_path, tmp_path / "gone.txt", tmp_path / "g*.txt"):
        with pytest.raises(InputError, match=r"gone\.txt can't be read: No such file"):
            find_inputs([str(name)])


def test_a_folder_that_can_not_be_read_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
def test_a_named_pipe_is_read_once_like_stdin(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes], data: bytes, format: str
):
    path = make_pipe(tmp_path / name, pack(data))
    (item,) = find_inputs([str(path), str(path)])
    assert (item.format, item.size, item.modified_ns, item.is_stream, item.is_splittable) == (format, 0, 0, True, False)
    with open_input(item)[0] as stream:
        assert read(stream, item.format) == read(data, "jsonl" if data == JSON else "txt")


def test_an_open_descriptor_is_read_like_stdin(tmp_path: Path):
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


def test_a_socket_is_refused(tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        with pytest.raises(InputError, match="is a socket, which can't be opened; name files, pipes, or - for stdin"):
            find_inputs([str(tmp_path / "s")])


def test_a_stdin_that_is_closed_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="input - is closed"):
        find_inputs(["-"])


def test_a_device_that_never_ends_is_refused_as_no_text():
    with pytest.raises(InputError, match="/dev/zero is no text"):
        open_input(*find_inputs(["/dev/zero"]))[0]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="<(...) is written for bash")
def test_a_build_reads_process_substitutions(tmp_path: Path, tokenizer: Tokenizer):
    documents = fixtures.make_documents(30, seed=3)
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(fixtures.to_txt(documents)))
    (tmp_path / "model.model").write_bytes(tokenizer.model)

    def build(arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-c", f"{sys.executable} -m albert_data build {arguments}"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    done = build("<(zcat in.txt.gz) --tokenizer model.model --workers 1 --max-seq-len 48 -o piped")
    assert done.returncode == 0, done.stderr
    named = fixtures.run_build(tmp_path / "in.txt.gz", tmp_path / "named", tokenizer)
    assert read_json(tmp_path / "piped" / "manifest.json")["digest"] == named.manifest.digest
    done = build("<(zcat in.txt.gz) -o other")
    assert done.returncode == 1
    assert "the corpus is read twice, and /dev/fd/" in done.stderr
    assert "can be read only once; train a vocabulary with `albert-data vocab` first" in done.stderr


def test_a_fault_of_the_disk_is_no_damage():
    class Faulty(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise OSError(errno.EIO, "Input/output error")
            return super().read1(5)

    with pytest.raises(InputError, match=r"p, byte 5 can't be read: Input/output error; check the disk"):
        read(Faulty(TEXT))
