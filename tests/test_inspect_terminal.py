"""Text for the terminal is harmless, fits its columns, and loses nothing when it is wrapped."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_data.escaping import escape_controls, make_encodable
from albert_data.inspect.terminal import StyledText, count_columns, paint, wrap


@given(st.text())
def test_no_control_character_reaches_the_terminal(text) -> None:
    shown = escape_controls(text)
    steering = [c for c in shown if unicodedata.category(c)[0] == "C" and c not in "\u200c\u200d"]
    assert not steering
    assert shown.isprintable() or set(re.sub("[\u200c\u200d]", "", shown)) & set(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("a\x07b\rc\td\n", "a\\x07b\\rc\\td\\n"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202eabc", "\\u202eabc"),
        ("\u2028\ufeff", "\\u2028\\ufeff"),
        ("\udc80", "\\udc80"),
        ("naïve 山 e\u0301 👩\u200d🔬", "naïve 山 e\u0301 👩\u200d🔬"),
    ],
)
def test_control_characters_are_written_out(text, shown) -> None:
    assert escape_controls(text) == shown


def test_wide_characters_fill_two_columns_and_marks_none() -> None:
    assert [count_columns(text) for text in ("abc", "山河", "e\u0301", "，", "ｱ", "")] == [3, 4, 1, 2, 1, 0]


def test_an_output_that_can_t_encode_a_character_gets_an_escape() -> None:
    assert make_encodable("山 ï", "ascii") == "\\u5c71 \\xef"
    assert make_encodable("山 \udc80", "utf-8") == "山 \\udc80"


def to_lines(text: str, width: int) -> list[str]:
    """What stands between bars is a marker."""
    texts = [StyledText(text=part, style="masked" if i % 2 else "") for i, part in enumerate(text.split("|"))]
    return [paint(line, {}) for line in wrap(texts, width)]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        # Lines break at spaces and beside wide characters,
        ("the quick brown fox", 10, ["the quick", "brown fox"]),
        ("天地玄黄宇宙", 5, ["天地", "玄黄", "宇宙"]),
        ("ab天cd", 4, ["ab天", "cd"]),
        ("abcdefgh ij", 4, ["abcd", "efgh", "ij"]),
        ("  ab   cd  ", 4, ["ab", "cd"]),
        # a marker at no wide character, and only if no line holds it,
        ("天地|[玄黄]|宇", 8, ["天地", "[玄黄]宇"]),
        ("ภาษาไทย|[MASK:x]|คำคำคำ", 10, ["ภาษาไทย", "[MASK:x]คำ", "คำคำ"]),
        ("ไทย|[MASK:x]|", 4, ["ไทย", "[MAS", "K:x]"]),
        # and a combining mark stays with its letter.
        ("abcde\u0301f", 5, ["abcde\u0301", "f"]),
        ("天地\u0301玄", 4, ["天地\u0301", "玄"]),
    ],
)
def test_lines_break_where_they_may(text: str, width: int, lines: list[str]) -> None:
    assert to_lines(text, width) == lines


texts = st.text(st.sampled_from("abc  天山e\u0301，é"), max_size=60)
styled_texts = st.lists(st.builds(StyledText, text=texts, style=st.sampled_from(("", "kept", "masked"))), max_size=6)


@given(texts=styled_texts, width=st.integers(2, 30))
def test_wrapping_keeps_every_character_and_its_style_in_lines_that_fit(texts, width) -> None:
    lines = wrap(texts, width)
    before = [(c, text.style) for text in texts for c in text.text if c != " "]
    assert [(c, text.style) for line in lines for text in line for c in text.text if c != " "] == before
    for line in lines:
        text = paint(line, {})
        assert 0 < count_columns(text) <= width or count_columns(text) == 0 < len(text)
        assert text == text.strip(" ")


@given(words=st.lists(st.text("abc", min_size=1, max_size=9), max_size=30), width=st.integers(9, 30))
def test_words_that_fit_stay_whole_and_lines_are_full(words, width) -> None:
    lines = to_lines(" ".join(words), width)
    assert " ".join(lines).split() == words
    for line, following in zip(lines, lines[1:], strict=False):
        assert len(line) + 1 + len(following.split()[0]) > width


def test_colour_surrounds_the_styles_that_have_one() -> None:
    line = [StyledText(text="a"), StyledText(text="b", style="kept"), StyledText(text="c", style="other")]
    assert paint(line, {"kept": "\x1b[32m"}) == "a\x1b[32mb\x1b[0mc"
