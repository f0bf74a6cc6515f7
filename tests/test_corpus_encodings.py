"""Text of another encoding is refused with its name; UTF-8 with some damage, of whatever language, is not."""

from __future__ import annotations

import codecs
import gzip
import io
import random
import sys
from pathlib import Path

import pyarrow
import pytest
from corpus_fixtures import any_bytes
from hypothesis import given
from hypothesis import strategies as st

from albert_data.corpus.encodings import SAMPLE_BYTES, find_marked_encoding, find_wrong_encoding
from albert_data.corpus.inputs import find_inputs, open_input
from albert_data.errors import InputError

TEXTS = {
    "English": "It was the best of times, it was the worst of times.\n" * 3,
    "French": "Été, cœur, garçon, où déjà, l'élève préféré à côté de la forêt brûlée.\n" * 3,
    "Russian": "Все счастливые семьи похожи друг на друга, каждая несчастлива по-своему.\n" * 3,
    "Chinese": "子曰：“学而时习之，不亦说乎？有朋自远方来，不亦乐乎？”\n" * 3,
    "Japanese": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。\n" * 3,
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.\n" * 3,
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता है।\n" * 3,
    "emoji": "😁😃😄 yes 😅\n" * 9,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("repeats", [1, 2000])
@pytest.mark.parametrize("mark", [True, False])
@pytest.mark.parametrize("name", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
def test_unicode_of_two_or_four_bytes_is_named(name: str, mark: bool, repeats: int, text: str):
    data = ("\ufeff" * mark + text * repeats).encode(name)[:SAMPLE_BYTES]
    if mark:
        codec = find_marked_encoding(data)
        assert codec is not None
        assert codecs.lookup(codec) == codecs.lookup(name)
        return
    assert find_marked_encoding(data) is None
    found = find_wrong_encoding(data)
    assert found is not None
    assert found.iconv == name


@pytest.mark.parametrize(
    "text",
    [
        "他走了。她来了。" * 50,
        "一人一书一世界。我一定去，一起走！" * 30,
        "学而时习之不亦说乎有朋自远方来不亦乐乎一二三" * 30,
        "吾輩は猫である。名前はまだ無い。一人。" * 30,
        "모든 인간은 태어날 때부터 자유로우며 " * 30,
        "Все счастливые семьи похожи " * 30,
        "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι " * 30,
        "ꋧꃅꊽꌅꅍꄜꋊꄯꒉ，" * 30,
        "အပြည်ပြည်ဆိုင်ရာ လူ့အခွင့်အရေး ကြေညာစာတမ်း က" * 30,
        "plainletters" * 30,
    ],
)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("name", ["UTF-16LE", "UTF-16BE"])
def test_the_byte_order_is_right_with_and_without_line_ends(name: str, end: str, text: str):
    data = ((text + end) * 3).encode(name)
    for cut in (len(data), 401):
        found = find_wrong_encoding(data[:cut])
        assert found is not None
        assert found.iconv == name


@pytest.mark.parametrize(
    ("language", "encoding", "codec"),
    [
        ("French", "cp1252", "cp1252"),
        ("Russian", "cp1251", "cp1251"),
        ("Russian", "koi8-r", "koi8_r"),
        ("Chinese", "gbk", "gb18030"),
        ("Chinese", "big5", "big5"),
        ("Japanese", "shift_jis", "shift_jis"),
        ("Japanese", "euc_jp", "euc_jp"),
        ("Korean", "euc_kr", "euc_kr"),
    ],
)
@pytest.mark.parametrize("cut", [0, 1, 2, 555])
def test_older_encodings_are_noticed_and_guessed(language: str, encoding: str, codec: str, cut: int):
    data = TEXTS[language].replace("\n", "" if cut > 9 else "\n") * 9
    encoded = data.encode(encoding, "ignore")
    found = find_wrong_encoding(encoded[: len(encoded) - cut % 9])
    assert found is not None
    assert found.codec == codec


@pytest.mark.parametrize("data", [bytes(5000), bytes(range(256)) * 20, random.Random(0).randbytes(5000)])
def test_what_is_no_text_is_noticed(data: bytes):
    assert find_wrong_encoding(data) is not None


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4), st.integers(0, 99))
def test_sound_text_with_some_damaged_bytes_is_utf8(text: str, damage: list[tuple[int, int]], cut: int):
    data = bytearray(("\ufeff" + text * 20).encode())
    for at, byte in damage:
        data[at % len(data)] = byte
    assert find_wrong_encoding(bytes(data[: len(data) - cut])) is None


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\xff\xfe", b"\xff\xfeplain text\n", b"a\x00b\n\x00\n", b"caf\xe9\n" * 4]
)
def test_little_is_no_proof(data: bytes):
    assert find_wrong_encoding(data) is None


@given(any_bytes.map(lambda data: data.decode(errors="ignore").replace("\0", "").encode()))
def test_sound_text_is_utf8_wherever_the_sample_ends(data: bytes):
    for cut in range(4):
        assert find_wrong_encoding(data[: len(data) - cut]) is None


# ---- where it is asked ----


def check_refused(path: Path, *parts: str) -> None:
    with pytest.raises(InputError) as caught:
        open_input(*find_inputs([str(path)]))
    assert all(part in str(caught.value) for part in (str(path), *parts)), caught.value


def test_each_kind_of_file_is_looked_at(tmp_path: Path):
    data = TEXTS["English"].encode("utf-16-le")
    (tmp_path / "a {} b.txt").write_bytes(data)
    check_refused(
        tmp_path / "a {} b.txt",
        "it looks like UTF-16LE without a byte order mark; if all inputs are in it, pass --encoding utf-16-le; if only",
        f"`iconv -f UTF-16LE -t UTF-8 '{tmp_path}/a {{}} b.txt' > NEW_FILE`",
    )
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(data))
    check_refused(
        tmp_path / "a.txt.gz", f"`zcat {tmp_path}/a.txt.gz | iconv -f UTF-16LE -t UTF-8 | albert-data build -"
    )
    (tmp_path / "a.jsonl.zst").write_bytes(pyarrow.compress(data, "zstd", asbytes=True))
    check_refused(tmp_path / "a.jsonl.zst", "`zstdcat ")


def test_stdin_is_looked_at(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXTS["Russian"].encode("koi8-r"))))
    check_refused(Path("-"), "it looks like koi8_r; if all inputs are in it, pass --encoding koi8_r", "`... | iconv")


def test_a_plain_file_is_refused_before_anything_is_read(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(TEXTS["French"].encode("cp1252"))
    with pytest.raises(InputError, match="is not UTF-8: it looks like Latin-1"):
        find_inputs([str(tmp_path)])
    (tmp_path / "a.txt").write_bytes(bytes(100))
    with pytest.raises(InputError, match="is no text: 100 % of its first bytes are zero"):
        find_inputs([str(tmp_path)])


def test_what_was_read_ahead_is_given_back(tmp_path: Path):
    text = b"".join(b"line %d\n" % number for number in range(30_000))
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(text))
    with open_input(*find_inputs([str(path)])) as stream:
        assert b"".join(iter(lambda: stream.read1(1000), b"")) == text


@pytest.mark.parametrize(
    "data",
    [
        b"Plain English text, a line of it.\n" * 60 + b"\xed\xa0\xbd\xed\xb8\x80 at the end.\n",  # an emoji as CESU-8
        b"Plain English text, a line of it.\n" * 60 + b"\xff\xfe\xfd\xfc\xfb\xfa\n",
        b"name,abcdefghij\0" * 40,
    ],
    ids=["CESU-8", "one damaged place", "records that end in zero"],
)
def test_one_damaged_place_in_a_small_file_is_no_other_encoding(data: bytes):
    assert find_wrong_encoding(data) is None
