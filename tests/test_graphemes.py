"""No word begins inside a character that a reader sees, and all that reads rows finds the same words."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import accumulate, pairwise

import numpy as np
import pytest
import references
from hypothesis import assume, example, given
from hypothesis import strategies as st

from albert_data.data import Specials
from albert_data.examples.masks import find_piece_flags, find_word_begins
from albert_data.kernels import kernel, pointer
from albert_data.text.unicode_tables import category
from albert_data.tokenizer.words import NEVER, WordRule, continues, find_word_starts, judge_piece

MANY = WordRule(
    starts=np.repeat([NEVER, 0, 1], 3).astype(np.int8), standalone=np.tile([NEVER, 0, 1], 3).astype(np.int8)
)
SPECIAL = 9  # the id behind those of MANY
RULE = WordRule(
    starts=np.append(MANY.starts, 0).astype(np.int8), standalone=np.append(MANY.standalone, 0).astype(np.int8)
)
IS_SPECIAL_ID = np.arange(10) == SPECIAL
SPECIALS = Specials(pad_id=9, unk_id=9, cls_id=9, sep_id=9, mask_id=9, is_special=IS_SPECIAL_ID)


@pytest.mark.parametrize(
    ("piece", "starts", "standalone"),
    [
        ("▁", 1, NEVER),  # one word with what is behind it
        ("\u0301", NEVER, 0),  # é in two pieces
        ("\u0301t", NEVER, 0),
        ("ั", NEVER, 1),  # Thai vowel sign
        ("ส\u0e4d", 1, NEVER),  # the first half of AM, after NFKC
        ("ำ", NEVER, 1),  # Thai AM, a letter to Unicode
        ("្", NEVER, NEVER),  # Khmer coeng: the next consonant stands below
        ("က္", 1, NEVER),  # Myanmar virama
        ("་", 1, 1),  # Tibetan tsheg
        ("नि", 0, 0),  # Hindi sets spaces
        ("ि", NEVER, 0),
        ("ᨠ", 1, 1),  # Tai Tham
        ("ꦲ", 1, 1),  # Javanese
        ("ᬅ", 1, 1),  # Balinese
        ("か\u3099", 1, 1),
        ("❤\ufe0f", 1, 1),
        ("\ufe0f", NEVER, 1),
        ("👩\u200d", 1, NEVER),
        ("\u200d", NEVER, NEVER),
        ("\U0001f3fd", NEVER, 1),  # skin tone
        ("۝", 0, NEVER),  # Arabic end of ayah, before its number
        ("<0xE9>", 1, 0),
        ("<0xF0>", 1, 0),
        ("<0xC3>", 0, 0),
        ("<0xE0>", 0, 0),
        ("<0xBE>", NEVER, 0),
        ("<0xE9><0xBE>", 1, 0),
        ("<0xBE><0x98><0xE9>", NEVER, 0),
        ("▁<0xE9><0xBE>", 1, 0),
        ("<0x41>", 0, 0),
        ("<unk>", 0, 0),
    ],
)
def test_whether_words_begin_before_and_behind_a_piece(piece, starts, standalone):
    assert judge_piece(piece) == (starts, standalone)


# ---- beside another implementation of UAX #29 ----

EXCEPTED = {
    *(0x102B, 0x102C, 0x1038, *range(0x1062, 0x1065), *range(0x1067, 0x106E), 0x1083, *range(0x1087, 0x108D), 0x108F),
    *(*range(0x109A, 0x109D), 0x1A61, 0x1A63, 0x1A64, 0xAA7B, 0xAA7D, 0x11720, 0x11721),
}


@cache
def find_clusters() -> Callable[[str], list[str]]:
    return pytest.importorskip("regex").compile(r"\X").findall


def count_clusters(text: str) -> int:
    return len(find_clusters()(text))


def test_continuing_characters_are_those_of_uax_29_and_its_exceptions():
    assigned = [chr(code) for code in range(0x110000) if category(chr(code)) not in ("Cn", "Cs")]
    ours = {character for character in assigned if continues(character)}
    theirs = {character for character in assigned if count_clusters("中" + character) == 1}
    assert theirs <= ours
    assert {ord(character) for character in ours - theirs} <= EXCEPTED


scripts = st.sampled_from(
    ["กขเแาำิัี็่้์", "ກຂເາຳິັ່້", "កខស្ាិីេំះ", "ကခသ္်ျွာါိေံး", "བོདསྐྱིུ་", "か゛\u3099ｶﾞー中\ufe00", "ᨠᨾ᩠ᩣᩥ", "ꦲꦏ꧀ꦶꦴ", "👩👧\u200d❤\ufe0f🏽"]
)
split_texts = scripts.flatmap(
    lambda letters: st.lists(st.text(st.sampled_from(letters + "a,"), min_size=1, max_size=3), min_size=1, max_size=8)
)


def has_mark_after_stacker(text: str) -> bool:
    """Whether a mark is between a sign that stacks consonants and the next one: no spelling (see words.py)."""
    return any(
        first in "\u1039\u17d2\u1a60\u1b44\ua9c0" and category(second).startswith("M")
        for first, second in pairwise(text)
    )


@given(split_texts)
@example(["👩", "\u200d", "👧"])
@example(["ស្", "ត្", "រី"])
@example(["្ិ", "ក"])
@example(["ꦏ꧀", "ꦏ"])
@example(["ᬓ᭄", "ᬓ"])
def test_no_word_begins_inside_a_grapheme_cluster(pieces):
    assume(not has_mark_after_stacker("".join(pieces)))
    begins = find_word_starts(np.arange(len(pieces)), WordRule.from_pieces(pieces)).tolist()
    ends = list(accumulate(map(len, pieces)))
    text = "".join(pieces)
    for end, (_, is_start) in zip(ends, pairwise(begins), strict=False):
        if is_start:
            assert count_clusters(text) == count_clusters(text[:end]) + count_clusters(text[end:])


# ---- all readers of rows follow one rule ----


@kernel
def begin_words_of(ids: np.ndarray, first: int, last: int, flags: np.ndarray, begins: np.ndarray) -> int:
    return find_word_begins(pointer(ids), pointer(flags), pointer(begins), first, last, 0)


ids_of_text = st.lists(st.integers(0, SPECIAL), max_size=9)


@given(ids_of_text, ids_of_text)
def test_all_readers_of_rows_find_the_words_of_the_slow_reference(first, second):
    row = [SPECIAL, *first, SPECIAL, *second, SPECIAL]
    vocabulary = references.Vocabulary(
        RULE.starts.tolist(), RULE.standalone.tolist(), IS_SPECIAL_ID.tolist(), SPECIAL, SPECIAL, SPECIAL
    )
    expected = references.find_words(row, len(first), vocabulary)
    ids, flags = np.array(row, np.uint16), find_piece_flags(SPECIALS, RULE)
    begins = np.empty(len(row), np.int64)
    for words, begin, part in zip(expected, (1, len(first) + 2), (first, second), strict=True):
        count = begin_words_of(ids, begin, begin + len(part), flags, begins)
        assert begins[:count].tolist() == [word[0] for word in words]
    begins_by_rule = find_word_starts(np.array(first, np.uint16), RULE).tolist()
    assert begins_by_rule == [references.begins_word(first, at, vocabulary) for at in range(len(first))]
