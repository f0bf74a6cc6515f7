"""The rule of sentences: hard cases, and what holds of any text."""

from __future__ import annotations

import pytest
import sentence_cases

from albert_data import split_sentences

CASES = [
    (language, case) for language, cases in sentence_cases.BY_LANGUAGE.items() for case in cases.strip().splitlines()
]


@pytest.mark.parametrize(("language", "case"), CASES)
def test_hard_cases(language: str, case: str):
    sentences = case.split("|")
    assert split_sentences(case.replace("|", sentence_cases.find_space(language)), language) == sentences
