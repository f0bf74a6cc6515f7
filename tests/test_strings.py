"""The strings of a list are copied as the UTF-8 that Python makes of each."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from albert_data.data import slice_sentences
from albert_data.tokenizer.buffers import encode_strings

SIZE = 48

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def read(texts: list[str]) -> list[bytes]:
    """The UTF-8 of each string, read SIZE characters at a time."""
    found = []
    for part in encode_strings(texts, SIZE):
        assert len(part.begins) == 1 or len(part.utf8.tobytes().decode()) <= SIZE
        found += slice_sentences(*part)
    return found


@given(st.lists(texts | texts.map(lambda text: text * 9), max_size=20))
@example([])
@example([""])
@example(["a" * SIZE])  # the capacity, one character less and one more
@example(["a" * (SIZE - 1), "b"])
@example(["a" * SIZE, "b"])
@example(["a" * (SIZE + 1), "b", "", "c" * 1000, "中" * 1000])
def test_strings_are_read_as_they_are_encoded(texts):
    assert read(texts) == [text.encode() for text in texts]


class Name(str):
    """A string of a subclass whose methods lie."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b""

    def __len__(self) -> int:
        return 1


def test_a_string_of_a_subclass_is_read():
    assert read([Name("Ishmael"), Name("é"), Name("a" * 1000)]) == [b"Ishmael", "é".encode(), b"a" * 1000]
    with pytest.raises(UnicodeEncodeError):
        read([Name("half \ud83d")])


@pytest.mark.parametrize("before", [0, 1, 30])
def test_what_has_no_utf8_is_refused(before):
    for wrong in (None, b"bytes", 7, ["a list"], object()):
        with pytest.raises(TypeError, match="requires a 'str' object"):
            read(["text"] * before + [wrong, "text"])
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        read(["text"] * before + ["half \ud83d", "text"])
