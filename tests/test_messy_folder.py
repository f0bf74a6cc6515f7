"""A folder of seven languages, each with faults of its own, is read whole, and each language is judged by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from messy_folder import make_texts, write_messy_folder

from albert_data import Source
from albert_data.cli.main import run
from albert_data.inspect.audit.audit import audit_folder
from albert_data.library.building import build, train_vocab

TEXTS = make_texts()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("messy") / "in"
    write_messy_folder(path, TEXTS)
    return path


def test_every_document_of_every_language_is_read_by_the_options_that_its_files_need(folder, tmp_path):
    how: dict[str, dict[str, Any]] = {
        "yo": {"document_rule": "file", "unwrap": True},
        "de": {"document_rule": "file"},
        "ne": {"text_field": "data.content.paragraphs"},
        "ka": {"text_field": "ტექსტი"},
        "my": {"document_rule": "line"},
        "ti": {"document_separator": "<|endoftext|>"},
    }
    sources = [
        Source(name=name, inputs=str(folder / name), language=name, **how.get(name, {})) for name in [*TEXTS, "el"]
    ]
    settings: dict[str, Any] = {"sources": sources, "encoding": "auto", "unicode": "nfc", "workers": 1}
    train_vocab(output=tmp_path / "vocab", vocab_size=1500, **settings)
    report = build(output=tmp_path / "out", tokenizer=str(tmp_path / "vocab"), max_seq_len=128, **settings)
    assert not report.manifest.damage
    made = {one.name: one.num_used_documents for one in report.manifest.mixture or ()}
    num = len(TEXTS["de"])
    # Copies in NFD go; near copies stay. Of pages in Myanmar the head, the number and the text are a line each.
    assert made == {"yo": num, "de": num, "bg": num, "ne": num, "ka": num, "my": 2 * num + 1, "ti": num + 4, "el": 1}
    audit = audit_folder(tmp_path / "out")
    assert [one.name for one in audit.by_source if one.is_small] == ["el"]
    assert audit.by_source[0].name == "my"  # heads and numbers of pages are documents of a few tokens
    (check,) = (check for check in audit.checks if check.rule.name == "rows_without_task")
    assert "worst is source my" in check.finding


def test_without_options_what_is_not_read_stops_the_command_or_is_said(folder, tmp_path, capsys):
    assert run(["build", str(folder), "-o", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    for text in ("not UTF-8: it looks like cp1252", "--encoding auto", 'without the field "text"', "--text-field"):
        assert text in said
    options = ["--encoding", "auto", "--text-field", "text,ტექსტი,data.content.paragraphs", "--dry-run", "--json"]
    assert run(["build", str(folder), "-o", str(tmp_path / "out"), *options]) == 0
    printed = capsys.readouterr()
    assert "<|endoftext|> stands in the text: pass --document-separator '<|endoftext|>'" in printed.err
    assert json.loads(printed.out)["inputs"]["num_unsplit"] >= 1
