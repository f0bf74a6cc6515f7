"""The strings of a list are copied as the UTF-8 that Python makes of each."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from albert_data.data import slice_sentences
from albert_data.tokenizer import strings
from albert_data.tokenizer.strings import read_strings

SIZE, PADDING = 48, 16

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def read(texts: list[str]) -> list[bytes]:
    """The UTF-8 of each string, read SIZE bytes at a time."""
    found = []
    for part in read_strings(texts, len(texts), SIZE, PADDING):
        assert (part.begins[0], part.ends[-1] + PADDING) == (0, len(part.utf8))
        assert part.begins[1:].tolist() == part.ends[:-1].tolist()
        found += slice_sentences(*part)
    return found


@given(st.lists(texts | texts.map(lambda text: text * 9), max_size=20))
@example([])
@example([""])
@example(["a" * SIZE])  # the capacity, one byte less and one more
@example(["a" * (SIZE - 1), "b"])
@example(["a" * SIZE, "b"])
@example(["a" * (SIZE + 1), "b", "", "c" * 1000, "中" * 1000])
def test_strings_are_read_as_they_are_encoded(texts):
    assert read(texts) == [text.encode() for text in texts]


def test_more_strings_are_read_than_one_slice_may_hold(monkeypatch):
    monkeypatch.setattr(strings, "_SLICE_STRINGS", 3)
    assert read(list("abcdefgh")) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]


class Name(str):
    """A string of a subclass whose `encode` ignores everything."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b""


class Lazy:
    """An object that claims to be a string."""

    __class__ = str

    def encode(self) -> bytes:
        return b"text"


def test_a_string_of_a_subclass_is_read_and_an_impostor_refused():
    assert read([Name("Ishmael"), Name("é"), Name("a" * 1000)]) == [b"Ishmael", "é".encode(), b"a" * 1000]
    with pytest.raises(UnicodeEncodeError):
        read([Name("half \ud83d")])
    with pytest.raises(TypeError):
        read([Lazy()])


@pytest.mark.parametrize("before", [0, 1, 30])
def test_what_has_no_utf8_is_named(before):
    for wrong in (None, b"bytes", 7, ["a list"], object()):
        with pytest.raises(TypeError, match="which is no string"):
            read(["text"] * before + [wrong, "text"])
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        read(["text"] * before + ["half \ud83d", "text"])


def test_a_list_that_shrinks_meanwhile_is_an_error():
    texts = ["text"] * 30
    slices = read_strings(texts, len(texts), SIZE, PADDING)
    next(slices)
    del texts[5:]
    with pytest.raises(IndexError):
        next(slices)
