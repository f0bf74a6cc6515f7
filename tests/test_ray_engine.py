"""On Ray the same tasks give the same bytes; Ray tries again what a node met; a bad set-up is named in one line."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import InterruptedEngine, digest_folder, run_build
from test_engine import Task, square, tasks

from albert_data.cli.main import run
from albert_data.config import TextConfig, VocabConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.errors import AlbertDataError, ConfigError, InputError, StorageError, WorkerError
from albert_data.jobs import ray_engine, ray_worker
from albert_data.jobs.engine import MultiprocessEngine, PreparedJob
from albert_data.jobs.ray_engine import RayEngine
from albert_data.vocab.learning import learn_vocabulary

pytest.importorskip("ray")  # CI installs it: see the Makefile
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def for_workers() -> Iterator[None]:
    """The environment in which the workers of a Ray find these modules."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
        yield


def test_a_build_and_a_vocabulary_have_the_same_bytes(for_workers, corpus, tmp_path):
    """On a Ray of this machine, which ends with the engine. Text of all layouts: plain, JSON lines, compressed."""
    with RayEngine("local", 2) as engine:
        corpus.build(tmp_path / "out", engine)
        fixtures.check_finished(corpus, tmp_path / "out")
        inputs, config = find_inputs([str(corpus.path)]), VocabConfig(vocab_size=400)
        one, other = (
            learn_vocabulary(inputs, TextConfig(), config, place, shrink=True, shared=shared).trained
            for place, shared in ((engine, tmp_path / "shared"), (fixtures.InlineEngine(), None))
        )
    assert one == other


# ---- a cluster ----


@pytest.fixture(scope="module")
def cluster(for_workers: None, s3_server: Any) -> Iterator[Any]:
    """A head without CPUs and two nodes with one each. Each knows its name, and has it as the label `name`."""
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 << 20}
    made = import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args=head)
    for name in ("a", "b"):
        add_node(made, name)
    yield made
    made.shutdown()


def add_node(cluster: Any, name: str, **environment: str) -> Any:
    settings = {"num_cpus": 1, "object_store_memory": 100 << 20, "labels": {"name": name}}
    return cluster.add_node(**settings, env_vars={"NODE": name, **environment})


@pytest.fixture(scope="module")
def engine(cluster: Any) -> Iterator[RayEngine]:
    with RayEngine(cluster.address) as made:
        yield made


@slow
def test_every_task_comes_back_once_with_its_result(engine, monkeypatch):
    for count in (0, 1, 60):
        assert Counter(engine.run(square, tasks(count))) == Counter((task, square(task)) for task in tasks(count))
    monkeypatch.setattr(ray_engine, "_LEAST_TASKS", 1)
    made = list[Task]()
    next(engine.run(square, (made.append(task) or task for task in tasks(60))))
    assert len(made) == 4  # two for each CPU


def fail(task: Task, fault: str, log: Path, times: int) -> int:
    """Meet a fault the first times."""
    with log.open("a") as file:
        file.write(".")
    if log.stat().st_size > times:
        return square(task)
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "disk":
        raise OSError(errno.EIO, "Input/output error", "data.txt")
    raise InputError("byte 7: no") if fault == "input" else ZeroDivisionError


@slow
@pytest.mark.parametrize(
    ("fault", "tries", "error", "says"),
    [
        ("killed", 5, WorkerError, "^Ray could not finish file.txt, bytes 3 to 4: The worker died"),
        ("disk", 5, AlbertDataError, "^node .*: data.txt: Input/output error; fix that"),
        ("input", 1, InputError, "^byte 7: no$"),
        ("bug", 1, RuntimeError, "(?s)^file.txt, bytes 3 to 4:.*ZeroDivisionError"),
    ],
)
def test_ray_tries_five_times_what_a_node_may_have_met_and_other_errors_end_the_run(
    engine, tmp_path, fault, tries, error, says
):
    if tries > 1:
        job = partial(fail, fault=fault, log=tmp_path / "twice", times=2)
        assert list(engine.run(job, [Task(3)])) == [(Task(3), 9)]
    with pytest.raises(error, match=says) as raised:
        list(engine.run(partial(fail, fault=fault, log=tmp_path / "always", times=99), [Task(3)]))
    assert type(raised.value) is error
    assert (tmp_path / "always").read_text() == tries * "."


@slow
def test_tasks_of_a_lost_node_run_on_others(cluster, engine, tmp_path):
    lost = add_node(cluster, "lost")

    def work(task: Task) -> int:
        if os.environ["NODE"] == "lost":
            (tmp_path / "here").touch()
            time.sleep(60)
        time.sleep(0.2)
        return square(task)

    running = engine.run(work, tasks(12))
    found = [next(running)]
    fixtures.wait_until((tmp_path / "here").exists)
    cluster.remove_node(lost, allow_graceful=False)
    assert Counter([*found, *running]) == Counter((task, square(task)) for task in tasks(12))


@slow
def test_a_node_without_albert_data_is_named(cluster, engine, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['albert_data'] = None")
    node = add_node(cluster, "bare", PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}")
    says = r"^node [\d.]+ can't run albert-data: ModuleNotFoundError: .*albert_data.*; install .* on all nodes$"
    try:
        with RayEngine(cluster.address) as bare:
            bare._run = bare._ray.remote(label_selector={"name": "bare"})(ray_engine.run_task)
            with pytest.raises(ConfigError, match=says):
                list(bare.run(square, tasks(1)))
    finally:
        cluster.remove_node(node)


@slow
def test_a_machine_is_prepared_once_and_what_workers_say_reaches_the_command_once(engine, tmp_path, caplog):
    def note(what: str) -> None:
        with (tmp_path / "log").open("a") as file:
            file.write(what)

    def work(task: Task) -> None:
        note("t")
        logging.getLogger("albert_data").warning("%s gives no answer", task.describe())

    list(engine.run(PreparedJob(job=work, prepare=lambda: note("p"), places=(__file__,)), tasks(8)))
    assert (tmp_path / "log").read_text() == "p" + 8 * "t"
    [line] = caplog.messages
    assert line.startswith(f"node {socket.gethostname()}: file.txt, bytes ")


@slow
def test_tasks_end_with_the_run(engine, tmp_path):
    """As after an error or Ctrl-C: what runs is killed, and writes nothing later."""

    def wait(task: Task) -> None:
        (tmp_path / f"begun-{task.number}").touch()
        time.sleep(task.number)
        (tmp_path / f"ended-{task.number}").touch()

    running = engine.run(wait, [Task(0), Task(3), Task(4)])
    next(running)
    fixtures.wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 3)
    running.close()
    time.sleep(4.5)
    assert [path.name for path in tmp_path.glob("ended-*")] == ["ended-0"]


@slow
def test_a_build_in_a_store_goes_on(engine, stored, corpus):
    """The workers write runs, receipts and shards into the store."""
    from test_store_builds import build, check

    class Interrupted(InterruptedEngine):
        spans_machines = True

    with pytest.raises(KeyboardInterrupt):
        build(stored, corpus, Interrupted(5))
    assert build(stored, corpus, engine).resumed_tasks >= 3
    check(stored, corpus)


@slow
def test_a_build_goes_on_under_the_other_engine(engine, corpus, tmp_path, monkeypatch):
    class Interrupted(InterruptedEngine):
        spans_machines = True  # so it leaves what a cluster leaves

    fixtures.shape_shuffle(monkeypatch, "two stages")
    for name, first, second in (
        ("to", InterruptedEngine(fixtures.CORPUS_TASKS + 4), engine),  # some runs are merged
        ("from", Interrupted(5), MultiprocessEngine(2)),
    ):
        with pytest.raises(KeyboardInterrupt):
            corpus.build(tmp_path / name, first)
        assert corpus.build(tmp_path / name, second).resumed_tasks >= 3
        fixtures.check_finished(corpus, tmp_path / name)


@slow
def test_conversion_and_verification_have_the_same_results(engine, corpus, tmp_path, capsys):
    shards = str(tmp_path / "shards")
    corpus.build(Path(shards))
    for name in ("local", "ray"):
        assert run(["convert", shards, "-o", str(tmp_path / name), "--to", "parquet", "--engine", name]) == 0
        assert run(["verify", shards, "--engine", name]) == 0
        assert "all is as the manifest says" in capsys.readouterr().out
    assert digest_folder(tmp_path / "local") == digest_folder(tmp_path / "ray")


# ---- without Ray's processes ----


@pytest.mark.parametrize(
    ("error", "cause", "is_tried_again"),
    [
        (InputError("a.txt, line 3: no record"), None, False),
        (InputError("a.txt can't be read"), PermissionError(errno.EACCES, "Permission denied"), True),
        (InputError("a.zst has too large a window"), OSError("ZSTD decompression failed"), False),
        (StorageError("s3://bucket can't be reached"), None, True),
        (MemoryError(), None, True),
    ],
)
def test_errors_that_another_node_may_not_meet_are_tried_again(error, cause, is_tried_again, monkeypatch):
    def work(task: Task) -> None:
        raise error from cause

    monkeypatch.setattr(ray_worker, "_load", lambda name, sent: work)
    with pytest.raises(ray_worker.NodeError if is_tried_again else type(error)):
        ray_worker.run_task("name", [], Task(0))


def test_memory_that_ran_out_is_explained():
    error = ray_engine.explain(import_module("ray.exceptions").OutOfMemoryError("Task was killed"), "file.txt")
    assert str(error).startswith("memory ran out on file.txt; use fewer --workers")


def test_no_node_is_told_and_a_lost_head_ends_the_run(monkeypatch, caplog):
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{listener.getsockname()[1]}"

    def wait(refs: list[Task], num_returns: int, timeout: float) -> tuple[list[Task], list[Task]]:
        listener.close()
        return [], refs

    remote = SimpleNamespace(remote=lambda name, sent, task: task)
    ray = SimpleNamespace(
        is_initialized=lambda: True,
        get_runtime_context=lambda: SimpleNamespace(gcs_address=address, get_node_id=lambda: ""),
        nodes=list,
        put=lambda shipment: "reference",
        remote=lambda **settings: lambda function: SimpleNamespace(options=lambda **more: remote),
        wait=wait,
    )
    monkeypatch.setattr(ray_engine, "_import_ray", lambda: ray)
    for name in ("_HEAD_SECONDS", "_REFRESH_SECONDS", "_WAIT_SECONDS"):
        monkeypatch.setattr(ray_engine, name, 0.0)
    says = f"^the head of the Ray cluster at {address} does not answer any more; start the cluster and give the same"
    with pytest.raises(WorkerError, match=says):
        list(RayEngine().run(square, tasks(3)))
    none = "no node of the Ray cluster has a CPU; waiting for one, as by `ray start`"
    assert caplog.messages == [none]


def test_stdin_is_refused(tokenizer, tmp_path, monkeypatch):
    fixtures.set_stdin(monkeypatch, b"One. Two.\n")
    engine: Any = SimpleNamespace(spans_machines=True)
    with pytest.raises(InputError, match="stdin can be read by this process only, not by the nodes of a cluster"):
        run_build("-", tmp_path / "out", tokenizer, engine)
    assert not (tmp_path / "out").exists()


def test_without_ray_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"--engine ray needs ray; install it with: pip install 'albert-data\[ray\]'"):
        RayEngine()


def test_an_address_without_a_cluster_is_named(capsys, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free = f"127.0.0.1:{listener.getsockname()[1]}"
    services = SimpleNamespace(canonicalize_bootstrap_address=lambda named: free)
    monkeypatch.setitem(sys.modules, "ray._private.services", services)
    for address, says in (
        (free, f"no Ray cluster answers at {free}; start one with `ray start --head`"),
        (None, f"no Ray cluster answers at {free}; .* or forget the last cluster of this machine with `ray stop`"),
        ("a..b:6379", r"no Ray cluster answers at a\.\.b:6379"),
        ("ray://host:10001", "ray://host:10001 is not the address of a Ray cluster; run this on a node of it"),
        ("10.0.0.1", "10.0.0.1 is not the address of a Ray cluster; run this on a node of it, and give HOST:PORT$"),
    ):
        with pytest.raises(ConfigError, match=f"^{says}"):
            ray_engine.connect(None, address, None)
    assert run(["verify", "shards", "--address", free]) == 2
    assert "--address is for --engine ray" in capsys.readouterr().err


def test_another_version_on_the_cluster_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray._private.services", None)

    def refuse(**settings: Any) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.9\n    Python: 3.9\n")

    with pytest.raises(ConfigError) as raised:
        ray_engine.connect(SimpleNamespace(init=refuse), "auto", None)
    says = "no Ray cluster can be used at auto: Version mismatch: The cluster was started with: Ray: 2.9 Python: 3.9"
    assert str(raised.value) == says


@pytest.mark.parametrize(
    ("differing", "says"),
    [
        ({"packages": ("no-such-package",)}, "lacks the package no-such-package; install it there"),
        (
            {"versions": {"albert-data": "1"}},
            "has albert-data .*, and this command 1; install the same versions on all",
        ),
        (
            {"places": {__file__: (5, 5)}},
            "sees another file at .*; inputs and output must lie where all nodes see them",
        ),
        ({"places": {"/gone": (5, 5)}}, "does not see /gone; inputs and output must lie where all nodes see them"),
    ],
)
def test_a_node_that_differs_is_named_before_it_loads_the_job(differing, says, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get=lambda shipment: shipment))
    fields = {"name": "new", "content": b"", "packages": (), "versions": {}, "places": {}, "folder": ".", **differing}
    with pytest.raises((ConfigError, InputError), match=f"^node .* {says}"):
        ray_worker.run_task("new", [ray_worker.Shipment(**fields)], Task(0))
