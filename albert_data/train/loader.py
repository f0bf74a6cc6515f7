"""Shards into batches on the device, from any place on.

In: an open split of a shard folder. Out: Batch after Batch; which rows, says order.py; under which masks,
remasking.py. What a step reads is a pure function of (shards, batch tokens, seed, place), for any number of
ranks, threads and micro-batches, so the state of a loader is the place of the next step.
A loader has one reader at a time: threads may share an iterator, each batch of which goes to one of them, but of two
iterators over one loader the earlier fails. `RowReader`, `Remasker` and `BatchOrder` keep nothing that a call changes.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
import torch
from torch.utils.data import get_worker_info

from albert_data.config import check_range
from albert_data.errors import AlbertDataError, CheckpointError, ConfigError, ShardError
from albert_data.examples.ragged import Examples
from albert_data.shards.manifest import Manifest
from albert_data.shards.reader import open_shards
from albert_data.shards.row_bounds import Bounds
from albert_data.shards.rows import slice_rows
from albert_data.tokenizer.model import Tokenizer
from albert_data.train.batch import Batch, BatchShape, bound_places, collate
from albert_data.train.order import BatchOrder, Place, RowBatch, cut_batches, num_slots, padded_len, take_share
from albert_data.train.reading import show
from albert_data.train.remasking import Remasker

READ_AHEAD = 3
PADDING_SAMPLE_BATCHES = 256
CPU = torch.device("cpu")

Item = TypeVar("Item")


class Rows(Protocol):
    """What training needs of a split; `albert_data.shards.reader.Shards` is one. Rows are copies."""

    @property
    def manifest(self) -> Manifest: ...
    @property
    def lengths(self) -> np.ndarray: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    def __len__(self) -> int: ...
    def rows(self, indices: np.ndarray) -> Examples: ...


@dataclass(frozen=True, kw_only=True)
class Splits:
    """The rows of a shard folder. validation: None where the build set none aside."""

    folder: Path
    train: Rows
    validation: Rows | None


class RowReader:
    """Rows of a split by number, looked over, and laid out in batches. Any thread may call it."""

    def __init__(self, shards: Rows, remask: Remasker | None = None) -> None:
        self._shards, self._remask = shards, remask
        self._pad_id, self._bounds = shards.manifest.tokenizer.pad_id, Bounds.from_manifest(shards.manifest)
        self._law = shards.manifest.config.examples

    def shape(self, num_rows: int, row_len: int) -> BatchShape:
        """The shape of a batch of so many rows, with the places that its masked tokens need."""
        law = self._law
        return BatchShape(num_rows, row_len, bound_places(num_rows * row_len, mask_prob=law.mask_prob, ngram=law.ngram))

    def read(self, rows: np.ndarray, shape: BatchShape, *, num_batches: int, epoch: int, pin: bool) -> list[Batch]:
        """Batches of one shape, filled in turn. epoch: from 1 on the masks are drawn anew."""
        examples = self._shards.rows(rows)
        if (fault := next(self._bounds.find_faults(examples), None)) is not None:
            what = f"row {rows[fault.row]} of a split is damaged: {self._bounds.explain(fault)}"
            raise ShardError(f"{what}; run `albert-data verify` on its folder")
        if self._remask is not None and epoch and len(rows):  # a rank may have none of a short batch
            examples = self._remask(examples, rows, epoch)
        cuts = [min(i * shape.num_rows, len(rows)) for i in range(num_batches + 1)]
        return [
            collate(slice_rows(examples, begin, end), pad_id=self._pad_id, shape=shape, rows=rows[begin:end], pin=pin)
            for begin, end in zip(cuts, cuts[1:], strict=False)
        ]


class ShardLoader:
    """The training batches of a split, for the training loop or for one of your own.

        for batch in ShardLoader(Path("shards"), batch_tokens=16_384):  # one epoch, on the CPU; again for the next
            ...

    batch_tokens: cells of a batch of all ranks, padding included; one row at least.
    micro_tokens: cells of what a rank reads at once; then a step is several batches, all of one shape.
    rank, num_ranks: this process takes its share of each batch; all shares of a batch have the same shapes.
    remask: whether to draw new masks from the second epoch on.

    It pickles and copies where its shards do; the copy goes on by itself from the same place.
    """

    def __init__(
        self,
        shards: Rows | str | Path,
        *,
        batch_tokens: int,
        seed: int = 0,
        micro_tokens: int | None = None,
        rank: int = 0,
        num_ranks: int = 1,
        remask: bool = True,
    ) -> None:
        """Raises ShardError if there are no rows or the tokenizer is not that of the build; ConfigError."""
        self._shards = open_shards(shards) if isinstance(shards, (str, Path)) else shards
        if len(self._shards) == 0:
            raise ShardError("the training split has no rows; build the shards from more text")
        check_range("batch_tokens", batch_tokens, 1, 2**31 - 1)
        check_range("seed", seed, 0, 2**63 - 1)
        check_range("num_ranks", num_ranks, 1, 2**20)
        check_range("rank", rank, 0, num_ranks - 1)
        longest = padded_len(int(self._shards.lengths.max()))
        if micro_tokens is not None and micro_tokens < longest:
            raise ConfigError(
                f"micro_tokens is {micro_tokens}, but the longest row is padded to {longest} tokens; "
                f"allowed are {longest} or more"
            )
        self.order = BatchOrder(self._shards.lengths, batch_tokens=batch_tokens, seed=seed)
        self._batch_tokens, self._micro_tokens, self._seed = batch_tokens, micro_tokens, seed
        self._rank, self._num_ranks = rank, num_ranks
        redraw = Remasker(self._shards.manifest, self._shards.tokenizer, seed=seed) if remask else None
        self._reader = RowReader(self._shards, redraw)
        self._place = Place(0, 0, 0)
        self._made_by = os.getpid()
        self._begin_alone()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_turn")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin_alone()

    def _begin_alone(self) -> None:
        self._lock = threading.Lock()
        self._turn = object()  # whose place it is to move: that of the latest iterator

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        return self._place.epoch

    @property
    def steps_per_epoch(self) -> int:
        """Exact where an epoch is one window (see order.py); else estimated from the first window."""
        return len(self.order.window(0, 0)) * self.order.num_windows

    def stream(self, device: torch.device, steps: int | None = None) -> Iterator[list[Batch]]:
        """Yield what each step reads, this rank's micro-batches, on the device; without `steps`, for ever.

        The state of the loader is behind the last step yielded. Only for CUDA does a thread read ahead, into
        page-locked memory: on a CPU it would take its time from the computation.
        """
        return Shared(self._stream(device, steps))

    def _stream(self, device: torch.device, steps: int | None) -> Iterator[list[Batch]]:
        turn, place = self._take_turn()
        items = islice(self._read_from(place, pin=device.type == "cuda"), steps)
        with closing(read_ahead(items, depth=READ_AHEAD if device.type == "cuda" else 0)) as stream:
            for batches, after in stream:
                self._move(turn, after)
                yield [batch.to(device) for batch in batches]

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches of the rest of this epoch, on the CPU; the next call begins the next epoch.

        Raises ConfigError in a worker of a DataLoader that has several: each would yield all of the batches.
        """
        return Shared(self._read_epoch())

    def _read_epoch(self) -> Iterator[Batch]:
        worker = get_worker_info()
        if worker is not None and worker.num_workers > 1 and self._made_by != os.getpid():
            raise ConfigError(
                f"num_workers is {worker.num_workers}, and each worker has a copy of the loader: every batch would "
                f"come {worker.num_workers} times; allowed are 0 and 1, or make a loader in each worker, with its rank"
            )
        turn, first = self._take_turn()
        for row_batch, place, after in self.order.batches_from(first):
            batches = self._read(row_batch, place, pin=False)
            self._move(turn, after)
            yield from batches
            if after.epoch > place.epoch:
                return

    def _take_turn(self) -> tuple[object, Place]:
        """Let an iterator begin, and every earlier one fail at its next step. Returns its turn and where it begins."""
        with self._lock:
            self._turn = object()
            return self._turn, self._place

    def _move(self, turn: object, after: Place) -> None:
        """Note that a step was read. Raises AlbertDataError, for its batches would come twice, if the turn is over."""
        with self._lock:
            if turn is not self._turn:
                raise AlbertDataError(
                    "the loader went on by another iterator, or to another state, since this one began; read it by one "
                    "at a time: share that one iterator between threads, or make a loader for each"
                )
            self._place = after

    def _read_from(self, place: Place, *, pin: bool) -> Iterator[tuple[list[Batch], Place]]:
        for row_batch, at, after in self.order.batches_from(place):
            yield self._read(row_batch, at, pin=pin), after

    def _read(self, row_batch: RowBatch, place: Place, *, pin: bool) -> list[Batch]:
        num_batches, num_rows = self._split(row_batch.row_len)
        rows = take_share(row_batch.rows, rank=self._rank, num_ranks=self._num_ranks)
        shape = self._reader.shape(num_rows, row_batch.row_len)
        return self._reader.read(rows, shape, num_batches=num_batches, epoch=place.epoch, pin=pin)

    def _split(self, row_len: int) -> tuple[int, int]:
        """How many micro-batches a rank's share of a full batch is, and of how many rows each."""
        num_rows = -(-num_slots(row_len, self._batch_tokens) // self._num_ranks)
        num_batches = 1 if self._micro_tokens is None else -(-num_rows // (self._micro_tokens // row_len))
        return num_batches, -(-num_rows // num_batches)

    def state_dict(self) -> dict[str, int]:
        """Where the next step begins; the same for every rank."""
        return {**self._place._asdict(), **self._identity()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where the loader of `state` was, on any number of ranks, in the time of one window.

        Raises CheckpointError if that loader had other rows, another batch_tokens or another seed.
        """
        for name, here in self._identity().items():
            if state[name] != here:
                raise CheckpointError(
                    f"can't resume: the loader's {name} is {here}, but the state has {show(state[name])}; "
                    "give it the same"
                )
        place = Place(state["epoch"], state["window"], state["batch"])
        if any(type(number) is not int for number in place) or not self.order.holds(place):
            raise CheckpointError(f"can't resume: there is no {place}; the state was not made by this version")
        with self._lock:
            self._turn, self._place = object(), place

    def _identity(self) -> dict[str, int]:
        return {"num_rows": len(self._shards), "batch_tokens": self._batch_tokens, "seed": self._seed}

    def padding_share(self) -> float:
        """The share of the cells that hold no token, measured on the first batches of the first epoch."""
        tokens, cells = 0, 0
        for row_batch, _, _ in islice(
            self.order.batches_from(Place(0, 0, 0)), min(self.steps_per_epoch, PADDING_SAMPLE_BATCHES)
        ):
            num_batches, num_rows = self._split(row_batch.row_len)
            tokens += int(self._shards.lengths[row_batch.rows].sum())
            cells += self._num_ranks * num_batches * num_rows * row_batch.row_len
        return 1 - tokens / cells


class Shared(Iterator[Item], Generic[Item]):
    """A generator that threads may advance together: each item goes to one of them, and an error to all."""

    def __init__(self, items: Iterator[Item]) -> None:
        self._items, self._lock = items, threading.Lock()
        self._error: Exception | None = None

    def __next__(self) -> Item:
        with self._lock:
            if self._error is not None:
                raise self._error
            try:
                return next(self._items)
            except StopIteration:
                raise
            except Exception as error:  # after it a generator is exhausted, as at the end of the data
                self._error = error
                raise


def read_ahead(items: Iterator[Item], *, depth: int) -> Generator[Item, None, None]:
    """Yield the items in order, taken by one thread up to `depth` items early; by no thread if that is 0."""
    if not depth:
        yield from items
        return
    end = object()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader") as pool:
        pending = deque(pool.submit(next, items, end) for _ in range(depth))
        try:
            while (item := pending.popleft().result()) is not end:
                pending.append(pool.submit(next, items, end))
                yield cast(Item, item)
        finally:
            pool.shutdown(cancel_futures=True)


def fixed_batches(shards: Rows, *, num_rows: int, batch_tokens: int) -> Iterator[Batch]:
    """Yield the first `num_rows` rows once, under their stored masks: the same batches of few shapes at each call.

    The build puts rows in a random order, so the first ones are a fair sample.
    """
    reader, lengths = RowReader(shards), shards.lengths[:num_rows]
    for rows, row_len in cut_batches(np.arange(len(lengths)), lengths, batch_tokens):
        shape = reader.shape(num_slots(row_len, batch_tokens), row_len)
        yield from reader.read(rows, shape, num_batches=1, epoch=0, pin=False)
