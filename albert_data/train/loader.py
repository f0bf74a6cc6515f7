"""Shards into batches on the device, from any step on.

In: an open split of a shard folder. Out: Batch after Batch; which rows, says order.py.
The batch of a step is a pure function of the step, so reading ahead is a future per step, and a resumed
run needs no state of the loader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from albert_data.errors import ShardError
from albert_data.examples.ragged import Examples
from albert_data.train.batch import Batch, collate, padded_len
from albert_data.train.order import BatchOrder

READ_AHEAD = 3
PADDING_SAMPLE_BATCHES = 256

Item = TypeVar("Item")
Remask = Callable[[Examples, int], Examples]


class Rows(Protocol):
    """What training needs of a split; `albert_data.shards.reader.Shards` is one."""

    @property
    def manifest(self) -> dict[str, Any]: ...
    @property
    def lengths(self) -> np.ndarray: ...
    def __len__(self) -> int: ...
    def rows(self, indices: np.ndarray) -> Examples: ...


@dataclass(frozen=True, kw_only=True)
class Splits:
    """The rows of a shard folder. validation: None where the build set none aside."""

    folder: Path
    train: Rows
    validation: Rows | None


class Loader:
    """The training batches of a split.

    remask: draws other masks for the rows of an epoch, given (examples, epoch); None keeps the static ones.
    """

    def __init__(self, shards: Rows, *, batch_size: int, seed: int, remask: Remask | None = None) -> None:
        if len(shards) == 0:
            raise ShardError("the training split has no rows; build the shards from more text")
        self.order = BatchOrder(shards.lengths, batch_size=batch_size, seed=seed)
        self._shards = shards
        self._pad_id = int(shards.manifest["tokenizer"]["pad_id"])
        self._remask = remask

    def batch_at(self, step: int) -> Batch:
        """Read the batch of a step, counted from 0 over all epochs."""
        examples = self._shards.rows(self.order.rows_at(step))
        if self._remask is not None:
            examples = self._remask(examples, step // self.order.batches_per_epoch)
        return collate(examples, pad_id=self._pad_id)

    def stream(self, steps: range, device: torch.device) -> Iterator[Batch]:
        """Yield the batches of `steps` on the device.

        Only for a GPU does a thread read ahead: on a CPU it would take its time from the computation.
        """
        if device.type == "cpu":
            yield from map(self.batch_at, steps)
            return
        for batch in read_ahead(lambda step: self.batch_at(step).pin(), steps, depth=READ_AHEAD):
            yield batch.to(device)

    def padding_share(self) -> float:
        """The share of a batch that is padding, measured on the first batches of the first epoch."""
        num_batches = min(self.order.batches_per_epoch, PADDING_SAMPLE_BATCHES)
        tokens, cells = 0, 0
        for step in range(num_batches):
            lengths = self._shards.lengths[self.order.rows_at(step)]
            tokens += int(lengths.sum())
            cells += len(lengths) * padded_len(int(lengths.max()))
        return 1 - tokens / cells


def read_ahead(read: Callable[[int], Item], steps: range, *, depth: int) -> Iterator[Item]:
    """Yield read(step) for each step in order, computed by one thread up to `depth` steps early."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader") as pool:
        pending = deque(pool.submit(read, step) for step in steps[:depth])
        for following in range(depth, depth + len(steps)):
            item = pending.popleft().result()
            if following < len(steps):
                pending.append(pool.submit(read, steps[following]))
            yield item


def fixed_batches(shards: Rows, *, num_rows: int, batch_size: int) -> Iterator[Batch]:
    """Yield the first `num_rows` rows once, like lengths together: the same batches at each call.

    The build puts rows in a random order, so the first ones are a fair sample.
    """
    lengths = shards.lengths[:num_rows]
    rows = np.argsort(lengths, kind="stable")
    pad_id = int(shards.manifest["tokenizer"]["pad_id"])
    for begin in range(0, len(rows), batch_size):
        yield collate(shards.rows(rows[begin : begin + batch_size]), pad_id=pad_id)
