"""Runs: the sorted intermediate files between map and reduce.

A run is an Arrow file of two record batches, the rows of train and of validation. Each is sorted by
(shuffle key, document key, pass, index), which is a total order of the examples of a corpus.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.examples.ragged import Examples
from albert_data.files import replace_file
from albert_data.shards.manifest import SPLITS
from albert_data.shards.rows import join_rows, take_rows
from albert_data.shards.schema import from_record_batch, to_record_batch


@dataclass(frozen=True, kw_only=True)
class KeyedRows:
    """Rows and their place in the order of all: shuffle_keys uint64, passes uint16, indices uint32."""

    examples: Examples
    shuffle_keys: np.ndarray
    passes: np.ndarray
    indices: np.ndarray

    def order(self) -> np.ndarray:
        """The row numbers in the total order: int64."""
        return np.lexsort((self.indices, self.passes, self.examples.document_keys, self.shuffle_keys))

    def take(self, rows: np.ndarray) -> KeyedRows:
        return KeyedRows(
            examples=take_rows(self.examples, rows),
            shuffle_keys=self.shuffle_keys[rows],
            passes=self.passes[rows],
            indices=self.indices[rows],
        )


def join_keyed(parts: list[KeyedRows]) -> KeyedRows:
    return KeyedRows(
        examples=join_rows([part.examples for part in parts]),
        shuffle_keys=np.concatenate([part.shuffle_keys for part in parts]),
        passes=np.concatenate([part.passes for part in parts]),
        indices=np.concatenate([part.indices for part in parts]),
    )


def run_schema(schema: pyarrow.Schema) -> pyarrow.Schema:
    """The columns of a shard and those of the order."""
    extra = {"shuffle_key": pyarrow.uint64(), "pass": pyarrow.uint16(), "index": pyarrow.uint32()}
    for name, kind in extra.items():
        schema = schema.append(pyarrow.field(name, kind, nullable=False))
    return schema


def write_run(path: Path, rows: KeyedRows, is_validation: np.ndarray, schema: pyarrow.Schema) -> None:
    """Sort rows and write them, train before validation."""
    order = rows.order()
    chosen = is_validation[order]
    with replace_file(path) as file, pyarrow.ipc.new_file(file, run_schema(schema)) as writer:
        for part in (order[~chosen], order[chosen]):
            writer.write_batch(_to_batch(rows.take(part), schema))


def _to_batch(rows: KeyedRows, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    keys = [pyarrow.array(column) for column in (rows.shuffle_keys, rows.passes, rows.indices)]
    columns = [*to_record_batch(rows.examples, schema).columns, *keys]
    return pyarrow.record_batch(columns, schema=run_schema(schema))


def read_run_range(path: Path, split: str, low: int, high: int) -> KeyedRows:
    """The rows of a run whose shuffle key is in [low, high), copied, so that one run at a time is mapped."""
    file = pyarrow.memory_map(str(path))
    batch = pyarrow.ipc.open_file(file).get_batch(SPLITS.index(split))
    file.close()  # the pages stay mapped while arrays point to them
    keys = batch.column("shuffle_key").to_numpy()
    begin = int(np.searchsorted(keys, np.uint64(low)))
    end = len(keys) if high >= 2**64 else int(np.searchsorted(keys, np.uint64(high)))
    part = batch.slice(begin, end - begin)
    mapped = KeyedRows(
        examples=from_record_batch(part),
        shuffle_keys=keys[begin:end],
        passes=part.column("pass").to_numpy(),
        indices=part.column("index").to_numpy(),
    )
    return mapped.take(np.arange(end - begin))
