"""Byte-level BPE by the chunk table gives the ids of the library tokenizers, for each family of rules."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from toy_language import CHINESE, make_sentences
from wordpiece_fixtures import SPECIALS, encode, encode_alone, tokenizers

from albert_data.errors import TokenizerError
from albert_data.tokenizer import byte_level
from albert_data.tokenizer.byte_level import find_neighbours, find_stable
from albert_data.tokenizer.library import read_bytes
from albert_data.tokenizer.merging import BEGINS, FOLLOWS, make_merges, merge_texts
from albert_data.tokenizer.model import Tokenizer

LLAMA, QWEN = byte_level._EXPRESSIONS
ADDED = ["|||IP_ADDRESS|||", "   ", "  ", "[unused0]", "zq"]  # as in ModernBERT, and one of letters
# What the rules treat in a way of its own: contractions, long s, spaces, marks, Jamo and Hangul, letters of scripts
# without spaces, digits of several scripts, what NFC changes, characters beyond the basic plane, added tokens.
ODD = [
    *("'s", "'RE", "'ll", "'ſ", "don't", " '", "''", "’s", "  ", "   ", "\n", "\t", "\r\n", "\u00a0", "\u3000"),
    *("\u200b", "e\u0301", "\u0301", "\u1161", "\u1100", "가각", "각\u11a8", "Å", "\u0958", "क्षि", "ไทยน้ำ"),
    *("が", "か\u3099", "中国人", "，中", "。」"),
    *("1234", "٣٤", "Ⅷ", "½", "😀", "𠀀中", "𝐀b", "\0", "\ufffd", "!a", "--a", "(the", "...", "#1", "\x1c", "\u2028"),
    *("|||IP_ADDRESS|||", "[unused0]", "zq", "ZQzq", "[MASK]", "<s>", "|||IP", "]x"),
]
LETTERS = [" ", "a", "The", "river", ",", "中", "한"]
CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXT = st.lists(st.sampled_from(ODD) | st.sampled_from(LETTERS) | CHARACTERS, max_size=14).map("".join)


def train() -> dict[str, Any]:
    """A byte-level BPE with pieces of several scripts, some with parts of characters."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=900, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    others = ["한국어 문장은 띄어 쓴다 각각의", "ภาษาไทยไม่มีช่องว่าง", "中国人，的人 的a 中b", "don't we'll it's é à Å ñ"]
    backend.train_from_iterator([*make_sentences(300, seed=0), CHINESE, *others * 20], trainer)
    return dict(json.loads(backend.to_str()))


def split_by(expression: str) -> dict[str, Any]:
    shown = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    divided = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [divided, shown]}


def gpt(prefix: bool = False) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}


def add_tokens(values: dict[str, Any], contents: list[str], **flags: bool) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False) | {"normalized": True} | flags
    first = len(values["model"]["vocab"])
    added = [{"id": first + i, "content": content, **flags} for i, content in enumerate(contents)]
    return values | {"added_tokens": [*values["added_tokens"], *added]}


def change_model(values: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return values | {"model": values["model"] | changes}


NFC = {"normalizer": {"type": "NFC"}}
FAMILIES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "gpt2": lambda values: values,
    "roberta": lambda values: values | {"pre_tokenizer": gpt(prefix=True)},
    "modernbert": lambda values: add_tokens(values | NFC, ADDED),
    "llama": lambda values: change_model(values | {"pre_tokenizer": split_by(LLAMA)}, ignore_merges=True),
    "olmo2": lambda values: add_tokens(values | {"pre_tokenizer": split_by(LLAMA)}, ADDED),
    "qwen": lambda values: values | {"pre_tokenizer": split_by(QWEN)} | NFC,
}


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    return train()


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request, trained: dict[str, Any]) -> tuple[Tokenizer, Any]:
    return load(FAMILIES[request.param](trained))


def load(values: dict[str, Any]) -> tuple[Tokenizer, Any]:
    """A tokenizer, and the library's."""
    backend = tokenizers.Tokenizer.from_str(json.dumps(values))
    backend.encode_special_tokens = True
    return Tokenizer(json.dumps(values).encode(), "tokenizer.json"), backend


@given(st.lists(TEXT, max_size=6))
@example(["don't '' 's's ''s a'tis 'tis", " 123456 1234.5a6", "的，的中国人b中", "  a  b ", " ", "", "ab zq xzq"])
def test_the_ids_are_those_of_the_library(pair, texts):
    tokenizer, backend = pair
    assert tokenizer.slow_reason is None
    tokenizer._encoder._num_compared = 0  # what is compared here
    assert encode(tokenizer, texts) == encode_alone(backend, texts)


@pytest.mark.parametrize(
    "family", ["gpt2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("llama", "qwen"))]
)
def test_each_character_of_the_basic_plane_has_the_ids_of_the_library(trained, family):
    """For each expression; the other families differ in what stands before and behind it."""
    tokenizer, backend = load(FAMILIES[family](trained))
    texts = [f"a{chr(code)}1 {chr(code)}中{chr(code)}e" for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    assert encode(tokenizer, texts) == encode_alone(backend, texts)


def test_text_of_several_slices_and_of_long_words_has_the_ids_of_the_library(pair, monkeypatch):
    tokenizer, backend = pair
    monkeypatch.setattr("albert_data.tokenizer.chunks.encoder.SLICE_BYTES", 300)
    texts = [*make_sentences(40, seed=2), "", "ab" * 20_000, "中国" * 100, "x" * 200]
    assert encode(tokenizer, texts) == encode_alone(backend, texts)


def merge_slowly(word: list[str], merges: list[list[str]]) -> list[str]:
    places = {tuple(pair): place for place, pair in enumerate(merges)}
    while found := [(places[pair], at) for at, pair in enumerate(zip(word, word[1:], strict=False)) if pair in places]:
        _, at = min(found)
        word = [*word[:at], word[at] + word[at + 1], *word[at + 2 :]]
    return word


@given(words=st.lists(st.text("abc", min_size=1, max_size=12), min_size=1), merges=st.data())
def test_words_are_merged_as_by_the_slow_reference(words, merges):
    made, pieces = [], ["a", "b", "c"]
    for _ in range(merges.draw(st.integers(0, 12))):
        pair = [merges.draw(st.sampled_from(pieces)), merges.draw(st.sampled_from(pieces))]
        if pair not in made:
            made.append(pair)
            pieces = list(dict.fromkeys([*pieces, "".join(pair)]))
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys([*pieces, *read_bytes()]))}
    table = make_merges({"vocab": vocab, "merges": made}, read_bytes())
    roles = np.full(0x10000, BEGINS | FOLLOWS, np.uint8)
    ids, lengths = merge_texts([word.encode() for word in words], roles, table)
    expected = [merge_slowly(list(word), made) for word in words]
    assert ids.tolist() == [vocab[piece] for word in expected for piece in word]
    assert lengths.tolist() == list(map(len, expected))


def test_no_stable_character_is_composed_with_the_one_before():
    stable = find_stable()
    for code in np.flatnonzero(stable).tolist():
        assert unicodedata.is_normalized("NFC", chr(code))
        assert not unicodedata.combining(chr(code))
    for code in range(0x10000):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and parts[0][0] != "<" and unicodedata.is_normalized("NFC", chr(code)):
            assert not stable[int(parts[1], 16)]


def test_a_letter_beside_a_part_of_another_one_is_loose():
    show = {byte: character for character, byte in read_bytes().items()}
    pieces = ["".join(show[byte] for byte in data) for data in ("中国".encode(), "人".encode() + b"\xe5", b"\x9b\xbda")]
    neighbours, loose = find_neighbours([*pieces, show[0xBD] + show[0xEB] + show[0x8B]])
    assert neighbours.tolist() == [[ord("中"), ord("国")]]
    assert loose == {ord("人"), ord("a"), *range(0xB2C0, 0xB300)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda values: values | {"pre_tokenizer": split_by(r"\w+|\s+|[^\w\s]+")}, "divides words by other rules"),
        (lambda values: values | {"pre_tokenizer": gpt() | {"use_regex": False}}, "divides words by other rules"),
        (lambda values: values | {"normalizer": {"type": "NFKC"}}, "its normalizer is NFKC"),
        (lambda values: change_model(values, end_of_word_suffix="!"), "its model has end_of_word_suffix"),
        (lambda values: add_tokens(values, ["the"], single_word=True), "'the' depends on the text around it"),
        (lambda values: add_tokens(values, ["a b"]), "'a b' depends on the text around it, or has spaces"),
        (lambda values: add_tokens(values | {"pre_tokenizer": gpt(prefix=True)}, ["x]"]), "a space after each added"),
    ],
)
def test_what_is_not_provably_equal_goes_through_the_library(trained, change, reason):
    tokenizer, backend = load(change(trained))
    assert reason in str(tokenizer.slow_reason)
    texts = ["the river a b x] the", *make_sentences(20, seed=3)]
    assert encode(tokenizer, texts) == encode_alone(backend, texts)


def test_ignore_merges_divides_no_word_where_merges_do_not_give_each_piece(trained):
    vocab = {**trained["model"]["vocab"], "Ġriverriver": len(trained["model"]["vocab"])}
    values = change_model(trained | {"pre_tokenizer": split_by(LLAMA)}, ignore_merges=True, vocab=vocab)
    tokenizer, backend = load(values)
    texts = ["the riverriver riverriverx", CHINESE]
    assert tokenizer.slow_reason is None
    assert encode(tokenizer, texts) == encode_alone(backend, texts)
    assert vocab["Ġriverriver"] in tokenizer.encode(texts)[0]


def test_other_ids_than_the_librarys_stop_a_build(trained, monkeypatch):
    tokenizer, _ = load(trained)
    merge = byte_level.merge_texts
    monkeypatch.setattr(byte_level, "merge_texts", lambda *arguments: (merge(*arguments)[0] ^ 1, merge(*arguments)[1]))
    with pytest.raises(TokenizerError, match="the chunk table gives other ids than the tokenizer's own library for"):
        tokenizer.encode(["the river"])


MERGES = ["t h", "Ġ th", "Ġth e", "i n", "in g", "Ġ r", "r i", "ä ¸", "ä¸ Ń", "å Ľ", "åĽ ½", "ä¸Ń åĽ½", "Ġ Ġ", "' s"]


def test_the_ids_and_words_of_a_made_tokenizer_are_golden():
    """No training has a part in it. Another hash here means that the same command makes other shards."""
    pieces = [*SPECIALS, *sorted(read_bytes()), *(merge.replace(" ", "") for merge in MERGES)]
    model = {"type": "BPE", "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": MERGES}
    values = {"version": "1.0", "pre_tokenizer": gpt(), "decoder": gpt(), "model": model}
    tokenizer, backend = load(values)
    texts = ["the thing rings, the ring's 中国 and 国中国中", *ODD]
    assert encode(tokenizer, texts) == encode_alone(backend, texts)
    rule, (ids, offsets) = tokenizer.word_rule(), tokenizer.encode(texts)
    data = [array.astype(np.int64).tobytes() for array in (ids, offsets, rule.starts, rule.standalone)]
    assert sha256(b"".join(data)).hexdigest()[:16] == "379501efeb398147"


def test_pieces_that_text_hardly_gives_are_never_drawn(pair):
    tokenizer, _ = pair
    drawn = {tokenizer.pieces[i] for i in tokenizer.ordinary_ids}
    table = {byte: character for character, byte in read_bytes().items()}
    assert drawn >= {table[ord(character)] for character in "az09,.! "}
    unlikely = (b"\n", b"\t", b"\0", b"\x7f", b"\xe4", b"\xb8", b"\xff")
    never = {"".join(table[byte] for byte in data) for data in unlikely}
    assert never <= set(tokenizer.pieces)
    assert drawn.isdisjoint(never | {"  ", "   "})
