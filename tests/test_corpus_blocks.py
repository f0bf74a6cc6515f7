"""Whatever the bytes and however they are cut into blocks, the same documents, sentences and keys come out."""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np
import pytest
import references
from corpus_fixtures import MAX_LINE, any_bytes, any_json_lines, as_jsonl, block_sizes, cut_all, read, small_sizes
from hypothesis import example, given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from albert_data.clean.documents import clean_documents, strip_lines
from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block, Origin, read_blocks
from albert_data.corpus.damage import Damage
from albert_data.corpus.lines.line_ends import break_lines
from albert_data.data import Lines, Text, slice_sentences
from albert_data.errors import InputError
from albert_data.sentences.text import find_sentences

# ---- any bytes, any blocks ----


@given(any_bytes, block_sizes)
@example(b"words " * 40 + b"\xe4", 32)
def test_text_of_any_bytes_reads_as_the_reference_does_however_it_is_cut_into_blocks(data, block_bytes):
    whole, counts = read(data)
    assert whole == references.read_txt(data)
    with small_sizes():
        found, of_blocks = read(data, block_bytes=block_bytes)
    assert found == cut_all(whole)
    assert of_blocks["invalid_utf8"] == counts["invalid_utf8"]


@given(any_json_lines, block_sizes)
def test_json_lines_of_any_kind_read_as_the_reference_does_however_they_are_cut(data, block_bytes):
    whole, counts = read(data, "jsonl")
    assert whole == references.read_jsonl(data)
    with small_sizes():
        found, of_blocks = read(data, "jsonl", block_bytes=block_bytes)
    assert found == cut_all(whole)
    assert {**of_blocks, "long_document_cut": 0} == {**counts, "long_document_cut": 0}


any_text = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\r \t中é"), max_size=80)
giant_text = st.lists(st.sampled_from(["word ", "x" * 20, "\n", "中文字"]), min_size=40, max_size=120).map("".join)


@given(any_text | giant_text, st.booleans())
def test_one_document_is_cut_alike_in_text_and_in_json_lines(text, ensure_ascii):
    joined = "\n".join(line for line in text.split("\n") if not references.is_blank(line)).lstrip("\ufeff")
    with small_sizes():
        from_jsonl = read(as_jsonl([joined], ensure_ascii=ensure_ascii), "jsonl")[0]
        assert read(joined.encode())[0] == from_jsonl
    assert from_jsonl == cut_all([references.canonical(joined)] if joined else [])


class Trickle(io.BytesIO):
    """Gives one byte a read, as a pipe may."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(1 if size else 0)

    read1 = read


@pytest.mark.parametrize(
    "data", ["\ufeffein W\u00f6rt\n\nzwei\n", '\ufeff\n {"text": "a"}\n\n{"text": "b"}', '\n{"text": "a"}', "\n\n", ""]
)
def test_a_stream_that_gives_a_byte_at_a_time_reads_alike(data):
    encoded = data.encode()
    for format in ("txt", "jsonl", "auto"):
        assert read(Trickle(encoded), format) == read(encoded, format)
    assert read(encoded, "auto") == read(encoded, "jsonl" if "{" in data else "txt")  # told by the first character


# ---- literal corners ----


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", []),
        (b" \t\r\n\x0b\x0c", []),
        (b"a", [b"a\n"]),
        (b"a\nb\n", [b"a\nb\n"]),
        (b"a\n\nb", [b"a\n", b"b\n"]),
        (b"a\r\n\r\nb\r\n", [b"a\n", b"b\n"]),
        (b"a\n \t\x0b\x0c\r\nb", [b"a\n", b"b\n"]),
        (b" a \n\n\n\n\t b", [b"a\n", b"b\n"]),
        (b"a\rb\r\rc\n", [b"a\nb\n", b"c\n"]),
        (b"a\x00b\n\x00\n", [b"a\x00b\n\x00\n"]),
        (b"\xef\xbb\xbfa\n", [b"a\n"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\xef\xbb\xbfa", [b"\xef\xbb\xbfa\n"]),
        (b"a\n\n\xef\xbb\xbfb", [b"a\n", b"\xef\xbb\xbfb\n"]),
        (b"\xffa\xe4\n\nb", ["\ufffda\ufffd\n".encode(), b"b\n"]),
        ("\u3000\n\u00a0\n".encode(), []),
        ("a\n\u3000\u00a0\u2009\x1c\nb".encode(), [b"a\n", b"b\n"]),
        (
            "\u3000a\t\u00a0 b\u3001\u3002 \u202f\u205f\u1680c  d\u200b\x1f".encode(),
            ["a b\u3001\u3002 c d\u200b\n".encode()],
        ),
    ],
)
def test_the_corners_of_text(data, expected):
    assert read(data)[0] == expected


@given(any_bytes.filter(lambda data: not data.startswith(b"\xef\xbb\xbf")), st.integers(0, 60), block_sizes)
def test_ranges_that_begin_after_blank_lines_read_as_the_whole(data, cut, block_bytes):
    separator = data.find(b"\n\n", cut) + 2
    if separator < 2:
        return
    damage, found, broken = Damage(), [], break_lines(data)
    for start, length in ((0, separator), (separator, len(data) - separator)):
        stream = io.BytesIO(data)
        stream.seek(start)
        ranges = {"start": start, "length": length, "block_bytes": lambda position: block_bytes}
        for block in read_blocks(stream, Origin("p", "txt"), TextConfig(), damage, **ranges):
            assert broken[block.start :].startswith(block.data)
            found.append(block.data)
    assert b"".join(found) == broken


def test_a_range_away_from_the_beginning_keeps_a_byte_order_mark():
    stream = io.BytesIO(b"\xef\xbb\xbfb")
    (block,) = read_blocks(stream, Origin("p", "txt"), TextConfig(), Damage(), start=3, length=4)
    assert block.data == b"\xef\xbb\xbfb"


def test_an_empty_block_has_no_lines():
    nothing = np.zeros(0, np.int64)
    for ends_at_blank in (False, True):
        utf8, line_offsets, document_offsets, *_ = strip_lines(np.zeros(0, np.uint8), nothing, ends_at_blank)
        assert (utf8.tolist(), line_offsets.tolist(), document_offsets.tolist()) == ([], [0], [0])


# ---- long lines and documents ----


def test_a_line_is_cut_at_white_space_or_between_characters_but_not_for_white_space_at_its_end():
    with small_sizes():
        assert read(b"0123456789 12345 tail")[0] == [b"0123456789\n12345 tail\n"]
        assert read("中文字中文字中文字".encode())[0] == ["中文字中文\n字中文字\n".encode()]
        line = b"0123456 89abcdef"
        assert len(line) == MAX_LINE
        for ending in (b"\n", b"\r\n", b" \n", b""):
            assert read(line + ending)[0] == [line + b"\n"]


def test_each_cut_of_a_long_document_is_counted_alike_in_every_format_and_size():
    for document in (b"a line of text\n" * 6, b"a line of text\n" * 60):
        with small_sizes():
            found, from_text = read(document)
            from_jsonl = read(as_jsonl([document.decode()]), "jsonl")[1]
        assert from_jsonl["long_document_cut"] == len(found) - 1
        assert from_text == from_jsonl


@pytest.mark.parametrize("block_bytes", [8, 65, 200])
@pytest.mark.parametrize("after", [[], [b""], [b'{"text": "b"}']])
@pytest.mark.parametrize("line_bytes", [62, 70, 300])
def test_a_json_line_is_too_long_or_not_whatever_the_blocks(line_bytes, after, block_bytes):
    line = b'{"text": "' + b"y" * (line_bytes - 12) + b'"}'
    is_kept = line_bytes <= 64
    with small_sizes(MAX_JSON_LINE=64):
        found, counts = read(b"\n".join([b'{"text": "a"}', line, *after]), "jsonl", block_bytes=block_bytes)
        if not is_kept:
            with pytest.raises(InputError, match=r"^p, byte 14: line too long"):
                read(b'{"text": "a"}\n' + line, "jsonl", block_bytes=block_bytes, strict=True)
    assert counts["line_too_long"] == (not is_kept)
    assert [document[:1] for document in found[:: max(1, len(found) - 1)]] == (
        [b"a", b"b"] if after and after[0] else [b"a", b"y"] if is_kept else [b"a"]
    )


# ---- damage: counted by reason, or under strict an error that names the place ----


@pytest.mark.parametrize(
    ("reason", "format", "data", "at_byte"),
    [
        ("invalid_utf8", "txt", b"good\n\nb\xc3\xa9\xff\xff\n\n", 9),
        ("invalid_utf8", "txt", b"\xef\xbb\xbfab\xff\n", 5),
        ("invalid_utf8", "txt", b"cut short \xe4\xb8", 10),
        ("invalid_utf8", "jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', 24),
        ("lone_surrogate", "jsonl", b'{"text": "a"}\n{"text": "\\ud800"}\n', 14),
        ("malformed_json", "jsonl", b'{"text": "a"}\n{"text": \n', 14),
        ("malformed_json", "jsonl", b"[" * 100_000, 0),
        ("malformed_json", "jsonl", b'{"text": "a"}\n["a"]\n', 14),
        ("missing_field", "jsonl", b'{"text": "a"}\n\n{"body": "b"}', 15),
        ("field_not_text", "jsonl", b'{"text": null}', 0),
    ],
)
def test_each_damage_is_counted_once_or_named_with_its_byte(reason, format, data, at_byte):
    assert read(data, format)[1] == {reason: 1}
    with pytest.raises(InputError, match=rf"^p, byte {at_byte}: {reason.replace('_', ' ')}"):
        read(data, format, strict=True)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        *((text, {"empty_document": 1}) for text in ("", " \n\t", "\r\n", "\u2028\u0085 \r\n\u2029")),
        ("a line of text\n" * 6, {"long_document_cut": 1}),
    ],
)
def test_documents_without_text_and_long_ones_are_counted_but_no_damage_under_strict(text, counts):
    with small_sizes():
        assert read(as_jsonl([text]), "jsonl", strict=True)[1] == counts


@given(
    any_bytes.map(lambda data: data.decode(errors="ignore").encode()), st.sampled_from([b"\xff", b"\xe4 "]), block_sizes
)
def test_strict_names_the_exact_byte_whatever_comes_before(before, bad, block_bytes):
    with small_sizes(), pytest.raises(InputError, match=f"^p, byte {len(before)}: invalid utf8: byte 0x{bad[0]:x}"):
        read(before + bad + b"\nmore", block_bytes=block_bytes, strict=True)


# ---- sentences and keys of the documents ----

LANGUAGES = ("en", "de", "fr", "ru", "zh", "ja", "hi", "ar", "th", "my", "und")
ODD = ".!?…。！？।؟:;,\"'()“”»«[]-—0 19aBCMr."
ODD += "\u00a0\u3000\u2028\u0085\u200b\ufeff\x1c\x00中文é😀\u0301\t\r"

# A byte order mark at the very beginning is dropped before a block is made.
texts = st.text(st.sampled_from(ODD) | st.characters(exclude_categories=["Cs"]), max_size=60).map(
    lambda text: text.lstrip("\ufeff")
)


def read_lines(text: str | bytes, format: str = "txt") -> Lines:
    data = text.encode() if isinstance(text, str) else text
    blocks = list(read_blocks(io.BytesIO(data), Origin("p", format), TextConfig(), Damage()))
    block = blocks[0] if blocks else Block(b"", Origin("p", format))
    assert len(blocks) <= 1
    return clean_documents(block, TextConfig(), Damage())


def segment(text: str, language: str = "en", sentences: str = "prose") -> list[list[str]]:
    """The sentences of each document, sliced out by the offsets."""
    lines = read_lines(text)
    found = find_sentences(lines, TextConfig(language=language, sentences=sentences))
    check_text(found, lines)
    sliced = slice_sentences(found.utf8, found.sentence_begins, found.sentence_ends)
    all_sentences = [sentence.decode() for sentence in sliced]
    return [all_sentences[begin:end] for begin, end in pairwise(found.document_offsets.tolist())]


def check_text(text: Text, lines: Lines) -> None:
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


@given(texts, st.sampled_from(LANGUAGES))
@example("Vitamin C\u3000. Vitamin D is another.", "en")
def test_sentences_lose_nothing_but_white_space_and_never_cross_a_line(text, language):
    for document, canonical in zip(segment(text, language), references.read_txt(text.encode()), strict=True):
        assert all(sentence == " ".join(sentence.split()) for sentence in document)
        left = list(document)
        for line in canonical.decode().split("\n")[:-1]:
            joined = ""
            while strip_all(joined) != strip_all(line):
                joined += left.pop(0)
        assert left == []


def test_a_long_line_without_spaces_is_segmented_as_its_parts():
    sentences = [f"第{'一二三四五六七八九'[i % 9] * (1 + i % 40)}句话写在这里。" for i in range(3000)]
    assert segment("".join(sentences), "zh") == segment("\n".join(sentences), "zh") == [sentences]
    closing = ["他说：“" + "好" * 250 + "。”", "然后" * 120 + "！？」", "她走了。"]  # no part begins with what closes
    assert segment("".join(closing), "zh") == [closing]


@given(texts)
def test_lines_gives_the_lines(text):
    expected = [document.decode().split("\n")[:-1] for document in references.read_txt(text.encode())]
    assert segment(text, sentences="lines") == expected


# ---- keys ----


def test_a_key_is_the_xxh3_of_the_canonical_text():
    text = b"  First line\r\n\tSecond \xe4\xb8\xad line  \n\n"
    (key,) = read_lines(text).document_keys.tolist()
    assert key == xxh3_64_intdigest("First line\nSecond 中 line\n".encode())
    assert key == 0x41BD4C5389510118
    assert xxh3_64_intdigest(b"") == 0x2D06800538D394C2  # with seed 0, by the authors of XXH3
