"""Run one function over many tasks on a Ray cluster, or on a Ray of this machine alone.

In: the same picklable jobs and tasks as engine.py. Out: each task with its result. Each task is a task of Ray Core that
gets paths and returns a receipt: Ray carries neither text nor shards. A job is sent once to a machine. Ray itself tries
nothing again (max_retries=0): a worker that died, memory that ran out and a lost node cost another try of their tasks,
and so does an error of the disk, each with a pause before it; an error of the user's ends the run.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from types import TracebackType
from typing import Any
from uuid import uuid4

from albert_data.errors import AlbertDataError, ConfigError, WorkerError
from albert_data.interrupts import before_exit
from albert_data.jobs.engine import AnyTask, PreparedJob, Result, count_cores
from albert_data.jobs.ray_worker import (
    BUG,
    RESULT,
    RETRY,
    Shipment,
    list_places,
    list_versions,
    prepare_machine,
    run_task,
)

_TRIES = 5  # of a task, whatever goes wrong
_PAUSE_SECONDS = 1.0  # before the second try, then twice as long each time: Ray needs seconds to notice a lost node
_TASKS_PER_CPU = 2  # handed to Ray at a time, so that a CPU need not wait for the next one
_REFRESH_SECONDS = 5.0  # how often the number of CPUs is asked for, as nodes join and leave
_HEAD_SECONDS = 20.0  # without an answer from the head; then it counts as lost. Ray ends this process after 60
_CONNECT_SECONDS = 10.0
_PREPARE_SECONDS = 600.0  # of all machines, at the same time: kernels are compiled in half a minute
_CANCEL_SECONDS = 10.0
_STORE_BYTES = 256 << 20  # memory for objects of a Ray of this machine: jobs and receipts are small
_HOST_PORT = re.compile(r"(.+):(\d+)")
_EMPTY_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # a frame of HTTP/2: its length in three bytes, then its type

_engines: weakref.WeakSet[RayEngine] = weakref.WeakSet()  # those that Ctrl-C has to stop


@dataclass(kw_only=True, eq=False)
class _Attempt:
    """A task that was handed out. due: when it may be tried again, by the monotonic clock."""

    task: Any
    tries: int = 0
    due: float = 0.0


class RayEngine:
    """The CPUs of a Ray cluster. Use it as a context manager: it leaves the cluster at the end.

    address: of the cluster's head, as host:port, or "auto" for the cluster that this machine belongs to, or that
    RAY_ADDRESS names. None takes such a cluster if there is one, and otherwise starts a Ray of this machine alone.
    num_workers: the most tasks that run at a time; None for one a CPU of the cluster, also of nodes that join later.
    Raises ConfigError if Ray is not installed, no cluster answers, or it has other versions.
    """

    spans_machines = True

    def __init__(self, address: str | None = None, num_workers: int | None = None) -> None:
        self._ray, self._cap = _import_ray(), num_workers
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
        self._running: dict[Any, _Attempt] = {}
        self._is_lost = False  # head or own node: then calls of Ray don't return, or end this process
        _engines.add(self)

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster, or end the Ray that was started here."""
        self.cancel()
        if self._is_ours and not self._is_lost:
            self._ray.shutdown()
        _engines.discard(self)

    def cancel(self) -> None:
        """End all tasks that run, and wait until none of them writes any more."""
        left = [] if self._is_lost else list(self._running)
        self._running.clear()
        for ref in left:
            with suppress(Exception):  # the node is gone, or the head
                self._ray.cancel(ref, force=True)
        if left:
            with suppress(Exception):
                self._ray.wait(left, num_returns=len(left), timeout=_CANCEL_SECONDS)

    def run(self, job: Callable[[AnyTask], Result], tasks: Iterable[AnyTask]) -> Iterator[tuple[AnyTask, Result]]:
        """Yield every task with its result; see `Engine`. Raises WorkerError for a task that failed five times."""
        name, sent = self._send(job)
        self._prepare(name, sent)
        new, again = iter(tasks), list[_Attempt]()
        has_more, limit, refreshed = True, self._count_wanted(), time.monotonic()
        try:
            while True:
                if time.monotonic() - refreshed > _REFRESH_SECONDS:
                    limit, refreshed = self._count_wanted(), time.monotonic()
                for attempt in _take_due(again, limit - len(self._running)):
                    self._start(attempt, name, sent)
                wanted = limit - len(self._running) - len(again)
                fresh = [_Attempt(task=task) for task in islice(new, max(wanted, 0))]
                for attempt in fresh:
                    self._start(attempt, name, sent)
                has_more = has_more and (bool(fresh) or wanted <= 0)
                if not self._running and not again and not has_more:
                    return
                for ref in self._wait():
                    attempt = self._running.pop(ref)
                    kind, value = self._receive(ref, attempt)
                    if kind == RESULT:
                        yield attempt.task, value
                    else:
                        again.append(_try_again(attempt, value))
        finally:
            self.cancel()

    def _send(self, job: Callable[[AnyTask], Result]) -> tuple[str, list[Any]]:
        """Give the job to Ray. Returns its name, and a reference in a list, which tasks don't fetch by themselves."""
        self._check_head()
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

    def _prepare(self, name: str, sent: list[Any]) -> None:
        """Have every node check versions and files, and compile the kernels. Nodes that join later do it themselves."""
        strategies = import_module("ray.util.scheduling_strategies")
        refs = {}
        for node in self._ray.nodes():
            if node["Alive"]:
                at = strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                prepare = self._ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=at)(prepare_machine)
                refs[prepare.remote(name, sent)] = node["NodeManagerHostname"]
        _, late = self._ray.wait(list(refs), num_returns=len(refs), timeout=_PREPARE_SECONDS)
        if late:
            raise WorkerError(
                f"node {refs[late[0]]} did not get ready in {_PREPARE_SECONDS:.0f} seconds; remove it from the cluster"
            )
        for ref, host in refs.items():
            try:
                kind, value = self._ray.get(ref)
            except self._exceptions.RayTaskError as error:
                raise ConfigError(
                    f"node {host} can't run albert-data: {_last_line(error)}; "
                    f"install albert-data {list_versions(())['albert-data']} on all nodes"
                ) from error
            except self._exceptions.RayError:
                continue  # it has left: the others go on
            if kind == BUG:
                raise RuntimeError(value)
            if kind != RESULT:
                raise value

    def _start(self, attempt: _Attempt, name: str, sent: list[Any]) -> None:
        attempt.tries += 1
        self._running[self._run.remote(name, sent, attempt.task)] = attempt

    def _count_wanted(self) -> int:
        """How many tasks to hand to Ray at a time."""
        self._check_head()  # a lost head would not answer the next call either
        num_cpus = int(self._ray.cluster_resources().get("CPU", 0))
        return self._cap if self._cap is not None else max(1, _TASKS_PER_CPU * num_cpus)

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

    def _check_head(self) -> None:
        """Raise WorkerError if the head of the cluster, or the node that this process belongs to, does not answer."""
        deadline = time.monotonic() + _HEAD_SECONDS
        for what, address in self._needed.items():
            while not _answers(address, _CONNECT_SECONDS):
                if time.monotonic() > deadline:
                    self._is_lost = True
                    raise WorkerError(
                        f"{what} at {address} does not answer any more; start the cluster and give the same command "
                        "again: finished tasks are kept"
                    )
                time.sleep(_PAUSE_SECONDS)

    def _receive(self, ref: Any, attempt: _Attempt) -> tuple[str, Any]:
        """The result of a task, or RETRY and an error if it may be tried again. Raises bugs and errors of the user."""
        try:
            kind, value = self._ray.get(ref)
        except self._exceptions.RayTaskError as error:  # not from the job: its errors are values
            raise RuntimeError(f"{attempt.task.describe()}:\n{error}") from error
        except self._exceptions.OutOfMemoryError:
            return RETRY, self._explain("memory ran out", attempt, "; use fewer --workers, or larger nodes")
        except self._exceptions.RayError as error:
            return RETRY, self._explain(f"a worker or its node died ({_first_line(error)})", attempt)
        if kind == BUG:
            raise RuntimeError(value)
        if kind not in (RESULT, RETRY):
            raise value
        return kind, value

    def _explain(self, what: str, attempt: _Attempt, hint: str = "") -> WorkerError:
        return WorkerError(f"{what} {attempt.tries} times on {attempt.task.describe()}{hint}")


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
    if not _answers(address, _CONNECT_SECONDS):
        raise ConfigError(f"no Ray cluster answers at {address}; start one with `ray start --head`, or check --address")
    if os.environ.get("RAY_USE_TLS", "0") == "0" and not _speaks_http2(address, _CONNECT_SECONDS):
        raise ConfigError(f"{address} is no Ray cluster; name the port of `ray start --head`, by default 6379")


def _check_own_cluster() -> None:
    """Raise ConfigError if this machine belongs to a cluster that does not answer, as after a crash of its head."""
    try:
        address = import_module("ray._private.services").canonicalize_bootstrap_address("auto")
    except (ImportError, AttributeError, OSError, ValueError):  # a private name; and `ray.init` says what is wrong
        return
    if not _answers(address, _CONNECT_SECONDS):
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


def _answers(address: str, seconds: float) -> bool:
    """Whether something accepts connections at host:port."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    except (OSError, OverflowError, ValueError):  # ValueError: no name of a host
        return False
    return True


def _speaks_http2(address: str, seconds: float) -> bool:
    """Whether host:port answers the preface of HTTP/2 with its settings, as gRPC does (RFC 9113, section 3.4)."""
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), seconds) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _EMPTY_SETTINGS)
        return connection.recv(len(_EMPTY_SETTINGS), socket.MSG_WAITALL)[3:4] == _EMPTY_SETTINGS[3:4]
    return False


def _take_due(again: list[_Attempt], most: int) -> list[_Attempt]:
    """Remove the attempts whose pause is over, at most so many, and return them."""
    due = [attempt for attempt in again if attempt.due <= time.monotonic()][: max(most, 0)]
    again[:] = [attempt for attempt in again if attempt not in due]
    return due


def _try_again(attempt: _Attempt, error: AlbertDataError) -> _Attempt:
    if attempt.tries >= _TRIES:
        raise error
    attempt.due = time.monotonic() + _PAUSE_SECONDS * 2 ** (attempt.tries - 1)
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
