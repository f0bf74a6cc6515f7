"""Settings out of range are refused when they are made, with the value and what is allowed."""

from __future__ import annotations

import dataclasses

import pytest
from refusals import check_refused, refused

from albert_data.errors import ConfigError
from albert_data.train.config import MODEL_PRESETS, RECIPES, AlbertConfig, TrainConfig, name_preset, resolve


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_settings_of_a_preset_are_for_its_model(recipe):
    assert all(config.preset == name for name, config in RECIPES[recipe].items())
    assert recipe not in ("quick", "paper") or set(RECIPES[recipe]) == set(MODEL_PRESETS)


def test_the_papers_recipe_is_the_papers():
    config = RECIPES["paper"]["base"]
    assert (config.optimizer, config.lr, config.steps) == ("lamb", 0.00176, 125_000)
    assert config.batch_tokens == 4096 * 512
    assert config.warmup_share * config.steps == 3125


@refused(
    ({"hidden_size": 100, "num_heads": 12}, ConfigError, "hidden_size & 100 & multiple & 12"),
    ({"num_groups": 5}, ConfigError, "num_groups & 5 & 12"),
    ({"share": "none", "num_groups": 2}, ConfigError, "num_groups & 2 & none"),
    ({"share": "some"}, ConfigError, "share & some & attention"),
    ({"dropout": 1.0}, ConfigError, "dropout & 1.0"),
    ({"vocab_size": 0}, ConfigError, "vocab_size & 0"),
    ({"num_layers": 2**20, "share": "none"}, ConfigError, "num_layers & allowed are 1 to 1024"),
    ({"num_layers": 64, "num_inner_groups": 64, "share": "none"}, ConfigError, "4096 & allowed are 1 to 1024"),
)
def test_impossible_models_are_refused(call, kind, named):
    check_refused(lambda: AlbertConfig(**call), kind, named)


@refused(
    ({"steps": 0}, ConfigError, "steps & 0"),
    ({"lr": float("nan")}, ConfigError, "lr & nan"),
    ({"lr": -1.0}, ConfigError, "lr & -1.0"),
    ({"warmup_share": 1.5}, ConfigError, "warmup_share & 1.5"),
    ({"preset": "huge"}, ConfigError, "preset & huge & tiny"),
    ({"precision": "fp8"}, ConfigError, "precision & fp8 & bf16"),
    ({"device": "tpu"}, ConfigError, "device & tpu & cuda:N"),
    ({"seed": -1}, ConfigError, "seed & -1"),
    ({"steps": None}, ConfigError, "none is given & steps, epochs, minutes"),
    ({"minutes": 1.0}, ConfigError, "minutes is 1.0 & exactly one"),
    ({"steps": None, "epochs": 0.0}, ConfigError, "epochs & 0.0"),
    ({"optimizer": "sgd"}, ConfigError, "optimizer & sgd & lamb"),
    ({"micro_tokens": 0}, ConfigError, "micro_tokens & 0"),
    ({"keep": 0}, ConfigError, "keep & 0"),
    ({"mask_prob": 0.0}, ConfigError, "mask_prob & 0.0"),
    ({"mask_prob": 0.3, "last_mask_prob": 0.9}, ConfigError, "last_mask_prob & 0.9"),
    ({"last_mask_prob": 0.15}, ConfigError, "last_mask_prob & mask_prob is not given"),
    ({"mask_prob": 0.3, "remask": False}, ConfigError, "mask_prob & 0.3 & remask is False"),
    ({"first_window": -1}, ConfigError, "first_window & -1"),
    ({"first_window": 8, "window_share": 1.5}, ConfigError, "window_share & 1.5"),
    ({"window_share": 0.5}, ConfigError, "window_share & first_window is not given"),
)
def test_impossible_runs_are_refused(call, kind, named):
    check_refused(lambda: TrainConfig(**call), kind, named)


@pytest.mark.parametrize("name", MODEL_PRESETS)
def test_a_model_has_the_preset_of_its_sizes_whatever_the_settings_say(name):
    shape = dataclasses.replace(MODEL_PRESETS[name], vocab_size=77, max_positions=64, dropout=0.2, sentence_task="none")
    assert name_preset(name, shape) == name
    assert name_preset("tiny" if name == "base" else "base", shape).removesuffix("-v1") == name.removesuffix("-v1")
    assert name_preset(name, dataclasses.replace(shape, num_layers=7)) == "none"


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ((None, None, "cpu", {}), RECIPES["quick"]["mini"]),
        ((None, None, "cuda", {}), RECIPES["quick"]["base"]),
        ((None, "mini", "cuda", {}), RECIPES["gpu"]["mini"]),
        ((None, "tiny", "cuda", {}), RECIPES["quick"]["tiny"]),
        (("paper", "large", "cpu", {"steps": 5}), dataclasses.replace(RECIPES["paper"]["large"], steps=5)),
        ((None, "mini", "cpu", {"steps": 5}), dataclasses.replace(RECIPES["quick"]["mini"], minutes=None, steps=5)),
        (
            (None, "tiny", "cpu", {"remask": False}),
            dataclasses.replace(RECIPES["quick"]["tiny"], remask=False, mask_prob=None, last_mask_prob=None),
        ),
    ],
)
def test_settings_follow_the_recipe_the_device_and_what_is_given(call, wanted):
    assert resolve(*call) == wanted
