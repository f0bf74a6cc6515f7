"""Run one function over many tasks on a Ray cluster, or on a Ray of this machine alone.

In: the same picklable jobs and tasks as engine.py. Out: each task with its result. Each task is a task of Ray Core that
gets paths and returns a receipt: Ray carries neither text nor shards. A job is sent once to a machine. Ray chooses the
nodes, and tries a task again if its worker or node dies, memory runs out, or a disk or a store fails (NodeError). Both
tries write the same bytes. Any other error ends the run. All that is checked here is whether the head still answers:
without it Ray ends this process.
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
from importlib import import_module
from itertools import islice
from typing import Any
from uuid import uuid4

from albert_data.errors import AlbertDataError, ConfigError, WorkerError
from albert_data.jobs.engine import AnyTask, PreparedJob, Result, count_cores, explain_memory_error
from albert_data.jobs.ray_worker import NodeError, Shipment, list_places, list_versions, run_task
from albert_data.storage.interrupts import on_interrupt

_RETRIES = 4  # of a task, by Ray, whatever goes wrong
_TASKS_PER_CPU = 2  # handed to Ray at a time, so that a CPU need not wait for the next one
_LEAST_TASKS = 1000  # handed to Ray even if there are few CPUs, so that an autoscaler sees how many are wanted
_WAIT_SECONDS = 1.0
_REFRESH_SECONDS = 5.0  # how often the head and the number of CPUs are asked for
_HEAD_SECONDS = 20.0  # without an answer from the head; then it counts as lost. Ray ends this process after 60
_CONNECT_SECONDS = 10.0
_CANCEL_SECONDS = 10.0
_STORE_BYTES = 256 << 20  # memory for objects of a Ray of this machine: jobs and receipts are small
_IP = re.compile(r"\bip=([\w.:]+)")  # of the node, in an error of Ray
_HOST_PORT = re.compile(r"[^/]+:\d+")
_log = logging.getLogger("albert_data")

_engines: weakref.WeakSet[RayEngine] = weakref.WeakSet()  # those that Ctrl-C has to stop


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
        settings = {"num_cpus": 1, "max_retries": _RETRIES, "retry_exceptions": [NodeError]}
        self._run = self._ray.remote(**settings)(run_task)
        self._running: dict[Any, Any] = {}  # tasks by Ray's reference
        self._said = set[str]()  # what workers had to say in this run
        self._is_lost = False  # head or own node: then calls of Ray don't return, or end this process
        _engines.add(self)

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *error: object) -> None:
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
        """Yield every task with its result; see `Engine`. Raises WorkerError for a task that Ray gives up."""
        self._check_head()
        self._said = set()
        name, sent = self._send(job)
        run = self._run.options(name=getattr(job, "name", "") or "task")
        new, limit, due = iter(tasks), 0, time.monotonic()
        try:
            while True:
                if time.monotonic() >= due:
                    self._check_head()
                    limit, due = self._find_limit(), time.monotonic() + _REFRESH_SECONDS
                for task in islice(new, max(limit - len(self._running), 0)):
                    self._running[run.remote(name, sent, task)] = task
                if not self._running:
                    return
                for ref in self._wait():
                    task = self._running.pop(ref)
                    yield task, self._get(ref, task.describe())
        finally:
            self.cancel()

    def _send(self, job: Callable[[AnyTask], Result]) -> tuple[str, list[Any]]:
        """Give the job to Ray. Returns its name, and a reference in a list, which tasks don't fetch by themselves."""
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

    def _find_limit(self) -> int:
        """How many tasks to hand to Ray at a time. Says so if no node can take any: Ray waits for one."""
        num_cpus = sum(int(node["Resources"].get("CPU", 0)) for node in self._ray.nodes() if node["Alive"])
        if not num_cpus:
            self._say("no node", "no node of the Ray cluster has a CPU; waiting for one, as by `ray start`")
        return self._cap or max(_LEAST_TASKS, _TASKS_PER_CPU * num_cpus)

    def _wait(self) -> list[Any]:
        """The tasks that are done; none if none is in time."""
        refs = list(self._running)
        done: list[Any] = self._ray.wait(refs, num_returns=1, timeout=_WAIT_SECONDS)[0]
        if done:  # then all that are: each call looks at all of them
            done = self._ray.wait(refs, num_returns=len(refs), timeout=0)[0]
        return done

    def _get(self, ref: Any, what: str) -> Any:
        try:
            result, lines = self._ray.get(ref)
        except self._exceptions.RayError as error:
            raise explain(error, what) from None
        for wording, line in lines.items():
            self._say(wording, line)
        return result

    def _say(self, wording: str, line: str) -> None:
        if wording not in self._said:
            self._said.add(wording)
            _log.warning("%s", line)

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
                time.sleep(_WAIT_SECONDS)


def explain(error: Exception, what: str) -> Exception:
    """The error of ours that an error of Ray stands for, or for a bug a RuntimeError that names the task."""
    exceptions, cause = import_module("ray.exceptions"), getattr(error, "cause", None)
    lines = str(error).strip().splitlines() or [""]
    if isinstance(cause, NodeError):
        return cause.error
    if isinstance(cause, AlbertDataError):
        return cause
    if isinstance(error, exceptions.OutOfMemoryError):
        return explain_memory_error(what)
    if not isinstance(error, exceptions.RayTaskError):
        return WorkerError(f"Ray could not finish {what}: {lines[0][:200]}")
    if "ModuleNotFoundError" in str(error):
        node, version = _IP.search(str(error)), list_versions(())["albert-data"]
        says = f"node {node[1] if node else ''} can't run albert-data: {lines[-1]}"
        return ConfigError(f"{says}; install {version} on all nodes")
    return RuntimeError(f"{what}:\n{error}")


def _import_ray() -> Any:
    # Ray sends what commands it runs to its makers, unless this is set before it starts.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # By default Ray tries again for ever what it has killed because memory ran out.
    os.environ.setdefault("RAY_task_oom_retries", str(_RETRIES))
    try:
        return import_module("ray")
    except ModuleNotFoundError as error:
        raise ConfigError("--engine ray needs ray; install it with: pip install 'albert-data[ray]'") from error


def connect(ray: Any, address: str | None, num_workers: int | None) -> None:
    named = address or os.environ.get("RAY_ADDRESS") or "auto"
    if named == "auto":  # Ray keeps the address of this machine's last cluster, also after a crash of its head
        with suppress(ImportError, AttributeError, OSError, ValueError):  # it is a private name
            named = import_module("ray._private.services").canonicalize_bootstrap_address("auto")
    if _HOST_PORT.fullmatch(named):
        if not _answers(named):  # Ray itself would try for many minutes
            raise ConfigError(
                f"no Ray cluster answers at {named}; start one with `ray start --head`, check --address, or forget the "
                "last cluster of this machine with `ray stop`"
            )
    elif named not in ("auto", "local"):
        raise ConfigError(f"{named} is not the address of a Ray cluster; run this on a node of it, and give HOST:PORT")
    settings = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        try:
            ray.init(address=named, **settings)
        except ConnectionError:
            if address or "RAY_ADDRESS" in os.environ:
                raise
            own = {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
            ray.init(address="local", num_cpus=num_workers or count_cores(), **own, **settings)
    except Exception as error:  # Ray raises classes of many kinds here, none of them documented
        raise ConfigError(f"no Ray cluster can be used at {named}: {' '.join(str(error).split())[:300]}") from error


def _answers(address: str) -> bool:
    """Whether something accepts connections at host:port."""
    with suppress(OSError, OverflowError, ValueError):  # ValueError: no name of a host
        host, _, port = address.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        return True
    return False


@on_interrupt
def _leave() -> None:
    """End the tasks, and the Ray that was started here: some of its processes would outlive this one."""
    for engine in list(_engines):
        engine.close()
