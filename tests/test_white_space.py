"""White space is that of Python's str, and copies of a text that differ in it alone are one document."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import references
from corpus_fixtures import as_jsonl, read, small_sizes
from hypothesis import given
from hypothesis import strategies as st

from albert_data.config import TextConfig
from albert_data.corpus.blocks import RECORDS, Block
from albert_data.corpus.damage import Damage
from albert_data.corpus.documents import clean_documents, strip_lines
from albert_data.corpus.lines.white_space import clear_invisible_lines, has_text

LINE_ENDS = "\n\r\u0085\u2028\u2029"
ALL_WHITE = [chr(code) for code in range(0x110000) if chr(code).isspace()]
IN_LINES = [character for character in ALL_WHITE if character not in LINE_ENDS]
# Their bytes are close to those of white space.
NEIGHBOURS = [
    *"\0\x08\x0e\x1b!\x7f\u0080\u009f\u00a1\u00ab\u1000\u1681\u169c\u200b\u200f\u2018\u2027\u202e\u2030\u205e"
]
NEIGHBOURS += [*"\u2060\u2e80\u3001\u3002\u3040\u3080é中😀"]

runs = st.text(st.sampled_from([" ", " ", *IN_LINES]), min_size=1, max_size=3)
UNASSIGNED = {0x2065, 0xE0000, *range(0xE0002, 0xE0020)}  # between invisible characters
words = st.sampled_from([*NEIGHBOURS, "a", "word", "x" * 29, "x" * 61, "中" * 20])
pieces = st.lists(words | runs | st.sampled_from(["\n", " \n", "\n\n"]), max_size=60).map("".join)


def strip(text: str, ends: list[int] | None) -> tuple[list[bytes], list[int]]:
    """The documents of the kernel, each as one text, and their numbers."""
    given_ends = np.array(ends or [], np.int64)
    raw = np.frombuffer(clear_invisible_lines(text.encode()), np.uint8)
    utf8, line_offsets, document_offsets, numbers, longest = strip_lines(raw, given_ends, ends is None)
    lines = [utf8[begin:end].tobytes() for begin, end in pairwise(line_offsets.tolist())]
    assert longest == max((len(line) - 1 for line in lines), default=0)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    bounds = document_offsets.tolist()
    assert (bounds[-1], line_offsets[-1]) == (len(lines), len(utf8))
    return [b"".join(lines[begin:end]) for begin, end in pairwise(bounds)], numbers.tolist()


def test_white_space_is_that_of_python():
    for code in range(0x110000):
        if not 0xD800 <= code < 0xE000:
            character = chr(code)
            assert has_text(character.encode()) != references.is_blank(character) or code in UNASSIGNED, hex(code)
    for character in [*IN_LINES, *NEIGHBOURS]:
        for before in ("", "x" * 63, "x" * 130):  # among the last bytes, and in a whole 64
            text = f"{before}a{character}b{'y' * 70}"
            assert strip(text, None)[0] == [references.canonical(text)]


@given(pieces)
def test_text_between_blank_lines_is_that_of_the_reference(text: str):
    assert strip(text, None)[0] == references.read_txt(text.encode())


@given(st.lists(pieces, max_size=5))
def test_documents_with_ends_are_those_of_the_reference(texts: list[str]):
    ends = np.cumsum([len(text.encode()) + 1 for text in texts], dtype=np.int64).tolist()
    expected = [(references.canonical(text), number) for number, text in enumerate(texts)]
    kept = [(text, number) for text, number in expected if text]
    assert strip("".join(text + "\n" for text in texts), ends) == ([text for text, _ in kept], [n for _, n in kept])


@given(
    st.lists(
        st.lists(st.text(st.characters(exclude_categories=["Cs", "Z", "Cc", "Cf"]), min_size=1), min_size=1), min_size=1
    ),
    st.data(),
)
def test_copies_that_differ_in_white_space_alone_have_one_key(lines: list[list[str]], data: st.DataObject):
    lines[0][0] = "first" + lines[0][0]  # a byte order mark at the beginning of a file is no text
    edges = st.just("") | runs
    copy = "\n".join(
        data.draw(edges) + "".join(word + data.draw(runs) for word in line[:-1]) + line[-1] + data.draw(edges)
        for line in lines
    )
    plain = "\n".join(" ".join(line) for line in lines)
    assert read(copy.encode())[0] == read(as_jsonl([copy, plain]), "jsonl")[0][:1] == [plain.encode() + b"\n"]
    assert read(as_jsonl([copy]), "jsonl") == read(as_jsonl([plain]), "jsonl")


@pytest.mark.parametrize(
    "blank", [*"\u00ad\u061c\u180e\u200b\u200d\u200e\u2060\u2064\ufeff\U000e0020", " \u200b\u00a0\ufeff "]
)
@pytest.mark.parametrize("sizes", [{}, {"_CHUNK": 1}, {"GIANT_BYTES": 1 << 20}])
@pytest.mark.parametrize("unwrap", [False, True])
def test_a_line_of_invisible_characters_is_blank(blank: str, sizes: dict[str, int], unwrap: bool):
    stories = [f"Story {number}.\n{blank}a{blank} b{blank}" for number in range(20)]
    text, lines = f"\n{blank}\n".join(stories), [references.canonical(story) for story in stories]
    config = TextConfig(unwrap=unwrap)
    with small_sizes(max_line=1 << 20, max_document=1 << 20, **sizes):
        assert read(text.encode(), config=config) == (lines, {})
        assert read(text.encode(), config=replace(config, documents="file"))[0] == [b"".join(lines)]
        assert read(as_jsonl([text, blank]), "jsonl", config=config) == ([b"".join(lines)], {"empty_document": 1})


def test_fourteen_copies_with_wider_spaces_are_one_document():
    text = "It was late. Nobody came. The lamp went out.\nThe second line is here. It ends."
    copies = [text.replace(" ", white) for white in IN_LINES]
    copies += [text.replace(". ", ".  "), text.replace("\n", " \u3000\n\u00a0"), text.replace("\n", "\n\u2003\n")]
    assert len(copies) > 14
    found, counts = read(as_jsonl(copies), "jsonl")
    assert set(found) == {text.encode() + b"\n"}
    assert not counts


@pytest.mark.parametrize("format", ["jsonl", RECORDS])
def test_a_text_of_wide_white_space_is_empty_and_its_neighbours_stay_apart(format: str):
    texts, damage = ["one", "\u3000\u00a0\n\u2003", "two", "three"], Damage()
    if format == "jsonl":
        data = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)
        block = Block(data=data, format=format, path="", start=0)
    else:
        parts = [text.encode() + b"\n" for text in texts]
        ends = tuple(np.cumsum([len(part) for part in parts]).tolist())
        block = Block(data=b"".join(parts), format=format, path="", start=0, ends=ends, source_codes=(1, 2, 3, 4))
    lines = clean_documents(block, TextConfig(), damage)
    assert (bytes(lines.utf8), lines.document_offsets.tolist()) == (b"one\ntwo\nthree\n", [0, 1, 2, 3])
    if format == "jsonl":
        assert damage.counts["empty_document"] == 1
    else:
        assert lines.source_codes is not None
        assert lines.source_codes.tolist() == [1, 3, 4]
