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
from albert_data.examples.pairs import find_middle_cut, make_pairs
from albert_data.examples.ragged import Pairs

configs = st.builds(
    ExampleConfig,
    max_seq_len=st.integers(8, 40),
    short_seq_prob=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 2**63 - 1),
)
passes = st.integers(0, 1000)


def make(keyed: list[KeyedDocument], config: ExampleConfig, pass_index: int = 0, dtype: type = np.uint16) -> Pairs:
    pairs = make_pairs(as_documents(keyed, dtype), SPECIALS, RULE, config, pass_index)
    assert pairs.ids.dtype == dtype
    assert (pairs.offsets.dtype, pairs.segment_a_len.dtype) == (np.int64, np.int32)
    assert (pairs.sop_label.dtype, pairs.document_keys.dtype) == (np.int8, np.uint64)
    assert pairs.indices.dtype == np.uint32
    return pairs


def segments(row: tuple[list[int], int, int, int, int]) -> tuple[list[int], list[int]]:
    """The two segments of a row in the order of the document; checks the special tokens around them."""
    ids, a_len, label, *_ = row
    a, b = ids[1 : 1 + a_len], ids[2 + a_len : -1]
    expected = [CLS, *a, SEP] if label == -1 else [CLS, *a, SEP, *b, SEP]
    assert ids == expected
    return (b, a) if label == 1 else (a, b)


# ---- the reference ----


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@given(keyed=toy_documents.documents, config=configs, pass_index=passes)
def test_rows_equal_the_plain_reference(
    dtype: type, keyed: list[KeyedDocument], config: ExampleConfig, pass_index: int
):
    expected = [
        (row.ids, row.segment_a_len, row.label, key, row.index)
        for key, document in keyed
        for row in references.make_rows(
            document,
            key,
            plain_vocabulary(),
            max_tokens=config.max_tokens,
            short_seq_prob=config.short_seq_prob,
            seed=config.seed,
            pass_index=pass_index,
        )
    ]
    assert plain_rows(make(keyed, config, pass_index, dtype)) == expected


# ---- what is true of all rows ----


@given(toy_documents.documents, configs)
def test_every_token_is_in_one_row_and_in_order(keyed: list[KeyedDocument], config: ExampleConfig):
    keyed = [(number, document) for number, (_, document) in enumerate(keyed)]
    found: dict[int, list[int]] = {key: [] for key, _ in keyed}
    for row in plain_rows(make(keyed, config)):
        first, second = segments(row)
        found[row[3]] += first + second
    assert found == {key: [token for sentence in document for token in sentence] for key, document in keyed}


@given(toy_documents.documents, configs)
def test_rows_are_never_too_long_and_their_segments_never_empty(keyed: list[KeyedDocument], config: ExampleConfig):
    for row in plain_rows(make(keyed, config)):
        first, second = segments(row)
        assert len(row[0]) <= config.max_seq_len
        assert first
        assert bool(second) == (row[2] != -1)


@given(toy_documents.documents, configs)
def test_cuts_fall_between_words_unless_a_word_is_longer_than_a_row(keyed: list[KeyedDocument], config: ExampleConfig):
    """A cut is legal where a sentence or a word begins, or where no word begins for a row's length before."""
    keyed = [(number, document) for number, (_, document) in enumerate(keyed)]
    at: dict[int, int] = {}
    legal = {key: word_begins(document) for key, document in keyed}
    for row in plain_rows(make(keyed, config)):
        for segment in filter(None, segments(row)):
            begin = at.get(row[3], 0)
            within_long_word = not any(cut in legal[row[3]] for cut in range(begin - config.max_tokens + 1, begin + 1))
            assert begin in legal[row[3]] or within_long_word
            at[row[3]] = begin + len(segment)


def word_begins(document: list[list[int]]) -> set[int]:
    """Where words begin in a document, counted in tokens."""
    begins, offset = set(), 0
    for sentence in document:
        vocabulary = plain_vocabulary()
        begins |= {offset + i for i in range(len(sentence)) if references.begins_word(sentence, i, vocabulary)}
        offset += len(sentence)
    return begins


@given(toy_documents.documents, configs)
def test_rows_without_a_second_segment_are_single_words(keyed: list[KeyedDocument], config: ExampleConfig):
    for ids, a_len, label, *_ in plain_rows(make(keyed, config)):
        if label == -1:
            segment = ids[1 : 1 + a_len]
            assert not any(references.begins_word(segment, at, plain_vocabulary()) for at in range(1, a_len))


@given(toy_documents.documents, configs, passes)
def test_rows_do_not_depend_on_the_other_documents(keyed: list[KeyedDocument], config: ExampleConfig, pass_index: int):
    together = plain_rows(make(keyed, config, pass_index))
    alone = [row for one in keyed for row in plain_rows(make([one], config, pass_index))]
    assert together == alone


@given(toy_documents.documents, configs)
def test_rows_are_numbered_within_their_document(keyed: list[KeyedDocument], config: ExampleConfig):
    keyed = [(number, document) for number, (_, document) in enumerate(keyed)]
    numbers: dict[int, list[int]] = {}
    for *_, key, index in plain_rows(make(keyed, config)):
        numbers.setdefault(key, []).append(index)
    assert all(found == list(range(len(found))) for found in numbers.values())


# ---- literal documents ----

THE, CAT, ING, COMMA, ZHONG = 5, 6, 10, 15, 18


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], []),
        ([[]], []),
        ([[THE]], [([THE], [])]),
        ([[THE, ING, ING]], [([THE, ING, ING], [])]),
        ([[THE, CAT]], [([THE], [CAT])]),
        ([[THE, ING, CAT]], [([THE, ING], [CAT])]),
        ([[THE, CAT, CAT, ING]], [([THE, CAT], [CAT, ING])]),
        ([[THE], [], [CAT, ING]], [([THE], [CAT, ING])]),
        ([[ING], [ING]], [([ING], [ING])]),
        ([[ZHONG, ING, COMMA]], [([ZHONG], [ING, COMMA])]),
        ([[THE] * 4, [CAT] * 4], [([THE] * 2, [THE] * 2), ([CAT] * 2, [CAT] * 2)]),
        ([[THE, CAT, THE, ING, ING, ING, CAT]], [([THE], [CAT]), ([THE, ING, ING, ING], [CAT])]),
        ([[THE] + [ING] * 7], [([THE] + [ING] * 4, []), ([ING] * 3, [])]),
    ],
)
def test_the_rows_of_literal_documents(document: list[list[int]], expected: list[tuple[list[int], list[int]]]):
    config = ExampleConfig(max_seq_len=8, short_seq_prob=0.0)
    assert [segments(row) for row in plain_rows(make([(1, document)], config))] == expected


def test_no_documents_make_no_rows():
    pairs = make([], ExampleConfig())
    assert (len(pairs), pairs.offsets.tolist(), len(pairs.ids)) == (0, [0], 0)


@given(st.lists(st.sampled_from([THE, ING, ZHONG]), min_size=1, max_size=12))
def test_the_middle_cut_is_the_boundary_nearest_to_the_middle(unit: list[int]):
    cut = find_middle_cut(np.array([CAT, *unit, CAT], np.uint16), 1, 1 + len(unit), RULE.starts, RULE.standalone)
    assert cut - 1 == len(references.halve(unit, plain_vocabulary())[0]) % len(unit)


# ---- shares ----


def many_rows(config: ExampleConfig, pass_index: int = 0) -> Pairs:
    """About 8,000 rows of sentences of one token, so that each row has just its target length."""
    keyed = [(key, [[THE]] * 400 * config.max_tokens) for key in range(16)]
    return make(keyed, config, pass_index)


@pytest.mark.parametrize("max_seq_len", [8, 32])
@pytest.mark.parametrize("short_seq_prob", [0.0, 0.1, 1.0])
def test_the_share_and_the_lengths_of_short_rows_are_the_configs(short_seq_prob: float, max_seq_len: int):
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


def test_half_the_rows_are_swapped_whatever_the_pass():
    for pass_index in range(3):
        labels = many_rows(ExampleConfig(max_seq_len=32), pass_index).sop_label
        assert set(labels) <= {0, 1, -1}
        pairs_only = labels[labels >= 0]
        assert abs(pairs_only.mean() - 0.5) < 5 * 0.5 / math.sqrt(len(pairs_only))


def test_the_boundary_between_the_segments_is_uniform():
    pairs = many_rows(ExampleConfig(max_seq_len=13, short_seq_prob=0.0))
    full = np.diff(pairs.offsets) == 13
    first_len = np.where(pairs.sop_label == 1, 10 - pairs.segment_a_len, pairs.segment_a_len)[full]
    shares = np.bincount(first_len, minlength=11)[1:10] / full.sum()
    assert np.abs(shares - 1 / 9).max() < 5 * math.sqrt(1 / 9 * 8 / 9 / full.sum())


@pytest.mark.parametrize("change", [{"seed": 1}, {}])
def test_another_seed_or_pass_makes_other_rows(change: dict[str, int]):
    config = ExampleConfig(max_seq_len=32)
    other = make([(1, [[THE]] * 500)], replace(config, **change), 0 if change else 1)
    assert plain_rows(make([(1, [[THE]] * 500)], config)) != plain_rows(other)
