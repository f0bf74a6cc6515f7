"""Words of languages without spaces, by a word list, and builds with one: masks, the file beside the tokenizer."""

from __future__ import annotations

import importlib.util
import math
import pickle
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from build_fixtures import digest_shards, run_build, write_corpus
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused, refused
from toy_language import CHINESE, make_sentences
from wordpiece_fixtures import write_vocab

from albert_data import open_shards
from albert_data.cli.main import cli
from albert_data.data import Examples
from albert_data.errors import ConfigError, OutputError, ShardError, TokenizerError
from albert_data.inspect.statistics import measure
from albert_data.inspect.verify import verify
from albert_data.library.building import build
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.tokenizer.lexicon import match_words, parse_words
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE
from albert_data.tokenizer.words import WordRule, find_word_starts
from albert_data.train.loader import Remasker

LETTERS = "中国人北京"


def divide(text: str, frequencies: dict[str, float]) -> list[str]:
    """The slow reference: of all divisions into words the likeliest; of equal ones that with the longest first word."""
    total = math.log(sum(frequencies.values()))
    best: list[tuple[float, int]] = [(0.0, 0)] * (len(text) + 1)
    for start in reversed(range(len(text))):
        ends = [end for end in range(start + 1, len(text) + 1) if text[start:end] in frequencies]
        if ends:
            best[start] = max((math.log(frequencies[text[start:end]]) - total + best[end][0], end) for end in ends)
        else:
            best[start] = -total + best[start + 1][0], start + 1
    words, start = [], 0
    while start < len(text):
        end = best[start][1]
        words.append(text[start:end])
        start = end
    return words


def find_starts(pieces: list[str], frequencies: dict[str, float]) -> list[bool]:
    rule = WordRule.from_pieces(pieces)
    rule = WordRule(
        starts=rule.starts, standalone=rule.standalone, lexicon=match_words(pieces, frequencies, lambda word: word)
    )
    return find_word_starts(np.arange(len(pieces)), rule).tolist()


words = st.text(LETTERS, min_size=1, max_size=4)


@given(
    st.lists(words, min_size=1, max_size=12),
    st.dictionaries(words, st.sampled_from([1.0, 1.0, 2.0, 7.0, 1000.0]), min_size=1),
)
def test_a_word_begins_where_a_piece_and_a_word_of_the_likeliest_division_begin(pieces, frequencies):
    ends = np.cumsum([len(word) for word in divide("".join(pieces), frequencies)]).tolist()
    begins = np.cumsum([0, *map(len, pieces)])[:-1].tolist()
    assert find_starts(pieces, frequencies) == [begin in {0, *ends} for begin in begins]


@pytest.mark.parametrize(
    ("pieces", "frequencies", "expected"),
    [
        (list("中国北京人"), {"北京": 1, "京人": 1, "北京人": 1, "中国": 1}, "中国 北京人"),  # as few words as possible
        (list("中国人"), {"中国": 1, "国人": 1}, "中国 人"),  # of equal divisions that with the longest first word
        (["中", "国人", "北"], {"中国": 1, "人北": 1}, "中国人北"),  # a piece of two words belongs to both
        (["ภา", "ษา", "ไทย"], {"ภาษา": 1, "ไทย": 1}, "ภาษา ไทย"),
        # Words do not cross what is not in a script without spaces.
        (
            ["中", "[SEP]", "国", ",", "人", VISIBLE_SPACE + "北", "京", "a", "中", "国"],
            {"中国": 1, "国人": 1, "人北": 1, "北京": 1},
            f"中 [SEP] 国 , 人 {VISIBLE_SPACE}北京 a 中国",
        ),
    ],
)
def test_the_words_of_literal_pieces(pieces, frequencies, expected):
    found = zip(find_starts(pieces, frequencies), pieces, strict=True)
    assert "".join(" " * begins + piece for begins, piece in found).strip() == expected


def test_words_are_matched_as_the_tokenizer_normalises_them():
    rule = match_words(["中", "国"], {"中國": 1}, lambda word: word.replace("國", "国"))
    assert rule.find_joined(np.array([0, 1, 1, 0])).tolist() == [False, True, False, False]
    assert rule.find_joined(np.zeros(0, np.uint16)).tolist() == []


def test_a_word_list_has_a_word_and_perhaps_its_frequency_on_a_line():
    content = "\ufeff中国 3 ns\n\n北京\t2.5\n中国 1\r\n人\n".encode()
    assert parse_words(content, "words.txt") == {"中国": 4.0, "北京": 2.5, "人": 1.0}


@refused(
    (b"", TokenizerError, "words.txt has no words"),
    ("中国 often".encode(), TokenizerError, "words.txt & line 1 has 'often' after the word"),
    ("人\n中国 0".encode(), TokenizerError, "line 2 has '0' after the word"),
    ("中国 nan".encode(), TokenizerError, "line 1 has 'nan'"),
    ("中国 inf".encode(), TokenizerError, "line 1 has 'inf'"),
    ("人\n".encode() + "中国".encode("gb18030"), TokenizerError, "line 2 is not UTF-8"),
)
def test_a_damaged_word_list_is_an_error_that_names_the_line(call, kind, named):
    check_refused(lambda: parse_words(call, "words.txt"), kind, named)


def test_a_word_list_of_a_language_with_spaces_is_an_error():
    check_refused(lambda: match_words(["a"], {"house": 1, "T恤": 1}, str), TokenizerError, "script without spaces")


LISTED = [word for word in CHINESE.split() if len(word) > 1]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A vocabulary whose ideographs are pieces of their own, a word list, and documents."""
    folder = tmp_path_factory.mktemp("inputs")
    write_vocab(folder / "vocab")
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in LISTED), encoding="utf-8")
    sentences = list(make_sentences(400, seed=5))
    documents = ["\n".join(sentences[at : at + 20]) for at in range(0, 400, 20)]
    write_corpus(folder / "in", documents, "txt", random.Random(0))
    return folder


def load(inputs: Path) -> Tokenizer:
    return load_tokenizer(inputs / "vocab", words=inputs / "words.txt")


@pytest.fixture(scope="module")
def built(inputs: Path) -> Path:
    run_build(inputs / "in", inputs / "out", load(inputs), max_seq_len=64)
    return inputs / "out"


def find_joined(ids: np.ndarray, pieces: list[str]) -> Iterator[tuple[int, int]]:
    """The slow reference: places of neighbours that are a listed word. No two of these words overlap in the corpus."""
    for at in range(len(ids) - 1):
        if pieces[ids[at]] + pieces[ids[at + 1]] in LISTED:
            yield at, at + 1


def count_joined(examples: Examples, shards: Shards) -> int:
    """Assert that both characters of each listed word are masked or neither is. Returns the number of masked words."""
    ids, is_masked = restore_ids(examples), np.zeros(len(examples.input_ids), bool)
    for row in range(len(examples)):
        masks = slice(*examples.mask_offsets[row : row + 2])
        is_masked[examples.offsets[row] + examples.masked_positions[masks].astype(int)] = True
    pairs = list(find_joined(ids, shards.tokenizer.pieces))
    assert all(is_masked[first] == is_masked[second] for first, second in pairs)
    return sum(bool(is_masked[first]) for first, _ in pairs)


def test_listed_words_are_masked_whole_and_also_in_later_epochs(built):
    shards = open_shards(built)
    rows = np.arange(len(shards))
    examples = shards.rows(rows)
    assert count_joined(examples, shards) > 40
    again = Remasker(shards.manifest, shards.tokenizer, seed=1)(examples, rows, 2)
    assert not np.array_equal(again.masked_positions, examples.masked_positions)
    assert count_joined(again, shards) > 40


def test_shards_with_a_word_list_are_sound_and_their_spans_are_as_intended(built):
    assert list(verify(built)) == []
    found = measure(open_shards(built))
    assert found.span_lens[3] == 0  # none is longer than three words


def test_a_word_list_changes_masks_alone(inputs, built, tmp_path):
    run_build(inputs / "in", tmp_path / "out", load_tokenizer(inputs / "vocab"), max_seq_len=64)
    listed, plain = (open_shards(folder).rows(range(len(open_shards(folder)))) for folder in (built, tmp_path / "out"))
    assert np.array_equal(restore_ids(listed), restore_ids(plain))
    assert not np.array_equal(listed.masked_positions, plain.masked_positions)


def test_the_list_lies_beside_the_tokenizer_and_is_all_that_readers_need(inputs, built):
    assert (built / "tokenizer" / "words.txt").read_bytes() == (inputs / "words.txt").read_bytes()
    tokenizer = open_shards(built).tokenizer
    assert tokenizer.words_sha256 == open_shards(built).manifest.words.sha256
    assert pickle.loads(pickle.dumps(tokenizer)).words == tokenizer.words


def test_a_changed_list_is_an_error_and_a_fault(built, tmp_path):
    copied = shutil.copytree(built, tmp_path / "out")
    (copied / "tokenizer" / "words.txt").write_text("中国\n")
    with pytest.raises(ShardError, match="word list .* is another one than at the build"):
        open_shards(copied).tokenizer  # noqa: B018 - the property loads it
    assert "tokenizer/words.txt" in {fault.file for fault in verify(copied)}
    (copied / "tokenizer" / "words.txt").unlink()
    assert "tokenizer/words.txt" in {fault.file for fault in verify(copied)}


def test_another_list_is_another_build_and_a_build_without_one_leaves_none_behind(inputs, built, tmp_path):
    out, plain = shutil.copytree(built, tmp_path / "out"), load_tokenizer(inputs / "vocab")
    with pytest.raises(OutputError, match="the tokenizer differs, or its word list"):
        run_build(inputs / "in", out, plain, max_seq_len=64)
    run_build(inputs / "in", out, plain, overwrite=True, max_seq_len=64)
    assert {path.name for path in (out / "tokenizer").iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    run_build(inputs / "in", out, load(inputs), overwrite=True, max_seq_len=64)
    assert digest_shards(out) == digest_shards(built)


def test_the_command_takes_a_list(inputs, tmp_path):
    command = ["build", str(inputs / "in"), "--tokenizer", str(inputs / "vocab"), "--max-seq-len", "64"]
    command += ["--words", str(inputs / "words.txt"), "-o", str(tmp_path / "out")]
    shown = CliRunner().invoke(cli, [*command, "--dry-run"])
    assert "pieces, and a word list" in shown.output
    assert CliRunner().invoke(cli, command).exit_code == 0
    assert (tmp_path / "out" / "tokenizer" / "words.txt").is_file()


def test_jieba_is_the_dictionary_of_the_installed_library(inputs, tmp_path, monkeypatch):
    (tmp_path / "jieba").mkdir()
    (tmp_path / "jieba" / "__init__.py").write_text("raise RuntimeError('nothing is imported')")
    (tmp_path / "jieba" / "dict.txt").write_text("中国 5 ns\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    assert load_tokenizer(inputs / "vocab", words="jieba").words == "中国 5 ns\n".encode()


def test_words_that_cannot_be_used_are_errors(inputs, tmp_path, monkeypatch):
    def check(words: str, named: str) -> None:
        check_refused(lambda: load_tokenizer(inputs / "vocab", words=words), TokenizerError, named)

    with (tmp_path / "large.txt").open("wb") as file:
        file.truncate((32 << 20) + 1)
    (tmp_path / "house.txt").write_text("house\n")
    check(f"{tmp_path}/missing.txt", "word list & missing.txt can't be read")
    check(f"{tmp_path}/large.txt", "word list & large.txt can't be read: it has 33,554,433 bytes; at most")
    check(f"{tmp_path}/house.txt", "spell no word & without spaces, & a line is a word, or a word")
    with pytest.raises(ConfigError, match="a word list is for masks of whole words"):
        run_build(inputs / "in", tmp_path / "out", load(inputs), whole_word=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check("jieba", "pip install 'albert-data[jieba]'")
    with pytest.raises(ConfigError, match="a word list needs a tokenizer"):
        build(inputs / "in", tmp_path / "other", words="jieba")
