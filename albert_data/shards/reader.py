"""Shards back into rows, memory-mapped.

In: a finished shard folder. Out: rows of one split, by number, in the order of the shards' names. Nothing in the folder
is trusted: damage of any kind is a ShardError.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, SupportsIndex, TypeVar, cast

import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.errors import ShardError
from albert_data.examples.ragged import Examples
from albert_data.shards.columns import Columns
from albert_data.shards.manifest import SPLITS, Manifest, ShardEntry
from albert_data.shards.manifest_file import load_manifest
from albert_data.shards.places import locate, measure_file
from albert_data.shards.row_bounds import Bounds
from albert_data.shards.row_numbers import to_row_number, to_row_numbers
from albert_data.shards.rows import no_rows, slice_rows
from albert_data.shards.schema import check_batch, explain_damage, from_record_batch, map_file
from albert_data.sharing import SharedLock
from albert_data.tokenizer.model import Tokenizer, load_tokenizer

_BATCHES_HELD = 16
Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class Example:
    """One row.

    input_ids: uint16 or uint32, `[CLS] A [SEP] B [SEP]` with the masks applied; segment_a_len: tokens of A.
    sop_label: 0 in order, 1 swapped, -1 no segment B. masked_positions: uint16; masked_ids: the originals.
    source: the document's language, by its place in the manifest's `sources`; None where that is missing.
    """

    input_ids: np.ndarray
    segment_a_len: int
    sop_label: int
    masked_positions: np.ndarray
    masked_ids: np.ndarray
    document_key: int
    source: int | None = None

    @property
    def original_ids(self) -> np.ndarray:
        """The row as it was before masking."""
        ids = self.input_ids.copy()
        ids[self.masked_positions] = self.masked_ids
        return ids


class Shards:
    """The rows of one split. manifest: the folder's manifest.json.

    Threads may share it. Forked processes inherit it; pickled or copied, it opens the same folder again, by its
    absolute path. Its files are mapped into memory: a shard that is truncated in place while it is open kills the
    process that reads it with SIGBUS. A build replaces its files by renaming, so the rows stay what they were.
    """

    def __init__(self, folder: Path, split: str, manifest: Manifest) -> None:
        self.folder, self.split, self.manifest = folder, split, manifest
        self._root = Path(os.path.abspath(folder))
        self._has_source = manifest.sources is not None
        self._bounds = Bounds(
            vocab_size=manifest.tokenizer.vocab_size,
            max_seq_len=manifest.config.examples.max_seq_len,
            num_sources=len(manifest.sources or ()),
        )
        readers = [_open_shard(folder, shard) for shard in manifest.splits[split].shards]
        self._places = [(reader, i) for reader in readers for i in range(reader.num_record_batches)]
        self._batch = lru_cache(maxsize=_BATCHES_HELD)(self._load_batch)
        self._lock, self._made = SharedLock(), dict[str, Any]()

    def __reduce__(self) -> tuple[Callable[..., Shards], tuple[Path, Path, str, str]]:
        return _open_again, (self.folder, self._root, self.split, self.manifest.digest)

    def _make_once(self, name: str, make: Callable[[], Made]) -> Made:
        """What is made when it is first asked for, by one thread alone."""
        if name not in self._made:
            with self._lock:
                if name not in self._made:
                    self._made[name] = make()
        return cast(Made, self._made[name])

    def _load_batch(self, number: int) -> Examples:
        return from_record_batch(self._read_batch(number))

    def _read_batch(self, number: int) -> pyarrow.RecordBatch:
        reader, i = self._places[number]
        try:
            with self._lock:  # Arrow does not say that threads may share a reader
                batch = reader.get_batch(i)
            check_batch(batch, has_source=self._has_source)
            return batch
        except (OSError, ValueError, pyarrow.ArrowException) as error:
            raise self._complain(f"batch {number}", explain_damage(error)) from error

    def _complain(self, place: str, what: str) -> ShardError:
        return ShardError(f"{self.folder}, split {self.split}, {place}: {what}; run `albert-data verify`")

    @property
    def _columns(self) -> Columns:
        return self._make_once("columns", lambda: Columns(list(map(self._read_batch, range(len(self._places))))))

    @property
    def _begins(self) -> np.ndarray:
        """The number of the first row of each batch, and of all rows: int64."""

        def measure() -> np.ndarray:
            lengths = [self._read_batch(number).num_rows for number in range(len(self._places))]
            return np.cumsum([0, *lengths], dtype=np.int64)

        return self._make_once("begins", measure)

    def __len__(self) -> int:
        return int(self._begins[-1])

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the shards were built with. Raises ShardError where the folder holds another one."""
        return self._make_once("tokenizer", self._load_tokenizer)

    def _load_tokenizer(self) -> Tokenizer:
        expected = self.manifest.tokenizer
        name = expected.file
        try:
            path = locate(self._root, name)
            measure_file(path)
        except (OSError, ShardError) as error:
            raise ShardError(f"tokenizer {self.folder / name} {_explain(error)}; run `albert-data verify`") from error
        tokenizer = load_tokenizer(path, to_encode=False)
        if tokenizer.sha256 != expected.sha256 or tokenizer.vocab_size != expected.vocab_size:
            raise ShardError(
                f"tokenizer {self.folder / name} is another one than at the build; put {path.name} of the build back, "
                "or build anew"
            )
        return tokenizer

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, [CLS] and [SEP] included: int32."""

        def measure() -> np.ndarray:
            parts = [np.diff(self._batch(number).offsets) for number in range(len(self._places))]
            lengths: np.ndarray = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int32)
            return lengths

        return self._make_once("lengths", measure)

    def batches(self) -> Iterator[Examples]:
        """All rows in order, as they lie in the files. Raises ShardError at a row that leaves its bounds."""
        begin = 0
        for number in range(len(self._places)):
            batch = self._batch(number)
            self._check_rows(batch, range(begin, begin + len(batch)))
            yield batch
            begin += len(batch)

    def _check_rows(self, rows: Examples, numbers: Sequence[int] | np.ndarray) -> None:
        """numbers: those of the rows, for the message."""
        if (row := self._bounds.find_unsound(rows)) is not None:
            raise self._complain(f"row {numbers[row]}", self._bounds.explain(rows, row))

    def rows(self, indices: np.ndarray | Sequence[SupportsIndex]) -> Examples:
        """Rows by number, in the order asked for, copied out of the files.

        indices: integers from 0 on, in one dimension. The first call unpacks compressed shards into memory, all of the
        split; others stay where they are. Raises TypeError for other indices, IndexError for a row that is not there,
        ShardError for one that leaves its bounds.
        """
        numbers = to_row_numbers(indices, len(self))
        if not self._places:
            return no_rows(has_source=self._has_source)
        batches = np.searchsorted(self._begins, numbers, side="right") - 1
        try:
            found = self._columns.take(batches, numbers - self._begins[batches])
        except ValueError as error:
            raise ShardError(f"a shard is damaged: {error}; run `albert-data verify`") from error
        self._check_rows(found, numbers)
        return found

    def __getitem__(self, index: SupportsIndex) -> Example:
        """One row; a negative number counts from the end. Raises as `rows` does."""
        row = to_row_number(index, len(self))
        number = bisect_right(self._begins, row) - 1
        at = row - int(self._begins[number])
        one = slice_rows(self._batch(number), at, at + 1)
        self._check_rows(one, [row])
        return _to_example(one)

    def __iter__(self) -> Iterator[Example]:
        for batch in self.batches():
            yield from (_to_example(slice_rows(batch, row, row + 1)) for row in range(len(batch)))


def _to_example(one: Examples) -> Example:
    return Example(
        input_ids=one.input_ids,
        segment_a_len=int(one.segment_a_len[0]),
        sop_label=int(one.sop_label[0]),
        masked_positions=one.masked_positions,
        masked_ids=one.masked_ids,
        document_key=int(one.document_keys[0]),
        source=None if one.sources is None else int(one.sources[0]),
    )


def open_shards(path: str | Path, split: str = "train") -> Shards:
    """Open one split of a finished build.

    Raises ShardError if the folder is no finished build, lacks the split, or a shard can't be read or has another size
    than at the build.
    """
    return open_splits(path, (split,))[split]


def open_splits(path: str | Path, splits: tuple[str, ...] = ()) -> dict[str, Shards]:
    """Open several splits of one build, or all that it has. Raises what open_shards does."""
    folder = Path(path)
    read = load_manifest(folder)
    there = read.manifest.splits
    for split in splits:
        check_split(folder, split, list(there))
    try:
        return {split: Shards(folder, split, read.manifest) for split in splits or there}
    except ShardError:
        read.check_current()
        raise


def check_split(folder: Path, split: str, there: Sequence[str]) -> None:
    """Raise ShardError where a folder lacks a split."""
    if split not in there:
        here = ", ".join(there)
        raise ShardError(f"{folder} has no split {split!r}; it has {here} (of the possible {', '.join(SPLITS)})")


def _open_again(folder: Path, root: Path, split: str, digest: str) -> Shards:
    """What was pickled. folder: its name, as it was given; root: where it is."""
    opened = open_shards(root, split)
    if opened.manifest.digest != digest:
        raise ShardError(f"{root} was built anew since it was opened; open it again")
    opened.folder = folder
    return opened


def _open_shard(folder: Path, shard: ShardEntry) -> pyarrow.ipc.RecordBatchFileReader:
    """Raises ShardError also where the size is not the manifest's: who reads beyond the end of a file is killed."""
    name = shard.file
    try:
        path = locate(folder, name)
        num_bytes = measure_file(path)
        if num_bytes != shard.num_bytes:
            raise ShardError(f"has {num_bytes:,} bytes; the manifest says {shard.num_bytes:,}")
        return pyarrow.ipc.open_file(map_file(path))
    except (OSError, ValueError, pyarrow.ArrowException, ShardError) as error:
        raise ShardError(f"shard {folder / name} {_explain(error)}; run `albert-data verify`") from error


def _explain(error: Exception) -> str:
    return str(error) if isinstance(error, ShardError) else f"can't be read: {explain_damage(error)}"
