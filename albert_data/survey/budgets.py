"""How often the documents of each source are used: by weight, by a budget of tokens, or by a share of all.

All this depends on the sets of documents alone, so copies and layout change nothing.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from albert_data.corpus.sources import ONE_PASS, share_tokens
from albert_data.kernels.draws import choice_keys
from albert_data.survey.document_lists import DocumentReader

# Budgets are cut between 2**16 ranges of choice keys, so they err by 1 / 2**16 of a large source. Over 256 sources have
# fewer ranges, so that the counts of all take 128 MB at most.
_BUCKET_BITS, _CELL_BITS = 16, 24


def find_limits(reader: DocumentReader) -> list[int]:
    """The limit of each source; none without sources. That of a budget or share is the one that comes nearest to it."""
    config, sources = reader.config.examples, reader.sources
    limits = [source.count_limit(config.dupe_factor) for source in sources]
    sharing = [source for source in sources if source.alpha is not None and source.limit is None]
    wanted = {source: source.tokens for source in sources if source.tokens is not None}
    bits = choose_bucket_bits(len(limits))
    counts = np.zeros((len(limits), 1 << bits), np.int64)
    for listed in reader.read() if wanted or sharing else ():
        own = listed.is_own & ~listed.is_similar
        choices = choice_keys(np.uint64(config.seed), listed.keys[own]) >> np.uint64(64 - bits)
        np.add.at(counts, (listed.sources[own], choices.astype(np.int64)), listed.tokens[own])
    wanted |= share_tokens({source: int(counts[source.number].sum()) for source in sharing})
    for source, tokens in wanted.items():
        number = source.number
        limits[number] = _find_limit(counts[number], tokens, config.dupe_factor, limits[number])
    return limits


def choose_bucket_bits(num_sources: int) -> int:
    """The bits of a choice key that name its range.

    >>> choose_bucket_bits(256), choose_bucket_bits(2000)
    (16, 13)
    """
    return min(_BUCKET_BITS, _CELL_BITS - (num_sources - 1).bit_length())


def _find_limit(counts: np.ndarray, budget: int, dupe_factor: int, most: int) -> int:
    """The limit at which the passes have nearest to `budget` * `dupe_factor` tokens, but at most `most`.

    counts: tokens of the documents by their choice keys, in ranges of equal size, a power of two.
    """
    sums: list[int] = np.append(0, np.cumsum(counts)).tolist()
    if most * sums[-1] <= budget * dupe_factor * ONE_PASS:
        return most
    whole, rest = divmod(budget * dupe_factor, sums[-1])
    at = bisect_left(sums, rest)
    if at > 0 and rest - sums[at - 1] < sums[at] - rest:
        at -= 1
    return min(whole * ONE_PASS + at * (ONE_PASS // len(counts)), most)
