"""The law of span lengths, corrected for where a row's segments end.

The paper masks spans of n words with p(n) = (1/n) / sum(1/k), n <= N (ALBERT, section 3.1, formula 1 of
section 4.1), in a budget of 15 % of the tokens. Two effects spoil both figures if nothing is done:

- *The end of the budget.* Lengths are drawn until their sum reaches a bound b; the span that crosses it
  is kept. The number of spans is then a stopping time, so by Wald's identity the shares stay p(n)
  exactly. The expected sum m(b) exceeds b; b is chosen at random between two neighbours so that the
  expected sum is exactly the budget.
- *The ends of segments.* Spans lie on a circle of the row's W words (see masks.py). One that lies across
  a segment's end is parted there into two spans. A span of n words has n - 1 inner places, so each of
  the k ends parts it with probability (n - 1) / W, and the parts have every split of n alike. Lengths
  are therefore drawn from q, the law for which the expected shares *after* parting are p:
      p(m) ~ q(m) (1 - (m - 1) k / W) + sum over n > m of q(n) 2 k / W.
  Where W is so small that some q(m) would be negative, the longest span is shortened until none is.

Everything here is decided by (k, N, W) alone, so it is computed once, into tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

MAX_ENDS = 2  # a row has one segment or two
_RECURSION = 128  # bounds up to here have their exact expectation; from there on its limit is exact


def ngram_shares(ngram: int) -> np.ndarray:
    """The paper's p(n) for n = 1 .. ngram: float64, sums to 1."""
    inverse = 1.0 / np.arange(1, ngram + 1)
    shares: np.ndarray = inverse / inverse.sum()
    return shares


@dataclass(frozen=True, kw_only=True)
class SpanTables:
    """For each number of segments k - 1, longest span N - 1 and number of words W.

    cumulative: uint64 [2, N, W, N], thresholds under which 64 random bits choose length 1, 2, ..
    bounds: int32 [2, N, W], the budget in words; extra: uint64 [2, N, W], threshold for one more.
    """

    cumulative: np.ndarray
    bounds: np.ndarray
    extra: np.ndarray


@lru_cache(maxsize=4)
def span_tables(max_words: int, ngram: int, mask_prob: float) -> SpanTables:
    """Tables for rows of 0 .. max_words words."""
    shape = (MAX_ENDS, ngram, max_words + 1)
    cumulative = np.zeros((*shape, ngram), np.uint64)
    bounds, extra = np.zeros(shape, np.int32), np.zeros(shape, np.uint64)
    words, laws = np.arange(max_words + 1), np.zeros((ngram, max_words + 1, ngram))
    for ends in range(1, MAX_ENDS + 1):
        law = np.zeros((max_words + 1, ngram))
        law[:, 0] = 1.0
        for longest in range(1, ngram + 1):
            candidate, feasible = corrected_law(words, ends, longest)
            law[feasible, :longest] = candidate[feasible]
            laws[longest - 1] = law
        cumulative[ends - 1] = _to_thresholds(np.cumsum(laws, axis=-1))
        bound, more = choose_bounds(laws.reshape(-1, ngram), np.tile(mask_prob * words, ngram))
        bounds[ends - 1], extra[ends - 1] = bound.reshape(shape[1:]), more.reshape(shape[1:])
    return SpanTables(cumulative=cumulative, bounds=bounds, extra=extra)


def corrected_law(words: np.ndarray, ends: int, ngram: int) -> tuple[np.ndarray, np.ndarray]:
    """The q for each number of words, float64 [W, ngram], and where it is a law: bool [W]."""
    shares = ngram_shares(ngram)
    cut = ends / np.maximum(words, 1)
    law = np.zeros((len(words), ngram))
    longer = np.zeros(len(words))
    feasible = words > ngram
    with np.errstate(divide="ignore", invalid="ignore"):
        for n in range(ngram, 0, -1):
            law[:, n - 1] = (shares[n - 1] - 2 * cut * longer) / (1 - (n - 1) * cut)
            feasible &= (law[:, n - 1] >= 0) & ((n - 1) * cut < 1)
            longer += law[:, n - 1]
        return law / longer[:, None], feasible


def choose_bounds(law: np.ndarray, budget: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bound for each row of `law`, and the threshold of one more, that make the expected sum `budget`."""
    ngram, rows = law.shape[1], np.arange(len(law))
    sums = np.zeros((_RECURSION + 1, len(law)))  # m(b): the expected sum of lengths drawn until it is >= b
    for bound in range(1, _RECURSION + 1):
        for n in range(1, ngram + 1):
            sums[bound] += law[:, n - 1] * (n + sums[max(0, bound - n)])
    # No matrix product: its order of additions, and so the last bit, depends on the machine.
    mean, square = (sum(n**power * law[:, n - 1] for n in range(1, ngram + 1)) for power in (1, 2))
    overshoot = (square / mean - 1) / 2  # the limit of m(b) - b
    low = np.maximum(np.floor(budget - overshoot), 0).astype(np.int64)
    exact = np.count_nonzero(sums <= budget, axis=0) - 1
    low = np.where(low < _RECURSION - 1, exact, low)
    floor, ceiling = (
        np.where(bound <= _RECURSION, sums[np.minimum(bound, _RECURSION), rows], bound + overshoot)
        for bound in (low, low + 1)
    )
    return low.astype(np.int32), _to_thresholds((budget - floor) / (ceiling - floor))


def _to_thresholds(probability: np.ndarray) -> np.ndarray:
    """Bounds under which 64 random bits fall with these probabilities; the last bit of 1.0 is lost."""
    scaled = np.clip(probability, 0.0, 1.0) * 2.0**64
    almost_one = np.minimum(scaled, 2.0**64 - 4096).astype(np.uint64)
    thresholds: np.ndarray = np.where(scaled >= 2.0**64, np.uint64(2**64 - 1), almost_one)
    return thresholds
