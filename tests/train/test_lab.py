"""The laboratory: equal models are trained once, what is finished is not done again, and verdicts follow the spread."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from build_fixtures import make_documents, to_txt
from click.testing import CliRunner
from refusals import check_refused, refused

from albert_data.cli.main import run as run_command
from albert_data.errors import AlbertDataError, ConfigError
from albert_data.shards.rows import restore_ids
from albert_data.train.config import MODEL_PRESETS, RECIPES, AlbertConfig
from albert_data.train.data.loader import open_training
from albert_data.train.history.figures import read_run
from albert_data.train.model.checkpoint import list_checkpoints, load_model
from benchmarks.lab import costs, running, training
from benchmarks.lab.command import lab
from benchmarks.lab.jobs import Job
from benchmarks.lab.page import Sample, judge, write_page
from benchmarks.lab.probing import fit_classifier, read_features
from benchmarks.lab.running import Laboratory, Settings
from benchmarks.lab.tables import PROBE, Measure, make_tables
from benchmarks.training_command import PROGRAM

pytest.importorskip("safetensors", reason="the train extra is not installed")
pytestmark = pytest.mark.slow

SMALL = AlbertConfig(embedding_size=16, hidden_size=32, num_layers=2, num_heads=2, ffn_size=64)
TABLES = make_tables(SMALL)
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


@pytest.fixture(scope="module")
def sharing_lab(given: Given, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Likewise of the table on sharing, whose rows are of the preset's shape and of others."""
    run_lab(given, out := tmp_path_factory.mktemp("sharing") / "lab", "sharing", "--seeds", "1")
    return out


def list_words(given: Given, out: Path, *arguments: str) -> list[str]:
    return [*arguments, "--corpus", str(given[0]), "--tokenizer", str(given[1]), "-o", str(out)]


def run_lab(given: Given, out: Path, *arguments: str) -> str:
    return CliRunner().invoke(lab, [*list_words(given, out, *arguments), *OPTIONS], catch_exceptions=False).stdout


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


def test_rows_that_are_the_same_model_have_the_same_name():
    laboratory = make_laboratory(Path(), preset="tiny")
    names = {(table.name, row.name): laboratory.name(row) for table in TABLES.values() for row in table.rows}
    plain = [key for key, name in names.items() if name == "plain"]
    assert ("sentence", "sop") in plain
    assert ("masks", "ngram") in plain
    assert ("sharing", "all") in plain
    assert ("depth", "2") in plain
    assert names["embedding", "8, not shared"] == "embedding_size=8,share=none"
    for table in TABLES.values():  # no two rows of a table are one model
        found = [laboratory.name(row) for row in table.rows]
        assert len(set(found)) == len(found), table.name


@pytest.mark.parametrize("preset", MODEL_PRESETS)
def test_every_claim_and_row_of_a_table_is_sound(preset: str):
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


def test_a_table_is_trained_once_measured_and_shown(given: Given, tmp_path: Path, done: list[str]):
    out = tmp_path / "lab"
    shown = run_lab(given, out, "sentence", "--seeds", "2")
    assert sorted(done) == sorted(f"{name}-{seed}" for name in ("pairs=none", "pairs=nsp", "plain") for seed in (0, 1))
    assert "albert-data build" in shown  # so that the reader learns the commands
    page = (out / "report.html").read_text(encoding="utf-8")
    figures = json.loads((out / "results/plain-0.json").read_text())
    probe = Measure("SOP", PROBE, {"pairs": "sop"}).key(TABLES["sentence"].rows[0])
    assert 0 <= figures["values"][probe] <= 1
    assert 0 < figures["seconds"] < 100
    assert [step for step, _ in figures["curve"]] == [1, 2, 3, 4]
    assert all(text in page for text in ("86.5", "cannot be decided", "2 seeds a row", "</svg>"))

    done.clear()
    run_lab(given, out, "sentence", "--seeds", "2")
    assert done == []
    laboratory = make_laboratory(out, preset="tiny")
    assert "3 seeds a row, 2 measured so far; table 5" in write_page(laboratory, [(TABLES["sentence"], 3)])
    (out / "results/pairs=nsp-1.json").unlink()  # as if it had been interrupted after the training
    run_lab(given, out, "sentence", "--seeds", "2")
    assert done == ["pairs=nsp-1"]
    run_lab(given, out, "dropout", "--seeds", "1")  # its first row is "plain", with a measure that is known
    assert done == ["pairs=nsp-1", "dropout=0.1-0", "before.dropout=0.1-0", "before.dropout=0.1,dropout=0.1-0"]
    page = (out / "report.html").read_text(encoding="utf-8")  # the table of before is there too, with its seeds
    assert all(text in page for text in ("Dropout", "86.5", "2 seeds a row"))


def test_figures_of_earlier_tables_stay(given: Given, tmp_path: Path, done: list[str]):
    for table in ("sentence", "masks", "sentence"):
        run_lab(given, tmp_path / "lab", table, "--seeds", "1")
    assert done == ["pairs=none-0", "pairs=nsp-0", "plain-0", "plain-0", "masking=word-0", "masking=token-0"]
    values = json.loads((tmp_path / "lab/results/plain-0.json").read_text())["values"]
    assert {"probe", "probe,pairs=nsp", "mlm,masking=word", "mlm,masking=token", "mlm"} == values.keys()


def test_a_copy_of_the_figures_needs_no_shards(given: Given, tmp_path: Path, dropout_lab: Path, done: list[str]):
    shutil.copytree(dropout_lab, tmp_path / "lab", ignore=shutil.ignore_patterns("shards", "runs"))
    assert "4 models; 0 are to be trained" in run_lab(given, tmp_path / "lab", "dropout")
    assert not list((tmp_path / "lab/shards").glob("*"))
    assert done == []


def test_a_training_that_was_killed_before_its_first_checkpoint_starts_again(
    given: Given, tmp_path: Path, sharing_lab: Path
):
    out = Path(shutil.copytree(sharing_lab, tmp_path / "lab"))
    before = {path.name: json.loads(path.read_text())["values"] for path in (out / "results").iterdir()}
    for checkpoints in (out / "runs").glob("*/checkpoints"):
        shutil.rmtree(checkpoints)
    shutil.rmtree(out / "results")
    run_lab(given, out, "sharing", "--seeds", "1")
    assert {path.name: json.loads(path.read_text())["values"] for path in (out / "results").iterdir()} == before


def test_another_text_is_not_mixed_with_the_first_one(given: Given, tmp_path: Path):
    mine = tmp_path / "in.txt"
    mine.write_bytes(given[0].read_bytes())
    run_lab((mine, given[1]), tmp_path / "lab", "dropout")
    mine.write_bytes(to_txt(make_documents(150, seed=2)))
    with pytest.raises(ConfigError, match="has another text than the shards before"):
        run_lab((mine, given[1]), tmp_path / "lab", "masks", "--seeds", "1")


def test_a_mistake_in_the_first_command_does_not_spoil_the_folder(given: Given, tmp_path: Path):
    with pytest.raises(AlbertDataError, match="the command above failed"):
        run_lab((tmp_path / "missing.txt", given[1]), tmp_path / "lab", "dropout")
    run_lab(given, tmp_path / "lab", "dropout")


@refused(
    (lambda folder: Settings(inputs=("in.txt",), validation_fraction=7), ConfigError, "validation_fraction is 7"),
    (lambda folder: Settings(inputs=("in.txt",), max_seq_len=3), ConfigError, "max_seq_len is 3"),
    (lambda folder: Settings(inputs=("in.txt",), language="xx-no"), ConfigError, "xx-no"),
    (lambda folder: Settings(inputs=("in.txt",), minutes=float("nan")), ConfigError, "minutes is nan"),
    (lambda folder: Settings(inputs=("-",)), ConfigError, "stdin"),
    (lambda folder: make_laboratory(folder / "list").open(), ConfigError, "choose another folder"),
    (lambda folder: make_laboratory(folder / "other").open(), ConfigError, "other & choose another folder"),
    (lambda folder: make_laboratory(folder / "mine").open(), ConfigError, "mine is no laboratory"),
    (lambda folder: make_laboratory(folder / "mine/letter").open(), ConfigError, "letter is no laboratory"),
    (lambda folder: make_laboratory(folder / "link").open(), ConfigError, "link is no laboratory"),
    (lambda folder: make_laboratory(folder / "damaged").read("plain", 0), ConfigError, "plain-0.json & remove it"),
)
def test_what_is_no_setting_or_laboratory_is_named_and_stays(
    call: Callable[[Path], object], kind: type[AlbertDataError], named: str, tmp_path: Path
):
    files = {
        **{"list/lab.json": "[]", "other/lab.json": '{"name": "mine"}', "mine/letter": "Dear"},
        "damaged/results/plain-0.json": "[1]",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    check_refused(lambda: call(tmp_path), kind, named)
    assert {name: (tmp_path / name).read_text() for name in files} == files


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_the_trainings_and_writes_the_page(number: int, given: Given, tmp_path: Path):
    words = [*list_words(given, tmp_path / "lab", "sharing", "--seeds", "1"), *OPTIONS, "--steps", "100"]
    with subprocess.Popen([sys.executable, "-m", "benchmarks", "lab", *words], stderr=subprocess.PIPE) as lab:
        log, deadline = tmp_path / "lab/logs/plain-0.log", time.monotonic() + 120
        while not (log.is_file() and b"\nstep " in log.read_bytes()) and time.monotonic() < deadline:
            assert lab.poll() is None
            time.sleep(0.1)
        lab.send_signal(number)  # in any case: it would train for minutes
        assert lab.wait(60) == 128 + number
    assert "\nstep " in log.read_text()
    assert "is saved" in log.read_text()
    assert len(list_checkpoints(tmp_path / "lab/runs/plain-0")) == 1
    assert "Shared parameters" in (tmp_path / "lab/report.html").read_text(encoding="utf-8")
    assert not (tmp_path / "lab/logs/share=none-0.log").exists()


@pytest.mark.quick
def test_a_training_goes_on_in_another_shape_with_its_weights(dropout_lab: Path):
    for name, dropout in (("before.dropout=0.1", 0.0), ("before.dropout=0.1,dropout=0.1", 0.1)):
        begun, ended = (list_checkpoints(dropout_lab / f"runs/{name}-0{end}")[-1] for end in ("-begin", ""))
        assert [path.name for path in (begun, ended)] == ["step-00000003", "step-00000001"]
        before, after = load_model(begun), load_model(ended)
        assert (before.config.dropout, after.config.dropout) == (0.1, dropout)
        curve = json.loads((dropout_lab / f"results/{name}-0.json").read_text())["curve"]
        assert [step for step, _ in curve] == [1, 2, 3, 4]
        changes = [(a - b).abs().max() for a, b in zip(before.parameters(), after.parameters(), strict=True)]
        assert max(changes) < 0.05  # one update changes a weight by less than a new initialisation would


def test_the_speed_is_measured_without_evaluations(given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(running, "_TRIAL_STEPS", 60)
    settings = {"inputs": (str(given[0]),), "tokenizer": str(given[1]), "max_seq_len": 64, "minutes": 0.1}
    steps = make_laboratory(tmp_path, preset="tiny", **settings)._choose_steps()
    lines = read_run(tmp_path / "trial").lines
    assert [line["step"] for line in lines if line["split"] == "validation"] == [60]
    (_, before), (_, after) = read_run(tmp_path / "trial").points("seconds", "train")[1:]
    assert steps == pytest.approx(6 / ((after - before) / 20), abs=1)


def test_costs_are_measured_without_a_training(
    given: Given, tmp_path: Path, done: list[str], monkeypatch: pytest.MonkeyPatch
):
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


def test_rows_of_another_shape_are_trained_in_it(sharing_lab: Path):
    stored = {
        name: load_model(list_checkpoints(sharing_lab / "runs" / f"{name}-0")[-1]).config
        for name in ("plain", "share=none", "share=ffn", "share=attention")
    }
    assert [config.share for config in stored.values()] == ["all", "none", "ffn", "attention"]
    assert len({config.vocab_size for config in stored.values()}) == 1
    layers = json.loads((sharing_lab / "results/plain-0.json").read_text())["layers"]
    assert len(layers["distance"]) == len(layers["cosine"]) == 2
    assert all(distance > 0 for distance in layers["distance"])
    assert all(-1 <= cosine <= 1 for cosine in layers["cosine"])
    assert "L2 distance between" in (sharing_lab / "report.html").read_text(encoding="utf-8")


def test_a_folder_of_other_settings_is_refused(given: Given, dropout_lab: Path):
    with pytest.raises(ConfigError, match=r"made with language en, not de; choose another folder"):
        run_lab(given, dropout_lab, "dropout", "--language", "de")


def test_a_probe_reads_the_tokens_that_the_masks_hide(dropout_lab: Path):
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
