"""What every format has in common: the rows of a shard go in, whole files and a line about each come out."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from albert_data.data import Examples
from albert_data.shards.manifest import Manifest, ShardEntry
from albert_data.shards.packing import Packs, cut_rows, join_packs, pack_split
from albert_data.shards.reader import Shards, open_shard
from albert_data.shards.rows import slice_rows
from albert_data.storage import find_storage
from albert_data.storage.files import HashingFile


@dataclass(frozen=True, kw_only=True)
class ConvertTask:
    """One shard. number: of `count` shards of its split, from 0 on."""

    split: str
    number: int
    count: int
    shard: ShardEntry

    def describe(self) -> str:
        return f"shard {self.shard.file}"


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """A file that was written."""

    name: str  # relative to DIR
    num_rows: int
    num_bytes: int
    hash: str  # XXH3 of 128 bits, in hexadecimal
    packs: Mapping[str, int] | None = None  # `Packs.measure` of its shard, in the first file of each


SplitFiles = Mapping[str, list[WrittenFile]]


@dataclass(frozen=True)
class ShardFolder:
    """A finished shard folder, whose rows are converted. pack: fill packs of so many tokens, which take their place."""

    folder: Path
    manifest: Manifest
    pack: int | None = None

    @property
    def id_dtype(self) -> type[Any]:
        """uint16 or uint32, as docs/reference/format.md has it."""
        return np.uint16 if self.manifest.tokenizer.vocab_size <= 1 << 16 else np.uint32

    def count_rows(self, num_bytes: int) -> int:
        """How many rows of the greatest length may be held at once."""
        longest = self.pack or self.manifest.config.examples.max_seq_len
        return max(1, num_bytes // (64 + longest * (2 * np.dtype(self.id_dtype).itemsize + 2)))

    def plan(self, task: ConvertTask) -> Packs | None:
        """The packs of a shard, None without packs."""
        return None if self.pack is None else pack_split(self._open(task), self.pack)

    def read(self, task: ConvertTask, max_rows: int, packs: Packs | None = None) -> Iterator[Examples]:
        """Yield the rows of one shard in order, or its packs, at most `max_rows` at once.

        packs: what `plan` returned, if it was called. Raises ShardError as `open_shards` does.
        """
        shards, packs = self._open(task), packs or self.plan(task)
        if packs is not None:
            num_packs, step = len(packs.offsets) - 1, max(1, max_rows // 8)  # to cut rows takes memory
            for first in range(0, num_packs, step):
                some = packs.take(np.arange(first, min(first + step, num_packs)))
                rows = self._widen(shards.rows(some.rows))
                yield join_packs(cut_rows(rows, some.begins, some.ends), some.offsets)
            return
        for batch in map(self._widen, shards.batches()):
            for begin in range(0, len(batch), max_rows):
                yield slice_rows(batch, begin, min(begin + max_rows, len(batch)))

    def _open(self, task: ConvertTask) -> Shards:
        return open_shard(self.folder, task.split, self.manifest, task.shard)

    def _widen(self, rows: Examples) -> Examples:
        if rows.input_ids.dtype == self.id_dtype:
            return rows
        # Shards by another writer. The ids are below vocab_size, so they fit.
        ids = {name: getattr(rows, name).astype(self.id_dtype) for name in ("input_ids", "masked_ids")}
        return dataclasses.replace(rows, **ids)


class Writer(ABC):
    """Writes one format. It can be pickled, and a worker uses it for one shard after another.

    max_rows: the most rows of an Examples that `write` may be given, so that its buffers stay small.
    """

    max_rows: int

    @abstractmethod
    def write(self, work: Path, task: ConvertTask, parts: Iterable[Examples]) -> list[WrittenFile]:
        """Write the rows of one shard to one or more files in the working folder."""

    def describe(self, files: SplitFiles) -> dict[str, bytes]:
        """The small files that say what the others are, by name."""
        return {}


def find_place(work: Path, name: str) -> Path:
    """Where a file of DIR lies until all are there: no folders are needed below the working folder."""
    return work / name.replace("/", "_")


@contextmanager
def new_file(work: Path, name: str) -> Iterator[HashingFile]:
    """Open a file for writing; it gets its name when it is complete. The caller of `Writer.write` syncs it."""
    with find_storage(work).create(find_place(work, name), sync=False) as file:
        yield HashingFile(file, xxhash.xxh3_128())  # ten times as fast as SHA-256; it shows damage, not forgery
