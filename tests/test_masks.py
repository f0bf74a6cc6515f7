"""Masks equal their plain reference: whole words, never a special token, an unmasked word between spans."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import references
import toy_documents
from hypothesis import given
from hypothesis import strategies as st
from toy_documents import (
    CLS,
    EVERY_PIECE,
    LISTED_WORDS,
    MASK,
    ORDINARY_IDS,
    PAD,
    RULE,
    SEP,
    SPECIALS,
    UNK,
    KeyedDocument,
    Masks,
    as_documents,
    as_lists,
    as_pairs,
    draw_masks,
    plain_rows,
    plain_vocabulary,
)

from albert_data.config import ExampleConfig
from albert_data.data import Pairs
from albert_data.examples.masks import mask_pairs
from albert_data.examples.pairs import make_pairs
from albert_data.examples.spans import span_tables
from albert_data.shards.rows import restore_ids
from albert_data.tokenizer.words import WordRule

# Few of them, for the tables of each are computed anew.
SETTINGS = [
    ExampleConfig(ngram=1, mask_prob=0.15, max_seq_len=40),
    ExampleConfig(ngram=2, mask_prob=0.5, max_seq_len=12),
    ExampleConfig(ngram=3, mask_prob=0.15, max_seq_len=12),
    ExampleConfig(ngram=3, mask_prob=0.15, max_seq_len=64),
    ExampleConfig(ngram=3, mask_prob=0.5, max_seq_len=40, replace="50/50/0"),
    ExampleConfig(ngram=10, mask_prob=0.3, max_seq_len=64),
    ExampleConfig(ngram=1, mask_prob=0.01, max_seq_len=8),
    ExampleConfig(masking="span", mask_prob=0.15, max_seq_len=64),
    ExampleConfig(masking="word", mask_prob=0.3, max_seq_len=40, replace="100/0/0"),
    ExampleConfig(masking="token", mask_prob=0.5, max_seq_len=12, replace="0/0/100"),
]
every_setting = pytest.mark.parametrize("config", SETTINGS, ids=str)


def draw_for(
    keyed: list[KeyedDocument],
    config: ExampleConfig,
    *,
    rule: WordRule = RULE,
    dtype: type = np.uint16,
    pass_index: int = 0,
) -> tuple[Pairs, Masks]:
    pairs = make_pairs(as_documents(keyed, dtype), SPECIALS, rule, config, pass_index)
    masks = draw_masks(pairs, rule, config, pass_index)
    assert (masks.offsets.dtype, masks.positions.dtype, masks.ids.dtype) == (np.int64, np.uint16, dtype)
    return pairs, masks


def plain_masks(masks: Masks) -> list[tuple[list[int], list[int]]]:
    """Positions and ids of each row."""
    return list(zip(as_lists(masks.positions, masks.offsets), as_lists(masks.ids, masks.offsets), strict=True))


@lru_cache
def plain_laws(config: ExampleConfig) -> dict[tuple[int, int, int], references.SpanLaw]:
    """The tables of spans.py as Python integers; test_spans.py tells that they are right."""
    max_words = config.max_seq_len
    tables = span_tables(max_words, config.longest_span, config.mask_prob, config.masking)
    return {
        (ends, longest, words): references.SpanLaw(
            tables.cumulative[ends - 1, longest - 1, words].tolist(),
            int(tables.bounds[ends - 1, longest - 1, words]),
            int(tables.extra[ends - 1, longest - 1, words]),
        )
        for ends in (1, 2)
        for longest in range(1, config.longest_span + 1)
        for words in range(max_words + 1)
    }


# ---- the reference ----


@every_setting
@pytest.mark.parametrize(("rule", "dtype"), [(RULE, np.uint16), (EVERY_PIECE, np.uint32), (LISTED_WORDS, np.uint16)])
@given(keyed=toy_documents.documents, seed=st.integers(0, 2**63 - 1), pass_index=st.integers(0, 100))
def test_masks_equal_the_plain_reference(rule, dtype, config, keyed, seed, pass_index):
    laws, config = plain_laws(config), replace(config, seed=seed)
    pairs, masks = draw_for(keyed, config, rule=rule, dtype=dtype, pass_index=pass_index)
    assert plain_masks(masks) == [
        references.mask_row(
            (ids, a_len, key, index), plain_vocabulary(rule), ORDINARY_IDS.tolist(), laws, config, pass_index
        )
        for ids, a_len, _, key, index in plain_rows(pairs)
    ]


# ---- what is true of all masks ----


@given(keyed=toy_documents.documents)
def test_masking_rows_keeps_the_originals(keyed):
    config = ExampleConfig(max_seq_len=64)
    pairs, masks = draw_for(keyed, config)
    examples = mask_pairs(replace(pairs, ids=pairs.ids.copy()), SPECIALS, RULE, ORDINARY_IDS, config, 0)
    assert restore_ids(examples).tolist() == pairs.ids.tolist()
    assert examples.masked_positions.tolist() == masks.positions.tolist()
    for name in ("offsets", "segment_a_len", "sop_label", "document_keys"):
        assert getattr(examples, name).tolist() == getattr(pairs, name).tolist()


# ---- literal rows ----


THE, CAT, ING = 5, 6, 10


@pytest.mark.parametrize(
    ("ids", "a_len", "expected"),
    [
        ([CLS, THE, ING, CAT, SEP], 3, [[[1, 2], [3]], []]),
        ([CLS, ING, THE, SEP, ING, CAT, SEP], 2, [[[1], [2]], [[4], [5]]]),
        ([CLS, THE, MASK, ING, SEP, CAT, SEP], 3, [[[1], [3]], [[5]]]),
        ([CLS, THE, SEP, ING, SEP, PAD, SEP], 3, [[[1], [3]], []]),
        ([CLS, UNK, ING, SEP, SEP, SEP], 2, [[[1, 2]], []]),
    ],
)
def test_the_maskable_words_of_literal_rows(ids, a_len, expected):
    assert references.find_words(ids, a_len, plain_vocabulary()) == expected
    pairs = as_pairs([(ids, a_len, 0, key) for key in range(500)])
    masks = draw_masks(pairs, RULE, ExampleConfig(max_seq_len=8, mask_prob=0.5))
    words = [word for segment in expected for word in segment]
    seen = {at for positions, _ in plain_masks(masks) for at in positions}
    assert seen == {at for word in words for at in word}
    for positions, _ in plain_masks(masks):
        assert positions == [at for word in words for at in word if word[0] in positions]


def test_rows_without_words_have_no_masks():
    pairs = as_pairs([([CLS, PAD, SEP], 1, 0, 0), ([CLS, SEP], 0, 0, 1), ([CLS, MASK, SEP, SEP, SEP], 1, 0, 2)])
    masks = draw_masks(pairs, RULE, ExampleConfig())
    assert plain_masks(masks) == [([], [])] * 3
