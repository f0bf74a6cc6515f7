"""Sentences are cut where a plain walk over their characters cuts them, at any position and beside any text."""

from __future__ import annotations

from itertools import pairwise, product

import numba
import numpy as np
import pytest
import references
from hypothesis import given
from hypothesis import strategies as st
from test_chunks import LINES, ODD, encode, encode_by_sentencepiece, train

from albert_data.kernels import find_bytes, multiply_and_fold, pointer
from albert_data.tokenizer.chunks.cutting import (
    AFTER,
    BEFORE,
    BLOCK,
    FILTER_BYTES,
    PADDING,
    SOLID,
    CutRule,
    make_cut_scratch,
    mark_cuts,
)
from albert_data.tokenizer.sentencepiece.cuts import make_cut_rule
from albert_data.tokenizer.sentencepiece.proto import read_settings

Chunk = tuple[int, int, int]
RULES = {
    kind: make_cut_rule(read_settings(tokenizer.model), tokenizer.pieces)
    for kind, tokenizer in (("unigram", train()), ("uncased", train(normalization_rule_name="nmt_nfkc_cf")))
}


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


pieces = st.one_of(
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
@given(sentence=st.lists(pieces, max_size=14).map("".join), before=neighbours, after=neighbours)
def test_chunks_are_those_of_a_plain_walk(kind, sentence, before, after):
    assert find_chunks(before, sentence, after, RULES[kind]) == walk(sentence, RULES[kind])


def test_chunks_are_found_at_every_position_around_the_borders_of_blocks():
    rule = RULES["unigram"]
    assert len(walk("." * 199, rule)) > BLOCK, "every byte of a block is a cut"
    for size in range(200):
        for tail in ("", ".", " a", "  a", "中文", ". 中", "é!", "😀x", " ", "\0", "…” b"):
            for repeated in ("x", " ", "中", "a.", "."):
                sentence = repeated * size + tail
                assert find_chunks(b"", sentence, b" b", rule) == walk(sentence, rule)


def test_two_ascii_characters_are_cut_unless_a_piece_holds_both():
    tokenizer = train(normalization_rule_name="nmt_nfkc_cf")
    rule = RULES["uncased"]
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
