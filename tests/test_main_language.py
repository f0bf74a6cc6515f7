"""The language of a corpus is found by its script only where that decides."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_data.clean.main_language import count_scripts_of, find_main_language, name_language
from albert_data.config import TextConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.text.unicode_tables import category, script

CHINESE, JAPANESE = "人人生而自由，在尊严和权利上一律平等。", "すべての人間は、生れながらにして自由である。"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_letters_are_counted_by_script(text):
    assert count_scripts_of(text) == Counter(script(letter) for letter in text if category(letter)[0] == "L")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (CHINESE, "zh"),
        (CHINESE * 9 + "さくら", "zh"),  # a name
        (CHINESE + " by WHO", "zh"),
        (JAPANESE, "ja"),
        ("東京都議会議員選挙の結果", "ja"),
        ("모든 인간은 태어날 때부터 자유로우며", "ko"),
        ("มนุษย์ทั้งหลายเกิดมามีอิสระ", "th"),
        ("Όλοι οι άνθρωποι γεννιούνται ελεύθεροι", "el"),
        (f"{CHINESE} All human beings are born free", None),
        ("All human beings are born free", None),
        ("Все люди рождаются свободными", None),
        ("सभी मनुष्यों को गौरव और अधिकारों", None),
        ("1, 2, 3.", None),
    ],
)
def test_a_language_is_named_only_where_the_script_decides(text, language):
    assert name_language(count_scripts_of(text)) == language


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_only_the_text_counts(name, tmp_path):
    record = {"address": "https://example.org/all-human-beings-are-born-free" * 9, "text": CHINESE}
    (tmp_path / name).write_text(CHINESE if name == "a.txt" else json.dumps(record))
    assert find_main_language(find_inputs([str(tmp_path / name)]), TextConfig()) == "zh"
