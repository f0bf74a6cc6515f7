"""Language codes: what is known, what stands for what, and what is said of an unknown one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_data.cli.main import run
from albert_data.config import TextConfig
from albert_data.errors import ConfigError
from albert_data.languages import LANGUAGES, is_language, normalise_language, pack_language, unpack_language


@pytest.mark.parametrize(
    ("code", "primary"),
    [
        ("en", "en"),
        ("EN", "en"),
        ("pt-BR", "pt"),
        ("zh_Hant", "zh"),
        ("zh-hans", "zh"),
        ("cmn", "zh"),
        ("deu", "de"),
        ("ger", "de"),
        ("iw", "he"),
        ("por_PT", "pt"),
        ("yue", "yue"),
        ("aka_akuapem", "ak"),
    ],
)
def test_a_language_has_one_primary_code(code: str, primary: str):
    assert is_language(code)
    assert normalise_language(code) == TextConfig(language=code).language == primary


@pytest.mark.parametrize(
    ("code", "suggestion"),
    [
        ("english", " (did you mean en, English?)"),
        ("Germann", " (did you mean de, German?)"),
        ("enn", " (did you mean en, English"),
        ("", ""),
        ("e", ""),
        ("007", ""),
        ("ｅｎ", ""),
        ("en/US", " (did you mean"),
        ("../en", ""),
    ],
)
def test_an_unknown_code_is_an_error_with_a_suggestion(code: str, suggestion: str):
    assert not is_language(code)
    expected = f"language is {code!r}, which is no known ISO 639 code{suggestion}"
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}.*; --language help lists all codes$"):
        normalise_language(code)


def test_all_languages_of_iso_639_1_are_known():
    assert len([code for code in LANGUAGES if len(code) == 2]) >= 183
    assert all(normalise_language(code) == code for code in LANGUAGES)


@given(st.sampled_from(sorted(LANGUAGES)) | st.text(alphabet="abcxyz", min_size=1, max_size=4))
def test_a_code_is_packed_and_unpacked(code: str):
    assert 0 < pack_language(code) < 2**32
    assert unpack_language(pack_language(code)) == code


def test_what_is_no_code_is_not_packed():
    for code in ("", "abcde"):
        with pytest.raises(ValueError, match="1 to 4 can be packed"):
            pack_language(code)


@pytest.mark.parametrize("command", ["build", "vocab"])
def test_language_help_lists_all_codes_in_80_columns(command: str, capsys: pytest.CaptureFixture[str]):
    assert run([command, "--language", "help"]) == 0
    listed = capsys.readouterr().out
    assert max(map(len, listed.splitlines())) <= 80
    assert all(re.search(rf"\b{code} ", listed) for code in LANGUAGES)
    with_words, others = listed.split("Other languages:")
    assert "en English" in with_words
    assert "aa Afar" in others
