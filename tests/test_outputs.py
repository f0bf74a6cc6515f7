"""A file that the user names for writing: links, pipes and devices stay, and nothing that is read is written over."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from inspect_fixtures import write_small

from albert_data.cli.main import run
from albert_data.errors import OutputError
from albert_data.storage import Disk
from albert_data.storage.files import check_output, write_bytes, write_output

DATA = b"new content"


@pytest.mark.parametrize("old", [None, b"", b"old content that is longer"])
def test_a_regular_file_is_written_whole_and_a_link_to_it_stays(old, tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(path)
    for name in (path, link):
        if old is not None:
            path.write_bytes(old)
        assert write_output(name, DATA)
        assert path.read_bytes() == DATA
        path.unlink()
    assert os.readlink(link) == str(path)
    assert os.listdir(tmp_path) == ["link"]


def test_a_pipe_is_written_to_and_stays(tmp_path):
    path, found = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()), daemon=True)
    reader.start()
    assert not write_output(path, DATA)
    reader.join(10)
    assert found == [DATA]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_device_is_written_to_and_stays():
    assert not write_output(Path("/dev/null"), DATA)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(OutputError, match="/dev/full can't be written: No space left on device"):
        write_output(Path("/dev/full"), DATA)


def test_what_cannot_be_written_is_named(tmp_path):
    for path in (tmp_path / "nowhere/file", tmp_path):
        with pytest.raises(OutputError, match=f"{path} can't be written: (No such file|Is a directory)"):
            write_output(path, DATA)
        with pytest.raises(OutputError, match="is a folder; name a file|is not a folder; make it"):
            check_output(path, [])


def test_what_is_read_is_not_written_over_whatever_it_is_called(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(DATA)
    (tmp_path / "link").symlink_to(source)
    os.link(source, tmp_path / "second")
    (tmp_path / "folder").mkdir()
    for name in ("source", "link", "second", "folder/../source"):
        with pytest.raises(OutputError, match="which is read here; name another file"):
            check_output(tmp_path / name, [tmp_path / "gone", source])
    check_output(tmp_path / "other", [source])


def test_no_file_of_a_folder_that_is_read_is_written_over_but_a_new_one_may_be_written(tmp_path):
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner/file").write_bytes(DATA)
    (tmp_path / "folder").symlink_to(folder)
    (tmp_path / "link").symlink_to("model/inner/file")
    os.link(folder / "inner/file", tmp_path / "second")
    (tmp_path / "linked").write_bytes(DATA)
    (folder / "inner/linked").symlink_to(tmp_path / "linked")
    for read in (folder, tmp_path / "folder", folder / "inner/.."):
        for name in ("model/inner/file", "folder/inner/file", "link", "model/../link", "second", "linked"):
            with pytest.raises(OutputError, match="is in .*, which is read here; name another file"):
                check_output(tmp_path / name, [tmp_path / "gone", read])
        check_output(folder / "inner/new", [read])
        check_output(tmp_path / "new", [read])


def test_a_file_that_will_be_looked_for_is_not_made(tmp_path):
    (tmp_path / "link").symlink_to("missing")
    for name in ("missing", "link"):
        with pytest.raises(OutputError, match="which is read here"):
            check_output(tmp_path / name, [tmp_path / "missing"])


def test_stdin_from_a_file_is_not_written_over(tmp_path):
    (tmp_path / "file").write_bytes(DATA)
    script = "import sys, pathlib, albert_data.storage.files as f; f.check_output(pathlib.Path(sys.argv[1]), ['-'])"
    for name, code in {"file": 1, "new": 0, "/dev/stdout": 0, "/dev/null": 0}.items():
        with (tmp_path / "file").open() as stdin:
            command = [sys.executable, "-c", script, str(tmp_path / name)]
            done = subprocess.run(command, stdin=stdin, check=False, capture_output=True, text=True)
        assert (done.returncode, "which is read here" in done.stderr) == (code, bool(code)), done.stderr


def test_a_report_is_not_written_over_the_set(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_small(tmp_path / "out")
    Path("out/README.md").write_text("card")
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for path in ("out/manifest.json", "out/README.md", "out/tokenizer/spiece.model", "out/train/shard-00000.arrow"):
        assert run(["inspect", "out", "--html", path]) == 1, path
        assert "which is read here; name another file to write" in capsys.readouterr().err, path
    assert files == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


# ---- temporary files ----


def test_a_file_of_the_users_with_the_name_of_a_temporary_one_stays(tmp_path):
    (tmp_path / "file.tmp").write_bytes(b"mine")
    (tmp_path / "link.tmp").symlink_to(tmp_path / "file.tmp")
    for name in ("file", "link"):
        write_bytes(tmp_path / name, DATA)
    assert (tmp_path / "file.tmp").read_bytes() == b"mine"


def test_a_full_disk_leaves_the_file_of_before_and_is_named_with_it(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(OSError, match=rf"No space left on device: '{tmp_path}/file'"), Disk().create(tmp_path / "file"):
        raise OSError(28, "No space left on device")
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_what_is_appended_to_is_not_emptied(tmp_path):
    log = tmp_path / "log"
    log.write_text("old\n")
    script = (
        "from pathlib import Path; import albert_data.storage.files as f; f.write_output(Path('/dev/stdout'), b'new')"
    )
    with log.open("a") as file:
        subprocess.run([sys.executable, "-c", script], stdout=file, check=True)
    assert log.read_text() == "old\nnew"
