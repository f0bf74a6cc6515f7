"""White space is that of Python's str, and copies of a text that differ in it alone are one document."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import references
from corpus_fixtures import as_jsonl, cut_all, read, small_sizes
from hypothesis import given
from hypothesis import strategies as st

from albert_data.clean.documents import strip_lines
from albert_data.config import TextConfig
from albert_data.corpus import blocks
from albert_data.corpus.damage import Damage
from albert_data.corpus.lines.line_ends import break_lines, count_unfinished, has_breaks
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
def test_text_between_blank_lines_is_that_of_the_reference(text):
    assert strip(text, None)[0] == references.read_txt(text.encode())


@given(st.lists(pieces, max_size=5))
def test_documents_with_ends_are_those_of_the_reference(texts):
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
def test_copies_that_differ_in_white_space_alone_have_one_key(lines, data):
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
def test_a_line_of_invisible_characters_is_blank(blank, sizes, unwrap):
    stories = [f"Story {number}.\n{blank}a{blank} b{blank}" for number in range(20)]
    text, lines = f"\n{blank}\n".join(stories), [references.canonical(story) for story in stories]
    config = TextConfig(unwrap=unwrap)
    with small_sizes(max_line=1 << 20, max_document=1 << 20, **sizes):
        assert read(text.encode(), config=config) == (lines, {})
        assert read(text.encode(), config=replace(config, document_rule="file"))[0] == [b"".join(lines)]
        assert read(as_jsonl([text, blank]), "jsonl", config=config) == ([b"".join(lines)], {"empty_document": 1})


# ---- every line end is one, in every format, wherever a file is cut ----


ENDS = {"CR": "\r", "CR LF": "\r\n", "CR CR LF": "\r\r\n", "U+0085": "\u0085", "U+2028": "\u2028", "U+2029": "\u2029"}
end_bytes = st.sampled_from(
    [b"\r", b"\n", b"\xc2", b"\x85", b"\xe2", b"\x80", b"\xa8", b"\xa9", b"a", b" ", b"\xe2\x80\x9d"]
)
any_bytes = st.lists(end_bytes, max_size=30).map(b"".join)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_every_line_end_parts_lines_and_documents(end):
    text = f"one{end}two{end}{end}three{end} {end}four"
    assert read(text.encode())[0] == [b"one\ntwo\n", b"three\n", b"four\n"]
    assert read(as_jsonl([text]), "jsonl")[0] == [b"one\ntwo\nthree\nfour\n"]
    assert read(as_jsonl([text], ensure_ascii=True), "jsonl")[0] == [b"one\ntwo\nthree\nfour\n"]


def test_json_lines_end_at_line_feeds_alone():
    data = '{"text": "a\u2028b\u0085c"}\r{"text": "d"}\n{"text":\r"e"}\r\n'.encode()
    assert read(data, "jsonl") == ([b"e\n"], {"malformed_json": 1})


@given(st.integers(0, 140), any_bytes, st.integers(0, 140))
def test_line_ends_become_line_feeds_in_place(before, data, after):
    data = b"x" * before + data + b"y" * after
    found = break_lines(data)
    feed = re.compile(rb"\r(?!\r?\n)|\xc2\x85|\xe2\x80[\xa8\xa9]")
    assert found == feed.sub(lambda match: b" " * (len(match.group()) - 1) + b"\n", data)
    assert has_breaks(np.frombuffer(data, np.uint8), np.zeros(130, np.uint8)) == bool(feed.search(data))
    assert references.canonical(found.decode(errors="replace")) == references.canonical(data.decode(errors="replace"))


@given(any_bytes, st.integers(0, 60))
def test_what_may_be_part_of_a_line_end_waits_for_the_rest(data, cut):
    cut = min(cut, len(data))
    kept = cut - count_unfinished(data[:cut])
    assert break_lines(data[:kept]) + break_lines(data[kept:]) == break_lines(data)


def test_a_blank_line_over_several_reads_ends_a_giant_document():
    """Its white space is not held: a gigabyte of it took a gigabyte of memory and a quarter of an hour."""
    with small_sizes():
        data = b"words " * 40 + b"\n" + b" \t" * 5000 + b"\n" + b"next"
        assert read(data)[0] == cut_all(references.read_txt(data))
        held: list[int] = []
        stream = io.BytesIO(data)
        source = blocks._Buffer(stream, blocks.Origin("p", "txt"), Damage(), 0, None)
        for part in blocks._take_document(source, None, Damage()):
            held += [len(part), len(source.pending)]
    assert max(held) < 200
