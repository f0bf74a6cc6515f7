"""The figures of each layer equal those of a plain loop over the layers."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
import torch

from albert_data.cli.main import run as run_command
from albert_data.errors import CheckpointError
from albert_data.train.config import AlbertConfig, TrainConfig
from albert_data.train.data.loader import fixed_batches
from albert_data.train.history.figures import thin
from albert_data.train.history.layers import Layers, measure_layers, measure_run
from albert_data.train.history.page import draw_layers
from albert_data.train.history.view import describe_layers, describe_run, run_to_dict
from albert_data.train.model.model import Albert
from albert_data.train.run import loop

SMALL = AlbertConfig(vocab_size=40, embedding_size=6, hidden_size=8, num_layers=4, num_heads=2, ffn_size=16)
CONFIG = TrainConfig(
    preset="tiny", lr=1e-3, steps=4, batch_tokens=8 * 64, eval_every=2, log_every=2, device="cpu", remask=False
)


def walk(model: Albert, rows, row: int) -> list[np.ndarray]:
    """Return the states of one row, layer by layer, without its padding."""
    (batch,) = (b for b in fixed_batches(rows, num_rows=len(rows), batch_tokens=64) if row in b.rows)
    length = int(batch.valid_BT[0].sum())
    mask = batch.valid_BT[:, None, None, :]
    x = model.embeddings(batch.input_ids_BT, batch.segment_ids_BT)
    states = [x[0, :length].detach().numpy()]
    pairs = model.config.inner_layers()
    for number, (attention, ffn) in enumerate(pairs, 1):
        x = model.encoder.ffns[ffn](model.encoder.attentions[attention](x, mask))
        if number % model.config.num_inner_groups == 0:
            states.append(x[0, :length].detach().numpy())
    return states


@pytest.mark.parametrize("changes", [{}, {"num_groups": 2}, {"share": "none"}, {"num_inner_groups": 2}])
def test_the_figures_equal_those_of_a_plain_loop_over_the_layers(toys, changes):
    torch.manual_seed(0)
    model = Albert(dataclasses.replace(SMALL, **changes)).eval()
    rows = toys.make_shards(5)
    distances, similarities = measure_layers(model, rows, num_rows=5)
    walks = [walk(model, rows, row) for row in range(5)]
    for layer in range(4):
        pairs = [(states[layer], states[layer + 1]) for states in walks]
        x, y = (np.concatenate(part).astype(float) for part in zip(*pairs, strict=True))
        assert distances[layer] == pytest.approx(np.linalg.norm(y - x, axis=1).mean(), rel=1e-4)
        cosines = (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
        assert similarities[layer] == pytest.approx(cosines.mean(), rel=1e-4)


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


def test_the_layers_of_runs_stand_side_by_side(run, toys, tmp_path):
    measured = measure_run(run, toys.make_shards(10, seed=1))
    longer = Layers(name="longer", distances=(1.0,) * 9, similarities=(0.5,) * 9)
    text = describe_layers([measured, longer])
    assert f"{measured.distances[1]:.3f}" in text
    assert len(text.split("\n")) == 2 + 9
    draw_layers([measured, longer], tmp_path / "layers.html")
    page = (tmp_path / "layers.html").read_text()
    assert page.count("<svg") == 2
    assert f"<td>{measured.distances[1]:.3f}</td><td>1.000</td>" in page
    assert "<td></td><td>1.000</td>" in page, "the shorter run has no ninth layer"


def test_shards_of_another_vocabulary_and_a_run_without_checkpoint_are_refused(run, toys, tmp_path):
    with pytest.raises(CheckpointError, match="has 40 pieces, but the shards have 50"):
        measure_run(run, toys.make_shards(10, vocab_size=50))
    with pytest.raises(CheckpointError, match=r"has 512 positions, but rows of the shards need \d{3};"):
        measure_run(run, toys.make_shards(50, max_seq_len=900))
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        measure_run(tmp_path, toys.make_shards(10))


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


@pytest.mark.parametrize(
    ("name", "message"), [("x.png", "give it a name that ends in .html"), ("missing/x.html", "is not a folder")]
)
def test_a_plot_that_cannot_be_drawn_is_refused_before_measuring(run, tmp_path, capsys, name, message):
    assert message in fails(capsys, 1, run, "--shards", tmp_path / "nowhere", "--plot", tmp_path / name)


def test_a_folder_without_a_run_is_refused(run, tmp_path, capsys):
    assert f"{tmp_path}: there is no run" in fails(capsys, 1, run, tmp_path)


def test_a_plot_without_shards_is_a_usage_error(run, capsys):
    assert "give --shards too" in fails(capsys, 2, run, "--plot", "layers.html")


def test_of_many_lines_a_few_and_the_last_are_shown():
    lines = [{"step": step} for step in range(100)]
    assert [line["step"] for line in thin(lines, 4)] == [24, 49, 74, 99]
    assert thin(lines[:3], 4) == lines[:3]
