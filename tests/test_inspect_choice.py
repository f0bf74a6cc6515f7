"""The rows that are shown are the chosen ones: by number, by label, by text, or drawn at random."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_fixtures import SMALL, get_tokenizer, make_examples, write_folder, write_small

from albert_data.cli.main import run
from albert_data.errors import ConfigError, ShardError
from albert_data.inspect.choice import RowChoice, choose_rows, draw_rows, find_text
from albert_data.shards.reader import Shards, open_shards


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return write_small(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def shards(built) -> Shards:
    return open_shards(built)


def read_segments(shards: Shards, row: int) -> list[str]:
    """The text of a row before masking, byte pieces aside."""
    example = shards[row]
    ids, sep = example.original_ids, 1 + example.segment_a_len
    pieces = shards.tokenizer.pieces
    return ["".join(pieces[i] for i in part).replace("▁", " ") for part in (ids[1:sep], ids[sep + 1 : -1])]


@given(num_rows=st.integers(0, 50), count=st.integers(0, 60), seed=st.integers(0, 99))
def test_fewer_rows_are_the_first_of_more_rows(num_rows, count, seed) -> None:
    chosen = draw_rows(num_rows, count, seed)
    assert len(set(chosen)) == len(chosen) == min(count, num_rows)
    assert set(chosen) <= set(range(num_rows))
    assert draw_rows(num_rows, count + 1, seed)[: len(chosen)] == chosen


@given(
    text=st.sampled_from(["river", "the river", " the", "er", "people quickly", "语言", "学习 我们", "= {", "nowhere"]),
    label=st.sampled_from([None, 0, 1, -1]),
)
def test_a_search_finds_the_rows_that_a_slow_one_finds(shards, text, label) -> None:
    expected = [
        row
        for row in range(len(shards))
        if any(text in segment for segment in read_segments(shards, row)) and label in (None, shards[row].sop_label)
    ]
    assert list(find_text(shards, text, label)) == expected
    assert choose_rows(shards, RowChoice(count=3, text=text, label=label)) == expected[:3]


def test_a_search_crosses_no_segment_and_no_row(tmp_path) -> None:
    ids = [get_tokenizer().encode([word])[0].tolist() for word in ("river", "mountain")]
    shards = open_shards(write_folder(tmp_path, {"train": [make_examples([ids] * 3, SMALL)]}))
    assert list(find_text(shards, "river mountain")) == []
    assert list(find_text(shards, "mountain")) == [0, 1, 2]


def test_a_search_finds_masked_text_and_text_in_bytes(tmp_path) -> None:
    sentence = get_tokenizer().encode(["naïve Ж"])[0].tolist()
    shards = open_shards(write_folder(tmp_path, {"train": [make_examples([[sentence] * 4] * 9, SMALL)]}))
    assert sum(len(shards[row].masked_positions) for row in range(len(shards)))
    assert list(find_text(shards, "naïve Ж")) == list(range(len(shards)))


def test_an_empty_text_is_refused(shards) -> None:
    with pytest.raises(ConfigError, match="text to look for is empty"):
        RowChoice(count=1, text="  ")


def test_rows_of_one_label_are_drawn_from_all_of_them(shards) -> None:
    for label in (0, 1, -1):
        rows = choose_rows(shards, RowChoice(count=10_000, label=label))
        assert sorted(rows) == [row for row in range(len(shards)) if shards[row].sop_label == label]
        assert choose_rows(shards, RowChoice(count=1, label=label)) == rows[:1]


def test_rows_given_by_number_come_in_that_order_and_once(shards) -> None:
    assert choose_rows(shards, RowChoice(count=1, numbers=(7, 2, 7))) == [7, 2]
    with pytest.raises(ShardError, match=f"has no row 999; it has {len(shards)} rows"):
        choose_rows(shards, RowChoice(count=1, numbers=(0, 999)))


def shown(capsys, *arguments: object) -> list[str]:
    assert run(["inspect", *map(str, arguments)]) == 0
    return re.findall(r"^row ([\d,]+):", capsys.readouterr().out, re.MULTILINE)


def test_the_options_reach_the_choice(built, shards, capsys) -> None:
    assert shown(capsys, built, "--row", 7, "--row", 2) == ["7", "2"]
    swapped = [str(row) for row in choose_rows(shards, RowChoice(count=4, label=1))]
    assert shown(capsys, built, "--label", "swapped", "-n", 4) == swapped
    found = [str(row) for row in choose_rows(shards, RowChoice(count=2, text="river", label=0))]
    assert shown(capsys, built, "--grep", "river", "--label", "in-order", "-n", 2) == found


def test_random_shows_other_rows_at_each_call(built, capsys) -> None:
    assert len({tuple(shown(capsys, built, "--random", "-n", 6)) for _ in range(4)}) == 4


def test_a_text_that_no_row_has_is_reported(built, capsys) -> None:
    assert run(["inspect", str(built), "--grep", "no\x1bwhere", "--label", "swapped"]) == 0
    assert "train has no row that holds 'no\\x1bwhere' and is swapped." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--row", "1", "--grep", "a"], "--row already says which rows; leave out --grep"),
        (["--row", "1", "--random", "--label", "swapped"], "leave out --label and --random"),
        (["--row", "1", "-n", "3"], "--row already says which rows; leave out --num-examples"),
        (["--row", "1", "--seed", "0"], "--row already says which rows; leave out --seed"),
        (["--random", "--seed", "0"], "--random draws other rows each time; leave out --seed"),
        (["--grep", "a", "--seed", "1"], "--grep shows the first rows that contain the text; leave out --seed"),
        (["--grep", "a", "--random"], "--grep shows the first rows that contain the text; leave out --random"),
        (["--row", "-1"], "-1 is not in the range"),
    ],
)
def test_options_that_contradict_each_other_are_a_usage_error(built, capsys, arguments, message) -> None:
    assert run(["inspect", str(built), *arguments]) == 2
    assert message in capsys.readouterr().err
