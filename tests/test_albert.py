"""`--normalization albert-v2` gives the text and the ids of Google's code around SentencePiece, and builds say so."""

from __future__ import annotations

import json
import pickle
import sys
import unicodedata
from functools import cache
from pathlib import Path

import build_fixtures as fixtures
import numpy as np
import pytest
import sentencepiece
from albert_reference import encode_slowly, normalise_slowly
from build_fixtures import InlineEngine, run_build
from hypothesis import example, given
from hypothesis import strategies as st
from made_models import Piece, compile_charsmap, make_model
from refusals import check_refused, refused
from test_chunks import LINES, encode, texts, train
from test_tokenizer import as_text, rows_of

from albert_data.cli.main import run as main
from albert_data.config import VocabConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.data import slice_sentences
from albert_data.errors import ConfigError, OutputError, TokenizerError
from albert_data.inspect.verify import verify
from albert_data.pipeline.build import build_shards
from albert_data.shards.reader import open_shards
from albert_data.text.unicode_tables import category
from albert_data.tokenizer.buffers import Sentences
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE
from albert_data.tokenizer.sentencepiece.albert import (
    CASED,
    IGNORABLE,
    digits,
    make_table,
    normalise,
    normalise_text,
)
from albert_data.tokenizer.sentencepiece.proto import BPE, NORMAL, UNIGRAM, USER_DEFINED

# Characters that are the same in Python's tables and in ours.
KNOWN = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
KNOWN = [one for one in KNOWN if category(one) == unicodedata.category(one) != "Cn"]
ALL_KNOWN = frozenset(KNOWN)
ODD = "ΣΣΣσς.'’`aA \u0301\u00ad\u0345ʰİßﬁﷺ¨Å한각ǅ1²½\t\u3000\xa0\x1c\x85漢豈𝚺𐐀🄰Ϲ\"·"


@given(st.text(st.sampled_from(ODD) | st.sampled_from(KNOWN), max_size=40))
@example("``a''' '' `'`` ```")
@example("  a\u00a0\u00a0 b \u00a8 \u00a8")
@example("ΑΣ' ΑΣ.Α ΑΣ Σ Σ. .Σ ΑΣΣ")
def test_text_is_what_plain_python_makes_of_it(text):
    assert normalise_text(text) == normalise_slowly(text)


def as_sentences(texts: list[str]) -> Sentences:
    utf8 = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in utf8])
    return Sentences(np.frombuffer(b"".join(utf8), np.uint8), ends - [len(text) for text in utf8], ends)


def as_texts(found: Sentences) -> list[str]:
    return [part.decode() for part in slice_sentences(found.utf8, found.begins, found.ends)]


def test_each_character_becomes_what_python_makes_of_it():
    """Alone, behind a letter and before a letter; and the sigma behind it shows whether it is cased."""
    for begin in range(0, len(KNOWN), 1000):
        texts = [form.format(c) for c in KNOWN[begin : begin + 1000] for form in ("{}", "A{}Σ", "{}Σ", "ΑΣ{}", "ΑΣ{}a")]
        assert as_texts(normalise(as_sentences(texts))) == [normalise_slowly(text) for text in texts]


def test_digits_are_those_of_python():
    assert {chr(code) for code in digits()} & set(KNOWN) == {c for c in KNOWN if c.isdigit()}


def test_lower_case_keeps_what_decides_about_a_sigma():
    """The kernel looks at characters that are in lower case already."""
    entries = make_table().entries
    for character in KNOWN:
        for part in unicodedata.normalize("NFKD", character):
            if not unicodedata.combining(part):
                flags = {int(entries[ord(c)]) & (CASED | IGNORABLE) for c in (part, *part.lower())}
                assert len(flags) == 1, hex(ord(part))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_slices_change_nothing(size):
    texts = ["The Cat", "", "  ", "ﷺ" * 9, "A '' b", "Σ"]
    sentences = as_sentences(texts)
    shown = [text for chosen in sentences.slices(size) for text in as_texts(normalise(sentences.part(chosen)))]
    assert shown == [normalise_slowly(text) for text in texts]


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


PIECES = ["1,", "▁1,", "21,", "▁2", "12", "1", "2", "x1,", "a", "b", "ab", "q", "3,", "x3", "²", "٣,", "٣"]
KINDS = st.sampled_from([NORMAL, NORMAL, USER_DEFINED])
pieces = st.dictionaries(st.sampled_from(PIECES), st.tuples(st.floats(-9, -0.0625, width=32), KINDS), min_size=1)


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
    """Digits may be unknown."""
    listed: list[Piece] = [(text, *rest) for text, rest in {VISIBLE_SPACE: (-3.0, NORMAL), **pieces}.items()]
    listed += [(character, -9.5, NORMAL) for character in ",<"]
    model = make_model(listed, model_type=model_type, charsmap=charsmap or b"", add_dummy_prefix=has_prefix)
    tokenizer = Tokenizer(model, "made", "albert-v2")
    assert encode(tokenizer, texts) == encode_each(model, texts)


@refused(
    ([(character, -1.0, NORMAL) for character in "ap[<"], TokenizerError, "needs a model & character of ','"),
    ([(character, -1.0, NORMAL) for character in ",xy["], TokenizerError, "needs a model & character of '<pad>'"),
)
def test_a_model_of_which_the_text_of_unknown_characters_matters_is_refused(call, kind, named):
    model = make_model(call, model_type=UNIGRAM)
    check_refused(lambda: Tokenizer(model, "made", "albert-v2").prepare(), kind, named)


def test_a_copy_keeps_the_normalization_and_an_unknown_one_is_refused(tmp_path):
    model = train().model
    (tmp_path / "spiece.model").write_bytes(model)
    tokenizer = load_tokenizer(tmp_path, normalization="albert-v2")
    assert encode(pickle.loads(pickle.dumps(tokenizer)), ["Ä B"]) == encode_each(model, ["Ä B"])
    assert tokenizer.normalise(" Ä  B") == f"{VISIBLE_SPACE}a{VISIBLE_SPACE}b"
    with pytest.raises(ConfigError, match="normalization is 'albert-v3'; allowed are none, albert-v2"):
        load_tokenizer(tmp_path, normalization="albert-v3")


TEXT = "".join(
    f"Die Ärzte zählten {number}, {number + 7} oder {number},000 ``Fälle''. Ein café war 中国.\nDer Fluß ist Groß.\n\n"
    for number in range(60)
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_build_has_the_tokens_of_the_plain_code_and_says_so(corpus, tmp_path, tokenizer_model):
    plain = run_build(corpus, tmp_path / "plain", Tokenizer(tokenizer_model, "model"), sentences="lines").manifest
    tokenizer = Tokenizer(tokenizer_model, "model", "albert-v2")
    manifest = run_build(corpus, tmp_path / "out", tokenizer, sentences="lines").manifest
    assert manifest.tokenizer.normalization == manifest.plan.tokenizer["normalization"] == "albert-v2"
    assert "normalization" not in str(plain.to_values())
    assert manifest.documents_digest == plain.documents_digest
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer_model)
    assert manifest.counts.tokens == sum(len(encode_slowly(processor, line)) for line in TEXT.split("\n"))
    assert manifest.counts.tokens != plain.counts.tokens
    shards = open_shards(tmp_path / "out")
    assert shards.tokenizer.normalization == "albert-v2"
    assert shards.tokenizer.encode(["Ä"])[0].tolist() == encode_slowly(processor, "Ä")
    assert list(verify(tmp_path / "out")) == []
    with pytest.raises(OutputError, match="tokenizer differs"):
        run_build(corpus, tmp_path / "out", Tokenizer(tokenizer_model, "model"), sentences="lines")


def test_a_vocabulary_learns_normalised_text_and_is_used_with_it(corpus, tmp_path, capsys):
    vocab, given = tmp_path / "vocab", ["--normalization", "albert-v2", "--workers", "1"]
    assert main(["vocab", str(corpus), "--vocab-size", "150", *given, "-o", str(vocab)]) == 0
    assert json.loads((vocab / "vocab.json").read_text())["normalization"] == "albert-v2"
    learnt = "".join((vocab / "pieces.txt").read_text(encoding="utf-8").split("\n")[5:])
    assert set(normalise_slowly(TEXT)) - {"中", "国", " "} <= set(learnt)
    assert not set("Äßäé") & set(learnt) - set(normalise_slowly(TEXT))
    build = ["build", str(corpus), "--tokenizer", str(vocab), "--workers", "1"]
    assert main([*build, "-o", str(tmp_path / "plain")]) == 1
    message = "was trained on text of --normalization albert-v2; pass that, not none"
    assert message in capsys.readouterr().err
    assert main([*build, "--normalization", "albert-v2", "-o", str(tmp_path / "out")]) == 0
    assert open_shards(tmp_path / "out").tokenizer.normalization == "albert-v2"


def test_a_build_that_trains_its_vocabulary_normalises_text_for_both(corpus, tmp_path):
    vocab, inputs = VocabConfig(vocab_size=150, normalization="albert-v2"), find_inputs([str(corpus)])
    config = fixtures.make_config()
    manifest = build_shards(inputs, tmp_path / "out", None, config, InlineEngine(), vocab=vocab).manifest
    assert manifest.plan.tokenizer["trained"]["normalization"] == "albert-v2"
    tokenizer = open_shards(tmp_path / "out").tokenizer
    assert tokenizer.normalization == "albert-v2"
    unknown = np.count_nonzero(tokenizer.encode(TEXT.split("\n"))[0] == tokenizer.unk_id)
    assert unknown == 0
