"""Word lists in builds: masks of listed words, the file beside the tokenizer, and what else must agree with it."""

from __future__ import annotations

import importlib.util
import pickle
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from build_fixtures import digest_shards, run_build, write_corpus
from click.testing import CliRunner
from refusals import check_refused
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
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.train.data.remasking import Remasker

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
    assert found.num_broken_words == 0
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
    assert [path.name for path in (out / "tokenizer").iterdir()] == ["tokenizer.json"]
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
