"""The shipped Unicode tables are those of their version."""

from __future__ import annotations

import sys
import unicodedata

import numpy as np
import pytest

from albert_data.text.unicode_tables import categories, category, script, scripts, unicode_version


def test_examples_of_every_kind():
    assert [category(character) for character in "aA1 。\u0301\U0010ffff"] == ["Ll", "Lu", "Nd", "Zs", "Po", "Mn", "Cn"]
    assert [script(character) for character in "a漢あｱก。"] == ["LATIN", "CJK", "HIRAGANA", "KATAKANA", "THAI", "-"]
    assert len(categories()[0]) == len(scripts()[0]) == sys.maxunicode + 1


def test_characters_of_older_tables_keep_their_category():
    """What Python's own version assigns is assigned alike in ours, or in a newer version than Python's."""
    numbers, names = categories()
    ours = np.array(names)[numbers]
    theirs = np.array([unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)])
    assert np.count_nonzero((ours != theirs) & (ours != "Cn") & (theirs != "Cn")) < 20


@pytest.mark.skipif(unicodedata.unidata_version != unicode_version(), reason="this Python has other Unicode tables")
def test_table_equals_python_s_of_the_same_version():
    numbers, names = categories()
    assert [unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)] == np.array(names)[numbers].tolist()
