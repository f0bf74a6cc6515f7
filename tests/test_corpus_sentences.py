"""The compiled rules give sentencex's sentences, whatever is known of words already; what they do not cover is odd."""

from __future__ import annotations

import re
import string
from itertools import pairwise

import numpy as np
import pytest
import sentencex
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_data.corpus.characters import JOINED, PLAIN, make_kinds
from albert_data.corpus.sentences import LANGUAGES, Segmenter

WHITESPACE = " \t\n\r\x0b\x0c"
WORDS = """
Mr. Dr. St. Mrs. e.g. i.e. etc. cf. No. no. Vol. p.m. a.m. a. m. p. m. U.S. U.S.S.R. Ph.D. M.A. B.C. ma. in. ft. 5 12
J. K. R. I. A. X. x. I I'm I’m The However He Don't don't Darcy Smith house was he went on Monday at Yahoo! Yum! Yahoo.
. ! ? ... .. ?! !! !? … .. . . . ! ! , ; : - — – “ ” ‘ ’ " ' '' « » ( ) [ ] { } < > [1] (1) 1) iv) a) a.) (a) (ii) • *
/ _ _Word_ 3.5 7.Bg5 10. 2020 50% $ é É ß Ж ж don’t boys' o’clock ’tis 'tis rock'n'roll café's .” .’ ." .) ”. ’. ". ).
.”) .’” 。 ！ ？ ｡ ， 、 ； ： （ ） 「 」 『 』 《 》 —— …… 。」 。” 。》 ！？ 中 文
今天天气很好 好吗 他说： 中文字 Ａ １ ．
"""
ODD = ["\u00a0", "\u3000", "\u200b", "\u0301", "😀", "ab@cd.com", "\\", "`", "•", "①", "„", "‹", "।", "\x00", "\x1c"]
pieces = (
    st.sampled_from(re.split(r"\s", WORDS.strip()))
    | st.sampled_from([" ", " ", "  ", "\t", ""])
    | st.text("aZ.,!?'\" ”“’‘()。」「", max_size=3)
)
odd_pieces = pieces | st.sampled_from(ODD)
texts = st.lists(st.tuples(odd_pieces, st.sampled_from(["", " ", " "])).map("".join), max_size=14).map("".join)
plain_texts = st.lists(st.tuples(pieces, st.sampled_from(["", " ", " "])).map("".join), max_size=14).map("".join)
lines = st.lists(plain_texts | texts, max_size=6)
PROSE = [
    "It was the best of times. Mr. Darcy bowed, and Mrs. Bennet said, “What is it? I can’t see.” He left.",
    '"Who is there?" cried Dr. Jones. It was half past 3.30 p.m. (or so he thought). Nobody answered... Then! Silence.',
    "‘I don’t know,’ said Tom; ‘ask J. Smith of the U.S. Navy.’ They didn't. In 1850 they moved to St. Louis.",
    "子曰：“学而时习之，不亦说乎？有朋自远方来，不亦乐乎？”有子曰：「其为人也孝弟。」（见《论语》。）众人……大笑！",
]


def strip_all(sentences: list[str]) -> list[str]:
    return [stripped for sentence in sentences if (stripped := sentence.strip(WHITESPACE))]


def join(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """As a block: UTF-8, each line with a line feed, and the offsets of the lines."""
    encoded = [f"{text}\n".encode() for text in texts]
    utf8 = np.frombuffer(bytearray(b"".join(encoded)), np.uint8)
    return utf8, np.cumsum([0, *map(len, encoded)], dtype=np.int64)


def segment(segmenter: Segmenter, texts: list[str]) -> list[list[str]]:
    utf8, offsets, line_offsets = segmenter.segment(*join(texts))
    sentences = [str(utf8[begin:end].data, "utf-8") for begin, end in pairwise(offsets.tolist())]
    return [sentences[begin:end] for begin, end in pairwise(line_offsets.tolist())]


def make_segmenter(language: str = "en", **room: int) -> Segmenter:
    """One whose odd lines show: they become one sentence, with a mark that no line holds."""
    return Segmenter(language, lambda line: ["\x07"], **room)


@pytest.fixture(scope="module")
def segmenters() -> dict[str, Segmenter]:
    return {language: make_segmenter(language) for language in LANGUAGES}


def check(language: str, texts: list[str], found: list[list[str]]) -> None:
    """Plain lines have sentencex's sentences. It is not asked of odd ones: some end the process."""
    for text, sentences in zip(texts, found, strict=True):
        if sentences != ["\x07"]:
            assert sentences == strip_all(sentencex.segment(language, text))


# ---- plain lines ----


@pytest.mark.parametrize("language", ["en", "zh", "fr"])
@given(texts=lines)
def test_plain_lines_have_the_sentences_of_sentencex(segmenters: dict[str, Segmenter], language: str, texts: list[str]):
    check(language, texts, segment(segmenters[language], texts))


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_ordinary_prose_is_plain(segmenters: dict[str, Segmenter], language: str):
    found = segment(segmenters[language], PROSE)
    assert ["\x07"] not in found
    check(language, PROSE, found)


def test_most_made_up_lines_are_plain(segmenters: dict[str, Segmenter]):
    """So that the property above is not vacuous."""
    made: list[str] = []
    given(plain_texts)(lambda text: made.append(text))()
    assert segment(segmenters["en"], made).count(["\x07"]) < 0.5 * len(made)


def test_words_that_bear_a_stop_are_learnt(segmenters: dict[str, Segmenter]):
    text = "Yahoo! Is it? Dr. Who Ltd. The Inc. They met Mr. X. Y. Zed at 5 ft. He is John B. He was J. Smith. Is it I."
    found = segment(segmenters["en"], [text])
    assert found == [strip_all(sentencex.segment("en", text))]
    assert found[0][0] == "Yahoo! Is it?"


@pytest.mark.parametrize("text", ["", " ", "a", " a . ", "(.", ".)", '".', "“.”", *".?。“’", "." * 300, "好。" * 3000])
def test_short_and_monotonous_lines(segmenters: dict[str, Segmenter], text: str):
    found = segment(segmenters["en"], [text, "It is.", text])
    assert found[0] == found[2]
    assert found[1] == ["It is."]
    check("en", [text], found[:1])


# Found by comparing millions of made-up lines; each was once segmented otherwise than by sentencex.
TRICKY = """
It was 4:30 p.m. Hond. Sir, at six a.m. Bessie rose|He is a good son to ma. I could|He brought it in. ’Twas murmur
The 。 { ’ Yahoo. ！ ？|at 7  Yum! 。  Gen.|Yahoo! ？ ，|Vol. Ａ I .’”|said pp. cf.  I  .  (5 etc|A. m. On  U.K.  On
Vol. X. «U.S p. m.OK 。|Jwent Dr .’!! I'm|.He[1]. p.m.Yahoo!Monday no|“The X_ /a. MD。 ”5in. I’m
U.S.今天天气很好in.今天天气很好U.K.今天好|Then M. Morrel, he said. M. Morrel left|It was. … Then! … No|Wait .. . No
‹Ab. Cd›
"""


@pytest.mark.parametrize("language", ["en", "zh", "nl"])
def test_tricky_lines(segmenters: dict[str, Segmenter], language: str):
    texts = re.split(r"[|\n]", TRICKY.strip())
    check(language, texts, segment(segmenters[language], texts))


@pytest.mark.parametrize("length", [1, 7, 8, 9, 46, 47, 48, 49, 50, 95, 200])
def test_long_words(segmenters: dict[str, Segmenter], length: int):
    texts = [f"A {'x' * length}. {'Y' * length} {'é' * length}? {'Z' * length}. {'M' * length}!"]
    found = segment(segmenters["en"], texts)
    assert found != [["\x07"]]
    check("en", texts, found)


def test_what_kind_each_character_is():
    """sentencex is asked of all that are not odd nor special: is it a stop, does it quote, is it of words."""
    kinds = make_kinds()
    for code in np.flatnonzero(kinds <= JOINED).tolist():
        character = chr(code)
        if character in " \t":
            continue
        assert len(sentencex.segment("en", f"Ab{character} Cd")) == 1
        assert sentencex.segment("en", f"Ab. {character}Ce")[-1] in (f"{character}Ce", f"Ab. {character}Ce")
        goes_on = len(sentencex.segment("en", f"“Ab.” {character}d")) == 1
        assert goes_on == (kinds[code] == PLAIN or character in string.ascii_lowercase + string.digits)


# ---- odd lines ----


@pytest.mark.parametrize(
    "text",
    [
        *ODD,
        "It is [1]. Or. [2] So",
        "One . . . Two",
        "Wait ! ? No",
        "a) One. b) Two",
        "(1) One",
        "'Tis so.",
        'A " b.',
        '“a” "b"',
    ],
)
def test_what_the_rules_do_not_cover_is_odd(segmenters: dict[str, Segmenter], text: str):
    assert segment(segmenters["en"], ["It is.", f"A {text} b.", "So. Yes"]) == [["It is."], ["\x07"], ["So.", "Yes"]]


def test_a_line_is_odd_where_the_sentence_before_decides(segmenters: dict[str, Segmenter]):
    assert segment(segmenters["en"], ["The sun set at 7 p.m. Tom slept."]) == [["\x07"]]


@given(lines)
def test_odd_lines_are_segmented_by_the_caller(texts: list[str]):
    segmenter = Segmenter("xx", str.split)
    assert segment(segmenter, texts) == [text.split() for text in texts]


@pytest.mark.parametrize("language", ["de", "it", "ru", "hi", "xx"])
def test_a_language_with_rules_of_its_own_is_not_fast(language: str):
    assert not make_segmenter(language).is_fast


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_the_others_are(segmenters: dict[str, Segmenter], language: str):
    assert segmenters[language].is_fast


@pytest.mark.parametrize("mark", ["?", "”", "Mr.", "好"])
def test_a_sentencex_that_answers_otherwise_is_left_all_lines(monkeypatch: pytest.MonkeyPatch, mark: str):
    """Here it ends a sentence after a mark, too."""
    rules = sentencex.segment

    def segment_otherwise(language: str, text: str) -> list[str]:
        head, found, tail = text.partition(mark)
        return [*rules(language, head + found), *rules(language, tail)]

    monkeypatch.setattr(sentencex, "segment", segment_otherwise)
    assert not make_segmenter().is_fast


# ---- what is remembered ----


@settings(max_examples=40)
@given(st.lists(lines, max_size=3), st.sampled_from([1, 2, 5, 100]))
def test_what_is_known_of_words_changes_nothing(
    segmenters: dict[str, Segmenter], blocks: list[list[str]], max_keys: int
):
    small = make_segmenter(max_keys=max_keys, max_bytes=100)
    for texts in blocks:
        assert segment(small, texts) == segment(segmenters["en"], texts)


@given(lines)
def test_lines_do_not_change_each_other(segmenters: dict[str, Segmenter], texts: list[str]):
    alone = [segment(segmenters["en"], [text])[0] for text in texts]
    assert segment(segmenters["en"], texts) == alone


def test_more_words_than_there_is_room_for():
    rng = np.random.default_rng(1)
    texts = [" ".join(f"the {chr(97 + i % 26)}{i}. Mr. B{i}" for i in rng.integers(0, 900, 20)) for _ in range(50)]
    assert segment(make_segmenter(max_keys=30), texts) == segment(make_segmenter(), texts)
