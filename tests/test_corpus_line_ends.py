"""Every line end is one, in every format, wherever a file is cut."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import references
from corpus_fixtures import as_jsonl, block_sizes, cut_all, read, small_sizes
from hypothesis import given
from hypothesis import strategies as st

from albert_data.corpus import blocks
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import find_inputs
from albert_data.corpus.lines.line_ends import break_lines, count_unfinished, has_breaks
from albert_data.corpus.tasks import plan_tasks

ENDS = {"CR": "\r", "CR LF": "\r\n", "CR CR LF": "\r\r\n", "U+0085": "\u0085", "U+2028": "\u2028", "U+2029": "\u2029"}
pieces = st.sampled_from(
    [b"\r", b"\n", b"\xc2", b"\x85", b"\xe2", b"\x80", b"\xa8", b"\xa9", b"a", b" ", b"\xe2\x80\x9d"]
)
any_bytes = st.lists(pieces, max_size=30).map(b"".join)


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


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
@given(block_bytes=block_sizes, lines=st.lists(st.sampled_from(["a", "word", "中文", ""]), min_size=30, max_size=99))
def test_long_text_of_such_lines_reads_alike_in_any_blocks(end, block_bytes, lines):
    data = end.join(lines).encode()
    with small_sizes():
        assert read(data, block_bytes=block_bytes)[0] == cut_all(references.read_txt(data))


def test_a_giant_document_of_such_lines_is_cut_between_them():
    line = "a line of some text"
    with small_sizes(max_line=64, max_document=1 << 10):
        found, counts = read(f"{line}\r{line}\u2028".encode() * ((9 << 8) // 42))
    assert {part for document in found for part in document.decode().splitlines()} == {line}
    assert counts == {"long_document_cut": len(found) - 1}
    assert len(found) == 3


def test_a_blank_line_over_several_reads_ends_a_giant_document():
    """Its white space is not held: a gigabyte of it took a gigabyte of memory and a quarter of an hour."""
    with small_sizes():
        data = b"words " * 40 + b"\n" + b" \t" * 5000 + b"\n" + b"next"
        assert read(data)[0] == cut_all(references.read_txt(data))
        held: list[int] = []
        stream = io.BytesIO(data)
        source = blocks._Buffer(stream, blocks.Origin("p", "txt"), Damage(), 0, None)
        for part in blocks._take_document(source):
            held += [len(part), len(source.pending)]
    assert max(held) < 200


@pytest.mark.parametrize("end", ["\r", "\n", "\u2028"])
def test_ranges_of_a_file_hold_whole_documents(tmp_path, end, monkeypatch):
    documents = [f"document {number}{end}of two lines" for number in range(200)]
    path = tmp_path / "a.txt"
    path.write_bytes((end * 2).join(documents).encode() + b"\n\n" + "\n\n".join(documents).encode())
    monkeypatch.setattr("albert_data.corpus.tasks._MIN_TASK_BYTES", 64)
    monkeypatch.setattr("albert_data.corpus.tasks._TASKS", 10**6)
    spans = [block for task in plan_tasks(find_inputs([str(path)])) for block in task.read(Damage())]
    assert len(spans) > 10
    found = [document for block in spans for document in read(block.data)[0]]
    assert found == references.read_txt(path.read_bytes())
