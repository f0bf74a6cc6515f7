"""Run one function over many tasks on a Ray cluster, or on a Ray of this machine alone.

In: the same picklable jobs and tasks as engine.py. Out: each task with its result. Each task is a task of Ray Core that
gets paths and returns a receipt: Ray carries neither text nor shards. A job is sent once to a machine. Ray itself tries
nothing again (max_retries=0). A worker that died, memory that ran out, and errors of a disk or a store cost a try of
their task, which is tried again after a pause, on another node (see ray_nodes.py); a lost node costs no try. An error
of the input or the settings ends the run. When all tasks are handed out, or all that run take very long, those that do
are also run a second time, as a read may hang. Both write the same bytes, and the first that ends ends the other. What
hangs and what takes long look alike from here, so nothing is ended for its time alone, unless for a day no task ends.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import islice
from operator import length_hint
from threading import Thread
from types import TracebackType
from typing import Any, TypeVar
from uuid import uuid4

from albert_data.errors import AlbertDataError, ConfigError, WorkerError
from albert_data.interrupts import before_exit
from albert_data.jobs.engine import AnyTask, PreparedJob, Result, count_cores, explain_memory_error
from albert_data.jobs.ray_nodes import ClusterNodes
from albert_data.jobs.ray_worker import (
    BUG,
    OURS,
    RESULT,
    RETRY,
    UNFIT,
    Shipment,
    TaskAnswer,
    list_places,
    list_versions,
    prepare_machine,
    run_task,
)

Answer = TypeVar("Answer")
_TRIES = 5  # of a task, whatever goes wrong
_MOST_LOST = 20  # nodes that were lost with a task, until the task is to blame
_PAUSE_SECONDS = 1.0  # before the second try, then twice as long each time: Ray needs seconds to notice a lost node
_TASKS_PER_CPU = 2  # handed to Ray at a time, so that a CPU need not wait for the next one
_REFRESH_SECONDS = 5.0  # how often the number of CPUs is asked for, as nodes join and leave
_MOST_ASKED = 10_000  # CPUs, of an autoscaler
_JOIN_SECONDS = 300.0  # without a node that has a CPU, until one joins
_HUNG_SECONDS = 600.0  # of a task; then it is also run a second time, after twice as long a third time
_HUNG_FACTOR = 3.0  # and at least so many times as long as the slowest task before
_END_SECONDS = 86_400.0  # without a task that ends, then the run ends: a day for 2 TB of text in one compressed file
_HEAD_SECONDS = 20.0  # without an answer from the head; then it counts as lost. Ray ends this process after 60
_CONNECT_SECONDS = 10.0
_PREPARE_SECONDS = 600.0  # of all machines, at the same time: kernels are compiled in half a minute
_LATE_SECONDS = 30.0  # then, of those that were late in the run before
_CANCEL_SECONDS = 10.0
_STORE_BYTES = 256 << 20  # memory for objects of a Ray of this machine: jobs and receipts are small
_HOST_PORT = re.compile(r"(.+):(\d+)")
_log = logging.getLogger("albert_data")
_EMPTY_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # a frame of HTTP/2: its length in three bytes, then its type

_engines: weakref.WeakSet[RayEngine] = weakref.WeakSet()  # those that Ctrl-C has to stop


@dataclass(kw_only=True, eq=False)
class _Attempt:
    """A task that was handed out.

    tries: that failed; num_lost: nodes that were lost with it; due: when it may be tried again, by the monotonic clock
    avoided: the nodes on which it failed; excluded: those that its last try, or the last copy of it, must not take
    starts: when the last try was handed out, and each copy of it since then, by Ray's reference
    """

    task: Any
    tries: int = 0
    num_lost: int = 0
    due: float = 0.0
    avoided: set[str] = field(default_factory=set)
    excluded: set[str] = field(default_factory=set)
    starts: dict[Any, float] = field(default_factory=dict)


class RayEngine:
    """The CPUs of a Ray cluster. Use it as a context manager: it leaves the cluster at the end.

    address: of the cluster's head, as host:port, or "auto" for the cluster that this machine belongs to, or that
    RAY_ADDRESS names. None takes such a cluster if there is one, and otherwise starts a Ray of this machine alone.
    num_workers: the most tasks that run at a time; None for one a CPU of the cluster, also of nodes that join later.
    labels: those that a node must have to get tasks, or with a value that begins with "!" must not have.
    Raises ConfigError if Ray is not installed, no cluster answers, or it has other versions.
    """

    spans_machines = True

    def __init__(
        self, address: str | None = None, num_workers: int | None = None, labels: Mapping[str, str] | None = None
    ) -> None:
        self._ray, self._cap, self._labels = _import_ray(), num_workers, dict(labels or {})
        self._exceptions = import_module("ray.exceptions")
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            connect(self._ray, address, num_workers)
        context = self._ray.get_runtime_context()
        self._needed = {"the head of the Ray cluster": context.gcs_address}
        for node in self._ray.nodes():
            if node["NodeID"] == context.get_node_id():
                self._needed["the Ray node of this command"] = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
        self._run = self._ray.remote(num_cpus=1, max_retries=0)(run_task)
        self._running: dict[Any, _Attempt] = {}  # by Ray's reference; a task with a copy is there twice
        self._tasks: dict[_Attempt, None] = {}  # those that run, each once
        self._dropped: list[Any] = []  # references that nobody waits for, until the run ends
        self._title, self._slowest_seconds, self._said = "", 0.0, set[str]()  # of one run, as is `_nodes`
        self._ended = 0.0  # when the last task ended, by the monotonic clock
        self._nodes, self._has_asked = ClusterNodes(self._ray, self._labels), False
        self._late = set[str]()  # nodes that were not ready in time for the last run
        self._is_lost = False  # head or own node: then calls of Ray don't return, or end this process
        _engines.add(self)

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster, or end the Ray that was started here."""
        self.cancel()
        if self._has_asked and not self._is_lost:
            with suppress(WorkerError):  # the head is lost, but all work is done
                self._check_head()  # without a thread: an interrupt calls this too
                import_module("ray.autoscaler.sdk").request_resources()
        if self._is_ours and not self._is_lost:
            self._ray.shutdown()
        _engines.discard(self)

    def cancel(self) -> None:
        """End all tasks that run, and wait until none of them writes any more."""
        left = [] if self._is_lost else [*self._running, *self._dropped]
        for one in (self._running, self._tasks, self._dropped):
            one.clear()
        for ref in left:
            with suppress(Exception):  # the node is gone, or the head
                self._ray.cancel(ref, force=True)
        if left:
            with suppress(Exception):
                self._ray.wait(left, num_returns=len(left), timeout=_CANCEL_SECONDS)

    def run(self, job: Callable[[AnyTask], Result], tasks: Iterable[AnyTask]) -> Iterator[tuple[AnyTask, Result]]:
        """Yield every task with its result; see `Engine`. Raises WorkerError for a task that failed five times."""
        (name, sent), again = self._send(job), list[_Attempt]()
        self._ask_for_cpus(length_hint(tasks))
        self._prepare(name, sent)
        limit, refreshed = self._count_wanted(), time.monotonic()
        new, has_more = iter(tasks), True
        try:
            while True:
                if is_old := time.monotonic() - refreshed > _REFRESH_SECONDS:
                    limit, refreshed = self._count_wanted(), time.monotonic()
                    again += self._drop_stuck()
                for attempt in _take_due(again, limit - len(self._tasks)):
                    self._start(attempt, name, sent)
                wanted = limit - len(self._tasks) - len(again)
                fresh = [_Attempt(task=task) for task in islice(new, max(wanted, 0))]
                for attempt in fresh:
                    self._start(attempt, name, sent)
                has_more = has_more and (bool(fresh) or wanted <= 0)
                if not again and not has_more and not self._tasks:
                    return
                if is_old:
                    num_cpus = 0 if again or has_more else min(limit, self._nodes.num_cpus)
                    self._start_copies(name, sent, num_cpus - len(self._running))
                for ref in self._wait():
                    if ref not in self._running:  # a copy was faster
                        continue
                    attempt = self._running.pop(ref)
                    kind, value = self._receive(ref, attempt)
                    if kind == RESULT:
                        yield attempt.task, value
                    elif not attempt.starts.keys() & self._running.keys():
                        self._drop(attempt)
                        again.append(_try_again(attempt, value))
        finally:
            self.cancel()

    def _send(self, job: Callable[[AnyTask], Result]) -> tuple[str, list[Any]]:
        """Give the job to Ray. Returns its name, and a reference in a list, which tasks don't fetch by themselves."""
        self._check_head()
        self._title, self._slowest_seconds, self._said = getattr(job, "name", "") or "task", 0.0, set()
        self._ended = time.monotonic()
        self._nodes = ClusterNodes(self._ray, self._labels)
        prepared = job if isinstance(job, PreparedJob) else PreparedJob(job=job)
        shipment = Shipment(
            name=uuid4().hex,
            content=import_module("ray.cloudpickle").dumps(prepared),
            packages=prepared.packages,
            versions=list_versions(prepared.packages),
            places=list_places(prepared.places),
            folder=os.getcwd(),
        )
        return shipment.name, [self._ray.put(shipment)]

    def _ask_for_cpus(self, num_tasks: int) -> None:
        """Tell an autoscaler what can work at once: it would only double what works. num_tasks: 0 if not known."""
        wanted = min(count for count in (self._cap, num_tasks, _MOST_ASKED) if count)
        if (self._cap or num_tasks) and wanted > self._ask(self._nodes.count_cpus):
            labels = {"bundle_label_selectors": [self._labels] * wanted} if self._labels else {}
            request = import_module("ray.autoscaler.sdk").request_resources
            self._ask(partial(request, bundles=[{"CPU": 1}] * wanted, **labels))
            self._has_asked = True

    def _prepare(self, name: str, sent: list[Any]) -> None:
        """Have every node check versions and files, and compile the kernels. Nodes that join later do it themselves."""
        self._count_wanted()
        strategies = import_module("ray.util.scheduling_strategies")
        refs = {}
        for node in self._nodes.hosts:
            at = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            settings = {"num_cpus": 0, "max_retries": 0, "name": "prepare", "scheduling_strategy": at}
            remote = self._ray.remote(**settings)(prepare_machine).remote
            refs[self._ask(partial(remote, name, sent))] = node
        began, awaited = time.monotonic(), [ref for ref, node in refs.items() if node not in self._late] or list(refs)
        self._wait_for(awaited, _PREPARE_SECONDS)
        late = self._wait_for(list(refs), _LATE_SECONDS)
        self._late, waited = {refs[ref] for ref in late}, time.monotonic() - began
        for ref, node in refs.items():
            if ref in late:
                says = f"node {self._nodes.hosts[node]} did not get ready in {waited:.0f} seconds"
                self._nodes.leave_out(node, WorkerError(f"{says}; remove it from the cluster"))
                continue
            answer = self._get(ref, self._nodes.hosts[node])
            is_failing = answer.kind == RETRY and answer.node and not answer.is_lost
            if answer.kind == UNFIT or is_failing:  # or it has left: the others go on
                self._nodes.leave_out(node, answer.value)

    def _wait_for(self, refs: list[Any], seconds: float) -> list[Any]:
        """Wait for all of them. Returns those that are not done in time."""
        deadline = time.monotonic() + seconds
        while True:
            left: list[Any] = self._ray.wait(refs, num_returns=len(refs), timeout=_PAUSE_SECONDS)[1]
            if not left or time.monotonic() > deadline:
                return left
            self._check_head()

    def _start(self, attempt: _Attempt, name: str, sent: list[Any], **options: Any) -> None:
        avoided = attempt.avoided if len(attempt.starts) < 2 else ()  # a copy was no help: it may wait for a CPU
        attempt.excluded = self._nodes.exclude(avoided)
        labels = self._nodes.select(avoided, needs_cpu=options.get("num_cpus") != 0)
        run = self._run.options(name=self._title, label_selector=labels, **options)
        ref = self._ask(partial(run.remote, name, sent, attempt.task))
        self._running[ref], self._tasks[attempt], attempt.starts[ref] = attempt, None, time.monotonic()

    def _drop(self, attempt: _Attempt) -> None:
        """End what runs of a task, and wait for none of it."""
        for ref in attempt.starts.keys() & self._running.keys():
            self._dropped.append(ref)
            del self._running[ref]
            with suppress(Exception):  # the node is gone, or the head
                self._ray.cancel(ref, force=True)
        self._tasks.pop(attempt)
        attempt.starts.clear()

    def _drop_stuck(self) -> list[_Attempt]:
        """Drop and return the tasks that may run on no node any more, as all others have left."""
        stuck = [attempt for attempt in self._tasks if self._nodes.hosts.keys() <= attempt.excluded]
        for attempt in stuck:
            self._drop(attempt)
        return stuck

    def _start_copies(self, name: str, sent: list[Any], room: int) -> None:
        """Run tasks that take very long once more, where there is room: so many CPUs that are free.

        If all take very long and no CPU is free, one runs beside them: a task that hangs computes nothing. Raises
        WorkerError if for a day no task has ended.
        """
        now, patience = time.monotonic(), max(_HUNG_SECONDS, _HUNG_FACTOR * self._slowest_seconds)
        slow = [one for one in self._tasks if now - max(one.starts.values()) > patience * 2 ** (len(one.starts) - 1)]
        slow.sort(key=lambda one: len(one.starts))
        is_full = room <= 0 and len(slow) == len(self._tasks)
        for attempt in slow[: 1 if is_full else max(room, 0)]:
            self._tell_slow(attempt, now - min(attempt.starts.values()))
            self._start(attempt, name, sent, scheduling_strategy="SPREAD", num_cpus=0 if is_full else 1)
        if self._tasks and now - self._ended > max(_END_SECONDS, patience):
            raise WorkerError(
                f"no task has ended for {(now - self._ended) / 3600:.0f} hours, such as "
                f"{next(iter(self._tasks)).task.describe()}; see whether a disk or a store hangs, and give the same "
                "command again: finished tasks are kept"
            )

    def _tell_slow(self, attempt: _Attempt, seconds: float) -> None:
        """Say that a task may hang: once in a run for each number of times that one was begun."""
        if (wording := f"hangs {len(attempt.starts)}") not in self._said:
            self._said.add(wording)
            what = attempt.task.describe()
            _log.warning("%s has not ended after %.0f minutes; another CPU does it too", what, seconds / 60)

    def _count_wanted(self) -> int:
        """How many tasks to hand to Ray at a time. Waits for a node if there is none with a CPU."""
        deadline, is_said = time.monotonic() + _JOIN_SECONDS, False
        while True:
            if num_cpus := self._ask(self._nodes.count_cpus):
                return self._cap if self._cap is not None else _TASKS_PER_CPU * num_cpus
            wanted = f"a CPU and the labels {self._labels}" if self._labels else "a CPU"
            if time.monotonic() > deadline:
                raise WorkerError(
                    f"no node of the Ray cluster has {wanted}; start one with `ray start`, and give the same command "
                    "again: finished tasks are kept"
                )
            if not is_said:
                _log.warning("no node of the cluster has %s; waiting up to %.0f s for one", wanted, _JOIN_SECONDS)
                is_said = True
            time.sleep(_PAUSE_SECONDS)

    def _wait(self) -> list[Any]:
        """The tasks that are done. Returns after a second if none is, so that later ones can be tried."""
        if not self._running:
            time.sleep(_PAUSE_SECONDS / 4)
            return []
        refs = list(self._running)
        done, _ = self._ray.wait(refs, num_returns=1, timeout=_PAUSE_SECONDS)
        if done:  # then all that are: each call looks at all of them
            return list(self._ray.wait(refs, num_returns=len(refs), timeout=0)[0])
        self._check_head()
        return []

    def _ask(self, call: Callable[[], Answer]) -> Answer:
        """What a call of Ray returns that may ask the head. Raises WorkerError if that is lost.

        Such a call would not return then, and Ray would end this process.
        """
        asked = Future[Answer]()

        def ask() -> None:
            try:
                asked.set_result(call())
            except BaseException as error:
                asked.set_exception(error)

        Thread(target=ask, daemon=True).start()
        while not wait([asked], _PAUSE_SECONDS).done:
            self._check_head()
        return asked.result()

    def _check_head(self) -> None:
        """Raise WorkerError if the head of the cluster, or the node that this process belongs to, does not answer."""
        deadline = time.monotonic() + _HEAD_SECONDS
        for what, address in self._needed.items():
            while not _answers(address):
                if time.monotonic() > deadline:
                    self._is_lost = True
                    raise WorkerError(
                        f"{what} at {address} does not answer any more; start the cluster and give the same command "
                        "again: finished tasks are kept"
                    )
                time.sleep(_PAUSE_SECONDS)

    def _receive(self, ref: Any, attempt: _Attempt) -> tuple[str, Any]:
        """The result of a task, or RETRY and an error if it may be tried again. Raises bugs and errors of the user."""
        answer = self._get(ref, attempt.task.describe())
        if answer.kind == RESULT:
            self._slowest_seconds = max(self._slowest_seconds, answer.seconds)
            self._ended = time.monotonic()
            self._drop(attempt)
            self._nodes.succeed(answer.node)
            return RESULT, answer.value
        if answer.is_lost:
            attempt.num_lost += 1
            return RETRY, answer.value
        attempt.tries += 1
        if answer.node:
            attempt.avoided.add(answer.node)
            note = self._nodes.leave_out if answer.kind == UNFIT else self._nodes.fail
            note(answer.node, answer.value)
        return RETRY, answer.value

    def _get(self, ref: Any, what: str) -> TaskAnswer:
        """What a task gave back, or RETRY if its worker died. Raises bugs and errors of the user."""
        try:
            answer: TaskAnswer = self._ray.get(ref)
        except self._exceptions.RayTaskError as error:  # errors of jobs are values
            if "ModuleNotFoundError" not in str(error):
                raise RuntimeError(f"{what}:\n{error}") from error
            node, version = self._nodes.find(error), list_versions(())["albert-data"]
            says = f"node {self._nodes.hosts.get(node, '')} can't run albert-data: {_last_line(error)}"
            return TaskAnswer(kind=UNFIT, value=ConfigError(f"{says}; install {version} on all nodes"), node=node)
        except self._exceptions.OutOfMemoryError as error:
            return TaskAnswer(kind=RETRY, value=explain_memory_error(what), node=self._nodes.find(error))
        except self._exceptions.RayError as error:
            is_lost = isinstance(error, (self._exceptions.NodeDiedError, self._exceptions.ObjectLostError))
            says = f"{'the node' if is_lost else 'a worker'} died on {what} ({_first_line(error)})"
            return TaskAnswer(kind=RETRY, value=WorkerError(says), node=self._nodes.find(error), is_lost=is_lost)
        for wording in answer.lines.keys() - self._said:
            self._said.add(wording)
            _log.warning("node %s: %s", self._nodes.hosts.get(answer.node, answer.node), answer.lines[wording])
        if answer.kind == BUG:
            raise RuntimeError(answer.value)
        if answer.kind == OURS:
            raise answer.value
        return answer


def _import_ray() -> Any:
    # Ray sends what commands it runs to its makers, unless this is set before it starts.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return import_module("ray")
    except ModuleNotFoundError as error:
        raise ConfigError("--engine ray needs ray; install it with: pip install 'albert-data[ray]'") from error


def connect(ray: Any, address: str | None, num_workers: int | None) -> None:
    named = address or os.environ.get("RAY_ADDRESS") or "auto"
    if named.startswith("ray://"):
        raise ConfigError(
            f"{named} is an address of Ray Client, which can't be used; run the command on a node of the cluster, for "
            "example by `ray job submit`"
        )
    if _HOST_PORT.fullmatch(named):
        _check_address(named)
    elif named == "auto":
        _check_own_cluster()
    elif named != "local":
        raise ConfigError(f"{named} is not the address of a Ray cluster; give HOST:PORT, or auto")
    settings = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        try:
            ray.init(address=named, **settings)
        except ConnectionError:
            if address or "RAY_ADDRESS" in os.environ:
                raise
            ray.init(
                address="local",
                num_cpus=num_workers or count_cores(),
                include_dashboard=False,
                object_store_memory=_STORE_BYTES,
                **settings,
            )
    except Exception as error:  # Ray raises classes of many kinds here, none of them documented
        raise ConfigError(_explain_refusal(named, str(error))) from error


def _check_address(address: str) -> None:
    """Raise ConfigError if no Ray cluster can be at host:port: Ray itself would try for many minutes."""
    if not _answers(address):
        raise ConfigError(f"no Ray cluster answers at {address}; start one with `ray start --head`, or check --address")
    if os.environ.get("RAY_USE_TLS", "0") == "0" and not _speaks_http2(address):
        raise ConfigError(f"{address} is no Ray cluster; name the port of `ray start --head`, by default 6379")


def _check_own_cluster() -> None:
    """Raise ConfigError if this machine belongs to a cluster that does not answer, as after a crash of its head."""
    try:
        address = import_module("ray._private.services").canonicalize_bootstrap_address("auto")
    except (ImportError, AttributeError, OSError, ValueError):  # a private name; and `ray.init` says what is wrong
        return
    if not _answers(address):
        raise ConfigError(
            f"no Ray cluster answers at {address}, the last one of this machine; start it again, or forget it with "
            "`ray stop`"
        )


def _explain_refusal(named: str, message: str) -> str:
    message = " ".join(message.split())
    if "Version mismatch" in message:
        return f"the Ray cluster at {named} has other versions than this command: {message}"
    if "Could not find any running Ray instance" in message:
        return "no Ray runs on this machine; start one with `ray start --head`, or give --address HOST:PORT"
    return f"no Ray cluster can be used at {named}: {message[:300]}; if it wants a token, set RAY_AUTH_MODE=token"


def _answers(address: str) -> bool:
    """Whether something accepts connections at host:port."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError, ValueError):  # ValueError: no name of a host
        return False
    return True


def _speaks_http2(address: str) -> bool:
    """Whether host:port answers the preface of HTTP/2 with its settings, as gRPC does (RFC 9113, section 3.4)."""
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _EMPTY_SETTINGS)
        return connection.recv(len(_EMPTY_SETTINGS), socket.MSG_WAITALL)[3:4] == _EMPTY_SETTINGS[3:4]
    return False


def _take_due(again: list[_Attempt], most: int) -> list[_Attempt]:
    """Remove the attempts whose pause is over, at most so many, and return them."""
    due = [attempt for attempt in again if attempt.due <= time.monotonic()][: max(most, 0)]
    again[:] = [attempt for attempt in again if attempt not in due]
    return due


def _try_again(attempt: _Attempt, error: AlbertDataError) -> _Attempt:
    if attempt.tries >= _TRIES or attempt.num_lost >= _MOST_LOST:
        raise error
    attempt.due = time.monotonic() + _PAUSE_SECONDS * 2 ** max(attempt.tries - 1, 0)
    return attempt


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:200]


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:200]


@before_exit
def _leave() -> None:
    """End the tasks, and the Ray that was started here: some of its processes would outlive this one."""
    for engine in list(_engines):
        engine.close()
