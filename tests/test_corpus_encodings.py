"""Text of another encoding is refused with its name, or read as its UTF-8; damaged UTF-8 is no other."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from build_fixtures import set_stdin, to_zst
from corpus_fixtures import block_sizes, read, small_sizes
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused, refused
from test_corpus_formats import read_all

from albert_data.config import TextConfig
from albert_data.corpus.inputs import find_inputs, open_input
from albert_data.corpus.lines import encodings
from albert_data.corpus.lines.encodings import (
    SAMPLE_BYTES,
    find_encoding,
    find_marked_encoding,
    find_wrong_encoding,
    transcode,
)
from albert_data.corpus.lines.valid_utf8 import is_utf8
from albert_data.corpus.mixtures import find_sources
from albert_data.corpus.refused import RefusedInput, RefusedInputs
from albert_data.corpus.streams import join_parts
from albert_data.errors import ConfigError, InputError

TEXTS = {
    "English": "It was the best of times, it was the worst of times.\n" * 3,
    "French": "Il avait déjà reçu la lettre, où sa mère lui écrivait que l'été à la forêt était brûlant.\n" * 3,
    "Russian": "Все счастливые семьи похожи друг на друга, каждая несчастлива по-своему.\n" * 3,
    "Chinese": "子曰：“学而时习之，不亦说乎？有朋自远方来，不亦乐乎？”\n" * 3,
    "Japanese": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。\n" * 3,
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.\n" * 3,
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता है।\n" * 3,
    "emoji": "😁😃😄 yes 😅\n" * 9,
}
FRENCH = "L’été dernier, la mère écrivait déjà que la forêt était brûlante. — Où êtes-vous ? dit-il.\n" * 5


WIDE_TEXTS = [
    *(text * repeats for text in TEXTS.values() for repeats in (1, 2000)),
    "他走了。她来了。" * 50,
    "一人一书一世界。我一定去，一起走！" * 30,
    "学而时习之不亦说乎有朋自远方来不亦乐乎一二三" * 30,
    "Все счастливые семьи похожи " * 30,
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι " * 30,
    "ꋧꃅꊽꌅꅍꄜꋊꄯꒉ，" * 30,
    "အပြည်ပြည်ဆိုင်ရာ လူ့အခွင့်အရေး ကြေညာစာတမ်း က" * 30,
    "plainletters" * 30,
]


@pytest.mark.parametrize("text", WIDE_TEXTS)
@pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_unicode_of_two_or_four_bytes_is_read_by_its_mark_and_refused_without_one(name, text):
    assert find_marked_encoding(("\ufeff" + text).encode(name)[:SAMPLE_BYTES]) == name
    for end in ("", "\n", "\r\n"):
        data = (text + end).encode(name)[:SAMPLE_BYTES]
        assert find_marked_encoding(data) is None
        assert find_wrong_encoding(data) is find_wrong_encoding(data[: max(len(data) // 3, 401)]) is encodings._WIDE


@pytest.mark.parametrize(
    ("language", "encoding"),
    [
        *(("French", "cp1252"), ("Russian", "cp1251"), ("Russian", "koi8-r"), ("Chinese", "gbk"), ("Chinese", "big5")),
        *(("Japanese", "shift_jis"), ("Japanese", "euc_jp"), ("Korean", "euc_kr")),
    ],
)
@pytest.mark.parametrize("cut", [0, 1, 2, 555])
def test_older_encodings_are_noticed_and_guessed(language, encoding, cut):
    text = TEXTS[language].replace("\n", "" if cut > 9 else "\n") * 9
    encoded = text.encode(encoding, "ignore")
    found = find_wrong_encoding(encoded[: len(encoded) - cut % 9])
    assert found is not None
    assert found.codec is not None
    assert encoded.decode(found.codec) == encoded.decode(encoding)


@pytest.mark.parametrize("data", [bytes(5000), bytes(range(256)) * 20, random.Random(0).randbytes(5000)])
def test_what_is_no_text_is_noticed(data):
    assert find_wrong_encoding(data) is not None


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4), st.integers(0, 99))
def test_sound_text_with_some_damaged_bytes_is_utf8(text, damage, cut):
    data = bytearray(("\ufeff" + text * 20).encode())
    for at, byte in damage:
        data[at % len(data)] = byte
    assert find_wrong_encoding(bytes(data[: len(data) - cut])) is None


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\xff", b"\xff\xfe", b"\xff\xfeplain text\n", b"a\x00b\n\x00\n", b"caf\xe9\n" * 4),
        b"Plain English text, a line of it.\n" * 60 + b"\xed\xa0\xbd\xed\xb8\x80 at the end.\n",  # an emoji as CESU-8
        b"Plain English text, a line of it.\n" * 60 + b"\xff\xfe\xfd\xfc\xfb\xfa\n",
        b"name,abcdefghij\0" * 40,  # records that end in zero
    ],
)
def test_little_or_one_damaged_place_is_no_proof(data):
    assert find_wrong_encoding(data) is None


# ---- where it is asked ----


WIDE = TEXTS["English"].encode("utf-16-le")


@refused(
    (
        ("a {} b.txt", WIDE),
        RefusedInputs,
        "is no text: it is binary, or UTF-16 or UTF-32 without a byte order mark; & by --encoding utf-16-le",
    ),
    (("a.txt.gz", gzip.compress(WIDE)), RefusedInput, "FOLDER/a.txt.gz & UTF-16 or UTF-32 without"),
    (("a.jsonl.zst", to_zst(WIDE)), RefusedInputs, "FOLDER/a.jsonl.zst & UTF-16 or UTF-32 without"),
    (("a.txt", FRENCH.encode("cp1252")), RefusedInputs, "FOLDER/a.txt & is not UTF-8: it looks like cp1252"),
    (("a.txt", bytes(100)), RefusedInputs, "FOLDER/a.txt & is no text: it is binary, or UTF-16"),
)
def test_each_kind_of_file_is_looked_at(call, kind, named, tmp_path):
    (tmp_path / call[0]).write_bytes(call[1])
    check_refused(lambda: open_all(tmp_path), kind, named.replace("FOLDER", str(tmp_path)))


def open_all(path: Path) -> list[bytes]:
    """What is compressed is looked at when it is opened, and a plain file before."""
    return [open_input(item)[0].read() for item in find_inputs([str(path)])]


def test_stdin_is_looked_at(monkeypatch):
    set_stdin(monkeypatch, TEXTS["Russian"].encode("koi8-r"))
    check_refused(lambda: open_input(*find_inputs(["-"])), RefusedInput, "it looks like koi8-r; if all inputs are")


# ---- several files, and --encoding auto ----

AUTO_TEXT = TextConfig(encoding="auto")
IN_EACH = {
    "utf-8": TEXTS["Russian"],
    "cp1252": FRENCH,
    "koi8-r": TEXTS["Russian"] * 5,
    "cp932": TEXTS["Japanese"] * 5,
    "utf-16-le": "\ufeff" + TEXTS["Hindi"],
}


def test_all_files_that_are_refused_are_in_one_message(tmp_path):
    for encoding, text in IN_EACH.items():
        for number in range(30):
            (tmp_path / f"{encoding}-{number:02d}.txt").write_bytes(text.encode(encoding))
    names, config = [f"{tmp_path}/utf-8*", f"{tmp_path}/cp1252*"], TextConfig(encoding="cp1252")
    named = "30 inputs can't be read: & utf-8-00.txt (not in cp1252: it is valid UTF-8); give inputs"
    check_refused(lambda: find_inputs(names, text=config), RefusedInputs, named)
    (tmp_path / "paper.txt").write_bytes(b"%PDF-1.7\n1 0 obj\n")
    parts = (
        f"91 inputs can't be read: {tmp_path}/paper.txt (no text: it is a PDF file), ",
        f", {tmp_path}/cp1252-00.txt (not UTF-8: it looks like cp1252), ",
        "; if all inputs are in one encoding, pass --encoding with its name, else --encoding auto; leave out",
    )
    message = check_refused(lambda: find_inputs([str(tmp_path)]), RefusedInputs, " & ".join(parts))
    assert len(message) < 700 + 5 * len(str(tmp_path))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_each_file_decides_its_encoding(tmp_path, pack):
    ending = "txt" if pack is bytes else "txt.gz"
    said: list[str] = []
    for encoding, text in IN_EACH.items():
        (tmp_path / f"{encoding}.{ending}").write_bytes(pack(text.encode(encoding)))
    found = find_inputs([str(tmp_path)], said.append, AUTO_TEXT)
    assert {Path(item.path).name.split(".")[0]: item.encoding for item in found} == {name: name for name in IN_EACH}
    assert [Path(item.path).name for item in found if item.is_splittable] == ["utf-8.txt"] * (pack is bytes)
    assert len(said) == 1
    assert f"cp1252 1 input: {tmp_path}/cp1252.{ending}; " in said[0]
    assert said[0].endswith("; utf-8 1 input")
    for item in found:
        with open_input(item)[0] as stream:
            assert stream.read().decode() == IN_EACH[item.encoding or ""]


def test_the_whole_file_decides(tmp_path):
    """What comes after the first 64 KB decides here: bytes that are no UTF-8, or not in the first guess."""
    ascii = "Plain text without an accent, a line of it.\n" * 50_000
    (tmp_path / "late.txt").write_bytes((ascii + FRENCH).encode("cp1252"))
    latin = "Elle a déjà fêté Noël, le père était là.\n" * 20_000
    (tmp_path / "quotes.txt").write_bytes((latin + "Il a dit : “L’été”.\n").encode("cp1252"))
    (tmp_path / "utf8.txt").write_bytes(b"caf\xe9\n" * 9 + TEXTS["French"].encode() * 999)
    found = {Path(item.path).name: item for item in find_inputs([str(tmp_path)], text=AUTO_TEXT)}
    assert {name: item.encoding for name, item in found.items()} == {
        "late.txt": "cp1252",
        "quotes.txt": "cp1252",
        "utf8.txt": "utf-8",
    }
    with open_input(found["quotes.txt"])[0] as stream:
        assert stream.read().decode().endswith("Il a dit : “L’été”.\n")


def cut(data: bytes, size: int) -> list[bytes]:
    """A file as it is read: a first block, and then blocks of any size."""
    return [data[:SAMPLE_BYTES], *(data[at : at + size] for at in range(SAMPLE_BYTES, len(data), size))]


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40), st.integers(1, 50), st.booleans()
)
def test_any_utf8_is_utf8_in_whatever_blocks_it_comes(text, size, is_late):
    data = (b"Plain words.\n" * 5100 if is_late else b"Words ") + text.encode()
    assert find_encoding(cut(data, size)).codec == "utf-8"


@pytest.mark.parametrize("end", ["\n", "\r", " "])
@pytest.mark.parametrize("encoding", ["cp1252", "gb18030", "cp932"])
@pytest.mark.parametrize("size", [1 << 10, 1 << 16, 1 << 20])
def test_lines_without_an_end_and_late_places_are_found_in_whatever_blocks_they_come(size, encoding, end):
    rare = "𠮷㐂、㐅㐆。\n"  # four bytes in gb18030, two of them digits
    texts = {"cp1252": FRENCH, "gb18030": TEXTS["Chinese"] + rare, "cp932": TEXTS["Japanese"]}
    data = ("Plain words. " * 90_000 + texts[encoding].replace("\n", end) * 99).encode(encoding)
    found = find_encoding(cut(data, size)).codec
    assert found is not None
    assert data.decode(found) == data.decode(encoding)


ENGLISH = "".join(f"This is line {number} of a text that is in English and has no accent.\n" for number in range(99))
ONE_PLACE = ("It’s late.", "He said “no”.", "a café in town", "20 °C today", "100 € a day", "© 2020 Foo", "naïve — so")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        *((f"{ENGLISH}{line}\n", "cp1252") for line in ONE_PLACE),
        ("It was worth £3 17s. 10½d. in silver, and upwards of £3 18s. some years before.\n" * 50, "cp1252"),
        ("Le cœur de la sœur bat très fort, et l'œuvre coûte 20 € à l'été.\n" * 50, "iso8859-15"),
    ],
)
def test_of_encodings_that_are_as_likely_the_usual_one_is_chosen(text, encoding):
    assert find_encoding([text.encode(encoding)]).codec == encoding


@pytest.mark.parametrize("ending", ["gz", "bz2"])
def test_of_a_cut_file_what_is_there_decides(tmp_path, ending):
    pack = {"gz": gzip.compress, "bz2": bz2.compress}[ending]
    data = pack("".join(f"{number} {FRENCH}" for number in range(20_000)).encode("cp1252"))
    path = tmp_path / f"a.txt.{ending}"
    path.write_bytes(data[: len(data) * 9 // 10])
    (item,) = find_inputs([str(path)], text=AUTO_TEXT)
    assert item.encoding == "cp1252"


@pytest.mark.parametrize("named", ["cp1252", "auto", None])
def test_what_is_no_text_is_refused_whatever_is_named(tmp_path, named):
    (tmp_path / "a.txt").write_bytes(rb"{\rtf1\ansi A letter.}" * 9)
    (tmp_path / "b.txt").write_bytes(b"%PDF-1.7\n" * 9)
    with pytest.raises(InputError) as caught:
        find_inputs([str(tmp_path), str(tmp_path / "a.txt")], text=TextConfig(encoding=named))
    assert str(caught.value).startswith(f"2 inputs can't be read: {tmp_path}/b.txt (no text: it is a PDF file), ")
    assert str(caught.value).endswith(
        "is an RTF file); leave out what is no text, or name the files that hold its text"
    )


def test_files_of_all_sources_of_a_mixture_are_in_one_message(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_bytes(FRENCH.encode("cp1252"))
    sources = (f'[[source]]\nname = "{name}"\npaths = "{name}.txt"\n' for name in "ab")
    (tmp_path / "mix.toml").write_text("".join(sources))
    with pytest.raises(InputError) as caught:
        find_sources([str(tmp_path / "mix.toml")])
    assert "2 inputs can't be read: " in str(caught.value)
    assert str(caught.value).endswith('a source may say for itself: encoding = "auto"')
    found = find_sources([str(tmp_path / "mix.toml")], text=TextConfig(encoding="AUTO"))
    assert [item.encoding for item in found] == ["cp1252", "cp1252"]


def test_a_stream_does_not_decide(monkeypatch):
    set_stdin(monkeypatch, b"text")
    with pytest.raises(InputError, match="can be read only once, so its encoding can't be found first; name it by"):
        find_inputs(["-"], text=AUTO_TEXT)


# ---- transcoding ----

TEXT = "Füße über 中文。\n\nЗдравствуй, 😀!\r\nzwei\n"
MARKS = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE, "utf-32-le": codecs.BOM_UTF32_LE}
AGREEING = ("utf-8", "utf-16", "utf-16-le")


@given(
    st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\r \u2028中"), max_size=60),
    st.sampled_from(["utf-16-le", "utf-16-be", "utf-16", "utf-32", "gb18030", "utf-8-sig", "utf-7"]),
    block_sizes,
    st.integers(1, 9),
)
def test_any_text_is_read_as_its_utf8_would_be(text, encoding, block_bytes, chunk):
    text = text.lstrip("\ufeff")
    with pytest.MonkeyPatch.context() as patch, small_sizes():
        patch.setattr(encodings, "_CHUNK", chunk)
        parts = transcode(io.BufferedReader(io.BytesIO(text.encode(encoding))), encoding, "p", strict=True)
        found = read(join_parts(parts), block_bytes=block_bytes)
        assert found == read(text.encode(), block_bytes=block_bytes)


@pytest.mark.parametrize(
    ("encoding", "named"), [*((encoding, None) for encoding in MARKS), *(("utf-16-le", name) for name in AGREEING)]
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_byte_order_mark_names_the_encoding_and_a_setting_may_agree(tmp_path, encoding, named, pack):
    path = tmp_path / ("a.txt" if pack is bytes else "a.txt.gz")
    path.write_bytes(pack(MARKS[encoding] + (TEXT * 99).encode(encoding)))
    (item,) = find_inputs([str(path)], text=TextConfig(encoding=named))
    assert not item.is_splittable
    assert read_all(path, TextConfig(encoding=named)) == read_utf8(tmp_path, (TEXT * 99).encode())


def read_utf8(folder: Path, data: bytes) -> tuple[list[bytes], Counter[str]]:
    (folder / "utf8.txt").write_bytes(data)
    return read_all(folder / "utf8.txt")


@given(
    st.binary(max_size=40), st.sampled_from(["ascii", "cp1253", "shift_jis", "gb18030", "utf-16-le"]), st.integers(1, 9)
)
def test_damage_is_marked_alike_however_the_bytes_come(data, encoding, chunk):
    found = []
    for size in (chunk, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encodings, "_CHUNK", size)
            stream = io.BufferedReader(io.BytesIO(data))
            found.append(b"".join(transcode(stream, encoding, "p", strict=False)))
    assert found[0] == found[1]


@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
@pytest.mark.parametrize(
    ("named", "data", "problem"),
    [
        (
            "utf-8",
            TEXT.encode("utf-16-le") * 20,
            "is no text: it is binary, or UTF-16 or UTF-32 without a byte order mark",
        ),
        ("utf-16-le", b"Plain ASCII text.\n" * 20, "is not in utf-16-le: it is valid UTF-8"),
        ("utf-16-le", ("\ufeff" + TEXT).encode("utf-16-be"), "it begins with the byte order mark of utf-16-be"),
        ("cp1252", b"\xef\xbb\xbfabc\n", "it begins with the byte order mark of utf-8"),
        ("cp1252", TEXT.encode() * 20, "in cp1252: it is valid UTF-8"),
        (
            "utf-16",
            TEXT.encode("utf-16-le"),
            "has no byte order mark; if all inputs have none, pass --encoding utf-16-",
        ),
        ("ascii", "Été à Noël\n".encode("cp1252") * 20, "in ascii: 80 of the first 220 characters are controls or un"),
        ("cp1252", b"a\0" * 20, "in cp1252: 20 of the first 40 characters are controls or unassigned; give inputs"),
    ],
)
def test_a_file_in_another_encoding_than_was_named_is_refused(tmp_path, ending, named, data, problem):
    (tmp_path / f"a{ending}").write_bytes(gzip.compress(data) if ending == ".txt.gz" else data)
    with pytest.raises(InputError, match=problem):
        read_all(tmp_path / f"a{ending}", TextConfig(encoding=named))


@pytest.mark.parametrize(
    ("encoding", "data", "at_byte", "expected"),
    [
        ("utf-16-le", b"a\0\n\0\n\0" + b"b\0\x00\xd8c\0" + b"\n\0", 8, [b"a\n", b"b\xef\xbf\xbdc\n"]),
        ("utf-16-be", b"\0a\0", 2, [b"a\xef\xbf\xbd\n"]),
        ("shift_jis", b"abc \xa0 \x81", 4, ["abc \ufffd \ufffd\n".encode()]),
        ("ascii", b"a\xe9\xc3\xa9", 1, ["a\ufffd\ufffd\ufffd\n".encode()]),
    ],
)
def test_what_can_not_be_decoded_counts_or_is_named(tmp_path, encoding, data, at_byte, expected):
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
def test_what_is_no_encoding_of_text_is_refused(name):
    with pytest.raises(ConfigError, match="is no encoding of text that Python knows; allowed are auto and names"):
        TextConfig(encoding=name)


def test_one_encoding_has_one_name():
    assert TextConfig(encoding="UTF8") == TextConfig(encoding="utf-8")
    assert TextConfig(encoding="latin1").encoding == "iso8859-1"


# ---- valid UTF-8, against Python's own decoder ----

# The first and last characters of each length, and beside what may not be.
EDGES = (
    "\0\x7f\x80\u07ff\u0800\u0fff\u1000\ucfff\ud000\ud7ff\ue000\uffff\U00010000\U0003ffff\U00040000\U000fffff\U0010ffff"
)
SECOND = (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF)
valid_texts = st.text(st.sampled_from(EDGES) | st.characters(exclude_categories=("Cs",)), max_size=40)


def check_validity(data: bytes) -> None:
    assert is_utf8(np.frombuffer(data, np.uint8)) == (data.decode(errors="ignore").encode() == data)


@given(valid_texts, st.integers(0, 70), st.data())
def test_text_is_valid_and_a_changed_lost_or_added_byte_is_noticed(text, shift, data):
    valid = b"x" * shift + text.encode()
    assert is_utf8(np.frombuffer(valid, np.uint8))
    check_validity(valid)
    at = data.draw(st.integers(0, len(valid)))
    check_validity(valid[:at])
    check_validity(valid[at:])
    check_validity(valid[:at] + valid[at + 1 :])
    check_validity(
        valid[:at] + data.draw(st.binary(min_size=1, max_size=2)) + valid[at + data.draw(st.integers(0, 1)) :]
    )


def test_every_first_and_second_byte_at_every_place():
    for first in range(0x80, 0x100):
        for second in SECOND:
            for rest in (b"", b"\x80", b"\x80\x80", b"\xbf\xbf\xbf"):
                for shift in (0, 60, 61, 62, 63, 64):
                    check_validity(b"x" * shift + bytes((first, second)) + rest + b"." * 4)
                    check_validity(b"x" * shift + bytes((first, second)) + rest)
