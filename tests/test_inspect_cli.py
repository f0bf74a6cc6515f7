"""`albert-data inspect`: one page of 80 columns for a person, one JSON object for a program."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from inspect_fixtures import (
    SMALL,
    edit_manifest,
    make_examples,
    write_folder,
    write_sentences,
    write_small,
)

from albert_data.cli.inspect import inspect
from albert_data.corpus.damage import REASONS
from albert_data.errors import ShardError
from albert_data.inspect.report import format_bytes
from albert_data.inspect.statistics import measure
from albert_data.inspect.terminal import count_columns
from albert_data.shards.manifest_file import read_manifest
from albert_data.shards.reader import open_shards
from albert_data.wording import format_share


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return write_small(tmp_path_factory.mktemp("built"))


def run(*arguments: object, columns: int = 80) -> Result:
    environment = {"COLUMNS": str(columns), "NO_COLOR": None}
    return CliRunner(env=environment).invoke(inspect, [str(argument) for argument in arguments])


def page(*arguments: object, columns: int = 80) -> str:
    result = run(*arguments, columns=columns)
    assert result.exit_code == 0, result.exception
    return result.stdout


def section(text: str, title: str) -> str:
    return next(part for part in text.split("\n\n") if part.startswith(title))


def test_the_page_fits_80_columns_even_with_large_numbers_and_all_damage(tmp_path) -> None:
    folder = write_small(tmp_path / ("long " * 30) / ("x" * 100))

    def enlarge(manifest) -> None:
        manifest["damage"] = dict.fromkeys([*REASONS, "some_reason_of_a_later_version"], 123_456_789)
        manifest["counts"] = dict.fromkeys(manifest["counts"], 999_999_999_999)
        manifest["splits"]["train"] |= {"num_rows": 9_999_999_999, "num_tokens": 9_999_999_999_999}

    edit_manifest(folder, enlarge)
    text = page(folder)
    assert max(map(len, text.splitlines())) <= 80
    damage = " ".join(section(text, "Damage").split())
    assert all(f"123,456,789 {description}" in damage for description in REASONS.values())
    assert "some reason of a later version" in damage


def test_each_figure_has_its_intended_value_and_that_of_both_splits(built) -> None:
    lines = section(page(built), "Figures").splitlines()
    assert lines[0].split() == ["Figures", "intended", "train", "validation"]
    columns = [measure(open_shards(built, split)) for split in ("train", "validation")]
    for line, train, validation in zip(lines[1:], *(m.figures for m in columns), strict=True):
        shown = re.split(r" {2,}", line)[-3:]
        expected = [train.intended, train.realised, validation.realised]
        if train.name.startswith("num_"):
            assert shown == ["-" if value is None else str(value) for value in expected]
        else:
            assert shown == ["-" if value is None else format_share(value) for value in expected]


def test_splits_are_listed_with_their_totals(built) -> None:
    lines = section(page(built), "Splits").splitlines()
    for line, (name, split) in zip(lines[1:], read_manifest(built).splits.items(), strict=True):
        totals = (f"{getattr(split, key):,}" for key in ("num_rows", "num_tokens", "num_masked"))
        assert line.split()[:5] == [name, *totals, "1"]


def test_one_thing_is_singular_and_thousands_are_separated(built) -> None:
    corpus = section(page(built), "Corpus")
    assert corpus.split("\n  ")[1] == "1 document, 2 sentences, 1.0 kB of text, 1,234,567 tokens"
    assert "1 input," in page(built)
    assert "spans of 1 word " in page(built)


def test_a_sound_corpus_has_no_damage(built) -> None:
    assert "\n\nDamage: none\n" in page(built)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1000, "1.0 kB"), (999_940, "999.9 kB")]
    + [(999_960, "1.0 MB"), (12_345_678, "12.3 MB"), (4 * 10**12, "4.0 TB"), (5 * 10**18, "5,000.0 PB")],
)
def test_sizes_have_a_suitable_unit(num_bytes, text) -> None:
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize("columns", [40, 80, 132])
def test_examples_are_wrapped_to_the_terminal(built, columns) -> None:
    examples = page(built, "-n", 9, columns=columns).split("Examples of train")[1]
    assert columns * 0.6 < max(map(count_columns, examples.splitlines())) <= columns
    assert examples.count("\nrow ") == 9


def test_no_example_means_no_legend(built) -> None:
    assert "MASK:x" not in page(built, "-n", 0)


def test_examples_are_of_the_split_and_the_seed_asked_for(built) -> None:
    def rows(*arguments: object) -> list[str]:
        return re.findall(r"^row ([\d,]+):", page(built, *arguments), re.MULTILINE)

    assert rows("-n", 2) == rows("-n", 5)[:2]
    assert rows("-n", 5, "--seed", 1) != rows("-n", 5)
    validation = rows("--split", "validation", "-n", 1000)
    assert len(validation) == read_manifest(built).splits["validation"].num_rows


def test_json_is_one_object_of_the_same_content(built) -> None:
    report = json.loads(page(built, "--json", "-n", 2))
    assert report["folder"] == str(built)
    for split in ("train", "validation"):
        assert report["statistics"][split] == json.loads(json.dumps(measure(open_shards(built, split)).to_dict()))
    assert len(report["examples"]) == 2
    manifest = read_manifest(built).to_values()
    for key in ("config", "tokenizer", "counts", "damage", "format_version"):
        assert report[key] == manifest[key]
    assert report["splits"]["train"]["num_shards"] == 1


def test_a_split_without_rows_is_shown(tmp_path) -> None:
    folder = write_folder(tmp_path, {"train": [make_examples(write_sentences(3, 1), SMALL)]})
    text = page(folder, "--split", "validation")
    assert section(text, "Figures").splitlines()[0].split() == ["Figures", "intended", "train"]
    assert "No split has rows." in page(write_folder(tmp_path / "empty", {}))
    assert json.loads(page(tmp_path / "empty", "--json"))["statistics"] == {}


def test_colour_needs_a_terminal_and_no_no_color(built, monkeypatch, capsys) -> None:
    def coloured() -> bool:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
        inspect.main([str(built)], standalone_mode=False)
        return "\x1b[" in capsys.readouterr().out

    monkeypatch.delenv("NO_COLOR", raising=False)
    is_terminal = False
    assert not coloured()
    is_terminal = True
    assert coloured()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not coloured()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: m.pop("config"), "config is missing; an object is needed"),
        (lambda m: m["config"].update(ngram="3"), "config.ngram is '3'; a whole number is needed"),
        (lambda m: m["config"].update(max_seq_len=-1), "max_seq_len is -1; allowed are 8 to 32768"),
        (lambda m: m["splits"].update(test={}), "splits holds 'test'; allowed are train, validation"),
        (lambda m: m["splits"]["train"]["shards"][0].pop("file"), r"shards\[0\].file is missing"),
        (lambda m: m["splits"].update(train=[]), r"splits.train is \[\]; an object is needed"),
    ],
)
def test_a_manifest_that_lacks_a_key_is_refused_with_its_name(tmp_path, edit, message) -> None:
    edit_manifest(write_small(tmp_path), edit)
    error = run(tmp_path).exception
    assert isinstance(error, ShardError)
    assert re.search(message, str(error))


def test_a_split_that_is_not_there_is_refused(built) -> None:
    error = run(built, "--split", "test").exception
    assert isinstance(error, ShardError)
    assert "no split 'test'; it has train, validation" in str(error)
