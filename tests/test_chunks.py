"""The chunk table gives SentencePiece's ids, for any text and any model, or says why it stands aside."""

from __future__ import annotations

import io
import unicodedata
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from albert_data.tokenizer import chunks
from albert_data.tokenizer.cuts import find_replaced
from albert_data.tokenizer.lattice import make_trie, segment
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.proto import read_settings

CORPUS = Path(__file__).parent.parent / "sample_corpus"
LINES = [
    line
    for name in ("english-1.txt", "chinese.txt")
    for line in (CORPUS / name).read_text(encoding="utf-8").split("\n")
]
FAST = {
    "unigram": {},
    "bpe": {"model_type": "bpe"},
    "uncased": {"normalization_rule_name": "nmt_nfkc_cf"},
    "identity": {"normalization_rule_name": "identity"},
    "byte fallback": {"byte_fallback": True},
}
SLOW = {
    "user-defined": ({"user_defined_symbols": "foo,中国"}, "user-defined"),
    "no dummy prefix": ({"add_dummy_prefix": False}, "add_dummy_prefix"),
    "spaces kept": ({"remove_extra_whitespaces": False}, "remove_extra_whitespaces"),
    "spaces inside pieces": ({"split_by_whitespace": False}, "space inside"),
    "space as suffix": ({"treat_whitespace_as_suffix": True}, "space inside"),
}


@cache
def train(lines: tuple[str, ...] = tuple(LINES), vocab_size: int = 2000, **settings: object) -> Tokenizer:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=vocab_size,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols="[CLS],[SEP],[MASK]",
        minloglevel=2,
        **settings,
    )
    return Tokenizer(model.getvalue(), "model")


def encode_by_sentencepiece(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(tokenizer.model)
    return [processor.encode(text) for text in texts]


def encode(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    ids, offsets = tokenizer.encode(texts)
    return [part.tolist() for part in np.split(ids, offsets[1:-1])] if texts else []


ODD = """
    \u0301 \u0308 \u200d \u200b \u2060 \u00ad \u2581 \ufffd \ufeff \u202e \ud7ff \ue000 \x00 \x07 [MASK] <pad>
    \U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea 가 ᄀ ᅡ ᆨ ﾊﾞ か\u3099 ① ㌔ ﬁ ½ ¨ 𝐀 𠀀 Å İ ß ก ำ क् ़ ، ؟ لا 。 ！ “ ” — …
"""
odd = st.sampled_from([*ODD.strip(" \n").split(" "), "\t", "\u3000", "\u00a0", "\x85", "\u2028"])
words = st.sampled_from([word for line in LINES for word in line.split()])
ideographs = st.text(st.sampled_from(sorted({c for c in "".join(LINES) if ord(c) > 0x3000})), max_size=8)
texts = st.lists(
    st.lists(st.one_of(words, ideographs, odd, st.just(" "), st.just("  "), st.text(max_size=4))).map("".join),
    max_size=8,
)


@pytest.mark.parametrize("name", FAST)
@given(texts=texts)
def test_ids_are_those_of_sentencepiece(name: str, texts: list[str]):
    tokenizer = train(**FAST[name])
    assert tokenizer.slow_reason is None
    assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)


@pytest.mark.parametrize("name", SLOW)
def test_a_model_whose_text_does_not_fall_apart_goes_through_sentencepiece(name: str):
    settings, reason = SLOW[name]
    tokenizer = train(**settings)
    assert reason in str(tokenizer.slow_reason)
    assert encode(tokenizer, LINES[:20]) == encode_by_sentencepiece(tokenizer, LINES[:20])


def test_a_full_table_changes_no_id(monkeypatch: pytest.MonkeyPatch):
    tokenizer = train()
    expected = encode_by_sentencepiece(tokenizer, LINES)
    limits: list[dict[str, int]] = [
        {"FIRST_SLOTS": 64, "MAX_SLOTS": 64},
        {"FIRST_SLOTS": 64},
        {"MAX_KEY_BYTES": 300},
        {"MAX_IDS": 50},
        {"SLICE_BYTES": 100},
    ]
    for limit in limits:
        with monkeypatch.context() as patch:
            for name, value in limit.items():
                patch.setattr(chunks, name, value)
            small = Tokenizer(tokenizer.model, "model")
            assert encode(small, LINES) == expected, limit
            assert encode(small, LINES) == expected, f"{limit}, again"


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_marks_that_normalisation_joins_to_letters_change_no_id(model_type: str):
    """The pieces hold é and が; the text holds e, か and marks behind them, next to which a cut seems safe."""
    lines = ["l'été-là déjà fêté, -évidé-", "彼が私がこれがそれが", "東京が好きです。ばびぶべぼ"] * 20
    tokenizer = train(lines=tuple(lines), vocab_size=60, hard_vocab_limit=False, model_type=model_type)
    texts = [unicodedata.normalize("NFD", line[i:j]) for line in lines[:3] for i in range(9) for j in range(i, 20)]
    assert any(len(piece) > 1 and set(piece) & set("éêàがばび") for piece in tokenizer.pieces)
    assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)


def test_unknown_characters_that_meet_at_a_cut_are_one():
    tokenizer = train()
    texts = ["丂丄丆", "x丂丄 丆y"]  # characters that the corpus does not hold
    assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)
    assert encode(tokenizer, texts)[0].count(tokenizer.unk_id) == 1


def test_a_combining_mark_is_joined_to_what_precedes_it_and_a_letter_is_not():
    replaced, joined, keys = find_replaced(read_settings(train().model).charsmap)
    assert joined[0x301]
    assert joined[0x3099]
    assert not joined[ord("a")]
    assert not joined[ord("中")]
    assert replaced[ord("①")]
    assert not replaced[ord("中")]
    assert "e\u0301" in keys
    assert "①" not in keys


def segment_slowly(text: str, pieces: list[str], scores: list[float]) -> list[tuple[float, list[int]]]:
    """Every way to write the text as pieces, the best score first."""
    if not text:
        return [(0.0, [])]
    ways = []
    for i, piece in enumerate(pieces):
        if text.startswith(piece):
            rest = segment_slowly(text[len(piece) :], pieces, scores)
            ways += [(scores[i] + score, [i, *ids]) for score, ids in rest]
    return sorted(ways, key=lambda way: -way[0])


@given(st.text("aé", max_size=7), st.lists(st.floats(-9, -1), min_size=6, max_size=6))
def test_the_lattice_finds_the_best_way_and_where_rounding_could_decide(text: str, scores: list[float]):
    pieces = ["a", "é", "aé", "éa", "aaé", "éé"]
    trie = make_trie(pieces, list(range(6)), scores, unk_id=9, vocab_size=10, unknown_is_whole=False)
    utf8 = text.encode()
    ids, lengths, limits = segment(np.frombuffer(utf8, np.uint8), np.array([0, len(utf8)]), trie)
    ways = segment_slowly(text, pieces, scores)
    assert lengths.tolist() == [len(ids)]
    if len(ways) == 1:
        assert limits[0] == 31
    elif limits[0] > 0:
        margin = ways[0][0] - ways[1][0]
        additions = len(ways[0][1]) + len(text)
        assert margin * 2**24 >= additions * 2.0 ** limits[0] * (1 - 1e-6)
    if len(ways) == 1 or ways[0][0] - ways[1][0] > 1e-6:
        assert ids.tolist() == ways[0][1]
    else:
        assert limits[0] <= 4
