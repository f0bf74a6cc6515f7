"""The distribution of span lengths, corrected for spans that are split where a segment ends.

The paper masks spans of n words with p(n) = (1/n) / sum(1/k), n <= N (ALBERT, section 4.1), with a
budget of 15 % of the words, and so in expectation of the tokens; SpanBERT's p(n) is geometric. Two effects would
change these figures:

- *The end of the budget.* Lengths are drawn until their sum reaches a bound b; the span that crosses it
  is kept. The number of spans is then a stopping time, so by Wald's identity the shares of the lengths stay exactly
  those of the distribution that they are drawn from. The expected sum m(b) exceeds b; b is chosen at random between two
  neighbours so that the expected sum is exactly the budget.
- *The ends of segments.* Spans are on a circle of the row's W words (see masks.py). A span across
  the end of a segment is split there into two spans. A span of n words has n - 1 inner boundaries, so each of
  the k ends splits it with probability (n - 1) / W, and every split of n into two parts is equally likely. Lengths
  are therefore drawn from q, the distribution for which the expected shares *after* splitting are p:
      p(m) is proportional to q(m) (1 - (m - 1) k / W) + sum over n > m of q(n) 2 k / W.
  Where W is so small that some q(m) would be negative, the longest span is shortened until none is.

All of this depends on k, N, W, p and the share in the budget alone, so it is computed once, into tables.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from albert_data.config import ExampleConfig

MAX_ENDS = 2  # a row has one segment or two, and a circle has as many segment ends
# The expected sum m(b) is computed exactly up to this bound b. From there on b + overshoot, its limit for large b, is
# equal to it within the precision of float64.
_EXACT_BOUNDS = 128
_GEOMETRIC = 0.2  # SpanBERT (Joshi et al. 2020, section 3.1): a span ends after each word with this probability


def span_shares(longest: int, masking: str = "ngram") -> np.ndarray:
    """p(n) of ExampleConfig.masking for n = 1 .. longest: float64, sums to 1."""
    lengths = np.arange(1, longest + 1)
    weights = (1 - _GEOMETRIC) ** lengths if masking == "span" else 1.0 / lengths
    shares: np.ndarray = weights / weights.sum()
    return shares


def measure_span_len(config: ExampleConfig) -> float:
    """The mean length, in words, of the span that a random masked word is in."""
    shares = span_shares(config.longest_span, config.masking)
    lengths = np.arange(1, len(shares) + 1)
    return float((shares * lengths**2).sum() / (shares * lengths).sum())


class SpanTables(NamedTuple):
    """Tables for kernels, with the axes [ends, longest, words].

    Index k - 1 is for k segment ends, n - 1 for spans of 1 to n words.
    The axis of words has max_words + 1 items, here called M. cumulative: uint64 [2, N, M, N], thresholds: 64 random
    bits below the first mean length 1, below the second 2, ..; the last is for 1.0. bounds: int32 [2, N, M], the bound
    b in words; extra: uint64 [2, N, M], threshold for the bound b + 1.
    """

    cumulative: np.ndarray
    bounds: np.ndarray
    extra: np.ndarray


@lru_cache(maxsize=4)
def span_tables(max_words: int, ngram: int, mask_prob: float, masking: str = "ngram") -> SpanTables:
    """Tables for rows of 0 .. max_words words and spans of up to `ngram` words."""
    shape = (MAX_ENDS, ngram, max_words + 1)
    cumulative = np.zeros((*shape, ngram), np.uint64)
    bounds, extra = np.zeros(shape, np.int32), np.zeros(shape, np.uint64)
    words = np.arange(max_words + 1)
    for ends in range(1, MAX_ENDS + 1):
        distributions = np.zeros((ngram, max_words + 1, ngram))
        # For each number of words the distribution for the longest spans that are feasible so far.
        last_feasible = np.zeros((max_words + 1, ngram))
        last_feasible[:, 0] = 1.0
        for longest in range(1, ngram + 1):
            candidate, is_feasible = correct_distribution(words, ends, longest, masking)
            last_feasible[is_feasible, :longest] = candidate[is_feasible]
            distributions[longest - 1] = last_feasible
        cumulative[ends - 1] = _to_thresholds(np.cumsum(distributions, axis=-1))
        bound, more = choose_bounds(distributions.reshape(-1, ngram), np.tile(mask_prob * words, ngram))
        bounds[ends - 1], extra[ends - 1] = bound.reshape(shape[1:]), more.reshape(shape[1:])
    return SpanTables(cumulative=cumulative, bounds=bounds, extra=extra)


def correct_distribution(
    words: np.ndarray, ends: int, ngram: int, masking: str = "ngram"
) -> tuple[np.ndarray, np.ndarray]:
    """The q for each number of words, float64 [W, ngram], and whether it is a distribution: bool [W].

    Solves the equation above from the longest span down: q(n) needs only the sum of q over longer spans.
    """
    shares = span_shares(ngram, masking)
    split_prob = ends / np.maximum(words, 1)  # that some end falls on one given boundary
    found = np.zeros((len(words), ngram))
    longer = np.zeros(len(words))
    is_feasible = words > ngram  # a span and an unmasked word fit on the circle
    with np.errstate(divide="ignore", invalid="ignore"):
        for n in range(ngram, 0, -1):
            found[:, n - 1] = (shares[n - 1] - 2 * split_prob * longer) / (1 - (n - 1) * split_prob)
            is_feasible &= (found[:, n - 1] >= 0) & ((n - 1) * split_prob < 1)
            longer += found[:, n - 1]
        return found / longer[:, None], is_feasible


def choose_bounds(distributions: np.ndarray, budget: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each distribution the bound b, and the threshold for b + 1, that make the expected sum `budget`."""
    ngram = distributions.shape[1]
    # No matrix product: its order of additions, and so the last bit, depends on the machine.
    mean, square = (sum(n**power * distributions[:, n - 1] for n in range(1, ngram + 1)) for power in (1, 2))
    overshoot = (square / mean - 1) / 2  # the limit of m(b) - b, by renewal theory
    # b, the largest bound with m(b) <= budget: by the table where that holds b + 1 too, else by the limit.
    low = np.maximum(np.floor(budget - overshoot), 0).astype(np.int64)
    near = np.flatnonzero(low <= _EXACT_BOUNDS)  # the others need no table, which would take 340 MB at 32,768 words
    # m(b), the expected sum of lengths drawn until it is >= b: after a first length n, m(b - n) more is expected.
    sums = np.zeros((_EXACT_BOUNDS + 1, len(near)))
    for bound in range(1, _EXACT_BOUNDS + 1):
        for n in range(1, ngram + 1):
            sums[bound] += distributions[near, n - 1] * (n + sums[max(0, bound - n)])
    exact = np.count_nonzero(sums <= budget[near], axis=0) - 1
    low[near] = np.where(low[near] < _EXACT_BOUNDS - 1, exact, low[near])
    floor, ceiling = low + overshoot, low + 1 + overshoot
    for found, bounds in ((floor, low[near]), (ceiling, low[near] + 1)):
        exact = sums[np.minimum(bounds, _EXACT_BOUNDS), np.arange(len(near))]
        found[near] = np.where(bounds <= _EXACT_BOUNDS, exact, found[near])
    return low.astype(np.int32), _to_thresholds((budget - floor) / (ceiling - floor))


def _to_thresholds(probability: np.ndarray) -> np.ndarray:
    """Numbers that 64 random bits are below with these probabilities; for 1.0 with 1 - 2**-64."""
    scaled = np.clip(probability, 0.0, 1.0) * 2.0**64
    almost_one = np.minimum(scaled, 2.0**64 - 4096).astype(np.uint64)  # below 2.0**64, which the cast can't hold
    thresholds: np.ndarray = np.where(scaled >= 2.0**64, np.uint64(2**64 - 1), almost_one)
    return thresholds
