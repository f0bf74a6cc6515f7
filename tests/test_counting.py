"""Characters are counted as SentencePiece's own normaliser leaves them, whatever the text, in any parts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tokenizer import as_text

from albert_data.config import VocabConfig
from albert_data.tokenizer.sentencepiece.charsmap import find_base
from albert_data.vocab.alphabet import choose_alphabet, measure_unspaced, show_character
from albert_data.vocab.counting import NUM_CODES, CharacterCounts, NormalCounter, NormalRule

RULES = [NormalRule(True), NormalRule(False)]
# Letters, marks that join them, ligatures, Hangul in parts, wide and invisible characters, several planes.
characters = st.sampled_from(
    "aAeé z09~\u0301\u0308\u0327ßŒﬁ①㌔ﷺが\u3099か\u1100\u1161\u11a8한ＡΩ\u00a0\u200b\ufeff\ufffd\x00▁▅山😀𝐀"
)
any_character = characters | st.characters(exclude_categories=["Cs"])
texts = st.lists(st.text(any_character, max_size=20), max_size=8)


def plain_counts(sentences: list[str], rule: NormalRule) -> dict[int, int]:
    return dict(Counter(ord(c) for sentence in sentences for c in rule.normalise(sentence).replace(" ", "▁")))


def as_counts(counts: dict[int, int]) -> CharacterCounts:
    codes = sorted(counts)
    return CharacterCounts(
        codes=np.array(codes, np.uint32), counts=np.array([counts[code] for code in codes], np.int64)
    )


def as_dict(counts: CharacterCounts) -> dict[int, int]:
    return dict(zip(counts.codes.tolist(), counts.counts.tolist(), strict=True))


@pytest.mark.parametrize("rule", RULES)
@given(texts, texts)
def test_counts_are_those_of_normalised_text_in_any_parts(rule, first, second):
    counter, totals = NormalCounter(rule), np.zeros(NUM_CODES, np.int64)
    counter.add(as_text(first))
    counter.add(as_text(second))
    whole = as_dict(counter.finish())
    assert whole == plain_counts(first + second, rule)
    for part in (second, first):
        counter = NormalCounter(rule)
        counter.add(as_text(part))
        counter.finish().add_to(totals)
    assert as_dict(CharacterCounts.of(totals)) == whole


@given(st.dictionaries(any_character.map(ord), st.integers(1, 1000), max_size=40), st.floats(0.98, 1.0), st.booleans())
def test_an_alphabet_is_what_is_required_and_the_fewest_characters_that_cover_the_share(counts, coverage, cased):
    alphabet = choose_alphabet(
        as_counts(counts), VocabConfig(character_coverage=coverage, cased=cased, required_chars="Éa")
    )
    required = {ord(c) for c in NormalRule(cased).normalise("".join(map(chr, range(0x20, 0x7F))) + "É")}
    chosen = {ord("▁"), *required} - {ord(" ")}
    assert alphabet.num_required == len(chosen)
    total, covered = sum(counts.values()), sum(counts.get(code, 0) for code in chosen)
    for code in sorted(counts, key=lambda code: (-counts[code], code)):
        if code not in chosen and code not in (0, 0x2585) and covered < coverage * total:
            covered += counts[code]
            chosen.add(code)
    assert set(alphabet.codes) == chosen
    assert alphabet.lost == {code: counts[code] for code in counts if code not in chosen}
    assert list(alphabet.lost.values()) == sorted(alphabet.lost.values(), reverse=True)
    assert alphabet.num_characters == total


@pytest.mark.parametrize(
    ("text", "share"), [("", 0), ("12 .", 0), ("abc 山", 0.25), ("a ที่", 0.5), ("かナ山རྐ", 1), ("한국어 ñ", 0)]
)
def test_letters_of_scripts_without_spaces_are_measured(text, share):
    assert measure_unspaced(as_counts(plain_counts([text], RULES[0]))) == pytest.approx(share)


def test_a_character_that_shows_nothing_alone_is_shown_by_its_number():
    assert [show_character(ord(c)) for c in "é山\u0301\u200b\ue000"] == ["é", "山", "U+0301", "U+200B", "U+E000"]


@pytest.mark.parametrize("rule", RULES)
def test_no_replaced_string_begins_with_two_ascii_characters(rule):
    units, _ = rule.table
    for first in range(1, 128):
        node = find_base(units, 0) ^ first
        if units[node] & 0x800000FF == first:
            assert all(units[find_base(units, node) ^ byte] & 0x800000FF != byte for byte in range(1, 128))
