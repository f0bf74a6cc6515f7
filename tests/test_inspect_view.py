"""A row in the terminal shows what became of each token, to people and to parsers, is harmless, and fits."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_fixtures import SMALL, configs, get_tokenizer, make_examples, text_documents

from albert_data.data import Examples
from albert_data.inspect.terminal import StyledText, count_columns, paint, wrap
from albert_data.inspect.view import PALETTE, show_example, show_legend, to_dict
from albert_data.shards.reader import Example
from albert_data.shards.rows import slice_rows
from albert_data.text.escaping import escape_controls, make_encodable

TOKENIZER = get_tokenizer()
SPACE = "▁"
ID = {piece: i for i, piece in enumerate(TOKENIZER.pieces)}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def make_example(a: list[str], b: list[str], masked: dict[int, str], label: int = 0) -> Example:
    """masked: the positions of masked tokens, and the piece that stands there. Without b it has no segment B."""
    ids = np.array([ID[piece] for piece in ["[CLS]", *a, "[SEP]", *([*b, "[SEP]"] if b else [])]], np.uint16)
    positions = list(masked)
    originals = ids[positions].copy()
    ids[positions] = [ID[piece] for piece in masked.values()]
    return Example(
        input_ids=ids,
        segment_a_len=len(a),
        sop_label=label if b else -1,
        masked_positions=np.array(positions, np.uint16),
        masked_ids=originals,
        document_key=0xABC,
    )


def show_segments(example: Example, width: int = 10_000) -> list[str]:
    lines = show_example(example, 0, TOKENIZER, width).splitlines()[1:]
    return [line.strip() for line in lines]


def byte_pieces(text: str) -> list[str]:
    return [f"<0x{byte:02X}>" for byte in text.encode()]


@pytest.mark.parametrize(
    ("a", "masked", "shown"),
    [
        (
            ["▁river", "▁quickly", "▁water", "▁people"],
            {1: "[MASK]", 2: "▁people", 3: "▁water"},
            "[MASK:river] {people<-quickly} =water= people",
        ),
        # The pieces of a word are marked one by one.
        (["▁river", "a", "▁people", "a"], {2: "[MASK]"}, "river[MASK:a] peoplea"),
        # Pieces that differ only in the space are distinguished, and a space alone is visible.
        (["▁the", "a"], {2: "▁the"}, "the{▁the<-a}"),
        (["▁the", SPACE], {2: "[MASK]"}, "the [MASK:▁]"),
        # Byte pieces that form a character are joined.
        (["▁the", *byte_pieces("é山")], {}, "theé山"),
        (["▁the", *byte_pieces("山")[:2]], {}, "the<0xE5><0xB1>"),
        (["▁the", *byte_pieces("é")], {3: "[MASK]"}, "the<0xC3>[MASK:<0xA9>]"),
        # Text that looks like a marker has a backslash.
        (["▁the", *byte_pieces("=a={b}[MASK:c]\\")], {}, r"the\=a\=\{b}\[MASK:c]" + "\\\\"),
    ],
)
def test_tokens_are_shown_with_what_became_of_them(a, masked, shown):
    assert show_segments(make_example(a, ["▁people"], masked)) == [f"A  {shown}", "B  people"]
    assert show_segments(make_example(["▁people"], a, {}))[0] == "A  people"


@pytest.mark.parametrize("text", ["\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\u202e", "\r", "\u2028", "\x00"])
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("colour", [False, True])
def test_no_text_reaches_the_terminal_as_a_control_sequence(text, is_masked, colour):
    example = make_example(["▁the", *byte_pieces(text)], ["▁the"], {2: "[MASK]"} if is_masked else {})
    shown = COLOUR.sub("", show_example(example, 0, TOKENIZER, colour=colour))
    assert all(character.isprintable() or character == "\n" for character in shown)


def test_the_order_of_the_segments_is_shown():
    swapped = show_example(make_example(["▁the"], ["▁the"], {}, label=1), 12_345, TOKENIZER)
    assert swapped.startswith("row 12,345: swapped: A followed B in the document, 5 tokens, 0 masked")
    assert "row 0: in order" in show_example(make_example(["▁the"], ["▁the"], {}), 0, TOKENIZER)
    alone = make_example(["▁the"], [], {})
    assert "no segment B" in show_example(alone, 0, TOKENIZER)
    assert show_segments(alone) == ["A  the"]


def split_rows(examples: Examples) -> Iterator[Example]:
    for one in (slice_rows(examples, row, row + 1) for row in range(len(examples))):
        yield Example(
            input_ids=one.input_ids,
            segment_a_len=int(one.segment_a_len[0]),
            sop_label=int(one.sop_label[0]),
            masked_positions=one.masked_positions,
            masked_ids=one.masked_ids,
            document_key=int(one.document_keys[0]),
        )


ESCAPE = r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[^xuU])"
MARKERS = re.compile(
    rf"(?P<escape>{ESCAPE})"
    rf"|\[MASK:(?P<masked>(?:{ESCAPE}|[^\\\]])+)\]"
    rf"|\{{(?P<random>(?:{ESCAPE}|(?!<-)[^\\}}])+<-(?:{ESCAPE}|[^\\}}])+)\}}"
    rf"|=(?P<kept>(?:{ESCAPE}|[^\\=])+)="
)


def parse_kinds(shown: str) -> list[str]:
    """What each marker says, read as the legend explains it."""
    return [match.lastgroup for match in MARKERS.finditer(shown) if match.lastgroup not in (None, "escape")]


def expected_kinds(example: Example) -> list[str]:
    standing = example.input_ids[example.masked_positions]
    return [
        "masked" if i == TOKENIZER.mask_id else "kept" if i == original else "random"
        for i, original in zip(standing, example.masked_ids, strict=True)
    ]


@given(documents=text_documents(), config=configs())
def test_a_parser_reads_every_marker_and_mistakes_no_text_for_one(documents, config):
    for example in split_rows(make_examples(documents, config)):
        shown = " ".join(segment[3:] for segment in show_segments(example))
        assert parse_kinds(shown) == expected_kinds(example)


@given(documents=text_documents(), width=st.integers(24, 120))
def test_every_line_fits_the_terminal_and_colour_changes_no_text(documents, width):
    for example in split_rows(make_examples(documents, SMALL)):
        plain = show_example(example, 0, TOKENIZER, width)
        assert max(map(count_columns, plain.splitlines())) <= width
        coloured = show_example(example, 0, TOKENIZER, width, colour=True)
        assert COLOUR.sub("", coloured) == plain


def test_each_kind_has_a_colour_of_its_own():
    masked = {1: "[MASK]", 2: "▁people", 3: "▁water"}
    shown = show_example(make_example(["▁river", "▁quickly", "▁water"], ["▁the"], masked), 0, TOKENIZER, colour=True)
    for kind, text in (("masked", "[MASK:river]"), ("random", "{people<-quickly}"), ("kept", "=water=")):
        assert f"{PALETTE[kind]}{text}\x1b[0m" in shown
    assert len(set(PALETTE.values())) == len(PALETTE)


@pytest.mark.parametrize("width", [24, 40, 80])
def test_the_legend_explains_every_marker_and_fits(width):
    legend = show_legend(width)
    assert [mark in legend for mark in ("[MASK:x]", "{y<-x}", "=x=", "\\")] == [True] * 4
    assert max(map(len, legend.splitlines())) <= width


def test_a_row_for_json_holds_what_the_model_sees_and_predicts():
    example = make_example(["▁river", "a"], ["▁the"], {2: "[MASK]"}, label=1)
    assert to_dict(example, 7, TOKENIZER) == {
        "row": 7,
        "document_key": "0000000000000abc",
        "sop_label": 1,
        "segment_a_len": 2,
        "pieces": ["[CLS]", "▁river", "[MASK]", "[SEP]", "▁the", "[SEP]"],
        "masked_positions": [2],
        "masked_pieces": ["a"],
    }


# ---- lines of the terminal ----


@given(st.text())
def test_no_control_character_reaches_the_terminal(text):
    shown = escape_controls(text)
    steering = [c for c in shown if unicodedata.category(c)[0] == "C" and c not in "\u200c\u200d"]
    assert not steering
    assert shown.isprintable() or set(re.sub("[\u200c\u200d]", "", shown)) & set(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x07b\rc\td\n", "a\\x07b\\rc\\td\\n"),
        ("\u202eabc", "\\u202eabc"),
        ("\udc80", "\\udc80"),
        ("naïve 山 e\u0301 👩\u200d🔬", "naïve 山 e\u0301 👩\u200d🔬"),
    ],
)
def test_control_characters_are_written_out(text, shown):
    assert escape_controls(text) == shown


def test_wide_characters_fill_two_columns_and_marks_none():
    assert [count_columns(text) for text in ("abc", "山河", "e\u0301", "，", "ｱ", "")] == [3, 4, 1, 2, 1, 0]


def test_an_output_that_can_t_encode_a_character_gets_an_escape():
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
        ("ab天cd", 4, ["ab天", "cd"]),
        ("abcdefgh ij", 4, ["abcd", "efgh", "ij"]),
        # a marker at no wide character, and only if no line holds it,
        ("ภาษาไทย|[MASK:x]|คำคำคำ", 10, ["ภาษาไทย", "[MASK:x]คำ", "คำคำ"]),
        ("ไทย|[MASK:x]|", 4, ["ไทย", "[MAS", "K:x]"]),
        # and a combining mark stays with its letter.
        ("abcde\u0301f", 5, ["abcde\u0301", "f"]),
    ],
)
def test_lines_break_where_they_may(text, width, lines):
    assert to_lines(text, width) == lines


texts = st.text(st.sampled_from("abc  天山e\u0301，é"), max_size=60)
styled_texts = st.lists(st.builds(StyledText, text=texts, style=st.sampled_from(("", "kept", "masked"))), max_size=6)


@given(texts=styled_texts, width=st.integers(2, 30))
def test_wrapping_keeps_every_character_and_its_style_in_lines_that_fit(texts, width):
    lines = wrap(texts, width)
    before = [(c, text.style) for text in texts for c in text.text if c != " "]
    assert [(c, text.style) for line in lines for text in line for c in text.text if c != " "] == before
    for line in lines:
        text = paint(line, {})
        assert 0 < count_columns(text) <= width or count_columns(text) == 0 < len(text)
        assert text == text.strip(" ")


@given(words=st.lists(st.text("abc", min_size=1, max_size=9), max_size=30), width=st.integers(9, 30))
def test_words_that_fit_stay_whole_and_lines_are_full(words, width):
    lines = to_lines(" ".join(words), width)
    assert " ".join(lines).split() == words
    for line, following in zip(lines, lines[1:], strict=False):
        assert len(line) + 1 + len(following.split()[0]) > width
