"""--profile writes a trace of a few steps, and changes nothing else."""

from __future__ import annotations

import dataclasses
import gzip
import json

import pytest
import torch.profiler

from albert_data.errors import OutputError
from albert_data.train.config import TrainConfig
from albert_data.train.model.checkpoint import list_checkpoints
from albert_data.train.run import loop

CONFIG = TrainConfig(
    preset="tiny", lr=1e-3, steps=12, batch_tokens=256, dropout=0.1, save_every=12, device="cpu", profile=True
)


@pytest.fixture
def shards(toys, use_shards):
    use_shards(toys.make_shards(40))


def test_the_trace_has_five_steps_after_five_of_warm_up(shards, tmp_path, capsys):
    loop.train(tmp_path, tmp_path / "run", CONFIG)
    events = json.loads(gzip.decompress((tmp_path / "run/trace.json.gz").read_bytes()))["traceEvents"]
    names = {event["name"] for event in events}
    assert {name for name in names if name.startswith("ProfilerStep")} == {f"ProfilerStep#{n}" for n in range(5, 10)}
    assert "aten::addmm" in names
    assert f"{tmp_path / 'run/trace.json.gz'} is written" in capsys.readouterr().err


def test_a_profiled_run_has_the_weights_of_another(shards, tmp_path):
    for name, is_profiled in (("with", True), ("without", False)):
        loop.train(tmp_path, tmp_path / name, dataclasses.replace(CONFIG, profile=is_profiled))
    first, second = (list_checkpoints(tmp_path / name)[-1] / "model.safetensors" for name in ("with", "without"))
    assert first.read_bytes() == second.read_bytes()
    assert not (tmp_path / "without/trace.json.gz").exists()


@pytest.mark.parametrize(("steps", "is_written"), [(4, False), (7, True)])
def test_a_run_that_ends_early_has_the_trace_until_then(shards, tmp_path, steps, is_written):
    loop.train(tmp_path, tmp_path / "run", dataclasses.replace(CONFIG, steps=steps))
    assert (tmp_path / "run/trace.json.gz").exists() == is_written


def test_a_trace_that_can_not_be_written_does_not_stop_the_run(shards, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", lambda self, path: None)
    assert loop.train(tmp_path, tmp_path / "run", CONFIG) is not None
    assert "the trace can't be written: the profiler wrote nothing" in capsys.readouterr().err
    assert not list((tmp_path / "run").glob("*trace*"))


def test_a_trace_of_the_user_stays(shards, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/trace.json.gz").write_text("mine")
    with pytest.raises(OutputError, match=r"holds trace\.json\.gz, which is not of this run"):
        loop.train(tmp_path, tmp_path / "run", CONFIG)
    assert (tmp_path / "run/trace.json.gz").read_text() == "mine"
