"""Divided text: what stands between words is removed, and the rows are those of text that was never divided."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from build_fixtures import digest_shards, run_build
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from toy_language import CHINESE, make_sentences
from wordpiece_fixtures import write_vocab

from albert_data.clean.documents import clean_documents
from albert_data.clean.separators import remove_separators
from albert_data.cli.main import cli
from albert_data.config import TextConfig
from albert_data.corpus.blocks import RECORDS, Block, Origin
from albert_data.corpus.damage import Damage
from albert_data.errors import ConfigError
from albert_data.tokenizer.model import load_tokenizer

UNSPACED = "中文𠀀かタก。，（"
SPACED = "abé1.,“–\n"


def remove_slowly(text: str, separator: str) -> str:
    """The slow reference: white space goes beside a character without spaces, any other separator everywhere."""
    if separator.isspace():
        runs = r"(?<!\s)[^\S\n]+(?!\s)"
        return re.sub(rf"(?<=[{UNSPACED}]){runs}|(?<=.){runs}(?=[{UNSPACED}])", "", text)
    return re.sub(f"(?:{re.escape(separator)})+", "", text)


@given(
    st.lists(st.text(st.sampled_from([*UNSPACED, *SPACED, " ", "|", "\u3000", "\u200b"]), max_size=12), max_size=4),
    st.sampled_from([" ", "|", "\u3000", "\u200b", " | ", "  "]),
)
def test_separators_go_as_in_the_slow_reference_and_documents_end_where_they_did(texts, separator):
    documents = [text + "\n" for text in ("first", *texts)]
    ends = np.cumsum([len(document.encode()) for document in documents], dtype=np.int64)
    data, found = remove_separators("".join(documents).encode(), ends, separator)
    expected = [remove_slowly(document, separator) for document in documents]
    assert [data[begin:end].decode() for begin, end in itertools.pairwise([0, *found.tolist()])] == expected


def test_words_of_scripts_with_spaces_keep_theirs():
    data, _ = remove_separators("我 用 New York 地图 ， 2024 年 。".encode(), np.zeros(0, np.int64), " ")
    assert data.decode() == "我用New York地图，2024年。"


@pytest.mark.parametrize("languages", [None, (1, 2, 3, 4)])
def test_a_document_of_separators_alone_is_dropped_with_its_language(languages):
    data = b"one|\n||\nt|wo\nthree\n"
    block = Block(data, Origin("", RECORDS), ends=(5, 8, 13, 19), source_codes=languages)
    lines = clean_documents(block, TextConfig(word_separator="|"), Damage())
    assert bytes(lines.utf8) == b"one\ntwo\nthree\n"
    assert lines.document_offsets.tolist() == [0, 1, 2, 3]
    codes = lines.columns.source_codes
    assert (codes is None) if languages is None else codes.tolist() == [1, 3, 4]


@pytest.mark.parametrize("separator", ["", "\n", " \n", "a", "space", "2", "\u2028", "\ud800"])
def test_a_separator_that_can_be_none_is_refused(separator):
    with pytest.raises(ConfigError, match="give what stands between words|is not valid UTF-8"):
        TextConfig(word_separator=separator)


@pytest.fixture(scope="module")
def sentences() -> list[list[str]]:
    """Chinese sentences, divided into words, between English ones."""
    divide = re.compile("|".join(sorted(CHINESE.split(), key=len, reverse=True)) + "|[!-~ ]+|.")
    return [divide.findall(sentence) for sentence in make_sentences(200, seed=5)]


def write(folder: Path, sentences: list[list[str]], separator: str) -> Path:
    """Ten documents, half of them as lines of JSON."""
    folder.mkdir()
    lines = [separator.join(words) for words in sentences]
    documents = ["\n".join(lines[at : at + 20]) for at in range(0, len(lines), 20)]
    (folder / "a.txt").write_text("\n\n".join(documents[:5]), encoding="utf-8")
    (folder / "b.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents[5:]))
    return folder


@pytest.mark.parametrize("separator", [" ", "|"])
def test_divided_text_makes_the_rows_of_undivided_text(tmp_path, sentences, separator):
    write_vocab(tmp_path / "vocab")
    tokenizer = load_tokenizer(tmp_path / "vocab")
    run_build(write(tmp_path / "plain", sentences, ""), tmp_path / "expected", tokenizer, max_seq_len=64)
    divided = write(tmp_path / "divided", sentences, separator)
    run_build(divided, tmp_path / "out", tokenizer, max_seq_len=64, word_separator=separator)
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "expected")
    assert json.loads((tmp_path / "out/manifest.json").read_text())["config"]["word_separator"] == separator


def test_the_command_line_shows_the_separator_in_quotes(tmp_path, sentences):
    corpus = str(write(tmp_path / "in", sentences, " "))
    plan = ["build", corpus, "-o", str(tmp_path / "out"), "--dry-run"]
    assert "word_separator=' '" in CliRunner().invoke(cli, [*plan, "--word-separator", " "]).stdout
    assert "word_separator=none" in CliRunner().invoke(cli, plan).stdout
