"""The batch list: each row once an epoch, the same for any rank, any step reached alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_data.train.order import WINDOW_BATCHES, BatchOrder, permute

seeds = st.integers(0, 2**63 - 1)


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 3000), seed=seeds, epoch=st.integers(0, 10**6))
def test_permute_is_a_bijection_for_any_size_seed_and_epoch(size, seed, epoch):
    values = permute(np.arange(size), size=size, seed=seed, epoch=epoch)
    assert np.array_equal(np.sort(values), np.arange(size))


def test_permute_at_a_few_places_equals_the_whole_permutation_at_them():
    whole = permute(np.arange(1000), size=1000, seed=3, epoch=5)
    places = np.array([999, 0, 17, 17])
    assert np.array_equal(permute(places, size=1000, seed=3, epoch=5), whole[places])


def test_permute_sends_every_place_to_every_value_alike():
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


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(3, 64), min_size=1, max_size=400),
    batch_size=st.integers(1, 9),
    seed=seeds,
    epoch=st.integers(0, 5),
)
def test_each_row_comes_exactly_once_an_epoch(lengths, batch_size, seed, epoch):
    order = BatchOrder(np.array(lengths, np.int32), batch_size=batch_size, seed=seed)
    steps = range(epoch * order.batches_per_epoch, (epoch + 1) * order.batches_per_epoch)
    batches = [order.rows_at(step) for step in steps]
    assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(len(lengths)))
    assert sorted(map(len, batches))[1:] == [batch_size] * (len(batches) - 1)


@settings(max_examples=30, deadline=None)
@given(num_rows=st.integers(1, 900), batch_size=st.integers(1, 7), seed=seeds, data=st.data())
def test_any_step_is_the_same_alone_as_after_all_others(num_rows, batch_size, seed, data):
    lengths = np.random.default_rng(num_rows).integers(3, 64, num_rows)
    order = BatchOrder(lengths, batch_size=batch_size, seed=seed)
    in_turn = [order.rows_at(step) for step in range(2 * order.batches_per_epoch)]
    step = data.draw(st.integers(0, len(in_turn) - 1))
    alone = BatchOrder(lengths, batch_size=batch_size, seed=seed)
    assert np.array_equal(alone.rows_at(step), in_turn[step])


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8])
def test_ranks_part_the_same_batches_between_them(num_ranks):
    lengths = np.random.default_rng(0).integers(3, 64, 500)
    order = BatchOrder(lengths, batch_size=16, seed=7)
    for step in range(order.batches_per_epoch):
        whole = order.rows_at(step)
        shares = [order.rows_at(step, rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
        assert np.array_equal(np.sort(np.concatenate(shares)), np.sort(whole))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_batch_holds_rows_of_like_length():
    lengths = np.random.default_rng(0).integers(3, 512, WINDOW_BATCHES * 8 * 4)
    order = BatchOrder(lengths, batch_size=8, seed=0)
    spreads = [np.ptp(lengths[order.rows_at(step)]) for step in range(order.batches_per_epoch)]
    assert np.mean(spreads) < 509 / WINDOW_BATCHES


def test_batches_do_not_come_sorted_by_length():
    lengths = np.random.default_rng(0).integers(3, 512, WINDOW_BATCHES * 8)
    order = BatchOrder(lengths, batch_size=8, seed=0)
    means = [lengths[order.rows_at(step)].mean() for step in range(WINDOW_BATCHES)]
    assert abs(np.corrcoef(np.arange(WINDOW_BATCHES), means)[0, 1]) < 5 / 8  # deviation 1 / sqrt(64)


def test_epochs_and_seeds_differ():
    lengths = np.full(200, 10)
    order = BatchOrder(lengths, batch_size=20, seed=0)
    other = BatchOrder(lengths, batch_size=20, seed=1)
    first, second = order.rows_at(0), order.rows_at(order.batches_per_epoch)
    assert not np.array_equal(np.sort(first), np.sort(second))
    assert not np.array_equal(np.sort(first), np.sort(other.rows_at(0)))


def test_the_batch_list_is_frozen():
    # A change here changes what --resume trains on: raise the checkpoints' format version with it.
    order = BatchOrder(np.arange(3, 13), batch_size=3, seed=42)
    assert [order.rows_at(step).tolist() for step in (0, 1, 5)] == [[6, 7, 8], [3, 4, 5], [3, 4, 5]]
