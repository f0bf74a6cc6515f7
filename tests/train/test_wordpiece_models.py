"""Models of WordPiece vocabularies: trained, exported for transformers, scored, and begun with a published ALBERT."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
import torch
from build_fixtures import run_build, write_corpus
from toy_language import make_sentences
from wordpiece_fixtures import encode, make_pieces, write_vocab

from albert_data.cli.main import run as run_command
from albert_data.errors import ConfigError
from albert_data.interop.initial import load_initial
from albert_data.tokenizer.model import Tokenizer, load_tokenizer

transformers = pytest.importorskip("transformers", reason="the huggingface extra is not installed")

SIZES = {
    **{"max_position_embeddings": 64, "embedding_size": 16, "hidden_size": 32},
    **{"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64},
}
TEXTS = ["The river, walkingly: naïve Café!", "我们 去學习。", "don't ☃ can't", "a - b (c)", ""]


def build(folder: Path, tokenizer: Tokenizer) -> Path:
    sentences = list(make_sentences(400, seed=5))
    documents = ["\n".join(sentences[at : at + 20]) for at in range(0, 400, 20)]
    write_corpus(folder / "in", documents, "txt", random.Random(0))
    run_build(folder / "in", folder / "out", tokenizer, max_seq_len=64)
    return folder / "out"


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Tokenizer:
    return load_tokenizer(write_vocab(tmp_path_factory.mktemp("bert"), do_lower_case=True))


@pytest.fixture(scope="module")
def shards(tmp_path_factory, bert: Tokenizer) -> Path:
    return build(tmp_path_factory.mktemp("shards"), bert)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, shards: Path) -> Path:
    run = tmp_path_factory.mktemp("run") / "run"
    settings = ["--steps", "2", "--eval-every", "1", "--device", "cpu", "--batch-tokens", "512", "--no-compile"]
    assert run_command(["train", str(shards), "--preset", "tiny", *settings, "-o", str(run)]) == 0
    return run


def test_a_run_keeps_its_tokenizer(run_folder: Path, bert: Tokenizer):
    assert load_tokenizer(run_folder / "tokenizer").sha256 == bert.sha256


def test_an_exported_folder_is_loaded_with_the_same_ids(run_folder: Path, bert: Tokenizer, tmp_path: Path):
    out = tmp_path / "model"
    assert run_command(["export", str(run_folder), "-o", str(out)]) == 0
    assert transformers.AlbertForPreTraining.from_pretrained(out).config.vocab_size == bert.vocab_size
    loaded = transformers.AutoTokenizer.from_pretrained(out, local_files_only=True)
    assert [loaded(text, add_special_tokens=False)["input_ids"] for text in TEXTS] == encode(bert, TEXTS)
    pair = loaded("the river", "we talk")
    first, second = encode(bert, ["the river", "we talk"])
    assert pair["input_ids"] == [bert.cls_id, *first, bert.sep_id, *second, bert.sep_id]
    assert pair["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert (loaded.mask_token_id, loaded.pad_token_id, loaded.unk_token_id) == (bert.mask_id, bert.pad_id, bert.unk_id)
    assert (out / "vocab.txt").read_text(encoding="utf-8").splitlines() == bert.pieces


def test_sentences_are_scored_by_a_run_and_by_its_export(run_folder: Path, tmp_path: Path, capsys):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"good": "the river is long", "bad": "river the long is"}) + "\n")
    assert run_command(["score", str(run_folder), str(pairs), "--device", "cpu"]) == 0
    capsys.readouterr()


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """An ALBERT as the Chinese ones are published: a masked language model with a vocab.txt."""
    torch.manual_seed(3)
    config = transformers.AlbertConfig(vocab_size=len(make_pieces()), **SIZES)
    transformers.AlbertForMaskedLM(config).save_pretrained(tmp_path / "chinese")
    write_vocab(tmp_path / "chinese")
    return tmp_path / "chinese"


def test_a_run_begins_with_a_published_model_of_the_same_vocabulary(published: Path, shards: Path, tmp_path: Path):
    told: list[str] = []
    initial = load_initial(published, shards, say=told.append)
    assert initial.model.config.vocab_size == len(make_pieces())
    assert any("no piece has a capital letter" in line for line in told)
    settings = ["--steps", "1", "--device", "cpu", "--batch-tokens", "512", "--no-compile"]
    command = ["train", str(shards), "--init-from", str(published), *settings, "-o", str(tmp_path / "run")]
    assert run_command(command) == 0


def test_other_rules_for_case_are_told(published: Path, shards: Path):
    (published / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    told: list[str] = []
    load_initial(published, shards, say=told.append)
    assert any("other rules for case, accents or ideographs" in line for line in told)


def test_another_vocabulary_is_refused(published: Path, shards: Path):
    pieces = make_pieces()
    write_vocab(published, [*pieces[:7], "new", *pieces[8:]])
    with pytest.raises(ConfigError, match=re.escape(f"its piece 7, 'new', is {pieces[7]!r} there")):
        load_initial(published, shards)
