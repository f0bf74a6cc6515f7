"""Removed lines are counted exactly, with the same examples however the corpus was divided."""

from __future__ import annotations

import json
import re
from collections import Counter

import build_fixtures as fixtures
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paged_books import PARAGRAPHS, paginate

from albert_data.corpus import removed_lines
from albert_data.corpus.damage import Damage
from albert_data.jobs.receipts import from_values, to_values

lines = st.lists(st.from_regex(r"[ab]{0,2}[0-9]{1,3}[c]?", fullmatch=True), min_size=1, max_size=12)


@given(st.lists(lines, min_size=1, max_size=8))
def test_parts_of_a_corpus_have_the_examples_and_counts_of_the_whole(parts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(removed_lines, "_KEPT", 3)
        total = Damage()
        for part in parts:
            found = Damage()
            found.remove("reason", [line.encode() for line in part])
            total.merge(from_values(to_values(found), Damage))
        whole = [line for part in parts for line in part]
        removed = total.removed["reason"]
        assert (removed.num_lines, removed.num_bytes) == (len(whole), sum(map(len, whole)))
        like = Counter(re.sub("[0-9]+", "0", line) for line in whole)
        assert len(removed.examples) == min(3, len(like))
        for text, count in removed.examples.items():
            form = re.sub("[0-9]+", "0", text)
            assert count == like[form]
            assert text == min(line for line in whole if re.sub("[0-9]+", "0", line) == form)


def test_a_build_without_page_furniture_is_that_of_the_text_without_pages(tmp_path, tokenizer):
    text, furniture = paginate("number between lines", PARAGRAPHS[:6])
    (tmp_path / "paged.txt").write_text(text)
    (tmp_path / "plain.txt").write_text("\n\n".join(PARAGRAPHS[:6]))
    settings = {"documents": "file", "unwrap": True}
    report = fixtures.run_build(tmp_path / "paged.txt", tmp_path / "paged", tokenizer, **settings)
    plain = fixtures.run_build(tmp_path / "plain.txt", tmp_path / "plain", tokenizer, **settings).manifest
    paged = report.manifest
    assert (paged.digest, paged.documents_digest) == (plain.digest, plain.documents_digest)
    assert plain.removed is None
    assert paged.removed is not None
    found = paged.removed["page_furniture"]
    assert (found.num_lines, found.num_bytes) == (len(furniture), sum(map(len, furniture)))
    assert report.removed is not None
    assert report.removed["page_furniture"].rank() == [(min(furniture), len(furniture))]
    # No file keeps the text of a line.
    assert json.loads((tmp_path / "paged/manifest.json").read_bytes())["removed"] == {"page_furniture": vars(found)}
