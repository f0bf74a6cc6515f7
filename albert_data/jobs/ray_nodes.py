"""The nodes of a Ray cluster that may get tasks: those with a CPU and the wanted labels, except those that fail.

What a task meets on one node, such as a full disk, missing credentials or another version, ends no run: the task is
tried again on another node, and a node that does nothing else than fail gets no more tasks. If several nodes do that,
the cause is not a node's, and the run ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from albert_data.errors import AlbertDataError, WorkerError
from albert_data.wording import list_some

NODE_LABEL = "ray.io/node-id"  # Ray gives it to each node
_FAILURES, _FAILING_SECONDS = 3, 15.0  # without a task that succeeds between; an outage of seconds leaves no node out
_AGREEING, _AGREEING_SHARE = 3, 0.1  # so many failing nodes end the run, and in a large cluster this share of all
_log = logging.getLogger("albert_data")


class ClusterNodes:
    """Which nodes get tasks in one run. labels: that a node must have, or with a value `!VALUE` must not have."""

    def __init__(self, ray: Any, labels: Mapping[str, str]) -> None:
        self._ray, self._labels = ray, dict(labels)
        self.hosts: dict[str, str] = {}  # by the id of the node
        self.num_cpus = 0  # of those that may get tasks
        self._addresses: dict[str, str] = {}
        self._failing: dict[str, list[float]] = {}  # when tasks failed there, since the last that did not
        self._left_out: dict[str, AlbertDataError] = {}

    def count_cpus(self) -> int:
        """Ask Ray which nodes there are, and count the CPUs of those that may get tasks."""
        found = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"] and self._is_wanted(node)}
        self.hosts = {name: node["NodeManagerHostname"] for name, node in found.items()}
        self._addresses = {node["NodeManagerAddress"]: name for name, node in found.items()}
        self.num_cpus = sum(int(node["Resources"]["CPU"]) for name, node in found.items() if name not in self._left_out)
        return self.num_cpus

    def _is_wanted(self, node: Mapping[str, Any]) -> bool:
        labels = node.get("Labels", {})
        return node["Resources"].get("CPU", 0) >= 1 and all(
            (labels.get(key) == value.removeprefix("!")) != value.startswith("!") for key, value in self._labels.items()
        )

    def exclude(self, avoided: Iterable[str]) -> set[str]:
        """The nodes that a task must not take. avoided: those that it need not take while there are others."""
        without = {*self._left_out, *avoided}
        return set(self._left_out) if self.hosts.keys() <= without else without

    def select(self, avoided: Iterable[str] = (), *, needs_cpu: bool = True) -> dict[str, str]:
        """The labels by which Ray chooses a node, which is none of those that `exclude` gives.

        needs_cpu: whether Ray looks for a node with a free CPU. Otherwise it would also take nodes that have none.
        """
        without = self.exclude(avoided)
        if not needs_cpu:
            return self._labels | {NODE_LABEL: f"in({','.join(sorted(self.hosts.keys() - without))})"}
        return self._labels | ({NODE_LABEL: f"!in({','.join(sorted(without))})"} if without else {})

    def find(self, error: Exception) -> str:
        """The node that an error of Ray names; empty if it names none."""
        named = (name for name in self.hosts if name in str(error))
        return next(named, self._addresses.get(getattr(error, "ip", ""), ""))

    def succeed(self, node: str) -> None:
        self._failing.pop(node, None)

    def fail(self, node: str, error: AlbertDataError) -> None:
        """Note that a task failed on a node, and leave the node out if it only fails. Raises what `leave_out` does."""
        times = self._failing.setdefault(node, [])
        times.append(time.monotonic())
        if len(times) >= _FAILURES and times[-1] - times[0] >= _FAILING_SECONDS:
            self.leave_out(node, error)

    def leave_out(self, node: str, error: AlbertDataError) -> None:
        """Give a node no more tasks. Raises the error if no other node is left, and WorkerError if several fail."""
        if node not in self.hosts or node in self._left_out:
            return
        self._left_out[node] = error
        failing = self._left_out.keys() & self.hosts.keys()
        if failing == self.hosts.keys() and len(failing) == 1:
            raise error
        names = list_some(sorted(self.hosts[name] for name in failing), _AGREEING)
        if len(failing) >= min(len(self.hosts), max(_AGREEING, _AGREEING_SHARE * len(self.hosts))):
            raise WorkerError(f"nodes {names} fail, the last with: {error}") from error
        _log.warning("node %s gets no more tasks: %s", self.hosts[node], error)
