"""The chunk table gives SentencePiece's ids for any text, cut as by a plain walk, and says why a model is slow."""

from __future__ import annotations

import ctypes
import io
import mmap
import re
import sys
import unicodedata
from contextlib import suppress
from functools import cache
from itertools import groupby, pairwise, product
from pathlib import Path

import numba
import numpy as np
import pytest
import references
import sentencepiece
from hypothesis import assume, example, given
from hypothesis import strategies as st
from made_models import CONTROL, UNUSED, Piece, compile_charsmap, make_model

from albert_data.errors import TokenizerError
from albert_data.kernels import find_bytes, multiply_and_fold, pointer
from albert_data.tokenizer.buffers import Sentences
from albert_data.tokenizer.chunks import encoder
from albert_data.tokenizer.chunks.cutting import (
    AFTER,
    BEFORE,
    BLOCK,
    FILTER_BYTES,
    PADDING,
    SINGLE,
    SOLID,
    CutRule,
    make_cut_scratch,
    mark_cuts,
)
from albert_data.tokenizer.chunks.lattice import encode_chunks
from albert_data.tokenizer.chunks.trie import make_trie
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE
from albert_data.tokenizer.sentencepiece.charsmap import read_charsmap
from albert_data.tokenizer.sentencepiece.cuts import find_contracted, make_cut_rule
from albert_data.tokenizer.sentencepiece.proto import BPE, NORMAL, UNIGRAM, USER_DEFINED, change_prefix, read_settings

CORPUS = Path(__file__).parent.parent / "sample_corpus"
LINES = [
    line
    for name in ("english-1.txt", "chinese.txt")
    for line in (CORPUS / name).read_text(encoding="utf-8").split("\n")
]
# What Google's models for English have.
RELEASED = {"user_defined_symbols": '(,),",-,.,–,£,€', "normalization_rule_name": "nmt_nfkc"}
LONGER = {"user_defined_symbols": "the,中国,ﬁ,e\u0301,\u0301s,ABC,--,-,\U0001f469"}
FAST = {
    "unigram": {},
    "bpe": {"model_type": "bpe"},
    "uncased": {"normalization_rule_name": "nmt_nfkc_cf"},
    "identity": {"normalization_rule_name": "identity"},
    "byte fallback": {"byte_fallback": True},
    "no prefix": {"add_dummy_prefix": False},
    "no prefix, bpe": {"add_dummy_prefix": False, "model_type": "bpe"},
    "no prefix, uncased": {"add_dummy_prefix": False, "normalization_rule_name": "nmt_nfkc_cf"},
    "no prefix, bpe, byte fallback": {"add_dummy_prefix": False, "model_type": "bpe", "byte_fallback": True},
    "spaces kept": {"remove_extra_whitespaces": False},
    "spaces kept, bpe, no prefix": {"remove_extra_whitespaces": False, "model_type": "bpe", "add_dummy_prefix": False},
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
NO_SPACE = tuple(line.replace(" ", "") for line in LINES if "。" in line)
SLOW = {
    "space inside": {"split_by_whitespace": False},
    "treat_whitespace_as_suffix": {"treat_whitespace_as_suffix": True},
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
def test_ids_are_those_of_sentencepiece(name, texts):
    tokenizer = train(**FAST[name])
    assert tokenizer.slow_reason is None
    texts = [*texts, *(re.sub("[,;]", "-", text) for text in texts)]
    assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)


@pytest.mark.parametrize("name", FAST)
def test_spaces_may_stand_anywhere(name):
    tokenizer, word = train(**FAST[name]), LINES[0][:1]
    parts = (("", " ", "  "), range(58, 68), (" ", "  ", "   "), ("", " "))
    texts = [before + length * word + gap + word + behind for before, length, gap, behind in product(*parts)]
    assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)


@pytest.mark.parametrize("settings", [{}, {"model_type": "bpe"}, {"byte_fallback": True}], ids=["", "bpe", "bytes"])
@given(texts=texts)
@example(texts=["丂 丄", "丂丄 中国 丆", "a b", " ", "x 丂", "▁", "中▁国"])
def test_a_model_without_a_piece_for_the_space(settings, texts):
    """Trained on text without spaces. A space is an unknown character then, and one with those beside it."""
    options = {"hard_vocab_limit": False, "add_dummy_prefix": False, "character_coverage": 1.0}
    tokenizer = train(lines=NO_SPACE, vocab_size=2000, **options, **settings)
    assert VISIBLE_SPACE not in tokenizer.pieces
    assert tokenizer.slow_reason is None
    assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)


def test_a_user_defined_piece_with_a_space_goes_through_sentencepiece():
    for symbol in ("he r", " x", "y ", "a" + VISIBLE_SPACE + "b"):
        tokenizer = train(user_defined_symbols=symbol)
        assert "space inside" in str(tokenizer.slow_reason)
        assert encode(tokenizer, LINES[:20]) == encode_by_sentencepiece(tokenizer, LINES[:20])


@pytest.mark.parametrize("reason", SLOW)
def test_a_model_whose_text_cannot_be_cut_goes_through_sentencepiece(reason):
    tokenizer = train(**SLOW[reason])
    assert reason in str(tokenizer.slow_reason)
    for lines in (LINES[:20], ["", *LINES[:62]], ["", *LINES[:63]], [""]):  # fewer than 64 go one by one
        assert encode(tokenizer, lines) == encode_by_sentencepiece(tokenizer, lines)


def test_a_model_of_more_text_than_the_trie_holds_goes_through_sentencepiece(monkeypatch):
    monkeypatch.setattr("albert_data.tokenizer.sentencepiece.cuts.MAX_CHARACTERS", 3000)
    tokenizer = Tokenizer(train().model, "model")
    assert tokenizer.slow_reason == "its pieces hold 3,000 characters or more"
    assert encode(tokenizer, LINES[:20]) == encode_by_sentencepiece(tokenizer, LINES[:20])


def test_a_full_table_changes_no_id(monkeypatch):
    tokenizer = train()
    expected = encode_by_sentencepiece(tokenizer, LINES)
    limits = [{"MAX_KEY_BYTES": 300}, {"MAX_IDS": 50}, {"SLICE_BYTES": 100}, {"FIRST_SLOTS": 64}]
    limits.append({"FIRST_SLOTS": 64, "MAX_SLOTS": 64})
    for limit in limits:
        with monkeypatch.context() as patch:
            for name, value in limit.items():
                patch.setattr(encoder, name, value)
            small = Tokenizer(tokenizer.model, "model")
            assert encode(small, LINES) == expected, limit
            assert encode(small, LINES) == expected, f"{limit}, again"


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_marks_that_normalisation_joins_to_letters_change_no_id(model_type):
    """The pieces hold é and が; the text holds e, か and marks behind them, next to which a cut seems safe."""
    lines = ["l'été-là déjà fêté, -évidé-", "彼が私がこれがそれが", "東京が好きです。ばびぶべぼ"] * 20
    tokenizer = train(lines=tuple(lines), vocab_size=60, hard_vocab_limit=False, model_type=model_type)
    texts = [unicodedata.normalize("NFD", line[i:j]) for line in lines[:3] for i in range(9) for j in range(i, 20)]
    assert any(len(piece) > 1 and set(piece) & set("éêàがばび") for piece in tokenizer.pieces)
    assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_characters_that_become_many_pieces_fit_the_buffer_of_ids(kind):
    """U+FDFA, of three bytes, is normalised to 18 characters: there may be more ids than bytes."""
    for count in range(0, 400, 9):
        texts = ["\ufdfa" * count + " a" * 60, "b" * count]
        tokenizer = train(**FAST[kind])
        assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)


def test_what_normalisation_changes_character_by_character_is_learnt_without_it(monkeypatch):
    tokenizer = Tokenizer(train(normalization_rule_name="nmt_nfkc_cf").model, "model")
    growing = ["Ⱥ" * count for count in (100, 169, 170, 171, 300)]  # each of two bytes becomes one of three
    texts = ["THE Ａrticle，中国！（ＡＢＣ）", *growing]
    expected = encode_by_sentencepiece(tokenizer, texts)
    with monkeypatch.context() as patch:
        patch.setattr(tokenizer._encoder.chunks, "_learn", None)
        assert encode(tokenizer, texts[:2]) == expected[:2]
    assert encode(tokenizer, texts) == expected


@pytest.mark.parametrize("cut", [1, 2])
def test_a_replacement_that_ends_within_a_character_is_damage(cut):
    model, whole = train().model, "キロ".encode() + b"\0"
    assert model.count(whole) == 1
    tokenizer = Tokenizer(model.replace(whole, whole[: -1 - cut] + bytes(1 + cut)), "model")
    with pytest.raises(TokenizerError, match="model is damaged"):
        tokenizer.encode(["㌔"])


@pytest.mark.skipif(sys.platform != "linux", reason="guards a page by Linux's mprotect")
def test_nothing_behind_the_padding_is_read():
    """The page there is protected: reading it ends the process."""
    page, protect = mmap.PAGESIZE, ctypes.CDLL(None).mprotect
    pages = mmap.mmap(-1, 2 * page)
    guarded = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(pages)) + page)
    assert protect(guarded, page, 0) == 0
    memory, lengths = np.frombuffer(pages, np.uint8), np.empty(1, np.int64)
    encoder = Tokenizer(train().model, "model")._encoder.chunks  # its own, for other tests change the one they share
    for filling in (".", "a", " ", "a. ", "中", "😀", "é!", "a中.."):
        for count in range(1, 150):
            size = count * len(filling.encode())
            text = memory[page - size - PADDING : page]
            text[:] = np.frombuffer((filling * (count + PADDING)).encode()[: len(text)], np.uint8)
            assert len(list(encoder.encode(Sentences(text, np.zeros(1, np.int64), np.array([size])), lengths))) == 1
    assert protect(guarded, page, mmap.PROT_READ) == 0


def test_a_vocabulary_of_wide_ids_gives_the_same():
    """As with over 65,536 pieces: their ids fit no slot."""
    tokenizer = train()
    wide = Tokenizer(tokenizer.model, "model")
    rules = wide._encoder.chunks._rules
    trie = rules.trie._replace(settings=rules.trie.settings._replace(is_wide=True))
    wide._encoder.chunks._rules = rules._replace(trie=trie)
    wide.id_dtype = wide._encoder.chunks._dtype = np.uint32
    assert wide.encode(LINES)[0].dtype == np.uint32
    assert encode(wide, LINES) == encode_by_sentencepiece(tokenizer, LINES)


def test_a_chunk_may_have_more_ids_than_16_bits_can_count():
    tokenizer = train(model_type="bpe", lines=("صلى الله عليه وسلم",) * 20, vocab_size=19)
    texts = ["\ufdfa" * 10_000]  # each becomes 18 characters, and they are never cut
    assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)
    assert len(encode(tokenizer, texts)[0]) > 1 << 16


def test_unknown_characters_that_meet_at_a_cut_are_one():
    tokenizer = train()
    texts = ["丂丄丆", "x丂丄 丆y"]  # characters that the corpus does not hold
    assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)
    assert encode(tokenizer, texts)[0].count(tokenizer.unk_id) == 1


# ---- pieces of any kind ----

NAMES = ["<pad>", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "ab-A\u0301é中ﬁ😀1"
prefixes = st.sampled_from(["", "", VISIBLE_SPACE])
scores = st.floats(-9, -0.0625, width=32) | st.sampled_from([-2.0, -1.9, -1.8, -1.7, -0.1, 0.0, 0.1, 0.2, 0.3, 3.0])
kinds = st.sampled_from([NORMAL, NORMAL, NORMAL, USER_DEFINED, USER_DEFINED, UNUSED, CONTROL])
spelt = st.text(st.sampled_from(LETTERS), min_size=1, max_size=3)
pieces = st.dictionaries(st.builds(str.__add__, prefixes, spelt), st.tuples(scores, kinds), min_size=1, max_size=20)
parts = st.text(st.sampled_from(LETTERS + VISIBLE_SPACE + "x"), max_size=6) | st.sampled_from([" ", "  "])
strings = st.lists(st.lists(parts, max_size=8).map("".join), min_size=1, max_size=12)
replaced = st.sampled_from(["A", "a\u0301", "b", "--", "中", "1-", " "]) | st.text(LETTERS, min_size=1, max_size=2)
replacing = st.sampled_from(["a", "é", "bb", "", "ab", " ", "x" + VISIBLE_SPACE])
replacements = st.dictionaries(replaced, replacing, max_size=4)
TWO = ["xc", "cd", "dd", "dc", "x1", "c1", "a1", "x不", "c😀", "😀x", "▁x", "▁c", "▁d", "▁a", "▁不", "xcd", "▁xcd"]
SOME = {piece: (-5.0 + len(piece) - 0.01 * i, NORMAL) for i, piece in enumerate([*"xcda1不😀😁-*+가", *TWO])}


@given(
    pieces, strings, st.sampled_from([UNIGRAM, BPE]), st.dictionaries(replaced, replacing, max_size=4), st.booleans()
)
@example(SOME, ["xc-*dx", "c-*"], UNIGRAM, {"-*": ""}, True)
@example(SOME, ["xc-*x"], UNIGRAM, {"-*": "😀"}, True)
@example(SOME, ["c-*", "c-* x"], UNIGRAM, {"-*": " x"}, True)
@example(SOME, ["가c a", "x 가c", "x가c d"], UNIGRAM, {"가c": "▁"}, True)
@example(SOME, ["c가 -* d", "가 -* a", "c-*가 -* d"], UNIGRAM, {"-*": "", "가": "▁"}, True)
@example(SOME, ["-* d", "-*c", "가c", "가 c", "-*가 d", " 가 -* a"], UNIGRAM, {"-*": "", "가": "▁"}, False)
@example(SOME, ["c d"], UNIGRAM, {" ": "1"}, True)
@example(SOME, ["c d"], UNIGRAM, {" ": ""}, True)
@example(SOME, ["c d", " c", "  c d"], UNIGRAM, {" ": "1"}, False)
@example(SOME | {"dA": (0.0, USER_DEFINED)}, ["dA", "x dAx", "cdAdA c"], UNIGRAM, {"A": "a"}, True)
def test_any_pieces_and_replacements_give_the_ids_of_sentencepiece(pieces, texts, model_type, rules, has_prefix):
    assume(all(key != value for key, value in rules.items()))
    listed: list[Piece] = [(text, *rest) for text, rest in {VISIBLE_SPACE: (-3.0, NORMAL), **pieces}.items()]
    table = compile_charsmap(rules) if rules else b""
    made = {"model_type": model_type, "charsmap": table, "add_dummy_prefix": has_prefix}
    for removes_spaces in (True, False):
        tokenizer = Tokenizer(make_model(listed, remove_extra_whitespaces=removes_spaces, **made), "made")
        if tokenizer.slow_reason is None:
            assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)


@given(texts=st.lists(st.lists(st.sampled_from([*NAMES, *"[]<>SEP▁ "])).map("".join), max_size=9))
@pytest.mark.parametrize("model_type", [UNIGRAM, BPE])
@pytest.mark.parametrize("special_type", [USER_DEFINED, NORMAL])
def test_text_never_gives_special_pieces_whatever_their_type(model_type, special_type, texts):
    listed: list[Piece] = [(text, -2.0, NORMAL) for text in [*"[]<>SEPadMK▁", "[S", "EP", "▁[", "P]"]]
    tokenizer = Tokenizer(make_model(listed, model_type=model_type, special_type=special_type), "made")
    expected = Tokenizer(make_model(listed, model_type=model_type), "made")
    assert encode(tokenizer, texts) == encode_by_sentencepiece(expected, texts)
    assert tokenizer.note is not None
    assert tokenizer.note.startswith("made finds <pad>, [CLS], [SEP], [MASK] in text; a build does not")
    assert expected.note is None


@pytest.mark.parametrize("length", [1, 2, 3, 7, 30])
def test_the_score_of_a_user_defined_piece_is_that_of_sentencepiece(length):
    """It competes with a piece of nearly the same score."""
    symbol, score = "q" * length, length * 0.1 - 0.1
    for competing in (score + sign * 2.0**power for sign in (-1, 1) for power in range(-24, -2)):
        listed: list[Piece] = [("c", 0.0, NORMAL), ("z", -9.0, NORMAL), (VISIBLE_SPACE, -1.0, NORMAL)]
        listed += [(symbol, -5.0, USER_DEFINED), (symbol + "c", competing, NORMAL)]
        tokenizer = Tokenizer(make_model(listed, model_type=UNIGRAM), "made")
        texts = [symbol + "c", symbol + "c " * 9 + symbol + "c"]
        assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)


# ---- what the model file says ----


@pytest.mark.parametrize("settings", [{}, {"byte_fallback": True}, {"user_defined_symbols": "foo,中国"}])
def test_scores_and_types_of_pieces_are_those_of_sentencepiece(settings):
    model = train(**settings).model
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    unmatched = (processor.is_control, processor.is_unknown, processor.is_unused, processor.is_byte)
    ids = range(processor.get_piece_size())
    read = read_settings(model)
    assert read.scores.tolist() == [processor.get_score(i) for i in ids]
    assert read.is_matched.tolist() == [not any(has_type(i) for has_type in unmatched) for i in ids]


def test_a_piece_may_be_written_in_any_order_and_with_fields_unknown():
    half, control = b"\x15" + np.float32(-0.5).tobytes(), b"\x18\x03"
    fixed, text = b"\x39" + bytes(8), b"\x0a\x81\x00x"  # of 8 bytes; of a length in more bytes than it needs
    pieces = [text + half, control + half + text, b"", text + control, fixed + text + half, half + half + control]
    read = read_settings(b"".join(b"\x0a" + bytes([len(piece)]) + piece for piece in pieces))
    assert read.types.tolist() == [1, 3, 1, 3, 1, 3]
    assert read.scores.tolist() == [-0.5, -0.5, 0, 0, -0.5, -0.5]


@pytest.mark.parametrize("data", [b"\x0a\x03\x0a", b"\x0a", b"\x0b", b"\x0a\x02\x15\x00", b"\x08" + b"\xff" * 12])
def test_what_is_no_protocol_buffer_is_refused(data):
    with pytest.raises(ValueError, match="protocol buffer"):
        read_settings(data)


# ---- what normalisation replaces ----


def load_normalizer(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """It shows each space as "▁", and adds and removes none."""
    changed = change_prefix(model, add_dummy_prefix=False) + bytes([3 << 3 | 2, 2, 4 << 3, 0])  # keeps all spaces
    return sentencepiece.SentencePieceProcessor(model_proto=changed)


@pytest.mark.parametrize("name", ["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"])
def test_each_character_becomes_what_sentencepiece_makes_of_it(name):
    tokenizer = train(normalization_rule_name=name)
    rule = make_cut_rule(read_settings(tokenizer.model), tokenizer.pieces)
    first, last, flags = (
        list(part)
        for part in zip(*((c & 0xFFFF, c >> 16 & 0xFFFF, c >> 32) for c in rule.characters.tolist()), strict=True)
    )
    codes = [*range(1, 0xD800), *range(0xE000, 1 << 16)]
    normal = load_normalizer(tokenizer.model).normalize([chr(code) for code in codes])
    for code, text in zip(codes, normal, strict=True):
        is_solid = text != "" and VISIBLE_SPACE not in text and max(ord(text[0]), ord(text[-1])) < 1 << 16
        assert bool(flags[code] & SOLID) == is_solid, hex(code)
        if is_solid:
            assert (first[code], last[code]) == (ord(text[0]), ord(text[-1])), hex(code)
            assert bool(flags[code] & SINGLE) == (len(text) == 1), hex(code)


def walk_slowly(charsmap: bytes) -> dict[str, str]:
    """The strings that are replaced, and by what: all labels are tried at each node of the trie."""
    size = 4 + int.from_bytes(charsmap[:4], "little")
    units, strings = np.frombuffer(charsmap[4:size], "<u4").tolist(), charsmap[size:]
    found = {}

    @cache
    def find_children(base: int) -> list[int]:
        places = [(base ^ label, label) for label in range(1, 256) if base ^ label < len(units)]
        return [at for at, label in places if units[at] & 0x800000FF == label]

    def walk(at: int, key: bytes) -> None:
        base = at ^ (units[at] >> 10 << ((units[at] & 512) >> 6))
        if units[at] & 256:
            value = units[base] & 0x7FFFFFFF
            found[key.decode()] = strings[value : strings.index(0, value)].decode()
        for child in find_children(base):
            walk(child, key + bytes([units[child] & 255]))

    walk(0, b"")
    return found


def test_the_strings_that_are_replaced_are_all_found():
    model = train().model
    charsmap = read_settings(model).charsmap
    replaced, found = walk_slowly(charsmap), read_charsmap(charsmap)
    assert load_normalizer(model).normalize(list(replaced)) == [
        text.replace(" ", VISIBLE_SPACE) for text in replaced.values()
    ]
    joined = {ord(character) for key in replaced for character in key[1:]}
    assert np.flatnonzero(found.joined).tolist() == sorted(code for code in joined if code < 1 << 16)
    contractions = [(ord(text[0]), ord(key[0])) for key, text in replaced.items() if len(key) > 1 and text]
    expected = sorted(text << 16 | key for text, key in contractions if max(text, key) < 1 << 16)
    assert np.sort(found.contractions).tolist() == expected


code_pairs = st.sets(st.tuples(st.integers(1, 5), st.integers(1, 5)))


@given(bigrams=code_pairs, contractions=code_pairs)
def test_neighbours_are_found_also_where_normalisation_contracts_the_right_one(bigrams, contractions):
    first = np.array([0, 1, 2, 3, 3, 5], np.uint16)
    arrays = [
        np.array(sorted(left << 16 | right for left, right in each), np.uint32) for each in (bigrams, contractions)
    ]
    found = find_contracted(*arrays, first)
    expected = {left << 16 | int(first[key]) for left, right in bigrams for text, key in contractions if text == right}
    assert found.dtype == np.uint32
    assert set(found.tolist()) == expected


# ---- the lattice ----

characters = st.sampled_from("aé中😀\0\U0010ffff")
pieces_with_scores = st.dictionaries(st.text(characters, min_size=1, max_size=4), st.floats(-9, -1), max_size=30)
UNKNOWN = 999


def segment_slowly(text: str, pieces: dict[str, float]) -> list[tuple[float, list[int]]]:
    """Every way to write the text as pieces and unknown characters, the best score first."""
    if not text:
        return [(0.0, [])]
    steps = [(len(piece), number, pieces[piece]) for number, piece in enumerate(pieces) if text.startswith(piece)]
    if text[0] not in pieces:
        steps.append((1, UNKNOWN, min(pieces.values(), default=0.0) - 10))
    ways = []
    for length, number, score in steps:
        ways += [(score + rest, [number, *ids]) for rest, ids in segment_slowly(text[length:], pieces)]
    return sorted(ways, key=lambda way: -way[0])


@given(st.text(characters, max_size=7), pieces_with_scores)
def test_the_lattice_finds_the_best_way_and_where_rounding_could_decide(text, pieces):
    """For characters of all widths: a piece of the trie may be the beginning of another one."""
    numbers, scores = list(range(len(pieces))), list(pieces.values())
    lowest_score = min(scores, default=0.0)
    trie = make_trie(
        list(pieces), numbers, scores, lowest_score=lowest_score, unk_id=UNKNOWN, vocab_size=1000, byte_fallback=False
    )
    utf8 = text.encode()
    ids, lengths, limits = encode_chunks(np.frombuffer(utf8, np.uint8), np.array([0, len(utf8)]), trie)
    ways = segment_slowly(text, pieces)
    best, best_ids = ways[0]
    assert lengths.tolist() == [len(ids)]
    if len(ways) == 1:
        assert limits[0] == 2**31
    elif limits[0] > 0:
        additions = len(best_ids) + len(text)
        assert (best - ways[1][0]) * 2**24 >= additions * limits[0] * (1 - 1e-6)
    if len(ways) == 1 or best - ways[1][0] > 1e-6:
        assert ids.tolist() == [one for one, group in groupby(best_ids) for _ in (group if one != UNKNOWN else [one])]
    else:
        assert limits[0] <= 16


def change_scores(model: bytes, scores: dict[str, float]) -> bytes:
    for piece, score in scores.items():
        head = b"\x0a" + bytes([len(piece.encode())]) + piece.encode() + b"\x15"
        assert model.count(head) == 1
        at = model.index(head) + len(head)
        model = model[:at] + np.float32(score).tobytes() + model[at + 4 :]
    return model


@given(
    powers=st.lists(st.integers(-26, -1), min_size=3, max_size=3),
    signs=st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=3, max_size=3),
    gain=st.sampled_from([0.0, 0.0, 3.0]),
    words=st.lists(st.sampled_from(["ab", "abba", "cd", "cdab", "Ω"]), min_size=1, max_size=6),
    repeats=st.integers(0, 5000),
)
def test_choices_that_rounding_could_decide_are_those_of_sentencepiece(powers, signs, gain, words, repeats):
    """Two ways to write a word have nearly equal scores, behind much or little text. gain > 0: a score is positive."""
    lines = ("ab", "abba", "cd", "cdab", "ef", "abef", "cdef") * 20
    model = train(lines=lines, vocab_size=18, hard_vocab_limit=False).model
    scores = {VISIBLE_SPACE: -2.0, "a": -3.3, "b": -2.7 + gain, "c": -1.1, "d": -4.9}
    for piece, power, sign in zip(("ab", VISIBLE_SPACE + "ab", VISIBLE_SPACE + "cd"), powers, signs, strict=True):
        scores[piece] = sum(float(np.float32(scores[character])) for character in piece) + sign * 2.0**power
    tokenizer = Tokenizer(change_scores(model, scores), "model")
    texts = [" ".join(["ef"] * repeats + words), " ".join(words * (repeats // 8)), *words]
    assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)


@pytest.mark.parametrize("units", [[], [0x1FFFFF << 10 | 512, *[0] * 255], [0x3FFF << 10, *[0] * 255]])
def test_a_table_of_replacements_whose_root_leads_outside_is_damaged(units):
    with pytest.raises(ValueError, match="damaged"):
        read_charsmap(np.array([4 * len(units), *units], "<u4").tobytes() + b"a\0")


@given(st.lists(st.tuples(st.integers(0, 9) | st.integers(0), st.integers(0, 255)), min_size=1, max_size=20))
def test_a_damaged_table_of_replacements_is_an_error_or_harmless(damages):
    charsmap = bytearray(read_settings(train().model).charsmap)
    for at, byte in damages:
        charsmap[at % len(charsmap)] = byte
    with suppress(ValueError):
        read_charsmap(bytes(charsmap))


Chunk = tuple[int, int, int]
RULES = {"unigram": {}, "uncased": {"normalization_rule_name": "nmt_nfkc_cf"}}


@cache
def find_rule(kind: str) -> CutRule:
    tokenizer = train(**RULES[kind])
    return make_cut_rule(read_settings(tokenizer.model), tokenizer.pieces)


def find_chunks(before: bytes, sentence: str, after: bytes, rule: CutRule) -> list[Chunk]:
    """By mark_cuts: begin, end, and whether the chunk continues a word. Spaces that end a sentence may be left out."""
    text = before + sentence.encode() + after
    begin, end = len(before), len(before + sentence.encode())
    cuts = np.empty(len(text) // BLOCK + 1, np.uint64)
    mark_cuts(np.frombuffer(text + bytes(PADDING), np.uint8), len(text), rule, cuts, make_cut_scratch())
    chunks, inner = [], 0
    for cut in range(begin + 1, end):
        if int(cuts[cut // BLOCK]) >> cut % BLOCK & 1:
            chunks.append((begin, cut, inner))
            begin, inner = cut, int(text[cut : cut + 1] != b" ")
            while text[begin : begin + 1] == b" ":
                begin += 1
    if begin < end:
        chunks.append((begin, end, inner))
    return trim([(begin - len(before), end - len(before), inner) for begin, end, inner in chunks], sentence)


def trim(chunks: list[Chunk], sentence: str) -> list[Chunk]:
    """Without the spaces at the end of the sentence, which may belong to its last chunk or not."""
    size = len(sentence.rstrip(" ").encode()) or len(sentence)
    return [(begin, min(end, size), inner) for begin, end, inner in chunks]


def may_be_pair(rule: CutRule, left: int, right: int) -> bool:
    value = (left << 16 | right) * 0x9E3779B97F4A7C15 & references.BITS_64
    return bool(rule.pairs[value >> 40 & FILTER_BYTES - 1] >> (value >> 61) & 1)


def flags(rule: CutRule, code: int) -> int:
    return int(rule.characters[code]) >> 32


def can_cut(rule: CutRule, left: int, right: int) -> bool:
    if 128 <= left < 0x0E00 and 128 <= right < 0x0E00 or left < 128 and right < 128 and f"{left:c}{right:c}".isalpha():
        return False
    if left < 128 and right < 128:
        return bool(rule.ascii_cuts[left | right << 8])
    last, first = int(rule.characters[left]) >> 16 & 0xFFFF, int(rule.characters[right]) & 0xFFFF
    return bool(flags(rule, left) & AFTER and flags(rule, right) & BEFORE and not may_be_pair(rule, last, first))


def walk(sentence: str, rule: CutRule) -> list[Chunk]:
    """The chunks, by applying the rule to each pair of characters in a word, and to the spaces between two words."""
    codes = [code if code < 1 << 16 else 0 for code in map(ord, sentence)]
    positions = np.cumsum([0, *(len(character.encode()) for character in sentence)]).tolist()
    chunks: list[Chunk] = []
    begin, inner, at = 0, 0, 1
    while at < len(codes):
        left, right, behind, next_inner = codes[at - 1], codes[at], at, 1
        if right == 32:
            while behind < len(codes) and codes[behind] == 32:
                behind += 1
            next_inner = 0
            is_cut = behind < len(codes) and flags(rule, left) & SOLID and flags(rule, codes[behind]) & BEFORE
        else:
            is_cut = left != 32 and can_cut(rule, left, right)
        if is_cut:
            chunks.append((positions[begin], positions[at], inner))
            begin, inner = behind, next_inner
        at = max(behind, at) + 1
    return trim([*chunks, (positions[begin], positions[-1], inner)] if codes else [], sentence)


any_part = st.one_of(
    st.sampled_from([word for line in LINES for word in line.split()]),
    st.sampled_from(ODD.split()),
    st.text(st.sampled_from("abzAZ019.,'-!é中国ßжก\0😀"), max_size=9),
    st.integers(1, 70).map(lambda count: " " * count),
    st.integers(50, 80).map(lambda count: "x" * count),
    st.integers(10, 70).map(lambda count: "中" * count),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
)
neighbours = st.sampled_from([b"", b" ", b"a", b".", b"\xe4", b"\xb8", b"\xcc\x81", b"\xff" * 70, b" " * 70])


@pytest.mark.parametrize("kind", RULES)
@given(sentence=st.lists(any_part, max_size=14).map("".join), before=neighbours, after=neighbours)
def test_chunks_are_those_of_a_plain_walk(kind, sentence, before, after):
    assert find_chunks(before, sentence, after, find_rule(kind)) == walk(sentence, find_rule(kind))


def test_chunks_are_found_at_every_position_around_the_borders_of_blocks():
    rule = find_rule("unigram")
    assert len(walk("." * 199, rule)) > BLOCK, "every byte of a block is a cut"
    for size in range(200):
        for tail in ("", ".", " a", "  a", "中文", ". 中", "é!", "😀x", " ", "\0", "…” b"):
            for repeated in ("x", " ", "中", "a.", "."):
                sentence = repeated * size + tail
                assert find_chunks(b"", sentence, b" b", rule) == walk(sentence, rule)


def test_two_ascii_characters_are_cut_unless_a_piece_holds_both():
    tokenizer = train(normalization_rule_name="nmt_nfkc_cf")
    rule = find_rule("uncased")
    held = {pair for piece in tokenizer.pieces for pair in pairwise(piece)}
    parted = 0
    for left, right in product(map(chr, range(128)), repeat=2):
        is_cut = bool(rule.ascii_cuts[ord(left) | ord(right) << 8])
        if (left.lower(), right.lower()) in held or " " in (left, right):
            assert not is_cut, (left, right)
        parted += is_cut
    assert parted > 90 * 90 - 2 * len(held)


@numba.njit
def multiply(a: int, b: int) -> int:
    return multiply_and_fold(np.uint64(a), np.uint64(b))


@given(st.integers(0, references.BITS_64), st.integers(0, references.BITS_64))
def test_the_halves_of_a_product_are_folded(a, b):
    assert int(multiply(np.uint64(a), np.uint64(b))) == a * b >> 64 ^ a * b & references.BITS_64


@numba.njit
def match(data: np.ndarray, at: int, fold: int, low: int, span: int) -> int:
    return find_bytes(pointer(data), at, np.uint8(fold), np.uint8(low), np.uint8(span))


@given(st.integers(0, 3), st.integers(0, 255), st.integers(0, 255), st.integers(0, 255), st.integers(0, 192))
def test_bytes_are_matched_as_one_by_one(shift, fold, low, span, first):
    data = (np.arange(first, first + BLOCK + 3) % 256).astype(np.uint8)
    expected = sum(1 << i for i, byte in enumerate(data[shift:].tolist()[:BLOCK]) if ((byte | fold) - low) % 256 < span)
    assert int(match(data, shift, fold, low, span)) == expected


def hash_long(chunk: bytes) -> int:
    value = len(chunk)
    for at in range(0, len(chunk), 8):
        value = references.mix(value ^ int.from_bytes(chunk[at : at + 8], "little"))
    return value


def test_a_long_chunk_is_identified_by_its_bytes_not_its_hash():
    """Two words of 24 letters with one hash: of the last eight letters, those of one follow from those of the other."""
    texts = ["QHhDbTDaBWDEWqGLgxeUyCsP", "jOPsNqRzraMSOPgotBUmqhLD"]
    assert hash_long(texts[0].encode()) == hash_long(texts[1].encode())
    tokenizer = train(
        lines=(*LINES, *texts * 50), model_type="bpe", max_sentencepiece_length=30
    )  # few pieces, in a slot
    assert all(len(ids) <= 4 for ids in encode_by_sentencepiece(tokenizer, texts))
    assert encode(type(tokenizer)(tokenizer.model, "fresh"), texts) == encode_by_sentencepiece(tokenizer, texts)
