"""`albert-data train` is one call into the library, and `train_model` gives what it gives."""

from __future__ import annotations

import dataclasses
import signal
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import albert_data
from albert_data.cli.main import cli
from albert_data.errors import CheckpointError, ConfigError, OutputError
from albert_data.interop import initial
from albert_data.train import loop
from albert_data.train.config import RECIPES, TrainConfig

DEFAULT = RECIPES["quick"]["mini"]  # on a CPU


@pytest.fixture
def calls(monkeypatch):
    made = []
    monkeypatch.setattr(loop, "train", lambda *args, interrupt, is_shown, **kwargs: made.append((args, kwargs)))
    return made


def run(*arguments: str):
    return CliRunner().invoke(cli, ["train", *map(str, arguments)], catch_exceptions=False)


def test_a_recipe_without_settings_for_a_preset_is_an_error_of_one_line(calls, tmp_path):
    with pytest.raises(ConfigError, match="muon has no settings for the preset base-v1; it has them for tiny, mini, "):
        run(tmp_path, "-o", tmp_path / "run", "--preset", "base-v1", "--recipe", "muon")
    assert not calls


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_preset_gives_all_settings(calls, tmp_path, recipe):
    for preset in RECIPES[recipe]:
        assert run(tmp_path, "-o", tmp_path / "run", "--preset", preset, "--recipe", recipe).exit_code == 0
    assert [args[2] for args, _ in calls] == list(RECIPES[recipe].values())


@pytest.mark.parametrize(("options", "window"), [((), 0), (("--first-window", 4), 4)])
def test_weights_that_are_given_attend_to_whole_rows_at_once(calls, tmp_path, monkeypatch, options, window):
    monkeypatch.setattr(initial, "load_initial", lambda *arguments, **named: None)
    (tmp_path / "model").mkdir()
    run(tmp_path, "-o", tmp_path / "run", "--init-from", tmp_path / "model", "--preset", "mini", *options)
    assert RECIPES["quick"]["mini"].first_window
    assert calls[0][0][2].first_window == window


@pytest.mark.parametrize(("num_gpus", "preset"), [(0, "mini"), (1, "base")])
def test_the_default_is_mini_on_a_cpu_and_base_on_a_gpu(calls, tmp_path, monkeypatch, num_gpus, preset):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a GPU")
    run(tmp_path, "-o", tmp_path / "run")
    run(tmp_path, "-o", tmp_path / "run", "--device", "cpu")
    run(tmp_path, "-o", tmp_path / "run", "--preset", "large")
    configs = [args[2] for args, _ in calls]
    assert configs[0] == RECIPES["quick"][preset]
    assert configs[1] == dataclasses.replace(RECIPES["quick"]["mini"], device="cpu")
    assert configs[2] == RECIPES["quick"]["large"]
    assert calls[0] == ((tmp_path, tmp_path / "run", configs[0]), {"resume": False, "initial": None})


@pytest.mark.parametrize(
    ("shards", "output"),
    [
        ("shards/", "shards-run"),
        ("../here/shards", "../here/shards-run"),
        (".", "{here}-run"),
        ("shards/inner/..", "{here}/target-run"),
        ("shards/..", "{here}-run"),
    ],
)
def test_without_output_the_run_is_beside_the_shards(calls, tmp_path, monkeypatch, shards, output):
    here = tmp_path / "here"
    (here / "target/inner").mkdir(parents=True)
    (here / "shards").symlink_to("target")
    monkeypatch.chdir(here)
    for options in ([], ["--minutes", "1"]):
        run(shards, *options)
    assert [str(args[1]) for args, _ in calls] == [output.format(here=here)] * 2


def test_no_folder_can_be_beside_the_root(calls):
    result = run("/")
    assert (result.exit_code, calls) == (2, [])
    assert "name one with --output" in result.output


def test_without_output_the_run_is_resumed_where_it_was_made(toys, use_shards, tmp_path, monkeypatch, capsys):
    use_shards(toys.make_shards(20))
    monkeypatch.chdir(tmp_path)
    options = ("--preset", "tiny", "--steps", "2", "--batch-tokens", "256", "--device", "cpu")
    assert run("shards", *options).exit_code == 0
    assert run("shards", "--resume").exit_code == 0
    with pytest.raises(OutputError, match="shards-run holds a run already; continue it with --resume"):
        run("shards", *options)


STATIC = {"remask": False, "mask_prob": None, "last_mask_prob": None}


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ("--epochs 2.5", {"minutes": None, "epochs": 2.5}),
        ("--static-masks --no-compile", {**STATIC, "compile": False}),
        ("--profile", {"profile": True}),
        ("--beta2 0.98 --epsilon 1e-8", {"beta2": 0.98, "epsilon": 1e-8}),
        ("--micro-tokens 512", {"micro_tokens": 512}),
        ("--mask-prob 0.3", {"mask_prob": 0.3, "last_mask_prob": None}),
        ("--mask-prob 0.45:0.15", {"mask_prob": 0.45, "last_mask_prob": 0.15}),
    ],
)
def test_an_option_changes_only_its_settings(calls, tmp_path, options, changes):
    run(tmp_path, "-o", tmp_path / "run", *options.split())
    assert calls[0][0][2] == dataclasses.replace(DEFAULT, **changes)


def test_two_lengths_exclude_one_another(calls, tmp_path):
    result = run(tmp_path, "-o", tmp_path / "run", "--steps", "2", "--minutes", "512")
    assert result.exit_code == 2
    assert "--steps and --minutes exclude one another" in result.output


def test_resume_uses_the_settings_of_the_run_except_those_given(toys, use_shards, tmp_path, monkeypatch):
    use_shards(toys.make_shards(20))
    options = "--preset tiny --steps 2 --batch-tokens 256 --micro-tokens 64 --device cpu --static-masks --profile"
    assert run(tmp_path, "-o", tmp_path / "run", *options.split()).exit_code == 0
    made = []
    monkeypatch.setattr(loop, "train", lambda *args, interrupt, is_shown, **kwargs: made.append((args[2], kwargs)))
    for more in ([], ["--log-every", 5]):
        run(tmp_path, "-o", tmp_path / "run", "--resume", *more)
    chosen = {"log_every": 1, "eval_every": 1, "eval_rows": 128}  # for a run of two steps
    given = {"steps": 2, "batch_tokens": 256, "micro_tokens": 64, "device": "cpu", **STATIC}
    stored = dataclasses.replace(RECIPES["quick"]["tiny"], **given, **chosen)  # a resumed run writes no other trace
    expected = [stored, dataclasses.replace(stored, log_every=5)]
    assert made == [(config, {"resume": True, "initial": None}) for config in expected]


def test_resume_without_a_run_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no run to resume"):
        run(tmp_path, "-o", tmp_path / "run", "--resume")


@pytest.mark.parametrize("given", ["high", "0.3:", "0.4:low", ":"])
def test_what_is_no_share_is_refused(tmp_path, given):
    result = CliRunner().invoke(cli, ["train", str(tmp_path), "--mask-prob", given])
    assert result.exit_code == 2
    assert "--mask-prob" in result.output


def test_the_help_shows_the_defaults_of_the_settings():
    text = " ".join(run("--help").output.split())
    assert f"base: {TrainConfig().lr}, mini: {RECIPES['quick']['mini'].lr}" in text
    assert "[default: (mini on a CPU, base on a GPU or with --init-from)]" in text
    assert "None" not in text
    assert "Example:" in text


def test_without_torch_the_error_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=r"^train needs torch; install it with: pip install 'albert-data\[train\]'$"):
        run("out", "-o", "run")


# ---- train_model ----

FEW = {"preset": "tiny", "steps": 2, "batch_tokens": 256, "device": "cpu"}


@pytest.fixture
def here(toys, use_shards, tmp_path, monkeypatch):
    use_shards(toys.make_shards(20), toys.make_shards(8, seed=1))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_is_trained_from_strings_without_a_word_and_resumed(here, capsys):
    made = albert_data.train_model("shards", **FEW)
    assert capsys.readouterr() == ("", "")
    assert made.folder == Path("shards-run")
    assert repr(made).startswith("TrainedRun('shards-run', step 2, mlm_loss ")
    assert made.checkpoint is not None
    gone = albert_data.TrainedRun(folder=Path("gone"), checkpoint=None)
    assert repr(gone).startswith("TrainedRun('gone': gone: there is no run")
    assert gone._repr_html_() is None
    assert albert_data.train_model("shards", resume=True).checkpoint == made.checkpoint
    config = TrainConfig(**{**FEW, "steps": 1})
    other = albert_data.train_model("shards", "other", config=config, seed=3, progress=True)
    assert other.figures.sections["config"]["seed"] == 3
    assert "preset      tiny" in capsys.readouterr().err


def test_ctrl_c_saves_a_checkpoint_and_then_is_what_it_is_elsewhere(here, monkeypatch):
    work = loop.update

    def update(*given, **named):
        signal.raise_signal(signal.SIGINT)
        work(*given, **named)

    monkeypatch.setattr(loop, "update", update)
    with pytest.raises(KeyboardInterrupt):
        albert_data.train_model("shards", **FEW)
    assert list(here.glob("shards-run/checkpoints/*"))
