"""A budget gives the share of a run that is done, by steps or by the clock, and keeps time for the end of the run."""

from __future__ import annotations

import pytest

from albert_data.train.config import TrainConfig
from albert_data.train.run.budget import FIRST_SHARE, SAFETY_FACTOR, Budget


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


def test_with_steps_the_share_done_is_the_step_over_the_steps(clock):
    budget = make(clock, steps=4)
    assert [budget.share_done(step) for step in (0, 1, 4)] == [0, 0.25, 1]
    assert [budget.is_last(step, 0.0, 0.25) for step in range(4)] == [False, False, False, True]
    assert budget.has_time("evaluation")


def test_epochs_are_converted_to_steps(clock):
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


def test_an_update_is_the_last_if_another_would_end_too_late(clock):
    budget = make(clock, minutes=1.0)
    assert [budget.is_last(step, share, 0.2) for step, share in enumerate((0.3, 0.5, 0.7, 0.9))] == [
        False,
        False,
        False,
        True,
    ]


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


def test_a_budget_too_short_for_the_end_is_over_at_once(clock):
    budget = make(clock, minutes=0.01)
    assert budget.share_done(0) == 1
    assert budget.rate(0, 1.0, FIRST_SHARE) == 0


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
