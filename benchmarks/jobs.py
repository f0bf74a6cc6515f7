"""Runs albert-data as a separate process, as users do, and measures its time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

PROGRAM = "albert-data"


def find_program() -> str:
    """Return the command that is installed beside this Python, otherwise the one on the PATH."""
    beside = Path(sys.executable).with_name(PROGRAM)
    return str(beside) if beside.exists() else PROGRAM


def command(inputs: list[Path], out: Path, tokenizer: Path, *options: str) -> list[str]:
    """Return the command line of a build."""
    names = [str(path) for path in inputs]
    return [find_program(), "build", *names, "-o", str(out), "--tokenizer", str(tokenizer), *options]


def run(arguments: list[str], **environment: str) -> float:
    """Run a process and return its seconds. If it fails, its last line on stderr becomes the error."""
    keep_byte_code = {"PYTHONDONTWRITEBYTECODE": ""}  # if it were set, each start would compile the package again
    begin = time.perf_counter()
    done = subprocess.run(arguments, capture_output=True, env=os.environ | keep_byte_code | environment)
    seconds = time.perf_counter() - begin
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        what = " ".join([Path(arguments[0]).name, *arguments[1:2]])
        raise click.ClickException(f"`{what}` failed: {said[-1] if said else f'exit code {done.returncode}'}")
    return seconds


def build(inputs: list[Path], out: Path, tokenizer: Path, *options: str, **environment: str) -> float:
    """Build and return the seconds."""
    return run(command(inputs, out, tokenizer, *options), **environment)


def worker_peaks(parent: int) -> Iterator[int]:
    """Yield the peak resident bytes of the living children of a process."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = dict(line.split(":", 1) for line in (entry / "status").read_text().splitlines())
                if int(fields["PPid"]) == parent and "VmHWM" in fields:
                    yield int(fields["VmHWM"].split()[0]) * 1024
            except (OSError, ValueError, KeyError):
                continue


def peak_of_workers(inputs: list[Path], out: Path, tokenizer: Path, *options: str) -> int:
    """Build, and return the peak resident bytes of the largest worker."""
    child = subprocess.Popen(
        command(inputs, out, tokenizer, *options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    peak = 0
    while child.poll() is None:
        peak = max([peak, *worker_peaks(child.pid)])
        time.sleep(0.05)
    if child.returncode:
        raise click.ClickException(f"the build failed with {child.returncode}")
    return peak
