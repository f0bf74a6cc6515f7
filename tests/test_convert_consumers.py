"""The libraries that the files are for read every row. They are no dependencies: each test needs its own library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert_fixtures import convert, mds_sample, rows_of, unmasked_sample, write_folder
from row_fixtures import Row

SPLITS = ("train", "validation")
KINDS: list[Any] = [np.uint16, np.uint32]


@pytest.fixture(params=KINDS)
def dtype(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def shards(tmp_path: Path, dtype: Any) -> Path:
    return write_folder(tmp_path / "shards", dtype=dtype)


def test_datasets_gives_typed_columns(shards: Path, tmp_path: Path, dtype: Any):
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    out = tmp_path / "out"
    convert(shards, out, "parquet", card={"license": "cc0-1.0", "language": ["en"]})
    loaded = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    for split in SPLITS:
        features, name = loaded[split].features, np.dtype(dtype).name
        assert features["sop_label"] == datasets.ClassLabel(names=["in_order", "swapped"])
        assert features["input_ids"].feature == datasets.Value(name)
        found: list[Row] = [
            (
                row["input_ids"],
                row["segment_a_len"],
                row["sop_label"],
                list(zip(row["masked_positions"], row["masked_ids"], strict=True)),
                row["document_key"],
            )
            for row in loaded[split]
        ]
        assert found == rows_of(split)
    builder = datasets.load_dataset_builder(str(out), cache_dir=str(tmp_path / "cache"))
    assert builder.info.splits["train"].num_examples == len(rows_of("train"))
    assert builder.info.splits["train"].num_bytes == loaded["train"].data.nbytes


def test_streaming_reads_every_sample(shards: Path, tmp_path: Path, dtype: Any):
    streaming = pytest.importorskip("streaming", reason="mosaicml-streaming is not installed")
    convert(shards, tmp_path / "out", "mds")
    for split in SPLITS:
        local = str(tmp_path / "out" / split)
        dataset = streaming.StreamingDataset(local=local, batch_size=1, validate_hash="xxh3_128")
        assert [_to_plain(dataset[i]) for i in range(len(dataset))] == [
            mds_sample(row, np.dtype(dtype).name) for row in rows_of(split)
        ]


def _to_plain(sample: dict[str, Any]) -> dict[str, Any]:
    return {
        name: (value.dtype.name, value.tolist()) if isinstance(value, np.ndarray) else int(value)
        for name, value in sample.items()
    }


def test_an_mds_folder_is_byte_for_byte_that_of_mdswriter(tmp_path: Path, dtype: Any):
    """MDSWriter refuses arrays without elements, so each row has a mask here."""
    streaming = pytest.importorskip("streaming", reason="mosaicml-streaming is not installed")
    rows: list[Row] = [([9] * (2 + n), n % (n + 1), n % 3 - 1, [(n % 2, 2 * n)], 2**63 + n) for n in range(12)]
    convert(write_folder(tmp_path / "shards", {"train": [[rows]]}, dtype=dtype), tmp_path / "out", "mds")
    name = np.dtype(dtype).name
    kinds = {"document_key": "uint64", "segment_a_len": "int32", "sop_label": "int8"}
    lists = {"input_ids": name, "masked_ids": name, "masked_positions": "uint16"}
    columns = {**kinds, **{column: f"ndarray:{kind}" for column, kind in lists.items()}}
    with streaming.MDSWriter(out=str(tmp_path / "theirs"), columns=columns, hashes=["xxh3_128"]) as writer:
        for row in rows:
            sample = mds_sample(row, name)
            arrays = {column: np.array(sample[column][1], sample[column][0]) for column in lists}
            writer.write({**sample, **arrays})
    for file in ("index.json", "shard.00000.mds"):
        assert (tmp_path / "out" / "train" / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes()


def test_an_unmasked_mds_folder_is_byte_for_byte_that_of_mdswriter(tmp_path: Path, dtype: Any):
    streaming = pytest.importorskip("streaming", reason="mosaicml-streaming is not installed")
    rows: list[Row] = [([9] * (2 + n), 0, -1, [(n % 2, 2 * n)], 2**63 + n) for n in range(12)]
    shards = write_folder(tmp_path / "long", {"train": [[rows]]}, dtype=dtype)
    convert(shards, tmp_path / "out", "mds", unmasked=True)
    columns = {"id": "str", "input_ids": "ndarray:int64", "len": "int"}
    with streaming.MDSWriter(out=str(tmp_path / "theirs"), columns=columns, hashes=["xxh3_128"]) as writer:
        for row in rows:
            sample = unmasked_sample(row)
            writer.write({**sample, "input_ids": np.array(sample["input_ids"][1])})
    for file in ("index.json", "shard.00000.mds"):
        assert (tmp_path / "out" / "train" / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes()
