"""Run one function over many tasks, in worker processes.

An engine is anything with `run(job, tasks)` that yields each task with its result, in any order. This one uses
processes on this machine; ray_engine.py sends the same picklable job and tasks to a cluster. Tasks may be made lazily,
for example by reading a stream: a thread makes them, a few ahead of the workers. A worker that dies is replaced and its
task is tried once more; a task that kills two workers is named in the error.

The package multiprocess starts the processes: its pickle (dill) accepts any function as a job. Tasks and results are
pickled with Python's own pickle: dill needs half a millisecond more for each message, and a worker waits for it.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import multiprocess
from multiprocess.connection import Connection, wait

from albert_data.errors import AlbertDataError, WorkerError, explain_disk_error
from albert_data.storage.interrupts import on_interrupt

_ORPHAN_CHECK_SECONDS = 0.5
_TRIES = 2
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # microseconds of processor time in a period; of a container (cgroup v2)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt
_LARGEST_REUSED_BYTES, _FREE_BYTES_KEPT = 32 << 20, 256 << 20


def explain_memory_error(what: str) -> WorkerError:
    return WorkerError(f"memory ran out on {what}; use fewer --workers, or a machine with more of it")


def explain_error(error: Exception, what: str) -> AlbertDataError | None:
    """The error of ours that an error of a job stands for; None for a bug. what: the task."""
    if isinstance(error, OSError):
        return explain_disk_error(error, what)
    if isinstance(error, MemoryError):
        return explain_memory_error(what)
    return error if isinstance(error, AlbertDataError) else None


class Task(Protocol):
    """One unit of work for a job."""

    def describe(self) -> str:
        """Name the task for a message: the file and the range of bytes."""


AnyTask = TypeVar("AnyTask", bound=Task)
Result = TypeVar("Result")


@runtime_checkable
class Engine(Protocol):
    """Where tasks are run."""

    def run(self, job: Callable[[AnyTask], Result], tasks: Iterable[AnyTask]) -> Iterator[tuple[AnyTask, Result]]:
        """Yield every task with its result. If a job raises an AlbertDataError, stop and raise it.

        A job reuses scratch buffers, so within a process it must do one task after another, never two in two threads.
        """


@dataclass(frozen=True, kw_only=True)
class PreparedJob(Generic[AnyTask, Result]):
    """A job, and what an engine of several machines does on each of them before it runs tasks there.

    name: what its tasks do, for the pages of a cluster
    prepare: loads or compiles the job's kernels; places: files that every machine must see; packages: libraries that
    affect the result beside those of `current_versions`. An engine of one machine needs none of them: the caller has
    prepared this process already, and workers inherit that.
    """

    job: Callable[[AnyTask], Result]
    name: str = ""
    prepare: Callable[[], object] = int  # does nothing, and can be pickled
    places: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    def __call__(self, task: AnyTask) -> Result:
        return self.job(task)


def spans_machines(engine: Engine) -> bool:
    """Whether the engine's tasks may run on other machines, where this process's pipes and memory are out of reach."""
    return getattr(engine, "spans_machines", False)


def count_cores() -> int:
    """The number of cores that this process may use: no more than a container has processor time for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = map(int, CPU_QUOTA.read_text().split())
    except (OSError, ValueError):  # there is no such file, or it says "max 100000": no quota
        return cores
    return max(1, min(cores, -(-quota // period)))


class MultiprocessEngine:
    """Worker processes on this machine, one a core by default.

    They are forked on Linux, so that they inherit the compiled kernels. Elsewhere they are spawned: on macOS a forked
    process may crash, since the system's libraries start threads.
    """

    def __init__(self, num_workers: int | None = None) -> None:
        self._num_workers, self._context = num_workers or count_cores(), _get_context()

    def run(self, job: Callable[[AnyTask], Result], tasks: Iterable[AnyTask]) -> Iterator[tuple[AnyTask, Result]]:
        workers: list[_Worker] = []
        # A process of a `multiprocess.Pool` may start none by default, as they could outlive it. These end with it.
        if multiprocess.current_process().daemon:
            multiprocess.current_process().daemon = False
        with ExitStack() as ends:
            for _ in range(self._num_workers):
                workers.append(_Worker(self._context, job))
                ends.callback(workers[-1].kill)  # before it starts: Ctrl-C may come at any moment
                workers[-1].start()
            feed = _Feed(tasks, ahead=self._num_workers)
            ends.callback(feed.close)
            while True:
                self._hand_out(feed, workers)
                busy = [worker for worker in workers if worker.task is not None]
                if not busy and feed.is_done:
                    break
                handles = [handle for worker in busy for handle in (worker.connection, worker.sentinel)]
                # While all are busy no message is read, so waiting for messages would return at once, again and again.
                ready = wait([feed.messages, *handles] if len(busy) < len(workers) else handles)
                for worker in busy:
                    if worker.connection in ready and (answer := worker.receive()) is not None:
                        self._hand_out(feed, workers)  # first, as the caller may take long over the answer
                        yield answer
                    elif worker.connection in ready or worker.sentinel in ready:
                        worker.replace()
            for worker in workers:
                worker.stop()

    @staticmethod
    def _hand_out(feed: _Feed, workers: list[_Worker]) -> None:
        for worker in workers:
            if worker.task is None and (task := feed.take()) is not None:
                worker.send(task)


@contextmanager
def run_beside(work: Callable[[], object]) -> Iterator[None]:
    """Run a function in a process of its own, which ends at the latest with the block. It must not raise."""
    worker = _Worker(_get_context(), lambda task: work())
    try:
        worker.start()
        worker.send("work")
        yield
    finally:
        worker.kill()


def _get_context() -> Any:
    return multiprocess.get_context("fork" if sys.platform == "linux" else "spawn")


class _Feed:
    """Tasks made ahead by a thread. `messages` is a pipe that gets one message for each of them, and one at the end.

    is_done: whether `take` has come to the end.
    """

    def __init__(self, tasks: Iterable[Any], ahead: int) -> None:
        self.messages, self._sender = multiprocess.Pipe(duplex=False)
        self._made: deque[tuple[str, Any]] = deque()
        self._capacity = threading.Semaphore(ahead)
        self.is_done = self._closed = False
        self._thread = threading.Thread(target=self._make, args=(tasks,), daemon=True)
        self._thread.start()

    def _make(self, tasks: Iterable[Any]) -> None:
        try:
            for task in tasks:
                self._capacity.acquire()
                if self._closed:
                    return
                self._add("task", task)
            self._add("end", None)
        except BaseException as error:
            self._add("error", error)

    def _add(self, kind: str, value: Any) -> None:
        self._made.append((kind, value))
        self._sender.send_bytes(b"one more")  # after it was added: who reads this message takes it at once

    def take(self) -> Any | None:
        """The next task, or None if none is ready or left. Raises what making a task raised."""
        while self.messages.poll():
            self.messages.recv_bytes()
        if not self._made:
            return None
        kind, value = self._made[0]  # an end or an error stays there
        if kind == "error":
            raise value
        self.is_done = kind == "end"
        if not self.is_done:
            self._made.popleft()
            self._capacity.release()
        return value

    def close(self) -> None:
        self._closed = True
        self._capacity.release()


class _Worker:
    """One process, and the task that it is working on."""

    def __init__(self, context: Any, job: Callable[[Any], Any]) -> None:
        self._context, self._job = context, job
        self._inherits = context.get_start_method() == "fork"
        self.task: Any | None = None
        self._tries = 0
        self._prepare()

    def _prepare(self) -> None:
        self.connection, self._theirs = self._context.Pipe()
        # A spawned one gets its job by the connection: if it ends before it reads, `start` would wait for ever.
        job = self._job if self._inherits else None
        self._process = self._context.Process(target=_work, args=(self._theirs, job, os.getpid()), daemon=True)

    def start(self) -> None:
        # SIGINT is blocked until multiprocess lists the child, so that `_kill_workers` finds it. The child inherits the
        # block and keeps it.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self._theirs.close()
        self.sentinel = self._process.sentinel
        if not self._inherits:
            with suppress(BrokenPipeError, ConnectionResetError):  # it ended, which shows as for one that dies later
                self.connection.send(self._job)

    def send(self, task: Any) -> None:
        self.task, self._tries = task, self._tries + 1
        with suppress(BrokenPipeError, ConnectionResetError):  # the process died: its sentinel becomes ready
            self.connection.send_bytes(pickle.dumps(task))

    def receive(self) -> tuple[Any, Any] | None:
        """The task and its result, or None if the process died. Raises what the job raised."""
        try:
            kind, value = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return None
        task, self.task, self._tries = self.task, None, 0
        if kind == "result":
            return task, value
        raise value

    def replace(self) -> None:
        """Start another process for the task of the one that died."""
        self._process.join()
        task, code = self.task, self._process.exitcode
        assert task is not None, "only workers with a task are waited for"
        if self._tries >= _TRIES:
            cause = f"signal {-code}" if code < 0 else f"exit code {code}"
            hint = "; signal 9 mostly means that memory ran out: use fewer --workers" if code == -9 else ""
            if code == 1 and not self._inherits:
                hint = '; where processes are spawned, as on macOS, a script needs `if __name__ == "__main__":`'
            raise WorkerError(f"a worker died {self._tries} times ({cause}) on {task.describe()}{hint}")
        self.connection.close()
        self._prepare()
        self.start()
        self.send(task)

    def stop(self) -> None:
        """Tell an idle worker to end, and wait for it."""
        with suppress(BrokenPipeError, ConnectionResetError):  # it died while it was idle
            self.connection.send_bytes(pickle.dumps(None))
        self._process.join()

    def kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.connection.close()


def _work(connection: Connection, job: Callable[[Any], Any] | None, parent: int) -> None:
    """The loop of a worker process. It ends with its parent, even if that is killed. job: None if it is to be read."""
    # A forked worker has SIGINT blocked already. A spawned one may not: multiprocess unblocks it in the parent when it
    # starts its resource tracker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked worker inherits a handler that was made for its parent
    keep_memory()
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    with suppress(EOFError):  # the parent has gone
        job = connection.recv() if job is None else job
        while (task := pickle.loads(connection.recv_bytes())) is not None:
            try:
                answer = pickle.dumps(("result", job(task)))
            except Exception as error:  # of any type: the parent raises it
                what = task.describe()
                told = explain_error(error, what) or RuntimeError(f"{what}:\n{traceback.format_exc()}")
                answer = pickle.dumps(("error", told))
            connection.send_bytes(answer)


@on_interrupt
def _kill_workers() -> None:
    """Kill all workers, and wait: until a forked one ends, its copy of the descriptor keeps OUT/.build/lock locked."""
    workers = multiprocess.active_children()
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join()


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_ORPHAN_CHECK_SECONDS)
    os._exit(1)


def keep_memory() -> None:
    """If the allocator is glibc's, have it reuse freed memory for arrays of up to 32 MB.

    A worker makes and frees arrays of some MB over and over. By default glibc returns such memory to the system, or
    keeps it, depending on the layout of its heap. The system zeroes each page before it hands it out again: half a
    million pages and 0.9 s for a gigabyte of text. So up to 256 MB of free memory are kept, more than the largest
    worker used in all (223 MB).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_REUSED_BYTES)
        mallopt(_TRIM_THRESHOLD, _FREE_BYTES_KEPT)
