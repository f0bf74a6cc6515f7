"""Batches hold all rows, in few shapes, with ids, segments, masks and labels at their positions in the rows."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_data.data import Examples
from albert_data.errors import CheckpointError, ConfigError, ShardError
from albert_data.train import ShardLoader
from albert_data.train.data import order
from albert_data.train.data.batch import BatchShape, choose_mask_capacity, collate
from albert_data.train.data.loader import fixed_batches, read_ahead

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


def test_without_a_shape_collate_uses_the_smallest_that_holds_the_rows():
    batch = collate(tiny_examples(), pad_id=0)
    assert batch.input_ids_BT.shape == (2, 8)
    assert batch.masked_labels_N.tolist() == [6]


@given(num_rows=st.integers(0, 9), extra=st.integers(0, 3), mask_capacity=st.sampled_from([0, 64]), data=st.data())
def test_collate_equals_a_plain_loop_over_tokens(toys_of_any_length, num_rows, extra, mask_capacity, data):
    rows = np.array(data.draw(st.lists(st.integers(0, 39), min_size=num_rows, max_size=num_rows)), np.int64)
    examples = toys_of_any_length.rows(rows)
    shape = BatchShape(num_rows + extra, 32, mask_capacity)
    batch = collate(examples, pad_id=3, shape=shape)
    assert {name: getattr(batch, name).tolist() for name in TENSORS} == plain_collate(examples, shape, 3)


@pytest.fixture(scope="module")
def toys_of_any_length(request):
    return request.getfixturevalue("module_toys").make_shards(40)


def test_ids_are_int32_and_labels_int64_up_to_the_largest():
    examples = dataclasses.replace(tiny_examples(), masked_ids=np.array([65_535], np.uint16))
    batch = collate(examples, pad_id=0, shape=BatchShape(2, 8, 1))
    assert batch.masked_labels_N[0] == 65_535
    assert {batch.input_ids_BT.dtype, batch.segment_ids_BT.dtype} == {torch.int32}
    assert {t.dtype for t in (batch.masked_indices_N, batch.masked_labels_N, batch.sop_labels_B)} == {torch.int64}


@pytest.mark.parametrize(("mask_prob", "span_len"), [(0.15, 2), (0.01, 1), (0.5, 5.5)])
def test_the_mask_capacity_exceeds_the_mean_and_is_never_more_than_the_cells(mask_prob, span_len):
    for num_cells in (64, 4096, 2**20):
        found = choose_mask_capacity(num_cells, mask_prob=mask_prob, span_len=span_len)
        assert found % 64 == 0
        assert mask_prob * num_cells <= found <= num_cells


def test_more_masks_than_the_capacity_raise_it_to_the_next_multiple_of_64(toys):
    examples = toys.make_shards(50).rows(np.arange(50))
    num_masked = len(examples.masked_ids)
    batch = collate(examples, pad_id=0, shape=BatchShape(50, 64, 64))
    assert num_masked > 64
    assert len(batch.masked_labels_N) == -(-num_masked // 64) * 64
    assert (batch.masked_labels_N != -1).sum() == batch.num_masked == num_masked


# ---- epochs ----


def test_the_first_epoch_has_every_row_once_as_stored(toys):
    shards = toys.make_shards(245, max_seq_len=200)
    batches = list(ShardLoader(shards, batch_tokens=1000, seed=3))
    assert sorted(row for batch in batches for row in batch.rows) == list(range(245))
    assert rows_of(batches) == {row: stored_row(shards, row) for row in range(245)}
    assert sum(batch.num_tokens for batch in batches) == shards.lengths.sum()
    assert sum(batch.num_masked for batch in batches) == len(shards.examples.masked_ids)
    assert sum(batch.num_pairs for batch in batches) == (shards.examples.sop_label != -1).sum()


def test_counts_are_those_of_the_tensors_and_no_row_is_without_a_valid_token(toys):
    loader = ShardLoader(toys.make_shards(145, max_seq_len=200), batch_tokens=1000, num_ranks=3, rank=2)
    for (batch,) in steps_of(loader, 60):
        assert batch.num_tokens == batch.valid_BT[: len(batch.rows)].sum()
        assert batch.num_masked == (batch.masked_labels_N != -1).sum()
        assert batch.num_pairs == (batch.sop_labels_B != -1).sum()
        assert batch.valid_BT.any(1).all()


def test_no_batch_is_larger_than_all_rows(toys):
    shards = toys.make_shards(5)
    (batch,) = ShardLoader(shards, batch_tokens=2**20)
    assert len(batch.input_ids_BT) == 5
    (batch,) = fixed_batches(shards, num_rows=3, batch_tokens=2**20)
    assert len(batch.input_ids_BT) == 3


def test_all_batches_of_a_bucket_have_one_shape(toys):
    shards = toys.make_shards(600, max_seq_len=200)
    loader = ShardLoader(shards, batch_tokens=4000)
    batches = [batch for _ in range(3) for batch in loader]
    shapes = {tuple(tuple(getattr(batch, name).shape) for name in TENSORS) for batch in batches}
    assert len(shapes) == len({batch.input_ids_BT.shape[1] for batch in batches}) <= 4
    assert loader.epochs_read == 3


def test_every_iterator_yields_an_epoch(toys):
    loader = ShardLoader(toys.make_shards(45), batch_tokens=256)
    for epoch in range(3):
        assert loader.epochs_read == epoch
        assert sorted(row for batch in loader for row in batch.rows) == list(range(45))


def test_steps_per_epoch_is_nearly_the_true_number(toys):
    loader = ShardLoader(toys.make_shards(900, max_seq_len=200), batch_tokens=1000)
    assert len(list(loader)) == pytest.approx(loader.steps_per_epoch, rel=0.1)
    one_window = ShardLoader(toys.make_shards(45), batch_tokens=1000)
    assert len(list(one_window)) == one_window.steps_per_epoch


def test_the_epochs_read_are_exact_at_each_window_and_rise_between(toys, monkeypatch):
    monkeypatch.setattr("albert_data.train.data.order.WINDOW_BATCHES", 8)
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


def test_the_padding_share_is_that_of_the_batches(toys):
    shards = toys.make_shards(45)
    loader = ShardLoader(shards, batch_tokens=300, num_ranks=3)
    cells = sum(batch.input_ids_BT.numel() for (batch,) in steps_of(loader, loader.steps_per_epoch))
    assert loader.padding_share() == pytest.approx(1 - shards.lengths.sum() / (3 * cells))


def test_no_rows_are_refused(toys):
    with pytest.raises(ShardError, match="no rows"):
        ShardLoader(toys.make_shards(0), batch_tokens=4)


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


def test_a_micro_batch_too_small_for_a_row_is_refused(toys):
    with pytest.raises(ConfigError, match="micro_tokens is 64, but the longest row is padded to 192"):
        ShardLoader(toys.make_shards(50, max_seq_len=190), batch_tokens=1000, micro_tokens=64)


@pytest.mark.parametrize("settings", [{"rank": 2, "num_ranks": 2}, {"rank": -1}, {"batch_tokens": 0}, {"seed": -1}])
def test_impossible_settings_are_refused(toys, settings):
    with pytest.raises(ConfigError):
        ShardLoader(toys.make_shards(5), **{"batch_tokens": 64, **settings})


@pytest.mark.parametrize("num_steps", [0, 1, 2, 3, 10])
@pytest.mark.parametrize("depth", [0, 3])
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


def test_read_ahead_raises_the_errors_of_reading():
    def read():
        yield from range(2)
        raise ShardError("torn")

    stream = read_ahead(read(), depth=2)
    assert [next(stream), next(stream)] == [0, 1]
    with pytest.raises(ShardError, match="torn"):
        next(stream)


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


@settings(max_examples=25, deadline=None)
@given(start=st.integers(0, 80))
def test_a_restored_state_gives_the_same_batches_as_without_a_stop(module_toys, start):
    shards = module_toys.make_shards(145, max_seq_len=200)
    loader = ShardLoader(shards, batch_tokens=1000, seed=3)
    stream = loader.stream(CPU)
    list(islice(stream, start))
    state = loader.state_dict()
    late = ShardLoader(shards, batch_tokens=1000, seed=3)
    late.load_state_dict(state)
    for (one,), (other,) in zip(islice(stream, 8), steps_of(late, 8), strict=True):
        assert_same(one, other)
    assert loader.state_dict() == late.state_dict()


def test_a_loader_resumes_with_the_bucket_of_the_state_which_was_always_64_in_older_ones(toys):
    shards = toys.make_shards(145, max_seq_len=200)
    fine, coarse = (ShardLoader(shards, batch_tokens=1000, bucket=bucket) for bucket in (16, 64))
    assert fine.padding_share() < coarse.padding_share()
    for loader, other in ((fine, coarse), (coarse, fine)):
        steps_of(loader, 3)
        state = {name: value for name, value in loader.state_dict().items() if (name, value) != ("bucket", 64)}
        late = ShardLoader(shards, batch_tokens=1000, bucket=other.order.bucket)
        late.load_state_dict(state)
        for (one,), (again,) in zip(steps_of(loader, 30), steps_of(late, 30), strict=True):
            assert_same(one, again)


def test_without_reserved_masks_a_batch_has_room_for_the_masks_of_its_step(toys):
    reserved, free = (ShardLoader(toys.make_shards(145, max_seq_len=200), batch_tokens=4096) for _ in range(2))
    reserved.reserve_masks(0.45)
    assert free.shape(32, 128, 0.45) == reserved.shape(32, 128, 0.1) == reserved.shape(32, 128)
    assert free.shape(32, 128, 0.45).mask_capacity > 2 * free.shape(32, 128, 0.1).mask_capacity
    shares = (0.45, 0.3, 0.15)
    for share, (batch,) in zip(shares, free.stream(CPU, 3, shares.__getitem__), strict=True):
        least = free.shape(*batch.input_ids_BT.shape, share).mask_capacity
        assert len(batch.masked_indices_N) == max(least, -(-batch.num_masked // 64) * 64)


def test_resuming_reads_no_row_that_was_read_before(toys, monkeypatch):
    shards = toys.make_shards(145, max_seq_len=200)
    loader = ShardLoader(shards, batch_tokens=1000)
    steps_of(loader, 40)  # an epoch has 22 to 30 steps
    late = ShardLoader(shards, batch_tokens=1000)
    read = []
    monkeypatch.setattr(type(shards), "rows", lambda self, rows: read.append(rows))
    late.load_state_dict(loader.state_dict())
    assert late.state_dict()["epoch"] == loader.state_dict()["epoch"] == 1
    assert read == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 1}, "seed is 1, but the state has 0"),
        ({"batch_tokens": 999}, "batch_tokens is 999, but the state has 1000"),
    ],
)
def test_the_state_of_another_loader_is_refused(toys, changes, words):
    shards = toys.make_shards(45)
    state = ShardLoader(shards, batch_tokens=1000).state_dict()
    with pytest.raises(CheckpointError, match=words):
        ShardLoader(shards, **{"batch_tokens": 1000, **changes}).load_state_dict(state)
    with pytest.raises(CheckpointError, match="no Position"):
        ShardLoader(shards, batch_tokens=1000).load_state_dict({**state, "window": 99})


@pytest.mark.parametrize("version", [1, 3])
def test_the_state_of_a_version_with_another_order_of_rows_is_refused(toys, version):
    shards = toys.make_shards(45)
    state = {**ShardLoader(shards, batch_tokens=1000).state_dict(), "order": version}
    loader = ShardLoader(shards, batch_tokens=1000)
    with pytest.raises(CheckpointError, match=f"order of rows is number {version}, here it is 2; resume with the"):
        loader.load_state_dict(state)
    assert loader.state_dict()["batch"] == 0


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
    with pytest.raises(ShardError, match="row 19: .*albert-data verify"):
        list(ShardLoader(shards, batch_tokens=64 * 30))


def test_the_loader_needs_no_multiprocess():
    code = (
        "import sys; sys.modules['multiprocess'] = None; "
        "from albert_data.train import ShardLoader; import albert_data.train.run.loop"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
