"""Whether a shard folder still is what its manifest says, byte for byte, and whether its rows are sound.

In: a shard folder, in any state. Out: faults, each with its file and row. Damage of any kind gives
faults, never an exception. A file is hashed, then read a record batch at a time.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.errors import ShardError, TokenizerError
from albert_data.files import hash_file
from albert_data.inspect.manifest_keys import find_key_faults, read_example_config
from albert_data.inspect.row_checks import RowRules, find_row_faults, make_row_rules
from albert_data.inspect.terminal import count_noun
from albert_data.shards.manifest import MANIFEST_NAME, SPLITS, read_manifest
from albert_data.shards.schema import SHARD_SUFFIX
from albert_data.tokenizer.model import Tokenizer, load_tokenizer

MAX_SHARD_FAULTS = 10
_TOTALS = ("num_rows", "num_tokens", "num_masked")
_TRAIN = SPLITS[0]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is not as it should be. file: relative to the folder; row: in that file, from 0."""

    file: str
    what: str
    row: int | None = None

    def __str__(self) -> str:
        row = "" if self.row is None else f", row {self.row:,}"
        return f"{self.file}{row}: {self.what}"


def audit(folder: Path) -> Iterator[Fault]:
    """Check all that a manifest promises, and every row.

    Of the faults in the rows of a shard the first MAX_SHARD_FAULTS are given, and the number of the others.
    Raises ShardError if the folder holds no manifest: it is no finished build.
    """
    try:
        manifest = read_manifest(folder)
    except ShardError as error:
        if not (folder / MANIFEST_NAME).is_file():
            raise
        yield Fault(file=MANIFEST_NAME, what=str(error))
        return
    key_faults = [Fault(file=MANIFEST_NAME, what=what) for what in find_key_faults(manifest)]
    yield from key_faults
    if not key_faults:
        yield from _find_unlisted(folder, manifest)
        tokenizer = yield from _audit_tokenizer(folder, manifest["tokenizer"])
        rules = make_row_rules(tokenizer, read_example_config(manifest)) if tokenizer else None
        yield from _audit_splits(folder, manifest, rules)


def _find_unlisted(folder: Path, manifest: Mapping[str, Any]) -> Iterator[Fault]:
    listed = Counter(shard["file"] for split in manifest["splits"].values() for shard in split["shards"])
    for name, times in listed.items():
        if times > 1:
            yield Fault(file=name, what=f"is listed {times} times in the manifest; allowed is once")
    for path in sorted(folder.rglob(f"*{SHARD_SUFFIX}")):
        name = path.relative_to(folder).as_posix()
        is_hidden = any(part.startswith(".") for part in name.split("/"))  # a build at work keeps its runs so
        if name not in listed and not is_hidden:
            yield Fault(file=name, what="is not listed in the manifest; a shard folder holds no other shards")


def _audit_tokenizer(folder: Path, expected: Mapping[str, Any]) -> Generator[Fault, None, Tokenizer | None]:
    """Yields the faults; returns the tokenizer, if it can be loaded."""
    name = expected["file"]
    faults = list(_audit_file(folder, name, expected))
    yield from faults
    try:
        if faults:
            raise TokenizerError("the file is another one than at the build")
        tokenizer = load_tokenizer(_locate(folder, name))
    except TokenizerError as error:
        yield Fault(file=name, what=f"no row is checked, as that needs the tokenizer: {error}")
        return None
    found = {"vocab_size": tokenizer.vocab_size, **tokenizer.specials.to_dict()}
    for key, value in found.items():
        if value != expected[key]:
            yield Fault(file=name, what=f"has the {key} {value}; the manifest says {expected[key]}")
    return tokenizer


def _locate(folder: Path, name: str) -> Path:
    """A file's path. Raises ShardError where the manifest leads out of its folder."""
    try:
        path = (folder / name).resolve()
        if path.is_relative_to(folder.resolve()):
            return path
    except (OSError, ValueError, RuntimeError) as error:  # a zero byte in the name, a loop of links
        raise ShardError(f"is no file name: {error}") from error
    raise ShardError("lies outside the folder; the manifest may name files inside it alone")


def _audit_file(folder: Path, name: str, expected: Mapping[str, Any]) -> Generator[Fault, None, bool]:
    """Check that a file has the size and the SHA-256 that the manifest gives. Returns whether it is there."""
    try:
        path = _locate(folder, name)
        num_bytes, sha256 = path.stat().st_size, hash_file(path)
    except ShardError as error:
        yield Fault(file=name, what=str(error))
        return False
    except OSError as error:
        yield Fault(file=name, what=f"is listed in the manifest, but can't be read: {error.strerror}")
        return False
    if num_bytes != expected.get("num_bytes", num_bytes):
        yield Fault(file=name, what=f"has {num_bytes:,} bytes; the manifest says {expected['num_bytes']:,}")
    if sha256 != expected["sha256"]:
        yield Fault(file=name, what=f"has the SHA-256 {sha256}; the manifest says {expected['sha256']}")
    return True


def _audit_splits(folder: Path, manifest: Mapping[str, Any], rules: RowRules | None) -> Iterator[Fault]:
    """Check every shard, validation first: no document of it may be in training too."""
    for name in sorted(manifest["splits"], key=SPLITS.index, reverse=True):
        split, keys = manifest["splits"][name], [np.empty(0, np.uint64)]
        for shard in split["shards"]:
            is_there = yield from _audit_file(folder, shard["file"], shard)
            held = _Held()
            if is_there and rules is not None:
                yield from _audit_rows(folder, shard, rules, held)
            if name != _TRAIN:
                keys += held.keys
        yield from _compare_totals(name, split)
        if rules is not None and name != _TRAIN:
            rules = dataclasses.replace(rules, validation_keys=np.unique(np.concatenate(keys)))


def _compare_totals(name: str, split: Mapping[str, Any]) -> Iterator[Fault]:
    for total in _TOTALS:
        summed = sum(shard[total] for shard in split["shards"])
        if summed != split[total]:
            what = f"splits.{name}.{total} is {split[total]:,}; its shards add up to {summed:,}"
            yield Fault(file=MANIFEST_NAME, what=what)


@dataclass(kw_only=True)
class _Held:
    """What a shard was found to hold. keys: uint64, those of each record batch."""

    totals: Counter[str] = field(default_factory=Counter)
    keys: list[np.ndarray] = field(default_factory=list)


def _audit_rows(folder: Path, shard: Mapping[str, Any], rules: RowRules, held: _Held) -> Iterator[Fault]:
    """Check the rows of a shard that is there, and their number. Fills in `held`."""
    name = shard["file"]
    faults = _find_row_faults(folder, name, rules, held)
    try:
        yield from islice(faults, MAX_SHARD_FAULTS)
        if rest := sum(1 for _ in faults):
            yield Fault(file=name, what=f"{count_noun(rest, 'more row')} at fault")
    except ShardError as error:
        yield Fault(file=name, what=str(error))
        return
    for total in _TOTALS:
        if held.totals[total] != shard[total]:
            found = f"{held.totals[total]:,}; the manifest says {shard[total]:,}"
            yield Fault(file=name, what=f"{total} is {found}")


def _find_row_faults(folder: Path, name: str, rules: RowRules, held: _Held) -> Iterator[Fault]:
    for batch in _read_batches(_locate(folder, name), rules.schema):
        for row, what in find_row_faults(batch, rules):
            yield Fault(file=name, what=what, row=held.totals["num_rows"] + row)
        held.keys.append(np.unique(batch.column("document_key").to_numpy()))
        held.totals["num_rows"] += batch.num_rows
        held.totals["num_tokens"] += len(batch.column("input_ids").flatten())
        held.totals["num_masked"] += len(batch.column("masked_ids").flatten())


def _read_batches(path: Path, schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
    """Record batches of arrays that are whole and without nulls. Raises ShardError at the first other one."""
    try:
        reader = pyarrow.ipc.open_file(pyarrow.memory_map(str(path)))
        if not reader.schema.equals(schema):
            found = ", ".join(f"{column.name} {column.type}" for column in reader.schema)
            raise ShardError(f"has the columns {found}; see docs/format.md for those that are allowed")
        for i in range(reader.num_record_batches):
            batch = reader.get_batch(i)
            batch.validate(full=True)
            if any(_has_nulls(column) for column in batch.columns):
                raise ShardError(f"holds nulls in record batch {i}; none are allowed")
            yield batch
    except (OSError, ValueError, pyarrow.ArrowException) as error:  # ValueError: a column name of no UTF-8
        raise ShardError(f"can't be read as Arrow: {' '.join(str(error).split())}") from error


def _has_nulls(column: pyarrow.Array) -> bool:
    if column.null_count:
        return True
    return pyarrow.types.is_list(column.type) and bool(column.values.null_count)


def describe_sound(folder: Path) -> str:
    """What a folder without faults holds, in one line."""
    splits = read_manifest(folder)["splits"].values()
    shards, rows, tokens = (
        sum(len(split["shards"]) for split in splits),
        sum(split["num_rows"] for split in splits),
        sum(split["num_tokens"] for split in splits),
    )
    counts = (count_noun(shards, "shard"), count_noun(rows, "row"), count_noun(tokens, "token"))
    return f"{', '.join(counts)}: all as the manifest says"
