"""A line of a run has the time that is left, by the time that its done part took."""

from __future__ import annotations

import pytest

from albert_data.examples.pair_tasks import PAIR_TASKS
from albert_data.train.config import TrainConfig
from albert_data.train.schedule import Budget
from albert_data.train.tell import Report


@pytest.mark.parametrize(
    ("share", "step", "left"), [(0.25, 2500, "5 min 0 s"), (0.001, 10, "1 d 3 h"), (1.0, 10_000, "0 min 0 s")]
)
def test_the_time_that_is_left_is_told(capsys, share, step, left):
    report = Report(Budget(TrainConfig(), 500, began=0.0, clock=lambda: 100.0), PAIR_TASKS["sop"])
    figures = {"mlm_loss": 9.0, "mlm_accuracy": 0.1, "sop_loss": None, "sop_accuracy": None}
    report.show(step, share, figures | {"tokens_per_second": 4000.0})
    end = f"4,000 tokens/s, about {left} left\n"
    assert capsys.readouterr().err == f"step {step:,} of 10,000: MLM loss 9.000 (10.0 % right), {end}"
