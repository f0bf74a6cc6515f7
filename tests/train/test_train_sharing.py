"""Threads that share a loader get the right batches or an error, and worker processes get the same batches."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from toy_rows import Epoch

from albert_data.errors import AlbertDataError, ConfigError, ShardError
from albert_data.train import ShardLoader
from albert_data.train.data.loader import RowReader, SharedIterator
from albert_data.train.data.order import BatchOrder
from albert_data.train.data.remasking import Remasker

CPU = torch.device("cpu")
TENSORS = ("input_ids_BT", "segment_ids_BT", "valid_BT", "masked_indices_N", "masked_labels_N", "sop_labels_B")


def contents(batch) -> tuple:
    """Return a batch as values that can be compared."""
    return (*(tuple(getattr(batch, name).flatten().tolist()) for name in TENSORS), tuple(batch.rows.tolist()))


def in_threads(work: Callable[[int], list], num_threads: int = 8) -> list:
    """Return the results of several threads that begin at the same moment."""
    barrier = threading.Barrier(num_threads)

    def begin(number: int) -> list:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(num_threads) as pool:
        return list(pool.map(begin, range(num_threads)))


@pytest.fixture
def shards(toys):
    return toys.make_shards(400, max_seq_len=60)


# ---- threads ----


def test_threads_that_share_an_iterator_get_each_batch_once(shards):
    expected = [contents(batch) for batch in ShardLoader(shards, batch_tokens=128)]
    shared = iter(ShardLoader(shards, batch_tokens=128))
    found = [one for part in in_threads(lambda _: [contents(batch) for batch in shared]) for one in part]
    assert sorted(found) == sorted(expected)


def test_threads_that_share_a_stream_get_each_step_once(shards):
    expected = [contents(batch) for (batch,) in ShardLoader(shards, batch_tokens=128).stream(CPU, 300)]
    shared = ShardLoader(shards, batch_tokens=128).stream(CPU, 300)
    found = [one for part in in_threads(lambda _: [contents(batch) for (batch,) in shared]) for one in part]
    assert sorted(found) == sorted(expected)


def test_of_two_iterators_over_a_loader_the_earlier_fails_and_no_batch_comes_twice(shards):
    expected = [contents(batch) for batch in ShardLoader(shards, batch_tokens=128)]
    loader = ShardLoader(shards, batch_tokens=128)
    first, second = iter(loader), iter(loader)
    found = [contents(next(first)), contents(next(second))]
    with pytest.raises(AlbertDataError, match="a newer iterator.*make a loader for each"):
        next(first)
    assert found + [contents(batch) for batch in second] == expected


def test_of_threads_that_each_begin_an_iterator_all_but_one_at_a_time_fail(shards):
    several = ShardLoader(shards, batch_tokens=128)
    expected = {contents(batch) for _ in range(8) for batch in several}
    loader = ShardLoader(shards, batch_tokens=128)

    def read(_: int) -> list:
        found = []
        with suppress(AlbertDataError):
            for batch in loader:
                found.append(contents(batch))
        return found

    found = [one for part in in_threads(read) for one in part]
    assert len(set(found)) == len(found)
    assert set(found) <= expected


def test_an_iterator_of_before_a_state_was_loaded_fails(shards):
    loader = ShardLoader(shards, batch_tokens=128)
    stream = loader.stream(CPU)
    next(stream)
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(AlbertDataError, match="got another state"):
        next(stream)


def test_an_abandoned_iterator_is_no_obstacle(shards):
    expected = [contents(batch) for batch in ShardLoader(shards, batch_tokens=128)]
    loader = ShardLoader(shards, batch_tokens=128)
    abandoned = iter(loader)
    found = [contents(batch) for batch in islice(abandoned, 3)]
    assert found + [contents(batch) for batch in loader] == expected


def test_an_error_reaches_all_threads_that_share_an_iterator():
    def read():
        yield 1
        raise ShardError("torn")

    shared = SharedIterator(read())
    assert next(shared) == 1
    for _ in range(3):
        with pytest.raises(ShardError, match="torn"):
            next(shared)


def test_threads_may_share_the_reader_and_the_order(shards):
    reader = RowReader(shards, Remasker(shards.manifest, shards.tokenizer, seed=3))
    order = BatchOrder(shards.lengths, batch_tokens=128, seed=3)

    def read(number: int) -> list:
        """Read epochs 0 to 3; each thread begins with another one."""
        found = {}
        for epoch in np.roll(np.arange(4), number).tolist():
            for at, row_batch in enumerate(order.window(epoch, 0)):
                (batch,) = reader.read(row_batch, reader.shape(8, row_batch.row_len), epoch=epoch)
                found[epoch, at] = contents(batch)
        return sorted(found.items())

    expected = read(0)
    assert in_threads(read) == [expected] * 8


# ---- copies and other processes ----


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_goes_on_from_the_same_place_by_itself(shards, way):
    loader = ShardLoader(shards, batch_tokens=128, seed=5)
    list(islice(loader.stream(CPU), 150))
    state, other = loader.state_dict(), way(loader)
    expected = [contents(batch) for (batch,) in islice(loader.stream(CPU), 30)]
    assert other.state_dict() == state
    assert [contents(batch) for (batch,) in islice(other.stream(CPU), 30)] == expected


def read_by_workers(loader: ShardLoader, num_workers: int, start: str) -> list:
    workers = DataLoader(
        Epoch(loader), batch_size=None, num_workers=num_workers, multiprocessing_context=start if num_workers else None
    )
    return [contents(batch) for batch in workers]


@pytest.mark.slow  # a process that loads torch
def test_a_spawned_worker_of_a_data_loader_reads_the_same_batches(shards):
    expected = [contents(batch) for batch in ShardLoader(shards, batch_tokens=128)]
    assert read_by_workers(ShardLoader(shards, batch_tokens=128), 1, "spawn") == expected


@pytest.mark.slow  # processes of a loaded torch
def test_several_workers_with_a_copy_each_are_refused_for_they_would_repeat_the_batches(shards):
    with pytest.raises(ConfigError, match="every batch would come 2 times"):
        read_by_workers(ShardLoader(shards, batch_tokens=128), 2, "fork")
