"""Reads rows back from shards, memory-mapped.

In: a finished shard folder. Out: rows of one split, by number, in the order of the shards' names. Nothing in the folder
is trusted: damage of any kind is a ShardError.
"""

from __future__ import annotations

import dataclasses
import html
import operator
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, SupportsIndex, TypeAlias, overload

import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.data import Examples
from albert_data.errors import ConfigError, ShardError
from albert_data.shards.columns import Columns
from albert_data.shards.decoding import Example
from albert_data.shards.manifest import SPLITS, Manifest, ShardEntry
from albert_data.shards.manifest_file import load_manifest
from albert_data.shards.paths import find_file
from albert_data.shards.row_bounds import Bounds
from albert_data.shards.rows import join_rows, no_rows, slice_rows
from albert_data.shards.schema import check_batch, explain_damage, from_record_batch, map_file, shard_schema
from albert_data.storage import find_storage, is_remote, make_path
from albert_data.storage.cache import measure_limit
from albert_data.storage.sharing import SharedLock
from albert_data.text.escaping import escape_controls
from albert_data.text.wording import count_of
from albert_data.tokenizer.lexicon import NO_WORDS
from albert_data.tokenizer.model import Tokenizer, load_tokenizer

_CACHED_BATCHES = 16
_SHOWN = 3  # rows, in a notebook
Reader: TypeAlias = pyarrow.ipc.RecordBatchFileReader


class Shards:
    """The rows of one split: `shards[7]`, `shards[-1]`, `shards[10:20]`, `for example in shards`, `shards.rows(...)`.

    manifest: the folder's manifest.json.

    Threads may share it. Forked processes inherit it; pickled or copied, it opens the same folder again, by its
    absolute path. Its files are mapped into memory, those in a store as copies: if a shard is truncated in place while
    it is open, the next read ends the process with SIGBUS. A build replaces its files by renaming, so the rows stay
    what they were.
    """

    def __init__(self, folder: Path, split: str, manifest: Manifest) -> None:
        self.folder, self.split, self.manifest = folder, split, manifest
        self._root = folder if is_remote(folder) else Path(os.path.abspath(folder))
        self._optional = manifest.optional_columns
        self._bounds = Bounds.from_manifest(manifest)
        self._examples_of = lru_cache(maxsize=_CACHED_BATCHES)(self._read_examples)
        # Made once; perhaps twice, by threads that ask at the same time: a lock could be held by another one at a fork.
        self._columns, self._begins = cache(self._find_columns), cache(self._find_begins)
        self._lengths, self._tokenizer = cache(self._find_lengths), cache(self._load_tokenizer)
        self._lock = SharedLock()
        self._record_batches = list(self._open_files(manifest.splits[split].shards))

    def _open_files(self, shards: Sequence[ShardEntry]) -> Iterator[tuple[Reader, int]]:
        """Yield each record batch of the shards, by its reader and its number there."""
        for reader in find_storage(self.folder).at_once(partial(_open_file, self.folder), shards):
            yield from ((reader, i) for i in range(reader.num_record_batches))

    def __repr__(self) -> str:
        entry, config = self.manifest.splits[self.split], self.manifest.config.examples
        counts = f"{count_of(entry.num_rows, 'row')}, {count_of(len(entry.shards), 'shard')}"
        return f"Shards({str(self.folder)!r}, {self.split}, {counts}, max_seq_len {config.max_seq_len})"

    def __reduce__(self) -> tuple[Callable[..., Shards], tuple[Path, Path, str, str]]:
        return _open_again, (self.folder, self._root, self.split, self.manifest.digest)

    def _read_examples(self, number: int) -> Examples:
        return from_record_batch(self._read_record_batch(number))

    def _read_record_batch(self, number: int) -> pyarrow.RecordBatch:
        reader, i = self._record_batches[number]
        try:
            with self._lock.hold():  # Arrow does not say that threads may share a reader
                batch = reader.get_batch(i)
            check_batch(batch, **self._optional)
            return batch
        except (OSError, ValueError, pyarrow.ArrowException) as error:
            raise self._make_error(f"batch {number}", explain_damage(error)) from error

    def _make_error(self, place: str, what: str) -> ShardError:
        return ShardError(f"{self.folder}, split {self.split}, {place}: {what}; run `albert-data verify`")

    def _find_columns(self) -> Columns:
        return Columns([self._read_record_batch(number) for number in range(len(self._record_batches))])

    def _find_begins(self) -> np.ndarray:
        """The number of the first row of each record batch, then the total number of rows: int64.

        The manifest has the rows of each shard, but not of each record batch, so every batch is read for it.
        """
        lengths = [self._read_record_batch(number).num_rows for number in range(len(self._record_batches))]
        return np.cumsum([0, *lengths], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._begins()[-1])

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the shards were built with. Raises ShardError where the folder holds another one."""
        return self._tokenizer()

    def _load_tokenizer(self) -> Tokenizer:
        expected, listed = self.manifest.tokenizer, self.manifest.words
        path = self._find_tokenizer_file(expected.file)
        words = self._find_tokenizer_file(listed.file) if listed else NO_WORDS
        # The tables for encoding are made if it encodes.
        tokenizer = load_tokenizer(path, normalization=expected.normalization or "none", words=words, to_encode=False)
        if tokenizer.sha256 != expected.sha256 or tokenizer.vocab_size != expected.vocab_size:
            raise ShardError(
                f"tokenizer {self.folder / expected.file} is another one than at the build; "
                f"put {path.name} of the build back, or build anew"
            )
        if listed and tokenizer.words_sha256 != listed.sha256:
            raise ShardError(
                f"word list {self.folder / listed.file} is another one than at the build; put that of the build back, "
                "or build anew"
            )
        return tokenizer

    def _find_tokenizer_file(self, name: str) -> Path:
        try:
            return find_file(self._root, name)[0]
        except (OSError, ValueError) as error:
            what = f"tokenizer {self.folder / name} can't be read: {explain_damage(error)}"
            raise ShardError(f"{what}; run `albert-data verify`") from error

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, [CLS] and [SEP] included: int32."""
        return self._lengths()

    def _find_lengths(self) -> np.ndarray:
        parts = [np.diff(self._examples_of(number).offsets) for number in range(len(self._record_batches))]
        lengths: np.ndarray = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int32)
        return lengths

    @cached_property
    def rows_by_source(self) -> list[np.ndarray]:
        """The numbers of the rows of each source that has some: int64, ascending. Empty unless there are several."""
        parts = (
            [self._examples_of(i).sources for i in range(len(self._record_batches))] if self.manifest.sources else []
        )
        sources = np.concatenate([np.zeros(0, np.uint16), *(part for part in parts if part is not None)])
        order = np.argsort(sources, kind="stable")
        found = np.split(order, np.unique(sources[order], return_index=True)[1][1:])
        return found if len(found) > 1 else []

    def batches(self) -> Iterator[Examples]:
        """All rows in order, one record batch at a time. Raises ShardError at a row that leaves its bounds."""
        begin = 0
        for number in range(len(self._record_batches)):
            batch = self._examples_of(number)
            self._check_rows(batch, range(begin, begin + len(batch)))
            yield batch
            begin += len(batch)

    def _check_rows(self, rows: Examples, numbers: Sequence[int] | np.ndarray) -> None:
        """Raise ShardError at a row that leaves its bounds. numbers: each row's number in the split."""
        if (fault := next(self._bounds.find_faults(rows), None)) is not None:
            raise self._make_error(f"row {numbers[fault.row]}", self._bounds.explain(fault))

    def rows(self, indices: np.ndarray | Sequence[SupportsIndex]) -> Examples:
        """Rows by number, in the order of `indices`, copied out of the files.

        indices: integers from 0 on, in one dimension. If the shards are compressed, the first call unpacks the whole
        split into memory. Raises TypeError for other indices, IndexError for a row that is not there,
        ShardError for one that leaves its bounds.
        """
        numbers = to_row_numbers(indices, len(self))
        if not self._record_batches:
            return no_rows(**self._optional)
        batches = np.searchsorted(self._begins(), numbers, side="right") - 1
        found = self._columns().take(batches, numbers - self._begins()[batches])
        self._check_rows(found, numbers)
        return found

    @overload
    def __getitem__(self, index: SupportsIndex) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Example | list[Example]:
        """One row, or the rows of a slice; a negative number counts from the end. Raises as `rows` does."""
        if isinstance(index, slice):
            return [self._read_row(row) for row in range(*index.indices(len(self)))]
        return self._read_row(to_row_number(index, len(self)))

    def _read_row(self, row: int) -> Example:
        number = bisect_right(self._begins(), row) - 1
        at = row - int(self._begins()[number])
        one = slice_rows(self._examples_of(number), at, at + 1)
        self._check_rows(one, [row])
        return self._to_example(one)

    def __iter__(self) -> Iterator[Example]:
        for batch in self.batches():
            yield from (self._to_example(slice_rows(batch, row, row + 1)) for row in range(len(batch)))

    def _to_example(self, one: Examples) -> Example:
        return Example(
            input_ids=one.input_ids,
            segment_a_len=int(one.segment_a_len[0]),
            sop_label=int(one.sop_label[0]),
            masked_positions=one.masked_positions,
            masked_ids=one.masked_ids,
            document_key=int(one.document_keys[0]),
            source=None if one.sources is None else int(one.sources[0]),
            document_key_b=None if one.document_keys_b is None else int(one.document_keys_b[0]),
            _find_words=lambda: (self.tokenizer, self.manifest.config.examples.task),
        )

    def to_arrow(self) -> pyarrow.Table:
        """All rows as a table, as they lie in the files and uncopied; docs/reference/format.md has the columns."""
        batches = [self._read_record_batch(number) for number in range(len(self._record_batches))]
        schema = batches[0].schema if batches else shard_schema(np.uint16, **self._optional)
        return pyarrow.Table.from_batches(batches, schema)

    def to_pandas(self) -> Any:
        """All rows as a DataFrame, which holds them in memory; a list is an array of NumPy. Needs pandas."""
        try:
            return self.to_arrow().to_pandas()
        except ModuleNotFoundError as error:
            raise ConfigError(f"to_pandas needs {error.name}; install it with: pip install {error.name}") from error

    def to_torch(self) -> dict[str, Any]:
        """All rows as tensors of PyTorch, int64, which hold them in memory.

        Lists lie one after another: that of row i is `input_ids[offsets[i] : offsets[i + 1]]`, and of masked_positions
        and masked_ids alike with mask_offsets. Document keys keep their bits.
        Raises ShardError at a row that leaves its bounds.
        """
        try:
            import torch
        except ModuleNotFoundError as error:
            raise ConfigError("to_torch needs torch; install it with: pip install 'albert-data[train]'") from error
        rows = join_rows([no_rows(**self._optional), *self.batches()])
        arrays = {name: values for name, values in vars(rows).items() if values is not None}
        return {name: torch.from_numpy(values.astype(np.int64)) for name, values in arrays.items()}

    def _repr_html_(self) -> str:
        """For notebooks: what the split has, and its first rows."""
        shown = [row._repr_html_() or "" for row in self[:_SHOWN]]
        return "\n".join([f"<p>{html.escape(escape_controls(repr(self)))}</p>", *shown])


# ---- row numbers ----


def to_row_number(index: SupportsIndex, num_rows: int) -> int:
    """A row from 0 on. index: an integer of any type; a negative one counts from the end."""
    row = operator.index(index)
    if not -num_rows <= row < num_rows:
        allowed = f"; allowed are {-num_rows} to {num_rows - 1}" if num_rows else ""
        raise IndexError(f"row {row} of a split of {num_rows} rows{allowed}")
    return row % num_rows


def to_row_numbers(indices: np.ndarray | Sequence[SupportsIndex], num_rows: int) -> np.ndarray:
    """Rows from 0 on, int64. indices: integers of any type, in one dimension. An empty array may have any type."""
    found = np.asarray(indices)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise TypeError(
            f"row indices are of type {found.dtype}, in {found.ndim} dimensions; integers in one dimension are needed, "
            "such as np.flatnonzero(mask) for a mask"
        )
    outside = found[(found < 0) | (found >= num_rows)]  # before the cast: a large uint64 would turn negative
    if len(outside):
        allowed = f"; allowed are 0 to {num_rows - 1}" if num_rows else ""
        raise IndexError(f"row {outside[0]} of a split of {num_rows} rows{allowed}")
    return found.astype(np.int64, copy=False)


# ---- opening ----


def open_shards(path: str | os.PathLike[str], split: str = "train") -> Shards:
    """Open one split of a finished build.

    Raises ShardError if the folder is no finished build, lacks the split, or a shard can't be read or has another size
    than at the build.
    """
    return open_splits(path, (split,))[split]


def open_splits(path: str | os.PathLike[str], splits: tuple[str, ...] = ()) -> dict[str, Shards]:
    """Open these splits of one build, or all of its splits if none is named. Raises as open_shards does."""
    folder = make_path(path)
    read = load_manifest(folder)
    there = read.manifest.splits
    for split in splits:
        check_split(folder, split, list(there))
    try:
        if is_remote(folder):
            _check_size(folder, sum(shard.num_bytes for split in splits or there for shard in there[split].shards))
        return {split: Shards(folder, split, read.manifest) for split in splits or there}
    except ShardError:
        read.check_current()  # if a build replaced the folder just now, saying so helps more than this error
        raise


def _check_size(folder: Path, num_bytes: int) -> None:
    """Raise ShardError unless copies of all shards fit on this machine."""
    if num_bytes > (limit := measure_limit()):
        raise ShardError(
            f"{folder} has {num_bytes:,} bytes of shards, and copies may take {limit:,} here; copy it to a larger disk "
            "with the store's own program, and name that folder"
        )


def check_split(folder: Path, split: str, there: Sequence[str]) -> None:
    """Raise ShardError where a folder lacks a split."""
    if split not in there:
        here = ", ".join(there)
        raise ShardError(f"{folder} has no split {split!r}; it has {here} (of the possible {', '.join(SPLITS)})")


def open_shard(folder: Path, split: str, manifest: Manifest, shard: ShardEntry) -> Shards:
    """Open one shard of a split. Messages name this file, and number its rows."""
    alone = {split: dataclasses.replace(manifest.splits[split], shards=(shard,))}
    shards = Shards(folder, split, dataclasses.replace(manifest, splits=alone))
    shards.folder = folder / shard.file
    return shards


def _open_again(folder: Path, root: Path, split: str, digest: str) -> Shards:
    """Unpickle. folder: the name that the user gave; root: its absolute path."""
    opened = open_shards(root, split)
    if opened.manifest.digest != digest:
        raise ShardError(f"{root} was built anew since it was opened; open it again")
    opened.folder = folder
    return opened


def _open_file(folder: Path, shard: ShardEntry) -> Reader:
    """Raises ShardError also for another size than the manifest's: reading past the end of a mapped file is fatal."""
    name = shard.file
    try:
        path, num_bytes = find_file(folder, name)
        if num_bytes != shard.num_bytes:
            raise ValueError(f"it has {num_bytes:,} bytes; the manifest says {shard.num_bytes:,}")
        return pyarrow.ipc.open_file(map_file(path, shard.sha256))
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        what = f"shard {folder / name} can't be read: {explain_damage(error)}"
        raise ShardError(f"{what}; run `albert-data verify`") from error
