"""With the normalization albert-v2 the ids are those of Google's code around SentencePiece, for any model."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pytest
import sentencepiece
from albert_reference import encode_slowly
from hypothesis import example, given
from hypothesis import strategies as st
from made_models import CONTROL, UNUSED, Piece, compile_charsmap, make_model
from test_albert_text import ALL_KNOWN, KNOWN
from test_chunks import LINES, encode, texts, train
from test_tokenizer import as_text, rows_of

from albert_data.errors import ConfigError
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE
from albert_data.tokenizer.sentencepiece.albert import make_comma_rule
from albert_data.tokenizer.sentencepiece.proto import BPE, NORMAL, UNIGRAM, USER_DEFINED

NUMBERED = [f"In {year}, {year % 97}, or {year * 3},000 the café's ``Ärzte''" for year in range(1, 400)]
MODELS = {
    "as released": {
        "user_defined_symbols": '(,),",-,.,–,£,€',
        "split_by_number": False,
        "split_by_unicode_script": False,
    },
    "bpe": {"model_type": "bpe", "split_by_number": False, "split_by_unicode_script": False},
    "no prefix": {"add_dummy_prefix": False, "split_by_number": False, "split_by_unicode_script": False},
    "byte fallback": {"byte_fallback": True},
    "falls back": {"split_by_whitespace": False, "split_by_unicode_script": False},
    "spaces kept": {"remove_extra_whitespaces": False},
}


@cache
def load(name: str) -> Tokenizer:
    model = train(tuple(NUMBERED + LINES), hard_vocab_limit=False, **MODELS[name]).model
    return Tokenizer(model, "model", "albert-v2")


def encode_each(model: bytes, texts: list[str]) -> list[list[int]]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [encode_slowly(processor, text) for text in texts]


@pytest.mark.parametrize("name", MODELS)
@given(texts=texts | st.lists(st.text(st.sampled_from("0123456789,. '`Ééx١") | st.sampled_from(KNOWN)), max_size=5))
@example(["In 1999, 12, 1,000,000 Ärzte", "", "9,", "7,,", "Ⅳ,٣,"])
def test_ids_are_those_of_the_plain_code(name, texts):
    tokenizer = load(name)
    texts = [text for text in texts if ALL_KNOWN.issuperset(text)]
    expected = encode_each(tokenizer.model, texts)
    assert encode(tokenizer, texts) == expected
    assert rows_of(*tokenizer.encode(as_text(texts))) == expected


PIECES = ["1,", "▁1,", "21,", "▁2", "12", "1", "2", ",", "x1,", "a", "b", "ab", "q", "3,", "x3", "²", "٣,", "٣"]
pieces = st.dictionaries(
    st.sampled_from(PIECES),
    st.tuples(
        st.floats(-9, -0.0625, width=32), st.sampled_from([NORMAL, NORMAL, NORMAL, USER_DEFINED, UNUSED, CONTROL])
    ),
    min_size=1,
)


@given(
    pieces=pieces,
    texts=st.lists(st.text(st.sampled_from("123,AabqQ x²٣"), max_size=12), min_size=1, max_size=12),
    model_type=st.sampled_from([UNIGRAM, BPE]),
    charsmap=st.sampled_from([{}, {"1": ""}, {"2": "1"}, {"1": " "}]).map(
        lambda rules: rules and compile_charsmap(rules)
    ),
    has_prefix=st.booleans(),
)
def test_any_pieces_with_digits_and_commas_become_what_the_plain_code_makes_of_them(
    pieces, texts, model_type, charsmap, has_prefix
):
    """Digits and the comma may be unknown, and unknown characters may spell pieces that are not matched."""
    listed: list[Piece] = [(text, *rest) for text, rest in {VISIBLE_SPACE: (-3.0, NORMAL), **pieces}.items()]
    model = make_model(listed, model_type=model_type, charsmap=charsmap or b"", add_dummy_prefix=has_prefix)
    tokenizer = Tokenizer(model, "made", "albert-v2")
    assert encode(tokenizer, texts) == encode_each(model, texts)


def test_unknown_text_is_read_only_where_it_may_matter():
    def reads_unknown(*listed: Piece) -> bool:
        model = make_model(listed, model_type=UNIGRAM)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        is_matched = np.array([False] * 5 + [kind in (NORMAL, USER_DEFINED) for _, _, kind in listed])
        pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
        return make_comma_rule(processor, pieces, is_matched).reads_unknown

    known: list[Piece] = [(character, -1.0, NORMAL) for character in ",ap["]
    assert not reads_unknown(*known)
    assert not reads_unknown(*known, ("ax", -1.0, UNUSED))
    assert reads_unknown(*known, ("xy", -1.0, UNUSED))
    assert reads_unknown(*known[1:]), "the comma"
    assert reads_unknown(*known[:3]), "[CLS]"


def test_a_copy_keeps_the_normalization_and_an_unknown_one_is_refused(tmp_path):
    model = train().model
    (tmp_path / "spiece.model").write_bytes(model)
    tokenizer = load_tokenizer(tmp_path, normalization="albert-v2")
    assert encode(pickle.loads(pickle.dumps(tokenizer)), ["Ä B"]) == encode_each(model, ["Ä B"])
    assert tokenizer.normalise(" Ä  B") == f"{VISIBLE_SPACE}a{VISIBLE_SPACE}b"
    with pytest.raises(ConfigError, match="normalization is 'albert-v3'; allowed are none, albert-v2"):
        load_tokenizer(tmp_path, normalization="albert-v3")
