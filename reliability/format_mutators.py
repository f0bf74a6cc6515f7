"""Damages compressed files, Arrow shards, protocol buffers and safetensors so that most of them still parse.

In: a random generator and a file's bytes. Out: other bytes; equal generators make equal bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.shards.manifest import SEAL, SPLITS, hash_content, hash_manifest
from reliability.json_mutators import mutate_json, mutate_value
from reliability.mutators import NUMBERS, mutate_bytes

_NO_MANIFEST = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
Rewrite = Callable[[Random, bytes, Sequence[bytes]], bytes]


def to_zst(data: bytes) -> bytes:
    return bytes(pyarrow.compress(data, codec="zstd", asbytes=True))


def from_zst(data: bytes) -> bytes:
    return bytes(pyarrow.CompressedInputStream(pyarrow.BufferReader(data), "zstd").read())


def to_gz(data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


def mutate_lines(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Damage one of the JSON lines as a value, or all of them as bytes."""
    lines = data.splitlines(keepends=True)
    if not lines or rng.random() < 0.4:
        return mutate_bytes(rng, data, others)
    at = rng.randrange(len(lines))
    lines[at] = mutate_json(rng, lines[at]) + rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r", b""))
    return b"".join(lines)


def mutate_array(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Damage a JSON file as a value, or as bytes."""
    return mutate_json(rng, data) if rng.random() < 0.5 else mutate_bytes(rng, data, others)


def mutate_rows(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Write .csv with another delimiter, stray marks, the first line of Excel or a name twice; or damage it."""
    if rng.random() < 0.4:
        return mutate_bytes(rng, data, others)
    delimiter = rng.choice((b",", b";", b"\t", b"|"))
    lines = [line.replace(b",", delimiter) for line in data.splitlines(keepends=True)]
    for _ in range(rng.choice((0, 1, 3, 40))):
        at = rng.randrange(len(lines))
        fields = lines[at].split(delimiter)
        fields[rng.randrange(len(fields))] += rng.choice((b'"', b'"a', b'""', b'"\n', delimiter))
        lines[at] = delimiter.join(fields) if rng.random() < 0.5 else b'"' + lines[at]
    if rng.random() < 0.2:
        lines[0] = lines[0].rstrip() + delimiter + rng.choice((b'"text"', b"text", b"id", b"a;b|c")) + b"\n"
    if rng.random() < 0.2:
        lines.insert(0, b"sep=" + rng.choice((delimiter, b",", b'"', b"", b";;")) + b"\r\n")
    return b"".join(lines)


def inside(unpack: Callable[[bytes], bytes], pack: Callable[[bytes], bytes], mutate: Rewrite) -> Rewrite:
    """Return a mutator that damages the content of a compressed file, or the compressed bytes in 30 % of the cases."""

    def mutate_packed(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
        kind = rng.random()
        if kind < 0.3:
            return mutate_bytes(rng, data, others)
        packed = pack(mutate(rng, unpack(data), ()))
        if kind < 0.4:
            return packed + rng.choice((packed, b"\0" * 100, rng.choice(others), b"rest"))
        return packed

    return mutate_packed


def mutate_safetensors(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Damage the header as JSON, its length, or the tensors after it."""
    (size,) = struct.unpack_from("<Q", data)
    head, tensors = data[8 : 8 + size], data[8 + size :]
    kind = rng.random()
    if kind < 0.3:
        return mutate_bytes(rng, data, others)
    if kind < 0.5:
        return data[: 8 + size] + mutate_bytes(rng, tensors)
    if kind < 0.6:
        return struct.pack("<Q", rng.choice((0, 1, size - 1, size + 1, len(data), 2**31, 2**63))) + data[8:]
    head = mutate_json(rng, head)
    return struct.pack("<Q", len(head)) + head + tensors


def mutate_shard(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Damage an Arrow file as bytes, or write it again with damaged rows and columns."""
    if rng.random() < 0.6:
        return mutate_bytes(rng, data, others)
    try:
        return _rewrite_shard(rng, data)
    except (pyarrow.ArrowException, ValueError):  # pyarrow refuses to write some of the damage
        return mutate_bytes(rng, data, others)


def _rewrite_shard(rng: Random, data: bytes) -> bytes:
    with pyarrow.ipc.open_file(pyarrow.BufferReader(data)) as reader:
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
    at = rng.randrange(len(batches))
    batches[at] = _change_values(rng, batches[at]) if rng.random() < 0.7 else _change_columns(rng, batches[at])
    if any(batch.schema != batches[at].schema for batch in batches):
        batches = [batches[at]]
    return _write_batches(batches if rng.random() < 0.9 else batches[:at], batches[0].schema)


def _write_batches(batches: Sequence[pyarrow.RecordBatch], schema: pyarrow.Schema) -> bytes:
    sink = io.BytesIO()
    with pyarrow.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def _change_values(rng: Random, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Change numbers in the buffers of a column, offsets among them. They may be out of range."""
    at = rng.randrange(batch.num_columns)
    columns = list(batch.columns)
    columns[at] = _change_buffer(rng, columns[at])
    return pyarrow.RecordBatch.from_arrays(columns, schema=batch.schema)


def _change_buffer(rng: Random, column: pyarrow.Array) -> pyarrow.Array:
    if pyarrow.types.is_list(column.type):
        offsets, values = column.offsets.to_numpy().copy(), column.values
        if rng.random() < 0.5:
            offsets = _change_some(rng, offsets)
        else:
            values = _change_buffer(rng, values)
        buffers = [None, pyarrow.py_buffer(offsets)]
        return pyarrow.Array.from_buffers(column.type, len(column), buffers, null_count=0, children=[values])
    values = _change_some(rng, column.to_numpy().copy())
    return pyarrow.Array.from_buffers(column.type, len(values), [None, pyarrow.py_buffer(values)], null_count=0)


def _change_some(rng: Random, values: np.ndarray) -> np.ndarray:
    limits = np.iinfo(values.dtype)
    for _ in range(rng.choice((1, 1, 2, 10))):
        if len(values):
            at = rng.randrange(len(values))
            near = (int(values[at]) + 1, int(values[at]) - 1, 0, 1, 2, 7, 99, 10_000)
            wanted = rng.choice((*near, limits.min, limits.max, limits.max - 1))
            values[at] = min(max(wanted, limits.min), limits.max)
    return values


def _change_columns(rng: Random, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Remove, repeat or rename a column, change its type, fill it with nulls, or remove rows."""
    columns, names = list(batch.columns), list(batch.schema.names)
    at = rng.randrange(len(columns))
    kind = rng.randrange(6)
    if kind == 0:
        del columns[at], names[at]
    elif kind == 1:
        columns.append(columns[at])
        names.append(names[at])
    elif kind == 2:
        names[at] = rng.choice(("", "x", "input_ids", "masked_ids"))
    elif kind == 3:
        columns[at] = pyarrow.array([None] * batch.num_rows, columns[at].type)
    elif kind == 4:
        columns[at] = pyarrow.array([rng.choice(("x", "\x1b[31m"))] * batch.num_rows)
    else:
        columns = [column.slice(0, rng.randrange(batch.num_rows)) for column in columns][: at + 1]
        names, shortest = names[: at + 1], min(map(len, columns))
        columns = [column.slice(0, shortest) for column in columns]
    return pyarrow.RecordBatch.from_arrays(columns, names=names)


def mutate_model(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Damage a SentencePiece model as bytes, or as the fields of its protocol buffer."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, data, others)
    fields = read_fields(data)
    for _ in range(rng.randint(1, 3)):
        if fields:
            _change_field(rng, fields, depth=2)
    return write_fields(fields)


Field = tuple[int, Any]  # a tag, and its number or its bytes


def read_fields(data: bytes) -> list[Field]:
    """Return the fields of a protocol buffer. Raises ValueError if it is not one."""
    fields, at = list[Field](), 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _read_varint(data, at)
            fields.append((tag, value))
            continue
        size = {1: 8, 5: 4}.get(kind, 0)
        if kind == 2:
            size, at = _read_varint(data, at)
        elif not size:
            raise ValueError(f"wire type {kind} at byte {at}")
        if at + size > len(data):
            raise ValueError(f"cut short at byte {at}")
        fields.append((tag, data[at : at + size]))
        at += size
    return fields


def write_fields(fields: Sequence[Field]) -> bytes:
    out = bytearray()
    for tag, value in fields:
        out += _write_varint(tag)
        if tag & 7 == 0:
            out += _write_varint(value)
        else:
            out += (_write_varint(len(value)) if tag & 7 == 2 else b"") + value
    return bytes(out)


def _change_field(rng: Random, fields: list[Field], depth: int) -> None:
    at = rng.randrange(len(fields))
    tag, value = fields[at]
    kind = rng.random()
    if kind < 0.1:
        del fields[at]
    elif kind < 0.2:
        fields.insert(rng.randrange(len(fields) + 1), fields[at])
    elif kind < 0.25:
        fields[at] = (rng.choice((tag + 8, tag - 8 if tag > 15 else tag + 16, tag | 2 << 10)), value)
    elif tag & 7 == 0:
        fields[at] = (tag, rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 255, 2**31 - 1, 2**31, 2**63, value + 1)))
    elif tag & 7 != 2:
        patterns = (
            struct.pack("<f", odd) for odd in (float("nan"), float("inf"), -float("inf"), 1e38, -1e38, 0.0, 5.0)
        )
        fields[at] = (tag, rng.choice(list(patterns)) if len(value) == 4 else rng.randbytes(8))
    else:
        fields[at] = (tag, _change_inside(rng, value, depth))


def _change_inside(rng: Random, value: bytes, depth: int) -> bytes:
    """Damage a message in a message, or a string."""
    inner: list[Field] = []
    if depth and rng.random() < 0.8:
        try:
            inner = read_fields(value)
        except ValueError:
            inner = []
    if inner:
        _change_field(rng, inner, depth - 1)
        return write_fields(inner)
    odd = (
        b"",
        b"\xff",
        b"\xe2\x96",
        b"[MASK]",
        b"<pad>",
        b"\x00",
        b"\n",
        b"\x1b[31m",
        b"x" * 3000,
        rng.choice(NUMBERS),
    )
    return rng.choice(odd) if rng.random() < 0.5 else mutate_bytes(rng, value)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError(f"cut short at byte {at}")
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def _write_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def reseal_manifest(data: bytes) -> bytes:
    """Return the manifest with a correct seal and digest, so that the code after their check is reached."""
    try:
        manifest = json.loads(data)
        with suppress(*_NO_MANIFEST):
            splits = [manifest["splits"][name] for name in SPLITS if name in manifest["splits"]]
            manifest["digest"] = hash_content(shard["sha256"] for split in splits for shard in split["shards"])
        return json.dumps({**manifest, SEAL: hash_manifest(manifest)}).encode()
    except _NO_MANIFEST:
        return data


def mutate_manifest(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Damage a manifest. 70 % are sealed again; in half of these the config of the plan is changed as well."""
    if rng.random() < 0.3:
        return mutate_json(rng, data)
    try:
        manifest = mutate_value(rng, json.loads(data))
        if isinstance(manifest, dict) and rng.random() < 0.5 and isinstance(manifest.get("plan"), dict):
            manifest["plan"]["config"] = manifest.get("config")
        return reseal_manifest(json.dumps(manifest).encode())
    except ValueError:
        return mutate_bytes(rng, data)
