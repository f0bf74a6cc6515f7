"""Models with user-defined pieces, as the released ALBERT models are, give SentencePiece's ids by the chunk table."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from made_models import CONTROL, UNUSED, Piece, compile_charsmap, make_model
from test_chunks import LINES, encode, encode_by_sentencepiece, texts, train

from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE
from albert_data.tokenizer.sentencepiece.proto import BPE, NORMAL, UNIGRAM, USER_DEFINED

# What Google's models for English have.
RELEASED = {"user_defined_symbols": '(,),",-,.,–,£,€', "normalization_rule_name": "nmt_nfkc"}
LONGER = {"user_defined_symbols": "the,中国,ﬁ,e\u0301,\u0301s,ABC,--,-,\U0001f469"}
KINDS = {
    "released": RELEASED,
    "released, uncased": RELEASED | {"normalization_rule_name": "nmt_nfkc_cf"},
    "released, bpe": RELEASED | {"model_type": "bpe"},
    "released, no prefix": RELEASED | {"add_dummy_prefix": False},
    "released, byte fallback": RELEASED | {"byte_fallback": True},
    "released, identity": RELEASED | {"normalization_rule_name": "identity"},
    "released, spaces kept": RELEASED | {"remove_extra_whitespaces": False},
    "longer": LONGER,
    "longer, bpe, uncased": LONGER | {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc_cf"},
}


@pytest.mark.parametrize("name", KINDS)
@given(texts=texts)
def test_ids_of_a_model_with_user_defined_pieces_are_those_of_sentencepiece(name: str, texts: list[str]):
    tokenizer = train(**KINDS[name])
    assert tokenizer.slow_reason is None
    texts = [re.sub("[,;]", "-", text) for text in texts]
    assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)


def test_a_user_defined_piece_with_a_space_goes_through_sentencepiece():
    for symbol in ("he r", " x", "y ", "a" + VISIBLE_SPACE + "b"):
        tokenizer = train(user_defined_symbols=symbol)
        assert "space inside" in str(tokenizer.slow_reason)
        assert encode(tokenizer, LINES[:20]) == encode_by_sentencepiece(tokenizer, LINES[:20])


NAMES = ["<pad>", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "ab-A\u0301é中ﬁ😀1"
pieces = st.dictionaries(
    st.builds(
        str.__add__, st.sampled_from(["", "", VISIBLE_SPACE]), st.text(st.sampled_from(LETTERS), min_size=1, max_size=3)
    ),
    st.tuples(
        st.floats(-9, -0.0625, width=32) | st.sampled_from([-2.0, -1.9, -1.8, -1.7, -0.1, 0.0, 0.1, 0.2, 0.3, 3.0]),
        st.sampled_from([NORMAL, NORMAL, NORMAL, USER_DEFINED, USER_DEFINED, UNUSED, CONTROL]),
    ),
    min_size=1,
    max_size=20,
)
strings = st.lists(
    st.lists(
        st.text(st.sampled_from(LETTERS + VISIBLE_SPACE + "x"), max_size=6) | st.sampled_from([" ", "  "]), max_size=8
    ).map("".join),
    min_size=1,
    max_size=12,
)
RULES = ["A", "a\u0301", "b", "--", "中", "1-", " "]
rules = st.just(b"") | st.dictionaries(
    st.sampled_from(RULES) | st.text(st.sampled_from(LETTERS), min_size=1, max_size=2),
    st.sampled_from(["a", "é", "bb", "", "ab", " ", "x" + VISIBLE_SPACE]),
    min_size=1,
    max_size=4,
).filter(lambda rules: all(key != value for key, value in rules.items())).map(compile_charsmap)


@given(
    pieces=pieces,
    texts=strings,
    model_type=st.sampled_from([UNIGRAM, BPE]),
    charsmap=rules,
    has_prefix=st.booleans(),
    removes_spaces=st.booleans(),
)
def test_any_pieces_and_replacements_give_the_ids_of_sentencepiece(
    pieces: dict[str, tuple[float, int]],
    texts: list[str],
    model_type: int,
    charsmap: bytes,
    has_prefix: bool,
    removes_spaces: bool,
):
    listed: list[Piece] = [(text, *rest) for text, rest in {VISIBLE_SPACE: (-3.0, NORMAL), **pieces}.items()]
    model = make_model(
        listed,
        model_type=model_type,
        charsmap=charsmap,
        add_dummy_prefix=has_prefix,
        remove_extra_whitespaces=removes_spaces,
    )
    tokenizer = Tokenizer(model, "made")
    assume(tokenizer.slow_reason is None)
    assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)


@given(texts=st.lists(st.lists(st.sampled_from([*NAMES, *"[]<>SEP▁ "])).map("".join), max_size=9))
@pytest.mark.parametrize("model_type", [UNIGRAM, BPE])
@pytest.mark.parametrize("special_type", [USER_DEFINED, NORMAL])
def test_text_never_gives_special_pieces_whatever_their_type(model_type: int, special_type: int, texts: list[str]):
    listed: list[Piece] = [(text, -2.0, NORMAL) for text in [*"[]<>SEPadMK▁", "[S", "EP", "▁[", "P]"]]
    tokenizer = Tokenizer(make_model(listed, model_type=model_type, special_type=special_type), "made")
    expected = Tokenizer(make_model(listed, model_type=model_type), "made")
    assert encode(tokenizer, texts) == encode_by_sentencepiece(expected, texts)
    assert (
        tokenizer.note
        == "made finds <pad>, [CLS], [SEP], [MASK] in text; a build does not, as text never gives a special piece"
    )
    assert expected.note is None


@pytest.mark.parametrize("length", [1, 2, 3, 7, 30])
def test_the_score_of_a_user_defined_piece_is_that_of_sentencepiece(length: int):
    """It competes with a piece of nearly the same score."""
    symbol, score = "q" * length, length * 0.1 - 0.1
    for competing in (score + sign * 2.0**power for sign in (-1, 1) for power in range(-24, -2)):
        listed: list[Piece] = [("c", 0.0, NORMAL), ("z", -9.0, NORMAL), (VISIBLE_SPACE, -1.0, NORMAL)]
        listed += [(symbol, -5.0, USER_DEFINED), (symbol + "c", competing, NORMAL)]
        tokenizer = Tokenizer(make_model(listed, model_type=UNIGRAM), "made")
        texts = [symbol + "c", symbol + "c " * 9 + symbol + "c"]
        assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)
