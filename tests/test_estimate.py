"""The estimate of `build --dry-run`: against the build that it foretells, in every layout; and what it never does."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pyarrow
import pyarrow.parquet
import pytest
from build_fixtures import InlineEngine, make_config
from hypothesis import given
from hypothesis import strategies as st
from mixture_fixtures import Mixed, write_mixture
from refusals import check_refused, refused

import albert_data
from albert_data.cli.main import run
from albert_data.corpus import samples
from albert_data.corpus.inputs import Input
from albert_data.corpus.mixtures import find_sources
from albert_data.errors import ArgumentError, InputError
from albert_data.jobs.progress import NullProgress
from albert_data.pipeline import estimate as estimating
from albert_data.pipeline.build import build_shards
from albert_data.pipeline.estimate import BuildEstimate, estimate_build
from albert_data.shards.manifest import Manifest
from albert_data.tokenizer.model import Tokenizer

SMALL = fixtures.make_documents(60, seed=21)
LARGE = fixtures.make_documents(9000, seed=22)  # 4 MB


def foretell(path: Path, tokenizer: Tokenizer, **settings: Any) -> BuildEstimate | None:
    config = make_config(**settings)
    return estimate_build(find_sources([str(path)], text=config.text), tokenizer, config, NullProgress())


def build(path: Path, tokenizer: Tokenizer, **settings: Any) -> Manifest:
    config = make_config(**settings)
    inputs = find_sources([str(path)], text=config.text)
    return build_shards(inputs, path.parent / "out", tokenizer, config, InlineEngine()).manifest


def check(found: BuildEstimate | None, manifest: Manifest, tolerance: float) -> None:
    """Figures are those of the build, except for a share of `tolerance`. shard_bytes leaves out Arrow's own bytes."""
    assert found is not None
    rows, size = (sum(getattr(split, name) for split in manifest.splits.values()) for name in ("num_rows", "num_bytes"))
    assert found.tokens == pytest.approx(manifest.counts.tokens, rel=tolerance)
    assert found.text_bytes == pytest.approx(manifest.counts.text_bytes, rel=tolerance)
    assert found.rows == pytest.approx(rows, rel=tolerance)
    assert found.shard_bytes == pytest.approx(size, rel=tolerance + 0.1)


def write(folder: Path, name: str, documents: list[str]) -> Path:
    """All documents in one file."""
    path = folder / name
    folder.mkdir(exist_ok=True)
    if name.endswith(".parquet"):
        pyarrow.parquet.write_table(pyarrow.table({"text": documents}), path, row_group_size=500)
    elif name.endswith(".json"):
        path.write_text(json.dumps([{"text": text} for text in documents]))
    else:
        data = fixtures.to_jsonl(documents) if ".jsonl" in name else fixtures.to_txt(documents)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


NAMES = ("a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.gz", "a.json", "a.parquet")


@pytest.mark.parametrize("name", NAMES)
def test_a_corpus_within_the_sample_is_counted(name, tokenizer, tmp_path):
    path = write(tmp_path / "in", name, SMALL)
    found = foretell(path, tokenizer)
    check(found, build(path, tokenizer), 1e-9)
    passes = foretell(path, tokenizer, dupe_factor=3)
    assert found is not None
    assert passes is not None
    assert passes.rows == pytest.approx(3 * found.rows)
    assert passes.work_bytes == passes.shard_bytes == pytest.approx(3 * found.shard_bytes)
    assert passes.tokens == pytest.approx(found.tokens)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in ("a.txt.gz", "a.jsonl") else ()) for name in NAMES]
)
def test_a_larger_corpus_is_estimated_from_a_part_of_it(name, tokenizer, tmp_path):
    path = write(tmp_path / "in", name, LARGE)
    found = foretell(path, tokenizer)
    check(found, build(path, tokenizer), 0.05)
    again = foretell(path, tokenizer)
    assert found is not None
    assert again is not None
    assert found.sample_bytes < 0.7 * found.text_bytes
    assert found == again


def test_files_of_every_kind_count_by_their_size(tokenizer, tmp_path):
    for number, name in enumerate(NAMES):
        write(tmp_path / "in", name.replace("a.", f"{number}."), LARGE[number::6])
    check(foretell(tmp_path / "in", tokenizer), build(tmp_path / "in", tokenizer), 0.08)


def test_sources_count_with_their_passes_and_budgets(tokenizer, tmp_path):
    sources = [
        Mixed(documents=LARGE[:300], weight=8.0),  # few bytes, most rows
        Mixed(documents=LARGE[300:6000], weight=0.25),
        Mixed(documents=LARGE[6000:7000], weight=0.0),
        Mixed(documents=LARGE[7000:8000], tokens=20_000),
        Mixed(documents=LARGE[8000:8100], tokens=10**9),
    ]
    mixture = write_mixture(tmp_path / "in", sources, "txt")
    manifest = build(mixture, tokenizer, dupe_factor=2)
    found = foretell(mixture, tokenizer, dupe_factor=2)
    check(found, manifest, 0.1)
    assert found is not None
    assert found.work_bytes > 1.05 * found.shard_bytes  # a source with a budget is masked as a whole


def test_when_the_time_is_up_the_places_so_far_stand_for_all(tokenizer, tmp_path, monkeypatch):
    path = write(tmp_path / "in", "a.jsonl.gz", LARGE)
    monkeypatch.setattr(estimating, "_MOST_SECONDS", 0.0)
    found = foretell(path, tokenizer)
    assert found is not None
    check(found, build(path, tokenizer), 0.2)
    assert found.sample_bytes < 0.05 * found.text_bytes


def test_a_damaged_file_is_estimated_by_what_comes_before_the_damage(tokenizer, tmp_path):
    path = write(tmp_path / "in", "a.jsonl.gz", LARGE)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    check(foretell(path, tokenizer), build(path, tokenizer), 0.05)


def test_a_corpus_without_text_has_no_estimate_and_no_stream_is_opened(tokenizer, tmp_path):
    for number, data in enumerate((b"", b"\n \n")):
        (tmp_path / f"{number}.txt").write_bytes(data)
        assert foretell(tmp_path / f"{number}.txt", tokenizer) is None
    os.mkfifo(tmp_path / "pipe.txt")  # to open it would wait for a writer
    assert foretell(tmp_path / "pipe.txt", tokenizer) is None


@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=100))
def test_every_file_has_places_in_proportion_to_its_size(sizes):
    files = [Input(path=str(number), format="txt", compression=None, size=size) for number, size in enumerate(sizes)]
    found = list(samples._choose_places(files, sum(sizes)))
    places = {item.path: inside for item, inside, _ in found}
    assert sum(stands_for * len(inside) for _, inside, stands_for in found) == pytest.approx(sum(sizes))
    for item in files:
        inside = places.get(item.path, [])
        assert abs(len(inside) - 32 * item.size / sum(sizes)) <= 1
        assert all(0 <= place < item.size for place in inside)


# ---- the command ----


def test_a_dry_run_says_tokens_and_disk(tokenizer_model, tmp_path, capsys, monkeypatch):
    (tmp_path / "model.model").write_bytes(tokenizer_model)
    path = write(tmp_path / "in", "a.jsonl", LARGE)
    arguments = ["build", str(path), "-o", str(tmp_path / "out"), "--dry-run", "--workers", "2"]
    before = sorted(tmp_path.rglob("*"))
    assert run([*arguments, "--tokenizer", str(tmp_path / "model.model")]) == 0
    lines = capsys.readouterr().out.split("estimate ")[1].splitlines()
    assert len(lines) == 3
    for line, words in zip(lines, ("by a sample of", "tokens, ", " of shards; "), strict=True):
        assert words in line
    assert max(map(len, lines)) <= 80
    assert run([*arguments, "--tokenizer", str(tmp_path / "model.model"), "--drop-near-duplicates"]) == 0
    assert "more to compare documents, in one process, without its disk" in capsys.readouterr().out
    assert run(arguments) == 0
    assert "estimate   needs a tokenizer: train one with `albert-data vocab`" in capsys.readouterr().out
    fixtures.set_stdin(monkeypatch, b"")
    assert run(["build", "-", *arguments[2:], "--tokenizer", str(tmp_path / "model.model")]) == 0
    assert "estimate   none: 1 stream can be read only once" in capsys.readouterr().out
    assert run([*arguments[:2], "-", *arguments[2:], "--tokenizer", str(tmp_path / "model.model")]) == 0
    assert "and 1 stream, not counted: it can be read only once" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before


def test_the_function_gives_the_figures_of_the_command(tokenizer, tokenizer_model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.model").write_bytes(tokenizer_model)
    path = write(tmp_path / "in", "a.jsonl", LARGE)
    found = albert_data.estimate(path, tokenizer="model.model", max_seq_len=64)
    command = ["build", str(path), "--tokenizer", "model.model", "--max-seq-len", "64", "-o", "out", "--dry-run"]
    assert capsys.readouterr() == ("", "")
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["estimate"] == found.to_dict()
    assert found.documents == pytest.approx(len(LARGE), rel=0.1)
    assert repr(found).startswith("BuildEstimate(about 9,")
    assert albert_data.estimate(documents=SMALL, tokenizer=tokenizer).documents == len(SMALL)
    source = albert_data.Source(name="a", documents=SMALL, weight=3)
    rows = albert_data.estimate(documents=SMALL, tokenizer=tokenizer).rows
    assert albert_data.estimate(sources=[source], tokenizer=tokenizer).rows == 3 * rows


@refused(
    (lambda: albert_data.estimate("in.txt"), ArgumentError, "tokenizer is missing, which an estimate needs; train"),
    (lambda: albert_data.estimate("in.txt", tokenizer="model.model"), InputError, "holds no token & check the inputs"),
    (
        lambda: albert_data.estimate("in.txt", tokenizer="model.model", language_field="x"),
        InputError,
        "leave out --language-field",
    ),
)
def test_what_can_not_be_estimated_is_an_error(call, kind, named, tokenizer_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.model").write_bytes(tokenizer_model)
    Path("in.txt").write_text("\n")
    check_refused(call, kind, named)
