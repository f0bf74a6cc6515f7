"""Language codes: what is known, what stands for what, what is said of an unknown one; and the language of a script."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused

from albert_data.config import TextConfig
from albert_data.corpus.damage import Damage
from albert_data.errors import ConfigError, InputError
from albert_data.text.languages import (
    MAX_NAMES,
    choose_rules,
    decode_language,
    encode_source,
    is_language,
    is_source_name,
    list_languages,
    name_sources,
    normalise_language,
    normalise_source,
)

PRIMARY_CODES = {"en": "en EN", "pt": "pt-BR por_PT", "zh": "zh_Hant zh-hans cmn", "de": "deu ger", "he": "iw"}
PRIMARY_CODES |= {"yue": "yue", "ak": "aka_akuapem"}


@pytest.mark.parametrize("primary", PRIMARY_CODES)
def test_a_language_has_one_primary_code(primary):
    for code in PRIMARY_CODES[primary].split():
        assert is_language(code)
        assert normalise_language(code) == TextConfig(language=code).language == primary


SUGGESTIONS = {
    **{"english": " (did you mean en, English?)", "Germann": " (did you mean de, German?)"},
    **dict.fromkeys(("", "e", "eng1", "007", "ｅｎ", "en/US", "../en"), ""),
}


@pytest.mark.parametrize("code", SUGGESTIONS)
def test_an_unknown_code_is_an_error_with_a_suggestion(code):
    assert not is_language(code)
    named = f"language is {code!r}, which is no known ISO 639 code{SUGGESTIONS[code]} & name one such as"
    check_refused(lambda: normalise_language(code), ConfigError, named)


def test_all_languages_of_iso_639_are_known():
    languages = list_languages()
    assert len([code for code in languages if len(code) == 2]) >= 183
    assert len(languages) > 7900  # of ISO 639-3 in 2023: 7,910, less those of the groups in _list_other_codes
    assert all(normalise_language(code) == code for code in languages)
    assert all(normalise_language(code) == code for code in ["kea", "crs", "toj", "boa", "nah", "mis", "und", "zxx"])
    assert not any(map(is_language, ["qaa", "xx", "zzz"]))  # for local use, or of nothing


@given(st.sampled_from(sorted(list_languages())) | st.text("abcxyz", min_size=2, max_size=3).filter(is_language))
def test_a_code_is_a_number_and_read_back(code):
    assert 0 < encode_source(normalise_language(code)) < 2**24
    assert decode_language(encode_source(normalise_language(code))) == normalise_language(code)


# ---- sources ----


NAMES = {
    **{"pt-BR": "pt", " DEU ": "de", "English": "English", " web/cc ": "web/cc", "x" * 64: "x" * 64, "x" * 65: None},
    **{"de-" + "x" * 999: "de", "": None, " \t": None},
    "web" + " " * 200: None,  # so long a value is not searched for its end
    **{f"a{mark}b": None for mark in "\0\n\x1b\x85\u2028\u202e\u200f\ufeff\ud800\ufffd\U000e0041"},
}


@pytest.mark.parametrize("value", NAMES, ids=ascii)
def test_a_field_names_a_language_or_another_source_or_none(value):
    assert normalise_source(value) == NAMES[value]


@given(st.text(min_size=1, max_size=70))
def test_a_source_is_itself_and_without_a_code_it_has_the_rules_without_words(value):
    name = normalise_source(value)
    if name is None:
        return
    assert is_source_name(name)
    assert normalise_source(name) == name
    assert 0 < encode_source(name) < 2**32
    assert choose_rules(name) == decode_language(encode_source(name)) == (name if is_language(name) else "und")


def test_sources_are_named_in_sorted_order_and_only_those_with_documents():
    names = {"web/cc", "klingon", "Ärzte", "empty"}
    used = ("web/cc", "zh", "de", "klingon", "kea", "Ärzte")
    found = name_sources(map(encode_source, used), names)
    assert list(found.items()) == [(name, encode_source(name)) for name in sorted(used)]


def test_two_names_with_one_hash_are_an_error(monkeypatch):
    monkeypatch.setattr("albert_data.text.languages.sha256", lambda name: sha256())
    with pytest.raises(InputError, match="the names 'a1' and 'b1', which have the same hash; rename one"):
        name_sources([], ["b1", "a1"])


def test_so_many_names_are_one_error_line():
    one, other = Damage(), Damage()
    one.add_names({f"name {number}" for number in range(MAX_NAMES)})
    other.add_names({"name 0"})
    one.merge(other)
    other.add_names({"one more"})
    named = 'over 1,000 names that are no ISO 639 codes, such as "name 0", & more; name'
    check_refused(lambda: one.merge(other), InputError, named)
