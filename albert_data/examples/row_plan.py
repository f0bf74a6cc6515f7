"""Which sentences share a row, so that as few rows as possible hold a single sentence.

In: the boundaries of the sentences of a passage, in tokens. A passage is a sequence of sentences of one document, none
of which is longer than a row. Out: for each sentence, the best way to make rows from there on. A row of one sentence
has no order to learn, and a greedy choice makes more of these than necessary: 25 % instead of 20 % of the rows of
English books at length 128.

The table is filled from the end: cost[i] is the smallest (single rows, rows) from sentence i on, compared in that
order. A row that begins at sentence i may end at any of the next sentences that fit. As i falls, the nearest and
the farthest possible end fall too, so a monotonic queue gives the cheapest one, in linear time.

Sentences that are longer than a row are cut here too, into rows of nearly equal lengths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.kernels import helper
from albert_data.tokenizer.words import begins_word

_SINGLE = 1 << 32  # a row costs 1, and this much more if it holds a single sentence, which makes no pair


class PlanScratch(NamedTuple):
    """Scratch buffers for the sentences of a document or passage, all int64.

    edges: where each sentence of the document begins, and, as the last item, where the last one ends
    bounds: the same of the passage, from 0
    cost, row_ends: the table, for each sentence of the passage
    queue: ends of a row
    """

    edges: np.ndarray
    bounds: np.ndarray
    cost: np.ndarray
    row_ends: np.ndarray
    queue: np.ndarray


@helper
def fill_table(scratch: PlanScratch, num_sentences: int, max_tokens: int, wants_pairs: bool) -> None:
    """Fill in `cost` from each sentence on, and `row_ends`: the cheapest end of a row from there.

    Of equally cheap ends that is the farthest. wants_pairs: whether a row of a single sentence costs more.
    """
    bounds, cost, row_ends, queue = scratch.bounds, scratch.cost, scratch.row_ends, scratch.queue
    cost[num_sentences] = 0
    head = tail = 0
    for i in range(num_sentences - 1, -1, -1):
        # From here on a row may end at i + 2. An end that is farther off and costs more is never the best again.
        if i + 2 <= num_sentences:
            while tail > head and cost[queue[tail - 1]] > cost[i + 2]:
                tail -= 1
            queue[tail] = i + 2
            tail += 1
        # Too far off, now and for all lower i.
        while head < tail and bounds[queue[head]] - bounds[i] > max_tokens:
            head += 1
        # A row of sentence i alone is always possible.
        row_ends[i], cost[i] = i + 1, cost[i + 1] + _SINGLE * wants_pairs + 1
        # The queue is ordered by cost, the cheapest end first; of equally cheap ones that is the farthest.
        if head < tail and cost[queue[head]] + 1 <= cost[i]:
            row_ends[i], cost[i] = queue[head], cost[queue[head]] + 1


@helper
def end_short_row(scratch: PlanScratch, first: int, target: int, wants_pairs: bool) -> int:
    """The end of a short row that begins at sentence `first`: as long as possible with at most `target` tokens.

    An end is allowed only if it leads to as few single rows as possible. If no allowed end is within the target, the
    nearest allowed one is taken.
    """
    bounds, cost, row_ends = scratch.bounds, scratch.cost, scratch.row_ends
    singles = cost[first] // _SINGLE
    stop = first
    # row_ends[first] is allowed, so no search beyond it is needed, and the loops below find an end.
    while stop < row_ends[first] and bounds[stop + 1] - bounds[first] <= target:
        stop += 1
    # `end == first + 1` adds the single row that sentence `first` alone would be.
    for end in range(stop, first, -1):
        if cost[end] // _SINGLE + (wants_pairs and end == first + 1) == singles:
            return end
    end = stop + 1
    while cost[end] // _SINGLE + (wants_pairs and end == first + 1) != singles:
        end += 1
    return end


@helper
def cut_long_sentence(
    ids: np.ndarray, begin: int, end: int, max_tokens: int, starts: np.ndarray, standalone: np.ndarray
) -> int:
    """The end of the first row of what is left of a long sentence, such that its rows have nearly equal lengths.

    `low` is the first end after which the rest fits the other rows. The row ends at the word boundary from `low` on
    that is nearest to an equal share. If a row can reach none of these, it ends at the last boundary before `low`, and
    the rest takes one more row. Without any boundary, it ends at the equal share, inside a word.
    """
    num_rows = -(-(end - begin) // max_tokens)
    if num_rows == 1:
        return end
    ideal = begin + (end - begin) // num_rows
    low = max(begin + 1, end - (num_rows - 1) * max_tokens)
    for distance in range(max_tokens):  # outwards from the equal share, on both sides
        for at in (ideal - distance, ideal + distance):
            if low <= at <= begin + max_tokens and begins_word(ids, at, begin, starts, standalone):
                return at
    for at in range(low - 1, begin, -1):
        if begins_word(ids, at, begin, starts, standalone):
            return at
    return ideal
