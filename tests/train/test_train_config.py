"""Settings out of range are refused where they are made, with the value and what is allowed."""

from __future__ import annotations

import pytest

from albert_data.errors import ConfigError
from albert_data.train.config import MODEL_PRESETS, TRAIN_PRESETS, AlbertConfig, TrainConfig


def test_every_training_preset_has_its_model():
    assert set(TRAIN_PRESETS) <= set(MODEL_PRESETS)
    assert all(config.preset == name for name, config in TRAIN_PRESETS.items())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hidden_size": 100, "num_heads": 12}, ["hidden_size", "100", "multiple", "12"]),
        ({"num_groups": 5}, ["num_groups", "5", "12"]),
        ({"share": "none", "num_groups": 2}, ["num_groups", "2", "none"]),
        ({"share": "some"}, ["share", "some", "attention"]),
        ({"dropout": 1.0}, ["dropout", "1.0"]),
        ({"vocab_size": 0}, ["vocab_size", "0"]),
    ],
)
def test_impossible_models_are_refused(settings, words):
    with pytest.raises(ConfigError) as caught:
        AlbertConfig(**settings)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps": 0}, ["steps", "0"]),
        ({"lr": float("nan")}, ["lr", "nan"]),
        ({"lr": -1.0}, ["lr", "-1.0"]),
        ({"warmup_share": 1.5}, ["warmup_share", "1.5"]),
        ({"preset": "huge"}, ["preset", "huge", "tiny"]),
        ({"precision": "fp8"}, ["precision", "fp8", "bf16"]),
        ({"device": "tpu"}, ["device", "tpu", "cuda:N"]),
        ({"seed": -1}, ["seed", "-1"]),
    ],
)
def test_impossible_runs_are_refused(settings, words):
    with pytest.raises(ConfigError) as caught:
        TrainConfig(**settings)
    assert all(word in str(caught.value) for word in words)
