"""The audit finds pages, tables, footers, other scripts, misread words, symbols inside words and encoded data in rows,
and none of them in prose, names, dialect and rare words."""

from __future__ import annotations

import base64
import itertools
import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paged_books import PARAGRAPHS, paginate
from toy_language import ENGLISH as ENGLISH_WORDS

from albert_data.config import BuildConfig, VocabConfig
from albert_data.inspect.audit.audit import audit_folder
from albert_data.inspect.audit.misread import find_misread
from albert_data.inspect.audit.row_texts import find_furniture, find_other_scripts, find_repeated, find_table
from albert_data.inspect.audit.rules import BAD, LOOK, OK, Check
from albert_data.library.building import build, train_vocab


@pytest.mark.parametrize(
    ("text", "is_page"),
    [
        ("his acquaintance with - 203 - 204 BLEAK HOUSE. the lady", True),
        ("he said, 12 THE WAY WE LIVE NOW and went", True),
        ("so that MIDDLEMARCH 77 he could", True),
        ("one of the – 5 – many", True),
        ("in 1999 NASA was there, and in 1914 it was not", False),
        ("He came. 204 BLEAK HOUSE. Then he went.", False),
        ("said by Smith [12] and others 13 times", False),
        ("the UNITED STATES of AMERICA were", False),
        ("pages 3 - 4 of it, the years 1914-1918 and so on", False),
    ],
)
def test_pages_inside_a_sentence_are_found_but_no_numbers_and_capitals_of_prose(text, is_page):
    assert find_furniture(text) == (text if is_page else None)


@pytest.mark.parametrize(("text", "is_table"), [("a 1 " * 10, True), ("a 1 " * 9, False), ("a 1 " * 10 + "b", False)])
def test_a_table_is_a_text_of_which_half_of_the_words_are_numbers(text, is_table):
    assert find_table(text) == ("a 1 a 1 a 1 a 1 a 1" if is_table else None)


ENGLISH, CHINESE = "The cat sat on the mat and looked.", "猫坐在垫子上看着我们，一句话也没有说，后来它走了。"
GREEK = "Η γάτα κάθισε στο χαλάκι."


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([*[ENGLISH] * 99, CHINESE], [99]),
        ([*[CHINESE] * 99, ENGLISH], [99]),
        ([*[ENGLISH] * 99, f"{ENGLISH} {GREEK}"[:-1], "Ελλάδα"], []),  # a few letters
        ([*[ENGLISH] * 90, *[GREEK] * 10], []),  # a twentieth of the letters
        ([*[ENGLISH] * 99, (CHINESE, 1), (CHINESE, 1)], []),  # each source has its own scripts
        ([*[ENGLISH] * 99, (CHINESE, 1), CHINESE, (ENGLISH, 1)], [100]),
    ],
)
def test_a_row_in_a_script_that_its_source_hardly_uses_shows_its_beginning(texts, found):
    """texts: of source 0, unless the source is given."""
    rows = [text if isinstance(text, tuple) else (text, 0) for text in texts]
    shown = find_other_scripts([text for text, _ in rows], np.array([source for _, source in rows], np.uint16))
    assert list(shown) == [text[:40] if i in found else None for i, (text, _) in enumerate(rows)]


FOOTER = "Copyright 2003 Example Press"


def write_texts(count: int, footer: str = "", seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join([*rng.choices(ENGLISH_WORDS.split(), k=50), footer]) for _ in range(count)]


MANY, FEW = write_texts(40, FOOTER), write_texts(19, FOOTER)
SPOKEN = [*write_texts(40, "for the purpose of"), *write_texts(1, "on the purpose of", seed=1)]
LONG = [f"{'word ' * 10_000}{text}" for text in write_texts(30, FOOTER)]


@pytest.mark.parametrize(
    ("texts", "owners", "num_found"),
    [
        ([*write_texts(200), *write_texts(20, FOOTER, seed=1)], range(220), 20),
        (FEW, range(19), 0),  # few documents,
        (MANY, [0] * 40, 0),  # or one, repeat it
        (SPOKEN, range(41), 0),  # a figure of speech also stands with other words
        (LONG, range(30), 0),  # it is rare in long documents
    ],
)
def test_a_footer_of_four_words_in_many_documents_is_a_repeated_line(texts, owners, num_found):
    found = ["Example" in (line or "") or "purpose" in (line or "") for line in find_repeated(texts, owners)]
    assert found == [False] * (len(texts) - num_found) + [True] * num_found


# ---- misread words ----

# Words of which each text has many: so each stands in more than twenty texts.
_WORDS = """
    there which would little before himself another nothing thought without something house people morning should
    through again great where having evening looking always together answered father mother children behind between
    country returned because window remember letter moment silence question almost daughter business brother married
    against already perhaps stranger suddenly whether beautiful himself
"""
_RARE = (
    "vicarage lozenge gwine tarnation Raskolnikov Pickwickian déjà vu mutatis mutandis schoolhouse ye'll h2so4 o'clock"
)


def write_misread(count: int = 200, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(_WORDS.split(), k=40)) for _ in range(count)]


def find_in_many(text: str) -> str | None:
    found = find_misread([*write_misread(), text])
    assert found is not None
    assert found[:-1] == [None] * 200
    return found[-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("he said notliing of tbis to anotber", "notliing (nothing), anotber (another)"),
        ("moming and aiways, a qucstion", "moming (morning), aiways (always), qucstion (question)"),
        ("bcautiful daughtcr", "bcautiful (beautiful), daughtcr (daughter)"),
        ("it donâ€™t know, lâ€™homme libÃ©rÃ©s", "donâ€™t, lâ€™homme, libã©rã©s"),
        ("w^as so m■ch", "w^as, m■ch"),
    ],
)
def test_a_text_with_several_suspicious_words_shows_them(text, expected):
    assert find_in_many(text) == expected


_ENCODED = " ".join(base64.b64encode(random.Random(i).randbytes(57)).decode() for i in range(4))


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        (_ENCODED, True),
        ("the commit 1f3870be274f6c49b3e31a0c6728957f of 8b1a9953c4611296a827abf8c47804d7", True),
        (_RARE, False),
        ("there was notliing", False),
        ("notliing notliing notliing", False),
        ("notliing anotber " + "house " * 198, True),
        ("notliing anotber " + "house " * 199, False),
    ],
)
def test_encoded_data_and_several_misread_words_are_suspicious_but_no_rare_ones(text, is_found):
    assert (find_in_many(text) is not None) == is_found


@pytest.mark.parametrize(("count", "is_misread"), [(5, True), (25, False)])
def test_a_word_that_is_not_much_rarer_is_one_of_its_own(count, is_misread):
    found = find_misread([*write_misread(), *["notliing anotber"] * count])  # some 100 texts have the right words
    assert found is not None
    assert (found[-1] is not None) == is_misread


def test_nothing_is_known_of_texts_that_share_few_words():
    assert find_misread(write_misread(10)) is None
    assert find_misread(["今天的天气很好，我们去公园散步。"] * 100) is None


@given(st.lists(st.text(max_size=60), max_size=5))
def test_any_text_can_be_searched(texts):
    found = find_misread([*write_misread(100), *texts])
    assert found is not None
    assert len(found) == 100 + len(texts)


# ---- whole sets ----


def audit(folder: Path, text: str, **settings: object) -> dict[str, Check]:
    (folder / "in.txt").write_text(text)
    train_vocab(folder / "in.txt", folder / "vocab", config=VocabConfig(vocab_size=130), workers=1)
    config = BuildConfig.from_settings(max_seq_len=64, document_rule="file", validation_fraction=0.0, **settings)
    build(folder / "in.txt", folder / "out", tokenizer=folder / "vocab", config=config, workers=1)
    return {check.rule.name: check for check in audit_folder(folder / "out").checks}


def test_a_book_with_its_pages_is_bad_until_it_is_unwrapped(tmp_path):
    text, _ = paginate("dashes and a head")
    for name, settings, verdict in (("as it is", {}, BAD), ("unwrapped", {"unwrap": True}, OK)):
        (tmp_path / name).mkdir()
        check = audit(tmp_path / name, text, **settings)["page_furniture"]
        assert check.verdict == verdict, check.finding


def test_tables_are_bad(tmp_path):
    rng = random.Random(0)
    lines = [" ".join(str(rng.randrange(100)) for _ in range(25)) for _ in range(60)]
    check = audit(tmp_path, "\n".join([*PARAGRAPHS, *lines]))["number_tables"]
    assert check.verdict == BAD
    assert check.details["examples"]


@pytest.mark.parametrize(("added", "verdict"), [([], OK), ([CHINESE * 9], LOOK)])
def test_a_chinese_paragraph_among_english_ones_is_to_be_looked_at(tmp_path, added, verdict):
    check = audit(tmp_path, "\n".join([*PARAGRAPHS, *added]))["other_scripts"]
    assert check.verdict == verdict, check.finding


@pytest.mark.parametrize(("share", "verdict"), [(0, OK), (0.1, LOOK)])
def test_a_scan_is_to_be_looked_at_and_the_same_text_without_errors_is_not(tmp_path, share, verdict):
    rng = random.Random(0)

    def scan(word: str) -> str:
        at = rng.choice([found.start() for found in re.finditer("[hmel]", word)] or [0])
        return word[:at] + {"h": "li", "m": "rn", "e": "c", "l": "1"}.get(word[at], word[at]) + word[at + 1 :]

    words = [*map("".join, itertools.pairwise(ENGLISH_WORDS.split()))]
    text = [word if rng.random() > share else scan(word) for word in rng.choices(words, k=20_000)]
    lines = [" ".join(text[at : at + 10]) + "." for at in range(0, len(text), 10)]
    check = audit(tmp_path, "\n".join(lines))["misread_words"]
    assert check.verdict == verdict, check.finding
