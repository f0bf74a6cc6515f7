"""Spans, split at the ends of segments, have the paper's shares, and the mean of their sum is the budget."""

from __future__ import annotations

import numpy as np
import pytest

from albert_data.examples.spans import MAX_ENDS, choose_bounds, correct_distribution, span_shares, span_tables

ALL_WORDS = np.array([*range(1, 61), 100, 127, 256, 509, 1000, 8189, 32_766])


def part_everywhere(law: list[float], num_words: int, words_a: int | None) -> list[float]:
    """The expected number of spans of each length after parting, for one span at every place of the circle.

    words_a: how many words segment A has, or None where it is the only one.
    """
    ends = {0} if words_a is None else {0, words_a}
    counts = [0.0] * len(law)
    for n, probability in enumerate(law, start=1):
        for begin in range(num_words):
            run = 0
            for word in range(begin, begin + n):
                if run and word % num_words in ends:
                    counts[run - 1] += probability / num_words
                    run = 0
                run += 1
            counts[run - 1] += probability / num_words
    return counts


def shares_of(counts: list[float]) -> list[float]:
    return [count / sum(counts) for count in counts]


def law_of(tables: object, ends: int, longest: int, words: int) -> list[float]:
    """The law that the thresholds of a table stand for."""
    cumulative = [int(limit) / 2**64 for limit in tables.cumulative[ends - 1, longest - 1, words]]
    return np.diff([0.0, *cumulative]).tolist()


# ---- the law ----


def test_the_shares_are_one_half_a_third_and_a_quarter_of_their_sum():
    assert span_shares(3).tolist() == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=1e-15)
    assert span_shares(1).tolist() == [1.0]
    distributions, _ = correct_distribution(np.array([10**9]), 2, 3)
    assert distributions[0].tolist() == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=1e-8)


def test_spanberts_shares_fall_by_a_fifth_and_have_a_mean_of_3_8_words():
    shares = span_shares(10, "span")
    assert shares.sum() == pytest.approx(1)
    assert (shares[1:] / shares[:-1]).tolist() == pytest.approx([0.8] * 9)
    assert (shares * np.arange(1, 11)).sum() == pytest.approx(3.8, abs=0.005)


@pytest.mark.parametrize("masking", ["ngram", "span"])
@pytest.mark.parametrize("ngram", range(1, 11))
@pytest.mark.parametrize("words_a", [None, "half", "shortest"])
def test_the_shares_after_splitting_are_exactly_the_papers(ngram, words_a, masking):
    ends = 1 if words_a is None else 2
    distributions, feasible = correct_distribution(ALL_WORDS, ends, ngram, masking)
    is_long = 12 * ngram < ALL_WORDS
    assert feasible[is_long].all()
    for words, law in zip(ALL_WORDS[feasible].tolist(), distributions[feasible].tolist(), strict=True):
        if words > 600:
            continue  # enumerating them takes long and shows nothing new
        assert sum(law) == pytest.approx(1.0, abs=1e-12)
        assert min(law) >= 0.0
        # In a segment of fewer words than ngram - 1 a span could be parted at both of its ends.
        split = {None: None, "half": words // 2, "shortest": max(1, ngram - 1)}[words_a]
        found = shares_of(part_everywhere(law, words, split))
        if split is None or min(split, words - split) >= ngram - 1:
            assert found == pytest.approx(span_shares(ngram, masking).tolist(), abs=1e-12)


@pytest.mark.parametrize("ngram", [1, 2, 3, 10])
def test_in_small_rows_the_longest_span_is_shortened_until_the_shares_are_exact(ngram):
    tables = span_tables(60, ngram, 0.15)
    for ends in range(1, MAX_ENDS + 1):
        before = 0
        for words in range(ends, 61):
            for longest in range(1, ngram + 1):
                law = law_of(tables, ends, longest, words)
                used = max(n for n, share in enumerate(law, start=1) if share > 1e-12)
                assert used <= longest
                if ends == 1 or words // 2 >= used - 1:
                    found = shares_of(part_everywhere(law, words, None if ends == 1 else words // 2))
                    assert found[:used] == pytest.approx(span_shares(used).tolist(), abs=1e-9)
            assert used >= before  # a row of more words never has shorter spans
            before = used
        assert used == ngram


# ---- the budget ----


def mean_sum(law: list[float], bound: int) -> float:
    """The expected sum of lengths drawn until it reaches the bound: the mass of each sum, carried forward."""
    mass = [0.0] * (bound + len(law))
    mass[0] = 1.0
    for total in range(bound):
        for n, probability in enumerate(law, start=1):
            mass[total + n] += mass[total] * probability
    return sum(total * mass[total] for total in range(bound, bound + len(law)))


@pytest.mark.parametrize(("ngram", "masking"), [*((n, "ngram") for n in (1, 2, 3, 5, 10)), (10, "span")])
@pytest.mark.parametrize("mask_prob", [0.01, 0.15, 0.5])
def test_the_expected_sum_is_the_budget_exactly(ngram, masking, mask_prob):
    words = np.array([*range(0, 300, 3), 509, 850, 860, 900, 1700, 3000])
    distributions = np.zeros((len(words), ngram))
    distributions[:, 0] = 1.0
    candidates, feasible = correct_distribution(words, 2, ngram, masking)
    distributions[feasible] = candidates[feasible]
    bounds, extra = choose_bounds(distributions, mask_prob * words)
    for law, budget, bound, more in zip(
        distributions.tolist(), (mask_prob * words).tolist(), bounds.tolist(), extra.tolist(), strict=True
    ):
        share = more / 2**64
        found = (1 - share) * mean_sum(law, bound) + share * mean_sum(law, bound + 1)
        assert found == pytest.approx(budget, abs=1e-7)


def test_the_bounds_for_two_lengths_by_hand():
    """Half of the spans have one word, half two: m(1) = 3/2, m(2) = 1/2 (1 + m(1)) + 1/2 2 = 9/4."""
    bounds, extra = choose_bounds(np.array([[0.5, 0.5]] * 3), np.array([0.75, 1.5, 2.0]))
    assert bounds.tolist() == [0, 1, 1]
    assert (extra / 2**64).tolist() == pytest.approx([1 / 2, 0.0, 2 / 3], abs=1e-12)
    bounds, extra = choose_bounds(np.array([[1.0, 0.0]] * 4), np.array([0.0, 0.25, 3.0, 200.5]))
    assert (bounds + extra / 2**64).tolist() == pytest.approx([0.0, 0.25, 3.0, 200.5], abs=1e-12)
