"""The laboratory: equal models are trained once, what is finished is not done again, and verdicts follow the spread."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from build_fixtures import make_documents, to_txt
from click.testing import CliRunner

from albert_data.cli.main import run as run_command
from albert_data.errors import ConfigError
from albert_data.shards.rows import restore_ids
from albert_data.train.checkpoint import list_checkpoints, load_model
from albert_data.train.config import MODEL_PRESETS, RECIPES, AlbertConfig
from albert_data.train.loader import open_training
from benchmarks.lab import costs, running, training
from benchmarks.lab.command import lab
from benchmarks.lab.jobs import Job
from benchmarks.lab.page import Sample, judge
from benchmarks.lab.probing import fit_classifier, read_features
from benchmarks.lab.running import Laboratory, Settings
from benchmarks.lab.tables import make_tables
from benchmarks.training_command import PROGRAM

pytest.importorskip("safetensors", reason="the train extra is not installed")
pytestmark = pytest.mark.slow

SMALL = AlbertConfig(embedding_size=16, hidden_size=32, num_layers=2, num_heads=2, ffn_size=64)
Given = tuple[Path, Path]
OPTIONS = ["--preset", "tiny", "--steps", "4", "--max-seq-len", "64", "--validation-fraction", "0.3"]


@pytest.fixture(scope="module", autouse=True)
def jobs() -> Iterator[list[str]]:
    """A small preset, and jobs and builds in this process instead of others; the names of jobs that were done."""
    names: list[str] = []

    def work(self: Laboratory, job: Job, name: str) -> None:
        names.append(name)
        assert training.work(job) == 0

    def build(words: list[str], **options: Any) -> SimpleNamespace:
        return SimpleNamespace(returncode=run_command([*words[len(PROGRAM) :], "--workers", "1"]))

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setitem(MODEL_PRESETS, "tiny", SMALL)
        monkeypatch.setattr(Laboratory, "_work", work)
        monkeypatch.setattr(running, "subprocess", SimpleNamespace(**vars(subprocess) | {"run": build}))
        yield names


@pytest.fixture
def done(jobs: list[str]) -> list[str]:
    jobs.clear()
    return jobs


@pytest.fixture(scope="module")
def given(tokenizer_model: bytes, tmp_path_factory: pytest.TempPathFactory) -> Given:
    """The paths of a corpus and of a tokenizer."""
    folder = tmp_path_factory.mktemp("given")
    (folder / "in.txt").write_bytes(to_txt(make_documents(150, seed=1)))
    (folder / "spiece.model").write_bytes(tokenizer_model)
    return folder / "in.txt", folder / "spiece.model"


@pytest.fixture(scope="module")
def dropout_lab(given: Given, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A laboratory in which the models of the table on dropout were trained."""
    run_lab(given, out := tmp_path_factory.mktemp("dropout") / "lab", "dropout")
    return out


def run_lab(given: Given, out: Path, *arguments: str) -> str:
    words = [*arguments, *OPTIONS, "--corpus", str(given[0]), "--tokenizer", str(given[1]), "-o", str(out)]
    return CliRunner().invoke(lab, words, catch_exceptions=False).stdout


def make_laboratory(folder: Path, **settings: Any) -> Laboratory:
    return Laboratory(folder=folder, settings=Settings(**{"inputs": ("in.txt",), **settings}), jobs=1, say=print)


def test_a_claim_holds_only_if_the_difference_is_clear_of_the_spread():
    low, high, wide = Sample((0.50, 0.51, 0.52)), Sample((0.60, 0.61, 0.62)), Sample((0.3, 0.6, 0.9))
    assert judge(high, low).startswith("holds")
    assert judge(low, high).startswith("is reversed")
    assert judge(wide, low).startswith("cannot be decided at this size")
    assert judge(Sample((0.9,)), low) == "cannot be decided: one seed shows no spread"
    assert judge(low, low).startswith("cannot be decided at this size")
    assert judge(Sample((0.5, 0.5)), Sample((0.5, 0.5))).startswith("cannot be decided at this size")
    assert judge(Sample((0.6, 0.6)), Sample((0.5, 0.5))).startswith("holds")


def test_equal_rows_are_decided_in_one_case_of_twenty_at_most():
    draws = np.random.default_rng(0).normal(size=(1500, 2, 5))
    for num_seeds in (2, 3, 5):
        pairs = [[Sample(tuple(one[:num_seeds])) for one in draw] for draw in draws]
        decided = sum(not judge(*pair).startswith("cannot") for pair in pairs) / len(pairs)
        assert 0.005 < decided < 0.06


@pytest.mark.parametrize("preset", MODEL_PRESETS)
def test_every_claim_and_row_of_a_table_is_sound(preset):
    for table in make_tables(MODEL_PRESETS[preset]).values():
        rows, measures = {row.name for row in table.rows}, {measure.name for measure in table.measures}
        assert all({claim.better, claim.worse} <= rows and claim.measure in measures for claim in table.claims)
        assert {len(row.paper) for row in table.rows} == {len(table.paper_columns)}
        for row in table.rows:
            replace(RECIPES["quick"][preset], **row.train)  # raises ConfigError if it is no model that can be trained
            for shape in (row.shape, row.before or {}):
                replace(MODEL_PRESETS[preset], **shape)


def test_a_classifier_finds_what_is_there_and_nothing_in_noise():
    torch.manual_seed(0)
    labels_N = torch.arange(600) % 2
    noise_NH = torch.randn(600, 8)
    told_NH = noise_NH + labels_N[:, None] * torch.tensor([3.0, *[0.0] * 7])
    for features_NH, low, high in ((told_NH, 0.85, 1.0), (noise_NH, 0.35, 0.65)):
        weights_HK, bias_K = fit_classifier(features_NH[:300], labels_N[:300])
        right = ((features_NH[300:] @ weights_HK + bias_K).argmax(1) == labels_N[300:]).float().mean()
        assert low <= right <= high


def test_a_table_is_trained_once_measured_and_shown(given, tmp_path, done):
    out = tmp_path / "lab"
    shown = run_lab(given, out, "sentence", "--seeds", "2")
    assert sorted(done) == sorted(f"{name}-{seed}" for name in ("pairs=none", "pairs=nsp", "plain") for seed in (0, 1))
    assert "albert-data build" in shown  # so that the reader learns the commands
    page = (out / "report.html").read_text(encoding="utf-8")
    figures = json.loads((out / "results/plain-0.json").read_text())
    assert 0 <= figures["values"]["probe"] <= 1
    assert [step for step, _ in figures["curve"]] == [1, 2, 3, 4]
    assert all(text in page for text in ("86.5", "cannot be decided", "2 seeds a row", "</svg>"))

    done.clear()
    run_lab(given, out, "sentence", "--seeds", "2")
    assert done == []
    (out / "results/pairs=nsp-1.json").unlink()  # as if it had been interrupted after the training
    run_lab(given, out, "sentence", "--seeds", "2")
    assert done == ["pairs=nsp-1"]
    run_lab(given, out, "dropout", "--seeds", "1")  # its first row is "plain", with a measure that is known
    assert done == ["pairs=nsp-1", "dropout=0.1-0", "before.dropout=0.1-0", "before.dropout=0.1,dropout=0.1-0"]
    page = (out / "report.html").read_text(encoding="utf-8")  # the table of before is there too, with its seeds
    assert all(text in page for text in ("Dropout", "86.5", "2 seeds a row"))


def test_another_text_is_not_mixed_with_the_first_one(given, tmp_path):
    mine = tmp_path / "in.txt"
    mine.write_bytes(given[0].read_bytes())
    run_lab((mine, given[1]), tmp_path / "lab", "dropout")
    mine.write_bytes(to_txt(make_documents(150, seed=2)))
    with pytest.raises(ConfigError, match="has another text than the shards before"):
        run_lab((mine, given[1]), tmp_path / "lab", "masks", "--seeds", "1")


def test_what_is_no_laboratory_is_named_and_stays(given, tmp_path, dropout_lab):
    with pytest.raises(ConfigError, match="made with language en, not de; choose another folder"):
        run_lab(given, dropout_lab, "dropout", "--language", "de")
    (tmp_path / "letter").write_text("Dear")
    for folder in (tmp_path, tmp_path / "letter"):
        with pytest.raises(ConfigError, match="is no laboratory"):
            make_laboratory(folder).open()
    assert (tmp_path / "letter").read_text() == "Dear"


@pytest.mark.quick
def test_a_training_goes_on_in_another_shape_with_its_weights(dropout_lab):
    for name, dropout in (("before.dropout=0.1", 0.0), ("before.dropout=0.1,dropout=0.1", 0.1)):
        begun, ended = (list_checkpoints(dropout_lab / f"runs/{name}-0{end}")[-1] for end in ("-begin", ""))
        assert [path.name for path in (begun, ended)] == ["step-00000003", "step-00000001"]
        before, after = load_model(begun), load_model(ended)
        assert (before.config.dropout, after.config.dropout) == (0.1, dropout)
        curve = json.loads((dropout_lab / f"results/{name}-0.json").read_text())["curve"]
        assert [step for step, _ in curve] == [1, 2, 3, 4]
        changes = [(a - b).abs().max() for a, b in zip(before.parameters(), after.parameters(), strict=True)]
        assert max(changes) < 0.05  # one update changes a weight by less than a new initialisation would


def test_costs_are_measured_without_a_training(given, tmp_path, done, monkeypatch):
    for name, shape in (("base", SMALL), ("large", replace(SMALL, num_layers=4))):
        monkeypatch.setitem(MODEL_PRESETS, name, replace(shape, vocab_size=50))
    monkeypatch.setattr(costs, "_ROUND_SECONDS", 0.01)
    run_lab(given, tmp_path / "lab", "costs", "--seeds", "2")
    assert len(done) == 8
    assert not (tmp_path / "lab/shards").exists()
    found = [json.loads(path.read_text()) for path in sorted((tmp_path / "lab/results").iterdir())]
    assert all(result["values"]["tokens a second"] > 0 for result in found)
    stored = sorted({(result["parameters"], result["values"]["executed parameters"]) for result in found})
    layer = stored[3][1] - stored[2][1]
    assert stored[1][0] == stored[0][0]  # more layers that share all store no more
    assert layer == stored[1][1] - stored[0][1] > 0
    page = (tmp_path / "lab/report.html").read_text(encoding="utf-8")
    assert all(text in page for text in ("tokens/s", "334 M", "BERT large"))


def test_a_probe_reads_the_tokens_that_the_masks_hide(dropout_lab):
    rows = open_training(dropout_lab / "shards/plain").train
    model = load_model(list_checkpoints(dropout_lab / "runs/plain-0")[-1])
    features_NH, labels_N = read_features(model, rows, num_rows=40)
    examples = rows.rows(np.arange(40))
    original, seen = restore_ids(examples), []
    for row in range(40):
        ids = torch.tensor(original[examples.offsets[row] : examples.offsets[row + 1]].astype(np.int64))[None]
        segments = (torch.arange(ids.shape[1]) >= examples.segment_a_len[row] + 2).int()[None]
        hidden = model.encoder(model.embeddings(ids, segments), torch.ones(1, 1, 1, ids.shape[1], dtype=torch.bool))
        if examples.sop_label[row] >= 0:
            seen.append((hidden[0, 0].tolist(), int(examples.sop_label[row])))
    assert sorted(labels_N.tolist()) == sorted(label for _, label in seen)
    assert np.allclose(sorted(features_NH.tolist()), sorted(values for values, _ in seen), atol=1e-5)
