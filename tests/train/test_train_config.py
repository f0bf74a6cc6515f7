"""Settings out of range are refused when they are made, with the value and what is allowed."""

from __future__ import annotations

import dataclasses

import pytest

from albert_data.errors import ConfigError
from albert_data.train.config import MODEL_PRESETS, RECIPES, AlbertConfig, TrainConfig, name_preset


@pytest.mark.parametrize("recipe", ["quick", "paper"])
def test_every_model_has_its_settings(recipe):
    assert set(RECIPES[recipe]) == set(MODEL_PRESETS)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_settings_of_a_preset_are_for_its_model(recipe):
    assert all(config.preset == name for name, config in RECIPES[recipe].items())


def test_the_papers_recipe_is_the_papers():
    config = RECIPES["paper"]["base"]
    assert (config.optimizer, config.lr, config.steps) == ("lamb", 0.00176, 125_000)
    assert config.batch_tokens == 4096 * 512
    assert config.steps is not None
    assert config.warmup_share * config.steps == 3125


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
        ({"steps": None}, ["none is given", "steps, epochs, minutes"]),
        ({"minutes": 1.0}, ["minutes is 1.0", "exactly one"]),
        ({"steps": None, "epochs": 0.0}, ["epochs", "0.0"]),
        ({"optimizer": "sgd"}, ["optimizer", "sgd", "lamb"]),
        ({"micro_tokens": 0}, ["micro_tokens", "0"]),
        ({"keep": 0}, ["keep", "0"]),
        ({"mask_prob": 0.0}, ["mask_prob", "0.0"]),
        ({"mask_prob": 0.3, "last_mask_prob": 0.9}, ["last_mask_prob", "0.9"]),
        ({"last_mask_prob": 0.15}, ["last_mask_prob", "mask_prob is not given"]),
        ({"mask_prob": 0.3, "remask": False}, ["mask_prob", "0.3", "remask is False"]),
        ({"first_window": -1}, ["first_window", "-1"]),
        ({"first_window": 8, "window_share": 1.5}, ["window_share", "1.5"]),
        ({"window_share": 0.5}, ["window_share", "first_window is not given"]),
    ],
)
def test_impossible_runs_are_refused(settings, words):
    with pytest.raises(ConfigError) as caught:
        TrainConfig(**settings)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("name", MODEL_PRESETS)
def test_a_model_has_the_preset_of_its_sizes_whatever_the_settings_say(name):
    shape = dataclasses.replace(MODEL_PRESETS[name], vocab_size=77, max_positions=64, dropout=0.2, sentence_task="none")
    assert name_preset(name, shape) == name
    assert name_preset("tiny" if name == "base" else "base", shape).removesuffix("-v1") == name.removesuffix("-v1")
    assert name_preset(name, dataclasses.replace(shape, num_layers=7)) == "none"
