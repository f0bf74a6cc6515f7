"""A cluster: one node's trouble ends no run: its tasks are done elsewhere, with the same bytes. Several nodes' does."""

from __future__ import annotations

import errno
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import build_fixtures as fixtures
import pytest
from test_engine import Task, square, tasks

from albert_data.errors import AlbertDataError, ConfigError, InputError, StorageError, WorkerError
from albert_data.jobs import ray_engine, ray_nodes, ray_worker
from albert_data.jobs.engine import PreparedJob

pytest.importorskip("ray")  # CI installs it: see the Makefile
slow = pytest.mark.slow


# ---- which nodes get tasks ----


def make_nodes(*numbers: int, labels: dict[str, str] | None = None, **node: Any) -> ray_nodes.ClusterNodes:
    """Nodes of two CPUs and, with an odd number, of the kind "odd"."""
    found = [
        {
            "NodeID": f"id{number}",
            "Alive": True,
            "NodeManagerHostname": f"host{number}",
            "NodeManagerAddress": f"10.0.0.{number}",
            "Resources": {"CPU": 2.0},
            "Labels": {"kind": "odd"} if number % 2 else {},
            **node,
        }
        for number in numbers
    ]
    nodes = ray_nodes.ClusterNodes(SimpleNamespace(nodes=lambda: found), labels or {})
    nodes.count_cpus()
    return nodes


def test_only_nodes_with_a_cpu_and_the_labels_count():
    assert make_nodes(1, 2, 3).count_cpus() == 6
    assert make_nodes(1, 2, 3, labels={"kind": "odd"}).count_cpus() == 4
    assert make_nodes(1, 2, 3, labels={"kind": "!odd"}).count_cpus() == 2
    assert make_nodes(1, Resources={"GPU": 1.0}).count_cpus() == 0
    assert make_nodes(1, Alive=False).count_cpus() == 0
    assert make_nodes(1, labels={"kind": "odd"}).select() == {"kind": "odd"}


def test_a_task_avoids_the_nodes_where_it_failed_while_there_are_others():
    nodes = make_nodes(1, 2)
    assert nodes.select() == {}
    assert nodes.select({"id1"}) == {"ray.io/node-id": "!in(id1)"}
    assert nodes.select({"id1", "id2"}) == {}


def test_a_node_is_left_out_when_it_does_nothing_else_than_fail(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(ray_nodes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    nodes, error = make_nodes(1, 2), WorkerError("no")
    for succeeds in (True, False):
        for _ in range(9):  # an outage of seconds
            nodes.fail("id1", error)
        assert nodes.count_cpus() == 4
        now[0] += 20
        if succeeds:
            nodes.succeed("id1")
    nodes.fail("id1", error)
    assert nodes.count_cpus() == 2
    assert nodes.select() == nodes.select({"id2"}) == {"ray.io/node-id": "!in(id1)"}


@pytest.mark.parametrize(("num_nodes", "num_failing"), [(2, 2), (4, 3), (30, 3), (50, 5)])
def test_so_many_nodes_that_fail_end_the_run(num_nodes, num_failing):
    nodes = make_nodes(*range(num_nodes))
    for number in range(num_failing - 1):
        nodes.leave_out(f"id{number}", WorkerError("no"))
    with pytest.raises(WorkerError, match=r"^nodes host0, host1.* fail, the last with: full$"):
        nodes.leave_out(f"id{num_failing - 1}", WorkerError("full"))


def test_the_only_node_ends_it_with_the_error_itself():
    with pytest.raises(ConfigError, match="^full$"):
        make_nodes(1).leave_out("id1", ConfigError("full"))


def raise_from(error: Exception, cause: Exception) -> Callable[[], None]:
    def work() -> None:
        raise error from cause

    return work


@pytest.mark.parametrize(
    ("error", "cause", "kind"),
    [
        (InputError("a.txt, line 3: no record"), None, ray_worker.OURS),
        (InputError("a.txt can't be read"), PermissionError(errno.EACCES, "Permission denied"), ray_worker.RETRY),
        (InputError("a.zst has too large a window"), OSError("ZSTD decompression failed"), ray_worker.OURS),
        (StorageError("s3://bucket can't be reached"), None, ray_worker.RETRY),
        (OSError(errno.ENOSPC, "No space left on device"), None, ray_worker.RETRY),
        (MemoryError(), None, ray_worker.RETRY),
        (ZeroDivisionError(), None, ray_worker.BUG),
    ],
)
def test_errors_of_a_node_are_worth_another_try_and_those_of_the_user_are_not(error, cause, kind):
    assert ray_worker.try_work(raise_from(error, cause), "a task")[0] == kind


# ---- a cluster ----


NODES = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def cluster(s3_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A head without CPUs and four nodes with one each. Each knows its name, and has it as the label `name`."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setenv("PYTHONPATH", path)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        made = import_module("ray.cluster_utils").Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 << 20},
        )
        for name in NODES:
            add_node(made, name)
        yield made
        made.shutdown()


def add_node(cluster: Any, name: str, **environment: str) -> Any:
    settings = {"num_cpus": 1, "object_store_memory": 100 << 20, "labels": {"name": name}}
    return cluster.add_node(**settings, env_vars={"NODE": name, **environment})


@pytest.fixture
def engine(cluster: Any) -> Iterator[ray_engine.RayEngine]:
    with ray_engine.RayEngine(cluster.address) as made:
        yield made


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, seconds in (
        (ray_engine, "_PAUSE_SECONDS", 0.05),
        (ray_engine, "_REFRESH_SECONDS", 0.2),
        (ray_engine, "_HUNG_SECONDS", 2.0),
        (ray_nodes, "_FAILING_SECONDS", 0.5),
    ):
        monkeypatch.setattr(module, name, seconds)


def find_node(task: Task) -> str:
    time.sleep(0.05)
    return os.environ["NODE"]


@slow
def test_tasks_run_on_the_nodes_with_the_label(cluster):
    for labels, expected in (({"name": "b"}, {"b"}), ({"name": "!b"}, {"a", "c", "d"})):
        with ray_engine.RayEngine(cluster.address, labels=labels) as engine:
            assert {found for _, found in engine.run(find_node, tasks(20))} == expected


@slow
def test_no_node_to_run_on_is_told_and_ends_the_command_if_none_joins(cluster, monkeypatch, caplog):
    monkeypatch.setattr(ray_engine, "_JOIN_SECONDS", 0.3)
    says = r"^no node of the Ray cluster has a CPU and the labels \{'name': 'none'\}; start one"
    with (
        ray_engine.RayEngine(cluster.address, labels={"name": "none"}) as engine,
        pytest.raises(WorkerError, match=says),
    ):
        list(engine.run(square, tasks(3)))
    assert len(caplog.messages) == 1
    assert "waiting up to" in caplog.text


@slow
def test_what_workers_say_reaches_the_command_once(engine, caplog):
    def say(task: Task) -> None:
        logging.getLogger("albert_data").warning("%s gives no answer", task.describe())

    assert len(list(engine.run(say, tasks(30)))) == 30
    [line] = caplog.messages
    assert line.startswith("node ")
    assert line.endswith(" gives no answer")


@slow
def test_the_autoscaler_is_told_how_many_cpus_are_wanted(cluster, monkeypatch):
    asked = []
    monkeypatch.setattr("ray.autoscaler.sdk.request_resources", lambda **wanted: asked.append(wanted))
    for cap, expected in ((None, 60), (7, 7)):
        with ray_engine.RayEngine(cluster.address, cap) as engine:
            list(engine.run(square, tasks(60)))
            list(engine.run(square, tasks(2)))  # for fewer tasks than there are CPUs no more are asked for
        assert [len(wanted.get("bundles", ())) for wanted in asked] == [expected, 0]
        asked.clear()


@slow
def test_a_lost_node_costs_no_try(cluster, engine, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_engine, "_TRIES", 1)
    lost = add_node(cluster, "lost")

    def work(task: Task) -> int:
        if os.environ["NODE"] == "lost":
            (tmp_path / "here").touch()
            time.sleep(60)
        time.sleep(0.2)
        return task.number**2

    running = engine.run(work, tasks(12))
    found = [next(running)]
    fixtures.wait_until((tmp_path / "here").exists)
    cluster.remove_node(lost, allow_graceful=False)
    assert Counter([*found, *running]) == Counter((task, square(task)) for task in tasks(12))


@slow
def test_a_late_node_with_another_version_gets_no_tasks(cluster, engine, tmp_path, caplog):
    (tmp_path / "pyarrow-1.2.3.dist-info").mkdir()
    (tmp_path / "pyarrow-1.2.3.dist-info/METADATA").write_text("Name: pyarrow\nVersion: 1.2.3\n")
    running = engine.run(find_node, tasks(400))
    next(running)
    late = add_node(cluster, "late", PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}")
    try:
        assert "late" not in {node for _, node in running}
    finally:
        cluster.remove_node(late)
    [line] = caplog.messages
    assert "gets no more tasks" in line
    assert "has pyarrow 1.2.3, and this command" in line


def fail_on(nodes: Iterable[str], fault: str, seconds: float = 0.0) -> Callable[[], None]:
    """seconds: that a task takes on the other nodes."""

    def fail() -> None:
        if os.environ["NODE"] not in nodes:
            return time.sleep(seconds)
        if fault == "full disk":
            raise OSError(errno.ENOSPC, "No space left on device", "/tmp/x")
        if fault == "out of memory":
            raise MemoryError
        if fault == "no credentials":
            raise StorageError("s3://bucket can't be reached: there are no credentials")
        time.sleep(3600)  # a read that hangs

    return fail


class Faulty:
    """An engine whose tasks meet a fault on some nodes."""

    spans_machines = True

    def __init__(self, engine: ray_engine.RayEngine, fail: Callable[[], None]) -> None:
        self._engine, self._fail = engine, fail

    def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        fail = self._fail

        def work(task: Any) -> Any:
            fail()
            return job(task)

        prepare = job.prepare if isinstance(job, PreparedJob) else int
        return self._engine.run(PreparedJob(job=work, prepare=prepare), tasks)


@slow
@pytest.mark.parametrize("fault", ["full disk", "out of memory", "no credentials", "hung read"])
def test_a_build_ends_well_when_one_node_fails(fault, engine, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("albert_data.pipeline.publish._SHARDS_OF_TASK", 1)  # so the nodes publish too
    corpus.build(tmp_path / "out", Faulty(engine, fail_on(["b"], fault)))
    fixtures.check_finished(corpus, tmp_path / "out")


@slow
def test_a_task_that_hangs_on_the_only_cpu_gets_a_copy_on_that_node(cluster, tmp_path):
    def work(task: Task) -> str:
        if not (tmp_path / "here").exists():
            (tmp_path / "here").touch()
            time.sleep(3600)
        return os.environ["NODE"]

    with ray_engine.RayEngine(cluster.address, labels={"name": "b"}) as engine:
        assert [found for _, found in engine.run(work, tasks(3))] == ["b", "b", "b"]


@slow
def test_a_build_ends_in_one_line_when_three_nodes_fail_and_the_same_command_finishes_it(
    engine, corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(ray_nodes, "_FAILING_SECONDS", 0.0)  # the tasks of this corpus take no longer
    with pytest.raises(
        AlbertDataError, match=r"^nodes .* fail, the last with: /tmp/x: No space left on device"
    ) as told:
        corpus.build(tmp_path / "out", Faulty(engine, fail_on(["a", "b", "c"], "full disk", 1.0)))
    assert "\n" not in str(told.value)
    corpus.build(tmp_path / "out", engine)
    fixtures.check_finished(corpus, tmp_path / "out")


@slow
def test_a_build_in_a_store_ends_well_when_one_node_lacks_the_credentials(cluster, engine, stored, corpus, caplog):
    from test_store_builds import build, check

    poor = add_node(cluster, "poor", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", HOME="/nonexistent")
    try:
        build(stored, corpus, engine)
    finally:
        cluster.remove_node(poor)
    check(stored, corpus)
    assert "there are no credentials" in caplog.text
