"""A run can begin with the weights of another that has the same vocabulary and enough positions."""

from __future__ import annotations

import dataclasses
import json
import shutil
from unittest.mock import Mock

import pytest
import torch

from albert_data.errors import CheckpointError, ConfigError, OutputError
from albert_data.interop.initial import load_initial
from albert_data.train.config import TrainConfig
from albert_data.train.model.checkpoint import list_checkpoints, load_model
from albert_data.train.run import loop

CONFIG = TrainConfig(
    preset="tiny", lr=1e-3, steps=2, batch_tokens=8 * 64, eval_every=2, save_every=2, device="cpu", remask=False
)
STILL = dataclasses.replace(CONFIG, lr=1e-12, weight_decay=0.0, seed=7)


@pytest.fixture
def first(toys, use_shards, tmp_path):
    use_shards(toys.make_shards(30))
    loop.train(tmp_path / "out", tmp_path / "first", CONFIG)
    return tmp_path / "first"


def weights_of(run):
    return load_model(list_checkpoints(run)[-1]).state_dict()


@pytest.mark.parametrize("what", ["run", "checkpoint"])
def test_a_run_with_initial_weights_begins_with_these_weights_only(first, tmp_path, what):
    initial = load_initial(first if what == "run" else list_checkpoints(first)[-1])
    loop.train(tmp_path / "out", tmp_path / "second", STILL, initial=initial)
    one, other = weights_of(first), weights_of(tmp_path / "second")
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=1e-9)
    assert list_checkpoints(tmp_path / "second")[-1].name == "step-00000002", "the step begins at 0"


def test_a_run_with_initial_weights_resumes_without_them(first, tmp_path):
    run = tmp_path / "second"
    loop.train(tmp_path / "out", run, dataclasses.replace(STILL, save_every=1), initial=load_initial(first))
    shutil.rmtree(first)
    shutil.rmtree(list_checkpoints(run)[-1])
    last = loop.train(tmp_path / "out", run, dataclasses.replace(STILL, save_every=1), resume=True)
    assert last is not None
    assert last.name == "step-00000002"


def test_weights_of_another_vocabulary_are_refused(toys, use_shards, first, tmp_path):
    for change in ({"vocab_size": 50}, {"sha256": "1" * 64}):
        shards = toys.make_shards(30)
        other = dataclasses.replace(shards.manifest.tokenizer, **change)
        shards.manifest = dataclasses.replace(shards.manifest, tokenizer=other)
        use_shards(shards)
        with pytest.raises(ConfigError, match="another vocabulary"):
            loop.train(tmp_path / "out", tmp_path / "second", STILL, initial=load_initial(first))


def test_rows_longer_than_the_positions_are_refused(toys, use_shards, first, tmp_path):
    use_shards(toys.make_shards(30, max_seq_len=600))
    with pytest.raises(ConfigError, match=r"512 positions.*640.*--max-seq-len 512"):
        loop.train(tmp_path / "out", tmp_path / "second", STILL, initial=load_initial(first))


def test_a_path_without_weights_is_refused(first, tmp_path):
    with pytest.raises(CheckpointError, match="holds no weights to begin with"):
        load_initial(tmp_path / "nowhere")
    state = list_checkpoints(first)[-1] / "state.json"
    state.write_text(json.dumps({k: v for k, v in json.loads(state.read_text()).items() if k != "identity"}))
    with pytest.raises(CheckpointError, match=r"state.json lacks identity"):
        load_initial(first)
    shutil.rmtree(first / "checkpoints")
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        load_initial(first)


def test_a_run_without_a_checkpoint_of_its_initial_weights_does_not_go_on_with_drawn_ones(first, tmp_path, monkeypatch):
    run = tmp_path / "second"
    with monkeypatch.context() as patch:
        patch.setattr(loop, "save_session", Mock(side_effect=OutputError("the disk is full")))
        with pytest.raises(OutputError, match="full"):
            loop.train(tmp_path / "out", run, STILL, initial=load_initial(first))
    with pytest.raises(CheckpointError, match=r"has no checkpoint.*first weights were those of .*step-.*--init-from"):
        loop.train(tmp_path / "out", run, STILL, resume=True)


def test_a_run_stopped_before_its_first_step_still_has_its_initial_weights(first, tmp_path, monkeypatch):
    run = tmp_path / "second"
    with monkeypatch.context() as patch:
        patch.setattr(loop, "update", lambda *given, **counts: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            loop.train(tmp_path / "out", run, STILL, initial=load_initial(first))
    assert [path.name for path in list_checkpoints(run)] == ["step-00000000"]
    loop.train(tmp_path / "out", run, STILL, resume=True)
    one, other = weights_of(first), weights_of(run)
    assert all(torch.allclose(one[name], other[name], rtol=0, atol=1e-9) for name in one)
