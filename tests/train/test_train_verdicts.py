"""What a run says that it learnt, compared with frequencies and with training."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from test_train_page import line, write_run
from toy_rows import TINY, FakeShards

from albert_data.cli.main import run as run_command
from albert_data.errors import ShardError
from albert_data.examples.pair_tasks import PAIR_TASKS
from albert_data.runs.figures import read_run
from albert_data.runs.page import write_run_page
from albert_data.runs.verdicts import describe_learning, describe_order, describe_overfitting, judge_run
from albert_data.train import loop
from albert_data.train.evaluation import measure_baseline

# ---- frequencies ----


def test_a_loss_a_byte_needs_the_tokenizer(toys, monkeypatch):
    train, validation = toys.make_shards(100), toys.make_shards(60, seed=1)
    found = measure_baseline(train, validation, num_rows=60, loss=6.0)
    num_bytes = np.mean([len(f" w{i}") for i in validation.examples.masked_ids])
    assert found.pop("mlm_nats_per_byte") == pytest.approx(6.0 / num_bytes)

    def fail(self):
        raise ShardError("no tokenizer")

    monkeypatch.setattr(FakeShards, "tokenizer", property(fail))
    assert measure_baseline(train, validation, num_rows=60, loss=6.0) == found


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (6.519, "It can't be told whether the model learnt more than frequencies: its MLM loss is 0.004 above"),
        (6.511, "It can't be told whether the model learnt more than frequencies: its MLM loss is 0.004 below"),
        (6.4, "learnt more than frequencies: its MLM loss is 0.115 below the 6.515 that"),
        (6.7, "learnt less than frequencies: its MLM loss is 0.185 above"),
        (None, None),
    ],
)
def test_a_model_is_compared_with_frequencies(loss, told):
    text = describe_learning({"mlm_loss": loss, "unigram_loss": 6.515})
    assert (told in text) if told else text == ""


# ---- overfitting ----


def make_run(folder: Path, validation: float, *, epochs: float = 5.0, train: float = 4.0, lowest: float = 9.0) -> Path:
    lines = [line(step, epoch=epochs * step / 300, mlm_loss=train) for step in (100, 290, 300)]
    lines.insert(2, line(150, "validation", mlm_loss=lowest))
    lines.append(line(300, "validation", mlm_loss=validation, unigram_loss=6.5))
    return write_run(folder, lines)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"validation": 4.2}, None),
        ({"validation": 5.0}, "is 1.000 above that on the training rows, 4.000, which it read 5.0 times. More text"),
        ({"validation": 5.0, "lowest": 4.8}, "Validation was lowest, 4.800, at step 150. More text"),
        ({"validation": 5.0, "epochs": 1.0}, None),
        ({"validation": 7.5, "train": 6.6}, None),  # nothing is learnt yet but frequencies, which differ
    ],
)
def test_a_validation_far_above_training_is_named(settings, told, tmp_path):
    run = make_run(tmp_path / "run", **settings)
    found = describe_overfitting(read_run(run))
    assert (told in found) if told else not found
    assert (found in write_run_page(run).read_text()) if told else True


NOT_LEARNT = "51.0 % is not clearly more than the 50.2 % of the most frequent label."


@pytest.mark.parametrize(
    ("accuracy", "task", "told"),
    [
        (0.51, "sop", f"has not learnt SOP: {NOT_LEARNT} In books"),
        (0.51, "nsp", f"has not learnt NSP: {NOT_LEARNT}"),
        (0.48, "sop", "has not learnt SOP"),
        (0.54, "sop", ""),
        (None, "sop", ""),
    ],
)
def test_a_run_says_if_the_sentence_task_is_not_learnt(accuracy, task, told):
    line = {"sop_accuracy": accuracy, "sop_majority": 0.502, "sop_error": 0.01}
    found = describe_order(line, PAIR_TASKS[task])
    assert told in found if told else not found
    assert ("docs/guides/training.md" in found) == (task == "sop" and bool(told))


def test_a_run_says_that_it_overfits_at_its_end_and_so_do_page_and_runs(toys, use_shards, tmp_path, capsys):
    use_shards(toys.make_shards(16, max_seq_len=16), toys.make_shards(16, max_seq_len=16, seed=1))
    loop.train(tmp_path, tmp_path / "run", dataclasses.replace(TINY, steps=80, log_every=10, eval_every=40, lr=1e-2))
    said = " ".join(capsys.readouterr().err.split())
    texts = judge_run(read_run(tmp_path / "run"))
    assert any("The model overfits" in text for text in texts)
    page = (tmp_path / "run" / "report.html").read_text()
    assert run_command(["runs", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    for text in texts:
        assert text in said
        assert text in page
        assert text in " ".join(shown.split())
    assert max(map(len, shown.splitlines()[1:])) <= 80
