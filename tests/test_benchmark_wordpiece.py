"""The benchmark of WordPiece compares ids and rates, and finds a difference where there is one."""

from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner
from toy_language import make_sentences
from wordpiece_fixtures import write_vocab

from albert_data.tokenizer.model import load_tokenizer
from benchmarks import wordpiece


def test_wordpiece_is_compared_and_a_planted_difference_is_found(tmp_path: Path):
    corpus = tmp_path / "en.jsonl"
    corpus.write_text(json.dumps({"text": "\n".join(make_sentences(1200, seed=0))}) + "\n", encoding="utf-8")
    vocab = write_vocab(tmp_path, do_lower_case=True)
    arguments = [str(corpus), "--vocab", str(vocab), "--runs", "1", "--random-strings", "50"]
    result = CliRunner().invoke(wordpiece.main, arguments)
    assert result.exit_code == 0, result.output
    assert "en.jsonl: 0 of 1,200 lines differ" in result.output
    assert "random strings: 0 of 50 lines differ" in result.output
    for name in ("WordPiece, table cold", "WordPiece, table warm", "tokenizers"):
        assert re.search(rf"{name}: [\d.]+ MB/s", result.output)
    reference = wordpiece.load_reference(load_tokenizer(write_vocab(tmp_path / "cased", do_lower_case=False)))
    lines = ["the river", "The river"]
    assert list(wordpiece.find_differences(load_tokenizer(vocab), reference, lines)) == ["The river"]
