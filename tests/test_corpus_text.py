"""Sentences are all of the text but its white space; their bytes are counted right; keys are the text's."""

from __future__ import annotations

import io
import json
from itertools import chain, pairwise

import numpy as np
import pytest
import references
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block, Origin, read_blocks
from albert_data.corpus.damage import Damage
from albert_data.corpus.documents import Lines, read_documents
from albert_data.sentences.text import Text, make_text, slice_sentences

LANGUAGES = ("en", "de", "fr", "ru", "zh", "ja", "hi", "ar", "th", "my", "und")
ODD = ".!?…。！？।؟:;,\"'()“”»«[]-—0 19aBCMr."
ODD += "\u00a0\u3000\u2028\u0085\u200b\ufeff\x1c\x00中文é😀\u0301\t\r"

# A byte order mark at the very beginning is dropped before a block is made.
texts = st.text(st.sampled_from(ODD) | st.characters(exclude_categories=["Cs"]), max_size=60).map(
    lambda text: text.lstrip("\ufeff")
)


def read_lines(text: str | bytes, format: str = "txt") -> Lines:
    data = text.encode() if isinstance(text, str) else text
    blocks = list(read_blocks(io.BytesIO(data), Origin("p", format), Damage()))
    block = blocks[0] if blocks else Block(data=b"", format=format, path="p", start=0)
    assert len(blocks) <= 1
    return read_documents(block, TextConfig(), Damage())


def segment(text: str, language: str = "en", sentences: str = "prose") -> list[list[str]]:
    """The sentences of each document, sliced out by the offsets."""
    lines = read_lines(text)
    found = make_text(lines, TextConfig(language=language, sentences=sentences))
    check(found, lines)
    sliced = slice_sentences(found.utf8, found.sentence_begins, found.sentence_ends)
    all_sentences = [sentence.decode() for sentence in sliced]
    return [all_sentences[begin:end] for begin, end in pairwise(found.document_offsets.tolist())]


def check(text: Text, lines: Lines) -> None:
    """What is true of every Text."""
    assert text.utf8.dtype == np.uint8
    assert text.sentence_begins.dtype == text.sentence_ends.dtype == text.document_offsets.dtype == np.int64
    assert (text.sentence_begins < text.sentence_ends).all()
    assert (text.sentence_ends[:-1] <= text.sentence_begins[1:]).all()
    assert (text.document_offsets[0], text.document_offsets[-1]) == (0, len(text.sentence_begins))
    assert (np.diff(text.document_offsets) > 0).all()
    assert text.document_keys.tolist() == lines.document_keys.tolist()
    assert len(text.document_offsets) == len(text.document_keys) + 1


def strip_all(text: str) -> str:
    """The text without white space."""
    return "".join(text.split())


# ---- prose ----


@pytest.mark.parametrize("language", LANGUAGES)
@given(text=texts)
def test_segmentation_loses_nothing_but_white_space(language: str, text: str):
    documents = segment(text, language)
    assert strip_all("".join(chain.from_iterable(documents))) == strip_all(text)


@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\u2009", "\u0085"])
def test_a_wide_space_between_a_letter_and_its_full_stop_is_no_harm(space: str):
    """Every language's rules look back from a full stop for an initial, as in J. Smith."""
    text = f"Vitamin C{space}. Vitamin D is another."
    assert strip_all("".join(chain.from_iterable(segment(text)))) == strip_all(text)


@given(texts)
def test_sentences_are_stripped_and_never_cross_a_line(text: str):
    for document, canonical in zip(segment(text), references.read_txt(text.encode()), strict=True):
        assert all(sentence == " ".join(sentence.split()) for sentence in document)
        lines = canonical.decode().split("\n")[:-1]
        left = list(document)
        for line in lines:
            joined = ""
            while strip_all(joined) != strip_all(line):
                joined += left.pop(0)
        assert left == []


def test_english_prose_is_cut_after_its_sentences():
    text = "Mr. Smith went home. It was 5 p.m. by then! Was it?\nA new line begins\n\nAnother text."
    assert segment(text) == [
        ["Mr. Smith went home.", "It was 5 p.m. by then!", "Was it?", "A new line begins"],
        ["Another text."],
    ]


def test_chinese_prose_is_cut_after_its_sentences():
    assert segment("今天天气很好。我们去看书！好吗？", "zh") == [["今天天气很好。", "我们去看书！", "好吗？"]]


def test_a_long_line_without_spaces_is_segmented_as_its_parts():
    sentences = [f"第{'一二三四五六七八九'[i % 9] * (1 + i % 40)}句话写在这里。" for i in range(3000)]
    line = "".join(sentences)
    assert segment(line, "zh") == [sentences]
    assert segment("\n".join(sentences), "zh") == [sentences]


def test_a_long_line_is_not_parted_before_what_closes_a_quotation():
    sentences = ["他说：“" + "好" * 250 + "。”", "然后" * 120 + "！？」", "她走了。"]
    assert segment("".join(sentences), "zh") == [sentences]


def test_a_text_without_documents_makes_no_sentences():
    assert segment("") == segment(" \n\r\n") == []


# ---- lines ----


@given(texts)
def test_lines_gives_the_lines(text: str):
    expected = [document.decode().split("\n")[:-1] for document in references.read_txt(text.encode())]
    assert segment(text, sentences="lines") == expected


def test_lines_keeps_a_line_of_several_sentences_whole():
    assert segment("One. Two.\n Three\r\n\n中。文", sentences="lines") == [["One. Two.", "Three"], ["中。文"]]


# ---- keys ----


def test_a_key_is_the_xxh3_of_the_canonical_text():
    text = b"  First line\r\n\tSecond \xe4\xb8\xad line  \n\n"
    (key,) = read_lines(text).document_keys.tolist()
    assert key == xxh3_64_intdigest("First line\nSecond 中 line\n".encode())
    assert key == 0x41BD4C5389510118
    assert xxh3_64_intdigest(b"") == 0x2D06800538D394C2  # with seed 0, by the authors of XXH3


@given(st.lists(texts.filter(strip_all), min_size=1, max_size=4))
def test_one_text_has_one_key_however_it_is_stored(documents: list[str]):
    bodies = ["\n".join(filter(strip_all, text.replace("\r", "").split("\n"))) for text in documents]
    keys = [references.document_key(references.canonical(body)) for body in bodies]
    stored = {
        "LF": ("\n\n".join(bodies), "txt"),
        "CRLF": ("\n\n".join(bodies).replace("\n", "\r\n"), "txt"),
        "wide": (" \t\n\n\n".join(body.replace("\n", " \n  ") for body in bodies), "txt"),
        "jsonl": ("\n".join(json.dumps({"text": body}) for body in bodies), "jsonl"),
        "jsonl, CRLF inside": ("\n".join(json.dumps({"text": body.replace("\n", "\r\n")}) for body in bodies), "jsonl"),
        "jsonl, raw": ("\n".join(json.dumps({"text": body}, ensure_ascii=False) for body in bodies), "jsonl"),
    }
    assert {name: read_lines(*how).document_keys.tolist() for name, how in stored.items()} == dict.fromkeys(
        stored, keys
    )


def test_texts_that_differ_have_keys_that_differ():
    keys = read_lines("a\n\nb\n\na\nb\n\nab\n\na").document_keys.tolist()
    assert len(set(keys)) == 4
    assert keys[0] == keys[4]
