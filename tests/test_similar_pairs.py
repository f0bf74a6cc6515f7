"""Near-duplicates side by side: the words that differ are marked, in scripts without spaces the characters."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from albert_data.dedup.shingles import divide_text
from albert_data.inspect.similar_pairs import mark_differences
from albert_data.pipeline.similar_texts import cut_around_difference
from albert_data.shards.manifest import NearDuplicate


@given(st.text(st.sampled_from("ab \u3000漢字ก่\n"), max_size=30), st.text(st.sampled_from("ab 漢字ก่"), max_size=30))
def test_marked_texts_are_those_texts_and_what_is_not_marked_is_the_same(text: str, other: str):
    pair = NearDuplicate(dropped="", kept="", similarity=0.9, dropped_text=text, kept_text=other)
    shown = mark_differences(pair, "[{}]".format, str)
    assert [re.sub("[][]", "", one) for one in shown] == [" ".join(one.split()) for one in (text, other)]
    left = [re.sub(r"\s", "", re.sub(r"\[.*?\]", "", one)) for one in shown]
    assert left[0] == left[1]


def test_characters_that_differ_are_marked_in_scripts_without_spaces():
    assert divide_text("ab\u3000漢字c ก่ข") == ["ab", " 漢", "字", "c", " ก่", "ข"]
    texts = {"dropped_text": "今天天气很好。我们去公园", "kept_text": "今天天气不好。我们都去公园"}
    pair = NearDuplicate(dropped="", kept="", similarity=0.9, **texts)
    wanted = "今天天气[很]好。我们去公园", "今天天气[不]好。我们[都]去公园"
    assert mark_differences(pair, "[{}]".format, str) == wanted
    assert cut_around_difference("天" * 30 + "很好", "天" * 30 + "不好")[0].endswith("天天很好")
