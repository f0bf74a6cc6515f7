"""Valid UTF-8 against Python's own decoder."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from albert_data.corpus.lines.valid_utf8 import is_utf8

# The first and last characters of each length, and beside what may not be.
EDGES = (
    "\0\x7f\x80\u07ff\u0800\u0fff\u1000\ucfff\ud000\ud7ff\ue000\uffff\U00010000\U0003ffff\U00040000\U000fffff\U0010ffff"
)
SECOND = (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF)
texts = st.text(st.sampled_from(EDGES) | st.characters(exclude_categories=("Cs",)), max_size=40)


def check(data: bytes) -> None:
    try:
        data.decode()
        expected = True
    except UnicodeDecodeError:
        expected = False
    assert is_utf8(np.frombuffer(data, np.uint8)) == expected


@given(texts, st.integers(0, 70))
def test_text_is_valid(text: str, shift: int):
    data = b"x" * shift + text.encode()
    check(data)
    assert is_utf8(np.frombuffer(data, np.uint8))


@given(texts, st.integers(0, 70), st.data())
def test_a_changed_lost_or_added_byte_is_noticed(text: str, shift: int, data: st.DataObject):
    valid = b"x" * shift + text.encode()
    at = data.draw(st.integers(0, len(valid)))
    check(valid[:at])
    check(valid[at:])
    check(valid[:at] + valid[at + 1 :])
    check(valid[:at] + data.draw(st.binary(min_size=1, max_size=2)) + valid[at + data.draw(st.integers(0, 1)) :])


def test_every_first_and_second_byte_at_every_place():
    for first in range(0x80, 0x100):
        for second in SECOND:
            for rest in (b"", b"\x80", b"\x80\x80", b"\xbf\xbf\xbf"):
                for shift in (0, 60, 61, 62, 63, 64):
                    check(b"x" * shift + bytes((first, second)) + rest + b"." * 4)
                    check(b"x" * shift + bytes((first, second)) + rest)
