"""Text is normalised as Google's ALBERT code does it, and as plain Python with unicodedata does it."""

from __future__ import annotations

import sys
import unicodedata

import numpy as np
import pytest
from albert_reference import normalise_slowly
from hypothesis import example, given
from hypothesis import strategies as st

from albert_data.data import slice_sentences
from albert_data.text.unicode_tables import category
from albert_data.tokenizer.buffers import Sentences
from albert_data.tokenizer.sentencepiece.albert import (
    CASED,
    IGNORABLE,
    digits,
    make_table,
    normalise,
    normalise_text,
)

# Characters that Python's tables and ours both have.
KNOWN = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
KNOWN = [character for character in KNOWN if "Cn" not in (category(character), unicodedata.category(character))]
ALL_KNOWN = frozenset(KNOWN)
ODD = "ΣΣΣσς.'’`aA \u0301\u00ad\u0345ʰİßﬁﷺ¨Å한각ǅ1²½\t\u3000\xa0\x1c\x85漢豈𝚺𐐀🄰Ϲ\"·"


@given(st.text(st.sampled_from(ODD) | st.sampled_from(KNOWN), max_size=40))
@example("``a''' '' `'`` ```")
@example("  a\u00a0\u00a0 b \u00a8 \u00a8")
@example("ΑΣ' ΑΣ.Α ΑΣ Σ Σ. .Σ ΑΣΣ")
def test_text_is_what_plain_python_makes_of_it(text):
    assert normalise_text(text) == normalise_slowly(text)


def as_sentences(texts: list[str]) -> Sentences:
    utf8 = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in utf8])
    return Sentences(np.frombuffer(b"".join(utf8), np.uint8), ends - [len(text) for text in utf8], ends)


def as_texts(found: Sentences) -> list[str]:
    return [part.decode() for part in slice_sentences(found.utf8, found.begins, found.ends)]


def test_each_character_becomes_what_python_makes_of_it():
    """Alone, behind a letter and before a letter; and the sigma behind it shows whether it is cased."""
    for begin in range(0, len(KNOWN), 1000):
        texts = [form.format(c) for c in KNOWN[begin : begin + 1000] for form in ("{}", "A{}Σ", "{}Σ", "ΑΣ{}", "ΑΣ{}a")]
        assert as_texts(normalise(as_sentences(texts))) == [normalise_slowly(text) for text in texts]


def test_digits_are_those_of_python():
    assert {chr(code) for code in digits()} & set(KNOWN) == {c for c in KNOWN if c.isdigit()}


def test_lower_case_keeps_what_decides_about_a_sigma():
    """The kernel looks at characters that are in lower case already."""
    entries = make_table().entries
    for character in KNOWN:
        for part in unicodedata.normalize("NFKD", character):
            if not unicodedata.combining(part):
                flags = {int(entries[ord(c)]) & (CASED | IGNORABLE) for c in (part, *part.lower())}
                assert len(flags) == 1, hex(ord(part))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_slices_change_nothing(size):
    texts = ["The Cat", "", "  ", "ﷺ" * 9, "A '' b", "Σ"]
    sentences = as_sentences(texts)
    shown = [text for chosen in sentences.slices(size) for text in as_texts(normalise(sentences.part(chosen)))]
    assert shown == [normalise_slowly(text) for text in texts]
