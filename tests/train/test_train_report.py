"""A run says once how long it will take; TensorBoard's events hold every figure that there is."""

from __future__ import annotations

import dataclasses
import sys
from datetime import datetime, timedelta

import pytest
from refusals import check_refused
from toy_rows import TINY

from albert_data.errors import ConfigError
from albert_data.train import loop
from albert_data.train import tell as report
from albert_data.train.config import TrainConfig
from albert_data.train.schedule import Budget
from albert_data.train.tell import MIN_UPDATES, Estimate, TensorBoardWriter


class Run:
    """A run whose updates take as long as a test says."""

    def __init__(self, **length: float) -> None:
        self.now, self.step = 0.0, 0
        config = TrainConfig(**{"steps": None, **length})
        self.budget = Budget(config, 500, began=0.0, clock=lambda: self.now)
        self.estimate = Estimate(self.budget)

    def update(self, seconds: float, num: int = 1) -> list[str]:
        """Make updates of 4,000 tokens. Returns what they tell."""
        for _ in range(num):
            self.now, self.step = self.now + seconds, self.step + 1
            if (text := self.estimate.note(self.step, 4000)) is not None:
                return [text]
        return []


def test_the_time_that_is_left_is_told():
    made = Run(steps=10_000)
    assert made.update(60.0) == [], "the first update compiles"
    [text] = made.update(1.0, MIN_UPDATES)
    left = 10_000 - 1 - MIN_UPDATES
    minutes = {f"{datetime.now() + timedelta(seconds=left + late):%H:%M}" for late in (-5, 0)}  # the test may be slow
    assert text.rpartition(", until ")[0] == f"about 2 h 46 min for {left:,} steps (4,000 tokens/s)"
    assert text.rpartition(", until ")[2] in minutes


def test_updates_that_compile_do_not_count():
    made = Run(steps=1000)
    [text] = made.update(20.0, 4) + made.update(1.0, MIN_UPDATES)
    assert "(4,000 tokens/s)" in text


def test_a_run_of_over_a_day_is_told_after_minutes_and_what_to_do():
    made = Run(steps=10_000)
    [text] = made.update(200.0, 3)
    assert made.now == 600
    assert text.startswith("about 23 d 3 h for 9,997 steps (20 tokens/s); ")
    assert text.endswith("start another one with a smaller --preset or with --minutes")


def test_a_run_by_the_clock_tells_how_far_it_will_come():
    made = Run(minutes=10)
    [text] = made.update(0.5, MIN_UPDATES + 1)
    assert text == "about 1,195 steps in all, 2.39 epochs (8,000 tokens/s)", "2.5 seconds are kept for the end"


def test_a_short_run_needs_no_estimate():
    assert Run(steps=100).update(0.01, 100) == []


def test_a_run_tells_its_estimate_among_its_lines(toys, use_shards, tmp_path, monkeypatch, capsys):
    use_shards(toys.make_shards(40))
    monkeypatch.setattr(report, "MAX_SECONDS", 1e-9)
    loop.train(tmp_path, tmp_path / "run", dataclasses.replace(TINY, batch_tokens=256))
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("about ")]
    assert line.startswith("about 0 min 0 s for 2 steps (")


# ---- TensorBoard ----


def test_without_tensorboard_one_line_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    check_refused(lambda: TensorBoardWriter(tmp_path), ConfigError, "pip install 'albert-data[tensorboard]'")
    assert list(tmp_path.iterdir()) == []


def read_events(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_each_figure_is_a_curve_of_its_split_and_a_resumed_run_hides_what_it_writes_again(tmp_path):
    pytest.importorskip("tensorboard")
    for begin, value in ((0, 1.0), (2, 2.0)):
        writer = TensorBoardWriter(tmp_path, step=begin)
        for step in range(begin + 1, begin + 4):
            writer.write("train", step, {"mlm_loss": value, "sop_loss": None})
        writer.write("validation", begin + 3, {"mlm_loss": 3.5, "guesses": "text"})
        writer.close()
    assert read_events(tmp_path / "tensorboard") == {
        "mlm_loss/train": [(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0), (5, 2.0)],
        "mlm_loss/validation": [(5, 3.5)],
    }
