"""The audit finds pages and tables in the text of rows, and none in prose with years, capitals and footnotes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from paged_books import PARAGRAPHS, paginate

from albert_data.config import BuildConfig, VocabConfig
from albert_data.inspect.audit.audit import audit_folder
from albert_data.inspect.audit.row_texts import find_furniture, find_table
from albert_data.inspect.audit.rules import BAD, OK, Check
from albert_data.pipeline.build import build
from albert_data.vocab.learning import train_vocab


@pytest.mark.parametrize(
    "text",
    [
        "his acquaintance with - 203 - 204 BLEAK HOUSE. the lady",
        "he said, 12 THE WAY WE LIVE NOW and went",
        "so that MIDDLEMARCH 77 he could",
        "one of the – 5 – many",
    ],
)
def test_pages_inside_a_sentence_are_found(text: str):
    assert find_furniture(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "in 1999 NASA was there, and in 1914 it was not",
        "He came. 204 BLEAK HOUSE. Then he went.",
        "said by Smith [12] and others 13 times",
        "the UNITED STATES of AMERICA were",
        "pages 3 - 4 of it, the years 1914-1918 and so on",
    ],
)
def test_numbers_and_capitals_of_prose_are_not(text: str):
    assert find_furniture(text) is None


def test_a_table_is_a_text_of_which_half_of_the_words_are_numbers():
    assert find_table("a 1 " * 10) == "a 1 a 1 a 1 a 1 a 1"
    assert find_table("a 1 " * 9) is None
    assert find_table("a 1 " * 10 + "b") is None


def audit(folder: Path, text: str, **settings: object) -> dict[str, Check]:
    (folder / "in.txt").write_text(text)
    train_vocab(folder / "in.txt", folder / "vocab", config=VocabConfig(vocab_size=130), workers=1)
    config = BuildConfig.from_settings(max_seq_len=64, documents="file", validation_fraction=0.0, **settings)
    build(folder / "in.txt", folder / "out", tokenizer=folder / "vocab", config=config, workers=1)
    return {check.rule.name: check for check in audit_folder(folder / "out").checks}


def test_a_book_with_its_pages_is_bad_until_it_is_unwrapped(tmp_path: Path):
    text, _ = paginate("dashes and a head")
    for name, settings, verdict in (("as it is", {}, BAD), ("unwrapped", {"unwrap": True}, OK)):
        (tmp_path / name).mkdir()
        check = audit(tmp_path / name, text, **settings)["page_furniture"]
        assert check.verdict == verdict, check.finding


def test_tables_are_bad(tmp_path: Path):
    rng = random.Random(0)
    lines = [" ".join(str(rng.randrange(100)) for _ in range(25)) for _ in range(60)]
    check = audit(tmp_path, "\n".join([*PARAGRAPHS, *lines]))["number_tables"]
    assert check.verdict == BAD
    assert check.details["examples"]
