"""Any other tokenizer.json gives the library's ids: byte-level BPE, Unigram, WordPiece with other rules."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from build_fixtures import digest_shards, write_corpus
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from toy_language import make_sentences
from wordpiece_fixtures import SPECIALS, encode, tokenizers

from albert_data import open_shards
from albert_data.cli.main import cli
from albert_data.errors import TokenizerError
from albert_data.inspect.choice import Choice, choose_rows
from albert_data.inspect.verify import verify
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.tokenizer.words import find_word_starts

ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def train_roberta() -> Any:
    """A byte-level BPE with RoBERTa's special pieces."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=None))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, special_tokens=ROBERTA, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(make_sentences(1000, seed=0), trainer)
    backend.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return backend


def train_modernbert() -> Any:
    """A byte-level BPE whose special pieces are added tokens after the model's own, among them pieces of text."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(make_sentences(1000, seed=0), trainer)
    backend.add_tokens(["   "])
    backend.add_special_tokens(SPECIALS)
    backend.add_tokens(["[unused0]"])
    return backend


def train_unigram() -> Any:
    """A Unigram model whose vocabulary holds its special pieces, as XLM-RoBERTa's does."""
    backend = tokenizers.Tokenizer(tokenizers.models.Unigram())
    backend.normalizer = tokenizers.normalizers.NFKC()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    backend.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=300, special_tokens=ROBERTA, unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(make_sentences(1000, seed=0), trainer)
    return backend


def make_whitespace_wordpiece() -> Any:
    """WordPiece that divides text at white space alone, so that a text may hold a special piece as a word."""
    pieces = [*SPECIALS, "the", "river", "##s", "##,", "##."]
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.decoder = tokenizers.decoders.WordPiece()
    return backend


MAKERS = {
    "roberta": train_roberta,
    "modernbert": train_modernbert,
    "unigram": train_unigram,
    "wordpiece": make_whitespace_wordpiece,
}


@pytest.fixture(scope="module", params=MAKERS)
def pair(request) -> tuple[Tokenizer, Any]:
    """A tokenizer, and the library's."""
    backend = MAKERS[request.param]()
    backend.encode_special_tokens = True
    return Tokenizer(backend.to_str().encode(), request.param), backend


@pytest.fixture(scope="module")
def roberta() -> Tokenizer:
    return Tokenizer(train_roberta().to_str().encode(), "roberta")


@given(st.lists(st.text(max_size=30), max_size=4))
def test_the_ids_are_those_of_the_library(pair, texts: list[str]):
    tokenizer, backend = pair
    assert encode(tokenizer, texts) == [backend.encode(text, add_special_tokens=False).ids for text in texts]


def test_text_of_several_slices_gives_the_ids_of_the_library(pair, monkeypatch):
    tokenizer, backend = pair
    monkeypatch.setattr("albert_data.tokenizer.library.SLICE_BYTES", 100)
    texts = [*make_sentences(30, seed=2), "", "the " * 50]
    assert encode(tokenizer, texts) == [backend.encode(text, add_special_tokens=False).ids for text in texts]


def test_text_never_gives_a_special_piece(pair):
    tokenizer, _ = pair
    (ids,) = encode(tokenizer, ["the <s> </s> <mask> <pad> [MASK] [CLS] [SEP] [PAD] river"])
    assert not tokenizer.specials.is_special[ids].any()


def test_special_and_unused_pieces_are_never_drawn(pair):
    tokenizer, _ = pair
    drawn = {tokenizer.pieces[i] for i in tokenizer.ordinary_ids}
    assert drawn.isdisjoint({*SPECIALS, *ROBERTA, "[unused0]"})
    assert len(drawn) > 4


def test_words_begin_at_the_marks_of_the_pieces(pair):
    tokenizer, _ = pair
    text = "the rivers, the river."
    (ids,) = encode(tokenizer, [text])
    starts = find_word_starts(np.array(ids), tokenizer.word_rule())
    words: list[str] = []
    for begins, i in zip(starts.tolist(), ids, strict=True):
        if begins:
            words.append("")
        words[-1] += tokenizer.piece_texts[i].strip("▁")
    assert words == re.findall(r"\w+|[,.]", text)


def test_text_is_decoded_and_shown(pair):
    tokenizer, _ = pair
    (ids,) = encode(tokenizer, ["the river"])
    assert tokenizer.decode([tokenizer.cls_id, *ids, tokenizer.sep_id]) == "the river"
    assert tokenizer.normalise("the river").strip("▁") == "the▁river"


def test_bytes_of_a_divided_character_are_shown_by_number(roberta: Tokenizer):
    (ids,) = encode(roberta, ["☃"])
    assert "".join(roberta.piece_texts[i] for i in ids) == "<0xE2><0x98><0x83>"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": {"type": "WordLevel", "vocab": {}}}, "is WordLevel; supported are BPE, Unigram, WordPiece"),
        ({"pre_tokenizer": {"type": "Whitespace"}, "decoder": None}, "do not show where words begin"),
        ({"pre_tokenizer": {"type": "Nonsense"}}, "the library tokenizers can't load tokenizer"),
    ],
)
def test_an_unsupported_kind_is_named(tmp_path: Path, change: dict[str, Any], says: str):
    values = json.loads(train_roberta().to_str()) | change
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(values))
    with pytest.raises(TokenizerError, match=re.escape(says)) as caught:
        load_tokenizer(path)
    assert "\n" not in str(caught.value)


def test_a_model_without_its_unknown_piece_is_refused_before_any_text(tmp_path: Path):
    backend = make_whitespace_wordpiece()
    values = json.loads(backend.to_str())
    added = [{"id": len(values["model"]["vocab"]), "content": "<unk>", "special": True}]
    values["model"]["unk_token"] = "<unk>"
    values["added_tokens"] += [added[0] | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)]
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(TokenizerError, match="can't encode a character that it has no piece for"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_without_a_mask_is_refused(tmp_path: Path):
    backend = tokenizers.Tokenizer.from_str(train_roberta().to_str().replace("<mask>", "<no>"))
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match=re.escape("lacks [MASK] or <mask>; ALBERT needs")):
        load_tokenizer(tmp_path)


def test_a_build_says_that_it_is_slow_and_is_verified(tmp_path: Path, roberta: Tokenizer):
    sentences = list(make_sentences(200, seed=5))
    documents = ["\n".join(sentences[at : at + 20]) for at in range(0, 200, 20)]
    write_corpus(tmp_path / "in", documents, "txt", random.Random(0))
    (tmp_path / "tokenizer.json").write_bytes(roberta.model)
    for workers in ("1", "2"):
        command = ["build", str(tmp_path / "in"), "--tokenizer", str(tmp_path), "--workers", workers]
        result = CliRunner().invoke(cli, [*command, "-o", str(tmp_path / workers)])
        assert result.exit_code == 0, result.output
        assert "all text goes through the library tokenizers itself" in result.output
    assert digest_shards(tmp_path / "1") == digest_shards(tmp_path / "2")
    assert list(verify(tmp_path / "1")) == []
    assert choose_rows(open_shards(tmp_path / "1"), Choice(count=3, text=" the "))
    assert "Ġ" not in CliRunner().invoke(cli, ["inspect", str(tmp_path / "1")]).output
