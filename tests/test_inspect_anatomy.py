"""The anatomy of a row shows what the shards hold: its words, spans and masked tokens are those of the statistics."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from inspect_fixtures import SMALL, configs, get_tokenizer, make_examples, text_documents, write_folder, write_small
from report_fixtures import write_hostile

from albert_data.examples.pairs import SOP_SWAPPED
from albert_data.inspect.choice import RowChoice
from albert_data.inspect.html.anatomy import Segment, choose_row, read_segments, render_anatomy
from albert_data.inspect.html.page import render
from albert_data.inspect.report import inspect_folder
from albert_data.inspect.statistics import measure
from albert_data.shards.reader import Shards, open_shards


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return open_shards(write_small(tmp_path_factory.mktemp("small")))


def spans_of(segments: list[Segment]) -> list[int]:
    return [len(words) for segment in segments for is_masked, words in segment.spans if is_masked]


def kinds_of(segments: list[Segment]) -> Counter[str]:
    spans = (words for segment in segments for _, words in segment.spans)
    return Counter(piece.kind for words in spans for word in words for piece in word)


@given(text_documents().filter(any), configs())
def test_spans_and_kinds_are_those_that_the_statistics_count(tmp_path_factory, documents, config) -> None:
    examples = make_examples(documents, config)
    folder = write_folder(tmp_path_factory.mktemp("shards"), {"train": [examples]}, config)
    shards = open_shards(folder)
    measured, lens, kinds = measure(shards), Counter[int](), Counter[str]()
    for row in range(len(shards)):
        segments = read_segments(shards, row)
        lens.update(spans_of(segments))
        kinds += kinds_of(segments)
        pieces = sum(len(word) for segment in segments for _, words in segment.spans for word in words)
        assert pieces == len(shards[row].input_ids) - 1 - len(segments)
    found = {f"spans_of_{n}": lens[n] / max(lens.total(), 1) for n in range(1, config.longest_span + 1)}
    num_masked = max(kinds.total() - kinds[""], 1)
    names = {"shown_as_mask": "masked", "shown_as_random": "random", "shown_as_kept": "kept"}
    found |= {name: kinds[kind] / num_masked for name, kind in names.items()}
    realised = {figure.name: figure.realised or 0.0 for figure in measured.figures}
    assert found == {name: realised[name] for name in found}


def test_the_same_row_is_chosen_each_time_and_it_shows_much(small: Shards) -> None:
    row = choose_row(small, measure(small))
    assert row is not None
    assert row == choose_row(open_shards(small.folder), measure(small))
    assert small[row].sop_label >= 0
    assert {"masked", "random", "kept"} <= set(kinds_of(read_segments(small, row)))
    best = max(max(spans_of(read_segments(small, other)), default=0) for other in range(len(small)))
    assert max(spans_of(read_segments(small, row))) == best


def test_a_row_that_is_asked_for_is_explained(small: Shards) -> None:
    page = render(inspect_folder(small.folder, split="validation", choice=RowChoice(count=3, numbers=(4, 1))))
    assert "Row 4 of validation: " in page
    assert "It was asked for." in page


def test_sentences_are_in_the_order_of_the_document(small: Shards) -> None:
    row = next(row for row in range(len(small)) if small[row].sop_label == SOP_SWAPPED)
    first, second = read_segments(small, row)
    page = render_anatomy(small, {"train": measure(small)})
    assert first.sentences
    assert second.sentences
    assert page.count("(this row)") == 1
    assert page.index('class="sentences') < page.index('class="order')


@pytest.mark.parametrize("whole_word", [True, False])
def test_each_step_is_explained(tmp_path: Path, whole_word: bool) -> None:
    config = replace(SMALL, whole_word=whole_word)
    tokenizer = get_tokenizer()
    ids = tokenizer.encode(["the river talking quickly people walked"])[0].tolist()
    ids += [tokenizer.piece_texts.index("▁")] if whole_word else []
    shards = open_shards(write_folder(tmp_path, {"train": [make_examples([[ids] * 6] * 30, config)]}, config))
    page = render_anatomy(shards, {"train": measure(shards)})
    assert page.count('<li class="card">') == 5
    assert ("Each box is a word." if whole_word else "Each box is a piece") in page
    assert ("▁ is a space that is a piece of its own." in page) == whole_word
    assert "80 % show [MASK], 10 % show a piece drawn at random, and 10 % stay" in page


def test_a_row_without_a_pair_says_so(tmp_path: Path) -> None:
    ids = get_tokenizer().encode(["the river"])[0].tolist()
    shards = open_shards(write_folder(tmp_path, {"train": [make_examples([[ids]], SMALL)]}, SMALL))
    assert "This row has no pair: label -1." in render_anatomy(shards, {"train": measure(shards)})


def test_a_split_without_rows_has_no_anatomy(tmp_path: Path) -> None:
    shards = open_shards(write_folder(tmp_path, {}))
    assert render_anatomy(shards, {}) == "<p>train has no rows.</p>"


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    page = render(inspect_folder(write_hostile(tmp_path / "shards"), split="train", choice=RowChoice(count=0)))
    anatomy = page.split('<section id="anatomy"')[1].split("</section>")[0]
    assert not {"<img", "<script", "<b ", "<svg"} & {anatomy[i : i + 4] for i in range(len(anatomy))}
