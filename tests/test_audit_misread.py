"""The audit finds misread words, symbols inside words and encoded data, and none in names, dialect and rare words."""

from __future__ import annotations

import base64
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_data.inspect.audit.misread import find_misread, list_look_alikes

# Words of which each text has many: so each stands in more than twenty texts.
_WORDS = [
    *(
        "there",
        "which",
        "would",
        "little",
        "before",
        "himself",
        "another",
        "nothing",
        "thought",
        "without",
        "something",
    ),
    *("house", "people", "morning", "should", "through", "again", "great", "where", "having", "evening", "looking"),
    *("always", "together", "answered", "father", "mother", "children", "behind", "between", "country", "returned"),
    *("because", "window", "remember", "letter", "moment", "silence", "question", "almost", "daughter", "business"),
    *("brother", "married", "against", "already", "perhaps", "stranger", "suddenly", "whether", "beautiful", "himself"),
]
_RARE = (
    "vicarage lozenge gwine tarnation Raskolnikov Pickwickian déjà vu mutatis mutandis schoolhouse ye'll h2so4 o'clock"
)


def write(count: int = 200, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(_WORDS, k=40)) for _ in range(count)]


def find(text: str) -> str | None:
    found = find_misread([*write(), text])
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
def test_a_text_with_several_suspicious_words_shows_them(text: str, expected: str):
    assert find(text) == expected


def test_encoded_data_is_suspicious():
    lines = [base64.b64encode(random.Random(i).randbytes(57)).decode() for i in range(4)]
    assert find(" ".join(lines)) is not None
    assert find("the commit 1f3870be274f6c49b3e31a0c6728957f of 8b1a9953c4611296a827abf8c47804d7") is not None


def test_names_dialect_and_rare_words_are_not():
    assert find(_RARE) is None


def test_one_misread_word_is_not_enough():
    assert find("there was notliing") is None
    assert find("notliing notliing notliing") is None
    assert find("notliing anotber " + "house " * 198) is not None
    assert find("notliing anotber " + "house " * 199) is None


@pytest.mark.parametrize(("count", "is_misread"), [(5, True), (25, False)])
def test_a_word_that_is_not_much_rarer_is_one_of_its_own(count: int, is_misread: bool):
    found = find_misread([*write(), *["notliing anotber"] * count])  # some 100 texts have the right words
    assert found is not None
    assert (found[-1] is not None) == is_misread


def test_nothing_is_known_of_texts_that_share_few_words():
    assert find_misread(write(10)) is None
    assert find_misread(["今天的天气很好，我们去公园散步。"] * 100) is None


@given(
    st.text("abli1", max_size=6),
    st.dictionaries(st.text("abli1", min_size=1, max_size=3), st.lists(st.text("abli1", max_size=2), max_size=3)),
)
def test_look_alikes_are_all_texts_with_one_place_replaced(word: str, alike: dict[str, list[str]]):
    expected = sorted(
        word[:at] + other + word[at + len(one) :]
        for one, others in alike.items()
        for other in others
        for at in range(len(word))
        if word.startswith(one, at)
    )
    assert sorted(list_look_alikes(word, alike)) == expected


@given(st.lists(st.text(max_size=60), max_size=5))
def test_any_text_can_be_searched(texts: list[str]):
    found = find_misread([*write(100), *texts])
    assert found is not None
    assert len(found) == 100 + len(texts)
