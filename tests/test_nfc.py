"""Text in NFC, beside Python's own tables."""

from __future__ import annotations

import sys
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_data.data import DocumentColumns, Lines
from albert_data.text.nfc import compose, compose_lines
from albert_data.text.unicode_tables import category

# In Python's tables and in ours.
ASSIGNED = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
ASSIGNED = [one for one in ASSIGNED if category(one) != "Cn"]
# What composes, decomposes or is put in order.
MOVING = [
    one
    for one in ASSIGNED
    if unicodedata.combining(one) or unicodedata.normalize("NFD", one) != one or "\u1100" <= one < "\u1200"
]


def nfc(text: str) -> str:
    return compose(np.frombuffer(text.encode(), np.uint8)).tobytes().decode()


def test_every_character_alone_and_after_others_is_as_python_has_it():
    text = "\n".join(f"{one}|e{one}|\u1112\u1161{one}\u0323\u0301" for one in ASSIGNED)
    assert nfc(text).split("\n") == unicodedata.normalize("NFC", text).split("\n")


@given(st.lists(st.sampled_from(MOVING) | st.sampled_from("aeo\n가") | st.just("x" * 63), max_size=40).map("".join))
def test_text_is_as_python_has_it(text):
    assert nfc(text) == unicodedata.normalize("NFC", text)
    assert nfc(unicodedata.normalize("NFD", text)) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("text", ["", "a", "é 漢字 한국어 ไทย नमस्ते " * 9, "ẹ́"])
def test_text_in_nfc_is_the_same_array(text):
    data = np.frombuffer(text.encode(), np.uint8)
    assert compose(data) is data


def test_marks_without_end_take_linear_time():
    text = "a" + "\u0301\u0323" * 1_000_000  # Python takes hours
    assert nfc(text) == "ạ" + "\u0323" * 999_999 + "\u0301" * 1_000_000


def test_documents_keep_their_lines():
    texts = ["e\u0301\nK\n", "x\n\u00e9\n"]
    utf8 = np.frombuffer("".join(texts).encode(), np.uint8)
    offsets = np.append(0, np.flatnonzero(utf8 == 10) + 1)
    columns = DocumentColumns(np.zeros(2, np.uint64))
    lines = Lines(utf8=utf8, line_offsets=offsets, document_offsets=np.array([0, 2, 4]), columns=columns)
    composed = compose_lines(lines)
    found = [composed.utf8[begin:end].tobytes().decode() for begin, end in pairwise(composed.line_offsets.tolist())]
    assert found == ["\u00e9\n", "K\n", "x\n", "\u00e9\n"]
