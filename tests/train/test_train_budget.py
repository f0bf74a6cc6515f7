"""A budget gives the share of a run that is done, by steps or by the clock, and keeps time for the end of the run.

What settings leave open follows the length of a run: a short one has curves too.
"""

from __future__ import annotations

import dataclasses

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from albert_data.cli.train import train
from albert_data.train import loop
from albert_data.train.config import RECIPES, TrainConfig
from albert_data.train.schedule import (
    FIRST_SHARE,
    LEAST_ROWS,
    MOST_ROWS,
    POINTS,
    SAFETY_FACTOR,
    WORK,
    Budget,
    Intervals,
    choose_intervals,
)


class Clock:
    """A replacement for time.perf_counter."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(clock: Clock, *, seconds: float = 0.0, schedule_begin: float | None = None, **length) -> Budget:
    config = TrainConfig(**{"steps": None, **length})
    return Budget(config, 50, began=100.0, seconds=seconds, schedule_begin=schedule_begin, clock=clock)


def test_the_share_done_is_the_step_over_the_steps_and_epochs_are_converted_to_steps(clock):
    budget = make(clock, steps=4)
    assert [budget.share_done(step) for step in (0, 1, 4)] == [0, 0.25, 1]
    assert [budget.is_last(step, 0.0, 0.25) for step in range(4)] == [False, False, False, True]
    assert budget.has_time("evaluation")
    assert make(clock, epochs=1.5).num_steps == 75
    assert make(clock, epochs=0.001).num_steps == 1


def test_minutes_count_from_the_first_update_and_leave_time_for_the_end(clock):
    budget = make(clock, minutes=1.0)
    budget.note("evaluation", 6.0)
    budget.note("checkpoint", 2.0)
    clock.now += 10
    assert budget.share_done(0) == 0, "the schedule begins after opening and compiling"
    budget.begin(0)
    training_seconds = 60 - 10 - SAFETY_FACTOR * 8
    clock.now += training_seconds / 2
    assert budget.share_done(17) == pytest.approx(0.5)
    clock.now += training_seconds
    assert budget.share_done(18) == 1


def test_an_update_takes_the_mean_of_those_before_without_the_evaluations_between_them(clock):
    budget = make(clock, minutes=1.0)
    budget.begin(5)
    whole = 60 - SAFETY_FACTOR * 2
    for seconds in (0.5, 1.5):
        clock.now += seconds
    assert budget.share_per_step(7) == pytest.approx(1 / whole)
    clock.now += 9
    budget.note("evaluation", 9.0)
    clock.now += 2.5
    budget.note("evaluation", 0.0)
    assert budget.share_per_step(8) == pytest.approx(1.5 / whole)


def test_the_first_update_of_a_timed_run_has_a_part_of_the_highest_rate(clock):
    budget = make(clock, minutes=1.0, lr=1.0, warmup_share=0.05)
    budget.begin(0)
    assert budget.share_per_step(0) == FIRST_SHARE
    assert 0.01 < budget.rate(0, budget.share_done(0), budget.share_per_step(0)) < 0.1


def test_an_evaluation_that_would_end_after_the_last_one_begins_has_no_time(clock):
    budget = make(clock, minutes=1.0)
    budget.note("evaluation", 20.0)
    clock.now += 60 - SAFETY_FACTOR * 21 - 20 - 0.1
    assert budget.has_time("evaluation")
    clock.now += 0.2
    assert not budget.has_time("evaluation")
    assert budget.has_time("checkpoint")


def test_a_resumed_run_continues_its_schedule(clock):
    budget = make(clock, minutes=1.0, seconds=30.0, schedule_begin=10.0)
    budget.begin(5)
    assert budget.seconds == 30
    assert budget.share_done(5) == pytest.approx(20 / (50 - SAFETY_FACTOR * 2))


@pytest.mark.parametrize(
    ("first", "end", "row_len", "expected"),
    [
        (8, 0.4, 128, [8, 8, 16, 32, 64, 128, 128]),
        (8, 0.4, 100, [8, 8, 16, 32, 64, 100, 100]),
        (50, 0.4, 128, [50, 50, 50, 100, 100, 128, 128]),
        (8, 1.0, 16, [8, 8, 8, 8, 8, 8, 16]),
        (8, 0.0, 128, [128] * 7),
        (0, 0.3, 128, [0] * 7),
    ],
)
def test_the_window_doubles_at_even_intervals_until_it_is_the_whole_row(first, end, row_len, expected):
    budget = Budget(TrainConfig(steps=100, first_window=first, window_share=end), 50, began=0.0)
    assert [budget.window(share, row_len) for share in (0.0, 0.09, 0.11, 0.21, 0.31, 0.4, 1.0)] == expected


@pytest.mark.parametrize(
    ("first", "last", "expected"), [(0.45, 0.15, [0.45, 0.42, 0.3, 0.15, 0.15]), (0.3, None, [0.3] * 5)]
)
def test_the_share_of_masked_tokens_changes_evenly_from_the_first_to_the_last(first, last, expected):
    budget = Budget(TrainConfig(steps=100, mask_prob=first, last_mask_prob=last), 50, began=0.0)
    assert [budget.mask_prob(step) for step in (0, 10, 50, 100, 101)] == expected


# ---- what is due when ----

OPEN = TrainConfig(preset="tiny", steps=40, batch_tokens=512, device="cpu", precision="fp32")


@given(steps=st.integers(1, 100_000), tokens=st.integers(1, 1 << 21), row_len=st.integers(8, 512))
def test_a_run_of_any_number_of_steps_has_enough_points_and_cheap_evaluations(steps, tokens, row_len):
    chosen = choose_intervals(TrainConfig(steps=steps, batch_tokens=tokens), steps, row_len)
    for work, every in (("log", chosen.log_every), ("evaluation", chosen.eval_every)):
        assert steps // every >= min(steps, POINTS[work])
    assert LEAST_ROWS <= chosen.eval_rows <= MOST_ROWS
    if chosen.eval_every < 1000:  # ten evaluations, of which each row costs a third of a training row
        assert chosen.eval_rows == LEAST_ROWS or 10 * chosen.eval_rows * row_len / 3 <= 0.1001 * steps * tokens


def test_what_is_given_stays():
    given = dataclasses.replace(OPEN, log_every=7, eval_every=8, save_every=9, eval_rows=10)
    assert choose_intervals(given, 40, 24) == given
    intervals = Intervals(dataclasses.replace(given, steps=None, minutes=1), 0, 0.0)
    assert [step for step in range(1, 20) if intervals.is_due("log", step, step / 20)] == [7, 14]


@pytest.mark.parametrize(("num_steps", "logs", "evaluations"), [(20, 20, 10), (1000, 50, 10), (30_000, 600, 30)])
def test_a_run_by_the_clock_has_as_many_points_however_fast_it_is(num_steps, logs, evaluations):
    intervals, counts = Intervals(TrainConfig(steps=None, minutes=1), 0, 0.0), dict.fromkeys(WORK, 0)
    for step in range(1, num_steps + 1):
        for work in WORK:
            if intervals.is_due(work, step, (step + 0.01) / num_steps):
                counts[work] += 1
                intervals.note(work, step, step / num_steps)
    assert counts == {"log": logs, "evaluation": evaluations, "checkpoint": evaluations}


@pytest.mark.parametrize(("work", "most"), [("evaluation", 0.2), ("checkpoint", 0.05)])
@pytest.mark.parametrize("length", [{"steps": 1000}, {"steps": None, "minutes": 1}])
def test_an_evaluation_and_a_checkpoint_take_at_most_a_share_of_the_time(work, most, length):
    now = 0.0
    budget = Budget(TrainConfig(**length), 100, began=0.0, clock=lambda: now)
    assert budget.is_free(work)
    now = 1.0
    budget.note(work, 1.0)
    for later, is_free in ((1.0, False), (1 / most - 0.01, False), (1 / most, True)):
        now = later
        assert budget.is_free(work) == is_free
    given = Budget(TrainConfig(**length, eval_every=1, save_every=1), 100, began=0.0, clock=lambda: 0.0)
    given.note(work, 1.0)
    assert given.is_free(work)


def test_a_short_run_has_ten_evaluations_and_a_line_for_each_step(toys, use_shards, tmp_path, capsys):
    use_shards(toys.make_shards(40), toys.make_shards(10, seed=1))
    loop.train(tmp_path, tmp_path / "run", OPEN)
    lines = toys.read_metrics(tmp_path / "run")
    assert [line["step"] for line in lines if line["split"] == "validation"] == list(range(4, 41, 4))
    assert [line["step"] for line in lines if line["split"] == "train"] == list(range(1, 41))
    assert "10 of 10 rows, every 4 steps" in capsys.readouterr().err


# ---- weights to begin with, on a CPU ----


@pytest.mark.parametrize(
    ("given", "wanted", "is_told"),
    [
        ([], (2048, 5e-5), True),
        (["--lr", "1e-3"], (2048, 1e-3), True),
        (["--preset", "mini"], (2048, RECIPES["quick"]["mini"].lr), False),
        (["--batch-tokens", "4096"], (4096, 3e-4), False),
        (["--recipe", "paper"], (4096 * 512, 0.00176), False),
    ],
)
def test_on_a_cpu_weights_are_trained_on_in_batches_for_a_cpu(tmp_path, monkeypatch, given, wanted, is_told):
    made, said = [], []
    monkeypatch.setattr(loop, "train", lambda shards, run, config, **named: made.append(config))
    monkeypatch.setattr("albert_data.interop.initial.load_initial", lambda *args, **named: None)
    monkeypatch.setattr("albert_data.library.models.tell", said.append)
    arguments = [tmp_path, "-o", tmp_path / "run", "--init-from", tmp_path, "--device", "cpu", *given]
    CliRunner().invoke(train, [str(one) for one in arguments], catch_exceptions=False)
    assert [(config.batch_tokens, config.lr) for config in made] == [wanted]
    assert bool(said) == is_told
