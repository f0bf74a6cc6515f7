"""What a line costs grows with its length, whatever it holds: twice the line, twice the work, as counted."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from counted_kernels import counted_kernels

from albert_data.clean.documents import clean_documents
from albert_data.config import TextConfig
from albert_data.corpus import blocks
from albert_data.corpus.blocks import Origin, read_blocks
from albert_data.corpus.damage import Damage
from albert_data.corpus.lines.long_documents import cut_lines
from albert_data.sentences.segmenting import Segmented, make_rule
from albert_data.sentences.text import find_sentences

# What lines are made of, over and over.
UNITS = [
    *("`", '"', "'", "“", "“a.” ", "(", "(a.) ", "a) ", "[1]", "('12','foo','bar. Baz'),", '{"a": [1, "b. C"]}, '),
    *("* `code` [Link](http://a.b/c). **Bold.** ", ".", ". ", "/ . ", "word" + " " * 40 + ". ", "。", "。 ", "… "),
    *("a" + " " * 99, "1", "1. 2) 3.5 ", "中", "今天天气很好，我们去看书", "a\u0301\u0302", "😀", "C\u3000. "),
    *("Word" * 30 + ". ", "J. K. Rowling Mr. X. ", "e.g. p.m. U.S. ", "A. B. ", "It was so. He left. ", "1. a) b. "),
    *("• a ", "a. — — — ", "“a. B! ", "a.[1] ²", "a\r", "a\u2028"),
]
SIZES = (4_000, 8_000, 16_000)


def make_line(unit: str, size: int) -> str:
    return unit * (size // len(unit.encode()) + 1)


def check_linear(costs: list[float]) -> None:
    """Twice the size, at most 2.3 times the cost: a constant part makes it less, a square four times."""
    small, medium, large = costs
    assert large - medium <= 2.3 * (medium - small) + 0.05 * large, costs


# ---- Python ----


def count_calls(work: Callable[[], Any]) -> int:
    """Calls of Python's and C's functions while something is done."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


class Trickle(io.BytesIO):
    """Gives little in one read, as a pipe may."""

    def read1(self, size: int | None = -1) -> bytes:
        return super().read1(min(size or 0, 1 << 12))


@pytest.mark.parametrize("format", ["txt", "jsonl", "auto"])
@pytest.mark.parametrize("unit", UNITS)
def test_reading_calls_as_many_functions_as_there_is_text(unit, format):
    config = TextConfig()

    def run(data: bytes) -> None:
        damage = Damage()
        for block in read_blocks(Trickle(data), Origin("p", format), TextConfig(), damage):
            find_sentences(clean_documents(block, config, damage), config)

    costs = []
    for size in (50_000, 50_000, 100_000, 200_000):  # the first compiles and fills caches
        line = make_line(unit, size)
        data = (json.dumps({"text": line}) if format == "jsonl" else line).encode()
        costs.append(float(count_calls(partial(run, data))))
    check_linear(costs[1:])


@pytest.mark.parametrize("part", [b"x", b" ", b"a ", b"\n", b"\r"])
def test_lines_in_parts_of_a_byte_are_joined_first(part, monkeypatch):
    """Each part made a copy of the line so far."""
    copied: list[int] = []

    class Part(bytes):
        def __radd__(self, other: bytes) -> bytes:
            copied.append(len(other))
            return bytes(other) + bytes(self)

    def parts(size: int) -> Iterator[bytes]:
        return (Part(part) for _ in range(size))

    monkeypatch.setattr("albert_data.corpus.lines.long_documents.MAX_LINE", 256)
    costs = []
    for size in SIZES:
        copied.clear()
        list(cut_lines(parts(size)))
        costs.append(float(sum(copied)))
    check_linear(costs)


def test_the_white_space_before_stdin_is_not_held():
    """Each read made a copy of all of it."""
    data = b" \r\n" * 1_000_000 + b'{"text": "a"}'
    held: list[int] = []
    source: list[Any] = []

    class Noting(Trickle):
        def read1(self, size: int | None = -1) -> bytes:
            held.append(sys.getsizeof(source[0].pending) if source else 0)
            return super().read1(size)

    class Noted(blocks._Buffer):
        def _look_at_beginning(self) -> None:
            source.append(self)
            super()._look_at_beginning()

    Noted(Noting(data), Origin("p", "auto"), Damage(), 0, None)
    assert source[0].format == "jsonl"
    assert max(held) < 1 << 15


# ---- kernels ----


@pytest.mark.parametrize("unit", UNITS)
def test_kernels_read_as_many_bytes_as_there_are(unit):
    """Loads and stores of the kernels, run as plain Python."""
    costs = []
    with counted_kernels() as (counter, modules):
        for size in (500, 1_000, 2_000):
            raw = np.frombuffer(make_line(unit, size).replace("\r", "\n").encode(), np.uint8)
            counter.count = 0
            run_kernels(raw, modules)
            costs.append(float(counter.count))
    check_linear(costs)


@pytest.mark.parametrize("white", ["\n", "\t", "\x1f", "  ", "\u3000", "\n\u00a0", "\0"])
def test_a_run_of_white_space_between_words_is_read_once(white):
    costs = []
    with counted_kernels() as (counter, modules):
        for size in (1_000, 2_000, 4_000):
            raw = np.frombuffer(f"word{white * size}word".encode(), np.uint8)
            counter.count = 0
            modules["documents"].strip_lines(raw, np.zeros(0, np.int64), True)
            costs.append(float(counter.count))
    check_linear(costs)


def run_kernels(raw: np.ndarray, modules: dict[str, Any]) -> None:
    assert modules["valid_utf8"].check_all(raw, np.zeros(65, np.uint8))
    modules["line_ends"].has_breaks(raw, np.zeros(130, np.uint8))
    utf8, offsets, *_ = modules["documents"].strip_lines(raw, np.zeros(0, np.int64), True)
    source, begins, counts = make_rule("en")._replace(utf8=utf8), np.zeros(len(utf8), np.int64), np.zeros_like(offsets)
    segmented = Segmented(begins, begins.copy(), counts, np.zeros(len(counts), np.uint8))
    assert modules["segmenting"].segment_lines(source, offsets, segmented, 0) >= len(offsets) - 1
