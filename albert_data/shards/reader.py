"""Shards back into rows, memory-mapped.

In: a finished shard folder. Out: rows of one split, by number, in the order of the shards' names.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.errors import ShardError
from albert_data.examples.ragged import Examples
from albert_data.shards.columns import Columns
from albert_data.shards.manifest import SPLITS, read_manifest
from albert_data.shards.places import locate, measure_file
from albert_data.shards.row_numbers import to_row_number, to_row_numbers
from albert_data.shards.rows import no_rows, slice_rows
from albert_data.shards.schema import check_batch, from_record_batch
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer, load_tokenizer

_BATCHES_HELD = 16


@dataclass(frozen=True, kw_only=True)
class Example:
    """One row.

    input_ids: uint16 or uint32, `[CLS] A [SEP] B [SEP]` with the masks applied; segment_a_len: tokens of A.
    sop_label: 0 in order, 1 swapped, -1 no segment B. masked_positions: uint16; masked_ids: the originals.
    """

    input_ids: np.ndarray
    segment_a_len: int
    sop_label: int
    masked_positions: np.ndarray
    masked_ids: np.ndarray
    document_key: int

    @property
    def original_ids(self) -> np.ndarray:
        """The row as it was before masking."""
        ids = self.input_ids.copy()
        ids[self.masked_positions] = self.masked_ids
        return ids


class Shards:
    """The rows of one split. manifest: the folder's manifest.json."""

    def __init__(self, folder: Path, split: str, manifest: dict[str, Any]) -> None:
        self.folder, self.split, self.manifest = folder, split, manifest
        shards = manifest["splits"][split]["shards"]
        self._readers = [_open_file(folder, shard["file"]) for shard in shards]
        self._places = [(reader, i) for reader in self._readers for i in range(reader.num_record_batches)]
        self._batch = lru_cache(maxsize=_BATCHES_HELD)(self._load_batch)

    def _load_batch(self, number: int) -> Examples:
        return from_record_batch(self._read_batch(number))

    def _read_batch(self, number: int) -> pyarrow.RecordBatch:
        reader, i = self._places[number]
        try:
            batch = reader.get_batch(i)
            check_batch(batch)
            return batch
        except (OSError, ValueError, pyarrow.ArrowException) as error:
            raise ShardError(
                f"{self.folder}, split {self.split}, batch {number}: {error}; run `albert-data verify`"
            ) from error

    @cached_property
    def _columns(self) -> Columns:
        return Columns([self._read_batch(number) for number in range(len(self._places))])

    @cached_property
    def _begins(self) -> np.ndarray:
        """The number of the first row of each batch, and of all rows: int64."""
        lengths = [self._read_batch(number).num_rows for number in range(len(self._places))]
        return np.cumsum([0, *lengths], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._begins[-1])

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the shards were built with."""
        return load_tokenizer(self.folder / "tokenizer" / MODEL_NAME, to_encode=False)

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, [CLS] and [SEP] included: int32."""
        parts = [np.diff(batch.offsets) for batch in self.batches()]
        return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int32)

    def batches(self) -> Iterator[Examples]:
        """All rows in order, as they lie in the files."""
        for number in range(len(self._places)):
            yield self._batch(number)

    def rows(self, indices: np.ndarray | Sequence[SupportsIndex]) -> Examples:
        """Rows by number, in the order asked for, copied out of the files.

        indices: integers from 0 on, in one dimension. The first call unpacks compressed shards into memory, all of the
        split; others stay where they are. Raises TypeError for other indices, IndexError for a row that is not there.
        """
        numbers = to_row_numbers(indices, len(self))
        if not self._places:
            return no_rows()
        batches = np.searchsorted(self._begins, numbers, side="right") - 1
        try:
            return self._columns.take(batches, numbers - self._begins[batches])
        except ValueError as error:
            raise ShardError(f"a shard is damaged: {error}; run `albert-data verify`") from error

    def __getitem__(self, index: SupportsIndex) -> Example:
        """One row; a negative number counts from the end. Raises as `rows` does."""
        row = to_row_number(index, len(self))
        number = bisect_right(self._begins, row) - 1
        at = row - int(self._begins[number])
        one = slice_rows(self._batch(number), at, at + 1)
        return Example(
            input_ids=one.input_ids,
            segment_a_len=int(one.segment_a_len[0]),
            sop_label=int(one.sop_label[0]),
            masked_positions=one.masked_positions,
            masked_ids=one.masked_ids,
            document_key=int(one.document_keys[0]),
        )

    def __iter__(self) -> Iterator[Example]:
        return (self[index] for index in range(len(self)))


def open_shards(path: str | Path, split: str = "train") -> Shards:
    """Open one split of a finished build.

    Raises ShardError if the folder is no finished build, lacks the split, or a shard can't be read.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    if split not in manifest["splits"]:
        here = ", ".join(manifest["splits"])
        raise ShardError(f"{folder} has no split {split!r}; it has {here} (of the possible {', '.join(SPLITS)})")
    return Shards(folder, split, manifest)


def _open_file(folder: Path, name: str) -> pyarrow.ipc.RecordBatchFileReader:
    try:
        path = locate(folder, name)
        measure_file(path)
        return pyarrow.ipc.open_file(pyarrow.memory_map(str(path)))
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise ShardError(f"shard {folder / name} can't be read: {error}; run `albert-data verify`") from error
    except ShardError as error:
        raise ShardError(f"shard {folder / name} {error}; run `albert-data verify`") from error
