"""Rows hold every token of every document once, in two segments of one document, cut between words."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import references
import toy_documents
from hypothesis import given
from hypothesis import strategies as st
from toy_documents import CLS, RULE, SEP, SPECIALS, KeyedDocument, as_documents, plain_rows, plain_vocabulary

from albert_data.config import ExampleConfig
from albert_data.data import Pairs
from albert_data.examples.pairs import cut_documents, make_pairs

configs = st.builds(
    ExampleConfig,
    max_seq_len=st.integers(8, 40),
    pairs=st.sampled_from(["sop", "nsp", "order3"]),
    short_seq_prob=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 2**63 - 1),
)
unpaired = st.builds(lambda config: replace(config, pairs="none"), configs)
passes = st.integers(0, 1000)


def make(
    keyed: list[KeyedDocument],
    config: ExampleConfig,
    pass_index: int = 0,
    dtype: type = np.uint16,
    is_heading: list[bool] | None = None,
) -> Pairs:
    pairs = make_pairs(as_documents(keyed, dtype, is_heading), SPECIALS, RULE, config, pass_index)
    assert pairs.ids.dtype == dtype
    assert (pairs.offsets.dtype, pairs.segment_a_len.dtype) == (np.int64, np.int32)
    assert (pairs.sop_label.dtype, pairs.document_keys.dtype) == (np.int8, np.uint64)
    assert pairs.indices.dtype == np.uint32
    return pairs


def segments(row: tuple[list[int], int, int, int, int], config: ExampleConfig) -> tuple[list[int], list[int]]:
    """The two segments of a row in the order of the document; checks the special tokens around them."""
    ids, a_len, label, *_ = row
    a, b = ids[1 : 1 + a_len], ids[2 + a_len : -1]
    expected = [CLS, *a, SEP] if label == -1 else [CLS, *a, SEP, *b, SEP]
    assert ids == expected
    return (b, a) if label == config.task.label_of("swapped") else (a, b)


# ---- the reference ----


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@given(keyed=toy_documents.documents, config=configs | unpaired, pass_index=passes)
def test_rows_equal_the_plain_reference(dtype, keyed, config, pass_index):
    assert plain_rows(make(keyed, config, pass_index, dtype)) == expect(keyed, config, pass_index)


@given(toy_documents.documents, configs, st.data())
def test_rows_with_headings_equal_the_plain_reference(keyed, config, data):
    num_sentences = sum(len(document) for _, document in keyed)
    is_heading = data.draw(st.lists(st.booleans(), min_size=num_sentences, max_size=num_sentences))
    assert plain_rows(make(keyed, config, is_heading=is_heading)) == expect(keyed, config, 0, is_heading)


def expect(keyed: list[KeyedDocument], config: ExampleConfig, pass_index: int, is_heading: list[bool] | None = None):
    """The rows of the reference, as `plain_rows` gives those of the fast code."""
    rows, first = [], 0
    for key, document in keyed:
        headings = is_heading and is_heading[first : first + len(document)]
        first += len(document)
        made = references.make_rows(document, key, plain_vocabulary(), config, pass_index, headings)
        rows += [(row.ids, row.segment_a_len, row.label, key, row.index) for row in made]
    return rows


# ---- what is true of all rows ----


def choose(keyed: list[KeyedDocument], config: ExampleConfig, pass_index: int = 0) -> np.ndarray:
    """Document, begin, split and end of every row, in tokens from the first of all documents: int64 [rows, 4]."""
    documents = as_documents(keyed, np.uint16)
    cuts = cut_documents(documents, RULE, config, pass_index)
    return np.stack([cuts.owners, cuts.begins, cuts.splits, cuts.ends], axis=1)


many_sentences = st.lists(st.lists(st.sampled_from([5, 6, 10]), min_size=1, max_size=3), max_size=40)
long_sentences = st.lists(st.lists(st.sampled_from([5, 6, 10, 15]), min_size=1, max_size=99), max_size=4)  # 15: a comma


@given(many_sentences | long_sentences, configs | unpaired, st.integers(1, 7))
def test_rows_of_many_or_long_sentences_in_later_passes_equal_the_plain_reference(document, config, pass_index):
    assert plain_rows(make([(1, document)], config, pass_index)) == expect([(1, document)], config, pass_index)


@given(toy_documents.documents, configs | unpaired, passes)
def test_every_token_is_in_one_row_of_each_pass_and_in_order(keyed, config, pass_index):
    chosen = choose(keyed, config, pass_index)
    tokens = [token for _, document in keyed for sentence in document for token in sentence]
    for row, (_, begin, split, end) in zip(plain_rows(make(keyed, config, pass_index)), chosen, strict=True):
        first, second = segments(row, config)
        assert (first, second) == (tokens[begin:split], tokens[split:end])
        assert len(row[0]) <= config.max_seq_len
        assert first
        assert bool(second) == (row[2] != -1)
    bounds = np.cumsum([0, *(sum(map(len, document)) for _, document in keyed)])
    at = 0
    for owner, begin, _, end in sorted(chosen.tolist(), key=lambda row: row[1]):
        assert begin == at
        assert bounds[owner] <= begin < end <= bounds[owner + 1]
        at = end
    assert at == len(tokens)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("the , the the the the the the", "the , the the / the the the the"),  # farther than half of a share away
        ("the the , the the the the the", "the the , / the the the the the"),
        ("the the the the the , the the", "the the the the / the , the the"),  # beyond a row
        ("the the , s the the the the", "the the , s / the the the the"),  # as in 1,000
        ("the 中 、 中 the the the the", "the 中 、 / 中 the the the the"),
    ],
)
def test_a_long_sentence_is_cut_at_the_clause_nearest_to_an_equal_share(words, expected):
    """In rows of up to 5 tokens."""
    pieces = [piece.removeprefix("▁") for piece in toy_documents.PIECES]
    document = [[pieces.index(word) for word in words.replace("、", ",").split()]]
    rows = plain_rows(make([(1, document)], ExampleConfig(max_seq_len=8)))
    assert " / ".join(read(ids[1:-1]) for ids, *_ in rows) == expected.replace("、", ",")


@pytest.mark.parametrize(("pairs", "pass_index"), [("sop", 0), ("sop", 1), ("sop", 2), ("nsp", 0), ("order3", 0)])
def test_all_labels_of_a_task_are_equally_likely_whatever_the_pass(pairs, pass_index):
    config = ExampleConfig(max_seq_len=32, pairs=pairs)
    labels = many_rows(config, pass_index).sop_label
    counts = np.bincount(labels[labels >= 0])
    assert len(counts) == len(config.task.orders)
    expected = counts.sum() / len(counts)
    assert abs(counts - expected).max() < 5 * math.sqrt(expected)


# ---- literal documents ----

THE, CAT, ING, COMMA, ZHONG = 5, 6, 10, 15, 18


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([[]], {""}),
        ([[THE], [], [CAT, ING]], {"the|cat ing"}),
        ([[THE] * 4, [CAT] * 4], {"the the the the / cat cat cat cat"}),
        ([[THE] * 2, [CAT] * 2, [THE] * 2], {"the the|cat cat / the the", "the the / cat cat|the the"}),
        # Filled greedily from the front: "the the|cat / the the the / cat cat".
        ([[THE] * 2, [CAT], [THE] * 3, [CAT] * 2], {"the the|cat / the the the|cat cat"}),
        ([[THE, THE, ING, ING, ING, ING, CAT]], {"the / the ing ing ing ing / cat"}),
        ([[THE], [CAT], [THE] * 6, [CAT]], {"the|cat / the the the / the the the / cat"}),
    ],
)
def test_the_rows_of_literal_documents(document, expected):
    """Rows of up to 5 tokens, parted by /, their segments by |; whatever the draws are, one of these."""
    config = ExampleConfig(max_seq_len=8, short_seq_prob=0.0)
    tokens = [token for sentence in document for token in sentence]
    found = set()
    for key in range(64):
        spans = sorted((begin, split, end) for _, begin, split, end in choose([(key, document)], config).tolist())
        rows = ["|".join(read(tokens[at:to]) for at, to in ((a, b), (b, c)) if at < to) for a, b, c in spans]
        found.add(" / ".join(rows))
    assert found == expected


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((1, 1, 4), [(0, 1), (1, 6)]),
        ((2, 6), [(0, 4), (4, 8)]),  # longer than a row without the heading, too
    ],
)
def test_headings_are_taken_off_a_sentence_that_fits_a_row_without_them(lengths, expected):
    """Rows of up to 5 tokens; all sentences but the last are headings."""
    documents = as_documents([(1, [[THE] * length for length in lengths])], is_heading=[True] * len(lengths))
    cuts = cut_documents(documents, RULE, ExampleConfig(max_seq_len=8), 0)
    assert list(zip(cuts.begins.tolist(), cuts.ends.tolist(), strict=True)) == expected
    assert set(cuts.labels.tolist()) == {-1}


def read(ids: list[int]) -> str:
    return " ".join(toy_documents.PIECES[token].removeprefix("▁") for token in ids)


# ---- shares ----


def many_rows(config: ExampleConfig, pass_index: int = 0) -> Pairs:
    """About 8,000 rows of sentences of one token, so that each row has just its target length."""
    keyed = [(key, [[THE]] * 400 * config.max_tokens) for key in range(16)]
    return make(keyed, config, pass_index)


@pytest.mark.parametrize("max_seq_len", [8, 32])
@pytest.mark.parametrize("short_seq_prob", [0.0, 0.1, 1.0])
def test_the_share_and_the_lengths_of_short_rows_are_the_configs(short_seq_prob, max_seq_len):
    """A short target is uniform in [2, max], so it is max itself once in max - 1 times."""
    config = ExampleConfig(max_seq_len=max_seq_len, short_seq_prob=short_seq_prob, seed=3)
    pairs = many_rows(config)
    is_last = np.append(pairs.document_keys[1:] != pairs.document_keys[:-1], True)
    lengths = (np.diff(pairs.offsets) - 3)[~is_last]  # the last row of a document takes what is left
    expected = np.full(config.max_tokens + 1, short_seq_prob / (config.max_tokens - 1))
    expected[:2] = 0.0
    expected[-1] += 1.0 - short_seq_prob
    found = np.bincount(lengths, minlength=len(expected)) / len(lengths)
    tolerance = 5 * np.sqrt(expected * (1 - expected) / len(lengths))
    assert (np.abs(found - expected) <= tolerance).all()


def test_the_first_row_of_a_document_is_split_at_any_boundary_with_equal_probability():
    config = ExampleConfig(max_seq_len=13, short_seq_prob=0.0)
    chosen = choose([(key, [[THE] * length for length in (1, 4, 2, 3)]) for key in range(20_000)], config)
    found = np.array([np.mean(chosen[:, 2] - chosen[:, 1] == at) for at in (1, 5, 7)])
    assert np.abs(found - 1 / 3).max() < 5 * math.sqrt(1 / 3 * 2 / 3 / len(chosen))


@pytest.mark.parametrize(
    "lengths",
    [
        (3, 2, 8, 4, 8, 2, 3),  # whole sentences of several lengths
        (2, 1, 25, 3, 4, 3, 25, 1, 2),  # some longer than a row
    ],
)
@pytest.mark.parametrize("pass_index", [0, 2])
def test_lengths_do_not_show_which_segment_is_the_earlier_one(lengths, pass_index):
    """A document whose sentences read backwards are as long has every row as often as its mirror image."""
    config = ExampleConfig(max_seq_len=13, short_seq_prob=0.3)
    size, num_documents = sum(lengths), 40_000
    keyed = [(key, [[THE] * length for length in lengths]) for key in range(num_documents)]
    chosen = choose(keyed, config, pass_index)
    chosen = chosen[chosen[:, 2] < chosen[:, 3]]
    begins, splits, ends = (chosen[:, 1:] - size * chosen[:, :1]).T
    counts = np.zeros((size + 1,) * 3)
    np.add.at(counts, (begins, splits, ends), 1)
    mirrored = counts.transpose(2, 1, 0)[::-1, ::-1, ::-1]
    is_off = np.abs(counts - mirrored) > 5 * np.sqrt(counts + mirrored)
    assert not is_off.any(), (np.argwhere(is_off), counts[is_off])


@pytest.mark.parametrize(("per_row", "limit"), [(5, 0.3), (20, 0.03)])
def test_few_rows_of_a_later_pass_are_those_of_an_earlier_one(per_row, limit):
    """Sentences have log-normal lengths, and about `per_row` fit a row. A pass takes at most 10 % more rows."""
    lengths = np.random.default_rng(1).lognormal(2.8, 0.7, 5000).astype(int).clip(2, 20 * per_row)
    keyed = [(key, [[THE] * length for length in part]) for key, part in enumerate(lengths.reshape(50, 100).tolist())]
    config, made = ExampleConfig(max_seq_len=3 + 20 * per_row), []
    for pass_index in range(5):
        chosen = choose(keyed, config, pass_index)
        made.append(set(map(tuple, chosen[:, [1, 3]].tolist())))
    repeated = [len(rows & set().union(*made[:number])) for number, rows in enumerate(made)]
    assert sum(repeated) < limit * sum(map(len, made[1:]))
    assert max(map(len, made)) < 1.1 * len(made[0])
