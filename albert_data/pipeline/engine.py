"""Run one function over many tasks, in worker processes.

An engine is anything with `run(job, tasks)` that yields each task with its result, in any order. This one
uses processes of this machine; a cluster's would send the same picklable job and tasks elsewhere. Tasks
may be made lazily, by reading a stream: a thread makes them, a few ahead of the workers. A worker that
dies is replaced and its task tried once more; a task that kills two workers is reported by name.
Tasks and results go through Python's own pickle. That of multiprocess, which takes functions too, is slower by half a
millisecond a message, for which a worker waits.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, Protocol, TypeVar

import multiprocess
from multiprocess.connection import Connection, wait

from albert_data.errors import AlbertDataError, WorkerError, explain_os_error
from albert_data.interrupts import before_exit
from albert_data.pipeline.memory import keep_memory

_ORPHAN_CHECK_SECONDS = 0.5
_TRIES = 2
_NEXT_STEP = "fix that and give the same command again"


class Task(Protocol):
    """What an engine can run a job on."""

    def describe(self) -> str:
        """Name the task in a message: the file and the range of bytes."""


AnyTask = TypeVar("AnyTask", bound=Task)
Result = TypeVar("Result")


class Engine(Protocol):
    """Where tasks are run."""

    def run(self, job: Callable[[AnyTask], Result], tasks: Iterable[AnyTask]) -> Iterator[tuple[AnyTask, Result]]:
        """Yield every task with its result. An AlbertDataError of a job ends the run and is raised.

        A job keeps scratch buffers: in one process it is called for one task after another, never by two threads.
        """


class MultiprocessEngine:
    """Worker processes on this machine: forked where that is cheap and safe (Linux), else spawned."""

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._context = multiprocess.get_context("fork" if sys.platform == "linux" else "spawn")

    def run(self, job: Callable[[AnyTask], Result], tasks: Iterable[AnyTask]) -> Iterator[tuple[AnyTask, Result]]:
        workers: list[_Worker] = []
        with ExitStack() as ends:
            for _ in range(self._num_workers):
                workers.append(_Worker(self._context, job))
                ends.callback(workers[-1].kill)
            feed = _Feed(tasks, ahead=self._num_workers)
            ends.callback(feed.close)
            while True:
                self._hand_out(feed, workers)
                busy = [worker for worker in workers if worker.task is not None]
                if not busy and feed.is_done:  # asked here, for to hand out is to hear the last signal
                    break
                handles = [handle for worker in busy for handle in (worker.connection, worker.sentinel)]
                ready = wait([feed.signal, *handles] if len(busy) < len(workers) else handles)
                for worker in busy:
                    if worker.connection in ready and (answer := worker.receive()) is not None:
                        self._hand_out(feed, workers)  # so that the worker does not wait meanwhile
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


class _Feed:
    """Tasks made ahead by a thread. `signal` becomes readable with each task, and at the end."""

    def __init__(self, tasks: Iterable[Any], ahead: int) -> None:
        self.signal, self._bell = multiprocess.Pipe(duplex=False)
        self._made: deque[Any] = deque()
        self._room = threading.Semaphore(ahead)
        self._error: BaseException | None = None
        self._ended = self._closed = False
        self._thread = threading.Thread(target=self._make, args=(tasks,), daemon=True)
        self._thread.start()

    def _make(self, tasks: Iterable[Any]) -> None:
        try:
            for task in tasks:
                self._room.acquire()
                if self._closed:
                    return
                self._made.append(task)
                self._bell.send_bytes(b"t")
        except BaseException as error:
            self._error = error
        self._ended = True
        self._bell.send_bytes(b"e")

    @property
    def is_done(self) -> bool:
        return self._ended and not self._made and self._error is None

    def take(self) -> Any | None:
        """The next task if one is made. Raises what making a task raised."""
        while self.signal.poll():
            self.signal.recv_bytes()
        if self._made:
            self._room.release()
            return self._made.popleft()
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        self._closed = True
        self._room.release()


class _Worker:
    """One process, and the task that it is at."""

    def __init__(self, context: Any, job: Callable[[Any], Any]) -> None:
        self._context, self._job = context, job
        self.task: Any | None = None
        self._tries = 0
        self._start()

    def _start(self) -> None:
        self.connection, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_work, args=(theirs, self._job, os.getpid()), daemon=True)
        # Ctrl-C waits until the child is known to multiprocess, and in the child until that ignores it.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        theirs.close()
        self.sentinel = self._process.sentinel

    def send(self, task: Any) -> None:
        self.task, self._tries = task, self._tries + 1
        with suppress(BrokenPipeError, ConnectionResetError):  # it died: its sentinel tells
            self.connection.send_bytes(pickle.dumps(task))

    def receive(self) -> tuple[Any, Any] | None:
        """The task and its result, or None if the process died over it. Raises what the job raised."""
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
        assert task is not None, "only a worker with a task is waited for"
        if self._tries >= _TRIES:
            cause = f"signal {-code}" if code < 0 else f"exit code {code}"
            hint = "; signal 9 mostly means that memory ran out: use fewer --workers" if code == -9 else ""
            raise WorkerError(f"a worker died {self._tries} times ({cause}) on {task.describe()}{hint}")
        self.connection.close()
        self._start()
        self.send(task)

    def stop(self) -> None:
        """Let an idle worker end by itself."""
        with suppress(BrokenPipeError, ConnectionResetError):  # it ended already: none waited for it
            self.connection.send_bytes(pickle.dumps(None))
        self._process.join()

    def kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.connection.close()


def _work(connection: Connection, job: Callable[[Any], Any], parent: int) -> None:
    """The loop of a worker. It ends with its parent, even if that was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    keep_memory()
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    while (task := _receive(connection)) is not None:
        try:
            answer = pickle.dumps(("result", job(task)))
        except AlbertDataError as error:
            answer = pickle.dumps(("error", error))
        except OSError as error:
            answer = pickle.dumps(
                ("error", AlbertDataError(f"{explain_os_error(error, task.describe())}; {_NEXT_STEP}"))
            )
        except Exception:  # a fault of the job: the parent raises it, with the task's name
            answer = pickle.dumps(("error", RuntimeError(f"{task.describe()}:\n{traceback.format_exc()}")))
        connection.send_bytes(answer)


@before_exit
def _kill_workers() -> None:
    """Wait for their death too: until then they hold the lock of the build's folder."""
    workers = multiprocess.active_children()
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join()


def _receive(connection: Connection) -> Any | None:
    """The next task, or None when there will be no more."""
    with suppress(EOFError):
        return pickle.loads(connection.recv_bytes())
    return None


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_ORPHAN_CHECK_SECONDS)
    os._exit(1)
