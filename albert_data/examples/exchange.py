"""Exchanges segments B between pairs of different documents, for next sentence prediction (BERT, section 3.1).

In: the rows of a slice, in random order; the labels of some say that B is to be of another document. Out: the same
rows with segments B exchanged, two rows at a time. So no token is lost, repeated or cut off.

docs/explanation/fidelity.md says what could give the label away, and what is done about it. A row that finds no
partner stays as it is, and gets the label of a pair in order.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.data import Pairs
from albert_data.examples.pair_tasks import IN_ORDER, RANDOM_B
from albert_data.kernels import copy_items, kernel, pointer

LOOK_BACK = 16  # rows without a partner among which one is searched; more would find hardly any
CLOSE = 8  # lengths of B, with its [SEP], that change places differ by at most one part in so many
# In a slice of few rows they may also differ by so many times max_seq_len / rows, about the distance from one length to
# the next. From 2,000 rows of 512 tokens on that is less than a token.
SLACK = 4


def exchange_segments(pairs: Pairs, sources: np.ndarray, config: ExampleConfig) -> tuple[Pairs, np.ndarray]:
    """Exchange segments B between rows whose label says so. sources: uint16, of each row.

    Also returns the row that each B was in, which is mostly the row itself: int64.
    """
    task = config.task
    lengths = np.diff(pairs.offsets)
    rests = lengths - pairs.segment_a_len - 2  # B and its [SEP]; 0 in a row without B
    chosen = np.flatnonzero(pairs.sop_label == task.label_of(RANDOM_B))
    chosen = chosen[np.lexsort((rests[chosen], sources[chosen]))]  # stable, so equal ones stay in the random order
    partners = np.arange(len(pairs))
    slack = SLACK * config.max_seq_len // max(1, len(chosen))
    match_rows(chosen, rests, config.max_seq_len - lengths, pairs.document_keys, sources, slack, partners)
    labels = pairs.sop_label.copy()
    labels[chosen[partners[chosen] == chosen]] = task.label_of(IN_ORDER)
    offsets = np.append(0, np.cumsum(lengths - rests + rests[partners]))
    ids = np.empty_like(pairs.ids)
    lay_out_exchanged(pairs.ids, pairs.offsets, pairs.segment_a_len, partners, offsets, ids)
    return dataclasses.replace(pairs, ids=ids, offsets=offsets, sop_label=labels), partners


@kernel
def match_rows(
    chosen: np.ndarray,
    rests: np.ndarray,
    rooms: np.ndarray,
    keys: np.ndarray,
    sources: np.ndarray,
    slack: int,
    partners: np.ndarray,
) -> None:
    """Write the partner of each chosen row that finds one into `partners` (int64).

    chosen: rows by source and then by length of B; rests: int64, of each row, the tokens of B and its [SEP]; rooms:
    int64, tokens by which a row may grow; slack: see SLACK. Each row takes the last one without a partner that fits:
    that is the nearest in length. Where most rows are of one document, its rows wait, and any other row finds one.
    """
    waiting, num_waiting = np.empty(len(chosen), np.int64), 0
    for row in chosen:
        found = -1
        for i in range(num_waiting - 1, max(-1, num_waiting - 1 - LOOK_BACK), -1):
            other = waiting[i]
            growth = rests[row] - rests[other]  # of the other row; this one gets the shorter B
            if sources[other] != sources[row] or (growth * CLOSE > rests[other] and growth > slack):
                break  # all rows before it are of another source too, or even shorter
            if keys[other] != keys[row] and growth <= rooms[other]:
                found = i
                break
        if found < 0:
            waiting[num_waiting] = row
            num_waiting += 1
            continue
        partners[row], partners[waiting[found]] = waiting[found], row
        num_waiting -= 1
        for i in range(found, num_waiting):
            waiting[i] = waiting[i + 1]


@kernel
def lay_out_exchanged(
    ids: np.ndarray,
    offsets: np.ndarray,
    segment_a_len: np.ndarray,
    partners: np.ndarray,
    new_offsets: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write each row with the segment B of its partner, from its new offset on."""
    source, target = pointer(ids), pointer(out)
    for row in range(len(partners)):
        other, at = partners[row], new_offsets[row]
        head = segment_a_len[row] + 2  # [CLS] A [SEP]
        copy_items(target, at, source, offsets[row], head)
        b_begin = offsets[other] + segment_a_len[other] + 2
        copy_items(target, at + head, source, b_begin, offsets[other + 1] - b_begin)
