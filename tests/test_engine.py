"""The engine runs every task once, survives the death of a worker, names a task that kills two, and cleans up."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import build_fixtures as fixtures
import multiprocess
import pytest

from albert_data.errors import AlbertDataError, ConfigError, InputError, WorkerError
from albert_data.jobs import engine
from albert_data.jobs.engine import MultiprocessEngine


@dataclass(frozen=True)
class Task:
    number: int

    def describe(self) -> str:
        return f"file.txt, bytes {self.number} to {self.number + 1}"


def tasks(count: int) -> list[Task]:
    return [Task(number) for number in range(count)]


def square(task: Task) -> int:
    return task.number**2


def children() -> set[int]:
    return {process.pid for process in fixtures.running_processes() if process.parent == os.getpid()}


@pytest.fixture(autouse=True)
def leaves_no_process() -> Iterator[None]:
    """However a run ends, no worker is left running or as a zombie."""
    before = children()
    yield
    assert children() <= before


@pytest.mark.parametrize("num_workers", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 60])
def test_every_task_comes_back_once_with_its_result(num_workers, count):
    found = Counter(MultiprocessEngine(num_workers).run(square, tasks(count)))
    assert found == Counter((task, square(task)) for task in tasks(count))


SPAWNING = """
from functools import partial
import multiprocess
from albert_data.jobs import engine
from test_engine import Task, tasks

engine._get_context = lambda: multiprocess.get_context("spawn")
job = partial(max, "a job of more than a pipe holds" * 10_000, key=str)
if {guard}:
    assert len(list(engine.MultiprocessEngine(2).run(job, tasks(3)))) == 3
"""


@pytest.mark.parametrize(
    ("guard", "message"), [("__name__ == '__main__'", ""), ("True", "a script needs `if __name__")]
)
def test_where_workers_are_spawned_a_script_without_a_guard_is_told_so_and_does_not_wait(tmp_path, guard, message):
    script = tmp_path / "script.py"
    script.write_text(SPAWNING.format(guard=guard))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, message in done.stderr) == (1 if message else 0, True), done.stderr


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("200000 100000", 2), ("150000 100000", 2), ("5000 100000", 1), ("6400000 100000", 4), ("max 100000", 4), ("", 4)],
)
def test_a_quota_of_processor_time_limits_the_workers(monkeypatch, tmp_path, quota, cores):
    monkeypatch.setattr(engine.os, "sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(engine, "CPU_QUOTA", tmp_path / "cpu.max")
    assert engine.count_cores() == 4
    (tmp_path / "cpu.max").write_text(quota)
    assert engine.count_cores() == cores


def test_large_results_and_tasks_come_back_whole():
    task = os.urandom(3_000_000)
    assert list(MultiprocessEngine(2).run(lambda task: task[::-1], [task])) == [(task, task[::-1])]


def test_tasks_run_at_the_same_time(tmp_path):
    """Each task waits until all have begun."""

    def meet(task: Task) -> int:
        (tmp_path / str(task.number)).touch()
        deadline = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        return len(list(tmp_path.iterdir()))

    assert [result for _, result in MultiprocessEngine(4).run(meet, tasks(4))] == [4, 4, 4, 4]


# ---- errors ----


def fail_to_read(task: Task) -> None:
    raise OSError(errno.EIO, "Input/output error")


def refuse_one(task: Task) -> None:
    if task.number == 7:
        raise ConfigError("x is 1; allowed are 2 to 3")


def make_damaged() -> Iterator[Task]:
    yield from tasks(3)
    raise InputError("the stream is damaged")


ONE = "file.txt, bytes 0 to 1"
GONE = Path("/nowhere/gone.txt")


@pytest.mark.parametrize(
    ("job", "made", "kind", "message"),
    [
        (refuse_one, tasks(20), ConfigError, r"^x is 1; allowed are 2 to 3$"),
        (square, make_damaged(), InputError, "^the stream is damaged$"),
        (lambda task: GONE.read_bytes(), tasks(1), AlbertDataError, rf"^{GONE}: No such file or directory; fix that"),
        (fail_to_read, tasks(1), AlbertDataError, f"^{ONE}: Input/output error; fix that"),
        (lambda task: 1 / task.number, tasks(3), RuntimeError, f"(?s){ONE}:\nTraceback.*in <lambda>.*ZeroDivision"),
        (lambda task: lambda: task, tasks(1), RuntimeError, f"(?s){ONE}:\nTraceback.*pickle"),
    ],
    ids=["ours", "in making tasks", "of a file", "of the disk", "a bug", "a result that can't be sent"],
)
def test_an_error_names_the_file_or_the_task_and_a_bug_keeps_its_traceback(job, made, kind, message):
    with pytest.raises(kind, match=message) as caught:
        list(MultiprocessEngine(2).run(job, made))
    assert type(caught.value) is kind


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_run_ends_when_the_tasks_end_while_all_workers_are_idle(num_workers, monkeypatch):
    """The tasks end between the engine's check for their end and its request for the next one."""
    asked, take = threading.Event(), engine._Feed.take

    def take_at_the_end(feed: engine._Feed) -> Task | None:
        asked.set()
        feed._thread.join()
        return take(feed)

    def make_none() -> Iterator[Task]:
        asked.wait()
        yield from ()

    monkeypatch.setattr(engine._Feed, "take", take_at_the_end)
    handler = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("the engine waits for ever"))
    signal.alarm(20)
    try:
        assert list(MultiprocessEngine(num_workers).run(square, make_none())) == []
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)


# ---- death ----


def die_first(marks: Path, how: Callable[[], None], times: int) -> Callable[[Task], int]:
    """A job whose worker dies on task 3, this many times."""

    def job(task: Task) -> int:
        if task.number == 3 and len(list(marks.iterdir())) < times:
            (marks / str(os.getpid())).touch()
            how()
        return square(task)

    return job


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("how", [kill_self, lambda: os._exit(0)], ids=["killed", "exited"])
def test_a_task_whose_worker_died_once_is_done_again(how, tmp_path):
    found = Counter(MultiprocessEngine(2).run(die_first(tmp_path, how, times=1), tasks(10)))
    assert found == Counter((task, square(task)) for task in tasks(10))


@pytest.mark.parametrize(
    ("how", "cause"),
    [(kill_self, "signal 9"), (lambda: os.kill(os.getpid(), 15), "signal 15"), (lambda: os._exit(3), "exit code 3")],
    ids=["killed", "terminated", "exited"],
)
def test_a_task_that_kills_two_workers_is_named_with_the_cause(how, cause, tmp_path):
    with pytest.raises(WorkerError, match=rf"died 2 times \({cause}\) on file.txt, bytes 3 to 4") as raised:
        list(MultiprocessEngine(2).run(die_first(tmp_path, how, times=2), tasks(10)))
    assert ("fewer --workers" in str(raised.value)) == (cause == "signal 9")


@pytest.mark.parametrize("is_last", [True, False], ids=["nothing is left", "a task is left"])
def test_a_worker_that_dies_while_idle_is_not_an_error(is_last):
    """Its death is noticed when the engine tells it to end, or sends it a task."""

    def wait(task: Task) -> int:
        time.sleep(0.3 * task.number)
        return os.getpid()

    def make() -> Iterator[Task]:
        yield Task(0)
        yield Task(2)
        time.sleep(0.3)
        if not is_last:
            yield Task(1)

    run = MultiprocessEngine(2).run(wait, make())
    first, worker = next(run)
    assert first.number == 0
    os.kill(worker, signal.SIGKILL)
    assert {task.number for task, _ in run} == ({2} if is_last else {1, 2})


def test_workers_end_when_their_parent_is_killed(tmp_path):
    def note(task: Task) -> None:
        (tmp_path / str(os.getpid())).touch()
        time.sleep(0.01)

    def work() -> None:
        for task, _ in MultiprocessEngine(3).run(note, tasks(10**6)):
            if task.number > 50:
                time.sleep(60)  # the workers wait for tasks

    parent = fixtures.fork(work)
    fixtures.wait_until(lambda: len(list(tmp_path.iterdir())) == 3)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    fixtures.wait_until(lambda: all(process.group != parent for process in fixtures.running_processes()))


# ---- bounds ----


def test_only_a_few_tasks_are_made_ahead_of_the_workers():
    made, num_workers = 0, 2

    def make() -> Iterator[Task]:
        nonlocal made
        for task in tasks(100):
            made += 1
            yield task

    for done, _ in enumerate(MultiprocessEngine(num_workers).run(square, make())):
        # finished, being worked on, in the queue, and one that waits for capacity in the queue
        assert made <= done + 1 + num_workers + num_workers + 1
        time.sleep(0.002)
    assert made == 100


def test_a_run_that_is_closed_early_ends_its_workers():
    started = time.monotonic()
    run = MultiprocessEngine(2).run(lambda task: time.sleep(task.number), [Task(0), Task(60), Task(60)])
    next(run)
    run.close()
    assert time.monotonic() - started < 10


def test_ctrl_c_while_a_worker_starts_leaves_no_worker(monkeypatch):
    """A worker that is left keeps the lock on OUT, so that the next build in a notebook would be refused."""
    process = multiprocess.context.ForkProcess
    start = process.start

    def start_and_interrupt(self: object) -> None:
        start(self)
        os.kill(os.getpid(), signal.SIGINT)

    before = children()  # other tests of this process may have left a pool of PyTorch's compiler
    monkeypatch.setattr(process, "start", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(MultiprocessEngine(2).run(square, tasks(1)))
    assert children() <= before  # while the error holds its traceback, as a notebook does


def test_a_process_of_a_pool_may_start_workers():
    """Also of that of `multiprocess`, which `datasets` uses and which forbids children by default."""
    with multiprocess.get_context("fork").Pool(1) as pool:
        assert pool.apply(lambda: dict(MultiprocessEngine(2).run(square, tasks(3)))) == {
            task: square(task) for task in tasks(3)
        }


def test_an_engine_runs_several_times_and_leaves_no_descriptor_open():
    engine, counts = MultiprocessEngine(3), []
    for _ in range(6):
        assert len(list(engine.run(square, tasks(10)))) == 10
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert counts[-1] <= counts[0]
