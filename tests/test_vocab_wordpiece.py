"""`vocab --model-type wordpiece`: equal bytes from equal text, the chosen characters, and files that are read."""

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
from wordpiece_fixtures import SPECIALS, encode, encode_alone, load_reference, tokenizers

from albert_data.cli.main import cli
from albert_data.config import VocabConfig
from albert_data.errors import ConfigError, OutputError, TokenizerError
from albert_data.library.building import train_vocab
from albert_data.tokenizer.model import load_tokenizer

WORDPIECE = ["vocab", "--model-type", "wordpiece"]
ODD = "Ünïcode émigré İzmir ☃ 3.14 中国﹐ ǅ ﬁne e\u0301t\u0323e\u0323\u0301\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(ODD * 3 + "\n".join(make_sentences(600, seed=3)), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=["--cased", "--uncased"])
def folder(request, corpus: Path, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("vocab") / "out"
    command = [*WORDPIECE, str(corpus), "--vocab-size", "350", request.param, "--workers", "1", "-o", str(out)]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    return out


def test_the_files_are_those_of_one_tokenizer(folder: Path):
    assert {path.name for path in folder.iterdir()} == {
        "tokenizer.json",
        "vocab.txt",
        "tokenizer_config.json",
        "vocab.json",
    }
    tokenizer = load_tokenizer(folder)
    assert tokenizer.vocab_size == 350
    assert tokenizer.pieces[:5] == SPECIALS
    assert load_tokenizer(folder / "vocab.txt").model == tokenizer.model
    texts = [*make_sentences(50, seed=8), *ODD.split()]
    assert encode(tokenizer, texts) == encode_alone(load_reference(tokenizer), texts)


def test_all_pieces_can_be_given_by_text_and_all_chosen_characters_have_one(folder: Path):
    tokenizer = load_tokenizer(folder)
    assert len(tokenizer.ordinary_ids) == tokenizer.vocab_size - len(SPECIALS)
    assert tokenizer.unk_id not in encode(tokenizer, [ODD.replace("\n", "")])[0]
    assert tokenizer.unk_id in encode(tokenizer, ["☂"])[0]


def test_equal_text_gives_equal_bytes_in_any_process(corpus: Path, folder: Path, tmp_path: Path):
    cased = json.loads((folder / "vocab.json").read_text())["cased"]
    option, threads = ("--cased", "1") if cased else ("--uncased", "3")
    command = [sys.executable, "-m", "albert_data", *WORDPIECE, str(corpus), "--vocab-size", "350"]
    environment = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
    subprocess.run([*command, option, "-o", str(tmp_path / "out")], env=environment, check=True, capture_output=True)
    assert digest_folder(tmp_path / "out") == digest_folder(folder)


def test_a_lost_character_divides_words_in_training(tmp_path: Path):
    (tmp_path / "text.txt").write_text(
        "".join(f"{n} river☃walked.\n" for n in range(300)) + "".join(f"{n} so it is long.\n" for n in range(2000)),
        encoding="utf-8",
    )
    config = VocabConfig(model_type="wordpiece", vocab_size=240, character_coverage=0.98)
    report = train_vocab([str(tmp_path / "text.txt")], tmp_path / "out", config=config, workers=1)
    assert report.alphabet.lost.keys() == {ord("☃")}
    assert not [piece for piece in load_tokenizer(tmp_path / "out").pieces if "rw" in piece]


def test_a_size_that_does_not_fit_is_one_line_with_the_size_that_does(corpus: Path, tmp_path: Path):
    for size, says in ((100, "is smaller than the"), (20_000, "the largest possible is")):
        config = VocabConfig(model_type="wordpiece", vocab_size=size)
        with pytest.raises(TokenizerError, match=says):
            train_vocab([str(corpus)], tmp_path / "out", config=config, workers=1)


def test_settings_of_sentencepiece_are_refused():
    for settings in ({"dummy_prefix": True}, {"normalization": "albert-v2"}):
        with pytest.raises(ConfigError, match="BERT's rules"):
            VocabConfig(model_type="wordpiece", **settings)


def test_a_folder_of_another_kind_is_not_mixed_up(folder: Path, corpus: Path):
    before = digest_folder(folder)
    with pytest.raises(OutputError, match="is a vocabulary of another kind"):
        train_vocab([str(corpus)], folder, config=VocabConfig(vocab_size=350), workers=1)
    assert digest_folder(folder) == before


def test_a_changed_file_is_not_replaced(corpus: Path, folder: Path, tmp_path: Path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = VocabConfig(model_type="wordpiece", vocab_size=350)
    train_vocab([str(corpus)], tmp_path, config=config, workers=1, overwrite=True)
    (tmp_path / "vocab.txt").write_text("mine\n")
    with pytest.raises(OutputError, match=r"vocab\.txt was not written by `vocab`"):
        train_vocab([str(corpus)], tmp_path, config=config, workers=1)


def test_the_library_reads_the_folder(folder: Path):
    read = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer = load_tokenizer(folder)
    ids = read.encode("the river").ids
    assert ids == [tokenizer.cls_id, *encode(tokenizer, ["the river"])[0], tokenizer.sep_id]
