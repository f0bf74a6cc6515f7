"""Starts a command as users do, in its own session, and sends signals to it, to a worker or to all its processes.

Only processes of a session that was started here receive signals.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import albert_data
from albert_data.storage.files import find_cache_folder

SIGNALS = {name: getattr(signal, f"SIG{name}") for name in ("KILL", "TERM", "INT", "HUP", "STOP")}
TARGETS = ("parent", "worker", "group")
PATIENCE_SECONDS = 120.0  # for a command after its signal
_ORPHAN_SECONDS = 5.0
_POLL_SECONDS = 0.0005
ROOT = Path(albert_data.__file__).resolve().parents[1]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A command that has ended. code: its exit code, minus the number of its signal, or None if it hung."""

    arguments: list[str]
    code: int | None
    stdout: str
    stderr: str
    seconds: float
    is_struck: bool
    orphans: int

    def describe(self) -> str:
        """Describe the command for a log."""
        how = "did not end, and was killed" if self.code is None else f"exit code {self.code}"
        said = f"--- stdout\n{self.stdout[-4000:]}--- stderr\n{self.stderr[-8000:]}"
        return f"$ albert-data {' '.join(self.arguments)}\n{how}, {self.seconds:.2f} s, orphans {self.orphans}\n{said}"


@dataclass(frozen=True, kw_only=True)
class Strike:
    """A signal to a running command. is_due: called with the seconds since the start until it returns True."""

    name: str
    target: str
    is_due: Callable[[float], bool]
    pause_seconds: float = 0.5  # between STOP and CONT

    @property
    def label(self) -> str:
        name = "STOP, CONT" if self.name == "STOP" else self.name
        return f"{name} to {self.target}"


class Command:
    """A process of `albert-data`, leader of its own session."""

    def __init__(
        self, arguments: list[str], folder: Path, logs: Path, *, most_file_bytes: int | None = None, first: str = ""
    ) -> None:
        """folder: the working directory; logs: a folder for its output; most_file_bytes: the limit on file sizes.

        first: Python that the command executes before it begins.
        """
        if most_file_bytes is not None:
            first += f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most_file_bytes},) * 2)"
        self._arguments, self._logs = arguments, logs
        logs.mkdir(parents=True, exist_ok=True)
        self._stdout, self._stderr = logs / "stdout", logs / "stderr"
        self._begin = time.monotonic()
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [*_program(first), *arguments],
                cwd=folder,
                env=make_environment(logs),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        self._is_struck = False

    def strike(self, strike: Strike) -> None:
        """Wait until it is due and its target exists, then send the signal. Does nothing if the command ends before."""
        pid = self._process.pid
        while not self._is_struck:
            if self._process.poll() is not None:
                return
            if strike.is_due(time.monotonic() - self._begin):
                self._is_struck = _send(pid, SIGNALS[strike.name], strike.target)
            time.sleep(_POLL_SECONDS)
        if strike.name == "STOP":
            time.sleep(strike.pause_seconds)
            _send(pid, signal.SIGCONT, "group")

    def wait(self) -> Ended:
        """Wait for the end of the command, with a time limit. Counts and kills what is left of its session."""
        code: int | None
        try:
            code = self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        seconds = time.monotonic() - self._begin
        orphans = self._end_session(patiently=code is not None)
        self._process.wait()
        return Ended(
            arguments=self._arguments,
            code=code,
            stdout=self._stdout.read_text(errors="backslashreplace"),
            stderr=self._stderr.read_text(errors="backslashreplace"),
            seconds=seconds,
            is_struck=self._is_struck,
            orphans=orphans,
        )

    def _end_session(self, *, patiently: bool) -> int:
        """Return how many processes of the session are left some seconds after its end."""
        deadline = time.monotonic() + (_ORPHAN_SECONDS if patiently else 0)
        while (left := find_session(self._process.pid)) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(left) if patiently else 0


def run(arguments: list[str], folder: Path, logs: Path, strike: Strike | None = None, **how: Any) -> Ended:
    """Run a command to its end; send it the signal of `strike`, if given."""
    command = Command(arguments, folder, logs, **how)
    if strike is not None:
        command.strike(strike)
    return command.wait()


def _program(first: str) -> list[str]:
    if not first:
        return [sys.executable, "-m", "albert_data"]
    start = "import runpy, sys; sys.argv[0] = 'albert-data'; runpy.run_module('albert_data', run_name='__main__')"
    return [sys.executable, "-c", f"{first}; {start}"]


def make_environment(logs: Path) -> Mapping[str, str]:
    """Return an environment with this source tree, and one thread for each library so that training is repeatable."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR") or str(find_cache_folder("kernels")),  # compiled before
        "XDG_CACHE_HOME": str(logs / "cache"),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
        "NO_COLOR": "1",
    }


def _send(pid: int, number: int, target: str) -> bool:
    """Send a signal to the leader of a session, its group, or one of its workers. Returns whether there is one."""
    workers = [worker for worker in find_session(pid) if worker != pid]
    with suppress(ProcessLookupError):
        if target == "group":
            os.killpg(pid, number)
            return True
        if target == "parent":
            os.kill(pid, number)
            return True
        if workers:
            os.kill(workers[0], number)
            return True
    return False


def find_descendants(ancestor: int) -> list[int]:
    """Return the living processes that a process started, and those that these started."""
    parents = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                state, parent = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    parents[int(entry.name)] = int(parent)
    found, new = set[int](), {ancestor}
    while new := {pid for pid, parent in parents.items() if parent in new} - found:
        found |= new
    return sorted(found)


def find_session(leader: int) -> list[int]:
    """Return the living processes of a session."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                state, _, _, session = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == leader and state not in "ZX":
                    found.append(int(entry.name))
    return sorted(found)
