"""The order of batches has each row once an epoch, is the same for all ranks, and can begin at any position."""

from __future__ import annotations

from itertools import islice, takewhile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_data.train import order
from albert_data.train.order import (
    BUCKET,
    BatchOrder,
    Position,
    RowBatch,
    cut_batches,
    permute,
    rows_per_batch,
    take_share,
)

START = Position(0, 0, 0)
seeds = st.integers(0, 2**63 - 1)
row_lengths = st.lists(st.integers(2, 512), min_size=1, max_size=400)


@pytest.fixture
def small_windows(monkeypatch):
    """Use windows of about three batches, so that an epoch has many."""
    monkeypatch.setattr(order, "WINDOW_BATCHES", 3)


def epoch_of(batch_order: BatchOrder, epoch: int) -> list[RowBatch]:
    found = takewhile(lambda one: one[1].epoch == epoch, batch_order.batches_from(Position(epoch, 0, 0)))
    return [batch for batch, _, _ in found]


def plain_batches(rows: list[int], lengths: list[int], batch_tokens: int) -> list[tuple[list[int], int]]:
    """`cut_batches` as a plain loop over rows."""
    batches, waiting = [], []
    for row_len in range(BUCKET, max(lengths) + BUCKET, BUCKET):
        here = [row for row, length in zip(rows, lengths, strict=True) if row_len - BUCKET < length <= row_len]
        waiting += here
        while here and len(waiting) >= max(1, batch_tokens // row_len):
            slots = max(1, batch_tokens // row_len)
            batches.append((waiting[:slots], row_len))
            waiting = waiting[slots:]
    if waiting:
        batches.append((waiting, row_len))
    return batches


# ---- the permutation ----


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 3000), seed=seeds, epoch=st.integers(0, 10**6))
def test_permute_is_a_bijection_for_any_size_seed_and_epoch(size, seed, epoch):
    values = permute(np.arange(size), size=size, seed=seed, epoch=epoch)
    assert np.array_equal(np.sort(values), np.arange(size))


def test_permute_at_a_few_indices_equals_the_whole_permutation():
    whole = permute(np.arange(1000), size=1000, seed=3, epoch=5)
    places = np.array([999, 0, 17, 17])
    assert np.array_equal(permute(places, size=1000, seed=3, epoch=5), whole[places])


def test_permute_sends_every_index_to_every_value_equally_often():
    size, draws = 20, 1000
    counts = np.zeros((size, size))
    for epoch in range(draws):
        counts[np.arange(size), permute(np.arange(size), size=size, seed=1, epoch=epoch)] += 1
    expected = draws / size
    # Chi-square with 19 * 19 = 361 degrees of freedom: mean 361, deviation 26.9; five deviations are allowed.
    assert ((counts - expected) ** 2 / expected).sum() < 361 + 5 * 26.9


def test_permute_keeps_no_trace_of_the_order_of_rows():
    values = permute(np.arange(10_000), size=10_000, seed=0, epoch=0)
    assert abs(np.corrcoef(np.arange(10_000), values)[0, 1]) < 5 / 100  # deviation 1 / sqrt(10,000)
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 5 / 100


# ---- the batches ----


@settings(max_examples=60, deadline=None)
@given(lengths=row_lengths, batch_tokens=st.integers(1, 3000))
def test_batches_equal_those_cut_a_row_at_a_time(lengths, batch_tokens):
    rows = np.random.default_rng(0).permutation(len(lengths))
    found = cut_batches(rows, np.array(lengths)[rows], batch_tokens)
    expected = plain_batches(rows.tolist(), [lengths[row] for row in rows], batch_tokens)
    assert [(batch.rows.tolist(), batch.row_len) for batch in found] == expected


@settings(max_examples=60, deadline=None)
@given(lengths=row_lengths, batch_tokens=st.integers(1, 3000), seed=seeds, epoch=st.integers(0, 5))
def test_each_row_comes_exactly_once_an_epoch_in_few_shapes(lengths, batch_tokens, seed, epoch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "WINDOW_BATCHES", 3)
        batch_order = BatchOrder(np.array(lengths, np.int32), batch_tokens=batch_tokens, seed=seed)
        batches = epoch_of(batch_order, epoch)
    assert sorted(row for batch in batches for row in batch.rows) == list(range(len(lengths)))
    assert {batch.row_len for batch in batches} <= {order.padded_len(length) for length in lengths}
    short = [batch for batch in batches if len(batch.rows) < rows_per_batch(batch.row_len, batch_tokens)]
    assert len(short) <= batch_order.num_windows
    for batch in batches:
        assert max(lengths[row] for row in batch.rows) <= batch.row_len
        assert len(batch.rows) == 1 or len(batch.rows) * batch.row_len <= batch_tokens


@settings(max_examples=30, deadline=None)
@given(lengths=row_lengths, batch_tokens=st.integers(64, 2000), seed=seeds, data=st.data())
def test_a_position_gives_the_same_batch_with_and_without_the_batches_before_it(lengths, batch_tokens, seed, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "WINDOW_BATCHES", 3)
        orders = [BatchOrder(np.array(lengths), batch_tokens=batch_tokens, seed=seed) for _ in range(2)]
    in_turn = list(islice(orders[0].batches_from(START), 2 * len(epoch_of(orders[0], 0))))
    at = data.draw(st.integers(0, len(in_turn) - 1))
    batch, place, after = in_turn[at]
    alone, place_alone, after_alone = next(orders[1].batches_from(place))
    assert np.array_equal(alone.rows, batch.rows)
    assert (alone.row_len, place_alone, after_alone) == (batch.row_len, place, after)
    assert orders[1].holds(place)


@given(num_rows=st.integers(0, 50), num_ranks=st.integers(1, 9))
def test_the_shares_of_ranks_make_up_the_batch_and_differ_by_at_most_a_row(num_rows, num_ranks):
    rows = np.arange(num_rows)
    shares = [take_share(rows, rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
    assert np.array_equal(np.concatenate(shares), rows)
    assert max(map(len, shares)) == -(-num_rows // num_ranks)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_windows_divide_the_epoch_evenly(small_windows):
    batch_order = BatchOrder(np.full(1000, 64), batch_tokens=640, seed=0)
    sizes = [sum(len(batch.rows) for batch in batch_order.window(0, i)) for i in range(batch_order.num_windows)]
    assert len(sizes) == round(1000 / 30)
    assert max(sizes) - min(sizes) <= 1


def test_rows_of_many_lengths_have_little_padding():
    lengths = np.random.default_rng(0).integers(3, 513, 50_000)
    batch_order = BatchOrder(lengths, batch_tokens=16_384, seed=0)
    batches = epoch_of(batch_order, 0)
    cells = sum(rows_per_batch(batch.row_len, 16_384) * batch.row_len for batch in batches)
    whole_buckets = (-(-lengths // 64) * 64).sum()
    assert cells < 1.02 * whole_buckets


def test_batches_do_not_come_sorted_by_length():
    lengths = np.random.default_rng(0).integers(3, 512, 6_000)
    row_lens = [batch.row_len for batch in epoch_of(BatchOrder(lengths, batch_tokens=8192, seed=0), 0)]
    assert abs(np.corrcoef(np.arange(len(row_lens)), row_lens)[0, 1]) < 5 / np.sqrt(len(row_lens))


@pytest.mark.parametrize("place", [(0, 0, 999), (0, 1, 0), (-1, 0, 0), (0, 0, -1)])
def test_holds_tells_which_positions_exist(place):
    batch_order = BatchOrder(np.full(20, 10), batch_tokens=64 * 5, seed=0)
    assert batch_order.holds(Position(7, 0, 3))
    assert not batch_order.holds(Position(*place))


def test_epochs_and_seeds_differ():
    lengths = np.full(200, 10)
    first, other = (BatchOrder(lengths, batch_tokens=64 * 20, seed=seed) for seed in (0, 1))
    rows = [set(found.window(epoch, 0)[0].rows) for found, epoch in ((first, 0), (first, 1), (other, 0))]
    assert rows[0] != rows[1]
    assert rows[0] != rows[2]


def test_the_batch_list_is_frozen():
    # If this changes, --resume trains on other batches: raise the format version of checkpoints too.
    batch_order = BatchOrder(np.arange(40, 80, 4), batch_tokens=192, seed=42)
    batches = [batch.rows.tolist() for batch, _, _ in islice(batch_order.batches_from(START), 6)]
    assert batches == [[8], [2], [4, 3, 1], [7], [6, 0, 5], [9]]
