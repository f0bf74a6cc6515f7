"""Reads rows of shards that lie in a store, of which this machine holds some at a time.

In: the shards of a split. Out: their row counts and lengths, found in one pass, and any of their rows. The shards that
were used last stay mapped, up to a number of bytes; the storage keeps copies of more (storage/cache.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.data import Examples
from albert_data.shards.columns import Columns
from albert_data.shards.manifest import ShardEntry
from albert_data.shards.rows import join_rows
from albert_data.shards.schema import shard_schema, to_record_batch
from albert_data.sharing import SharedLock
from albert_data.storage.cache import measure_limit

_OPENED_AT_ONCE = 8
Reader: TypeAlias = pyarrow.ipc.RecordBatchFileReader


class StreamedFiles:
    """The shards of a split, each opened when it is needed.

    open_file: opens a shard; take_batch: takes and checks a record batch of one. Both raise ShardError.
    most_bytes: of the shards that stay open, though the newest stays whatever its size.
    """

    def __init__(
        self,
        shards: Sequence[ShardEntry],
        open_file: Callable[[ShardEntry], Reader],
        take_batch: Callable[[Reader, int], pyarrow.RecordBatch],
        most_bytes: int | None = None,
    ) -> None:
        self._shards, self._open_file, self._take_batch = shards, open_file, take_batch
        self._most_bytes = measure_limit() // 2 if most_bytes is None else most_bytes
        self._open, self._lock = OrderedDict[int, tuple[Reader, Columns]](), SharedLock()
        with ThreadPoolExecutor(_OPENED_AT_ONCE) as pool:
            measured = list(pool.map(self._measure, range(len(shards))))
        self.lengths = np.concatenate([np.zeros(0, np.int32), *(one for parts in measured for one in parts)])
        self.places = [(shard, i) for shard, parts in enumerate(measured) for i in range(len(parts))]
        self._first_batches = np.cumsum([0, *(len(parts) for parts in measured)])
        self.begins = np.cumsum([0, *(len(one) for parts in measured for one in parts)], dtype=np.int64)

    def _measure(self, shard: int) -> list[np.ndarray]:
        """The lengths of the rows of each record batch: int32. The shard is closed, and stays on this machine."""
        reader = self._open_file(self._shards[shard])
        batches = (self._take_batch(reader, i) for i in range(reader.num_record_batches))
        return [np.diff(batch.column("input_ids").offsets.to_numpy()) for batch in batches]

    def read(self, number: int) -> pyarrow.RecordBatch:
        """A record batch, by its number in the split."""
        shard, i = self.places[number]
        return self._take_batch(self._get(shard)[0], i)

    def _get(self, shard: int) -> tuple[Reader, Columns]:
        with self._lock:
            if (found := self._open.get(shard)) is None:
                reader = self._open_file(self._shards[shard])
                batches = [self._take_batch(reader, i) for i in range(reader.num_record_batches)]
                found = self._open[shard] = reader, Columns(batches)
                self._close_oldest()
            self._open.move_to_end(shard)
            return found

    def _close_oldest(self) -> None:
        while len(self._open) > 1 and sum(self._shards[shard].num_bytes for shard in self._open) > self._most_bytes:
            self._open.popitem(last=False)

    def take(self, batch_numbers: np.ndarray, rows: np.ndarray) -> Examples:
        """Copy rows, as `Columns.take` does."""
        if not len(rows):
            return self._get(0)[1].take(batch_numbers, rows)
        shards = np.searchsorted(self._first_batches, batch_numbers, side="right") - 1
        order = np.argsort(shards, kind="stable")
        used, begins = np.unique(shards[order], return_index=True)
        parts = []
        for shard, chosen in zip(used.tolist(), np.split(order, begins[1:]), strict=True):
            numbers = batch_numbers[chosen] - self._first_batches[shard]
            parts.append(self._get(shard)[1].take(numbers, rows[chosen]))
        if len(parts) == 1:
            return parts[0]  # in the order asked for
        joined = join_rows(parts)
        optional = {"has_source": joined.sources is not None, "has_key_b": joined.document_keys_b is not None}
        schema = shard_schema(joined.input_ids.dtype.type, **optional)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return Columns([to_record_batch(joined, schema)]).take(np.zeros(len(order), np.int64), back)
