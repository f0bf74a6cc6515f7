"""Segments B change places between rows of different documents, of nearly equal lengths; nothing else changes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import build_fixtures as fixtures
import numpy as np
import pytest
from build_fixtures import digest_shards, make_documents, run_build
from hypothesis import given
from hypothesis import strategies as st
from toy_documents import as_pairs

from albert_data.config import ExampleConfig
from albert_data.data import Pairs
from albert_data.examples.exchange import CLOSE, LOOK_BACK, SLACK, exchange_segments
from albert_data.pipeline.exchanging import describe_shortages
from albert_data.shards.reader import Shards, open_shards
from albert_data.tokenizer.model import Tokenizer

CLS, SEP = 2, 3
MAX_LEN = 40


@dataclass(frozen=True)
class PlainRow:
    """A row of the reference. b: empty in a row without a pair."""

    a: list[int]
    b: list[int]
    label: int
    key: int
    source: int

    def __len__(self) -> int:  # as a row of tokens
        return len(self.a) + len(self.b) + (3 if self.b else 2)


def exchange_plainly(rows: list[PlainRow], random_label: int) -> tuple[list[PlainRow], list[int]]:
    """The rule in plain words; also the row that each B comes from."""
    partners = list(range(len(rows)))
    chosen = [number for number, row in enumerate(rows) if row.label == random_label]
    waiting: list[int] = []
    slack = SLACK * MAX_LEN // len(chosen) if chosen else 0
    for number in sorted(chosen, key=lambda number: (rows[number].source, len(rows[number].b), number)):
        row = rows[number]
        for other in waiting[: -LOOK_BACK - 1 : -1]:  # the last ones, from the end
            growth = len(row.b) - len(rows[other].b)
            is_close = growth * CLOSE <= len(rows[other].b) + 1 or growth <= slack
            is_other = rows[other].source == row.source and rows[other].key != row.key
            if is_close and is_other and len(rows[other]) + growth <= MAX_LEN:
                partners[number], partners[other] = other, number
                waiting.remove(other)
                break
        else:
            waiting.append(number)
    made = []
    for number, row in enumerate(rows):
        label = 0 if row.label == random_label and partners[number] == number else row.label
        made.append(replace(row, b=rows[partners[number]].b, label=label))
    return made, partners


def lay_out(rows: list[PlainRow]) -> Pairs:
    ids = [[CLS, *row.a, SEP, *([*row.b, SEP] if row.b else [])] for row in rows]
    return as_pairs([(one, len(row.a), row.label, row.key) for one, row in zip(ids, rows, strict=True)])


def make_row(draw: st.DrawFn, task: str, num_documents: int, num_sources: int) -> PlainRow:
    length_a = draw(st.integers(1, MAX_LEN - 4))
    length_b = draw(st.integers(0, MAX_LEN - 3 - length_a))
    num_labels = len(ExampleConfig(pairs=task).task.orders)
    return PlainRow(
        a=[draw(st.integers(5, 99))] * length_a,
        b=[draw(st.integers(100, 199))] * length_b,
        label=draw(st.integers(0, num_labels - 1)) if length_b else -1,
        key=draw(st.integers(0, num_documents - 1)),
        source=draw(st.integers(0, num_sources - 1)),
    )


@st.composite
def slices(draw: st.DrawFn) -> tuple[str, list[PlainRow]]:
    task = draw(st.sampled_from(["nsp", "order3"]))
    num_documents, num_sources = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    return task, [make_row(draw, task, num_documents, num_sources) for _ in range(draw(st.integers(0, 60)))]


def run(task: str, rows: list[PlainRow]) -> tuple[Pairs, np.ndarray]:
    sources = np.array([row.source for row in rows], np.uint16)
    return exchange_segments(lay_out(rows), sources, ExampleConfig(max_seq_len=MAX_LEN, pairs=task))


@given(slices())
def test_the_kernel_equals_the_plain_rule(given_rows):
    task, rows = given_rows
    found, partners = run(task, rows)
    expected, expected_partners = exchange_plainly(rows, ExampleConfig(pairs=task).task.label_of("random"))
    wanted = lay_out(expected)
    for name in ("ids", "offsets", "segment_a_len", "sop_label", "document_keys"):
        assert np.array_equal(getattr(found, name), getattr(wanted, name)), name
    assert partners.tolist() == expected_partners


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_nearly_all_rows_that_can_find_partners_where_many_are_of_one_document(share):
    rng = random.Random(0)
    num_rows = 400
    keys = [0 if i < share * num_rows else i for i in range(num_rows)]
    rng.shuffle(keys)
    rows = [PlainRow(a=[5], b=[6] * 20, label=1, key=key, source=0) for key in keys]
    pairs, _ = run("nsp", rows)
    possible = num_rows - max(0, int(2 * share * num_rows) - num_rows)
    assert (pairs.sop_label == 1).sum() >= 0.95 * possible


# ---- builds ----

DOCUMENTS = make_documents(250, seed=1)


@pytest.fixture(autouse=True, scope="module")
def small_tasks():
    with fixtures.small_tasks():
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    fixtures.write_corpus(folder, DOCUMENTS, "txt", random.Random(0))
    return folder


@pytest.fixture(scope="module", params=["nsp", "order3"])
def built(request: pytest.FixtureRequest, corpus: Path, tokenizer: Tokenizer, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp(request.param) / "out"
    run_build(corpus, out, tokenizer, pairs=request.param, num_shards=2)
    return out


def all_rows(out: Path) -> list[Shards]:
    return [open_shards(out, split) for split in ("train", "validation")]


def sentences_of(shards: Shards) -> Counter[tuple[int, ...]]:
    """The tokens of each segment, before masking."""
    segments: Counter[tuple[int, ...]] = Counter()
    for example in shards:
        sep, ids = 1 + example.segment_a_len, example.original_ids.tolist()
        segments.update(tuple(part) for part in (ids[1:sep], ids[sep + 1 : -1]) if part)
    return segments


def test_slices_that_are_read_in_parts_have_the_same_rows(corpus, tokenizer, tmp_path, monkeypatch):
    """With many copies a slice is read in parts; segments change places in the whole of it."""
    monkeypatch.setattr("albert_data.pipeline.shard_plan.SLICE_BYTES", 1 << 13)
    run_build(corpus, tmp_path / "once", tokenizer, pairs="nsp")
    fixtures.write_corpus(tmp_path / "in", 4 * DOCUMENTS, "txt", random.Random(3))
    monkeypatch.setattr("albert_data.pipeline.merge_rows._SLICES_READ", 1)
    run_build(tmp_path / "in", tmp_path / "out", tokenizer, pairs="nsp")
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "once")


def test_each_pass_holds_every_token_once(corpus, tokenizer, tmp_path, built):
    """Against the same build without an exchange: the same segments, and the same number of rows."""
    run_build(corpus, tmp_path / "sop", tokenizer, num_shards=2)
    for shards, others in zip(all_rows(built), all_rows(tmp_path / "sop"), strict=True):
        assert len(shards) == len(others)
        assert sentences_of(shards) == sentences_of(others)


def test_keys_labels_and_counts_say_where_segments_are_from(built):
    manifest = open_shards(built).manifest
    assert describe_shortages(manifest) == []
    task = manifest.config.examples.task
    assert manifest.label_names == (task.orders or None)
    for shards in all_rows(built):
        totals = manifest.splits[shards.split]
        labels = Counter(example.sop_label for example in shards)
        assert totals.num_unpaired == labels[-1]
        assert totals.num_random == labels[task.label_of("random")] > 0
        for example in shards:
            is_random = example.sop_label == task.label_of("random")
            assert (example.document_key != example.document_key_b) == is_random


def test_masks_are_drawn_after_the_exchange_so_their_number_tells_nothing(corpus, tokenizer, tmp_path):
    """Of single pieces exactly 15 % are masked, rounded up or down. Masks that came along with B would break that."""
    run_build(corpus, tmp_path / "out", tokenizer, pairs="nsp", masking="token")
    shards = open_shards(tmp_path / "out")
    for example in shards:
        num_pieces = np.count_nonzero(~shards.tokenizer.specials.is_special[example.original_ids])
        assert abs(len(example.masked_positions) - 0.15 * num_pieces) < 1


def test_a_corpus_of_one_document_has_no_random_segment_and_the_build_says_so(tokenizer, tmp_path):
    (tmp_path / "in.txt").write_text(fixtures.make_lines(random.Random(1), 60))
    manifest = run_build(tmp_path / "in.txt", tmp_path / "out", tokenizer, pairs="nsp").manifest
    assert manifest.splits["train"].num_random == 0
    assert {example.sop_label for example in open_shards(tmp_path / "out")} <= {0, -1}
    [said] = describe_shortages(manifest)
    assert "train: 0 of" in said
