"""Text of another encoding becomes the documents that its UTF-8 would be; what can't be decoded counts."""

from __future__ import annotations

import codecs
import gzip
import io
from collections import Counter
from pathlib import Path

import pytest
from corpus_fixtures import block_sizes, read, small_sizes
from hypothesis import given
from hypothesis import strategies as st
from test_corpus_formats import read_all

from albert_data.config import TextConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.corpus.lines import encodings
from albert_data.corpus.lines.encodings import transcode
from albert_data.corpus.streams import join_parts
from albert_data.errors import ConfigError, InputError

TEXT = "Füße über 中文。\n\nЗдравствуй, 😀!\r\nzwei\n"
MARKS = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE, "utf-32-le": codecs.BOM_UTF32_LE}


@given(
    st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\r \u2028中"), max_size=60),
    st.sampled_from(["utf-16-le", "utf-16-be", "utf-16", "utf-32", "gb18030", "utf-8-sig", "utf-7"]),
    block_sizes,
    st.integers(1, 9),
)
def test_any_text_is_read_as_its_utf8_would_be(text: str, encoding: str, block_bytes: int, chunk: int):
    text = text.lstrip("\ufeff")
    with pytest.MonkeyPatch.context() as patch, small_sizes():
        patch.setattr(encodings, "_CHUNK", chunk)
        parts = transcode(io.BufferedReader(io.BytesIO(text.encode(encoding))), encoding, "p", strict=True)
        found = read(join_parts(parts), block_bytes=block_bytes)
        assert found == read(text.encode(), block_bytes=block_bytes)


@pytest.mark.parametrize("encoding", MARKS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_byte_order_mark_names_the_encoding(tmp_path: Path, encoding: str, pack: type[bytes]):
    path = tmp_path / ("a.txt" if pack is bytes else "a.txt.gz")
    path.write_bytes(pack(MARKS[encoding] + (TEXT * 99).encode(encoding)))
    (item,) = find_inputs([str(path)])
    assert not item.is_splittable
    assert read_all(path) == read_utf8(tmp_path, (TEXT * 99).encode())


def read_utf8(folder: Path, data: bytes) -> tuple[list[bytes], Counter[str]]:
    (folder / "utf8.txt").write_bytes(data)
    return read_all(folder / "utf8.txt")


@given(
    st.binary(max_size=40), st.sampled_from(["ascii", "cp1253", "shift_jis", "gb18030", "utf-16-le"]), st.integers(1, 9)
)
def test_damage_is_marked_alike_however_the_bytes_come(data: bytes, encoding: str, chunk: int):
    found = []
    for size in (chunk, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encodings, "_CHUNK", size)
            stream = io.BufferedReader(io.BytesIO(data))
            found.append(b"".join(transcode(stream, encoding, "p", strict=False)))
    assert found[0] == found[1]


def test_the_settings_name_any_other_encoding(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_bytes("Elle a déjà fêté Noël, où l'œuf était peint.\n".encode("cp1252") * 99)
    with pytest.raises(InputError, match="pass --encoding cp1252"):
        read_all(path)
    expected = read_utf8(tmp_path, "Elle a déjà fêté Noël, où l'œuf était peint.\n".encode() * 99)
    assert read_all(path, TextConfig(encoding="windows-1252")) == expected
    with pytest.raises(InputError, match="pass --encoding cp1252"):
        read_all(path, TextConfig(encoding="utf8"))


@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
@pytest.mark.parametrize(
    ("named", "data", "problem"),
    [
        ("utf-8", TEXT.encode("utf-16-le") * 20, "is not UTF-8: it looks like UTF-16LE"),
        ("utf-16-le", b"Plain ASCII text.\n" * 20, "is not in utf-16-le: it is valid UTF-8"),
        ("utf-16-le", ("\ufeff" + TEXT).encode("utf-16-be"), "it begins with the byte order mark of utf-16-be"),
        ("cp1252", b"\xef\xbb\xbfabc\n", "it begins with the byte order mark of utf-8"),
        ("cp1252", TEXT.encode() * 20, "in cp1252: it is valid UTF-8"),
        (
            "utf-16",
            TEXT.encode("utf-16-le"),
            "it has no byte order mark; if all inputs have none, pass --encoding utf-16-",
        ),
        ("ascii", "Été à Noël\n".encode("cp1252") * 20, "in ascii: 80 of the first 220 characters are controls or un"),
        (
            "cp1252",
            "a\0" * 20,
            "in cp1252: 20 of the first 40 characters are controls or unassigned; give inputs of one",
        ),
    ],
)
def test_a_file_in_another_encoding_than_was_named_is_refused(
    tmp_path: Path, ending: str, named: str, data: bytes | str, problem: str
):
    data = data.encode() if isinstance(data, str) else data
    (tmp_path / f"a{ending}").write_bytes(gzip.compress(data) if ending == ".txt.gz" else data)
    with pytest.raises(InputError, match=problem):
        read_all(tmp_path / f"a{ending}", TextConfig(encoding=named))


@pytest.mark.parametrize("named", ["utf-8", "utf-16", "utf-16-le"])
def test_a_mark_and_a_name_may_agree(tmp_path: Path, named: str):
    (tmp_path / "a.txt").write_bytes(("\ufeff" + TEXT).encode("utf-16-le"))
    assert read_all(tmp_path / "a.txt", TextConfig(encoding=named)) == read_utf8(tmp_path, TEXT.encode())


@pytest.mark.parametrize(
    ("encoding", "data", "at_byte", "expected"),
    [
        ("utf-16-le", b"a\0\n\0\n\0" + b"b\0\x00\xd8c\0" + b"\n\0", 8, [b"a\n", b"b\xef\xbf\xbdc\n"]),
        ("utf-16-be", b"\0a\0", 2, [b"a\xef\xbf\xbd\n"]),
        ("shift_jis", b"abc \xa0 \x81", 4, ["abc \ufffd \ufffd\n".encode()]),
        ("ascii", b"a\xe9\xc3\xa9", 1, ["a\ufffd\ufffd\ufffd\n".encode()]),
    ],
)
def test_what_can_not_be_decoded_counts_or_is_named(
    tmp_path: Path, encoding: str, data: bytes, at_byte: int, expected: list[bytes]
):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    assert read_all(path, TextConfig(encoding=encoding)) == (expected, {"invalid_utf8": 1})
    codec = codecs.lookup(encoding).name
    with pytest.raises(InputError, match=rf"a\.txt, byte {at_byte}: not {codec}: byte 0x.*leave out --strict"):
        read_all(path, TextConfig(encoding=encoding, strict=True))


@pytest.mark.parametrize(
    "name",
    [
        *("latin 47", "", "hex", "rot13", "undefined", "a\0b", "aliases"),
        *("punycode", "idna", "unicode_escape", "raw_unicode_escape", "charmap"),
    ],
)
def test_what_is_no_encoding_of_text_is_refused(name: str):
    with pytest.raises(ConfigError, match="is no encoding of text that Python knows; allowed are auto and names"):
        TextConfig(encoding=name)


def test_one_encoding_has_one_name():
    assert TextConfig(encoding="UTF8") == TextConfig(encoding="utf-8")
    assert TextConfig(encoding="latin1").encoding == "iso8859-1"
