"""Two processes on CPUs have the losses of one process on the same global batches, and stop and resume together."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from shard_fixtures import write_like

from albert_data.errors import AlbertDataError, ConfigError
from albert_data.train import state as session
from albert_data.train.checkpoint import list_checkpoints
from albert_data.train.device import Ranks, join_ranks, read_ranks
from albert_data.train.loader import ShardLoader

TRAIN = (sys.executable, "-m", "albert_data", "train")
OPTIONS = (
    *("--preset", "tiny", "--device", "cpu", "--precision", "fp32"),
    *("--static-masks", "--log-every", "1", "--batch-tokens", "512"),
)


@pytest.fixture
def out(toys, tmp_path) -> Path:
    """A shard folder of toys."""
    splits = {"train": toys.make_shards(50), "validation": toys.make_shards(20, seed=1)}
    parts = {name: [shards.examples] for name, shards in splits.items()}
    return write_like(tmp_path / "out", parts, splits["train"].manifest)


def start(num_ranks: int, *arguments: str | Path) -> list[subprocess.Popen[str]]:
    """Start the processes as torchrun does."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    base = {**os.environ, "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    command, how = [*TRAIN, *map(str, arguments)], {"stderr": subprocess.PIPE, "text": True}
    numbers = ({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(num_ranks)} for rank in range(num_ranks))
    return [subprocess.Popen(command, env={**base, **own}, **how) for own in numbers]


def finish(processes: list[subprocess.Popen[str]], code: int = 0) -> list[str]:
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [code] * len(processes), said
    return said


def read_metrics(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def read_losses(run: Path) -> list[tuple[int, str, float, float]]:
    return [(line["step"], line["split"], line["mlm_loss"], line["sop_loss"]) for line in read_metrics(run)]


def wait_for_steps(run: Path, processes: list[subprocess.Popen[str]], num_steps: int = 3) -> None:
    deadline = time.monotonic() + 90
    while not (run / "metrics.jsonl").exists() or len(read_metrics(run)) < num_steps:
        assert time.monotonic() < deadline, [process.poll() for process in processes]
        time.sleep(0.05)


@pytest.mark.slow  # four processes, each of which loads torch
def test_two_processes_make_the_losses_of_one(out, tmp_path):
    options = (*OPTIONS, "--steps", "12", "--eval-every", "6")
    finish(start(1, out, "-o", tmp_path / "one", *options))
    said = finish(start(2, out, "-o", tmp_path / "two", *options))
    finish(start(2, out, "-o", tmp_path / "parts", *options, "--micro-tokens", "128", "--recompute"))
    one = read_losses(tmp_path / "one")
    assert len(one) == 14
    for name in ("two", "parts"):
        for line, other in zip(one, read_losses(tmp_path / name), strict=True):
            assert line[:2] == other[:2]
            assert line[2:] == pytest.approx(other[2:], abs=1e-4)
    assert "2 processes" in said[0]
    assert "step 12" not in said[1], "only the first reports"


def test_more_ranks_than_rows_of_a_batch_go_through_later_epochs(toys):
    shards = toys.make_shards(5)
    loaders = [ShardLoader(shards, batch_tokens=4 * 64, rank=rank, num_ranks=4) for rank in range(4)]
    steps = [list(loader.stream(torch.device("cpu"), 6)) for loader in loaders]
    for of_ranks in zip(*steps, strict=True):
        assert len({batch.input_ids_BT.shape for batches in of_ranks for batch in batches}) == 1
    rows = [sorted(row for step in steps for batch in step[at] for row in batch.rows) for at in range(6)]
    assert [sorted(rows[at] + rows[at + 1]) for at in (0, 2, 4)] == [[0, 1, 2, 3, 4]] * 3


def test_processes_that_cannot_connect_are_an_error_of_one_line(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="WORLD_SIZE is 2.*torchrun.*GLOO_SOCKET_IFNAME"), join_ranks("cpu"):
        pass


@pytest.mark.slow  # two processes that train until they are stopped
def test_a_signal_to_one_process_saves_and_stops_all(out, tmp_path):
    run = tmp_path / "run"
    processes = start(2, out, "-o", run, *OPTIONS, "--steps", "3000")
    wait_for_steps(run, processes)
    processes[1].send_signal(signal.SIGTERM)
    said = finish(processes, code=128 + signal.SIGTERM)
    assert "--resume" in said[0]
    step = int(list_checkpoints(run)[-1].name.removeprefix("step-"))
    assert 3 <= step < 3000
    assert [line[0] for line in read_losses(run)] == list(range(1, step + 1))


@pytest.mark.slow  # two processes that train until one is killed
def test_a_process_whose_neighbour_is_killed_ends_with_one_line(out, tmp_path):
    run = tmp_path / "run"
    processes = start(2, out, "-o", run, *OPTIONS, "--steps", "3000")
    wait_for_steps(run, processes)
    processes[1].kill()
    processes[1].communicate(timeout=60)
    said = processes[0].communicate(timeout=60)[1]
    assert processes[0].returncode == 1
    assert "process 0 of 2 lost the connection" in said.splitlines()[-1]
    assert "--resume" in said.splitlines()[-1]


@pytest.mark.slow  # six processes, each of which loads torch
def test_two_processes_resume_as_if_they_had_not_stopped(out, tmp_path):
    options = (*OPTIONS, "--log-every", "1", "--steps", "8", "--eval-every", "8", "--save-every", "3", "--keep", "9")
    finish(start(2, out, "-o", tmp_path / "whole", *options))
    finish(start(2, out, "-o", tmp_path / "resumed", *options))
    for last in ("step-00000006", "step-00000008"):
        shutil.rmtree(tmp_path / "resumed" / "checkpoints" / last)
    finish(start(2, out, "-o", tmp_path / "resumed", *options, "--resume"))
    whole, resumed = (read_metrics(tmp_path / name) for name in ("whole", "resumed"))
    for line in (*whole, *resumed):
        for timed in ("tokens_per_second", "seconds"):
            line.pop(timed, None)
    assert whole == resumed


GPU = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")])


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_added_up_as_they_are_sent(device, dtype):
    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        torch.manual_seed(0)
        tensors = [torch.randn(4, 8).to(device), torch.randn(3).to(device)]
        expected = [tensor.to(dtype).float() for tensor in tensors]
        Ranks(num_ranks=2).add_up(tensors, dtype)
        assert all(map(torch.equal, tensors, expected))
    finally:
        dist.destroy_process_group()


def test_without_torchrun_there_is_one_rank(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    ranks = read_ranks()
    assert (ranks.rank, ranks.num_ranks, ranks.is_first) == (0, 1, True)


@pytest.mark.parametrize(
    ("step", "identity", "says"),
    [(4, {"lr": 0.1}, None), (2, {"lr": 0.1}, "of steps 2 .process 1., 4 .process 0."), (4, {"lr": 0.2}, "differ in")],
)
def test_ranks_agree_on_the_step_and_on_all_settings(monkeypatch, step, identity, says):
    """Two ranks in one process: each is asked for its values, then both sums are known."""
    sent: list[list[list[float]]] = [[], []]
    both = [
        SimpleNamespace(ranks=Ranks(rank=0, num_ranks=2), step=4, identity={"lr": 0.1}, model=torch.nn.Module()),
        SimpleNamespace(ranks=Ranks(rank=1, num_ranks=2), step=step, identity=identity, model=torch.nn.Module()),
    ]
    monkeypatch.setattr(Ranks, "sum", lambda ranks, values: sent[ranks.rank].append(values) or [0.0, 0.0])
    for one in both:
        session.check_agreement(one, Path("run"))
    for one in both:
        sums = iter([np.add(*values).tolist() for values in zip(*sent, strict=True)])
        monkeypatch.setattr(Ranks, "sum", lambda ranks, values, sums=sums: next(sums))
        with nullcontext() if says is None else pytest.raises(AlbertDataError, match=says):
            session.check_agreement(one, Path("run"))


# ---- one process, and torchrun itself ----


@pytest.mark.slow  # processes that load torch
@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.0, 2.0])
def test_sigterm_while_torch_is_loaded_ends_with_143_and_leaves_nothing_broken(out, tmp_path, seconds):
    run, options = tmp_path / "run", (*OPTIONS, "--steps", "3000")
    (process,) = start(1, out, "-o", run, *options)
    time.sleep(seconds)
    process.send_signal(signal.SIGTERM)
    shown = process.communicate(timeout=60)[1]
    assert process.returncode in (143, -signal.SIGTERM), "for a shell, both are 143"
    assert "Traceback" not in shown
    again = start(1, out, "-o", run, *options, *(["--resume"] if (run / "run.json").exists() else []))
    wait_for_steps(run, again)
    again[0].send_signal(signal.SIGTERM)
    finish(again, code=143)


@pytest.mark.slow  # processes that load torch
@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full"])
def test_a_stderr_that_takes_nothing_ends_no_run(out, tmp_path, where):
    command = [*TRAIN, str(out), "-o", str(tmp_path / "run"), *OPTIONS, "--steps", "3"]
    done = subprocess.run(["sh", "-c", f'"$@" {where}', "sh", *command], stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    assert list_checkpoints(tmp_path / "run")


@pytest.mark.slow  # processes that load torch
def test_torchrun_that_is_stopped_saves_and_ends(out, tmp_path):
    run, launcher = tmp_path / "run", ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    command = [sys.executable, *launcher, *TRAIN[1:], str(out), "-o", str(run), *OPTIONS, "--steps", "3000"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for_steps(run, [process])
    process.send_signal(signal.SIGINT)
    assert "is saved. Resume with" in process.communicate(timeout=60)[1]
    assert process.returncode != 0
    assert len(list_checkpoints(run)) == 1
