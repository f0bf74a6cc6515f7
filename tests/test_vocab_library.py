"""Vocabularies of WordPiece and byte-level BPE: equal bytes from equal text, and files that others read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from build_fixtures import digest_folder
from click.testing import CliRunner
from refusals import check_refused, refused
from toy_language import make_sentences
from wordpiece_fixtures import SPECIALS, encode, encode_alone, load_reference, tokenizers

from albert_data.cli.main import cli
from albert_data.config import VocabConfig
from albert_data.errors import ConfigError, OutputError, TokenizerError
from albert_data.library.building import train_vocab
from albert_data.tokenizer.model import load_tokenizer
from albert_data.vocab.training import VocabularyTooLarge

TYPES = {
    "cased": ["--model-type", "wordpiece", "--cased"],
    "uncased": ["--model-type", "wordpiece", "--uncased"],
    "byte-bpe": ["--model-type", "byte-bpe"],
}
ODD = "Ünïcode émigré İzmir ☃ 3.14 中国的中国人。﹐ ǅ ﬁne e\u0301t\u0323e\u0323\u0301 don't\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(ODD * 3 + "\n".join(make_sentences(600, seed=3)), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=TYPES)
def folder(request, corpus: Path, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("vocab") / request.param
    command = ["vocab", *TYPES[request.param], "--vocab-size", "370", str(corpus), "--workers", "1", "-o", str(out)]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    is_spelled = "none is lost: one without a piece is spelled by its bytes" in result.output
    assert is_spelled == (request.param == "byte-bpe")
    return out


def test_the_folder_is_a_tokenizer_that_is_fast(folder):
    is_wordpiece = folder.name != "byte-bpe"
    names = {"tokenizer.json", "tokenizer_config.json", "vocab.json"} | ({"vocab.txt"} if is_wordpiece else set())
    assert {path.name for path in folder.iterdir()} == names
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.vocab_size, tokenizer.pieces[:5], tokenizer.slow_reason) == (370, SPECIALS, None)
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = [*make_sentences(50, seed=8), *ODD.split(), " the"]
    assert encode(tokenizer, texts) == encode_alone(backend, texts)
    ids = backend.encode("the river").ids
    assert ids == [tokenizer.cls_id, *encode(tokenizer, ["the river"])[0], tokenizer.sep_id]
    if is_wordpiece:
        assert load_tokenizer(folder / "vocab.txt").model == tokenizer.model
        assert encode(tokenizer, texts) == encode_alone(load_reference(tokenizer), texts)


def test_all_pieces_can_be_given_by_text_and_all_chosen_characters_have_one(folder):
    tokenizer = load_tokenizer(folder)
    if folder.name == "byte-bpe":
        assert "Ġthe" in tokenizer.pieces
        assert "The" not in tokenizer.pieces  # sentences begin with a space
        return
    assert len(tokenizer.ordinary_ids) == tokenizer.vocab_size - len(SPECIALS)
    assert tokenizer.unk_id not in encode(tokenizer, [ODD.replace("\n", "")])[0]
    assert tokenizer.unk_id in encode(tokenizer, ["☂"])[0]


def test_equal_text_gives_equal_bytes_in_any_process_and_order(corpus, folder, tmp_path):
    lines = corpus.read_text(encoding="utf-8").split("\n")
    (tmp_path / "in").mkdir()
    for at in range(3):
        (tmp_path / "in" / f"{at}.txt").write_text("\n".join(lines[at::3][::-1]), encoding="utf-8")
    command = ["vocab", *TYPES[folder.name], "--vocab-size", "370", str(tmp_path / "in"), "--workers", "2"]
    environment = {**os.environ, "RAYON_NUM_THREADS": "3", "PYTHONHASHSEED": "3"}
    command = [sys.executable, "-m", "albert_data", *command, "-o", str(tmp_path / "out")]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    for path in folder.iterdir():
        if path.name != "vocab.json":  # which names the inputs
            assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()


def test_transformers_loads_it(folder):
    transformers = pytest.importorskip("transformers")
    found, tokenizer = transformers.AutoTokenizer.from_pretrained(folder), load_tokenizer(folder)
    first, second = encode(tokenizer, ["the", "river"])
    assert found("the").input_ids == [2, *first, 3]
    assert (found.pad_token, found.mask_token_id, found.cls_token_id) == ("[PAD]", 4, 2)
    assert found("the", "river").token_type_ids == [0] * (2 + len(first)) + [1] * (1 + len(second))


def test_a_lost_character_divides_words_in_training(tmp_path):
    (tmp_path / "text.txt").write_text(
        "".join(f"{n} river☃walked.\n" for n in range(300)) + "".join(f"{n} so it is long.\n" for n in range(2000)),
        encoding="utf-8",
    )
    config = VocabConfig(model_type="wordpiece", vocab_size=240, character_coverage=0.98)
    report = train_vocab([str(tmp_path / "text.txt")], tmp_path / "out", config=config, workers=1)
    assert report.alphabet.lost.keys() == {ord("☃")}
    assert not [piece for piece in load_tokenizer(tmp_path / "out").pieces if "rw" in piece]


@refused(
    (("wordpiece", 100), TokenizerError, "is smaller than the"),
    (("wordpiece", 20_000), VocabularyTooLarge, "the largest possible is"),
    (("byte-bpe", 260), TokenizerError, "is smaller than the 261"),
    (("byte-bpe", 20_000), VocabularyTooLarge, "the largest possible is "),
)
def test_a_size_that_does_not_fit_is_one_line_with_the_size_that_does(corpus, tmp_path, call, kind, named):
    config = VocabConfig(model_type=call[0], vocab_size=call[1])
    check_refused(lambda: train_vocab([str(corpus)], tmp_path / "out", config=config, workers=1), kind, named)


@refused(
    ({"model_type": "wordpiece", "dummy_prefix": True}, ConfigError, "BERT's rules"),
    ({"model_type": "wordpiece", "normalization": "albert-v2"}, ConfigError, "BERT's rules "),
    ({"model_type": "byte-bpe", "dummy_prefix": True}, ConfigError, "byte-bpe keeps text as it is"),
    ({"model_type": "byte-bpe", "cased": False}, ConfigError, "byte-bpe keeps text as it is "),
    ({"model_type": "byte-bpe", "character_coverage": 0.99}, ConfigError, "byte-bpe keeps text as it"),
)
def test_settings_of_other_types_are_refused(call, kind, named):
    check_refused(lambda: VocabConfig(**call), kind, named)


def test_a_folder_of_another_kind_is_not_mixed_up(folder, corpus):
    before = digest_folder(folder)
    for model_type in ("unigram", "wordpiece" if folder.name == "byte-bpe" else "byte-bpe"):
        config = VocabConfig(model_type=model_type, vocab_size=350)
        with pytest.raises(OutputError, match="is a vocabulary of another kind"):
            train_vocab([str(corpus)], folder, config=config, workers=1)
    assert digest_folder(folder) == before
