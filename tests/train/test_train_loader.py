"""Rows become batches without loss: ids, segments, masks and labels stand where the row has them."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest
import torch

from albert_data.errors import ShardError
from albert_data.examples.ragged import Examples
from albert_data.train.batch import collate
from albert_data.train.loader import Loader, fixed_batches, read_ahead

CPU = torch.device("cpu")


def tiny_examples() -> Examples:
    """[CLS] 7 8 [SEP] 9 [SEP], masked at 2 (was 6), and [CLS] 7 [SEP] alone, masked nowhere."""
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


def test_collate_lays_out_each_row():
    batch = collate(tiny_examples(), pad_id=0)
    assert batch.input_ids_BT.tolist() == [[2, 7, 4, 3, 9, 3, 0, 0], [2, 7, 3, 0, 0, 0, 0, 0]]
    assert batch.segment_ids_BT.tolist() == [[0, 0, 0, 0, 1, 1, 0, 0], [0] * 8]
    assert batch.valid_BT.sum(1).tolist() == [6, 3]
    assert batch.masked_indices_N.tolist() == [2]
    assert batch.masked_labels_N.tolist() == [6]
    assert batch.sop_labels_B.tolist() == [1, -1]
    assert batch.num_tokens == 9


def test_collate_makes_int64_of_unsigned_ids_up_to_the_largest():
    examples = dataclasses.replace(tiny_examples(), masked_ids=np.array([65_535], np.uint16))
    batch = collate(examples, pad_id=0)
    assert batch.masked_labels_N.tolist() == [65_535]
    assert {t.dtype for t in (batch.input_ids_BT, batch.masked_indices_N, batch.sop_labels_B)} == {torch.int64}


def test_masked_labels_stand_where_the_input_is_masked(toys):
    shards = toys.make_shards(50)
    batch = collate(shards.rows(np.arange(50)), pad_id=0)
    mask_id = shards.manifest["tokenizer"]["mask_id"]
    assert (batch.input_ids_BT.flatten()[batch.masked_indices_N] == mask_id).all()
    assert (batch.input_ids_BT == mask_id).sum() == len(batch.masked_indices_N)


def test_an_epoch_of_batches_holds_every_token_once(toys):
    shards = toys.make_shards(45)
    loader = Loader(shards, batch_size=4, seed=3)
    batches = [loader.batch_at(step) for step in range(loader.order.batches_per_epoch)]
    assert sum(batch.num_tokens for batch in batches) == shards.lengths.sum()
    labels = np.sort(torch.cat([batch.masked_labels_N for batch in batches]).numpy())
    assert np.array_equal(labels, np.sort(shards.examples.masked_ids))


@pytest.mark.parametrize("start", [0, 1, 7, 30])
def test_a_stream_from_any_step_equals_the_rest_of_the_whole_stream(toys, start):
    shards = toys.make_shards(45)
    whole = list(Loader(shards, batch_size=4, seed=3).stream(range(35), CPU))
    late = list(Loader(shards, batch_size=4, seed=3).stream(range(start, 35), CPU))
    assert len(late) == 35 - start
    for one, other in zip(whole[start:], late, strict=True):
        assert torch.equal(one.input_ids_BT, other.input_ids_BT)
        assert torch.equal(one.masked_labels_N, other.masked_labels_N)


def test_sorting_by_length_leaves_little_padding(toys):
    shards = toys.make_shards(2000, max_seq_len=64)
    share = Loader(shards, batch_size=8, seed=0).padding_share()
    batches = [collate(shards.rows(np.arange(i, i + 8)), pad_id=0) for i in range(0, 2000, 8)]
    unsorted = 1 - sum(b.num_tokens for b in batches) / sum(b.input_ids_BT.numel() for b in batches)
    assert share < 0.15 < unsorted  # rounding up to multiples of 8 alone costs 3.5 tokens of 33


def test_the_padding_share_is_that_of_the_batches(toys):
    shards = toys.make_shards(45)
    loader = Loader(shards, batch_size=4, seed=3)
    batches = [loader.batch_at(step) for step in range(loader.order.batches_per_epoch)]
    cells = sum(batch.input_ids_BT.numel() for batch in batches)
    assert loader.padding_share() == pytest.approx(1 - shards.lengths.sum() / cells)


def test_remask_sees_each_epoch(toys):
    seen = []

    def remask(examples: Examples, epoch: int) -> Examples:
        seen.append(epoch)
        return dataclasses.replace(examples, masked_ids=np.full_like(examples.masked_ids, 10 + epoch))

    loader = Loader(toys.make_shards(8), batch_size=4, seed=0, remask=remask)
    labels = [int(loader.batch_at(step).masked_labels_N[0]) for step in range(4)]
    assert seen == [0, 0, 1, 1]
    assert labels == [10, 10, 11, 11]


def test_no_rows_are_refused(toys):
    with pytest.raises(ShardError, match="no rows"):
        Loader(toys.make_shards(0), batch_size=4, seed=0)


def test_fixed_batches_are_the_first_rows_each_once(toys):
    shards = toys.make_shards(30)
    batches = list(fixed_batches(shards, num_rows=13, batch_size=4))
    assert [len(batch.sop_labels_B) for batch in batches] == [4, 4, 4, 1]
    assert sum(batch.num_tokens for batch in batches) == shards.lengths[:13].sum()


@pytest.mark.parametrize("num_steps", [0, 1, 2, 3, 10])
def test_read_ahead_yields_every_step_in_order(num_steps):
    steps = range(5, 5 + num_steps)
    assert list(read_ahead(lambda step: step * step, steps, depth=3)) == [step * step for step in steps]


def test_read_ahead_raises_what_reading_raised():
    def read(step: int) -> int:
        if step == 2:
            raise ShardError("torn")
        return step

    stream = read_ahead(read, range(5), depth=2)
    assert [next(stream), next(stream)] == [0, 1]
    with pytest.raises(ShardError, match="torn"):
        next(stream)


def test_read_ahead_leaves_no_thread_behind():
    stream = read_ahead(lambda step: step, range(100), depth=3)
    next(stream)
    stream.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("loader")]
