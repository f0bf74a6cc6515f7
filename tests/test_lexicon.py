"""Words of languages without spaces, by a word list."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused, refused

from albert_data.errors import TokenizerError
from albert_data.tokenizer.lexicon import match_words, parse_words
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE
from albert_data.tokenizer.words import WordRule, find_word_starts

LETTERS = "中国人北京"


def divide(text: str, frequencies: dict[str, float]) -> list[str]:
    """The slow reference: of all divisions into words the likeliest; of equal ones that with the longest first word."""
    total = math.log(sum(frequencies.values()))
    best: list[tuple[float, int]] = [(0.0, 0)] * (len(text) + 1)
    for start in reversed(range(len(text))):
        ends = [end for end in range(start + 1, len(text) + 1) if text[start:end] in frequencies]
        if ends:
            best[start] = max((math.log(frequencies[text[start:end]]) - total + best[end][0], end) for end in ends)
        else:
            best[start] = -total + best[start + 1][0], start + 1
    words, start = [], 0
    while start < len(text):
        end = best[start][1]
        words.append(text[start:end])
        start = end
    return words


def find_starts(pieces: list[str], frequencies: dict[str, float]) -> list[bool]:
    rule = WordRule.from_pieces(pieces)
    rule = WordRule(
        starts=rule.starts, standalone=rule.standalone, lexicon=match_words(pieces, frequencies, lambda word: word)
    )
    return find_word_starts(np.arange(len(pieces)), rule).tolist()


words = st.text(LETTERS, min_size=1, max_size=4)


@given(
    st.lists(words, min_size=1, max_size=12),
    st.dictionaries(words, st.sampled_from([1.0, 1.0, 2.0, 7.0, 1000.0]), min_size=1),
)
def test_a_word_begins_where_a_piece_and_a_word_of_the_likeliest_division_begin(pieces, frequencies):
    ends = np.cumsum([len(word) for word in divide("".join(pieces), frequencies)]).tolist()
    begins = np.cumsum([0, *map(len, pieces)])[:-1].tolist()
    assert find_starts(pieces, frequencies) == [begin in {0, *ends} for begin in begins]


@pytest.mark.parametrize(
    ("pieces", "frequencies", "expected"),
    [
        (list("中国北京人"), {"北京": 1, "京人": 1, "北京人": 1, "中国": 1}, "中国 北京人"),  # as few words as possible
        (list("中国人"), {"中国": 1, "国人": 1}, "中国 人"),  # of equal divisions that with the longest first word
        (["中", "国人", "北"], {"中国": 1, "人北": 1}, "中国人北"),  # a piece of two words belongs to both
        (["ภา", "ษา", "ไทย"], {"ภาษา": 1, "ไทย": 1}, "ภาษา ไทย"),
        # Words do not cross what is not in a script without spaces.
        (
            ["中", "[SEP]", "国", ",", "人", VISIBLE_SPACE + "北", "京", "a", "中", "国"],
            {"中国": 1, "国人": 1, "人北": 1, "北京": 1},
            f"中 [SEP] 国 , 人 {VISIBLE_SPACE}北京 a 中国",
        ),
    ],
)
def test_the_words_of_literal_pieces(pieces, frequencies, expected):
    found = zip(find_starts(pieces, frequencies), pieces, strict=True)
    assert "".join(" " * begins + piece for begins, piece in found).strip() == expected


def test_words_are_matched_as_the_tokenizer_normalises_them():
    rule = match_words(["中", "国"], {"中國": 1}, lambda word: word.replace("國", "国"))
    assert rule.find_joined(np.array([0, 1, 1, 0])).tolist() == [False, True, False, False]
    assert rule.find_joined(np.zeros(0, np.uint16)).tolist() == []


def test_a_word_list_has_a_word_and_perhaps_its_frequency_on_a_line():
    content = "\ufeff中国 3 ns\n\n北京\t2.5\n中国 1\r\n人\n".encode()
    assert parse_words(content, "words.txt") == {"中国": 4.0, "北京": 2.5, "人": 1.0}


@refused(
    (b"", TokenizerError, "words.txt has no words"),
    ("中国 often".encode(), TokenizerError, "words.txt & line 1 has 'often' after the word"),
    ("人\n中国 0".encode(), TokenizerError, "line 2 has '0' after the word"),
    ("中国 nan".encode(), TokenizerError, "line 1 has 'nan'"),
    ("中国 inf".encode(), TokenizerError, "line 1 has 'inf'"),
    ("人\n".encode() + "中国".encode("gb18030"), TokenizerError, "line 2 is not UTF-8"),
)
def test_a_damaged_word_list_is_an_error_that_names_the_line(call, kind, named):
    check_refused(lambda: parse_words(call, "words.txt"), kind, named)


def test_a_word_list_of_a_language_with_spaces_is_an_error():
    check_refused(lambda: match_words(["a"], {"house": 1, "T恤": 1}, str), TokenizerError, "script without spaces")
