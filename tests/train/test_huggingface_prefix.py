"""A tokenizer that puts no "▁" before a sentence gives the same ids in transformers, without a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_language import make_sentences, train_model

from albert_data.tokenizer.model import Tokenizer

transformers = pytest.importorskip("transformers")
pytest.importorskip("torch")
huggingface_tokenizer = pytest.importorskip("albert_data.interop.huggingface_tokenizer")

TEXTS = [
    "The water of the long river is very little.",
    "naïve Café Ünïcode — émigré",
    "ｆｕｌｌ ｗｉｄｔｈ １２３ ﬁne",
    "今天天气很好，我们去学习语言。",
    "\u3000\u3000今天天气很好 ， 我们去学习。 \u3000",
    "  white\tspace   all  over\u00a0it \u3000 ",
    "mixed 中文 and English 文字",
    "unknown 🙂 🙂 signs ☃☃ here",
    "``two quotes''",
    "river ▁the ▁ ",
    "\u200bthe",
    " ",
    "",
]


@pytest.fixture(
    scope="module",
    params=[{}, {"normalization_rule_name": "identity"}, {"normalization_rule_name": "nmt_nfkc_cf"}],
    ids=["cased", "identity", "uncased"],
)
def tokenizer(request) -> Tokenizer:
    return Tokenizer(train_model(add_dummy_prefix=False, **request.param), "without a prefix")


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("model")
    for name, content in huggingface_tokenizer.tokenizer_files(tokenizer, max_len=512).items():
        (out / name).write_bytes(content)
    (out / "config.json").write_text(json.dumps({"model_type": "albert"}))
    return out


@pytest.fixture
def theirs(folder, monkeypatch):
    def refuse(*arguments, **_):
        raise AssertionError(f"a connection to {arguments[1:]} was tried")

    monkeypatch.setattr("socket.socket.connect", refuse)
    return transformers.AutoTokenizer.from_pretrained(folder)


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode([text])[0].tolist()


@pytest.mark.parametrize("text", TEXTS)
def test_without_the_dummy_prefix_ids_equal_those_of_the_model(theirs, tokenizer, text):
    assert theirs(text, add_special_tokens=False)["input_ids"] == encode(tokenizer, text)


def test_without_the_dummy_prefix_ids_of_ordinary_sentences_equal_those_of_the_model(theirs, tokenizer):
    sentences = list(make_sentences(300, seed=5))
    found = theirs(sentences, add_special_tokens=False)["input_ids"]
    assert found == [encode(tokenizer, sentence) for sentence in sentences]


def test_the_space_after_a_mask_stays(theirs, tokenizer):
    """A mask replaces a word and the space before it, as in the shards; the next word has its own space."""
    words = encode(tokenizer, "the long river is")
    long = encode(tokenizer, "the long")
    river = words[len(long) : len(words) - len(encode(tokenizer, "the is")) + len(encode(tokenizer, "the"))]
    masked = [*long, tokenizer.mask_id, *words[len(long) + len(river) :]]
    for text in ("the long [MASK] is", "the long[MASK] is"):
        assert theirs(text, add_special_tokens=False)["input_ids"] == masked
    middle = theirs("今天[MASK]很好", add_special_tokens=False)["input_ids"]
    assert middle == [*encode(tokenizer, "今天"), tokenizer.mask_id, *encode(tokenizer, "很好")]


def test_two_segments_get_their_special_pieces(theirs, tokenizer):
    left, right, cls, sep = encode(tokenizer, "the long"), encode(tokenizer, " river."), 2, 3
    pair = theirs("the long", " river.")
    assert pair["input_ids"] == [cls, *left, sep, *right, sep]
    assert pair["token_type_ids"] == [0] * (len(left) + 2) + [1] * (len(right) + 1)
    for name, value in tokenizer.specials.to_dict().items():
        assert getattr(theirs, f"{name.removesuffix('_id')}_token_id") == value
    assert theirs.decode(encode(tokenizer, "the long river 中国")) == "the long river 中国"
