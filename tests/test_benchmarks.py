"""The benchmarks run on a corpus of one's own, find a difference where there is one, and report every figure."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest
from click.testing import CliRunner
from toy_language import chinese_sentence, english_sentence, make_sentences
from wordpiece_fixtures import write_vocab

from albert_data.tokenizer.model import load_tokenizer
from benchmarks import cluster, exactness, rivals, wordpiece
from benchmarks.estimate import estimate
from benchmarks.results import OURS, Measurement, Timing
from benchmarks.speed import main


@pytest.mark.slow
def test_a_run_trains_vocabularies_and_reports_every_figure(tmp_path, monkeypatch):
    names = ("unigram", "BPE", "unigram, user-defined symbols")
    monkeypatch.setattr(exactness, "MODELS", {name: exactness.MODELS[name] for name in names})
    monkeypatch.setattr(exactness, "MODELS_OF_LANGUAGES", {"unigram of the languages": {}})
    monkeypatch.setattr(rivals, "find_tokenizers", lambda tokenizer: (None, rivals.NOT_INSTALLED))
    english, chinese = tmp_path / "en.jsonl", tmp_path / "zh.jsonl"
    for path, sentence in ((english, english_sentence), (chinese, chinese_sentence)):
        text = "\n".join(sentence(random.Random(seed)) for seed in range(1200))
        path.write_text(json.dumps({"text": text}) + "\n", encoding="utf-8")
    few = ("--runs", 1, "--vocab-size", 300, "--random-strings", 500, "--work", tmp_path / "work")
    page = tmp_path / "speed.md"
    given = ("--english", english, "--chinese", chinese, "--languages", english, *few, "-o", page)
    done = CliRunner().invoke(main, [str(one) for one in (*given, "--only", "tokenising,exactness")])
    assert done.exit_code == 0, done.output
    text, parts = page.read_text(encoding="utf-8"), json.loads(page.with_suffix(".json").read_text())["parts"]
    for row in parts["tokenising"]["rows"]:
        assert f"| {row['work']} |" in text
    assert len(parts["tokenising"]["rows"]) == 8, "two corpora, a list and a buffer, the table cold and warm"
    for name in (*names, "vocabulary of English", "vocabulary of Chinese", "unigram of the languages"):
        assert f"| {name} |" in text
    rows = parts["exactness"]["rows"]
    assert len(rows) == 6 * 5, "six models, five texts"
    assert [row for row in rows if row["num_different"] != row["num_ties"]] == []
    assert rivals.NOT_INSTALLED in text
    assert str(tmp_path) not in text, "no folder of the machine"


def test_the_estimate_is_linear_times_what_was_lost():
    """One worker reads 10 MB a second, and two 15: three quarters of twice as much."""

    def row(rate: float, **figures: float) -> Measurement:
        timings = {OURS: Timing(num_bytes=int(rate * 1e6), seconds=(1.0,))}
        return Measurement(work="English prose", timings=timings, figures=figures)

    two, many = estimate(row(10, text_bytes=1e8, shard_bytes=5e7), [row(10, workers=1), row(15, workers=2)])
    assert (two.rate, many.rate) == (15.0, 64 * 10 * 0.75)
    assert many.minutes == pytest.approx(20_000 / 480 / 60)
    assert many.write_rate == many.rate, "half a byte a byte of text, twice"


def test_a_planted_difference_is_counted():
    model = exactness.train([english_sentence(random.Random(seed)) for seed in range(300)], {}, 150)
    planted = exactness.Tokenizer(model, "planted")
    encode = planted.encode

    def encode_wrongly(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        ids, offsets = encode(texts)
        ids[offsets[1]] += 1
        return ids, offsets

    planted.encode = encode_wrongly
    found = exactness.compare("planted", planted, "text", ["the of and", "river", "mountain"])
    assert (found.num_sentences, found.num_different, found.num_ties) == (3, 1, 0)
    assert "river" in found.examples[0]


class Scores:
    """Stands for a SentencePiece processor: ab + c and a + bc are worth the same, a + b + c is worth less."""

    pieces = {"▁": -1.0, "a": -2.0, "b": -9.0, "c": -3.0, "ab": -4.0, "bc": -5.0, "<unk>": 0.0}
    names = list(pieces)
    normalize = staticmethod(lambda text: "▁" + text)
    id_to_piece = staticmethod(names.__getitem__)
    get_piece_size = staticmethod(names.__len__)
    get_score = staticmethod(list(pieces.values()).__getitem__)
    is_unknown = staticmethod(lambda i: i == 6)
    is_control = is_unused = is_byte = staticmethod(lambda i: False)


def ids_of(*pieces: str) -> list[int]:
    return [Scores.names.index(piece) for piece in pieces]


def test_a_tie_is_two_ways_to_write_the_text_with_equal_scores():
    way = ids_of("▁", "ab", "c")
    assert exactness.is_tie(Scores(), "abc", way, ids_of("▁", "a", "bc"))
    assert not exactness.is_tie(Scores(), "abc", way, ids_of("▁", "a", "b", "c"))
    assert not exactness.is_tie(Scores(), "abc", way, ids_of("▁", "ab")), "it lacks the end"
    assert not exactness.is_tie(Scores(), "abc", way, ids_of("▁", "bc", "a")), "another text"
    unknown = ids_of("▁", "<unk>", "ab", "c")
    assert exactness.is_tie(Scores(), "??abc", unknown, ids_of("▁", "<unk>", "a", "bc"))
    assert exactness.sum_scores(Scores(), "▁??", ids_of("▁", "<unk>")) == {1: -1, 2: -20, 3: -39}


def test_wordpiece_is_compared_and_a_planted_difference_is_found(tmp_path):
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


@pytest.mark.slow
def test_a_simulation_of_a_cluster_prints_what_a_build_asks_for():
    result = CliRunner().invoke(cluster.main, ["--terabytes", "0.1", "--cpus", "10"])
    assert result.exit_code == 0, result.output
    assert "0.1 TB in 100 files" in result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert [row[0] for row in rows[3:10]] == ["map", "join", "merge", "find", "map", "join", "merge"]
    used = [float(part.rstrip("%")) for part in rows[-1] if part.endswith("%")]
    assert 50 < used[0] <= used[1] <= 100
