"""On Ray the same tasks give the same bytes; lost workers cost a try of their tasks; a bad set-up is named."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
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
from albert_data.errors import AlbertDataError, ConfigError, InputError, WorkerError
from albert_data.jobs import ray_engine, ray_worker
from albert_data.jobs.engine import MultiprocessEngine, PreparedJob
from albert_data.vocab.learning import learn_vocabulary

pytest.importorskip("ray")  # CI installs it: see the Makefile
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine(s3_server: Any) -> Iterator[ray_engine.RayEngine]:
    """A Ray of this machine: its workers are two processes, which find the store by the environment."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
        with ray_engine.RayEngine("local", 2) as made:
            yield made


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "_PAUSE_SECONDS", 0.05)


def test_every_task_comes_back_once_with_its_result(engine):
    for count in (0, 1, 60):
        assert Counter(engine.run(square, tasks(count))) == Counter((task, square(task)) for task in tasks(count))


def test_errors_of_ours_end_the_run_as_they_are_and_bugs_name_their_task(engine, tmp_path):
    begun = tmp_path / "begun"

    def fail(task: Task) -> None:
        with begun.open("a") as file:
            file.write(".")
        raise InputError("byte 7: no")

    with pytest.raises(InputError, match="^byte 7: no$"):
        list(engine.run(fail, tasks(1)))
    assert begun.read_text() == "."  # it was not tried again

    with pytest.raises(RuntimeError, match="(?s)file.txt, bytes 0 to 1.*ZeroDivisionError"):
        list(engine.run(lambda task: 1 // task.number, tasks(1)))


def test_an_error_of_the_disk_is_tried_again_and_then_explained(engine, tmp_path):
    def read(task: Task) -> str:
        with (tmp_path / f"{task.number}").open("a") as file:
            file.write(".")
        if task.number == 1 or (tmp_path / "0").stat().st_size < 3:
            raise OSError(errno.EIO, "Input/output error", "data.txt")
        return "read"

    assert list(engine.run(read, tasks(1))) == [(Task(0), "read")]
    assert (tmp_path / "0").read_text() == "..."
    with pytest.raises(AlbertDataError, match="data.txt: Input/output error; fix that"):
        list(engine.run(read, [Task(1)]))
    assert (tmp_path / "1").read_text() == "....."


def die(folder: Path, times: int) -> Callable[[Task], int]:
    """A job that is killed on task 3, so many times."""

    def work(task: Task) -> int:
        marks = len(list(folder.iterdir()))
        if task.number == 3 and marks < times:
            (folder / str(marks)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task.number**2

    return work


def test_a_killed_worker_costs_another_try_and_a_task_that_kills_five_is_named(engine, tmp_path):
    (tmp_path / "once").mkdir()
    (tmp_path / "always").mkdir()
    found = Counter(engine.run(die(tmp_path / "once", 1), tasks(6)))
    assert found == Counter((task, square(task)) for task in tasks(6))
    with pytest.raises(WorkerError, match="died on file.txt, bytes 3 to 4"):
        list(engine.run(die(tmp_path / "always", 1000), tasks(6)))


def test_a_machine_is_prepared_once_before_tasks_begin(engine, tmp_path):
    log = tmp_path / "log"

    def note(what: str) -> None:
        with log.open("a") as file:
            file.write(what)

    job = PreparedJob(job=lambda task: note("t"), prepare=lambda: note("p"), places=(__file__,))
    list(engine.run(job, tasks(8)))
    assert log.read_text() == "p" + 8 * "t"


def test_what_a_machine_does_not_see_ends_the_run_before_it_begins(engine, tmp_path, monkeypatch):
    here = tmp_path / "here.txt"
    here.write_text("a")
    list_places = ray_engine.list_places
    job = PreparedJob(job=lambda task: here.unlink(), prepare=lambda: None, places=(str(here),))
    for found, says in (((5, 5), "sees another file at"), (None, "does not see")):
        seen = {str(here) if found else str(tmp_path / "gone"): found or (1, 1)}
        monkeypatch.setattr(ray_engine, "list_places", lambda paths, seen=seen: seen)
        with pytest.raises(InputError, match=f"^node .* {says} .*; inputs and output must lie where all nodes"):
            list(engine.run(job, tasks(1)))
    assert here.exists()
    monkeypatch.setattr(ray_engine, "list_places", list_places)
    versions = ray_engine.list_versions(())
    monkeypatch.setattr(ray_engine, "list_versions", lambda packages: {**versions, "pyarrow": "1.2.3"})
    with pytest.raises(ConfigError, match="^node .* has pyarrow .*, and this command 1.2.3; install the same"):
        list(engine.run(job, tasks(1)))
    assert here.exists()


def test_tasks_end_with_the_run(engine, tmp_path):
    """As after an error or Ctrl-C: what runs is killed, and writes nothing later."""

    def wait(task: Task) -> None:
        (tmp_path / f"begun-{task.number}").touch()
        time.sleep(task.number)
        (tmp_path / "ended").touch()

    running = engine.run(wait, [Task(0), Task(3), Task(3)])
    next(running)
    (tmp_path / "ended").unlink()
    fixtures.wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
    running.close()
    time.sleep(3.5)
    assert not (tmp_path / "ended").exists()


@pytest.mark.quick
def test_a_build_has_the_same_bytes_and_a_vocabulary_too(engine, corpus, tmp_path):
    """Text of all layouts: plain, JSON lines, compressed."""
    corpus.build(tmp_path / "out", engine)
    fixtures.check_finished(corpus, tmp_path / "out")
    inputs, config = find_inputs([str(corpus.path)]), VocabConfig(vocab_size=400)
    one, other = (
        learn_vocabulary(inputs, TextConfig(), config, place, shrink=True, shared=shared).trained
        for place, shared in ((engine, tmp_path / "shared"), (fixtures.InlineEngine(), None))
    )
    assert one == other


def test_a_build_in_a_store_goes_on(engine, stored, corpus):
    """The workers write runs, receipts and shards into the store."""
    from test_store_builds import build, check

    class Interrupted(InterruptedEngine):
        spans_machines = True

    with pytest.raises(KeyboardInterrupt):
        build(stored, corpus, Interrupted(5))
    assert build(stored, corpus, engine).resumed_tasks >= 3
    check(stored, corpus)


@pytest.mark.parametrize("results", [3, fixtures.CORPUS_TASKS + 1])
def test_a_build_goes_on_under_the_other_engine(engine, corpus, tmp_path, results):
    class Interrupted(InterruptedEngine):
        spans_machines = True  # so it leaves what a cluster leaves

    for name, first, second in (
        ("to", InterruptedEngine(results), engine),
        ("from", Interrupted(min(results, 5)), MultiprocessEngine(2)),
    ):
        with pytest.raises(KeyboardInterrupt):
            corpus.build(tmp_path / name, first)
        assert corpus.build(tmp_path / name, second).resumed_tasks >= 3
        fixtures.check_finished(corpus, tmp_path / name)


def test_a_shuffle_in_two_stages_goes_on_under_the_other_engine(engine, corpus, tmp_path, monkeypatch):
    fixtures.shape_shuffle(monkeypatch, "two stages")
    results = fixtures.CORPUS_TASKS + 4  # some runs are merged
    with pytest.raises(KeyboardInterrupt):
        corpus.build(tmp_path / "out", InterruptedEngine(results))
    assert list(tmp_path.glob("out/.build/runs/*-merged.run"))
    corpus.build(tmp_path / "out", engine)
    fixtures.check_finished(corpus, tmp_path / "out")


def test_conversion_and_verification_have_the_same_results(engine, corpus, tmp_path, capsys):
    shards = str(tmp_path / "shards")
    corpus.build(Path(shards))
    for name in ("local", "ray"):
        options = ["--engine", name]
        for to in ("mds", "parquet"):
            assert run(["convert", shards, "-o", str(tmp_path / f"{to}-{name}"), "--to", to, *options]) == 0
        capsys.readouterr()
        assert run(["verify", shards, *options]) == 0
        sound = capsys.readouterr().out
        assert "all is as the manifest says" in sound
    for to in ("mds", "parquet"):
        assert digest_folder(tmp_path / f"{to}-local") == digest_folder(tmp_path / f"{to}-ray")
    damaged = next((tmp_path / "shards").rglob("*.arrow"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    faults = []
    for name in ("local", "ray"):
        with pytest.raises(SystemExit):
            run(["verify", shards, "--engine", name])
        faults.append(capsys.readouterr().out)
    assert faults[0] == faults[1] != ""
    assert damaged.name in faults[0]


# ---- without a cluster ----


def test_stdin_is_refused(tokenizer, tmp_path, monkeypatch):
    fixtures.set_stdin(monkeypatch, b"One. Two.\n")
    engine: Any = SimpleNamespace(spans_machines=True)
    with pytest.raises(InputError, match="stdin can be read by this process only, not by the nodes of a cluster"):
        run_build("-", tmp_path / "out", tokenizer, engine)
    assert not (tmp_path / "out").exists()


def test_without_ray_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"--engine ray needs ray; install it with: pip install 'albert-data\[ray\]'"):
        ray_engine.RayEngine()


def test_an_address_that_is_none_is_told():
    with pytest.raises(ConfigError, match=r"^no Ray cluster answers at a\.\.b:6379"):
        ray_engine.connect(None, "a..b:6379", None)


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_an_address_without_a_cluster_is_named(capsys):
    address = f"127.0.0.1:{find_free_port()}"
    with pytest.raises(ConfigError, match=f"^no Ray cluster answers at {address}; start one with `ray start --head`"):
        ray_engine.connect(None, address, None)
    with pytest.raises(ConfigError, match="^ray://host:10001 is an address of Ray Client.*run the command on a node"):
        ray_engine.connect(None, "ray://host:10001", None)
    with pytest.raises(ConfigError, match="^10.0.0.1 is not the address of a Ray cluster; give HOST:PORT, or auto$"):
        ray_engine.connect(None, "10.0.0.1", None)
    assert run(["verify", "shards", "--address", address]) == 2
    assert "--address is for --engine ray" in capsys.readouterr().err


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_another_service_at_the_address_is_named(answer):
    """Ray itself would try to connect for more than ten minutes."""

    def serve(listener: socket.socket) -> None:
        for _ in range(2):  # the first connection only asks whether something listens
            connection, _ = listener.accept()
            with connection:
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        with pytest.raises(ConfigError, match=f"^{address} is no Ray cluster; name the port of `ray start --head`"):
            ray_engine.connect(None, address, None)
        thread.join()


def test_a_cluster_of_this_machine_that_is_gone_is_named(monkeypatch):
    """Ray keeps the address of the last cluster in a file, also after a crash."""
    address = f"127.0.0.1:{find_free_port()}"
    services = SimpleNamespace(canonicalize_bootstrap_address=lambda named: address)
    monkeypatch.setitem(sys.modules, "ray._private.services", services)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ConfigError, match=f"^no Ray cluster answers at {address}, the last one of this machine"):
        ray_engine.connect(None, None, None)


def test_another_version_on_the_cluster_is_one_line(monkeypatch):
    monkeypatch.setattr(ray_engine, "_check_own_cluster", lambda: None)

    def refuse(**settings: Any) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.9\n    Python: 3.9\n")

    with pytest.raises(ConfigError) as raised:
        ray_engine.connect(SimpleNamespace(init=refuse), "auto", None)
    says = "the Ray cluster at auto has other versions than this command: Version mismatch: The cluster was started"
    assert str(raised.value) == f"{says} with: Ray: 2.9 Python: 3.9"


def test_a_node_that_lacks_a_package_is_named(monkeypatch):
    shipment = ray_worker.Shipment(
        name="n", content=b"", packages=("no-such-package",), versions={"albert-data": "1"}, places={}, folder="."
    )
    with pytest.raises(ConfigError, match="^node .* lacks the package no-such-package; install it there"):
        ray_worker.check_versions(shipment)
    with pytest.raises(ConfigError, match="^node .* has albert-data .*, and this command 1; install the same"):
        ray_worker.check_versions(replace(shipment, packages=()))
