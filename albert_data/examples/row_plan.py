"""Which sentences share a row, so that as few rows as possible hold a single sentence.

In: the boundaries of the sentences of a passage, in tokens. A passage is a sequence of sentences of one document, none
of which is longer than a row. Out: for each sentence, the best way to make rows from there on. A row of one sentence
has no order to learn, and a greedy choice makes more of these than necessary: 25 % instead of 20 % of the rows of
English books at length 128.

The table is filled from the end: cost[i] is the smallest (single rows, rows) from sentence i on, compared in that
order. A row that begins at sentence i ends as far off as fits, or one sentence before that. No other end is better: if
the next row ends farther off than this one could, it can leave to this one all but its last two sentences; if not, one
row can hold both.

In a later pass a row that an earlier pass has, too, counts as two rows, and more ends are tried. So most rows are new,
for few rows more, and no single row more (docs/explanation/fidelity.md, "Passes").

Sentences that are longer than a row are cut here too, into rows of similar lengths, at clauses where they have any, in
a later pass at others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.kernels import helper
from albert_data.tokenizer.words import begins_clause, begins_word

_SINGLE = 1 << 32  # a row costs 1, and this much more if it holds a single sentence, which makes no pair
_NUM_ENDS, _NUM_LATER_ENDS = 2, 8  # how many ends of a row are tried: in pass 0, in a later one
# A pass avoids the rows of the passes before it in its group. Their planning is repeated, so a group is small.
GROUP_SIZE = 8


class PlanScratch(NamedTuple):
    """Scratch buffers for the sentences of a document or passage, all int64 but is_alone, which is bool.

    edges: where each sentence of the document begins, and, as the last item, where the last one ends
    is_alone: whether the sentence has a row of its own, because it is a heading that was taken off the next sentence
    bounds: the same of the passage, from 0
    cost, row_ends: the table, for each sentence of the passage
    earlier: [passes, S], for each pass that is avoided, and each sentence of the document with which one of its rows
        begins, the number of the sentence after that row; 0 for other sentences
    """

    edges: np.ndarray
    is_alone: np.ndarray
    bounds: np.ndarray
    cost: np.ndarray
    row_ends: np.ndarray
    earlier: np.ndarray


class PairRule(NamedTuple):
    """What decides how documents are cut.

    starts, standalone: see WordRule
    max_tokens: of text in a row
    short_threshold: 64 random bits below it make a row short
    num_labels: of the sentence task, 0 without one
    """

    starts: np.ndarray
    standalone: np.ndarray
    seed: np.uint64
    pass_index: int
    max_tokens: int
    short_threshold: np.uint64
    num_labels: int


class Passage(NamedTuple):
    """The sentences `first` to `stop` - 1 of a document, none of which is longer than a row or alone.

    key: the document's; first_row: the number of the passage's first row in its document and pass
    """

    first: int
    stop: int
    key: np.uint64
    pass_index: int
    first_row: int


@helper
def locate(passage: Passage, is_backward: bool, begin: int, end: int) -> tuple[int, int]:
    """The sentences begin .. end - 1 of the plan, as they are numbered in the document."""
    if is_backward:
        return passage.stop - end, passage.stop - begin
    return passage.first + begin, passage.first + end


@helper
def fill_table(scratch: PlanScratch, passage: Passage, is_backward: bool, max_tokens: int, wants_pairs: bool) -> None:
    """Fill in `cost` from each sentence on, and `row_ends`: the cheapest end of a row from there.

    Of equally cheap ends that is the farthest. wants_pairs: whether a row of a single sentence costs more.
    """
    bounds, cost, row_ends, earlier = scratch.bounds, scratch.cost, scratch.row_ends, scratch.earlier
    num_earlier = passage.pass_index % GROUP_SIZE
    num_ends = _NUM_LATER_ENDS if num_earlier > 0 else _NUM_ENDS
    farthest = passage.stop - passage.first
    cost[farthest] = 0
    for i in range(farthest - 1, -1, -1):
        while bounds[farthest] - bounds[i] > max_tokens:
            farthest -= 1
        for end in range(farthest, max(farthest - num_ends, i), -1):
            found = cost[end] + 1 + _SINGLE * (wants_pairs and end == i + 1)
            low, high = locate(passage, is_backward, i, end)
            for other in range(num_earlier):
                if earlier[other, low] == high:
                    found += 1
                    break
            if end == farthest or found < cost[i]:
                cost[i], row_ends[i] = found, end


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
def cut_long_sentence(ids: np.ndarray, begin: int, end: int, rule: PairRule, num_earlier: int) -> int:
    """The end of the first row of what is left of a long sentence, such that its rows have similar lengths.

    `low` is the first end after which the rest fits the other rows. The row ends at the clause from `low` on that is
    nearest to an equal share, and at most half of a share away from it; each later pass goes on by an eighth of a share
    to the next such clause, in a circle. Without a clause it ends at the nearest word boundary. If a row can reach none
    of these, it ends at the last boundary before `low`, and the rest takes one more row. Without any boundary, it ends
    at the equal share, inside a word.
    """
    starts, standalone, max_tokens = rule.starts, rule.standalone, rule.max_tokens
    num_rows = -(-(end - begin) // max_tokens)
    if num_rows == 1:
        return end
    share = (end - begin) // num_rows
    ideal, low = begin + share, max(begin + 1, end - (num_rows - 1) * max_tokens)
    first, last = max(low, ideal - share // 2), min(begin + max_tokens, ideal + share // 2)
    step = share // 8 + 1  # after fewer tokens a row would be nearly that of an earlier pass
    for distance in range(share // 2 + 1):
        for nearest in (ideal - distance, ideal + distance):
            if first <= nearest <= last and begins_clause(ids, nearest, starts, standalone):
                at = nearest
                for _ in range(num_earlier):
                    at = at + step if at + step <= last else first
                    while not begins_clause(ids, at, starts, standalone):
                        at = at + 1 if at < last else first
                return at
    for distance in range(max_tokens):  # outwards from the equal share, on both sides
        for at in (ideal - distance, ideal + distance):
            if low <= at <= begin + max_tokens and begins_word(ids, at, begin, starts, standalone):
                return at
    for at in range(low - 1, begin, -1):
        if begins_word(ids, at, begin, starts, standalone):
            return at
    return ideal
