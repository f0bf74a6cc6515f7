"""A line of a run has the time that is left, by the time that its done part took."""

from __future__ import annotations

import pytest

from albert_data.examples.pair_tasks import PAIR_TASKS
from albert_data.train.config import TrainConfig
from albert_data.train.schedule import Budget
from albert_data.train.tell import Report


@pytest.mark.parametrize(
    ("settings", "step", "left"),
    [
        ({}, 2500, "5 min 0 s"),
        ({}, 10, "1 d 3 h"),
        ({}, 10_000, "0 min 0 s"),
        ({"steps": None, "minutes": 10.0}, 7, "7 min 20 s"),
        ({"steps": None, "minutes": 1.0}, 7, "0 min 0 s"),
    ],
)
def test_the_time_that_is_left_is_told(capsys, settings, step, left):
    """It counts from the first update on: the start took 60 of 160 seconds."""
    times = iter([60.0])
    budget = Budget(TrainConfig(**settings), 500, began=0.0, clock=lambda: next(times, 160.0))
    budget.begin(0)
    report = Report(budget, PAIR_TASKS["sop"])
    figures = {"mlm_loss": 9.0, "mlm_accuracy": 0.1, "sop_loss": None, "sop_accuracy": None}
    report.show(step, figures | {"tokens_per_second": 4000.0})
    end = f"4,000 tokens/s, about {left} left\n"
    assert (
        capsys.readouterr().err
        == f"step {step:,}{'' if settings else ' of 10,000'}: MLM loss 9.000 (10.0 % right), {end}"
    )
