"""`inspect` lists the scripts of a text that has more than one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner
from inspect_fixtures import get_tokenizer, write_small

from albert_data.cli.main import cli
from albert_data.inspect.report import tabulate_scripts
from albert_data.inspect.statistics import choose_scripts, count_scripts, measure
from albert_data.shards.reader import open_shards
from albert_data.wording import format_share

PIECES = ["<unk>", "[CLS]", "<0xE2>", "▁the", "é", "我们", "мир", "aб", ".", "▁", "12"]


def test_letters_and_tokens_are_counted_by_script():
    counts = count_scripts([9, 9, 9, 10, 2, 5, 1, 1, 50, 50, 50], PIECES)
    found = {one.script: (one.num_letters, one.num_tokens) for one in counts}
    assert found == {"Latin": (33, 13), "Cjk": (10, 5), "Cyrillic": (4, 1)}
    assert [one.script for one in counts] == ["Latin", "Cjk", "Cyrillic"]
    assert sum(one.share for one in counts) == 1


def test_one_script_and_a_few_loans_need_no_table():
    one = count_scripts([0, 0, 0, 100, 0, 0, 0, 1, 0, 0, 0], PIECES)
    assert len(one) == 2
    assert choose_scripts(one) == []
    assert count_scripts([5] * 3 + [0] * 5 + [5] * 3, PIECES) == []
    assert count_scripts([5, 5], ["▁[UNK]", "▁<0xE4><0xB8>"]) == []


def test_both_scripts_of_a_text_are_counted(tmp_path: Path):
    folder = write_small(tmp_path)
    page = CliRunner().invoke(cli, ["inspect", str(folder), "-n", "0"]).stdout
    found = json.loads(CliRunner().invoke(cli, ["inspect", str(folder), "--json"]).stdout)["scripts"]
    assert [one["script"] for one in found["train"]] == ["Latin", "Cjk"]
    assert "Scripts of train" in page
    for one in found["train"]:
        assert f"{one['num_tokens']:,}" in page
        assert format_share(one["share"]) in page
    assert max(map(len, page.splitlines()[1:])) <= 80
    measured, pieces = measure(open_shards(folder)), get_tokenizer().pieces
    assert [row[0] for row in tabulate_scripts(measured, pieces)] == ["Latin", "Cjk"]
    alone = replace(measured, piece_counts=tuple(0 for _ in pieces))
    assert tabulate_scripts(alone, pieces) == []
