"""Runs cases in forked children, with limits on time and memory, and finds the case that breaks a limit.

Everything is loaded and compiled first, in this process. A child works through a batch of cases. If it hangs, grows too
large or dies, its case runs again alone in a new child, and that outcome is reported. Another child does the rest of
the batch.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import mmap
import os
import re
import resource
import shutil
import signal
import struct
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from albert_data.errors import AlbertDataError
from reliability.cases import Case, Fault, Outcome

_POLL_SECONDS = 0.01
_DUMP_SECONDS = 0.5
# Address space beyond that at the start. It protects this machine; the limit that is tested is in Limits.
_ADDRESS_BYTES = 8 << 30
_PRINTED = (b"Traceback (most recent call last)", b"Exception ignored in", b"panicked at")
_OURS = re.compile(r"albert_data/(.*)")
_DUMPED = re.compile(r'File "[^"]*?albert_data/([^"]*)", line \d+ in (\S+)')
_PAGE = resource.getpagesize()


@dataclass(frozen=True, kw_only=True)
class Limits:
    """seconds: CPU time of a case; memory_bytes: resident, above those of an idle child."""

    seconds: float = 10.0
    memory_bytes: int = 1 << 30

    def is_too_long(self, wall: float, work: float) -> bool:
        """Whether a case hangs: by CPU time, since it may wait for a free core; by the clock if it hardly works."""
        return work > self.seconds or (wall > self.seconds and work < wall / 20) or wall > 10 * self.seconds


class Slot:
    """The state of a child in shared memory: its case, when the case began, and the child's size at the start."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 32)
        self.wait(-1)

    def wait(self, index: int) -> None:
        """Note the next case, which is not read yet."""
        struct.pack_into("=qd", self._map, 0, index, 0.0)

    def begin(self) -> None:
        """Note that reading the case begins now."""
        struct.pack_into("=dd", self._map, 8, time.monotonic(), time.process_time())

    def note_idle(self, num_bytes: int) -> None:
        struct.pack_into("=q", self._map, 24, num_bytes)

    def read(self) -> tuple[int, float, float, int]:
        """Return index, clock, CPU time and idle bytes.

        The index in the batch is -1 before the first case. Clock and CPU time are of the moment when reading the case
        began; the clock is 0 before that. Idle bytes are the resident bytes at the start.
        """
        index, wall, work, idle = struct.unpack("=qddq", self._map[:32])
        return index, wall, work, idle

    def close(self) -> None:
        self._map.close()


@dataclass(kw_only=True)
class Child:
    """A process that works on a batch. stopped_for: the limit that it broke."""

    pid: int
    batch: list[Case]
    folder: Path
    slot: Slot
    stopped_for: str = ""

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def said(self) -> Path:
        return self.folder / "stderr"


@dataclass(kw_only=True)
class Children:
    """Runs batches of cases, several at once. scratch: a folder for their files, ideally in memory."""

    scratch: Path
    num_workers: int = 2
    limits: Limits = field(default_factory=Limits)
    _number: int = 0
    _died: dict[tuple[str, int], Fault | None] = field(default_factory=dict)

    def run(self, batches: Iterable[list[Case]]) -> Iterator[Outcome]:
        """Yield the outcome of every case, in any order."""
        waiting, again, running = iter(batches), deque[list[Case]](), list[Child]()
        try:
            while True:
                while len(running) < self.num_workers and (batch := again.popleft() if again else next(waiting, None)):
                    running.append(self._start(batch))
                if not running:
                    return
                for child in list(running):
                    ended, status = os.waitpid(child.pid, os.WNOHANG)
                    if not ended:
                        self._check(child)
                        continue
                    running.remove(child)
                    yield from self._finish(child, status, again)
                time.sleep(_POLL_SECONDS)
        finally:
            for child in running:
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)

    def _start(self, batch: list[Case]) -> Child:
        self._number += 1
        child = Child(pid=0, batch=batch, folder=self.scratch / f"child-{self._number}", slot=Slot())
        child.folder.mkdir()
        child.pid = os.fork()
        if child.pid == 0:
            try:
                _work(child, self.limits)
            finally:
                os._exit(1)
        return child

    def _check(self, child: Child) -> None:
        """Stop a child that breaks a limit, after it has written its stack."""
        _, wall, work, idle = child.slot.read()
        if not child.stopped_for and wall and self._hangs(child.pid, wall, work):
            child.stopped_for = "hang"
        elif not child.stopped_for and idle and _resident_bytes(child.pid) - idle > self.limits.memory_bytes:
            child.stopped_for = "memory"
        else:
            return
        size = _size(child.said)
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGUSR1)
        deadline = time.monotonic() + _DUMP_SECONDS
        while _size(child.said) == size and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)

    def _hangs(self, pid: int, wall: float, work: float) -> bool:
        wall = time.monotonic() - wall
        return wall > self.limits.seconds and self.limits.is_too_long(wall, _worked_seconds(pid) - work)

    def _finish(self, child: Child, status: int, again: deque[list[Case]]) -> Iterator[Outcome]:
        done = [_read_result(line, child.batch) for line in _lines(child.results)]
        index = child.slot.read()[0]
        code = os.waitstatus_to_exitcode(status)
        for outcome in done:
            before = self._died.pop(_key(outcome.case), None)
            yield outcome if before is None or outcome.fault else dataclasses.replace(outcome, fault=before)
        if (code or child.stopped_for) and len(done) < len(child.batch):
            guilty, rest = child.batch[index], child.batch[index + 1 :]
            if len(child.batch) == 1:
                self._died.pop(_key(guilty), None)
                yield self._accuse(child, guilty, code)
            else:
                again.extend(part for part in ([guilty], rest) if part)
                if code < 0 and not child.stopped_for:  # a signal is a fault, even if the case alone does not cause it
                    self._died[_key(guilty)] = self._accuse(child, guilty, code).fault
        child.slot.close()
        shutil.rmtree(child.folder, ignore_errors=True)

    def _accuse(self, child: Child, case: Case, code: int) -> Outcome:
        """Return the outcome of a case that ended a child which ran only this case."""
        said = child.said.read_text(errors="replace")
        what = child.stopped_for or (f"signal {-code}" if code < 0 else "memory" if code == _TOO_LARGE else "exit")
        found = _DUMPED.search(said)
        place = f"{found[1]}:{found[2]}" if found else "outside of albert_data"
        fault = Fault(what=what, place=place, trace=said[-20_000:] or f"exit code {code}, and nothing on stderr")
        seconds = self.limits.seconds if what == "hang" else 0.0
        peak = self.limits.memory_bytes if what == "memory" else 0
        return Outcome(case=case, is_refused=False, fault=fault, seconds=seconds, peak_bytes=peak)


_TOO_LARGE = 99  # exit code of a child whose case broke the memory limit between two checks of the parent


def _work(child: Child, limits: Limits) -> None:
    """Run in the child: read all cases of the batch and write a line of JSON for each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _redirect(child.said)
    faulthandler.enable(2, all_threads=False)  # the descriptor, because a case may replace sys.stderr
    faulthandler.register(signal.SIGUSR1, 2, all_threads=False)
    soft = _address_bytes() + _ADDRESS_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (soft, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    results = os.open(child.results, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    idle = _peak_bytes()
    child.slot.note_idle(idle)
    for index, case in enumerate(child.batch):
        child.slot.wait(index)
        result = _try_case(case, index, child)
        result["peak_bytes"] = max(0, _peak_bytes() - idle)
        if result["peak_bytes"] > limits.memory_bytes:
            os._exit(_TOO_LARGE)
        os.write(results, json.dumps(result).encode() + b"\n")
    os._exit(0)


def _try_case(case: Case, index: int, child: Child) -> dict[str, Any]:
    folder, data, said = child.folder / "case", case.make(), _size(child.said)
    folder.mkdir()
    result: dict[str, Any] = {"index": index, "is_refused": False, "fault": None}
    begin = time.process_time()
    child.slot.begin()
    try:
        case.reader.read(case, data, folder)
    except AlbertDataError:
        result["is_refused"] = True
    except BaseException as error:
        result["fault"] = {"what": _name(error), "place": _find_place(error), "trace": traceback.format_exc()[-20_000:]}
    result["seconds"] = time.process_time() - begin
    child.slot.wait(index)
    printed = child.said.read_bytes()[said:] if _size(child.said) > said else b""
    if result["fault"] is None and any(mark in printed for mark in _PRINTED):
        text = printed.decode(errors="replace")
        result["fault"] = {"what": "printed traceback", "place": text.strip().splitlines()[-1][:80], "trace": text}
    shutil.rmtree(folder)
    return result


def _redirect(path: Path) -> None:
    """Send what the child and its libraries print to a file (stderr) or nowhere (stdout)."""
    said, nothing = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.dup2(said, 2)


def _key(case: Case) -> tuple[str, int]:
    return case.reader.name, case.number


def _name(error: BaseException) -> str:
    what = type(error).__name__
    return f"{what} {str(error).split()[0]}" if what == "WrongResult" else what


def _find_place(error: BaseException) -> str:
    """Return the last frame in albert_data, as file:function."""
    frames = [found for found in _walk(error.__traceback__) if _OURS.search(found[0])]
    if not frames:
        return "outside of albert_data"
    file, function = frames[-1]
    return f"{_OURS.findall(file)[0]}:{function}"


def _walk(trace: TracebackType | None) -> Iterator[tuple[str, str]]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename.replace(os.sep, "/"), trace.tb_frame.f_code.co_name
        trace = trace.tb_next


def _read_result(line: str, batch: list[Case]) -> Outcome:
    found = json.loads(line)
    fault = found["fault"] and Fault(**found["fault"])
    return Outcome(
        case=batch[found["index"]],
        is_refused=found["is_refused"],
        fault=fault,
        seconds=found["seconds"],
        peak_bytes=found["peak_bytes"],
    )


def _lines(path: Path) -> list[str]:
    """Return the complete lines of a file; a child may have been killed while it wrote the last one."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):  # it ended just now
        return 0


def _worked_seconds(pid: int) -> float:
    """Return the CPU time of a process."""
    try:
        user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    except (OSError, ValueError):
        return 0.0
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _address_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
