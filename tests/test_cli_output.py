"""What the command line prints can't harm a terminal; no stream that is closed or full ends a build; a bug is told."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import click
import pytest

from albert_data.cli import main
from albert_data.cli.main import run
from albert_data.text import output

TEXT = "A first document. It has two sentences.\n\nAnd a second one.\n"
BUILD = "build in.txt --tokenizer model.model -o out --workers 1"
STEERING = "\x1b]0;owned\x07\x1b[2J\u202e\x9b"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, tokenizer_model: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text(TEXT)
    Path("model.model").write_bytes(tokenizer_model)
    return tmp_path


def run_in_shell(command: str) -> subprocess.CompletedProcess[str]:
    # Not inside a path: a clone's folder has this name too.
    line = re.sub(r"(?<!\S)albert-data(?!\S)", lambda found: f"{sys.executable} -m albert_data", command)
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True)


def test_notices_are_divided_between_words_on_a_terminal_alone(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "30")
    line = "warning    most lines look wrapped: pass --drop-near-duplicates to a/very/long/path/of/a/corpus.txt"
    assert output.fit(line, Terminal()).split("\n") == [
        "warning    most lines look",
        "           wrapped: pass",
        "           --drop-near-duplicates",
        "           to",
        "           a/very/long/path/of/a/corpus.txt",
    ]
    assert output.fit(line, io.StringIO()) == line
    assert output.fit("short\n\nlines", Terminal()) == "short\n\nlines"


@pytest.mark.parametrize(
    "redirection",
    [
        "2>&-",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("2>/dev/full", "2>&- >&- <&-", "2>&1 >&- | head -c 0")),
    ],
)
def test_a_build_whose_stderr_can_not_be_written_succeeds(redirection):
    done = run_in_shell(f"set -o pipefail; albert-data {BUILD} {redirection}")
    assert done.returncode == 0, done
    assert run(BUILD.replace("-o out", "-o other").split()) == 0
    assert fixtures.digest_folder(Path("out")) == fixtures.digest_folder(Path("other"))


def test_what_goes_to_a_closed_stderr_goes_into_no_file_of_ours():
    """Its number would be that of the next file that is opened."""
    script = (
        "import os, sys; from albert_data.cli.entry import open_standard_streams; open_standard_streams();"
        "file = open('shard', 'wb'); os.write(2, b'a warning of some library'); print(file.fileno())"
    )
    done = run_in_shell(f"{sys.executable} -c {json.dumps(script)} 2>&- <&-")
    assert int(done.stdout) > 2
    assert Path("shard").read_bytes() == b""


@pytest.mark.parametrize(
    ("command", "message", "is_built"),
    [
        ("build - --tokenizer model.model -o out <&-", "Error: input - is closed", False),
        (f"{BUILD} >/dev/full", "No space left on device", True),
    ],
)
def test_a_stream_that_is_needed_and_fails_is_an_error_in_one_line(command, message, is_built):
    done = run_in_shell(f"albert-data {command}")
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert Path("out/manifest.json").exists() == is_built


def raise_in_command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: click.Command("build", callback=fail))


@pytest.mark.parametrize(
    "error", [KeyError("splits"), RuntimeError("a\nb"), RecursionError("deep"), AssertionError(STEERING)]
)
def test_an_error_that_nobody_foresaw_is_one_line_that_names_its_report(error, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    raise_in_command(monkeypatch, error)
    assert run(["build"]) == 70
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Error: this is a bug of albert-data ({type(error).__name__}: ")
    found = re.search(r"report it with (\S+), which contains the traceback", line)
    assert found
    report = Path(found[1]).read_text()
    assert report.startswith("albert-data ")
    assert "Traceback (most recent call last)" in report
    assert Path(found[1]).stat().st_mode & 0o077 == 0, "paths and text are for the user alone"


def test_memory_that_ran_out_is_no_bug(monkeypatch, capsys):
    raise_in_command(monkeypatch, MemoryError())
    assert run(["build"]) == 1
    assert capsys.readouterr().err == "Error: memory ran out; use fewer --workers, or a machine with more memory\n"


def change_manifest(change: Callable[[dict[str, Any]], Any]) -> None:
    assert run(BUILD.split()) == 0
    manifest = json.loads(Path("out/manifest.json").read_text())
    change(manifest)
    Path("out/manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("prepare", "command"),
    [
        (
            lambda: Path("in.jsonl").write_text(json.dumps({STEERING: "text"}) + "\n"),
            "build in.jsonl --tokenizer model.model -o out2 --strict --workers 1",
        ),
        (lambda: change_manifest(lambda manifest: manifest.update(format_version=STEERING)), "inspect out"),
        (
            lambda: change_manifest(lambda found: found["splits"]["train"]["shards"][0].update(file=f"../{STEERING}")),
            "inspect out",
        ),
        (lambda: None, f"audit out --fail-on {STEERING}"),
        (lambda: None, f"build in.txt --tokenizer model.model -o {STEERING}/out/ --dry-run"),
    ],
    ids=["field", "format version", "shard", "usage", "folder"],
)
def test_names_and_values_of_others_reach_the_terminal_escaped(prepare, command, capsys):
    prepare()
    capsys.readouterr()
    run(command.split(" "))
    shown = capsys.readouterr()
    assert "\\x1b]0;owned\\x07" in shown.err + shown.out
    assert not re.search("^Error: forged", shown.err + shown.out, re.MULTILINE)
    assert not set(STEERING) & set(shown.err + shown.out) - set("]0;owned[2J")


FORGING = "a\nError: forged\n"


@pytest.mark.parametrize("has_bar", [False, True])
def test_no_name_of_a_file_forges_a_line(has_bar, here, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: has_bar)
    folder, out = here / FORGING, here / f"out{FORGING}"
    folder.mkdir()
    for name in (".bin", ".jsonl", ".txt"):
        (folder / f"{FORGING}{name}").write_text("" if name == ".jsonl" else TEXT)
    inputs = [f"{folder}", "--tokenizer", "model.model", "-o", str(out)]
    for command in (["build", *inputs, "--dry-run"], ["build", *inputs, "--workers", "1"], ["build", *inputs]):
        assert run(command) == 0
    for name in ("verify", "audit", "inspect"):
        assert run([name, str(out)]) == 0
    assert run(["convert", str(out), "--to", "parquet", "-o", f"{out}2"]) == 0
    assert run(["verify", str(folder)]) == 1
    shown, escaped = capsys.readouterr(), re.compile(r"(\\n|\\x0a)\n?Error: forged")  # or the line ends there
    assert "Error: forged" not in escaped.sub("", shown.out + shown.err)


def test_an_error_of_a_worker_is_escaped_too(capsys):
    name = os.fsdecode(b"a\x1b[2J\xff.txt")
    Path(name).write_bytes(b"One.\n\n\xff\n")
    assert run(["build", name, "--tokenizer", "model.model", "-o", "out", "--strict", "--workers", "1"]) == 1
    assert "a\\x1b[2J" in capsys.readouterr().err
