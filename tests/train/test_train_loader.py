"""Batches hold all rows, in few shapes, with ids, segments, masks and labels at their positions in the rows.

Of two iterators over a loader one fails, and worker processes get the same batches.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused, refused

from albert_data.data import Examples
from albert_data.errors import AlbertDataError, CheckpointError, ConfigError, ShardError
from albert_data.train import ShardLoader, order
from albert_data.train.batch import Batch, BatchShape, choose_mask_capacity, collate
from albert_data.train.loader import fixed_batches, read_ahead

CPU = torch.device("cpu")
TENSORS = ("input_ids_BT", "segment_ids_BT", "valid_BT", "masked_indices_N", "masked_labels_N", "sop_labels_B")


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """Use windows of about five batches."""
    monkeypatch.setattr(order, "WINDOW_BATCHES", 5)


def tiny_examples() -> Examples:
    """Make [CLS] 7 8 [SEP] 9 [SEP], masked at 2 (was 6), and [CLS] 7 [SEP] without a mask."""
    return Examples(
        input_ids=np.array([2, 7, 4, 3, 9, 3, 2, 7, 3], np.uint16),
        offsets=np.array([0, 6, 9]),
        segment_a_len=np.array([2, 1], np.int32),
        sop_label=np.array([1, -1], np.int8),
        masked_positions=np.array([2], np.uint16),
        masked_ids=np.array([6], np.uint16),
        mask_offsets=np.array([0, 1, 1]),
        document_keys=np.array([1, 2], np.uint64),
    )


def steps_of(loader: ShardLoader, num_steps: int) -> list:
    return list(islice(loader.stream(CPU), num_steps))


def assert_same(one, other) -> None:
    assert all(torch.equal(getattr(one, name), getattr(other, name)) for name in TENSORS)
    assert np.array_equal(one.rows, other.rows)


def row_of(batch, at: int) -> tuple:
    """Return a row of a batch as the shards have it: ids, segments, label, masks."""
    length, row_len = int(batch.valid_BT[at].sum()), batch.input_ids_BT.shape[1]
    is_here = (batch.masked_indices_N // row_len == at) & (batch.masked_labels_N != -1)
    positions = (batch.masked_indices_N[is_here] % row_len).tolist()
    return (
        batch.input_ids_BT[at, :length].tolist(),
        batch.segment_ids_BT[at, :length].tolist(),
        int(batch.sop_labels_B[at]),
        list(zip(positions, batch.masked_labels_N[is_here].tolist(), strict=True)),
    )


def rows_of(batches) -> dict[int, tuple]:
    return {int(row): row_of(batch, at) for batch in batches for at, row in enumerate(batch.rows)}


def stored_row(shards, row: int) -> tuple:
    one = shards.rows(np.array([row]))
    ids, a_len = one.input_ids.tolist(), int(one.segment_a_len[0])
    segments = [int(at >= a_len + 2) for at in range(len(ids))]
    masks = list(zip(one.masked_positions.tolist(), one.masked_ids.tolist(), strict=True))
    return ids, segments, int(one.sop_label[0]), masks


def plain_collate(examples: Examples, shape: BatchShape, pad_id: int) -> dict[str, list]:
    """`collate` as a plain loop over tokens."""
    num_rows, row_len, mask_capacity, _ = shape
    ids, segments, valid, labels, indices, originals = [], [], [], [], [], []
    for row in range(num_rows):
        here = slice(*examples.offsets[row : row + 2]) if row < len(examples) else slice(0, 0)
        tokens = examples.input_ids[here].tolist()
        second = examples.segment_a_len[row] + 2 if row < len(examples) else 0
        ids.append(tokens + [pad_id] * (row_len - len(tokens)))
        segments.append([int(second <= at < len(tokens)) for at in range(row_len)])
        valid.append([at < max(1, len(tokens)) for at in range(row_len)])
        labels.append(int(examples.sop_label[row]) if row < len(examples) else -1)
    for row, (begin, end) in enumerate(pairwise(examples.mask_offsets.tolist())):
        indices += [row * row_len + int(at) for at in examples.masked_positions[begin:end]]
        originals += examples.masked_ids[begin:end].tolist()
    if len(indices) > mask_capacity:
        mask_capacity = -(-len(indices) // 64) * 64
    left = mask_capacity - len(indices)
    return dict(
        zip(TENSORS, (ids, segments, valid, indices + [0] * left, originals + [-1] * left, labels), strict=True)
    )


# ---- laying out ----


def test_collate_lays_out_each_row():
    batch = collate(tiny_examples(), pad_id=0, shape=BatchShape(3, 8, 2))
    assert batch.input_ids_BT.tolist() == [[2, 7, 4, 3, 9, 3, 0, 0], [2, 7, 3, 0, 0, 0, 0, 0], [0] * 8]
    assert batch.segment_ids_BT.tolist() == [[0, 0, 0, 0, 1, 1, 0, 0], [0] * 8, [0] * 8]
    assert batch.valid_BT.sum(1).tolist() == [6, 3, 1]
    assert batch.masked_indices_N[:2].tolist() == [2, 0]
    assert batch.masked_labels_N[:2].tolist() == [6, -1]
    assert batch.sop_labels_B.tolist() == [1, -1, -1]
    assert (batch.num_tokens, batch.num_masked, batch.num_pairs) == (9, 1, 1)
    assert collate(tiny_examples(), pad_id=0).input_ids_BT.shape == (2, 8)


@given(num_rows=st.integers(0, 9), extra=st.integers(0, 3), mask_capacity=st.sampled_from([0, 64]), data=st.data())
def test_collate_equals_a_plain_loop_over_tokens(module_toys, num_rows, extra, mask_capacity, data):
    rows = np.array(data.draw(st.lists(st.integers(0, 39), min_size=num_rows, max_size=num_rows)), np.int64)
    examples = module_toys.make_shards(40).rows(rows)
    shape = BatchShape(num_rows + extra, 32, mask_capacity)
    batch = collate(examples, pad_id=3, shape=shape)
    expected = plain_collate(examples, shape, 3)
    assert {name: getattr(batch, name).tolist() for name in TENSORS} == expected
    assert (batch.num_tokens, batch.num_masked) == (len(examples.input_ids), len(examples.masked_ids))
    assert batch.num_pairs == sum(label != -1 for label in expected["sop_labels_B"])


def test_ids_are_int32_and_labels_int64_up_to_the_largest():
    batch = collate(dataclasses.replace(tiny_examples(), masked_ids=np.array([65_535], np.uint16)), pad_id=0)
    assert batch.masked_labels_N.tolist() == [65_535]
    assert {batch.input_ids_BT.dtype, batch.segment_ids_BT.dtype} == {torch.int32}
    assert {t.dtype for t in (batch.masked_indices_N, batch.masked_labels_N, batch.sop_labels_B)} == {torch.int64}


@pytest.mark.parametrize(("mask_prob", "span_len"), [(0.15, 2), (0.01, 1), (0.5, 5.5)])
def test_the_mask_capacity_exceeds_the_mean_and_is_never_more_than_the_cells(mask_prob, span_len):
    for num_cells in (64, 4096, 2**20):
        found = choose_mask_capacity(num_cells, mask_prob=mask_prob, span_len=span_len)
        assert found % 64 == 0
        assert mask_prob * num_cells <= found <= num_cells


# ---- epochs ----


def test_the_first_epoch_has_every_row_once_as_stored(toys):
    shards = toys.make_shards(245, max_seq_len=200)
    batches = list(ShardLoader(shards, batch_tokens=1000, seed=3))
    assert sorted(row for batch in batches for row in batch.rows) == list(range(245))
    assert rows_of(batches) == {row: stored_row(shards, row) for row in range(245)}
    assert sum(batch.num_tokens for batch in batches) == shards.lengths.sum()
    assert sum(batch.num_masked for batch in batches) == len(shards.examples.masked_ids)
    assert sum(batch.num_pairs for batch in batches) == (shards.examples.sop_label != -1).sum()


def test_no_batch_is_larger_than_all_rows(toys):
    shards = toys.make_shards(5)
    (batch,) = ShardLoader(shards, batch_tokens=2**20)
    assert len(batch.input_ids_BT) == 5
    (batch,) = fixed_batches(shards, num_rows=3, batch_tokens=2**20)
    assert len(batch.input_ids_BT) == 3


def test_steps_per_epoch_is_nearly_the_true_number(toys):
    loader = ShardLoader(toys.make_shards(900, max_seq_len=200), batch_tokens=1000)
    assert len(list(loader)) == pytest.approx(loader.steps_per_epoch, rel=0.1)
    one_window = ShardLoader(toys.make_shards(45), batch_tokens=1000)
    assert len(list(one_window)) == one_window.steps_per_epoch


def test_the_epochs_read_are_exact_at_each_window_and_rise_between(toys, monkeypatch):
    monkeypatch.setattr("albert_data.train.order.WINDOW_BATCHES", 8)
    loader = ShardLoader(toys.make_shards(300), batch_tokens=512)
    assert (loader.epochs_read, loader.order.num_windows) == (0, 5)
    found, num_rows = [], 0
    for _ in range(2):
        for batch in loader:
            num_rows += len(batch.rows)
            found.append(loader.epochs_read)
            assert found[-1] == pytest.approx(num_rows / 300, abs=0.2)
            if num_rows % 60 == 0 and loader.state_dict()["batch"] == 0:
                assert found[-1] == pytest.approx(num_rows / 300)
    assert found == sorted(set(found))
    assert found[-1] == 2
    resumed = ShardLoader(toys.make_shards(300), batch_tokens=512)
    resumed.load_state_dict(loader.state_dict())
    assert resumed.epochs_read == 2


# ---- ranks, micro-batches, threads ----


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("num_batches", [1, 2, 3, 7, 100])
def test_micro_tokens_can_be_counted_for_a_number_of_micro_batches(toys, num_ranks, num_batches):
    shards = toys.make_shards(60, max_seq_len=190)
    loader = ShardLoader(shards, batch_tokens=1000, num_ranks=num_ranks)
    loader.micro_tokens = loader.count_micro_tokens(num_batches)
    steps = list(loader.stream(torch.device("cpu"), 20))
    assert max(map(len, steps)) <= num_batches
    assert max(batch.input_ids_BT.numel() for step in steps for batch in step) <= loader.micro_tokens
    loader.micro_tokens -= 1
    if loader.micro_tokens >= loader.longest:
        assert max(map(len, loader.stream(torch.device("cpu"), 20))) > num_batches


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("micro_tokens", [None, 256])
def test_ranks_and_micro_batches_are_the_same_rows_in_the_same_order(toys, num_ranks, micro_tokens):
    shards = toys.make_shards(145, max_seq_len=200)
    whole = ShardLoader(shards, batch_tokens=1000, seed=7)
    parts = [
        ShardLoader(shards, batch_tokens=1000, seed=7, rank=rank, num_ranks=num_ranks, micro_tokens=micro_tokens)
        for rank in range(num_ranks)
    ]
    for (batch,), *shares in zip(steps_of(whole, 90), *(steps_of(part, 90) for part in parts), strict=True):
        batches = [one for share in shares for one in share]
        assert np.concatenate([one.rows for one in batches]).tolist() == batch.rows.tolist()
        assert rows_of(batches) == rows_of([batch])
        assert len({tuple(one.input_ids_BT.shape) for one in batches}) == 1
        assert len({len(share) for share in shares}) == 1
        assert micro_tokens is None or batches[0].input_ids_BT.numel() <= micro_tokens
    assert len({str(loader.state_dict()) for loader in (whole, *parts)}) == 1


@refused(
    ({"micro_tokens": 64}, ConfigError, "micro_tokens is 64 & the longest row is padded to 192"),
    ({"micro_tokens": 256, "packed": True}, ConfigError, "micro_tokens is 256 & packed into 960 tokens & 960 or more"),
    ({"rank": 2, "num_ranks": 2}, ConfigError, "rank"),
    ({"rank": -1}, ConfigError, "rank"),
    ({"batch_tokens": 0}, ConfigError, "batch_tokens"),
    ({"seed": -1}, ConfigError, "seed"),
    ({}, ShardError, "no rows"),
)
def test_impossible_settings_are_refused(toys, call, kind, named):
    shards = toys.make_shards(50 if call else 0, max_seq_len=190)
    check_refused(lambda: ShardLoader(shards, **{"batch_tokens": 1000, **call}), kind, named)


@pytest.mark.parametrize(("num_steps", "depth"), [(0, 3), (3, 0), (2, 3), (10, 3)])
def test_read_ahead_yields_every_item_in_order(num_steps, depth):
    assert list(read_ahead(iter(range(num_steps)), depth=depth)) == list(range(num_steps))


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_reading_ahead_changes_no_batch_and_no_state(toys, depth):
    shards = toys.make_shards(145, max_seq_len=200)
    plain, ahead = (ShardLoader(shards, batch_tokens=1000) for _ in range(2))
    items = ahead._read_from(ahead._position, None, pin=False)
    stream = read_ahead(items, depth=depth)
    for (batch,), (read, after) in zip(plain.stream(CPU, 50), stream, strict=False):
        assert_same(batch, read[0])
        assert plain.state_dict().items() >= after._asdict().items()
    stream.close()


def test_read_ahead_leaves_no_thread_behind():
    stream = read_ahead(iter(range(100)), depth=3)
    next(stream)
    stream.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("loader")]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_the_batches_are_those_of_the_cpu(toys):
    shards = toys.make_shards(145, max_seq_len=200)
    loaders = [ShardLoader(shards, batch_tokens=1000) for _ in range(2)]
    streams = [loader.stream(device, 60) for loader, device in zip(loaders, (CPU, torch.device("cuda")), strict=True)]
    for (batch,), (moved,) in zip(*streams, strict=True):
        assert moved.input_ids_BT.is_cuda
        assert_same(batch, moved.to(CPU))
        assert loaders[0].state_dict() == loaders[1].state_dict()


# ---- going on ----


@given(start=st.integers(0, 80))
def test_a_restored_state_gives_the_same_batches_as_without_a_stop_and_reads_none_before(module_toys, start):
    shards = module_toys.make_shards(145, max_seq_len=200)
    loader = ShardLoader(shards, batch_tokens=1000, seed=3)
    stream = loader.stream(CPU)
    list(islice(stream, start))
    state = loader.state_dict()
    late = ShardLoader(shards, batch_tokens=1000, seed=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(shards), "rows", lambda self, rows: pytest.fail("it read rows"))
        late.load_state_dict(state)
    for (one,), (other,) in zip(islice(stream, 8), steps_of(late, 8), strict=True):
        assert_same(one, other)
    assert loader.state_dict() == late.state_dict()


def test_a_loader_resumes_with_the_bucket_of_the_state(toys):
    shards = toys.make_shards(145, max_seq_len=200)
    fine, coarse = (ShardLoader(shards, batch_tokens=1000, bucket=bucket) for bucket in (16, 64))
    for loader, other in ((fine, coarse), (coarse, fine)):
        steps_of(loader, 3)
        late = ShardLoader(shards, batch_tokens=1000, bucket=other.order.bucket)
        late.load_state_dict(loader.state_dict())
        for (one,), (again,) in zip(steps_of(loader, 30), steps_of(late, 30), strict=True):
            assert_same(one, again)


def test_a_batch_has_the_least_of_the_reserved_capacities_that_holds_its_share_of_masks(toys):
    loader = ShardLoader(toys.make_shards(145, max_seq_len=200), batch_tokens=4096)
    loader.reserve_masks(0.45, 0.35, 0.25, 0.15)
    shapes, steps, shares = loader.shapes(), 2 * loader.steps_per_epoch, (0.45, 0.36, 0.35, 0.2, 0.15)
    assert len(shapes) == 4 * len(loader.order.row_lens)
    read = loader.stream(CPU, steps, lambda number: shares[number % 5])
    assert {(*one.input_ids_BT.shape, len(one.masked_indices_N)) for (one,) in read} <= {shape[:3] for shape in shapes}
    assert loader.shape(32, 128, 0.36) == loader.shape(32, 128, 0.45) != loader.shape(32, 128, 0.35)


def test_without_reserved_masks_a_batch_has_room_for_the_masks_of_its_step(toys):
    reserved, free = (ShardLoader(toys.make_shards(145, max_seq_len=200), batch_tokens=4096) for _ in range(2))
    reserved.reserve_masks(0.45)
    assert free.shape(32, 128, 0.45) == reserved.shape(32, 128, 0.1) == reserved.shape(32, 128)
    assert free.shape(32, 128, 0.45).mask_capacity > 2 * free.shape(32, 128, 0.1).mask_capacity
    shares = (0.45, 0.3, 0.15)
    for share, (batch,) in zip(shares, free.stream(CPU, 3, shares.__getitem__), strict=True):
        least = free.shape(*batch.input_ids_BT.shape, share).mask_capacity
        assert len(batch.masked_indices_N) == max(least, -(-batch.num_masked // 64) * 64)


@refused(
    ({"seed": 1}, CheckpointError, "seed is 0, but the state has 1"),
    ({"batch_tokens": 999}, CheckpointError, "batch_tokens is 1000, but the state has 999"),
    ({"window": 99}, CheckpointError, "no Position"),
    ({"order": 1}, CheckpointError, "order of rows is number 1, here it is 2; resume with the"),
    ({"order": 3}, CheckpointError, "order of rows is number 3, here it is 2; resume with the"),
)
def test_the_state_of_another_loader_or_order_is_refused(toys, call, kind, named):
    loader = ShardLoader(toys.make_shards(45), batch_tokens=1000)
    before = loader.state_dict()
    check_refused(lambda: loader.load_state_dict({**before, **call}), kind, named)
    assert loader.state_dict() == before


# ---- the validation rows ----


def test_fixed_batches_are_the_first_rows_each_once_in_few_shapes(toys):
    shards = toys.make_shards(130, max_seq_len=200)
    batches = list(fixed_batches(shards, num_rows=113, batch_tokens=1000))
    assert rows_of(batches) == {row: stored_row(shards, row) for row in range(113)}
    assert len({tuple(batch.input_ids_BT.shape) for batch in batches}) == 4
    again = list(fixed_batches(shards, num_rows=113, batch_tokens=1000))
    for one, other in zip(batches, again, strict=True):
        assert_same(one, other)


# ---- damage, imports ----


@pytest.mark.parametrize(
    ("column", "value"),
    [("masked_positions", 60_000), ("masked_ids", 40), ("input_ids", 40), ("segment_a_len", 60_000)],
)
def test_a_row_with_values_out_of_bounds_is_named_and_never_read(toys, column, value):
    shards = toys.make_shards(20)
    values = getattr(shards.examples, column).copy()
    values[-1] = value
    shards.examples = dataclasses.replace(shards.examples, **{column: values})
    loader = ShardLoader(shards, batch_tokens=64 * 30)
    for read in (lambda: list(loader), lambda: steps_of(loader, 1)):  # the second by a thread that reads ahead
        check_refused(read, ShardError, "row 19: & albert-data verify")


# ---- several iterators, copies and other processes ----


def contents(batch: Batch) -> tuple:
    """Return a batch as values that can be compared."""
    return (*(tuple(getattr(batch, name).flatten().tolist()) for name in TENSORS), tuple(batch.rows.tolist()))


@pytest.fixture
def shards(toys):
    return toys.make_shards(200, max_seq_len=60)


def test_of_two_iterators_over_a_loader_the_earlier_fails_and_no_batch_comes_twice(shards):
    expected = [contents(batch) for batch in ShardLoader(shards, batch_tokens=128)]
    loader = ShardLoader(shards, batch_tokens=128)
    first, second = iter(loader), iter(loader)
    found = [contents(next(first)), contents(next(second))]
    with pytest.raises(AlbertDataError, match="a newer iterator.*make a loader for each"):
        next(first)
    assert found + [contents(batch) for batch in second] == expected


def test_an_iterator_of_before_a_state_was_loaded_fails(shards):
    loader = ShardLoader(shards, batch_tokens=128)
    stream = loader.stream(CPU)
    next(stream)
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(AlbertDataError, match="got another state"):
        next(stream)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_goes_on_from_the_same_place_by_itself(shards, way):
    loader = ShardLoader(shards, batch_tokens=128, seed=5)
    list(islice(loader.stream(CPU), 75))
    state, other = loader.state_dict(), way(loader)
    expected = [contents(batch) for (batch,) in islice(loader.stream(CPU), 30)]
    assert other.state_dict() == state
    assert [contents(batch) for (batch,) in islice(other.stream(CPU), 30)] == expected


def test_in_a_worker_of_a_data_loader_it_is_refused_for_each_worker_would_read_all_batches(shards, monkeypatch):
    monkeypatch.setattr("albert_data.train.loader.get_worker_info", lambda: object())
    with pytest.raises(ConfigError, match="every worker would read every batch"):
        next(iter(ShardLoader(shards, batch_tokens=128)))
