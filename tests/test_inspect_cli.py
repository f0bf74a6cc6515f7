"""`albert-data inspect`: one page of 80 columns for a person, one JSON object for a program, and harmless names."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from inspect_fixtures import (
    SMALL,
    edit_manifest,
    get_tokenizer,
    make_examples,
    write_folder,
    write_sentences,
    write_small,
)

from albert_data.cli.inspect import inspect
from albert_data.cli.main import cli
from albert_data.corpus.damage import REASONS
from albert_data.errors import ConfigError, ShardError
from albert_data.inspect.choice import RowChoice, choose_rows, draw_rows, find_text
from albert_data.inspect.report import format_bytes
from albert_data.inspect.statistics import measure
from albert_data.inspect.terminal import count_columns
from albert_data.shards.manifest_file import read_manifest
from albert_data.shards.reader import Shards, open_shards
from albert_data.shards.rows import no_rows


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


def test_the_page_fits_80_columns_even_with_large_numbers_and_all_damage(tmp_path):
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


def test_the_whole_page(tmp_path, monkeypatch, golden):
    write_small(tmp_path / "built")
    monkeypatch.chdir(tmp_path)
    golden("inspect.txt", page("built", "-n", 0))


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1000, "1.0 kB"), (999_940, "999.9 kB")]
    + [(999_960, "1.0 MB"), (12_345_678, "12.3 MB"), (4 * 10**12, "4.0 TB"), (5 * 10**18, "5,000.0 PB")],
)
def test_sizes_have_a_suitable_unit(num_bytes, text):
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize("columns", [40, 80, 132])
def test_examples_are_wrapped_to_the_terminal(built, columns):
    examples = page(built, "-n", 9, columns=columns).split("Examples of train")[1]
    assert columns * 0.6 < max(map(count_columns, examples.splitlines())) <= columns
    assert examples.count("\nrow ") == 9


def shown(*arguments: object) -> list[str]:
    """The rows on a page."""
    return re.findall(r"^row ([\d,]+):", page(*arguments), re.MULTILINE)


def test_examples_are_of_the_split_and_the_seed_asked_for(built):
    assert shown(built, "-n", 2) == shown(built, "-n", 5)[:2]
    assert shown(built, "-n", 5, "--seed", 1) != shown(built, "-n", 5)
    assert shown(built, "-n", 0) == []
    assert "MASK:x" not in page(built, "-n", 0)
    validation = shown(built, "--split", "validation", "-n", 1000)
    assert len(validation) == read_manifest(built).splits["validation"].num_rows


def test_json_is_one_object_of_the_same_content(built):
    report = json.loads(page(built, "--json", "-n", 2))
    assert report["folder"] == str(built)
    for split in ("train", "validation"):
        assert report["statistics"][split] == json.loads(json.dumps(measure(open_shards(built, split)).to_dict()))
    assert len(report["examples"]) == 2
    manifest = read_manifest(built).to_values()
    for key in ("config", "tokenizer", "counts", "damage", "format_version"):
        assert report[key] == manifest[key]
    assert report["splits"]["train"]["num_shards"] == 1


def test_a_split_without_rows_is_shown(tmp_path):
    folder = write_folder(tmp_path, {"train": [make_examples(write_sentences(3, 1), SMALL)]})
    text = page(folder, "--split", "validation")
    assert section(text, "Figures").splitlines()[0].split() == ["Figures", "intended", "train"]
    assert "No split has rows." in page(write_folder(tmp_path / "empty", {}))
    assert json.loads(page(tmp_path / "empty", "--json"))["statistics"] == {}


def test_colour_needs_a_terminal_and_no_no_color(built, monkeypatch, capsys):
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


def test_a_split_that_is_not_there_is_refused(built):
    error = run(built, "--split", "test").exception
    assert isinstance(error, ShardError)
    assert "no split 'test'; it has train, validation" in str(error)


# ---- names of any bytes ----

ODD = "a\x1b[2J\r\x9b\u202eb"


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build in a folder of such a name, with such values wherever a manifest may hold text."""
    folder = write_small(tmp_path_factory.mktemp("odd") / f"{ODD}\udcff")
    edit_manifest(folder, lambda m: m.update(albert_data_version=ODD, documents_digest=ODD, damage={ODD: 3}))
    return folder


def is_harmful(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character != "\n"


@pytest.mark.parametrize(
    "command", ["inspect", "inspect -n 2", "inspect --json", "inspect --grep ve", "audit", "audit --json"]
)
def test_nothing_that_inspect_or_audit_prints_holds_control_characters(odd, command):
    name, *arguments = command.split()
    result = CliRunner().invoke(cli, [name, str(odd), *arguments])
    assert result.exit_code == 0
    assert not list(filter(is_harmful, result.stdout))
    assert r"\u202eb\udcff" in result.stdout.replace("\\\\", "\\").replace("\n", "")


def test_a_page_is_announced_without_control_characters_and_not_if_it_goes_to_a_device(odd, tmp_path):
    announced = run(odd, "--html", tmp_path / f"{ODD}\udcff.html").stderr
    assert r"a\x1b[2J\r\x9b\u202eb\udcff.html: 0." in announced
    assert not list(filter(is_harmful, announced))
    assert run(odd, "--html", "/dev/null").output == ""


# ---- the rows that are shown: by number, by text, or drawn at random ----


@pytest.fixture(scope="module")
def shards(built) -> Shards:
    return open_shards(built)


def read_segments(shards: Shards, row: int) -> list[str]:
    """The text of a row before masking, byte pieces aside."""
    example = shards[row]
    ids, sep = example.original_ids, 1 + example.segment_a_len
    pieces = shards.tokenizer.pieces
    return ["".join(pieces[i] for i in part).replace("▁", " ") for part in (ids[1:sep], ids[sep + 1 : -1])]


@given(sizes=st.lists(st.integers(0, 20), min_size=1, max_size=4), count=st.integers(0, 60), seed=st.integers(0, 99))
def test_rows_are_drawn_from_each_source_in_turn_and_fewer_are_the_first_of_more(sizes, count, seed):
    sources = [1000 * number + np.arange(size) for number, size in enumerate(sizes)]
    chosen = draw_rows(sources, count, seed)
    assert len(set(chosen)) == len(chosen) == min(count, sum(sizes))
    assert set(chosen) <= set(chain(*sources))
    assert draw_rows(sources, count + 1, seed)[: len(chosen)] == chosen
    drawn = [sum(row in rows for row in chosen) for rows in sources]
    left = [number for number, (size, found) in enumerate(zip(sizes, drawn, strict=True)) if found < size]
    assert all(drawn[number] >= max(drawn) - 1 for number in left)


@pytest.mark.parametrize(
    "text", ["river", "the river", " the", "er", "people quickly", "语言", "学习 我们", "= {", "nowhere"]
)
def test_a_search_finds_the_rows_that_a_slow_one_finds(shards, text):
    expected = [row for row in range(len(shards)) if any(text in segment for segment in read_segments(shards, row))]
    assert list(find_text(shards, text)) == expected
    assert choose_rows(shards, RowChoice(count=3, text=text)) == expected[:3]


def test_a_search_crosses_no_segment_and_no_row(tmp_path):
    ids = [get_tokenizer().encode([word])[0].tolist() for word in ("river", "mountain")]
    shards = open_shards(write_folder(tmp_path, {"train": [no_rows(), make_examples([ids] * 3, SMALL)]}))
    assert list(find_text(shards, "river mountain")) == []
    assert list(find_text(shards, "mountain")) == [0, 1, 2]


def test_a_search_finds_masked_text_and_text_in_bytes(tmp_path):
    sentence = get_tokenizer().encode(["naïve Ж"])[0].tolist()
    shards = open_shards(write_folder(tmp_path, {"train": [make_examples([[sentence] * 4] * 9, SMALL)]}))
    assert sum(len(shards[row].masked_positions) for row in range(len(shards)))
    assert list(find_text(shards, "naïve Ж")) == list(range(len(shards)))


def test_a_search_finds_text_in_another_form_of_unicode(tmp_path):
    composed, apart = (get_tokenizer().encode([f"na{letter}ve river"])[0].tolist() for letter in ("ï", "i\u0308"))
    assert composed != apart
    for number, sentence in enumerate((composed, apart)):
        rows = make_examples([[sentence] * 4] * 2, SMALL)
        shards = open_shards(write_folder(tmp_path / str(number), {"train": [rows]}))
        for text in ("naïve r", "nai\u0308ve r"):
            assert list(find_text(shards, text)) == list(range(len(rows)))
        assert not list(find_text(shards, "naive"))


def test_an_empty_text_is_refused(shards):
    with pytest.raises(ConfigError, match="text to look for is empty"):
        RowChoice(count=1, text="  ")


def test_rows_given_by_number_come_in_that_order_and_once(shards):
    assert choose_rows(shards, RowChoice(count=1, numbers=(7, 2, 7))) == [7, 2]
    with pytest.raises(ShardError, match=f"has no row 999; it has {len(shards)} rows"):
        choose_rows(shards, RowChoice(count=1, numbers=(0, 999)))


def test_the_options_reach_the_choice(built, shards):
    assert shown(built, "--row", 7, "--row", 2) == ["7", "2"]
    found = [str(row) for row in choose_rows(shards, RowChoice(count=2, text="river"))]
    assert shown(built, "--grep", "river", "-n", 2) == found
    assert "train has no such row." in page(built, "--grep", "no\x1bwhere")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--row", "1", "--grep", "a"], "--row already says which rows; leave out --grep"),
        (["--row", "1", "-n", "3"], "--row already says which rows; leave out --num-examples"),
        (["--row", "1", "--seed", "0"], "--row already says which rows; leave out --seed"),
        (["--grep", "a", "--seed", "1"], "--grep shows the first rows that contain the text; leave out --seed"),
        (["--row", "-1"], "-1 is not in the range"),
    ],
)
def test_options_that_contradict_each_other_are_a_usage_error(built, arguments, message):
    result = CliRunner().invoke(cli, ["inspect", str(built), *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
