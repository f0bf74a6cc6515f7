"""TensorBoard's events hold every figure that there is; where it is not installed, one line says so."""

from __future__ import annotations

import sys

import pytest

from albert_data.errors import ConfigError
from albert_data.train.run.report import TensorBoardWriter


def test_without_tensorboard_one_line_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"pip install 'albert-data\[tensorboard\]'"):
        TensorBoardWriter(tmp_path)
    assert list(tmp_path.iterdir()) == []


def read_events(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_each_figure_is_a_curve_of_its_split(tmp_path):
    pytest.importorskip("tensorboard")
    writer = TensorBoardWriter(tmp_path)
    writer.write("train", 1, {"mlm_loss": 2.5, "sop_loss": None})
    writer.write("validation", 1, {"mlm_loss": 3.5, "guesses": "text"})
    writer.write("train", 2, {"mlm_loss": 2.25})
    writer.close()
    found = read_events(tmp_path / "tensorboard")
    assert found == {"mlm_loss/train": [(1, 2.5), (2, 2.25)], "mlm_loss/validation": [(1, 3.5)]}


def test_a_resumed_run_hides_the_events_that_it_writes_again(tmp_path):
    pytest.importorskip("tensorboard")
    for begin, value in ((0, 1.0), (2, 2.0)):
        writer = TensorBoardWriter(tmp_path, step=begin)
        for step in range(begin + 1, begin + 4):
            writer.write("train", step, {"mlm_loss": value})
        writer.close()
    found = read_events(tmp_path / "tensorboard")["mlm_loss/train"]
    assert found == [(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0), (5, 2.0)]
