"""The public functions: the same arguments, defaults and results as the commands, from strings, without a word."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from build_fixtures import make_documents
from refusals import check_refused, refused

import albert_data
from albert_data import build, inspect_shards, train_model, verify_shards
from albert_data.cli.main import COMMANDS, cli, run
from albert_data.cli.summary import describe_build, describe_vocabulary
from albert_data.config import BuildConfig, ExampleConfig, VocabConfig
from albert_data.errors import (
    AlbertDataError,
    ArgumentError,
    CheckpointError,
    ConfigError,
    InputError,
    OutputError,
    StorageError,
    TokenizerError,
)
from albert_data.train.config import RECIPES, TrainConfig

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "vocab": albert_data.train_vocab,
    "build": build,
    "inspect": inspect_shards,
    "audit": albert_data.audit_shards,
    "verify": verify_shards,
    "convert": albert_data.convert_shards,
    "train": train_model,
    "score": albert_data.score_model,
    "export": albert_data.export_model,
}
# What a command prints or how it ends; in Python that is up to the caller.
PRINTING = {"as_json", "fail_on", "dry_run"} | {"address", "nodes"}  # the last two are of an engine, an object here
# What options can't give.
PYTHON_ONLY = {"config", "text", "progress", "interrupt", "tell", "documents", "sources", "validation_documents"}
RENAMED = {"static_masks": "remask", "no_guesses": "guesses", "documents": "document_rule"}
# Settings without an option of their own: a vocabulary has no groups and ids; the last share is in --mask-prob.
WITHOUT_OPTION = {"vocab": {"group_field", "id_field"}, "train": {"beta1", "last_mask_prob"}}


def options_of(name: str) -> dict[str, click.Parameter]:
    """The options and arguments of a command, by the long name that the user writes."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    names = {(max(one.opts, key=len) if one.opts else "").lstrip("-").replace("-", "_"): one for one in command.params}
    found = {RENAMED.get(name, name): one for name, one in names.items()}
    return {"as_json" if name == "json" else name: one for name, one in found.items()}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_keywords_of_a_function_are_the_options_of_its_command(name):
    options = options_of(name).keys() - PRINTING - ({"profile"} if name == "build" else set())
    keywords = inspect.signature(FUNCTIONS[name]).parameters.keys() - PYTHON_ONLY
    assert keywords - WITHOUT_OPTION.get(name, set()) == options


def test_every_command_with_a_result_has_a_function():
    assert COMMANDS.keys() - FUNCTIONS.keys() == {"quickstart", "runs"}


@pytest.mark.parametrize("name", ["vocab", "build", "score"])
def test_the_defaults_in_a_signature_are_those_of_the_options(name):
    options = options_of(name)
    for keyword, parameter in inspect.signature(FUNCTIONS[name]).parameters.items():
        if keyword in options and parameter.default not in (parameter.empty, None, (), False):
            assert parameter.default == options[keyword].default, keyword


def test_train_model_shows_no_default_that_a_recipe_changes():
    shown = inspect.signature(train_model).parameters
    assert {shown[name].default for name in TrainConfig.__dataclass_fields__} == {None}
    assert RECIPES["quick"]["mini"].steps is None


@pytest.mark.parametrize("function", FUNCTIONS.values())
def test_an_unknown_argument_is_an_error_that_names_similar_ones(function):
    named = [name for name, one in inspect.signature(function).parameters.items() if one.kind is one.KEYWORD_ONLY]
    with pytest.raises(ArgumentError, match=f"has no argument '{named[0]}x'; is it one of: .*{named[0]}"):
        function("a", "b", **{f"{named[0]}x": 1})


LOADED = "tokenizer is loaded; give --normalization, --words and --special to load"


def build_loaded(**settings: Any) -> None:
    build("corpus.txt", "out", tokenizer=albert_data.load_tokenizer("model.model"), **settings)


@refused(
    (lambda: build("in.txt", "out", validation="x", validation_fraction=0.1), ArgumentError, "--validation-fraction"),
    (lambda: build([{"text": "A text."}], "out"), InputError, "give documents in memory as documents="),
    (lambda: build(b"in.txt", "out"), InputError, "inputs are names of files, folders and globs"),
    (lambda: inspect_shards("out", row=3, num_examples=2, grep="a"), ArgumentError, "leave out --grep and"),
    (lambda: inspect_shards("out", num_examples=-1), ConfigError, "num_examples is -1; allowed are 0 to inf"),
    (lambda: inspect_shards("out", row=[2, 1.5]), ConfigError, "row is 1.5, of the type float; a whole number"),
    (lambda: inspect_shards("out", row=np.bool_(True)), ConfigError, "row is & a whole number is needed"),
    (lambda: verify_shards("out", workers=0), ConfigError, "workers is 0; allowed are 1 to 1024"),
    (lambda: verify_shards("out", workers=1025), ConfigError, "workers is 1025; allowed are 1 to 1024"),
    (lambda: albert_data.convert_shards("out", "b", to="csv"), ConfigError, "to is 'csv'; allowed are parquet, mds"),
    (lambda: albert_data.load_tokenizer(7), ArgumentError, "of the type int; give a path or a Tokenizer"),
    (lambda: build_loaded(words="jieba"), ArgumentError, LOADED),
    (lambda: build_loaded(special={"cls": "<s>"}), ArgumentError, LOADED),
    (lambda: build_loaded(normalization="albert-v2"), ArgumentError, LOADED),
    (lambda: train_model("out", steps=2, minutes=1), ArgumentError, "--steps and --minutes exclude one another"),
    (lambda: train_model("out", resume=True, recipe="quick"), ArgumentError, "--resume excludes --recipe"),
    (lambda: train_model("out", step=2), ArgumentError, "has no argument 'step'; is it one of: steps"),
    (lambda: train_model("out", config=TrainConfig(), resume=True), ArgumentError, "leave config out"),
    (lambda: train_model("out", config=TrainConfig(), recipe="paper"), ArgumentError, "config & leave config out"),
    (lambda: train_model("out", "s3://bucket/run"), StorageError, "in a store, but output has to be on a disk"),
    (lambda: albert_data.export_model("out", "model"), CheckpointError, "is not a training run"),
    (lambda: albert_data.score_model("out", "in.txt"), CheckpointError, "neither a training run nor a Hugging Face"),
)
def test_a_wrong_argument_is_named_and_nothing_is_written(call, kind, named, here):
    (here / "in.txt").write_text('{"good": "a", "bad": "b"}\n')
    before = sorted(here.iterdir())
    check_refused(call, kind, named)
    assert sorted(here.iterdir()) == before


def test_an_error_of_the_system_is_an_error_of_the_library(here, monkeypatch):
    def fail(*given: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device", "out/shard")

    monkeypatch.setattr("albert_data.library.building.build_shards", fail)
    with pytest.raises(AlbertDataError, match="out/shard: No space left on device; fix that"):
        build("corpus.txt", "out", tokenizer="model.model")


def test_settings_by_name_change_those_of_the_class(here):
    config = BuildConfig(examples=ExampleConfig(max_seq_len=32, dupe_factor=3), num_shards=1)
    made = build("corpus.txt", "out", tokenizer="model.model", config=config, dupe_factor=2, language="de")
    assert made.manifest.config.examples == ExampleConfig(max_seq_len=32, dupe_factor=2)
    assert (made.manifest.config.text.language, made.manifest.config.num_shards) == ("de", 1)


def test_functions_take_strings_print_nothing_and_make_what_the_commands_make(here, capsys):
    report = albert_data.train_vocab("corpus.txt", "vocab", vocab_size=115, workers=1)
    built = build("corpus.txt", "shards", tokenizer="vocab", max_seq_len=32, workers=1)
    seen = inspect_shards("shards", row=1, html="page.html")
    audit = albert_data.audit_shards("shards", corpus="corpus.txt")
    verified = verify_shards("shards", quick=True)
    done = albert_data.convert_shards("shards", "set", "parquet", workers=1)
    results = (report, built, seen, audit, verified, done)
    assert capsys.readouterr() == ("", "")
    assert report.config == VocabConfig(vocab_size=115, dummy_prefix=report.config.dummy_prefix)
    assert (seen.rows, seen.saved) == ([1], Path("page.html"))
    assert verified.faults == []
    for result in results:
        head = repr(result).splitlines()[0]
        assert re.fullmatch(rf"{type(result).__name__}\(.*\)", head)
        assert len(head) < 300

    options = ["--workers", "1"]
    assert run(["vocab", "corpus.txt", "--vocab-size", "115", "-o", "vocab2", *options]) == 0
    assert run(["build", "corpus.txt", "--tokenizer", "vocab2", "--max-seq-len", "32", "-o", "shards2", *options]) == 0
    for folder in ("shards", "vocab"):
        files = [path for path in Path(folder).rglob("*") if path.suffix in (".arrow", ".model", ".vocab")]
        assert files
        for path in files:
            assert path.read_bytes() == Path(f"{folder}2", *path.parts[1:]).read_bytes()


def test_a_report_says_what_was_not_read_in_the_lines_that_the_command_prints(here):
    lines = [*({"text": text} for text in make_documents(30, seed=1)), *[{"body": "Not read."}] * 2, {"text": ""}]
    Path("records.jsonl").write_text("\n".join(map(json.dumps, lines)))
    built = build("records.jsonl", "out", tokenizer="model.model", workers=1)
    trained = albert_data.train_vocab("records.jsonl", "vocab", vocab_size=115, workers=1)
    for report, printed in (
        (built, describe_build(built, Path("out"))),
        (trained, describe_vocabulary(trained, Path("vocab"))),
    ):
        assert "damage     missing_field 2: records without the text field, skipped" in report.list_notes()
        assert "note       empty_document 1: documents without text, skipped" in report.list_notes()
        assert repr(report).splitlines()[1:] == report.list_notes()
        assert "\n".join(report.list_notes()) in "\n".join(printed)


def test_faults_are_told_when_they_are_found(here):
    build("corpus.txt", "out", tokenizer="model.model", workers=1)
    shard = next(Path("out/train").glob("*.arrow"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    told: list[Any] = []
    found = verify_shards("out", tell=told.append)
    assert told == found.faults != []
    assert "fault" in repr(found)
    assert str(found.faults[0]) in repr(found)


OF_ANOTHER_TYPE: dict[str, Any] = {
    **{"drop_near_duplicates": 0.8, "whole_word": 1, "unwrap": "no", "strict": None, "num_shards": True},
    **{"dupe_factor": 2.5, "seed": 1.5, "max_seq_len": 128.0, "language": None, "workers": "2", "overwrite": "no"},
}


@pytest.mark.parametrize("name", OF_ANOTHER_TYPE)
def test_a_setting_of_another_type_is_refused_before_anything_is_built(name, here):
    with pytest.raises(ConfigError, match=rf"^(a )?{name} is .* needed$"):
        build("corpus.txt", "out", **{name: OF_ANOTHER_TYPE[name]})
    assert not (here / "out").exists()


def test_whole_numbers_of_numpy_are_whole_numbers(here):
    made = build("corpus.txt", "out", tokenizer="model.model", workers=np.int8(1), num_shards=np.int64(2))
    assert type(made.manifest.config.num_shards) is int
    for row in (np.int64(3), [np.uint8(3)], np.array([3])):
        assert inspect_shards("out", row=row).rows == [3]


def test_load_tokenizer_takes_what_build_takes(here):
    loaded = albert_data.load_tokenizer("model.model")
    assert albert_data.load_tokenizer(loaded) is loaded
    with pytest.raises(ArgumentError, match="tokenizer is loaded; give --normalization"):
        albert_data.load_tokenizer(loaded, words="jieba")
    albert_data.train_vocab("corpus.txt", "vocab", vocab_size=115, workers=1, normalization="albert-v2")
    with pytest.raises(TokenizerError, match="was trained on text of --normalization albert-v2; pass that"):
        albert_data.load_tokenizer("vocab")


@pytest.mark.parametrize("text", ["", "a\0b", "\ud800", b"a", 5])
def test_what_can_be_no_path_is_an_error(text, here):
    build("corpus.txt", "shards", tokenizer="model.model", workers=1)
    before = sorted(here.rglob("*"))
    for call in (
        lambda: build("corpus.txt", text, tokenizer="model.model"),
        lambda: albert_data.train_vocab("corpus.txt", text),
        lambda: albert_data.load_tokenizer(text),
        lambda: albert_data.convert_shards("shards", text, "parquet"),
        lambda: inspect_shards("shards", html=text),
        lambda: verify_shards(text),
        lambda: albert_data.open_shards(text),
    ):
        with pytest.raises(
            AlbertDataError, match="is no path; (name a file or folder, or|give a str or)|; give a path"
        ):
            call()
    assert sorted(here.rglob("*")) == before


def test_an_output_that_may_not_be_written_is_found_before_the_work(here, monkeypatch):
    build("corpus.txt", "shards", tokenizer="model.model", workers=1)
    (here / "vocab").mkdir()
    monkeypatch.setattr("albert_data.library.building.learn_vocabulary", None)
    monkeypatch.setattr("albert_data.library.shards.inspect_folder", None)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name not in ("vocab", here.name))
    with pytest.raises(OutputError, match="output vocab can't be written: Permission denied; name another folder"):
        albert_data.train_vocab("corpus.txt", "vocab", workers=1)
    with pytest.raises(OutputError, match=r"page\.html can't be written: Permission denied; name another file"):
        inspect_shards("shards", html="page.html")


@pytest.mark.parametrize("named", [{"tokenizer": ""}, {"words": ""}, {"validation": ""}, {"output": ""}])
def test_an_empty_name_is_no_name_of_the_present_folder(named, here):
    albert_data.train_vocab("corpus.txt", ".", vocab_size=115, workers=1)
    before = sorted(here.iterdir())
    with pytest.raises(AlbertDataError, match="'' is no path|input '?'? ?does not exist"):
        build(**{"inputs": "corpus.txt", "output": "out", "tokenizer": ".", **named})
    assert sorted(here.iterdir()) == before
