"""Damage is counted by reason and the rest is kept; under --strict it is an error that names the place."""

from __future__ import annotations

import pytest
from corpus_fixtures import any_bytes, as_jsonl, block_sizes, read, small_sizes
from hypothesis import given
from hypothesis import strategies as st

from albert_data.errors import InputError


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
def test_each_damage_is_counted_once_or_named_with_its_byte(reason: str, format: str, data: bytes, at_byte: int):
    assert read(data, format)[1] == {reason: 1}
    with pytest.raises(InputError, match=rf"^p, byte {at_byte}: {reason.replace('_', ' ')}"):
        read(data, format, strict=True)


def test_a_json_line_that_is_too_long_is_counted_or_named():
    data = b'{"text": "a"}\n{"text": "' + b"y" * 500 + b'"}\n'
    with small_sizes(MAX_JSON_LINE=64):
        assert read(data, "jsonl", block_bytes=8) == ([b"a\n"], {"line_too_long": 1})
        with pytest.raises(InputError, match=r"^p, byte 14: line too long"):
            read(data, "jsonl", block_bytes=8, strict=True)


@pytest.mark.parametrize("text", ["", " \n\t", "\r\n"])
def test_documents_without_text_are_counted_but_no_damage_under_strict(text: str):
    assert read(as_jsonl([text]), "jsonl", strict=True) == ([], {"empty_document": 1})


def test_long_documents_are_no_damage_under_strict():
    with small_sizes():
        _, counts = read(as_jsonl(["a line of text\n" * 6]), "jsonl", strict=True)
    assert counts == {"long_document_cut": 1}


@given(
    any_bytes.map(lambda data: data.decode(errors="ignore").encode()), st.sampled_from([b"\xff", b"\xe4 "]), block_sizes
)
def test_strict_names_the_exact_byte_whatever_comes_before(before: bytes, bad: bytes, block_bytes: int):
    with small_sizes(), pytest.raises(InputError, match=f"^p, byte {len(before)}: invalid utf8: byte 0x{bad[0]:x}"):
        read(before + bad + b"\nmore", block_bytes=block_bytes, strict=True)
