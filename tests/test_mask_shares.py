"""The paper's shares hold: 15 % masked, p(n) for spans, 80/10/10, every word alike (sections 3.1, 4.1).

Each tolerance is five standard deviations of what is measured; the seeds are fixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from toy_documents import (
    CLS,
    EVERY_PIECE,
    FIRST_ORDINARY,
    MASK,
    ORDINARY_IDS,
    RULE,
    SEP,
    SPECIALS,
    VOCAB_SIZE,
    Masks,
    draw_masks,
)

from albert_data.config import ExampleConfig
from albert_data.data import DocumentColumns, Pairs
from albert_data.examples.spans import span_shares
from albert_data.tokenizer.words import WordRule

ROW_LENGTHS = pytest.mark.parametrize(("max_seq_len", "num_rows"), [(32, 40_000), (128, 12_000), (512, 2_000)])
WORDS_OF_ONE_TOKEN = (5, 9)  # the ids of the pieces that begin with a space and are not that alone, from .. below


def make_rows(
    num_rows: int, row_len: int, *, ids: tuple[int, int] = WORDS_OF_ONE_TOKEN, shorter: int = 3, two: bool = True
) -> Pairs:
    """Rows of random pieces in two segments of `shorter` tokens or more each, or in one."""
    rng = np.random.default_rng(row_len)
    rows = rng.integers(*ids, (num_rows, row_len)).astype(np.uint16)
    rows[:, 0], rows[:, -1] = CLS, SEP
    a_len = np.full(num_rows, row_len - 2)
    if two:
        a_len = rng.integers(shorter, row_len - 3 - shorter, num_rows, endpoint=True)
        rows[np.arange(num_rows), a_len + 1] = SEP
    return Pairs(
        ids=rows.reshape(-1),
        offsets=np.arange(num_rows + 1) * row_len,
        segment_a_len=a_len.astype(np.int32),
        sop_label=np.full(num_rows, 0 if two else -1, np.int8),
        columns=DocumentColumns(rng.integers(0, 2**64, num_rows, dtype=np.uint64)),
        indices=np.zeros(num_rows, np.uint32),
    )


def draw(pairs: Pairs, rule: WordRule = RULE, **changes: float | str) -> Masks:
    config = ExampleConfig(max_seq_len=max(8, int(np.diff(pairs.offsets).max())), **changes)
    return draw_masks(pairs, rule, config)


def masked_grid(pairs: Pairs, masks: Masks) -> np.ndarray:
    """Whether each token of each row is masked: bool [rows, tokens]."""
    grid = np.zeros((len(pairs), len(pairs.ids) // len(pairs)), bool)
    grid[np.repeat(np.arange(len(pairs)), np.diff(masks.offsets)), masks.positions] = True
    return grid


def masked_words(pairs: Pairs, masks: Masks) -> np.ndarray:
    """Whether each word of each row is masked, where words have one token: bool [rows, words]."""
    is_word = (pairs.ids != CLS) & (pairs.ids != SEP)
    return masked_grid(pairs, masks).reshape(-1)[is_word].reshape(len(pairs), -1)


def span_counts(grid: np.ndarray) -> np.ndarray:
    """How many runs of masked tokens there are of each length; a [SEP] ends a run."""
    edges = np.diff(np.pad(grid, ((0, 0), (1, 1))).astype(np.int8).reshape(-1))
    return np.bincount(np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1))


def assert_share(found: float, expected: float, trials: int) -> None:
    tolerance = 5 * np.sqrt(expected * (1 - expected) / trials)
    assert abs(found - expected) <= tolerance


def assert_masked_share(pairs: Pairs, masks: Masks, mask_prob: float) -> None:
    """Every row masks this share of its maskable tokens in expectation."""
    maskable = np.add.reduceat(~SPECIALS.is_special[pairs.ids], pairs.offsets[:-1])
    excess = np.diff(masks.offsets) - mask_prob * maskable
    assert abs(excess.mean()) <= 5 * excess.std() / np.sqrt(len(excess))


# ---- span lengths ----


def assert_span_shares(pairs: Pairs, masks: Masks, shares: Sequence[float]) -> None:
    counts = span_counts(masked_grid(pairs, masks))
    for found, expected in zip(counts[1:] / counts.sum(), shares, strict=True):
        assert_share(found, expected, counts.sum())


@ROW_LENGTHS
@pytest.mark.parametrize("ngram", [1, 2, 3])
def test_spans_of_each_length_have_the_papers_share(max_seq_len, num_rows, ngram):
    pairs = make_rows(num_rows, max_seq_len)
    assert_span_shares(pairs, draw(pairs, ngram=ngram), span_shares(ngram))


@pytest.mark.parametrize("two", [False, True], ids=["one segment", "two segments"])
def test_short_rows_and_short_segments_keep_the_shares(two):
    pairs = make_rows(60_000, 19, shorter=2, two=two)
    assert_span_shares(pairs, draw(pairs), span_shares(3))


@ROW_LENGTHS
def test_spans_of_masking_span_have_spanberts_shares(max_seq_len, num_rows):
    """Geometric lengths of 1 to 10 words. A row of few words has shorter ones, with shares in the same proportion."""
    pairs = make_rows(num_rows, max_seq_len, shorter=10)
    masks = draw(pairs, masking="span")
    longest = len(span_counts(masked_grid(pairs, masks))) - 1
    assert longest == 10 or max_seq_len == 32
    weights = [0.8**n for n in range(longest)]
    assert_span_shares(pairs, masks, [weight / sum(weights) for weight in weights])


@pytest.mark.parametrize(
    ("rule", "num_words", "gap", "changes"),
    [
        (RULE, 7, 0, {"masking": "word", "mask_prob": 3 / 7}),
        (EVERY_PIECE, 7, 0, {"masking": "token", "mask_prob": 3 / 7}),
        (RULE, 9, 1, {"ngram": 1, "mask_prob": 1 / 3}),
    ],
)
def test_every_set_of_single_words_and_pieces_is_equally_likely(rule, num_words, gap, changes):
    """Of three, with an unmasked word between any two of them where there is a gap."""
    pairs = make_rows(40_000, num_words + 2, two=False)
    masked = masked_words(pairs, draw(pairs, rule, **changes))
    every = [
        sum(1 << word for word in words)
        for words in combinations(range(num_words), 3)
        if not gap or all((word + 1) % num_words not in words for word in words)
    ]
    assert len(every) == (30 if gap else 35)
    assert_distribution(Counter((masked @ (1 << np.arange(num_words))).tolist()), dict.fromkeys(every, 1 / len(every)))


# ---- how much is masked ----


@ROW_LENGTHS
@pytest.mark.parametrize("rule", [RULE, EVERY_PIECE], ids=["words", "pieces"])
def test_the_masked_share_is_the_budget_for_words_of_many_lengths(max_seq_len, num_rows, rule):
    pairs = make_rows(num_rows, max_seq_len, ids=(FIRST_ORDINARY, VOCAB_SIZE))
    assert_masked_share(pairs, draw(pairs, rule), 0.15)


@pytest.mark.parametrize("two", [False, True], ids=["one segment", "two segments"])
@pytest.mark.parametrize("num_words", [2, 3, 5, 8])
def test_rows_of_few_words_keep_the_masked_share(num_words, two):
    pairs = make_rows(20_000, num_words + 2 + two, shorter=1, two=two)
    assert_masked_share(pairs, draw(pairs), 0.15)


@pytest.mark.parametrize("ngram", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("mask_prob", [0.01, 0.15, 0.4])
def test_every_ngram_keeps_every_share_up_to_two_fifths(ngram, mask_prob):
    pairs = make_rows(4_000, 48)
    assert_masked_share(pairs, draw(pairs, ngram=ngram, mask_prob=mask_prob), mask_prob)


@pytest.mark.parametrize("ngram", range(2, 11))
def test_a_budget_of_half_the_words_is_nearly_kept_with_spans_of_two_words_or_more(ngram):
    """The unmasked word behind each span leaves some draws no room: up to 1 % of the share is lost."""
    pairs = make_rows(4_000, 48)
    share = masked_words(pairs, draw(pairs, ngram=ngram, mask_prob=0.5)).mean()
    assert 0.495 < share < 0.502


@pytest.mark.parametrize("num_words", [5, 6, 44, 45])
def test_with_spans_of_one_word_no_more_than_half_of_the_words_fit(num_words):
    """Every other word at most: floor(W / 2) of W."""
    pairs = make_rows(500, num_words + 3, shorter=1)
    masked = masked_words(pairs, draw(pairs, ngram=1, mask_prob=0.5))
    assert (masked.sum(axis=1) == num_words // 2).all()


# ---- where ----


def assert_distribution(found: Counter[int], expected: dict[int, float]) -> None:
    """Chi-square: its mean are the degrees of freedom, its variance is twice as much."""
    trials, freedom = sum(found.values()), len(expected) - 1
    assert found.keys() <= expected.keys()
    squares = sum((found[key] - trials * share) ** 2 / (trials * share) for key, share in expected.items())
    assert abs(squares - freedom) <= 5 * np.sqrt(2 * freedom)


@pytest.mark.parametrize(
    ("row_len", "num_rows"), [(8, 40_000), (16, 40_000), (32, 40_000), (128, 12_000), (512, 2_000)]
)
def test_every_word_is_equally_likely_to_be_masked_also_the_first_and_the_last(row_len, num_rows):
    pairs = make_rows(num_rows, row_len, shorter=min(3, row_len // 4))
    masks = draw(pairs)
    shares = masked_words(pairs, masks).mean(axis=0)
    assert np.abs(shares - 0.15).max() <= 5 * np.sqrt(0.15 * 0.85 / num_rows)
    if row_len >= 32:  # and those beside the boundary
        grid, sep = masked_grid(pairs, masks), pairs.segment_a_len + 1
        for offset in (-3, -2, -1, 1, 2, 3):
            assert_share(grid[np.arange(num_rows), sep + offset].mean(), 0.15, num_rows)


# ---- what stands there instead ----


@pytest.mark.parametrize("shares", [(0.8, 0.1, 0.1), (0.5, 0.3, 0.2), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)])
def test_masked_tokens_are_replaced_by_80_10_10_or_as_asked(shares):
    """A random piece is the original itself once in as many times as there are ordinary pieces."""
    pairs = make_rows(num_rows := 2_000, 512)
    masks = draw(pairs, replace="/".join(f"{100 * share:g}" for share in shares))
    to_mask, random, kept = shares
    originals = pairs.ids.reshape(num_rows, -1)[masked_grid(pairs, masks)]
    same = 1 / len(ORDINARY_IDS)
    assert_share((masks.ids == MASK).mean(), to_mask, len(originals))
    assert_share((masks.ids == originals).mean(), kept + random * same, len(originals))
    assert_share(((masks.ids != MASK) & (masks.ids != originals)).mean(), random * (1 - same), len(originals))


def test_random_replacements_are_all_ordinary_pieces_with_equal_probability():
    pairs = make_rows(num_rows := 12_000, 128)
    masks = draw(pairs)
    originals = pairs.ids.reshape(num_rows, -1)[masked_grid(pairs, masks)]
    replaced = masks.ids[(masks.ids != MASK) & (masks.ids != originals)]
    counts = np.bincount(replaced, minlength=VOCAB_SIZE)
    assert counts[:FIRST_ORDINARY].sum() == 0
    # The pieces that never stand in the text are never the original, so all their draws are seen.
    unseen = counts[WORDS_OF_ONE_TOKEN[1] :]
    for count in unseen:
        assert_share(count / len(masks.ids), 0.1 / len(ORDINARY_IDS), len(masks.ids))
