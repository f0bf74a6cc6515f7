"""Counts and percentages are written in one way."""

from __future__ import annotations

import pytest

from albert_data.text.wording import count_of, format_duration, format_share


def test_one_thing_is_singular_and_thousands_are_separated():
    assert [count_of(number, "row") for number in (0, 1, 1234, -1)] == ["0 rows", "1 row", "1,234 rows", "-1 rows"]
    assert [count_of(number, "copy", "copies") for number in (1, 3)] == ["1 copy", "3 copies"]


@pytest.mark.parametrize(
    ("share", "digits", "text"), [(0.15, 2, "15.00 %"), (1.0, 0, "100 %"), (0.00125, 1, "0.1 %"), (20, 0, "2,000 %")]
)
def test_a_share_is_a_percentage_with_a_space_before_its_sign(share, digits, text):
    assert format_share(share, digits) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 min 0 s"), (303, "5 min 3 s"), (12_000, "3 h 20 min"), (86_399, "23 h 59 min"), (1e6, "11 d 13 h")],
)
def test_a_duration_has_its_two_largest_units(seconds, text):
    assert format_duration(seconds) == text
