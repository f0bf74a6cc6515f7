"""A run as text and as JSON."""

from __future__ import annotations

import json
import re

import pytest

from albert_data.cli.main import run as run_command
from albert_data.train.config import TrainConfig
from albert_data.train.history.figures import thin
from albert_data.train.history.view import describe_run, run_to_dict
from albert_data.train.run import loop

CONFIG = TrainConfig(
    preset="tiny", lr=1e-3, steps=4, batch_tokens=8 * 64, eval_every=2, log_every=2, device="cpu", remask=False
)


@pytest.fixture
def run(toys, use_shards, tmp_path):
    use_shards(toys.make_shards(40), toys.make_shards(10, seed=1))
    loop.train(tmp_path / "out", tmp_path / "run", CONFIG)
    return tmp_path / "run"


def test_a_run_is_described_with_its_curves_and_parameters(run):
    text = describe_run(run)
    assert f"Run {run}, preset tiny, step 4" in text
    assert "without context" in text
    assert f"{run_to_dict(run)['parameters']['all']:,}" in text
    assert max(map(len, text.split("\n")[1:])) <= 80, "all but the path"
    assert [line["step"] for line in run_to_dict(run)["metrics"]] == [2, 2, 4, 4]


def fails(capsys, code: int, *arguments: object) -> str:
    capsys.readouterr()
    assert run_command(["runs", *map(str, arguments)]) == code
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ("config", {"colour": 1}, "colour is 1, a setting that this version does not know"),
        ("config", {"lr": "fast"}, "lr is 'fast', of a wrong type; float is needed"),
        ("config", {"steps": 2.5}, "steps is 2.5, of a wrong type; int or null is needed"),
        ("config", {"steps": None}, "none is given; give exactly one of"),
        ("config", {"tensorboard": 1}, "tensorboard is 1, of a wrong type; bool is needed"),
        ("model", {"num_layers": True}, "num_layers is True, of a wrong type"),
        ("model", {"num_layers": 0}, "num_layers is 0; allowed are 1 to"),
        ("model", None, "model is None; an object is needed"),
    ],
    ids=str,
)
def test_a_damaged_run_file_is_one_line_that_names_it(run, capsys, section, changes, message):
    content = json.loads((run / "run.json").read_text())
    content[section] = None if changes is None else {**content[section], **changes}
    (run / "run.json").write_text(json.dumps(content))
    shown = fails(capsys, 1, run)
    assert shown.startswith(f"Error: {run / 'run.json'} can't be read ({message}")
    assert shown.count("\n") == 1


def test_figures_missing_in_a_line_are_left_out(run):
    lines = [
        {"step": 2, "split": split, "mlm_loss": "low", "tokens_per_second": "?"} for split in ("train", "validation")
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, lines[0] | {"step": 4}]))
    text = describe_run(run)
    assert re.search(r"^ +2 +- +- +- +- +-$", text, re.MULTILINE)
    assert re.search(r"training: MLM loss +- at the last line$", text, re.MULTILINE)


def test_a_folder_without_a_run_is_refused(run, tmp_path, capsys):
    assert f"{tmp_path}: there is no run" in fails(capsys, 1, run, tmp_path)


def test_of_many_lines_a_few_and_the_last_are_shown():
    lines = [{"step": step} for step in range(100)]
    assert [line["step"] for line in thin(lines, 4)] == [24, 49, 74, 99]
    assert thin(lines[:3], 4) == lines[:3]
