"""One file of a shard folder against what the manifest says of it, and a shard's rows against the rules.

In: a folder and a file's entry in the manifest, in any state. Out: faults, each with its row or byte where that
can be told. Damage of any kind gives faults, never an exception. The work is done in hashing, Arrow and kernels,
which let other threads run.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.errors import ShardError
from albert_data.files import hash_file
from albert_data.inspect.row_checks import RowRules, find_row_faults
from albert_data.inspect.terminal import count_noun
from albert_data.shards.manifest import TOTALS, ShardEntry, TokenizerEntry
from albert_data.shards.places import locate, measure_file
from albert_data.shards.schema import describe_columns, explain_damage, has_nulls, map_file

MAX_SHARD_FAULTS = 10
_NOT_THE_FOLDERS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # what the machine lacks is no fault of a file
Advance = Callable[[int], object]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is not as it should be. file: relative to the folder; row, byte: in that file, from 0."""

    file: str
    what: str
    row: int | None = None
    byte: int | None = None

    def __str__(self) -> str:
        row = "" if self.row is None else f", row {self.row:,}"
        byte = "" if self.byte is None else f", byte {self.byte:,}"
        return f"{self.file}{row}{byte}: {self.what}"


@dataclass(kw_only=True)
class Checked:
    """What came out for one file. keys: uint64, of the documents in it, if they were asked for."""

    faults: list[Fault] = field(default_factory=list)
    keys: list[np.ndarray] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        return not self.faults


def check_file(
    folder: Path, expected: TokenizerEntry | ShardEntry, others: Mapping[str, str], advance: Advance
) -> Iterator[Fault]:
    """Check that a file has the SHA-256 that the manifest gives, and a shard the size.

    others: the names of the listed shards by their SHA-256, to tell a file that took another's place.
    """
    name = expected.file
    try:
        path = locate(folder, name)
        num_bytes = measure_file(path)
        found = hash_file(path, advance)
    except ShardError as error:
        yield Fault(file=name, what=str(error))
        return
    except OSError as error:
        if error.errno in _NOT_THE_FOLDERS:
            raise
        yield Fault(file=name, what=f"is listed in the manifest, but can't be read: {error.strerror}")
        return
    wanted_bytes = expected.num_bytes if isinstance(expected, ShardEntry) else num_bytes
    if found == expected.sha256 and num_bytes == wanted_bytes:
        return
    if found in others and found != expected.sha256:
        yield Fault(file=name, what=f"holds the bytes of {others[found]}: put each where it belongs")
    elif num_bytes != wanted_bytes:
        yield Fault(file=name, what=f"has {num_bytes:,} bytes; the manifest says {wanted_bytes:,}")
    else:
        yield Fault(file=name, what=f"has the SHA-256 {found}; the manifest says {expected.sha256}")


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
        checked = Checked(faults=list(check_file(self.folder, shard, self.others, self.advance)))
        path = self._find_file(shard, checked)
        if self.rules is None or path is None:
            return checked
        differs, found = not checked.is_same, list(self._check_rows(path, shard, self.rules, checked.keys))
        if differs and not found:
            found = [self._place_change(path, shard, self.rules)]
        checked.faults += found
        self.advance(shard.num_bytes)
        return checked

    def _find_file(self, shard: ShardEntry, checked: Checked) -> Path | None:
        """The file, if there is one whose rows can be looked at: this very shard, sound or damaged."""
        if any("holds the bytes of" in fault.what for fault in checked.faults):
            return None
        try:
            path = locate(self.folder, shard.file)
            measure_file(path)
        except (OSError, ShardError):
            return None
        return path

    def _check_rows(self, path: Path, shard: ShardEntry, rules: RowRules, keys: list[np.ndarray]) -> Iterator[Fault]:
        """Check the rows of a shard that is there, and their number."""
        name, totals = shard.file, Counter[str]()
        faults = self._find_row_faults(path, name, rules, totals, keys)
        try:
            yield from islice(faults, MAX_SHARD_FAULTS)
            if rest := sum(1 for _ in faults):
                yield Fault(file=name, what=f"{count_noun(rest, 'more row')} at fault")
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
        for batch in read_batches(path, rules.schema):
            for row, what in find_row_faults(batch, rules):
                yield Fault(file=name, what=what, row=totals["num_rows"] + row)
            if self.keeps_keys:
                keys.append(np.unique(batch.column("document_key").to_numpy()))
            totals["num_rows"] += batch.num_rows
            totals["num_tokens"] += len(batch.column("input_ids").flatten())
            totals["num_masked"] += len(batch.column("masked_ids").flatten())
            totals["num_unpaired"] += int(np.count_nonzero(batch.column("sop_label").to_numpy() < 0))

    def _place_change(self, path: Path, shard: ShardEntry, rules: RowRules) -> Fault:
        """Say what can be said of changed bytes that left every row sound."""
        place = find_changed_byte(path, rules.schema, self.compression, shard.sha256)
        if place is None:
            return Fault(
                file=shard.file,
                what="every row keeps the rules: what was changed are values, such as a token's id, that could as well "
                "be sound, and no row of this file can be trusted",
            )
        byte, found, wanted = place
        return Fault(
            file=shard.file,
            byte=byte,
            what=f"is 0x{found:02x}; the build wrote 0x{wanted:02x}. The rows are as they were built",
        )


def read_batches(path: Path, schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
    """Record batches of arrays that are whole and without nulls. Raises ShardError at the first other one."""
    at = "the footer, at its end"
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
    except (OSError, ValueError, pyarrow.ArrowException) as error:  # ValueError: a column name of no UTF-8
        raise ShardError(f"can't be read as Arrow at {at}: {explain_damage(error)}") from error


def find_changed_byte(
    path: Path, schema: pyarrow.Schema, compression: str, expected: str
) -> tuple[int, int, int] | None:
    """The first byte of a shard whose change left its rows what they were: the place, the byte there, the right one.

    The rows are written anew; None unless that gives the SHA-256 `expected`, and where they can't be.
    """
    with path.open("rb") as file:
        compare = _Comparing(file.read)
        try:
            codec = None if compression == "none" else compression
            options = pyarrow.ipc.IpcWriteOptions(compression=codec, use_threads=False)
            sink = pyarrow.PythonFile(compare, mode="w")
            with pyarrow.ipc.new_file(sink, schema, options=options) as writer:
                for batch in read_batches(path, schema):
                    writer.write_batch(batch)
            sink.flush()
        except (ShardError, ValueError, pyarrow.ArrowException):  # ValueError: a manifest with no such codec
            return None
    return compare.first if compare.hexdigest() == expected else None


class _Comparing:
    """A file to write to that keeps nothing but where the bytes first differ from those of another."""

    closed = False

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read, self._digest, self._at = read, sha256(), 0
        self.first: tuple[int, int, int] | None = None

    def write(self, data: bytes) -> int:
        written, there = bytes(data), self._read(len(data))
        self._digest.update(written)
        if self.first is None and written != there and len(written) == len(there):
            place = int(np.argmax(np.frombuffer(there, np.uint8) != np.frombuffer(written, np.uint8)))
            self.first = (self._at + place, there[place], written[place])
        self._at += len(written)
        return len(written)

    def flush(self) -> None:
        pass

    def hexdigest(self) -> str:
        return self._digest.hexdigest()
