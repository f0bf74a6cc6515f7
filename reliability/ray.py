"""`python -m reliability ray`: kills workers, nodes and the head of a Ray cluster while a build runs on it.

The cluster is a head and three nodes, as processes of this machine with a scratch folder each. A node may also leave
(SIGTERM), or join a build that began with one node: it must get tasks. After each trial OUT must hold the bytes of a
build on one machine, and no file or task may be left. If the head was killed, the command must say so in one line, and
finish the build on a new cluster when it is given again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

import click

from reliability.processes import ROOT, find_descendants, make_environment
from reliability.scenes import digest_all

PATIENCE_SECONDS = 300.0
NODES = 3
_FILES, _FILE_BYTES = 12, 4 << 20  # several tasks for each node
_STAGES = ("map", "merge", "publish")
_VICTIMS = ("node", "worker", "leave", "head", "late")
_LONG = ("--dupe-factor", "8")  # so that a node that joins in the map step comes in time


@click.command()
@click.option("--trials", type=click.IntRange(1), default=30, show_default=True, metavar="N")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides the moments.")
@click.option("--only", type=click.Choice(_VICTIMS), help="Do only this.")
def ray(trials: int, seed: int, only: str | None) -> None:
    """Kill parts of a Ray cluster while a build runs on it. Exit code 1 means that there are faults."""
    num_faulty = 0
    with tempfile.TemporaryDirectory(prefix="reliability-ray-") as folder, Trials(Path(folder), seed) as scene:
        for number, (stage, victim) in enumerate(islice(list_trials(only), trials)):
            begun = time.monotonic()
            faults = scene.try_one(number, stage, victim)
            num_faulty += bool(faults)
            seconds = time.monotonic() - begun
            click.echo(f"{number:3}  {victim:6} {stage:7} {seconds:6.1f} s  {'; '.join(faults) or 'equal'}")
    click.echo(f"{trials} trials, {num_faulty} with faults")
    sys.exit(num_faulty > 0)


def list_trials(only: str | None = None) -> Iterator[tuple[str, str]]:
    """Each victim in each stage, again and again."""
    return cycle(
        (stage, victim)
        for victim in _VICTIMS
        for stage in (_STAGES[:1] if victim == "late" else _STAGES)
        if only in (None, victim)
    )


class Trials:
    """A cluster, a corpus, and the digest of its build on one machine."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._rng = folder, Random(seed)
        self._cluster: Any = None
        self._environment = dict(make_environment(folder))
        self._write_corpus()

    def __enter__(self) -> Trials:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        os.environ["PYTHONPATH"] = self._environment["PYTHONPATH"]
        os.environ["NUMBA_CACHE_DIR"] = self._environment["NUMBA_CACHE_DIR"]
        self._start_cluster()
        self._run("vocab", "corpus", "--vocab-size", "2000", "-o", "vocab")
        self._expected = dict[tuple[str, ...], dict[str, str]]()
        for name, options in (("short", ()), ("long", _LONG)):
            self._run(*self._build(name, *options))
            self._expected[options] = digest_all(self._folder / name)
        return self

    def __exit__(self, *error: object) -> None:
        self._cluster.shutdown()

    def try_one(self, number: int, stage: str, victim: str) -> list[str]:
        """Returns the faults."""
        out, faults = self._folder / f"out-{number}", list[str]()
        options: tuple[str, ...] = ()
        if victim == "late":
            options = _LONG
            self._keep_one_node()
        with self._begin(*self._build(out.name, *options, *self._on_cluster())) as command:
            if self._await(stage, out, command):
                if victim == "late":
                    faults += self._join(command)
                else:
                    self._kill(victim)
            _, said = command.communicate(timeout=PATIENCE_SECONDS)
        lost = victim == "head"
        if command.returncode and not lost:
            faults.append(f"exit code {command.returncode}: {said[-300:]}")
        if "Traceback" in said:
            faults.append("prints a traceback")
        if lost:
            if command.returncode and " does not answer any more; start the cluster" not in said:
                faults.append(f"does not say that the head is lost: code {command.returncode}, {said[-300:]!r}")
            with suppress(Exception):
                self._cluster.shutdown()
            self._start_cluster()
            if code := self._run(*self._build(out.name, *self._on_cluster()), check=False):
                faults.append(f"the same command then ends with {code}")
        if digest_all(out) != self._expected[options]:
            faults.append("other files than those of a build on one machine")
        while len(self._nodes) < NODES:
            self._add_node()
        if tasks := [pid for pid in find_tasks() if not _is_soon(lambda pid=pid: pid not in find_tasks())]:
            faults.append(f"{len(tasks)} tasks still run")
        return faults

    def _build(self, out: str, *options: str) -> list[str]:
        return ["build", "corpus", "--tokenizer", "vocab", "-o", out, "--num-shards", "24", *options]

    def _on_cluster(self) -> list[str]:
        return ["--engine", "ray", "--address", self._cluster.address]

    @contextmanager
    def _begin(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "albert_data", *arguments]
        with subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def _run(self, *arguments: str, check: bool = True) -> int:
        with self._begin(*arguments) as command:
            _, said = command.communicate(timeout=PATIENCE_SECONDS)
        if check and command.returncode:
            raise RuntimeError(said)
        return command.returncode

    def _start_cluster(self) -> None:
        Cluster = import_module("ray.cluster_utils").Cluster
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 << 20}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._nodes: list[Any] = []
        for _ in range(NODES):
            self._add_node()

    def _add_node(self) -> Path:
        """Returns the scratch folder of the new node."""
        scratch = Path(tempfile.mkdtemp(dir=self._folder, prefix="node-"))
        self._nodes.append(
            self._cluster.add_node(num_cpus=1, object_store_memory=100 << 20, env_vars={"TMPDIR": str(scratch)})
        )
        return scratch

    def _keep_one_node(self) -> None:
        while len(self._nodes) > 1:
            self._cluster.remove_node(self._nodes.pop())

    def _join(self, command: subprocess.Popen[str]) -> list[str]:
        """Add a node while the command runs. Returns a fault if it gets no task."""
        scratch = f"TMPDIR={self._add_node()}".encode()
        while command.poll() is None:
            if any(scratch in read_process(pid, "environ").split(b"\0") for pid in find_tasks()):
                return []
            time.sleep(0.01)
        return ["the node that joined got no task"]

    def _await(self, stage: str, out: Path, command: subprocess.Popen[str]) -> bool:
        """Wait until the build has come to a random point of the stage. Returns False if it has ended before."""
        work = out / ".build"
        folder = work / "receipts" if stage == "map" else work / "shards" / "receipts"
        wanted = self._rng.randint(0, 8 if stage == "map" else 20)
        while not ((work / "manifests").exists() if stage == "publish" else count_names(folder) >= wanted):
            if command.poll() is not None:
                return False
            time.sleep(0.001)
        return True

    def _kill(self, victim: str) -> None:
        if victim == "worker":
            pids = find_tasks()[:1]
        else:
            node = self._cluster.head_node if victim == "head" else self._nodes.pop(self._rng.randrange(NODES))
            processes = node.all_processes
            infos = processes["raylet"] if victim == "leave" else [one for each in processes.values() for one in each]
            pids = [info.process.pid for info in infos]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if victim == "leave" else signal.SIGKILL)

    def _write_corpus(self) -> None:
        words = (ROOT / "sample_corpus" / "english-1.txt").read_text().split()
        rng = Random(0)
        (self._folder / "corpus").mkdir()
        for number in range(_FILES):
            lines, size = [], 0
            while size < _FILE_BYTES:
                lines.append(" ".join(rng.choices(words, k=12)).capitalize() + "." + rng.choice(("", "\n")))
                size += len(lines[-1]) + 1
            (self._folder / "corpus" / f"{number}.txt").write_text("\n".join(lines))


def count_names(folder: Path) -> int:
    return len(list(folder.iterdir())) if folder.is_dir() else -1


def find_tasks() -> list[int]:
    """The processes below this one that run a task: Ray gives them its name."""
    names = tuple(f"ray::{name}".encode() for name in ("map", "merge", "publish", "read"))
    return [pid for pid in find_descendants(os.getpid()) if read_process(pid, "cmdline").startswith(names)]


def read_process(pid: int, what: str) -> bytes:
    """A file of /proc; empty if the process has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/{what}").read_bytes()
    return b""


def _is_soon(is_so: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
