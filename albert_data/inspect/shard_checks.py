"""Checks one file of a shard folder against its entry in the manifest, and the rows of a shard against the rules.

In: a folder and a file's entry in the manifest, in any state. Out: faults, each with its row or byte where that
is known. Damage of any kind gives faults, never an exception. Nearly all time is spent in hashing, Arrow and kernels,
which release the GIL, so threads check several shards at once.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.errors import ShardError
from albert_data.files import hash_file
from albert_data.inspect.row_checks import RowRules, find_row_faults
from albert_data.shards.manifest import TOTALS, FileEntry, ShardEntry
from albert_data.shards.paths import find_file
from albert_data.shards.schema import DOCUMENT_KEY_B, describe_columns, explain_damage, has_nulls, map_file
from albert_data.storage import find_storage
from albert_data.wording import count_of

MAX_SHARD_FAULTS = 10
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # errors of the machine, not of the file
Advance = Callable[[int], object]


class Finding(Enum):
    """The faults of a whole file that decide whether its rows are checked."""

    MISSING = "there is no such file, or none that can be read"
    OTHER_SHARD = "the file holds another shard of the folder"
    CHANGED = "the file's size or hash is not the manifest's"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong. file: relative to the folder; row, byte: in that file, counted from 0."""

    file: str
    what: str
    row: int | None = None
    byte: int | None = None
    finding: Finding | None = None

    def __str__(self) -> str:
        row = "" if self.row is None else f", row {self.row:,}"
        byte = "" if self.byte is None else f", byte {self.byte:,}"
        return f"{self.file}{row}{byte}: {self.what}"


@dataclass(kw_only=True)
class Checked:
    """The result for one file. keys: uint64, of the documents in it, if they were asked for."""

    faults: list[Fault] = field(default_factory=list)
    keys: list[np.ndarray] = field(default_factory=list)


def check_file(
    folder: Path, expected: FileEntry | ShardEntry, others: Mapping[str, str], advance: Advance
) -> Fault | None:
    """Check that a file has the SHA-256 that the manifest gives, and a shard also the size.

    others: the names of the listed shards by their SHA-256, to recognise a shard under another shard's name.
    """
    name = expected.file
    try:
        path, num_bytes = find_file(folder, name)
        found = hash_file(path, advance)
    except ShardError as error:
        return Fault(file=name, what=str(error), finding=Finding.MISSING)
    except OSError as error:
        if error.errno in _SHORTAGES:
            raise
        what = f"is listed in the manifest, but can't be read: {error.strerror}"
        return Fault(file=name, what=what, finding=Finding.MISSING)
    expected_bytes = expected.num_bytes if isinstance(expected, ShardEntry) else num_bytes
    if found != expected.sha256 and found in others:
        what = f"holds the bytes of {others[found]}: put each file where it belongs"
        return Fault(file=name, what=what, finding=Finding.OTHER_SHARD)
    if num_bytes != expected_bytes:
        what = f"has {num_bytes:,} bytes; the manifest says {expected_bytes:,}"
        return Fault(file=name, what=what, finding=Finding.CHANGED)
    if found != expected.sha256:
        what = f"has the SHA-256 {found}; the manifest says {expected.sha256}"
        return Fault(file=name, what=what, finding=Finding.CHANGED)
    return None


@dataclass(frozen=True, kw_only=True)
class ShardCheck:
    """Checks shards, one a call. rules: None for sizes and hashes alone; keeps_keys: whether Checked.keys is wanted.

    others: see check_file.
    """

    folder: Path
    rules: RowRules | None
    others: Mapping[str, str]
    compression: str
    keeps_keys: bool
    advance: Advance

    def __call__(self, shard: ShardEntry) -> Checked:
        fault = check_file(self.folder, shard, self.others, self.advance)
        checked = Checked(faults=[fault] if fault else [])
        if self.rules is None or (fault and fault.finding is not Finding.CHANGED):
            return checked
        path = self.folder / shard.file
        found = list(self._check_rows(path, shard, self.rules, checked.keys))
        if fault and not found:
            found = [self._locate_change(path, shard, self.rules)]
        checked.faults += found
        self.advance(shard.num_bytes)
        return checked

    def _check_rows(self, path: Path, shard: ShardEntry, rules: RowRules, keys: list[np.ndarray]) -> Iterator[Fault]:
        """Check the rows of a shard that is there, and their number."""
        name, totals = shard.file, Counter[str]()
        faults = self._find_row_faults(path, name, rules, totals, keys)
        try:
            yield from islice(faults, MAX_SHARD_FAULTS)
            if rest := sum(1 for _ in faults):
                yield Fault(file=name, what=f"{count_of(rest, 'more row')} at fault")
        except ShardError as error:
            yield Fault(file=name, what=str(error))
            return
        for total in TOTALS:
            found, said = totals[total], getattr(shard, total)
            if said is not None and found != said:
                yield Fault(file=name, what=f"{total} is {found:,}; the manifest says {said:,}")

    def _find_row_faults(
        self, path: Path, name: str, rules: RowRules, totals: Counter[str], keys: list[np.ndarray]
    ) -> Iterator[Fault]:
        key_names = [name for name in ("document_key", DOCUMENT_KEY_B) if name in rules.schema.names]
        for batch in read_batches(path, rules.schema):
            for row, what in find_row_faults(batch, rules):
                yield Fault(file=name, what=what, row=totals["num_rows"] + row)
            if self.keeps_keys:
                keys += [np.unique(batch.column(name).to_numpy()) for name in key_names]
            totals["num_rows"] += batch.num_rows
            totals["num_tokens"] += len(batch.column("input_ids").flatten())
            totals["num_masked"] += len(batch.column("masked_ids").flatten())
            totals["num_unpaired"] += int(np.count_nonzero(batch.column("sop_label").to_numpy() < 0))
            first_keys, *others = (batch.column(name).to_numpy() for name in key_names)
            totals["num_random"] += sum(int(np.count_nonzero(first_keys != keys_b)) for keys_b in others)

    def _locate_change(self, path: Path, shard: ShardEntry, rules: RowRules) -> Fault:
        """Describe a change of bytes after which every row still keeps the rules."""
        change = find_changed_byte(path, rules.schema, self.compression, shard.sha256)
        if change is None:
            return Fault(
                file=shard.file,
                what="every row keeps the rules, but written anew they do not give the build's bytes: a value, such as "
                "the id of a token, may be replaced by another one that is allowed, so no row here can be trusted",
            )
        return Fault(
            file=shard.file,
            byte=change.byte,
            what=f"is 0x{change.found:02x}; the build wrote 0x{change.expected:02x}. The rows are as they were built",
        )


def read_batches(path: Path, schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
    """The record batches of a shard. Raises ShardError at the first that is damaged or holds nulls."""
    at = "the footer, the end of the file"
    try:
        reader = pyarrow.ipc.open_file(map_file(path))
        if not reader.schema.equals(schema):
            raise ShardError(describe_columns(reader.schema))
        for i in range(reader.num_record_batches):
            at = f"record batch {i}"
            batch = reader.get_batch(i)
            batch.validate(full=True)
            if any(has_nulls(column) for column in batch.columns):
                raise ShardError(f"holds nulls in {at}; none are allowed")
            yield batch
    except (OSError, ValueError, pyarrow.ArrowException) as error:  # ValueError: a column name that is not UTF-8
        raise ShardError(f"can't be read as Arrow at {at}: {explain_damage(error)}") from error


class Change(NamedTuple):
    """The first byte that differs from what the build wrote."""

    byte: int
    found: int
    expected: int


def find_changed_byte(path: Path, schema: pyarrow.Schema, compression: str, expected_sha256: str) -> Change | None:
    """The first changed byte of a shard whose rows are still those of the build.

    Writes the rows anew, as the build did. None unless that gives the expected SHA-256: if it does not, the rows
    themselves changed, or this version of Arrow writes other bytes than the build's.
    """
    with find_storage(path).open(path) as file:
        comparison = _Comparison(file.read)
        try:
            codec = None if compression == "none" else compression
            options = pyarrow.ipc.IpcWriteOptions(compression=codec, use_threads=False)
            sink = pyarrow.PythonFile(comparison, mode="w")
            with pyarrow.ipc.new_file(sink, schema, options=options) as writer:
                for batch in read_batches(path, schema):
                    writer.write_batch(batch)
            sink.flush()
        except (ShardError, ValueError, pyarrow.ArrowException):  # ValueError: a manifest with no such codec
            return None
    return comparison.first if comparison.hexdigest() == expected_sha256 else None


class _Comparison:
    """Acts as a file to write to: it keeps the hash of what is written, and where that first differs from a file."""

    closed = False

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read, self._digest, self._position = read, sha256(), 0
        self.first: Change | None = None

    def write(self, data: bytes) -> int:
        expected, found = bytes(data), self._read(len(data))
        self._digest.update(expected)
        # If fewer bytes were read, the file is shorter than what the build wrote: then no single byte changed.
        if self.first is None and expected != found and len(expected) == len(found):
            at = int(np.argmax(np.frombuffer(found, np.uint8) != np.frombuffer(expected, np.uint8)))
            self.first = Change(byte=self._position + at, found=found[at], expected=expected[at])
        self._position += len(expected)
        return len(expected)

    def flush(self) -> None:
        pass

    def hexdigest(self) -> str:
        return self._digest.hexdigest()
