"""Which sentences share a row, so that as few rows as possible hold a single one.

In: where the sentences of a block begin and end, in tokens; none is longer than a row. Out: for each sentence, how the
rows from there on are best made. A row of one sentence has no order to learn, and a greedy choice makes more of these
than there must be: 25 % instead of 20 % of the rows of English books at length 128.

The table is filled from the end: cost[i] is the smallest (single rows, rows) from sentence i on, compared in that
order. The candidates for the end of a row at i are a window that only moves towards the front, so their minimum comes
from a monotonic queue, and the time is linear.

Long sentences are cut here too: one that is longer than a row fills rows of its own, of nearly equal lengths.
"""

from __future__ import annotations

import numpy as np

from albert_data.kernels import helper
from albert_data.tokenizer.words import begins_word

_SINGLE = 1 << 32  # the cost of a single row; of a row: 1


@helper
def fill_table(
    bounds: np.ndarray,
    num_sentences: int,
    max_tokens: int,
    cost: np.ndarray,
    row_ends: np.ndarray,
    queue: np.ndarray,
) -> None:
    """Fill in the cost from each sentence on, and the end of the row that begins there: the last of the cheapest.

    bounds: int64, where each sentence begins, and last where they end; cost, row_ends, queue: int64, as long.
    """
    cost[num_sentences] = 0
    head = tail = 0
    for i in range(num_sentences - 1, -1, -1):
        if i + 2 <= num_sentences:
            while tail > head and cost[queue[tail - 1]] > cost[i + 2]:
                tail -= 1
            queue[tail] = i + 2
            tail += 1
        while head < tail and bounds[queue[head]] - bounds[i] > max_tokens:
            head += 1
        row_ends[i], cost[i] = i + 1, cost[i + 1] + _SINGLE + 1
        if head < tail and cost[queue[head]] + 1 <= cost[i]:
            row_ends[i], cost[i] = queue[head], cost[queue[head]] + 1


@helper
def end_short_row(bounds: np.ndarray, first: int, target: int, cost: np.ndarray, row_ends: np.ndarray) -> int:
    """The end of a row of at most `target` tokens from sentence `first` on that makes no single row more than needed.

    Where there is none, the shortest row that makes none.
    """
    singles = cost[first] // _SINGLE
    stop = first
    while stop < row_ends[first] and bounds[stop + 1] - bounds[first] <= target:
        stop += 1
    for end in range(stop, first, -1):
        if cost[end] // _SINGLE + (end == first + 1) == singles:
            return end
    end = stop + 1
    while cost[end] // _SINGLE + (end == first + 1) != singles:
        end += 1
    return end


@helper
def cut_long_sentence(
    ids: np.ndarray, begin: int, end: int, max_tokens: int, starts: np.ndarray, standalone: np.ndarray
) -> int:
    """Where the first row of a sentence ends that takes several, so that all are nearly equal.

    That is the word boundary nearest to an equal share; if possible one that needs no further row.
    """
    num_rows = -(-(end - begin) // max_tokens)
    if num_rows == 1:
        return end
    ideal = begin + (end - begin) // num_rows
    low = max(begin + 1, end - (num_rows - 1) * max_tokens)
    for distance in range(max_tokens):
        for at in (ideal - distance, ideal + distance):
            if low <= at <= begin + max_tokens and begins_word(ids, at, begin, starts, standalone):
                return at
    for at in range(low - 1, begin, -1):
        if begins_word(ids, at, begin, starts, standalone):
            return at
    return ideal
