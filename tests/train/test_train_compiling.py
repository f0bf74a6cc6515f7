"""A model is compiled only where torch.compile works; elsewhere it is trained as it is, and the run says why.

A timed run compiles before its schedule begins, changes nothing by that, and ends when its minutes are over.
"""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import time
from collections import Counter
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import toy_rows

from albert_data.errors import ConfigError
from albert_data.train import compiling, loop, memory
from albert_data.train import state as session
from albert_data.train.checkpoint import list_checkpoints, load_checkpoint
from albert_data.train.compiling import choose_compiling, find_obstacle
from albert_data.train.device import ALONE, choose_precision
from albert_data.train.evaluation import evaluate
from albert_data.train.loader import ShardLoader, fixed_batches, fixed_shapes
from albert_data.train.memory import warm_up
from albert_data.train.model import Albert
from albert_data.train.order import BUCKET
from albert_data.train.schedule import Budget
from albert_data.train.state import choose_shape, start_session
from albert_data.train.update import update

CPU, GPU = torch.device("cpu"), torch.device("cuda")
TINY = dataclasses.replace(toy_rows.TINY, steps=2, eval_rows=40, dropout=0.1, remask=False)
TIMED = dataclasses.replace(TINY, steps=None, minutes=10.0, warmup_share=0.05, log_every=10, save_every=10_000)


def keep_programs(monkeypatch) -> list:
    """Only keep the graphs to compile, instead of by Inductor, which takes seconds; returns the list of them."""
    programs, compile_any = [], torch.compile  # Module.compile calls it too

    def keep(program, inputs):
        programs.append(program)
        return program.forward

    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", lambda function, **options: compile_any(function, backend=keep, **options))
    return programs


def test_where_compiling_works_there_is_no_obstacle(monkeypatch):
    programs = keep_programs(monkeypatch)
    before = torch.get_rng_state()
    assert find_obstacle(CPU) is None
    assert len(programs) == 1
    assert torch.equal(before, torch.get_rng_state())


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("no kernel image is available")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            Mock(side_effect=RuntimeError("backend='x' raised:\nNo \x1b C++ compiler\n\nSet DEBUG=1")),
            "No \x1b C++ compiler",
        ),
        (Mock(side_effect=RuntimeError("too old " * 99)), f"{'too old ' * 24}too..."),
        (Mock(side_effect=NotImplementedError), "NotImplementedError"),
        (lambda function: Broken.apply, "no kernel image is available"),
    ],
    ids=[
        "only the first line",
        "only its begin",
        "an error without a message",
        "a function that does not run backward",
    ],
)
def test_an_obstacle_is_told_in_one_line(monkeypatch, make, reason):
    monkeypatch.setattr(torch, "compile", make)
    assert find_obstacle(CPU) == reason


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
    assert capsys.readouterr().err.count("\ncompiled    no: no \\x1b[2J Triton; install that, or --no-compile\n") == 1
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
    ],
)
def test_a_gpu_compiles_and_a_cpu_where_the_run_is_long_enough_and_no_other_is_probed(
    monkeypatch, device, settings, expected
):
    probed, config = [], dataclasses.replace(TINY, **settings)
    monkeypatch.setattr(compiling, "find_obstacle", probed.append)
    assert choose_compiling(config, device) == (expected, None)
    assert probed == ([device] if expected else [])
    monkeypatch.setattr(compiling, "find_obstacle", lambda device: "no Triton")
    assert choose_compiling(config, device) == (False, "no Triton" if expected else None)


# ---- before a timed run ----


def shape_of(batch):
    return (*batch.input_ids_BT.shape, len(batch.masked_indices_N), None)


@pytest.mark.parametrize("settings", [{}, {"micro_tokens": 256}, {"rank": 1, "num_ranks": 2}])
def test_a_loader_tells_the_shapes_of_all_its_batches(toys, settings):
    shards = toys.make_shards(300, max_seq_len=250)
    loader = ShardLoader(shards, batch_tokens=1024, **settings)
    read = {shape_of(batch) for step in loader.stream(CPU, 3 * loader.steps_per_epoch) for batch in step}
    assert len(read) == 4
    assert set(loader.shapes()) == read


def test_the_shapes_of_an_evaluation_are_those_of_its_batches(toys):
    shards = toys.make_shards(60, max_seq_len=250)
    given = {"num_rows": 30, "batch_tokens": 600}
    assert set(fixed_shapes(shards, **given)) == {shape_of(batch) for batch in fixed_batches(shards, **given)}


@pytest.fixture(params=["a program for all shapes"])
def compiled(request, toys, use_shards, monkeypatch):
    """A session, its loader, and the list of programs that were made. The compiler only keeps the graphs."""
    for module in (compiling, memory):
        monkeypatch.setattr(module, "is_for_all_shapes", lambda device: request.param.endswith("all shapes"))
    shards, validation = toys.make_shards(200, max_seq_len=180), toys.make_shards(50, max_seq_len=120, seed=1)
    use_shards(shards, validation)
    programs = keep_programs(monkeypatch)
    monkeypatch.setattr(session, "choose_compiling", lambda config, device: (request.param != "no program", None))
    shape = choose_shape(TINY, shards.manifest)
    made = start_session(TINY, shape, choose_precision("fp32", "cpu"), ALONE, {}, None)
    return made, ShardLoader(shards, batch_tokens=TINY.batch_tokens, remask=False), validation, programs


@pytest.mark.parametrize(
    ("compiled", "windows"),
    [("a program for each shape", (0,)), ("a program for all shapes", (8, 1000))],
    indirect=["compiled"],
)
def test_the_warm_up_compiles_what_updates_and_evaluations_need_and_changes_nothing_else(compiled, windows):
    made, loader, validation, programs = compiled
    made.config = dataclasses.replace(made.config, first_window=windows[0])
    weights = {name: tensor.clone() for name, tensor in made.model.state_dict().items()}
    for parameter in made.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    random_state, num_programs = torch.get_rng_state(), []
    for answers in ([False, True], []):  # the first time it is told to stop after a shape
        must_stop = itertools.chain(answers, itertools.repeat(bool(answers))).__next__
        warm_up(made, loader, validation, must_stop=must_stop, say=lambda line: None)
        num_programs.append(len(programs))
    assert 0 < num_programs[0] < num_programs[1]
    assert num_programs[1] >= 3 * (1 if compiling.is_for_all_shapes(CPU) else len(loader.shapes()))

    assert all(torch.equal(tensor, weights[name]) for name, tensor in made.model.state_dict().items())
    assert all(parameter.grad.eq(1).all() for parameter in made.model.parameters())
    assert torch.equal(random_state, torch.get_rng_state())
    assert made.tally.read(ALONE)["mlm_loss"] is None
    assert made.tally.num_tokens == made.step == len(made.optimizer.state) == 0
    assert made.model.training

    row_lens = set()
    for batches in loader.stream(CPU, loader.steps_per_epoch):
        row_lens.add(batches[0].input_ids_BT.shape[1])
        counts = {"num_masked": batches[0].num_masked, "num_pairs": batches[0].num_pairs}
        for window in windows:
            update(made, batches, lr=1e-3, window=window, **counts)
    assert row_lens == {64, 128, 192}
    evaluate(made.model, validation, made.precision, num_rows=TINY.eval_rows, batch_tokens=TINY.batch_tokens)
    assert len(programs) == num_programs[1]


def test_a_window_of_packed_rows_that_grows_compiles_nothing(toys, monkeypatch):
    programs = keep_programs(monkeypatch)
    monkeypatch.setattr(compiling, "is_for_all_shapes", lambda device: False)
    model = Albert(dataclasses.replace(toy_rows.SMALL, vocab_size=40))
    compiling.compile_model(model)
    batch, counts = next(iter(ShardLoader(toys.make_shards(40), batch_tokens=512, packed=True))), []
    for window in (8, 16, 24):
        output = model(batch, window)
        torch.autograd.grad(output.mlm_nats + output.sop_nats, list(model.parameters()))
        counts.append(len(programs))
    assert counts == [4, 4, 4]  # embeddings, a layer, the last one, the head


@pytest.mark.parametrize("compiled", ["no program"], indirect=True)
def test_what_does_not_fit_in_the_warm_up_is_halved_and_the_warm_up_begins_again(compiled, monkeypatch):
    made, loader, validation, _ = compiled
    largest, said, forward = loader.tokens_at_once // 2, [], Albert.forward

    def run_out(self, batch, window=0):
        if batch.input_ids_BT.numel() > largest:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return forward(self, batch, window)

    monkeypatch.setattr(Albert, "forward", run_out)
    warm_up(made, loader, validation, must_stop=lambda: False, say=said.append)
    assert 0 < loader.tokens_at_once <= largest
    assert [line.startswith("compiling ") for line in said] == [True, False, True]


class World:
    """A clock, and what takes time by it: compiling each shape, updates, evaluations and checkpoints."""

    def __init__(self, monkeypatch, *, is_compiled: bool = True) -> None:
        self.began = self.now = 1000.0
        self.is_compiled, self.compiled, self.warmed = is_compiled, set(), 0
        self.rates: list[float] = []
        self.save = loop.save_session
        for name in ("make_budget", "warm_up", "update", "evaluate", "save_session"):
            monkeypatch.setattr(loop, {"make_budget": "Budget"}.get(name, name), getattr(self, name))
        monkeypatch.setattr(session, "choose_compiling", lambda config, device: (is_compiled, None))
        monkeypatch.setattr(session, "compile_model", lambda model: None)
        monkeypatch.setattr(session, "CPU_BUCKET", BUCKET)  # `compiled` has few shapes, as on a GPU

    def make_budget(self, *given, began, **named):
        return Budget(*given, began=self.began, clock=lambda: self.now, **named)

    def save_session(self, *given):
        self.now += 2.0
        return self.save(*given)

    def _compile(self, *key) -> None:
        if self.is_compiled and key not in self.compiled:
            self.compiled.add(key)
            self.now += 15.0

    def warm_up(self, made, loader, validation, *, must_stop, say):
        self.warmed += 1
        training = loader.shapes()
        evaluation = fixed_shapes(validation, num_rows=made.config.eval_rows, batch_tokens=made.config.batch_tokens)
        for shape, kind in [*((s, "update") for s in training), *((s, "evaluation") for s in evaluation)]:
            if must_stop():
                return
            self._compile(kind, shape.row_len)

    def update(self, made, batches, *, lr, num_masked, num_pairs, window):
        self._compile("update", batches[0].input_ids_BT.shape[1])
        self.rates.append(lr)
        self.now += 0.3 + 1.2 * np.random.default_rng(made.step).random()
        made.step += 1
        made.tally.num_tokens += batches[0].num_tokens
        made.tally.num_cells += batches[0].input_ids_BT.numel()
        made.optimizer.state = {0: {}}

    def evaluate(self, model, validation, precision, *, num_rows, batch_tokens, **named):
        for shape in fixed_shapes(validation, num_rows=num_rows, batch_tokens=batch_tokens):
            self._compile("evaluation", shape.row_len)
        self.now += 8.0
        return {"mlm_loss": 1.0, "mlm_accuracy": 0.5, "sop_loss": 1.0, "sop_accuracy": 0.5}


@pytest.fixture
def splits(toys, use_shards):
    train, validation = toys.make_shards(400, max_seq_len=250), toys.make_shards(50, max_seq_len=250, seed=1)
    use_shards(train, validation)


@pytest.mark.parametrize(("is_compiled", "eval_every"), [(True, 40), (True, 466), (False, 10_000), (False, None)])
def test_a_run_by_the_clock_warms_up_gradually_and_ends_on_time_with_curves(
    toys, splits, tmp_path, monkeypatch, is_compiled, eval_every
):
    world = World(monkeypatch, is_compiled=is_compiled)
    config = dataclasses.replace(TIMED, eval_every=eval_every, save_every=50, log_every=10 if eval_every else None)
    assert loop.train(tmp_path / "out", tmp_path / "run", config) is not None
    assert world.warmed == is_compiled
    assert 595 <= world.now - world.began <= 600 + 1.5
    peak = int(np.argmax(world.rates))
    assert 0.04 * len(world.rates) <= peak <= 0.1 * len(world.rates)
    assert world.rates[peak] == pytest.approx(config.lr, rel=0.05)
    assert 0.01 * config.lr < world.rates[0] < 0.15 * config.lr
    assert np.all(np.diff(world.rates[peak:]) < 1e-3 * config.lr)
    assert world.rates[-1] < 0.03 * config.lr
    counts = Counter(line["split"] for line in toys.read_metrics(tmp_path / "run"))
    assert counts["train"] >= 20
    assert eval_every or counts["validation"] >= 6


def test_a_resumed_run_by_the_clock_compiles_again_and_continues_its_schedule(splits, tmp_path, monkeypatch):
    config = dataclasses.replace(TIMED, eval_every=10_000, save_every=100, keep=9)
    first = World(monkeypatch)
    loop.train(tmp_path / "out", tmp_path / "run", config)
    for path in list_checkpoints(tmp_path / "run")[2:]:
        shutil.rmtree(path)
    second = World(monkeypatch)
    monkeypatch.setattr(session, "unpack_optimizer", lambda optimizer, tensors: optimizer.state.update({0: {}}))
    loop.train(tmp_path / "out", tmp_path / "run", config, resume=True)
    assert second.warmed == 1
    assert len(first.rates) > 200 + len(second.rates)
    assert second.rates[0] < first.rates[200]
    assert second.rates[0] > 0.5 * first.rates[200], "compiling takes a part of the schedule"
    saved = load_checkpoint(list_checkpoints(tmp_path / "run")[1])[2]["seconds"]
    assert 595 <= saved + second.now - second.began <= 600 + 1.5, "it knows how long an evaluation takes"


def test_if_compiling_takes_all_the_time_the_run_is_refused_when_it_is_over(splits, tmp_path, monkeypatch):
    world = World(monkeypatch)
    with pytest.raises(ConfigError, match=r"minutes is 0\.5; the start took .* seconds.*no time is left for training"):
        loop.train(tmp_path / "out", tmp_path / "run", dataclasses.replace(TIMED, minutes=0.5))
    assert world.rates == []
    assert world.now - world.began == 30, "two shapes were compiled"
