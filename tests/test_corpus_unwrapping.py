"""Wrapped lines are joined to paragraphs as the slow reference joins them, in every format; what goes is counted."""

from __future__ import annotations

import json
import textwrap

import build_fixtures as fixtures
import numpy as np
import pytest
import unwrapping_reference as reference
from callable_helpers import around
from corpus_fixtures import as_jsonl, block_sizes, read, small_sizes
from hypothesis import example, given
from hypothesis import strategies as st
from paged_books import PARAGRAPHS, PROSE, STYLES, paginate
from references import is_blank

from albert_data.clean import unwrapping
from albert_data.clean.unwrapping import unwrap
from albert_data.config import TextConfig

FILE, BLANK_LINE = TextConfig(document_rule="file", unwrap=True), TextConfig(unwrap=True)

WORDS = [
    *("a", "the", "of", "word", "ex-", "ample", "example", "well-", "known", "well-known", "pre-", "and", "to-day"),
    *("Tom", "I", "end.", "end?", '"Yes', 'No."', "(so)", "he--", "--she", "—", "they—", "12", "1914-", "etc.:"),
    *("- ", "1. ", "iv) ", "(3)", "a.", "* ", "* * *", "---", "|", "中文", "字。", "かな", "ไทย", "é", "Éa", "Ünd"),
    *("\u00ad", "soft\u00ad", "\u2010", "Mr.", "x" * 70, "\u3000", "\u00a0", "😀", "half  gap", "wide    gap"),
    *("tab\there", "हिन्दी।", "ქართული", "ኦለዎ፡፡", "ข้อ ๕", "ß", "ǅ", "-", "--", "''", "»"),
]
words = st.sampled_from(WORDS)
indents = st.sampled_from(["", "", "", "", "  ", "\t", " \u3000", "\u3000\u3000", "    "])
any_line = st.builds(lambda indent, parts: indent + " ".join(parts), indents, st.lists(words, max_size=14))
any_lines = st.lists(any_line, max_size=24).map("\n".join)
wrapped = st.builds(
    lambda parts, width: textwrap.fill(" ".join(parts), width), st.lists(words, max_size=90), st.integers(20, 90)
)
any_text = st.one_of(any_lines, wrapped, st.lists(wrapped | any_lines, max_size=4).map("\n\n".join))


def join(text: str) -> str:
    return join_and_remove(text)[0]


def remove(text: str) -> list[str]:
    """The page furniture that is removed, line by line."""
    return join_and_remove(text)[1]


def join_and_remove(text: str) -> tuple[str, list[str]]:
    found = unwrap(text.encode(), np.array([len(text.encode())]))
    assert found is not None
    return found[0].decode(), [line.decode() for line in found[2]]


def check_reference(text: str) -> None:
    found, expected = join_and_remove(text), reference.unwrap_and_list(text)
    assert (found[0].strip("\n"), found[1]) == (expected[0].strip("\n"), expected[1])


# ---- the rule ----


@given(any_text)
def test_lines_are_joined_as_the_reference_joins_them(text):
    check_reference(text)


@given(any_text, st.integers(0, 2**64 - 1))
def test_the_seed_of_the_table_of_words_changes_nothing(text, seed):
    joined = join(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unwrapping, "_SEED", np.uint64(seed))
        assert join(text) == joined


def test_words_whose_hashes_are_alike_do_not_share_slots():
    """Texts can be made of such words; to look for one in a row of 8,000 taken slots took 21 s for 2 MB."""
    find_slot, keys = around(unwrapping.find_slot), np.zeros(32_768, np.uint64)
    for key in (np.arange(1, 8193, dtype=np.uint64) << np.uint64(40)) | np.uint64(1):
        keys[find_slot(keys, key, unwrapping._SEED)] = key
    assert max(len(run) for run in "".join("x" if key else " " for key in keys.tolist()).split()) < 1000


@given(st.text(st.sampled_from("aZ.-— \n\t中。\u3000\u00ad“(1é"), max_size=60))
def test_lines_of_any_characters_are_joined_as_the_reference_joins_them(text):
    check_reference(text)


def fill(text: str, width: int = 72, **options: str) -> str:
    return textwrap.fill(text, width, **options)


@pytest.mark.parametrize("width", [40, 55, 72, 79, 100])
def test_what_a_program_has_wrapped_is_restored(width):
    paragraphs = [PROSE, PROSE[116:], "CHAPTER II", PROSE[50:]]
    assert join("\n\n".join(fill(paragraph, width) for paragraph in paragraphs)) == "\n".join(paragraphs) + "\n"
    indented = "\n".join(fill(paragraph, width, initial_indent="    ") for paragraph in paragraphs)
    assert join(indented) == "\n".join(paragraphs) + "\n"


def test_the_first_word_that_would_have_fitted_ends_a_paragraph_without_any_other_sign():
    first, second = PROSE[:170] + " days.", PROSE[:200] + " ends."
    assert join(f"{fill(first)}\n{fill(second)}") == f"{first}\n{second}\n"


VERSE = """Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date;"""


# A word of headings, a text of some words, and a stop, in scripts without capitals.
UNCASED = [
    ("धारा", "कुनै व्यक्तिलाई पनि शारीरिक यातना ", "गरिने छैन।"),
    ("ዓንቀፅ", "ሕድሕድ ሰብ መሰሉን ግቡእን ከምኡ’ውን ንዝቐርበሉ ", "ኦለዎ፡፡"),
    ("مادة", "لكل فرد الحق في الحياة والحرية وسلامة ", "شخصه."),
    ("מאמר", "כל אדם יש לו הזכות לחיים לחירות ולבטחון ", "אישי."),
    ("დებულება", "ყველა ადამიანი იბადება თავისუფალი და თანასწორი ", "უფლება."),
    ("មាត្រា", "មនុស្សទាំងអស់កើតមកមានសេរីភាពនិងសមភាព ", "សេចក្ដីថ្លៃថ្នូរ។"),
    ("ข้อ", "บุคคลใดจะตกอยู่ในความเป็นทาสหรือภาวะจำยอม ", "ไม่ได้"),
]


@pytest.mark.parametrize(
    "text",
    [
        VERSE,
        f"{fill(PROSE)}\n\n{VERSE}\n\n{fill(PROSE)}",
        "name    age    size of the shoes\nTom     3      4\nEve     12     38",
        "CHAPTER I\nThe Beginning\n\n* * *\n\n12",
        "- milk\n- eggs\n- bread",
        '"Yes."\n"No."\n"Why not?"',
        PROSE * 3 + "\n" + PROSE * 2,
        "word\nlist\nof\nshort\nlines",
        *(f"{title} 5\n{text * 3}{stop}\n{title} 6\n{text * 2}{stop}" for title, text, stop in UNCASED),
    ],
)
def test_lines_that_stand_for_themselves_are_not_joined(text):
    kept = [line.strip() for line in text.split("\n") if line.strip() and line not in fill(PROSE).split("\n")]
    assert [line for line in join(text).rstrip("\n").split("\n") if line != PROSE] == kept


def test_the_items_of_a_list_are_joined_each():
    item = "an item that is so long that it needs more than one line of the width that lists have"
    text = "\n".join(fill(f"{mark} {item}", subsequent_indent="   ") for mark in ("-", "-", "1.", "(b)", "iv)"))
    assert join(text) == "".join(f"{mark} {item}\n" for mark in ("-", "-", "1.", "(b)", "iv)"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one line that ends with a soft hy\u00ad\nphen", "one line that ends with a soft hyphen"),
        ("this ex-\nample is no other example", "this example is no other example"),
        ("this well-\nknown word is well-known", "this well-known word is well-known"),
        ("a dark-\nblue one", "a dark-blue one"),
        ("an ex-\nample and infor-\nmation of that example", "an example and information of that example"),
        ("in pre-\nand post-war times", "in pre- and post-war times"),
        ("from day-\nto-day", "from day-to-day"),
        ("as it was once said by all of them in the whole of the Anglo-\nSaxon world", None),
        ("he was the last of them all, and that was why he had to go--\nand went", None),
        ("he was the last of them all, and that was why he had to go\n--and went", None),
        ("he was the last of them all, and that was why he had to go —\nand went", "..go — and went"),
        ("中文的句子很长很长很长很长很长很长很长很长很长很长很长很长\n很长。", None),
        ("これはとてもながいぶんですこれはとてもながいぶんです、かな\nカタカナ", None),
        ("ประโยคนี้ยาวมากประโยคนี้ยาวมากประโยคนี้ยาวมากประโยคนี้ยาวมาก\nจริงๆ", None),
        ("한국어 문장은 매우 길어서 줄이 바뀌었습니다 그리고 계속됩니다\n띄어쓰기", "..계속됩니다 띄어쓰기"),
    ],
)
def test_what_stands_between_joined_lines(text, expected):
    """None: nothing; `..`: some beginning."""
    found = join(text).rstrip("\n")
    expected = text.replace("\n", "") if expected is None else expected
    assert found.endswith(expected.removeprefix("..")) if expected.startswith("..") else found == expected


# ---- page furniture ----

BOOK = [fill(paragraph) for paragraph in PARAGRAPHS]


@pytest.mark.parametrize("style", STYLES)
def test_page_numbers_and_running_heads_are_removed_between_the_lines_of_paragraphs(style):
    text, furniture = paginate(style)
    assert furniture == remove(text)
    assert join(text).split() == " ".join(PARAGRAPHS).split()[: len(join(text).split())]


@pytest.mark.parametrize("style", STYLES)
@given(st.data())
def test_furniture_is_found_as_the_reference_finds_it(style, data):
    lines = paginate(style)[0].split("\n")
    for _ in range(data.draw(st.integers(0, 12))):
        at = data.draw(st.integers(0, len(lines)))
        lines[at : at + data.draw(st.integers(0, 3))] = data.draw(st.lists(any_line | furniture_lines, max_size=3))
    check_reference("\n".join(lines))


furniture_lines = st.sampled_from(
    ["", "12", "- 7 -", "xiv", "CHAPTER 3", "CHAPTER XII", "BLEAK HOUSE", "9 BLEAK HOUSE.", "Page 8", "1914", "so it"]
)
short_pages = st.lists(
    st.one_of(
        st.just("and so he went on to tell them of the things that had come to pass in"), furniture_lines, any_line
    ),
    min_size=24,
    max_size=90,
).map("\n".join)


@given(short_pages)
def test_furniture_of_short_pages_is_found_as_the_reference_finds_it(text):
    check_reference(text)


@pytest.mark.parametrize(
    "line",
    ["1914", "12", "* * *", "CHAPTER {}", "{}", "{}.", "London.", "him.", "CHAPTER XII", "Table {}", "[{}]", "Yes!"],
)
def test_numbers_and_headings_between_paragraphs_stay(line):
    """Also where they stand on every page, and count up."""
    text = "\n\n".join(f"{line.format(number)}\n\n{paragraph}" for number, paragraph in enumerate(BOOK * 3, 1))
    assert not remove(text)


def test_a_number_of_the_text_among_page_numbers_stays():
    text, furniture = paginate("number")
    lines = text.split("\n")
    lines[40:40] = ["", "CHAPTER 2", "", "1853", ""]
    assert remove("\n".join(lines)) == furniture


def test_capitals_with_a_page_number_inside_a_sentence_are_removed():
    heads = [("1", "AB"), ("2", "CD"), ("3", "EF"), ("4", "GH"), ("5", "IJ")]
    pages = [f"{fill(PROSE[:-1])} and\n\n{number}\n\n{head}\n\nso on. {PROSE[:60]}" for number, head in heads]
    assert remove("\n".join([*pages, PROSE])) == [line for head in heads for line in head]


def test_a_title_that_equals_the_running_head_stays():
    text, furniture = paginate("head without number")
    assert remove(f"BLEAK HOUSE\n\n{text}") == furniture


# ---- every layout ----

# The indentation of its first line decides where its paragraphs begin.
LINE = "The quick brown fox jumps over the lazy dog and then it runs aw"
INDENTED = f"    {LINE[:58]}\n{LINE}\n{LINE}\n  {LINE}\n  {LINE}\n  {LINE}\n"


@given(any_text, block_sizes, st.booleans())
@example(INDENTED, 1000, False)
def test_a_document_is_unwrapped_alike_in_every_format_and_block(text, block_bytes, ensure_ascii):
    text = text.lstrip("\ufeff")
    for sizes in ({}, {"max_line": 1 << 20, "max_document": 4 << 20}):
        with small_sizes(**sizes):
            lines = as_jsonl([text] if text.strip() else [], ensure_ascii=ensure_ascii)
            found = read(lines, "jsonl", config=FILE)[0]
            assert read(text.encode(), config=FILE)[0] == found
            assert read(text.encode(), config=FILE, block_bytes=block_bytes)[0] == found
            assert read(text.encode(), "auto", config=FILE)[0] == found, "the first line of a stream is indented, too"


@given(st.lists(any_lines, max_size=5), block_sizes)
def test_documents_between_blank_lines_are_unwrapped_one_by_one(texts, block_bytes):
    texts = ["\n".join(line for line in text.split("\n") if not is_blank(line)) for text in texts]
    texts = [text for text in texts if text]
    joined = "\n\n".join(texts).encode()
    expected = read(as_jsonl(texts), "jsonl", config=BLANK_LINE)[0]
    assert read(joined, config=BLANK_LINE)[0] == expected
    with small_sizes(max_line=1 << 20, max_document=4 << 20):
        assert read(joined, config=BLANK_LINE, block_bytes=block_bytes)[0] == expected


@given(any_text)
def test_without_unwrap_a_file_is_a_document_of_its_stripped_lines(text):
    config = TextConfig(document_rule="file")
    found = read(text.encode(), config=config)[0]
    assert found == read(as_jsonl([text]), "jsonl", config=config)[0]
    assert len(found) != is_blank(text)


def test_a_build_without_page_furniture_is_that_of_the_text_without_pages(tmp_path, tokenizer):
    text, furniture = paginate("number between lines", PARAGRAPHS[:6])
    (tmp_path / "paged.txt").write_text(text)
    (tmp_path / "plain.txt").write_text("\n\n".join(PARAGRAPHS[:6]))
    settings = {"document_rule": "file", "unwrap": True}
    report = fixtures.run_build(tmp_path / "paged.txt", tmp_path / "paged", tokenizer, **settings)
    plain = fixtures.run_build(tmp_path / "plain.txt", tmp_path / "plain", tokenizer, **settings).manifest
    paged = report.manifest
    assert (paged.digest, paged.documents_digest) == (plain.digest, plain.documents_digest)
    assert plain.removed is None
    assert paged.removed is not None
    found = paged.removed["page_furniture"]
    assert (found.num_lines, found.num_bytes) == (len(furniture), sum(map(len, furniture)))
    assert json.loads((tmp_path / "paged/manifest.json").read_bytes())["removed"] == {"page_furniture": vars(found)}
