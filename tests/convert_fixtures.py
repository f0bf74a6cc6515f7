"""Shard folders to convert, and slow readers of Parquet and MDS files that share no code with the writers."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import xxhash
from build_fixtures import InlineEngine
from row_fixtures import Row, numbered_rows

from albert_data.convert.conversion import convert_folder

# Some rows have no masks, some no pair; the second shard of training is empty, the third has two record batches.
ROWS: dict[str, list[list[list[Row]]]] = {
    "train": [[numbered_rows(20)], [[]], [numbered_rows(9, 20), numbered_rows(5, 40)]],
    "validation": [[numbered_rows(4, 70)]],
}


def rows_of(split: str) -> list[Row]:
    return [row for shard in ROWS[split] for batch in shard for row in batch]


def convert(shards: Path, out: Path, to: str, **settings: Any) -> dict[str, Any]:
    """The record of a conversion in this process."""
    return dict(convert_folder(shards, out, to, settings.pop("engine", InlineEngine()), **settings).record)


def read_mds(folder: Path) -> list[dict[str, Any]]:
    """The samples of a split: the arrays as (dtype, list), the rest as numbers. Every byte of every file is used."""
    index = json.loads((folder / "index.json").read_text())
    assert index["version"] == 2
    samples = []
    for shard in index["shards"]:
        data = (folder / shard["raw_data"]["basename"]).read_bytes()
        assert len(data) == shard["raw_data"]["bytes"]
        assert shard["raw_data"]["hashes"] == {"xxh3_128": xxhash.xxh3_128_hexdigest(data)}
        (count,) = struct.unpack_from("<I", data)
        assert count == shard["samples"]
        offsets = struct.unpack_from(f"<{count + 1}I", data, 4)
        config = json.loads(data[4 * count + 8 : offsets[0]])
        assert config == {key: shard[key] for key in config}
        assert offsets[-1] == len(data)
        samples += [parse_sample(data[begin:end], shard) for begin, end in pairwise(offsets)]
    return samples


def check_as_mdswriter(out: Path, columns: Mapping[str, str], samples: Sequence[Mapping[str, Any]]) -> None:
    """The files of training are, byte for byte, those of Streaming's own writer for these samples."""
    streaming = pytest.importorskip("streaming", reason="mosaicml-streaming is not installed")
    theirs = out.with_name("theirs")
    with streaming.MDSWriter(out=str(theirs), columns=dict(columns), hashes=["xxh3_128"]) as writer:
        for sample in samples:
            assert all(np.size(value) for value in sample.values()), "MDSWriter writes no empty array"
            writer.write(dict(sample))
    for file in ("index.json", "shard.00000.mds"):
        assert (out / "train" / file).read_bytes() == (theirs / file).read_bytes()


def parse_sample(data: bytes, shard: Mapping[str, Any]) -> dict[str, Any]:
    """shard: the columns, as in index.json."""
    sizes = list(shard["column_sizes"])
    at = 0
    for i, size in enumerate(sizes):
        if size is None:
            (sizes[i],) = struct.unpack_from("<I", data, at)
            at += 4
    sample: dict[str, Any] = {}
    for name, encoding, size in zip(shard["column_names"], shard["column_encodings"], sizes, strict=True):
        value, at = data[at : at + size], at + size
        if encoding.startswith("ndarray:"):
            width = 1 << (value[0] & 3)
            assert value[0] >> 2 == 1, "one dimension"
            length = int.from_bytes(value[1 : 1 + width], "little")
            dtype = encoding.partition(":")[2]
            item = {"uint16": "H", "uint32": "I", "int32": "i"}[dtype]
            sample[name] = (dtype, list(struct.unpack(f"<{length}{item}", value[1 + width :])))
        elif encoding == "str":
            sample[name] = value.decode()
        else:
            sample[name] = int.from_bytes(value, "little", signed=encoding.startswith("int"))
    assert at == len(data)
    return sample


def mds_sample(row: Row, dtype: str = "uint16") -> dict[str, Any]:
    """A row as `read_mds` gives it."""
    ids, a_len, label, masks, key = row
    return {
        "document_key": key,
        "input_ids": (dtype, ids),
        "masked_ids": (dtype, [original for _, original in masks]),
        "masked_positions": ("uint16", [position for position, _ in masks]),
        "segment_a_len": a_len,
        "sop_label": label,
    }


def original_ids(row: Row) -> list[int]:
    """The ids of a row before masking."""
    masked = dict(row[3])
    return [masked.get(position, piece) for position, piece in enumerate(row[0])]


def unmasked_sample(row: Row, dtype: str = "uint16") -> dict[str, Any]:
    """A row without masks as `read_mds` gives it."""
    ids = original_ids(row)
    return {"id": f"{row[4]:016x}", "input_ids": (dtype, ids), "len": len(ids)}


def read_parquet(folder: Path, split: str) -> list[Row]:
    paths = sorted((folder / "data").glob(f"{split}-*.parquet"))
    return [to_row(row) for path in paths for row in pyarrow.parquet.read_table(path).to_pylist()]


def to_row(row: Mapping[str, Any]) -> Row:
    masks = list(zip(row["masked_positions"], row["masked_ids"], strict=True))
    return (row["input_ids"], row["segment_a_len"], row["sop_label"], masks, row["document_key"])
