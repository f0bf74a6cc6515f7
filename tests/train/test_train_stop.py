"""A signal at any moment ends a run with a checkpoint and the signal's exit code; the run resumes as if undisturbed."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from itertools import cycle
from pathlib import Path

import pytest
from shard_fixtures import write_like
from test_train_resume import assert_same_run
from toy_rows import TINY

from albert_data.cli.main import run as run_command
from albert_data.train.data.loader import ShardLoader
from albert_data.train.model.checkpoint import list_checkpoints
from albert_data.train.run import evaluation, loop, session
from albert_data.train.run.interrupt import SIGNALS, Interrupt

CONFIG = dataclasses.replace(TINY, steps=6, eval_every=3, dropout=0.1, remask=False)


@pytest.fixture(autouse=True)
def pythons_handlers():
    """Enable Ctrl-C, which tests in the background ignore; all handlers must be restored when a run is over."""
    old = {number: signal.signal(number, signal.default_int_handler) for number in SIGNALS}
    yield
    now = {number: signal.signal(number, handler) for number, handler in old.items()}
    assert set(now.values()) == {signal.default_int_handler}


@pytest.fixture
def train(toys, use_shards, tmp_path):
    use_shards(toys.make_shards(30), toys.make_shards(12, seed=1))

    def call(name: str, **options):
        return loop.train(tmp_path / "out", tmp_path / name, CONFIG, **options)

    return call


def send_in(monkeypatch, module, name: str, number: int, *, call: int = 1, after: bool = False) -> None:
    """Send a signal before or after the given call of a function."""
    function, calls = getattr(module, name), []

    def work(*args, **kwargs):
        calls.append(1)
        if len(calls) == call and not after:
            signal.raise_signal(number)
        found = function(*args, **kwargs)
        if len(calls) == call and after:
            signal.raise_signal(number)
        return found

    monkeypatch.setattr(module, name, work)


MOMENTS = {
    "before the folder is claimed": (loop, "claim_folder", 1, 0),
    "before the first step": (loop, "describe_start", 1, 0),
    "while the first batch is read": (ShardLoader, "stream", 1, 1),
    "in a step": (loop, "update", 1, 2),  # ranks agree to stop at the next
    "in an evaluation": (evaluation, "measure", 1, 3),
    "in the second evaluation": (evaluation, "measure", 4, 6),
    "in a save": (session, "save_checkpoint", 1, 2),
    "in the baseline of the last evaluation": (loop, "measure_baseline", 1, None),
    "while the page is written": (loop, "write_run_page", 1, None),
}


@pytest.mark.parametrize(("moment", "number"), list(zip(MOMENTS, cycle(SIGNALS), strict=False)))
def test_a_signal_at_any_moment_ends_the_run_and_it_goes_on_as_if_none_had_come(
    toys, train, tmp_path, monkeypatch, capsys, moment, number
):
    train("whole")
    module, name, call, step = MOMENTS[moment]
    interrupt = Interrupt()
    with monkeypatch.context() as patch:
        if name == "measure":
            patch.setattr(evaluation, "evaluate", evaluation.evaluate)
        send_in(patch, module, name, number, call=call)
        last = train("run", interrupt=interrupt)
    assert interrupt.number == number
    assert (last is None) == (step is not None), "a run that is over ends normally"
    if step is not None:
        saved = [path.name for path in list_checkpoints(tmp_path / "run")]
        assert saved[-1:] == ([f"step-{step:08d}"] if step else [])
        assert f"albert-data train {tmp_path / 'out'} --output {tmp_path / 'run'} --resume" in capsys.readouterr().err
        assert train("run", resume=True) is not None
    assert_same_run(toys, tmp_path / "whole", tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.tmp"))


@pytest.mark.parametrize(
    ("first", "second", "saved"), [(signal.SIGTERM, signal.SIGINT, []), (signal.SIGINT, signal.SIGTERM, [2])]
)
def test_a_second_ctrl_c_ends_the_run_at_once_and_a_second_sigterm_lets_the_save_end(
    train, tmp_path, monkeypatch, first, second, saved
):
    send_in(monkeypatch, loop, "update", first)
    send_in(monkeypatch, session, "save_checkpoint", second)
    with nullcontext() if saved else pytest.raises(KeyboardInterrupt):
        assert train("run") is None
    assert [path.name for path in list_checkpoints(tmp_path / "run")] == [f"step-{step:08d}" for step in saved]


def test_a_signal_that_is_ignored_stays_ignored(train, monkeypatch):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup has it
    send_in(monkeypatch, loop, "update", signal.SIGHUP)
    assert train("run") is not None
    signal.signal(signal.SIGHUP, signal.default_int_handler)


def test_in_another_thread_signals_are_left_to_the_main_one():
    found = []

    def enter() -> None:
        with Interrupt():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


# ---- the command ----


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_command_ends_with_the_code_of_the_signal_and_resumed_with_0(
    toys, use_shards, tmp_path, monkeypatch, number, code
):
    use_shards(toys.make_shards(30))
    command = ["train", str(tmp_path / "out"), "-o", str(tmp_path / "run")]
    options = ["--preset", "tiny", "--steps", "3", "--device", "cpu", "--batch-tokens", "512", "--static-masks"]
    with monkeypatch.context() as patch:
        send_in(patch, loop, "update", number)
        assert run_command([*command, *options]) == code
    assert run_command([*command, "--resume"]) == 0
    assert run_command([*command, "--resume"]) == 0


@pytest.fixture
def out(toys, tmp_path) -> Path:
    """A shard folder of toys."""
    shards = toys.make_shards(50)
    return write_like(tmp_path / "out", {"train": [shards.examples]}, shards.manifest)


OPTIONS = ("--preset", "tiny", "--device", "cpu", "--static-masks", "--log-every", "1", "--batch-tokens", "512")


def start(*arguments: object, **how) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "albert_data", "train", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **how)


@pytest.mark.slow  # processes that load torch
@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.0, 2.0])
def test_sigterm_while_torch_is_loaded_ends_with_143_and_leaves_nothing_broken(out, tmp_path, seconds):
    process = start(out, "-o", tmp_path / "run", *OPTIONS, "--steps", "3000")
    time.sleep(seconds)
    process.send_signal(signal.SIGTERM)
    shown = process.communicate(timeout=60)[1]
    assert process.returncode in (143, -signal.SIGTERM), "for a shell, both are 143"
    assert "Traceback" not in shown
    begun = (tmp_path / "run" / "run.json").exists()
    again = start(out, "-o", tmp_path / "run", *OPTIONS, "--steps", "3000", *(["--resume"] if begun else []))
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        assert again.poll() is None
        time.sleep(0.05)
    again.send_signal(signal.SIGTERM)
    again.communicate(timeout=60)
    assert again.returncode == 143


@pytest.mark.slow  # processes that load torch
@pytest.mark.parametrize("stderr", ["closed", "full"])
def test_a_stderr_that_takes_nothing_ends_no_run(out, tmp_path, stderr):
    command = [sys.executable, "-m", "albert_data", "train", out, "-o", tmp_path / "run", *OPTIONS, "--steps", "3"]
    where = "2>&-" if stderr == "closed" else "2>/dev/full"
    done = subprocess.run(["sh", "-c", f'"$@" {where}', "sh", *map(str, command)], stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    assert list_checkpoints(tmp_path / "run")


@pytest.mark.slow  # processes that load torch
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_torchrun_that_is_stopped_saves_and_ends(out, tmp_path, number):
    run = tmp_path / "run"
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "albert_data", "train"]
    process = subprocess.Popen(
        [sys.executable, "-m", *command, str(out), "-o", str(run), *OPTIONS, "--steps", "3000"],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 90
    while not (run / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    shown = process.communicate(timeout=60)[1]
    assert process.returncode != 0
    assert "is saved. Resume with" in shown
    assert len(list_checkpoints(run)) == 1
