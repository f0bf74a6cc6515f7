"""Characters and hashes of bytes in kernels, against Python's own codec and published values of FNV-1a."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from callable_helpers import around
from hypothesis import example, given
from hypothesis import strategies as st

from albert_data.kernels import load_u64, pointer
from albert_data.kernels.fnv import FNV_BASIS, add_byte, hash_bytes
from albert_data.text.utf8 import decode_three, find_width, read_character, step_back, write_character

EDGES = "\0\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"  # the first and last codes of each width


@numba.njit
def walk(utf8: np.ndarray, size: int, codes: np.ndarray, positions: np.ndarray) -> int:
    position = count = 0
    while position < size:
        positions[count] = position
        codes[count], after = read_character(pointer(utf8), position)
        if find_width(utf8[position]) != after - position or step_back(pointer(utf8), after) != position:
            return -1
        if after - position == 3 and decode_three(load_u64(pointer(utf8), position)) != codes[count]:
            return -1
        position, count = after, count + 1
    return count


@numba.njit
def write(codes: np.ndarray, utf8: np.ndarray) -> int:
    position = 0
    for code in codes:
        position = write_character(pointer(utf8), position, code)
    return position


@given(st.text(st.sampled_from(EDGES) | st.characters(exclude_categories=("Cs",)), max_size=40))
@example(EDGES)
def test_characters_are_read_as_python_reads_them(text):
    data = text.encode()
    codes, positions = np.zeros(len(data), np.int64), np.zeros(len(data), np.int64)
    count = walk(np.frombuffer(data + bytes(8), np.uint8), len(data), codes, positions)
    assert codes[:count].tolist() == list(map(ord, text))
    assert positions[:count].tolist() == [len(text[:i].encode()) for i in range(len(text))]


@given(st.text(st.sampled_from(EDGES[:8]) | st.characters(max_codepoint=0xFFFF, exclude_categories=("Cs",))))
@example(EDGES[:8])
def test_characters_of_the_basic_plane_are_written_as_python_writes_them(text):
    utf8 = np.zeros(3 * len(text), np.uint8)
    size = write(np.array([ord(character) for character in text], np.int64), utf8)
    assert utf8[:size].tobytes() == text.encode()


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)]
)
def test_hashes_are_those_of_fnv_1a(data, expected):
    state, add = FNV_BASIS, around(add_byte)
    for byte in data:
        state = np.uint64(add(state, np.uint8(byte)))
    assert int(state) == hash_bytes(data) == expected
