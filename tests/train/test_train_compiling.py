"""A model is compiled only where torch.compile works; elsewhere it is trained as it is, and the run says why."""

from __future__ import annotations

import dataclasses
import shutil
import time
from functools import partial

import pytest
import torch

from albert_data.train.config import TrainConfig
from albert_data.train.run import compiling, loop, session
from albert_data.train.run.compiling import choose_compiling, find_obstacle

CPU, GPU = torch.device("cpu"), torch.device("cuda")
TINY = TrainConfig(preset="tiny", lr=1e-3, steps=2, batch_tokens=8 * 64, device="cpu")


def use_backend(monkeypatch, backend):
    """Compile by this backend instead of Inductor, which takes seconds."""
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))


def test_where_compiling_works_there_is_no_obstacle(monkeypatch):
    programs = []

    def keep(program, inputs):
        programs.append(program)
        return program.forward

    use_backend(monkeypatch, keep)
    before = torch.get_rng_state()
    assert find_obstacle(CPU) is None
    assert len(programs) == 1
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("\nNo \x1b working C++ compiler\n\nSet TORCHDYNAMO_VERBOSE=1", "RuntimeError: No \x1b working C++ compiler"),
        ("too old " * 99, f"RuntimeError: {'too old ' * 22}too old..."),
    ],
)
def test_an_obstacle_is_the_first_line_of_its_reason(monkeypatch, message, reason):
    def fail(program, inputs):
        raise RuntimeError(message.strip("\n"))

    use_backend(monkeypatch, fail)
    assert find_obstacle(CPU) == reason


def test_an_error_without_a_message_is_named_by_its_type(monkeypatch):
    def fail(function):
        raise NotImplementedError

    monkeypatch.setattr(torch, "compile", fail)
    assert find_obstacle(CPU) == "NotImplementedError"


def test_a_function_that_compiles_but_does_not_run_backward_is_an_obstacle(monkeypatch):
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sum()

        @staticmethod
        def backward(ctx, gradient):
            raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(torch, "compile", lambda function: Broken.apply)
    assert find_obstacle(CPU) == "no kernel image is available"


def test_only_a_gpu_is_probed_and_only_if_the_settings_ask_for_it(monkeypatch):
    probed = []
    monkeypatch.setattr(compiling, "find_obstacle", probed.append)
    assert choose_compiling(TINY, CPU) == (False, None)
    assert choose_compiling(dataclasses.replace(TINY, compile=False), GPU) == (False, None)
    assert probed == []
    assert choose_compiling(TINY, GPU) == (True, None)
    monkeypatch.setattr(compiling, "find_obstacle", lambda device: "no Triton")
    assert choose_compiling(TINY, GPU) == (False, "no Triton")


def test_a_run_says_that_it_compiles_before_its_first_line(toys, use_shards, tmp_path, monkeypatch, capsys):
    use_shards(toys.make_shards(40))
    monkeypatch.setattr("albert_data.jobs.compiling._PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(session, "choose_compiling", lambda config, device: (bool(time.sleep(0.5)), None))
    for is_shown in (True, False):
        loop.train(tmp_path, tmp_path / f"run {is_shown}", TINY, is_shown=is_shown)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "compiling" in line] == lines[:1]
    assert lines[0] == compiling.COMPILING


def test_a_run_that_cannot_compile_trains_and_says_why_in_one_line(toys, use_shards, tmp_path, monkeypatch, capsys):
    use_shards(toys.make_shards(40))
    monkeypatch.setattr(session, "choose_compiling", lambda config, device: (False, "no \x1b[2J Triton"))
    assert loop.train(tmp_path, tmp_path / "run", TINY) is not None
    assert capsys.readouterr().err.count("\ncompiled    no: no \\x1b[2J Triton\n") == 1
    monkeypatch.setattr(session, "choose_compiling", lambda config, device: (False, None))
    loop.train(tmp_path, tmp_path / "other", TINY)
    assert "compiled" not in capsys.readouterr().err


@pytest.mark.slow  # Inductor compiles and loads a C++ program
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_inductor_works_where_there_is_a_compiler():
    assert find_obstacle(CPU) is None


@pytest.mark.parametrize(
    ("device", "settings", "expected"),
    [
        (GPU, {}, True),
        (GPU, {"compile": False}, False),
        (CPU, {}, False),
        (CPU, {"compile": True}, True),
        (CPU, {"steps": None, "minutes": 9.0}, False),
        (CPU, {"steps": None, "minutes": 10.0}, True),
        (CPU, {"steps": None, "minutes": 60.0, "compile": False}, False),
    ],
)
def test_a_gpu_compiles_and_a_cpu_where_the_run_is_long_enough(monkeypatch, device, settings, expected):
    monkeypatch.setattr(compiling, "find_obstacle", lambda device: None)
    assert compiling.choose_compiling(dataclasses.replace(TINY, **settings), device) == (expected, None)
