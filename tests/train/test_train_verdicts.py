"""What a run says that it learnt, compared with frequencies and with training; and what runs can't be compared in."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from test_train_page import line, write_run
from toy_rows import FIRST_ORDINARY, TINY, FakeShards

from albert_data.cli.main import run as run_command
from albert_data.errors import ShardError
from albert_data.examples.pair_tasks import PAIR_TASKS
from albert_data.runs.figures import read_run
from albert_data.runs.page import write_run_page
from albert_data.runs.verdicts import (
    describe_learning,
    describe_order,
    describe_overfitting,
    find_differences,
    judge_run,
)
from albert_data.train import loop
from albert_data.train.device import choose_precision
from albert_data.train.evaluation import evaluate, measure_baseline
from albert_data.train.model import Albert
from albert_data.train.state import choose_shape


class MixedShards(FakeShards):
    """Pieces of even ids are Latin, those of odd ids Cyrillic; the first ones are of no script."""

    @property
    def tokenizer(self):
        tokenizer = super().tokenizer
        tokenizer.piece_texts = [
            f"{'яw'[i % 2 == 0]}" if i >= FIRST_ORDINARY else f"[{'ABCDE'[i]}]" for i in range(tokenizer.vocab_size)
        ]
        return tokenizer


def mix(shards: FakeShards) -> MixedShards:
    """Rows of one script each: of even rows all ids become even, of odd rows odd."""
    examples, first = shards.examples, FIRST_ORDINARY + 1

    def choose(values: np.ndarray, offsets: np.ndarray, is_text: np.ndarray) -> np.ndarray:
        rows = np.repeat(np.arange(len(examples)), np.diff(offsets))
        return np.where(is_text, values - (values % 2 != rows % 2), values).astype(np.uint16)

    ids = choose(examples.input_ids, examples.offsets, examples.input_ids >= first)
    labels = choose(np.maximum(examples.masked_ids, first), examples.mask_offsets, np.True_)
    return MixedShards(dataclasses.replace(examples, input_ids=ids, masked_ids=labels), shards.manifest)


@pytest.fixture(scope="module")
def mixed(module_toys) -> tuple[MixedShards, MixedShards]:
    """Training and validation rows."""
    return mix(module_toys.make_shards(4000)), mix(module_toys.make_shards(50, seed=1))


# ---- frequencies ----


def test_frequencies_are_those_of_rows_of_the_same_script(toys, mixed):
    baseline = measure_baseline(*mixed, num_rows=50)
    assert baseline.unigram_scripts == 2
    plain = measure_baseline(mixed[0], toys.make_shards(50, seed=1), num_rows=50)
    assert plain.unigram_scripts == 1
    # Half of the pieces occur in a row: knowing the script alone saves ln 2 of the ln 35 of even frequencies.
    assert baseline.unigram_loss == pytest.approx(math.log(35 / 2), abs=0.05)
    assert plain.unigram_loss > baseline.unigram_loss + 0.5
    assert baseline.unigram_entropy < baseline.unigram_loss


def test_a_model_that_learnt_only_the_script_has_not_learnt_more_than_frequencies(mixed):
    baseline = measure_baseline(*mixed, num_rows=50)
    rng, labels = np.random.default_rng(0), baseline.labels
    counts_R = np.bincount(labels.rows_N, minlength=50)
    for gain, told in ((0.0, "It can't be told whether"), (0.5, "learnt more than"), (-0.5, "learnt less than")):
        nats_R = baseline.nats_R - gain * counts_R + rng.normal(0, 0.3, 50) * counts_R**0.5
        loss = nats_R.sum() / counts_R.sum()
        known = baseline.compare(loss, nats_R)
        assert known["unigram_error"] == pytest.approx(0.3 / counts_R.sum() ** 0.5, rel=0.4)
        assert told in describe_learning({"mlm_loss": loss, **known})


def test_rows_of_one_document_count_as_alike(toys):
    train, validation = toys.make_shards(100), toys.make_shards(60, seed=1)
    wide = measure_baseline(train, validation, num_rows=60)
    validation.examples = dataclasses.replace(validation.examples, document_keys=np.arange(60, dtype=np.uint64) // 20)
    few = measure_baseline(train, validation, num_rows=60)
    shift_R = np.repeat([0.0, 1.0, 2.0], 20) * np.bincount(few.labels.rows_N, minlength=60)
    errors = [one.compare(5.0, one.nats_R + shift_R)["unigram_error"] for one in (wide, few)]
    assert errors[1] > 3 * errors[0]


def test_the_losses_of_rows_sum_up_to_the_loss_however_they_are_batched(toys):
    shards = toys.make_shards(30)
    torch.manual_seed(0)
    model, precision = Albert(choose_shape(TINY, shards.manifest)), choose_precision("fp32", "cpu")
    found = []
    for batch_tokens in (64, 1024):
        nats_R = np.zeros(20)
        values = evaluate(model, shards, precision, num_rows=20, batch_tokens=batch_tokens, nats_R=nats_R)
        counts_R = np.diff(shards.examples.mask_offsets)[:20]
        assert nats_R.sum() / counts_R.sum() == pytest.approx(values["mlm_loss"], rel=1e-5)
        assert (nats_R[counts_R > 0] > 0).all()
        found.append(nats_R)
    np.testing.assert_allclose(*found, rtol=1e-4)


def test_a_loss_a_byte_needs_the_tokenizer(toys, monkeypatch):
    train, validation = toys.make_shards(100), toys.make_shards(60, seed=1)
    baseline = measure_baseline(train, validation, num_rows=60)
    num_bytes = np.mean([len(f" w{i}") for i in baseline.labels.ids_N])
    assert baseline.compare(6.0, baseline.nats_R)["mlm_nats_per_byte"] == pytest.approx(6.0 / num_bytes)

    def fail(self):
        raise ShardError("no tokenizer")

    monkeypatch.setattr(FakeShards, "tokenizer", property(fail))
    without = measure_baseline(train, validation, num_rows=60)
    assert "mlm_nats_per_byte" not in without.compare(6.0, without.nats_R)
    assert without.unigram_loss == baseline.unigram_loss


@pytest.mark.parametrize(
    ("loss", "error", "told"),
    [
        (6.519, 0.01, "It can't be told whether the model learnt more than frequencies: its MLM loss is 0.004 above"),
        (6.511, 0.01, "It can't be told whether the model learnt more than frequencies: its MLM loss is 0.004 below"),
        (6.4, 0.01, "learnt more than frequencies: its MLM loss is 0.115 below the 6.515 that"),
        (6.7, 0.01, "learnt less than frequencies: its MLM loss is 0.185 above"),
        (6.4, None, None),
        (None, 0.01, None),
    ],
)
def test_a_model_is_compared_with_frequencies_by_the_error(loss, error, told):
    known = {"mlm_loss": loss, "unigram_loss": 6.515, "unigram_error": error}
    text, several = describe_learning(known), describe_learning(known | {"unigram_scripts": 3.0})
    assert (told in text) if told else text == ""
    assert ("of the 3 scripts" in several) == bool(told)
    assert "scripts" not in text


# ---- overfitting ----


def make_run(folder: Path, validation: float, *, epochs: float = 5.0, train: float = 4.0, lowest: float = 9.0) -> Path:
    lines = [line(step, epoch=epochs * step / 300, mlm_loss=train) for step in (100, 290, 300)]
    lines.insert(2, line(150, "validation", mlm_loss=lowest))
    lines.append(line(300, "validation", mlm_loss=validation, unigram_loss=6.5, unigram_error=0.01))
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


# ---- several runs ----


CHANGES = {
    "identity": {"tokenizer's sha256": "ab" * 32, "model's vocab_size": 30_000, "shards' digest": "cd" * 32},
    "model": {"sentence_task": "nsp"},
    "config": {"mask_prob": 0.45, "last_mask_prob": 0.15, "remask": True},
}


def test_what_keeps_runs_from_being_compared_is_named(finished_run, tmp_path, capsys, monkeypatch, golden):
    monkeypatch.chdir(tmp_path)
    runs = [Path(shutil.copytree(finished_run, name)) for name in ("a", "b")]
    assert find_differences([read_run(run) for run in runs]) == []
    content = json.loads((runs[1] / "run.json").read_text())
    changed = {section: content[section] | values for section, values in CHANGES.items()}
    (runs[1] / "run.json").write_text(json.dumps(content | changed))
    assert run_command(["runs", "a", "b"]) == 0
    shown = capsys.readouterr().out
    golden("run_differences.txt", shown[shown.index("Not measured alike") :].partition("\n\n")[0].rstrip("\n") + "\n")
    assert max(map(len, shown.splitlines())) <= 80
    assert run_command(["runs", "a", "b", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["differences"]) == 4
