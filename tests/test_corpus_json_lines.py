"""A line gives what json.loads gives, and costs little, whatever it holds."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
import references
from corpus_fixtures import read
from hypothesis import example, given
from hypothesis import strategies as st

from albert_data.config import TextConfig
from albert_data.corpus.formats import json_lines
from albert_data.errors import ConfigError

PIECES = [
    *("{", "}", "[", "]", ":", ",", " ", "\t", "\n", "\r"),
    *('"text"', '"text": ', '"t\\u0065xt": ', '"a": ', '"x"', '""'),
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


# What json.loads accepts and msgspec refuses: only in lines that are not large.
BEYOND_JSON = re.compile(r"NaN|Infinity|\\u[dD][89a-fA-F]|9{400}")


def read_large(data: bytes, config: TextConfig | None = None) -> tuple[list[bytes], Counter[str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "LARGE_LINE", -1)
        return read(data, "jsonl", config=config)


@given(lines.filter(lambda line: line.strip(" \t\n\r") == line.strip()))
@example('{"text": "a", "text": "b"}')
@example('{"text": 1, "text": "b"}')
@example('{"text": "a", "text": NaN}')
@example('{"text": {"text": "a"}}')
@example('{"b": [{"text": "a"}], "text": "c"}')
@example('{"text": "a"} {}')
@example('{"text": "a",}')
@example('{"text": "a"')
@example('[{"text": "a"}]')
@example('"text"')
def test_a_line_is_read_as_json_loads_reads_it(line):
    data = line.encode(errors="replace").replace(b"\n", b" ")
    found = read(data, "jsonl")
    assert found[0] == references.read_jsonl(data)
    assert read_large(data) == found or (BEYOND_JSON.search(line) and read_large(data) == ([], {"malformed_json": 1}))


@given(st.text(min_size=1, max_size=6).filter(lambda name: all(map(str.strip, name.split(",")))), st.booleans())
@example('"\\\n', False)
@example("текст", True)
@example("文.a", False)
def test_a_field_of_any_name_is_found(field, is_ascii):
    line = json.dumps({"a": 1, field: "found", field + "x": 2}, ensure_ascii=is_ascii).encode()
    config = TextConfig(text_field=field)
    assert read(line, "jsonl", config=config) == read_large(line, config) == ([b"found\n"], {})


def test_a_name_may_lead_through_100_objects():
    line = b'{"a": ' * 101 + b'"found"' + b"}" * 101
    for data in (line, line.replace(b'{"a": ', b'{"deep": ' + b"[" * 5000 + b"]" * 5000 + b', "a": ', 1)):
        assert read(data, "jsonl", config=TextConfig(text_field=".".join("a" * 101)))[0] == [b"found\n"]
    with pytest.raises(ConfigError, match="has over 100 points; name another field"):
        TextConfig(text_field=".".join("a" * 102))


@given(values, st.integers(1, 4))
@example({"a": ["]]", [1], {"b": [2, '"[[']}]}, 2)
def test_what_lies_deep_becomes_null(value, deepest):
    def shorten(value: Any, depth: int) -> Any:
        if isinstance(value, (dict, list)) and depth == deepest:
            return None
        if isinstance(value, dict):
            return {name: shorten(inner, depth + 1) for name, inner in value.items()}
        return [shorten(inner, depth + 1) for inner in value] if isinstance(value, list) else value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "_DEEPEST", deepest)
        found = json_lines.cut_deep(json.dumps(value))
    assert found == json.dumps(shorten(value, 1))


@pytest.mark.parametrize("inside", ["1", "1,", "x", "NaN", '"', "}"])
def test_the_stack_does_not_decide_whether_a_line_is_read(inside):
    """Where it ends depends on Python's version and on the caller."""
    line = '{"text": "sound", "more": ' + "[" * 300 + inside + "]" * 300 + "}"
    found, limit = [], sys.getrecursionlimit()
    for stack in (250, 10_000):
        sys.setrecursionlimit(len(inspect.stack()) + stack)
        try:
            found.append(read(line.encode(), "jsonl"))
        finally:
            sys.setrecursionlimit(limit)
    assert found[0] == found[1]


DEEP = [b"[" * 9999 + b"%s", b'{"text": ' + b"[" * 9999 + b'"%s"' + b"]" * 9998, b'{"a":' * 9999 + b"%s"]
DEEP += [b"[" * 9999 + b'"%s"' + b"]" * 9999]
OTHERS = {
    **{"integer": "9" * 5000, "negative": "-" + "9" * 5000, "float": "1" * 400 + ".5e999", "surrogate": r'"\ud800"'},
    **{"arrays": "[" * 100_000 + "]" * 100_000, "objects": '{"a":' * 100_000 + "1" + "}" * 100_000},
}


@pytest.mark.parametrize("other", [*OTHERS.values(), "NaN", "-Infinity"], ids=[*OTHERS, "NaN", "Infinity"])
def test_what_another_field_holds_does_not_matter(other):
    data = f'{{"id": {other}, "text": "sound", "more": {other}}}\n'.encode()
    assert read(data, "jsonl", strict=True) == ([b"sound\n"], {})


def test_a_byte_order_mark_may_begin_any_line():
    """As in files with one each that were joined."""
    data = '\ufeff{"text": "a"}\n\ufeff{"text": "b"}\n'.encode()
    assert read(data, "jsonl", strict=True) == read_large(data) == ([b"a\n", b"b\n"], {})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "\xff%s"}', "invalid_utf8"),
        (b'{"text": "\\ud800%s"}', "lone_surrogate"),
        (b'{"body": "%s"}', "missing_field"),
        (b'{"text": ["%s", 1]}', "field_not_text"),
        (b'{"text": [["%s"]]}', "field_not_text"),
        (b'["%s"]', "malformed_json"),
        (b'{"text": "%s"', "malformed_json"),
        (b'{"text": "", "x": "%s"}', "empty_document"),
        (b'{"text": 1%s}', "malformed_json"),
        *((line, "malformed_json") for line in DEEP),
    ],
)
def test_damage_of_large_lines_is_counted_as_that_of_small_ones(line, reason):
    small, large = line % b"words ", line % (b"words " * 200_000)
    assert read(small, "jsonl")[1] == read(large, "jsonl")[1] - Counter(long_document_cut=9) == {reason: 1}
    assert read_large(large)[1] - Counter(long_document_cut=9) == {
        "malformed_json" if reason == "lone_surrogate" else reason: 1
    }


def test_the_text_of_a_large_line_is_whole(monkeypatch):
    text = "some words, \n 中文 😀 \u2028" * 30_000
    monkeypatch.setattr(json_lines, "LARGE_LINE", 1 << 19)
    for is_ascii in (False, True):
        line = json.dumps({"text": text, "n": 1}, ensure_ascii=is_ascii).encode()
        assert len(line) > json_lines.LARGE_LINE
        assert b"".join(read(line, "jsonl")[0]) == "some words,\n中文 😀\n".encode() * 30_000


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
    lambda: b'{"text": "a", "b": [' + b'{"a":{}},' * 1_000_000 + b"0]}",
    lambda: b'{"text": "a", "b": ' + b"[" * 4_500_000 + b"]" * 4_500_000 + b"}",
    lambda: b'{"text": "' + b"ab " * 3_000_000 + b'\\xf0\\x9f\\x98\\x80"}',
    lambda: b'{"text": "' + b"\\\\n" * 4_500_000 + b'x"}',
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
    """9 MB each: objects, depth, an emoji, line feeds; json.loads takes 230 MB for the objects."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )
    peaks = list(map(int, done.stdout.split()))
    assert len(peaks) == 4, done.stderr
    # 86 MB for the emoji, and in one run of four 113: where the allocator finds no room for a copy.
    assert max(peaks) * 1024 < 10 * 9_000_000 + (32 << 20)
