"""A user's own text as the validation split: training leaves out its documents."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import mixture_fixtures as mixtures
import pytest
from build_fixtures import InlineEngine, digest_shards, keys_of
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused

from albert_data import build
from albert_data.cli.main import cli
from albert_data.config import BuildConfig
from albert_data.corpus.mixtures import find_sources
from albert_data.errors import ConfigError, InputError, OutputError
from albert_data.inspect.verify import verify
from albert_data.pipeline.build import BuildReport, build_shards
from albert_data.tokenizer.model import Tokenizer

POOL = fixtures.make_documents(40, seed=21)
TRAINING, VALIDATION = [*POOL[:30], *POOL[:4]], [*POOL[25:36], POOL[26]]  # five documents are in both


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 11):
        yield


def run(
    training: Path | str, validation: Path | str, out: Path, tokenizer: Tokenizer | None, **options: Any
) -> BuildReport:
    config = fixtures.make_config(validation_fraction=0.0, **options)
    inputs = find_sources([str(training)], text=config.text, validation=[str(validation)])
    return build_shards(inputs, out, tokenizer, config, InlineEngine())


def write(folder: Path, training: list[str], validation: list[str], layout: str = "txt") -> list[Path]:
    paths = [folder / "training", folder / "validation"]
    for path, documents in zip(paths, (training, validation), strict=True):
        fixtures.write_corpus(path, documents, layout, random.Random(0))
    return paths


def keys(documents: list[str]) -> set[int]:
    return set(map(fixtures.document_key, documents))


@given(
    training=st.lists(st.sampled_from(POOL[:25]), min_size=1, max_size=30),
    validation=st.lists(st.sampled_from(POOL[10:]), min_size=1, max_size=12),
    layout=st.sampled_from(fixtures.LAYOUTS),
    options=st.sampled_from(({}, {"keep_duplicates": True}, {"pairs": "nsp"}, {"dupe_factor": 2, "num_shards": 3})),
)
def test_training_has_all_documents_that_validation_does_not_have(
    training, validation, layout, options, tokenizer, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("validation")
    training = [*training, POOL[0]]  # which is never in validation
    names = write(folder, training, validation, layout)
    manifest = run(*names, folder / "out", tokenizer, **options).manifest
    assert keys_of(folder / "out") == (keys(training) - keys(validation), keys(validation))
    assert not list(verify(folder / "out"))
    copies = Counter(training)
    left_out = sum(copies[one] if "keep_duplicates" in options else 1 for one in copies if one in validation)
    assert manifest.counts.left_out_documents == left_out
    assert all(one.split == ("validation" if "/validation/" in one.path else None) for one in manifest.inputs)
    if "keep_duplicates" not in options:
        dropped = len(training) - len(copies) + len(validation) - len(set(validation))
        assert manifest.counts.duplicate_documents == dropped
        assert manifest.documents_digest == f"{sum(keys(training) | keys(validation)) % 2**64:016x}"
    if options == {}:
        counts, tokens = manifest.counts, 0
        for rows in mixtures.read_rows(folder / "out").values():
            tokens += sum(len(row[0]) - (2 if row[-1] < 0 else 3) for _, row in rows)
        assert tokens == counts.tokens - counts.duplicate_tokens - counts.left_out_tokens


@pytest.fixture(scope="module")
def reference(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    run(*write(folder, TRAINING, VALIDATION), folder / "out", tokenizer)
    return folder / "out"


def test_the_rows_are_those_of_builds_of_one_split_each(reference, tokenizer, tmp_path):
    for name, documents in (("train", TRAINING), ("validation", VALIDATION)):
        fixtures.write_corpus(tmp_path / name, documents, "jsonl", random.Random(1))
        fixtures.run_build(tmp_path / name, tmp_path / f"{name}-out", tokenizer, validation_fraction=0.0)
    found = mixtures.read_rows(reference)
    for name, some in (("train", keys(TRAINING) - keys(VALIDATION)), ("validation", keys(VALIDATION))):
        alone = mixtures.read_rows(tmp_path / f"{name}-out")
        assert all(found[key] == alone[key] for key in some)
    assert "| training documents that validation has too | 5 |" in (reference / "README.md").read_text()


def test_other_validation_inputs_are_another_build(tokenizer, tmp_path):
    training, validation = write(tmp_path, TRAINING, VALIDATION)
    run(training, validation, tmp_path / "out", tokenizer)
    assert run(training, validation, tmp_path / "out", tokenizer).was_finished
    fixtures.write_corpus(tmp_path / "other", POOL[36:], "txt", random.Random(0))
    for inputs in ((training, tmp_path / "other"), (validation, training)):
        check_refused(partial(run, *inputs, tmp_path / "out", tokenizer), OutputError, "the inputs differ")


def test_an_input_named_for_both_is_validation_alone(tokenizer, tmp_path):
    training, validation = write(tmp_path, TRAINING[:8], VALIDATION)
    inputs = find_sources([str(training), str(validation)], validation=[str(validation)])
    build_shards(inputs, tmp_path / "out", tokenizer, fixtures.make_config(validation_fraction=0.0), InlineEngine())
    assert keys_of(tmp_path / "out") == (keys(TRAINING[:8]), keys(VALIDATION))
    with pytest.raises(InputError, match="none is left for training; give other inputs"):
        run(validation, validation, tmp_path / "none", tokenizer)


def test_streams_are_read_for_one_of_both(reference, tokenizer, tmp_path, monkeypatch):
    training, validation = write(tmp_path, TRAINING, VALIDATION)
    fixtures.set_stdin(monkeypatch, fixtures.to_txt(VALIDATION))
    run(training, "-", tmp_path / "a", tokenizer)
    fixtures.set_stdin(monkeypatch, fixtures.to_txt(TRAINING))
    run("-", validation, tmp_path / "b", tokenizer)
    for name in "ab":
        assert digest_shards(tmp_path / name) == digest_shards(reference)
    with pytest.raises(InputError, match="one stream is named for training and for validation"):
        run("-", "-", tmp_path / "c", tokenizer)


def test_a_language_of_either_gives_all_a_language(tokenizer, tmp_path):
    training, validation = write(tmp_path, TRAINING, VALIDATION)
    manifest = run(training, f"{validation}:de", tmp_path / "out", tokenizer).manifest
    assert manifest.sources == ("de", "en")
    assert {item.language for item in manifest.inputs} == {"de", "en"}
    rows = mixtures.read_rows(tmp_path / "out")
    assert {source for key in keys(VALIDATION) for source, _ in rows[key]} == {0}


def test_the_vocabulary_is_learnt_from_the_training_inputs_alone(tmp_path):
    training, validation = write(tmp_path, TRAINING, ["Zygote quux zephyr."])
    run(training, validation, tmp_path / "out", None)
    fixtures.run_build(training, tmp_path / "alone", None, validation_fraction=0.0)
    model, alone = ((tmp_path / name / "tokenizer/spiece.model").read_bytes() for name in ("out", "alone"))
    assert model == alone


def test_inputs_without_a_token_and_mixtures_are_refused(tokenizer, tmp_path):
    training, empty = write(tmp_path, TRAINING, ["\x01"])
    mixture = mixtures.write_mixture(tmp_path, [mixtures.Mixed(documents=POOL)])
    no_mixture = "is a mixture, which has no validation inputs & leave out --validation"
    without = "no document of the {} inputs gives a token"
    for name, training_inputs, validation_inputs, named in (
        ("a", training, empty, without.format("validation")),
        ("b", empty, training, without.format("training")),
        ("c", mixture, training, no_mixture),
        ("d", training, mixture, no_mixture),
    ):
        make = partial(run, training_inputs, validation_inputs, tmp_path / name, tokenizer)
        check_refused(make, InputError, named)


def test_a_fraction_beside_validation_inputs_is_refused(tokenizer, tmp_path):
    training, validation = write(tmp_path, TRAINING, VALIDATION)
    config = BuildConfig(validation_fraction=0.1)
    named = "validation_fraction is 0.1, but inputs for validation are given"
    check_refused(lambda: build(training, tmp_path / "out", validation=validation, config=config), ConfigError, named)
    words = ["build", str(training), "--validation", str(validation), "-o", str(tmp_path / "cli")]
    refused = CliRunner().invoke(cli, [*words, "--validation-fraction", "0.005"])
    assert refused.exit_code == 2
    assert "leave out --validation-fraction" in refused.output
    shown = CliRunner().invoke(cli, [*words, "--dry-run"])
    assert "1 of these for validation" in shown.output, shown.output
    assert "validation_fraction=0.0" in shown.output
