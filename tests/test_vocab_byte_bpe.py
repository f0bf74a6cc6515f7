"""`vocab --model-type byte-bpe`: equal bytes from equal text, a build that is fast, files that others read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from build_fixtures import digest_folder
from click.testing import CliRunner
from toy_language import make_sentences
from wordpiece_fixtures import SPECIALS, encode, encode_alone, tokenizers

from albert_data.cli.main import cli
from albert_data.config import VocabConfig
from albert_data.errors import ConfigError, OutputError, TokenizerError
from albert_data.library.building import train_vocab
from albert_data.tokenizer.model import load_tokenizer

BYTE_BPE = ["vocab", "--model-type", "byte-bpe", "--vocab-size", "500"]
ODD = "Ünïcode émigré ☃ 3.14 中国的中国人。 e\u0301t\u0323e\u0323\u0301 don't\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(ODD * 3 + "\n".join(make_sentences(600, seed=3)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(corpus: Path, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("vocab") / "out"
    result = CliRunner().invoke(cli, [*BYTE_BPE, str(corpus), "--workers", "1", "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert "none is lost: one without a piece is spelled by its bytes" in result.output
    return out


def test_the_folder_is_a_tokenizer_that_is_fast(folder: Path):
    assert {path.name for path in folder.iterdir()} == {"tokenizer.json", "tokenizer_config.json", "vocab.json"}
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.vocab_size, tokenizer.pieces[:5], tokenizer.slow_reason) == (500, SPECIALS, None)
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = [*make_sentences(50, seed=8), ODD, " the"]
    assert encode(tokenizer, texts) == encode_alone(backend, texts)
    ids = backend.encode("the river").ids
    assert ids == [tokenizer.cls_id, *encode(tokenizer, ["the river"])[0], tokenizer.sep_id]


def test_equal_text_gives_equal_bytes_in_any_process_and_order(corpus: Path, folder: Path, tmp_path: Path):
    lines = corpus.read_text(encoding="utf-8").split("\n")
    (tmp_path / "in").mkdir()
    for at in range(3):
        part = lines[at::3][::-1]
        (tmp_path / "in" / f"{at}.txt").write_text("\n".join(part), encoding="utf-8")
    command = [sys.executable, "-m", "albert_data", *BYTE_BPE, str(tmp_path / "in"), "--workers", "2"]
    environment = {**os.environ, "RAYON_NUM_THREADS": "3", "PYTHONHASHSEED": "3"}
    subprocess.run([*command, "-o", str(tmp_path / "out")], env=environment, check=True, capture_output=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes()


def test_transformers_loads_it(folder: Path):
    transformers = pytest.importorskip("transformers")
    found = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer = load_tokenizer(folder)
    assert found("the river").input_ids == [2, *encode(tokenizer, ["the river"])[0], 3]
    assert (found.pad_token, found.mask_token_id, found.cls_token_id) == ("[PAD]", 4, 2)
    assert found("the", "river").token_type_ids == [0] * (2 + len(encode(tokenizer, ["the"])[0])) + [1] * (
        1 + len(encode(tokenizer, ["river"])[0])
    )


def test_words_after_a_space_have_the_pieces(folder: Path):
    pieces = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert {"Ġthe", "Ġpeople"} <= pieces.keys()
    assert "The" not in pieces  # sentences begin with a space


def test_a_size_that_does_not_fit_is_one_line_with_the_size_that_does(corpus: Path, tmp_path: Path):
    for size, says in ((260, "is smaller than the 261"), (20_000, "the largest possible is")):
        config = VocabConfig(model_type="byte-bpe", vocab_size=size)
        with pytest.raises(TokenizerError, match=says):
            train_vocab([str(corpus)], tmp_path / "out", config=config, workers=1)


@pytest.mark.parametrize("settings", [{"dummy_prefix": True}, {"cased": False}, {"character_coverage": 0.99}])
def test_settings_of_other_types_are_refused(settings):
    with pytest.raises(ConfigError, match="byte-bpe keeps text as it is"):
        VocabConfig(model_type="byte-bpe", **settings)


def test_a_folder_of_another_kind_is_not_mixed_up(folder: Path, corpus: Path, tmp_path: Path):
    before = digest_folder(folder)
    config = VocabConfig(model_type="wordpiece", vocab_size=350)
    train_vocab([str(corpus)], tmp_path / "out", config=config, workers=1)
    for place, model_type in ((folder, "unigram"), (tmp_path / "out", "byte-bpe")):
        with pytest.raises(OutputError, match="is a vocabulary of another kind"):
            train_vocab([str(corpus)], place, config=VocabConfig(model_type=model_type, vocab_size=350), workers=1)
    assert digest_folder(folder) == before
