"""A budget gives the share of a run that is done, by steps or by the clock, and keeps time for the end of the run."""

from __future__ import annotations

import time

import pytest

from albert_data.train.budget import SAFETY_FACTOR, Budget
from albert_data.train.config import TrainConfig


class Clock:
    """A replacement for time.perf_counter."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


def make(*, seconds: float = 0.0, schedule_begin: float | None = None, **length: float | int | None) -> Budget:
    config = TrainConfig(**{"steps": None, **length})
    return Budget(config, 50, began=100.0, seconds=seconds, schedule_begin=schedule_begin)


def test_with_steps_the_share_done_is_the_step_over_the_steps():
    budget = make(steps=4)
    assert [budget.share_done(step) for step in (0, 1, 4)] == [0, 0.25, 1]
    assert [budget.finish_update(step, 0.0) for step in range(4)] == [False, False, False, True]


def test_epochs_are_converted_to_steps():
    assert make(epochs=1.5).num_steps == 75
    assert make(epochs=0.001).num_steps == 1


def test_minutes_count_from_the_first_update_and_leave_time_for_the_end(clock):
    budget = make(minutes=1.0)
    budget.note("evaluation", 6.0)
    budget.note("checkpoint", 2.0)
    clock.now += 10
    assert budget.share_done(0) == 0, "the schedule begins after opening and compiling"
    budget.begin()
    training_seconds = 60 - 10 - SAFETY_FACTOR * 8
    clock.now += training_seconds / 2
    budget.begin()
    assert budget.share_done(17) == pytest.approx(0.5)
    clock.now += training_seconds
    assert budget.share_done(18) == 1


def test_an_update_is_the_last_if_another_would_end_too_late(clock):
    budget = make(minutes=1.0)
    assert not budget.finish_update(0, 0.1), "the length of the first step is not known"
    assert [budget.finish_update(step, share) for step, share in enumerate((0.3, 0.5, 0.7, 0.9), 1)] == [
        False,
        False,
        False,
        True,
    ]


def test_a_resumed_run_continues_its_schedule(clock):
    budget = make(minutes=1.0, seconds=30.0, schedule_begin=10.0)
    assert budget.seconds == 30
    assert budget.share_done(5) == pytest.approx(20 / (50 - SAFETY_FACTOR * 2))


def test_a_budget_too_short_for_the_end_is_over_at_once(clock):
    budget = make(minutes=0.01)
    assert budget.share_done(0) == 1
    assert budget.rate(0, 1.0) == 0
