"""--profile writes a trace of a few steps, and changes nothing else."""

from __future__ import annotations

import dataclasses
import gzip
import json

import pytest
import torch.profiler
from toy_rows import TINY

from albert_data.train.model.checkpoint import list_checkpoints
from albert_data.train.run import loop

CONFIG = dataclasses.replace(TINY, steps=12, batch_tokens=256, dropout=0.1, save_every=12, profile=True)


@pytest.fixture
def shards(toys, use_shards):
    use_shards(toys.make_shards(40))


def test_the_trace_has_five_steps_after_five_of_warm_up_and_the_weights_are_those_of_another_run(
    shards, tmp_path, capsys
):
    for name, is_profiled in (("with", True), ("without", False)):
        loop.train(tmp_path, tmp_path / name, dataclasses.replace(CONFIG, profile=is_profiled))
    trace = tmp_path / "with/trace.json.gz"
    names = {event["name"] for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]}
    assert {name for name in names if name.startswith("ProfilerStep")} == {f"ProfilerStep#{n}" for n in range(5, 10)}
    assert "aten::addmm" in names
    assert capsys.readouterr().err.count("trace.json.gz is written") == 1
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
