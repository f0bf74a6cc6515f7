"""Damage is counted by reason and the rest is kept; under --strict it is an error that names the place."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import references
from corpus_fixtures import any_bytes, as_jsonl, block_sizes, read, small_sizes
from hypothesis import given
from hypothesis import strategies as st

from albert_data.conditions import EXCLUSIONS
from albert_data.corpus.damage import REASONS
from albert_data.corpus.inputs import find_inputs, open_input
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


def test_every_reason_of_reading_has_a_test_here():
    tested = {"invalid_utf8", "lone_surrogate", "malformed_json", "missing_field", "field_not_text"}
    tested |= {"unknown_language", "line_too_long", "damaged_compression", "empty_document", "long_document_cut"}
    assert tested | {"no_tokens"} | {
        "damaged_table",
        "missing_part",
        "malformed_row",
        "malformed_article",
        "row_too_long",
        "stray_quote",
        *EXCLUSIONS,
    } == set(REASONS)  # the last are tested elsewhere


@given(
    any_bytes.map(lambda data: data.decode(errors="ignore").encode()), st.sampled_from([b"\xff", b"\xe4 "]), block_sizes
)
def test_strict_names_the_exact_byte_whatever_comes_before(before: bytes, bad: bytes, block_bytes: int):
    with small_sizes(), pytest.raises(InputError, match=f"^p, byte {len(before)}: invalid utf8: byte 0x{bad[0]:x}"):
        read(before + bad + b"\nmore", block_bytes=block_bytes, strict=True)


def noise(size: int) -> bytes:
    """Documents that hardly compress."""
    numbers = np.random.default_rng(0).integers(0, 2**62, size // 20)
    return b"".join(b"%x\n\n" % number for number in numbers.tolist())[:size]


def write_truncated(tmp_path: Path, text: bytes, ending: str) -> Path:
    compressed = gzip.compress(text) if ending == "gz" else pyarrow.compress(text, "zstd", asbytes=True)
    path = tmp_path / f"a.txt.{ending}"
    path.write_bytes(compressed[: len(compressed) * 3 // 4])
    return path


@pytest.mark.parametrize(("size", "ending"), [(2_000, "gz"), (200_000, "gz"), (2_000_000, "gz"), (600_000, "zst")])
def test_what_precedes_the_break_of_a_compressed_file_is_kept(tmp_path: Path, size: int, ending: str):
    text = noise(size)
    path = write_truncated(tmp_path, text, ending)
    if ending == "gz":
        kept = zlib.decompressobj(wbits=31).decompress(path.read_bytes())
    else:  # zstd gives whole frames of 128 KiB
        kept = text[: size // 2 >> 17 << 17]
    with open_input(*find_inputs([str(path)]))[0] as stream:
        found, counts = read(stream)
    assert counts == {"damaged_compression": 1}
    whole = references.read_txt(kept)[:-1]
    assert found[: len(whole)] == whole
    assert b"".join(references.read_txt(text)).startswith(b"".join(found)[:-1])


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_broken_compressed_file_is_named_under_strict(tmp_path: Path, ending: str):
    path = write_truncated(tmp_path, noise(2_000), ending)
    with open_input(*find_inputs([str(path)]))[0] as stream, pytest.raises(InputError) as caught:
        read(stream, strict=True)
    at_byte = len(zlib.decompressobj(wbits=31).decompress(path.read_bytes())) if ending == "gz" else 0
    assert str(caught.value).startswith(f"p, byte {at_byte}: damaged compression: ")


GZIPPED = gzip.compress(b"a\n", mtime=0)  # the time would make other test ids in each xdist worker


@pytest.mark.parametrize("data", [b"no gzip at all", GZIPPED[:-1] + b"?", GZIPPED + b"??"])
def test_any_damage_of_a_gzip_stream_is_counted(tmp_path: Path, data: bytes):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(data)
    with open_input(*find_inputs([str(path)]))[0] as stream:
        assert read(stream)[1] == {"damaged_compression": 1}
