"""`train_model`, `export_model` and `score_model`: from strings, without a word, with errors that a user can read."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import albert_data
from albert_data.errors import ArgumentError, CheckpointError, ConfigError, StorageError
from albert_data.train.config import TrainConfig
from albert_data.train.run import loop

SMALL = {"preset": "tiny", "steps": 2, "batch_tokens": 256, "device": "cpu"}


@pytest.fixture
def here(toys, use_shards, tmp_path, monkeypatch) -> Path:
    use_shards(toys.make_shards(20), toys.make_shards(8, seed=1))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_is_trained_from_strings_without_a_word_and_resumed(here, capsys):
    run = albert_data.train_model("shards", **SMALL)
    assert capsys.readouterr() == ("", "")
    assert run.folder == Path("shards-run")
    assert repr(run).startswith("TrainedRun('shards-run', step 2, mlm_loss ")
    assert run.checkpoint is not None
    gone = albert_data.TrainedRun(folder=Path("gone"), checkpoint=None)
    assert repr(gone).startswith("TrainedRun('gone': gone: there is no run")
    assert gone._repr_html_() is None
    assert albert_data.train_model("shards", resume=True).checkpoint == run.checkpoint
    config = TrainConfig(**{**SMALL, "steps": 1})
    assert albert_data.train_model("shards", "other", config=config, seed=3).figures.sections["config"]["seed"] == 3


def test_progress_is_shown_when_it_is_wanted(here, capsys):
    albert_data.train_model("shards", **SMALL, progress=True)
    assert "preset      tiny" in capsys.readouterr().err


def test_ctrl_c_saves_a_checkpoint_and_then_is_what_it_is_elsewhere(here, monkeypatch):
    work = loop.update

    def update(*given, **named):
        signal.raise_signal(signal.SIGINT)
        work(*given, **named)

    monkeypatch.setattr(loop, "update", update)
    with pytest.raises(KeyboardInterrupt):
        albert_data.train_model("shards", **SMALL)
    monkeypatch.undo()
    assert list(here.glob("shards-run/checkpoints/*"))


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"steps": 2, "minutes": 1}, "--steps and --minutes exclude one another"),
        ({"accumulate": 2, "micro_tokens": 64}, "--accumulate and --micro-tokens exclude one another"),
        ({"resume": True, "recipe": "quick"}, "--resume excludes --recipe"),
        ({"step": 2}, "has no argument 'step'; is it one of: steps"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(here, named, message):
    with pytest.raises(ArgumentError, match=message):
        albert_data.train_model("shards", **named)


def test_a_run_in_a_store_and_a_folder_without_a_run_are_errors_of_the_library(here):
    with pytest.raises(StorageError, match="is in a store, but output has to be on a disk"):
        albert_data.train_model("shards", "s3://bucket/run")
    with pytest.raises(CheckpointError, match="is not a training run"):
        albert_data.export_model("shards", "model")
    Path("pairs.jsonl").write_text('{"good": "a", "bad": "b"}\n')
    with pytest.raises(CheckpointError, match="is neither a training run nor a Hugging Face folder"):
        albert_data.score_model("shards", "pairs.jsonl")


def test_a_config_beside_what_has_all_settings_is_refused(tmp_path: Path):
    config = TrainConfig(preset="tiny")
    for other in ({"resume": True}, {"recipe": "paper"}):
        with pytest.raises(ArgumentError, match="leave config out"):
            albert_data.train_model(tmp_path, tmp_path / "run", config=config, **other)
    with pytest.raises(ConfigError, match="recipe is 'nope'; allowed are quick, muon, paper"):
        albert_data.train_model(tmp_path, tmp_path / "run", recipe="nope")
