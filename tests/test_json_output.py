"""--json prints one object on stdout and nothing else, and its keys are those of a list."""

from __future__ import annotations

import json
import os
from pathlib import Path

import json_keys
import pytest

import albert_data
from albert_data.cli.main import run
from albert_data.text.output import show_json

LIST = Path(__file__).parent / "json_keys.txt"


def test_the_keys_of_json_output_are_those_of_the_list():
    pytest.importorskip("torch", reason="the train extra is not installed")
    recorded, found = LIST.read_text(encoding="utf-8").splitlines(), json_keys.render().splitlines()
    assert recorded == found, "a key that goes away or changes breaks scripts; if one is new, run `make docs`"


def test_what_json_lacks_is_null(capsys):
    show_json({"a": [float("nan"), -float("inf"), 1.5], "b": {"c": float("inf")}})
    assert json.loads(capsys.readouterr().out) == {"a": [None, None, 1.5], "b": {"c": None}}


def test_a_build_prints_what_its_report_has_and_notes_go_to_stderr(here, capsys):
    (here / "corpus.txt").write_bytes((here / "corpus.txt").read_bytes() + b"\n\nBad \xff byte.\n")
    command = ["build", "corpus.txt", "--tokenizer", "model.model", "-o", "out", "--json"]
    assert run(command) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert "tokenising" in shown.err
    assert (found["was_finished"], found["damage"]) == (False, {"invalid_utf8": 1})
    assert run(command) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == albert_data.build("corpus.txt", "out", tokenizer="model.model").to_dict()
    assert (again["was_finished"], again["stage_seconds"]) == (True, {})
    changing = ("was_finished", "seconds", "stage_seconds")
    assert {**again, **{key: found[key] for key in changing}} == found


def test_a_dry_run_without_a_tokenizer_has_no_estimate(here, capsys):
    assert run(["build", "corpus.txt", "-o", "out", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["vocab_size"], found["estimate"], found["inputs"]["num_plain_files"]) == (None, None, 1)
    assert not Path("out").exists()


def test_verify_prints_faults_in_the_object_and_ends_with_1(here, capsys):
    folder = Path(os.fsdecode(b"out-\xff"))
    albert_data.build("corpus.txt", folder, tokenizer="model.model")
    shard = next((folder / "train").glob("*.arrow"))
    shard.write_bytes(shard.read_bytes()[:-1])
    assert run(["verify", str(folder), "--quick", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["folder"], found["counts"]) == ("out-\\udcff", None)
    (fault,) = found["faults"]
    assert fault.keys() == {"file", "what", "row"}
    assert fault["file"] == f"train/{shard.name}"


@pytest.mark.parametrize("command", ["verify none", "build none.txt -o out", "convert none -o out --to mds"])
def test_an_error_leaves_stdout_empty(here, capsys, command):
    assert run([*command.split(), "--json"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("Error: ")
