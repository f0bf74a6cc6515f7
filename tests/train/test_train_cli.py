"""`albert-data train` is one call into the library, and its help needs no torch."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from click.testing import CliRunner

from albert_data.cli.train import train
from albert_data.errors import CheckpointError
from albert_data.train import loop
from albert_data.train.config import TRAIN_PRESETS, TrainConfig


@pytest.fixture
def calls(monkeypatch):
    made = []
    monkeypatch.setattr(loop, "train", lambda *args, **kwargs: made.append((args, kwargs)))
    return made


def run(*arguments: str):
    return CliRunner().invoke(train, [str(a) for a in arguments], catch_exceptions=False)


def test_each_preset_is_its_complete_settings(calls, tmp_path):
    for preset in TRAIN_PRESETS:
        assert run(tmp_path, "-o", tmp_path / "run", "--preset", preset).exit_code == 0
    assert [args[2] for args, _ in calls] == list(TRAIN_PRESETS.values())


def test_the_default_is_base(calls, tmp_path):
    run(tmp_path, "-o", tmp_path / "run")
    assert calls == [((tmp_path, tmp_path / "run", TrainConfig()), {"resume": False})]


def test_an_option_changes_its_setting_alone(calls, tmp_path):
    run(tmp_path, "-o", tmp_path / "run", "--preset", "tiny", "--steps", "7", "--lr", "0.25")
    assert calls[0][0][2] == dataclasses.replace(TRAIN_PRESETS["tiny"], steps=7, lr=0.25)


def test_resume_takes_the_settings_of_the_run_and_then_the_options(toys, use_shards, tmp_path, monkeypatch):
    use_shards(toys.make_shards(20))
    options = ("--preset", "tiny", "--steps", "2", "--batch-size", "4", "--device", "cpu")
    assert run(tmp_path, "-o", tmp_path / "run", *options).exit_code == 0
    made = []
    monkeypatch.setattr(loop, "train", lambda *args, **kwargs: made.append((args[2], kwargs)))
    run(tmp_path, "-o", tmp_path / "run", "--resume")
    run(tmp_path, "-o", tmp_path / "run", "--resume", "--log-every", "1")
    stored = dataclasses.replace(TRAIN_PRESETS["tiny"], steps=2, batch_size=4, device="cpu")
    assert made == [(stored, {"resume": True}), (dataclasses.replace(stored, log_every=1), {"resume": True})]


def test_resume_without_a_run_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no run to resume"):
        run(tmp_path, "-o", tmp_path / "run", "--resume")


def test_every_setting_can_be_given_or_is_left_to_the_library():
    options = {parameter.name for parameter in train.params}
    left = {field.name for field in dataclasses.fields(TrainConfig)} - options
    assert left == {"beta1", "beta2", "adam_eps", "max_grad_norm"}


def test_the_help_shows_the_defaults_of_the_settings():
    text = " ".join(run("--help").output.split())
    assert f"base: {TrainConfig().lr}, tiny: {TRAIN_PRESETS['tiny'].lr}" in text
    assert "Example:" in text


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_help_loads_no_torch():
    code = (
        "import sys; from albert_data.cli.train import train; train(['--help'], standalone_mode=False); "
        "sys.exit('torch' in sys.modules)"
    )
    assert python(code).returncode == 0


def test_a_missing_torch_is_said_with_the_command_that_installs_it():
    code = (
        "import sys; sys.modules['torch'] = None; from albert_data.cli.train import train; "
        "train(['out', '-o', 'run'], standalone_mode=False)"
    )
    told = python(code).stderr.splitlines()[-1]
    assert told.endswith("ConfigError: train needs PyTorch; install it with: pip install 'albert-data[train]'")
