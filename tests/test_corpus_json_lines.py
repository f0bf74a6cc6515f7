"""A scanned line gives what json.loads gives, and costs little, whatever it holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
from corpus_fixtures import read
from hypothesis import example, given
from hypothesis import strategies as st

from albert_data.corpus import json_lines
from albert_data.corpus.json_scanning import OBJECT, STRING, scan

PIECES = [
    *(
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        " ",
        "\t",
        "\n",
        "\r",
        '"text"',
        '"text": ',
        '"t\\u0065xt": ',
        '"a": ',
        '"x"',
        '""',
    ),
    *("0", "-0", "-", "1.5", "1e5", "01", "1.", ".5", "1E+", "1e-2", "9" * 5000, "true", "false", "null", "nul", "NaN"),
    *("Infinity", "-Infinity", "-NaN", "Inf", '"\\n\\t\\"\\\\\\/\\b\\f\\r"', '"\\x"', '"\\u12g4"', '"\\u12', '"\\'),
    *(
        '"\\ud83d\\ude00"',
        '"\\ud83d"',
        '"\\ude00\\ud83d\\ud83d\\ude00"',
        '"\\ud83d\\u0041"',
        '"\u00e9\u4e2d\U0001f600"',
    ),
    *('"', "\x00", '"\x00"', '"\x7f"', "\ufeff", "\u00a0", "\u2028", '"\\u00e9\\u4e2d\\u0000"', "\ufffd"),
]
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just("text"), inner, max_size=4)
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(["text", "a", "texts", "t"]), values | st.text(max_size=9), max_size=4)
lines = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.builds(json.dumps, values | objects, ensure_ascii=st.booleans()),
    st.builds(
        lambda line, at, piece: line[:at] + piece + line[at + 1 :],
        st.builds(json.dumps, objects),
        st.integers(0, 40),
        st.sampled_from(PIECES),
    ),
)


def outcome(data: bytes) -> tuple[list[bytes], Counter[str]]:
    return read(data, "jsonl")


def scanned(data: bytes) -> tuple[list[bytes], Counter[str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "LARGE_LINE", -1)
        return read(data, "jsonl")


@given(lines.filter(lambda line: line.strip(" \t\n\r") == line.strip()))
@example('{"text": "a", "text": "b"}')
@example('{"text": {"text": "a"}}')
@example('{"b": [{"text": "a"}], "text": "c"}')
@example('{"text": "a"} {}')
@example('{"text": "a",}')
@example('{"text": "a"')
@example('[{"text": "a"}]')
@example('"text"')
def test_scanning_gives_what_json_loads_gives(line: str):
    data = line.encode(errors="replace").replace(b"\n", b" ")
    assert scanned(data) == outcome(data)


@given(st.text(min_size=1, max_size=6), st.booleans())
def test_a_field_of_any_name_is_found(field: str, is_ascii: bool):
    line = json.dumps({"a": 1, field: "found", field + "x": 2}, ensure_ascii=is_ascii).encode(errors="replace")
    name = field.encode(errors="replace").decode()
    if is_ascii or name == field:
        line_kind, kind, begin, end = scan(np.frombuffer(line, np.uint8), field)
        assert (line_kind, kind, line[begin:end]) == (OBJECT, STRING, b"found")


@pytest.mark.parametrize(
    "other",
    [
        "9" * 5000,
        "-" + "9" * 5000,
        "1" * 400 + ".5e999",
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        "NaN",
        "-Infinity",
    ],
    ids=["integer", "negative", "float", "arrays", "objects", "NaN", "Infinity"],
)
def test_what_another_field_holds_does_not_matter(other: str):
    data = f'{{"id": {other}, "text": "sound", "more": {other}}}\n'.encode()
    assert read(data, "jsonl", strict=True) == ([b"sound\n"], {})


def test_a_byte_order_mark_may_begin_any_line():
    """As in files with one each that were joined."""
    data = '\ufeff{"text": "a"}\n\ufeff{"text": "b"}\n'.encode()
    assert read(data, "jsonl", strict=True) == ([b"a\n", b"b\n"], {})
    assert scanned(data) == ([b"a\n", b"b\n"], {})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "\xff%s"}', "invalid_utf8"),
        (b'{"text": "\\ud800%s"}', "lone_surrogate"),
        (b'{"body": "%s"}', "missing_field"),
        (b'{"text": ["%s"]}', "field_not_text"),
        (b'["%s"]', "malformed_json"),
        (b'{"text": "%s"', "malformed_json"),
        (b'{"text": "", "x": "%s"}', "empty_document"),
        (b'{"text": 1%s}', "malformed_json"),
    ],
)
def test_damage_of_large_lines_is_counted_as_that_of_small_ones(line: bytes, reason: str):
    small, large = line % b"words ", line % (b"words " * 200_000)
    assert read(small, "jsonl")[1] == read(large, "jsonl")[1] - Counter(long_document_cut=9) == {reason: 1}


def test_the_text_of_a_large_line_is_whole():
    text = "some words, \n 中文 😀 \u2028" * 60_000
    for is_ascii in (False, True):
        line = json.dumps({"text": text, "n": 1}, ensure_ascii=is_ascii).encode()
        assert len(line) > json_lines.LARGE_LINE
        assert read(line, "jsonl")[0] == ["some words,\n中文 😀\n".encode() * 60_000]


def test_a_line_that_is_too_long_once_repaired_is_counted():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("albert_data.corpus.blocks.MAX_JSON_LINE", 3 << 20)
        counts = read(b'{"text": "' + b"\xff" * (2 << 20) + b'"}', "jsonl")[1]
    assert counts == {"invalid_utf8": 1, "line_too_long": 1}


PEAK = """
import io, os, resource
from corpus_fixtures import read

read(b'{"text": "a", "b": [' + b"[]," * 500_000 + b"0]}", "jsonl")
for line in (
    lambda: b'{"text": "a", "b": [' + b'{"a":{}},' * 3_000_000 + b"0]}",
    lambda: b'{"text": "a", "b": ' + b"[" * 13_000_000 + b"]" * 13_000_000 + b"}",
    lambda: b'{"text": "' + b"ab " * 9_000_000 + b'\\xf0\\x9f\\x98\\x80"}',
    lambda: b'{"text": "' + b"\\\\n" * 9_000_000 + b'x"}',
):
    process = os.fork()  # whose own peak is measured
    if process == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found, counts = read(io.BytesIO(line()), "jsonl")
        assert found and set(counts) <= {"long_document_cut"}, counts
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, flush=True)
        os._exit(0)
    os.waitpid(process, 0)
"""


def test_a_line_takes_a_few_times_its_bytes_of_memory():
    """27 MB each: objects, depth, an emoji, line feeds; json.loads took 700 MB for the objects."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )
    peaks = list(map(int, done.stdout.split()))
    assert len(peaks) == 4, done.stderr
    assert max(peaks) * 1024 < 8 * 27_000_000 + (32 << 20)
