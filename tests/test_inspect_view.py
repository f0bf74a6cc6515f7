"""A row in the terminal shows what became of each token, to people and to parsers, and is harmless."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_fixtures import SMALL, configs, get_tokenizer, make_examples, text_documents

from albert_data.data import Examples
from albert_data.inspect.terminal import count_columns
from albert_data.inspect.view import PALETTE, show_example, show_legend, to_dict
from albert_data.shards.reader import Example

TOKENIZER = get_tokenizer()
SPACE = "▁"
ID = {piece: i for i, piece in enumerate(TOKENIZER.pieces)}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True)
class Masked:
    """A token of the row at `position` that is masked by the piece `standing`."""

    position: int
    standing: str


def make_example(a: list[str], b: list[str], *masked: Masked, label: int = 0) -> Example:
    pieces = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
    ids = np.array([ID[piece] for piece in pieces], np.uint16)
    positions = [mask.position for mask in masked]
    originals = ids[positions].copy()
    ids[positions] = [ID[mask.standing] for mask in masked]
    return Example(
        input_ids=ids,
        segment_a_len=len(a),
        sop_label=label,
        masked_positions=np.array(positions, np.uint16),
        masked_ids=originals,
        document_key=0xABC,
    )


def show_segments(example: Example, width: int = 10_000) -> list[str]:
    lines = show_example(example, 0, TOKENIZER, width).splitlines()[1:]
    return [line.strip() for line in lines]


def byte_pieces(text: str) -> list[str]:
    return [f"<0x{byte:02X}>" for byte in text.encode()]


def test_markers_distinguish_the_four_kinds_of_token() -> None:
    masks = Masked(position=1, standing="[MASK]"), Masked(position=2, standing="▁people")
    kept = Masked(position=3, standing="▁water")
    example = make_example(["▁river", "▁quickly", "▁water", "▁people"], ["▁the"], *masks, kept)
    assert show_segments(example) == ["A  [MASK:river] {people<-quickly} =water= people", "B  the"]


def test_the_pieces_of_a_word_are_marked_one_by_one() -> None:
    example = make_example(["▁river", "a", "▁people", "a"], ["▁the"], Masked(position=2, standing="[MASK]"))
    assert show_segments(example)[0] == "A  river[MASK:a] peoplea"


def test_replacements_that_differ_only_in_the_space_are_distinguished() -> None:
    example = make_example(["▁the", "a"], ["▁the"], Masked(position=2, standing="▁the"))
    assert show_segments(example)[0] == "A  the{▁the<-a}"


def test_a_lone_space_piece_is_visible_in_a_marker() -> None:
    example = make_example(["▁the", SPACE], ["▁the"], Masked(position=2, standing="[MASK]"))
    assert show_segments(example)[0] == "A  the [MASK:▁]"


def test_byte_pieces_that_form_a_character_are_joined() -> None:
    whole, cut = byte_pieces("é山"), byte_pieces("山")[:2]
    assert show_segments(make_example(["▁the", *whole], cut)) == ["A  theé山", "B  <0xE5><0xB1>"]
    example = make_example(["▁the", *byte_pieces("é")], ["▁the"], Masked(position=3, standing="[MASK]"))
    assert show_segments(example)[0] == "A  the<0xC3>[MASK:<0xA9>]"


def test_text_that_looks_like_a_marker_has_a_backslash() -> None:
    example = make_example(["▁the", *byte_pieces("=a={b}[MASK:c]\\")], ["▁the"])
    assert show_segments(example)[0] == r"A  the\=a\=\{b}\[MASK:c]" + "\\\\"


@pytest.mark.parametrize("text", ["\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\u202e", "\r", "\u2028", "\x00"])
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("colour", [False, True])
def test_no_text_reaches_the_terminal_as_a_control_sequence(text, is_masked, colour) -> None:
    masks = [Masked(position=2, standing="[MASK]")] if is_masked else []
    example = make_example(["▁the", *byte_pieces(text)], ["▁the"], *masks)
    shown = COLOUR.sub("", show_example(example, 0, TOKENIZER, colour=colour))
    assert all(character.isprintable() or character == "\n" for character in shown)


def test_the_order_of_the_segments_is_shown() -> None:
    swapped = show_example(make_example(["▁the"], ["▁the"], label=1), 12_345, TOKENIZER)
    assert swapped.startswith("row 12,345: swapped: A followed B in the document, 5 tokens, 0 masked")
    assert "row 0: in order" in show_example(make_example(["▁the"], ["▁the"]), 0, TOKENIZER)


def test_a_row_without_a_pair_has_no_segment_b() -> None:
    ids = np.array([ID["[CLS]"], ID["▁the"], ID["[SEP]"]], np.uint16)
    none = np.zeros(0, np.uint16)
    example = Example(
        input_ids=ids, segment_a_len=1, sop_label=-1, masked_positions=none, masked_ids=none, document_key=1
    )
    assert "no segment B" in show_example(example, 0, TOKENIZER)
    assert show_segments(example) == ["A  the"]


def split_rows(examples: Examples) -> list[Example]:
    return [
        Example(
            input_ids=examples.input_ids[examples.offsets[i] : examples.offsets[i + 1]],
            segment_a_len=int(examples.segment_a_len[i]),
            sop_label=int(examples.sop_label[i]),
            masked_positions=examples.masked_positions[examples.mask_offsets[i] : examples.mask_offsets[i + 1]],
            masked_ids=examples.masked_ids[examples.mask_offsets[i] : examples.mask_offsets[i + 1]],
            document_key=int(examples.document_keys[i]),
        )
        for i in range(len(examples))
    ]


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
def test_a_parser_reads_every_marker_and_mistakes_no_text_for_one(documents, config) -> None:
    for example in split_rows(make_examples(documents, config)):
        shown = " ".join(segment[3:] for segment in show_segments(example))
        assert parse_kinds(shown) == expected_kinds(example)


@given(documents=text_documents(), width=st.integers(24, 120))
def test_every_line_fits_the_terminal_and_colour_changes_no_text(documents, width) -> None:
    for example in split_rows(make_examples(documents, SMALL)):
        plain = show_example(example, 0, TOKENIZER, width)
        assert max(map(count_columns, plain.splitlines())) <= width
        coloured = show_example(example, 0, TOKENIZER, width, colour=True)
        assert COLOUR.sub("", coloured) == plain


def test_each_kind_has_a_colour_of_its_own() -> None:
    masks = Masked(position=1, standing="[MASK]"), Masked(position=2, standing="▁people")
    example = make_example(["▁river", "▁quickly", "▁water"], ["▁the"], *masks, Masked(position=3, standing="▁water"))
    shown = show_example(example, 0, TOKENIZER, colour=True)
    for kind, text in (("masked", "[MASK:river]"), ("random", "{people<-quickly}"), ("kept", "=water=")):
        assert f"{PALETTE[kind]}{text}\x1b[0m" in shown
    assert len(set(PALETTE.values())) == len(PALETTE)


@pytest.mark.parametrize("width", [24, 40, 80])
def test_the_legend_explains_every_marker_and_fits(width) -> None:
    legend = show_legend(width)
    assert [mark in legend for mark in ("[MASK:x]", "{y<-x}", "=x=", "\\")] == [True] * 4
    assert max(map(len, legend.splitlines())) <= width


def test_a_row_for_json_holds_what_the_model_sees_and_predicts() -> None:
    example = make_example(["▁river", "a"], ["▁the"], Masked(position=2, standing="[MASK]"), label=1)
    assert to_dict(example, 7, TOKENIZER) == {
        "row": 7,
        "document_key": "0000000000000abc",
        "sop_label": 1,
        "segment_a_len": 2,
        "pieces": ["[CLS]", "▁river", "[MASK]", "[SEP]", "▁the", "[SEP]"],
        "masked_positions": [2],
        "masked_pieces": ["a"],
    }
