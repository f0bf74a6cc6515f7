"""The order of batches has each row once an epoch, is the same for all ranks, and can begin at any position."""

from __future__ import annotations

from itertools import islice, takewhile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_data.train import order
from albert_data.train.order import (
    BUCKET,
    CPU_BUCKET,
    BatchOrder,
    Position,
    RowBatch,
    cut_batches,
    cut_share,
    rows_per_batch,
    shuffle,
)

START = Position(0, 0, 0)
seeds = st.integers(0, 2**63 - 1)
row_lengths = st.lists(st.integers(2, 512), min_size=1, max_size=400)


def epoch_of(batch_order: BatchOrder, epoch: int) -> list[RowBatch]:
    found = takewhile(lambda one: one[1].epoch == epoch, batch_order.batches_from(Position(epoch, 0, 0)))
    return [batch for batch, _, _ in found]


def plain_batches(rows: list[int], lengths: list[int], batch_tokens: int, bucket: int) -> list[tuple[list[int], int]]:
    """`cut_batches` as a plain loop over rows."""
    batches, waiting = [], []
    for row_len in range(bucket, max(lengths) + bucket, bucket):
        here = [row for row, length in zip(rows, lengths, strict=True) if row_len - bucket < length <= row_len]
        waiting += here
        while here and len(waiting) >= max(1, batch_tokens // row_len):
            slots = max(1, batch_tokens // row_len)
            batches.append((waiting[:slots], row_len))
            waiting = waiting[slots:]
    if waiting:
        batches.append((waiting, row_len))
    return batches


# ---- the shuffle ----


@given(num=st.integers(0, 3000), seed=seeds, epoch=st.integers(0, 10**6))
def test_shuffle_returns_each_number_once_for_any_seed_and_epoch(num, seed, epoch):
    assert np.array_equal(np.sort(shuffle(num, seed, epoch)), np.arange(num))


def test_shuffle_sorts_by_splitmix64():
    def output(state: int) -> int:  # of the published code, as plain Python
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) % 2**64
        return state ^ (state >> 31)

    first = int(order.derive_keys(7, 8, num=1)[0])
    keys = [output((first + i * 0x9E3779B97F4A7C15) % 2**64) for i in range(50)]
    assert shuffle(50, 7, 8).tolist() == sorted(range(50), key=keys.__getitem__)


# ---- the windows ----


def plain_epoch(num_rows: int, seed: int, epoch: int) -> list[int]:
    """The rows of an epoch before each window is shuffled: blocks one after another, as a plain loop."""
    blocks = [list(range(num_rows))[begin : begin + order.BLOCK_ROWS] for begin in range(0, num_rows, order.BLOCK_ROWS)]
    places = shuffle(len(blocks), seed, epoch, 0, order._BLOCKS)
    return [row for place in places for row in blocks[place]]


def count_stretches(rows: list[int]) -> int:
    """How many runs of consecutive numbers the rows make up."""
    found = set(rows)
    return sum(row - 1 not in found for row in found)


@given(
    lengths=row_lengths,
    block_rows=st.integers(1, 90),
    batch_tokens=st.integers(64, 3000),
    seed=seeds,
    epoch=st.integers(0, 5),
)
def test_the_windows_of_an_epoch_cut_its_shuffled_blocks(lengths, block_rows, batch_tokens, seed, epoch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "WINDOW_BATCHES", 3)
        patch.setattr(order, "BLOCK_ROWS", block_rows)
        batch_order = BatchOrder(np.array(lengths), batch_tokens=batch_tokens, seed=seed)
        windows = [
            [int(row) for batch in batch_order.window(epoch, window) for row in batch.rows]
            for window in range(batch_order.num_windows)
        ]
        expected = plain_epoch(len(lengths), seed, epoch)
    assert max(map(len, windows)) - min(map(len, windows)) <= 1
    at = 0
    for window in windows:
        assert sorted(window) == sorted(expected[at : at + len(window)])
        # Blocks of these rows, one block of which only a part is here at either end, and the short one.
        assert count_stretches(window) <= len(window) // block_rows + 3
        at += len(window)
    assert at == len(lengths)


# ---- the batches ----


@given(lengths=row_lengths, batch_tokens=st.integers(1, 3000), bucket=st.sampled_from([BUCKET, CPU_BUCKET, 1]))
def test_batches_equal_those_cut_a_row_at_a_time(lengths, batch_tokens, bucket):
    rows = np.random.default_rng(0).permutation(len(lengths))
    found = cut_batches(rows, np.array(lengths)[rows], batch_tokens, bucket)
    expected = plain_batches(rows.tolist(), [lengths[row] for row in rows], batch_tokens, bucket)
    assert [(batch.rows.tolist(), batch.row_len) for batch in found] == expected


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
    offsets = np.arange(num_rows + 1)
    shares = [cut_share(offsets, rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
    assert np.array_equal(np.concatenate([share[:-1] for share in shares]), offsets[:-1])
    assert all(np.array_equal(np.diff(share), np.ones(len(share) - 1)) for share in shares)
    sizes = [len(share) - 1 for share in shares]
    assert max(sizes) == -(-num_rows // num_ranks)
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("place", [(0, 0, 999), (0, 1, 0), (-1, 0, 0), (0, 0, -1)])
def test_holds_tells_which_positions_exist(place):
    batch_order = BatchOrder(np.full(20, 10), batch_tokens=64 * 5, seed=0)
    assert batch_order.holds(Position(7, 0, 3))
    assert not batch_order.holds(Position(*place))


def test_the_batch_list_is_frozen():
    # If this changes, --resume would train on other batches: raise ORDER_VERSION too.
    assert order.ORDER_VERSION == 2
    batch_order = BatchOrder(np.arange(40, 80, 4), batch_tokens=192, seed=42)
    batches = [batch.rows.tolist() for batch, _, _ in islice(batch_order.batches_from(START), 6)]
    assert batches == [[1, 0, 3], [8], [9], [5], [7], [2, 6, 4]]
    batch_order = BatchOrder(np.full(20_000, 64), batch_tokens=192, seed=42)
    batches = [batch.rows.tolist() for batch, _, _ in islice(batch_order.batches_from(Position(1, 2, 5)), 3)]
    assert batches == [[1893, 1921, 4035], [16728, 3424, 3149], [16721, 3846, 16694]]
