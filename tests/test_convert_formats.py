"""What `convert` writes is the format that its consumer reads, and holds every row."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import convert_fixtures as fixtures
import inspect_fixtures
import numpy as np
import pyarrow.parquet
import pytest
from build_fixtures import InterruptedEngine, digest_folder
from convert_fixtures import ROWS, check_as_mdswriter, convert, mds_sample, rows_of
from inspect_fixtures import SMALL, draw_sentences, write_sentences
from refusals import check_refused
from row_fixtures import Row
from shard_fixtures import change_manifest, write_rows

from albert_data.cli.main import run
from albert_data.convert import mds
from albert_data.errors import ConfigError
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.shards.reader import open_shards

KINDS: list[Any] = [np.uint16, np.uint32]
SPLITS = ("train", "validation")
SOURCES = ("de", "en", "zh")


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "shards", ROWS)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


# ---- MDS ----


def test_a_long_array_has_its_length_in_two_bytes(tmp_path, out):
    rows: list[Row] = [([1] * size, 0, -1, [], 5) for size in (255, 256, 300)]
    convert(write_rows(tmp_path / "shards", {"train": [[rows]]}), out, "mds")
    assert fixtures.read_mds(out / "train") == [mds_sample(row) for row in rows]


def test_a_shard_that_is_too_large_becomes_several_files(shards, out, monkeypatch):
    monkeypatch.setattr(mds, "SIZE_LIMIT", 1000)
    monkeypatch.setattr(mds, "_PART_BYTES", 400)
    convert(shards, out, "mds")
    names = {path.name for path in (out / "train").glob("*.mds")}
    assert names == {"shard.00000.mds", "shard.00000.1.mds", "shard.00002.mds", "shard.00002.1.mds"}
    assert max(path.stat().st_size for path in (out / "train").glob("*.mds")) <= 1000
    assert fixtures.read_mds(out / "train") == [mds_sample(row) for row in rows_of("train")]


# ---- all formats ----


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("dtype", KINDS)
def test_all_rows_of_both_splits_are_there_in_order(dtype, compression, tmp_path):
    shards = write_rows(tmp_path / "shards", ROWS, dtype=dtype, compression=compression)
    records = {to: convert(shards, tmp_path / to, to) for to in ("mds", "parquet")}
    records["unmasked"] = convert(shards, tmp_path / "unmasked", "mds", unmasked=True)
    for split in SPLITS:
        rows, name = rows_of(split), np.dtype(dtype).name
        assert fixtures.read_mds(tmp_path / "mds" / split) == [mds_sample(row, name) for row in rows]
        assert fixtures.read_mds(tmp_path / "unmasked" / split) == [fixtures.unmasked_sample(row, name) for row in rows]
        assert fixtures.read_parquet(tmp_path / "parquet", split) == rows
    for record in records.values():
        assert record["num_rows"] == {split: len(rows_of(split)) for split in SPLITS}


def test_a_language_goes_with_its_row(tmp_path):
    shards = write_rows(tmp_path / "shards", {"train": [[rows_of("train")]]}, sources=SOURCES)
    for to in ("mds", "parquet"):
        convert(shards, tmp_path / to, to)
    numbers = [number % 3 for number in range(len(rows_of("train")))]
    assert [sample["source"] for sample in fixtures.read_mds(tmp_path / "mds" / "train")] == numbers
    table = pyarrow.parquet.read_table(next((tmp_path / "parquet" / "data").iterdir()))
    assert table["source"].to_pylist() == numbers
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["source"] == {"names": list(SOURCES), "_type": "ClassLabel"}


def test_wider_ids_than_the_vocabulary_needs_are_narrowed(tmp_path):
    """Another program may have written the shards. What it wrote is in range, which is checked."""
    shards = write_rows(tmp_path / "shards", {"train": [[rows_of("train")]]}, dtype=np.uint32)
    change_manifest(shards, lambda manifest: manifest["tokenizer"].update(vocab_size=1 << 16))
    convert(shards, tmp_path / "out", "mds")
    assert fixtures.read_mds(tmp_path / "out" / "train") == [mds_sample(row) for row in rows_of("train")]


# ---- Parquet ----


def test_parquet_files_have_typed_columns(shards, out):
    convert(shards, out, "parquet")
    names = [*(f"train-0000{number}-of-00003.parquet" for number in range(3)), "validation-00000-of-00001.parquet"]
    assert sorted(path.name for path in (out / "data").iterdir()) == names
    schema = pyarrow.parquet.read_schema(out / "data" / "train-00000-of-00003.parquet")
    ids = "list<element: uint16 not null>"
    assert [str(column.type) for column in schema] == [ids, "int32", "int64", ids, ids, "uint64"]
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features["sop_label"] == {"names": ["in_order", "swapped"], "_type": "ClassLabel"}
    assert features["document_key"] == {"dtype": "uint64", "_type": "Value"}
    assert features["masked_ids"] == {"feature": {"dtype": "uint16", "_type": "Value"}, "_type": "Sequence"}


def test_the_card_names_what_is_there(tmp_path, out):
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with transformers")
    names = ('a", license: "mit', "b: c # d", "- \U0001f600")
    shards = write_rows(tmp_path / "shards", ROWS, sources=names)
    change_manifest(shards, lambda manifest: manifest.update(license="cc0-1.0"))
    convert(shards, out, "parquet")
    _, metadata, text = (out / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    card = yaml.safe_load(metadata)
    assert card["license"] == "cc0-1.0"
    for entry in card["configs"][0]["data_files"]:
        assert list(out.glob(entry["path"])), entry
    (path,) = (out / "data").glob("validation-*")
    features = json.loads(pyarrow.parquet.read_schema(path).metadata[b"huggingface"])["info"]["features"]
    assert tuple(features["source"]["names"]) == names
    assert "| licence | cc0-1.0 |\n" in text
    assert 'datasets.load_dataset(".", split="train")' in text


def test_unmasked_parquet_has_the_columns_of_a_tokenizer_and_the_original_ids(shards, out):
    convert(shards, out, "parquet", unmasked=True)
    tables = [pyarrow.parquet.read_table(path) for path in sorted((out / "data").glob("train-*"))]
    types = ["list<element: int32>", "list<element: int8>", "list<element: int8>", "int64"]
    assert [str(column.type) for column in tables[0].schema] == types
    assert [row for table in tables for row in table.to_pylist()] == [
        {
            "input_ids": fixtures.original_ids(row),
            "attention_mask": [1] * len(row[0]),
            "token_type_ids": [int(position >= row[1] + 2) for position in range(len(row[0]))],
            "sop_label": row[2],
        }
        for row in rows_of("train")
    ]
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "No token is masked" in card
    assert "masked_ids" not in card


# ---- the libraries that the files are for, each of which may be missing ----


@pytest.mark.parametrize("dtype", KINDS)
def test_datasets_gives_typed_columns(tmp_path, dtype):
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    out = tmp_path / "out"
    convert(write_rows(tmp_path / "shards", ROWS, dtype=dtype), out, "parquet")
    loaded = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    for split in SPLITS:
        features, name = loaded[split].features, np.dtype(dtype).name
        assert features["sop_label"] == datasets.ClassLabel(names=["in_order", "swapped"])
        assert features["input_ids"].feature == datasets.Value(name)
        assert list(map(fixtures.to_row, loaded[split])) == rows_of(split)


@pytest.mark.parametrize("unmasked", [False, True])
@pytest.mark.parametrize("dtype", KINDS)
def test_an_mds_folder_is_byte_for_byte_that_of_mdswriter(tmp_path, dtype, unmasked):
    rows: list[Row] = [
        ([9] * (2 + n), *((0, -1) if unmasked else (n % (n + 1), n % 3 - 1)), [(n % 2, 2 * n)], 2**63 + n)
        for n in range(12)
    ]
    shards = write_rows(tmp_path / "shards", {"train": [[rows]]}, dtype=dtype)
    convert(shards, tmp_path / "out", "mds", unmasked=unmasked)
    name = np.dtype(dtype).name
    if unmasked:
        columns = {"id": "str", "input_ids": f"ndarray:{name}", "len": "int"}
    else:
        lists = {"input_ids": name, "masked_ids": name, "masked_positions": "uint16"}
        columns = {"document_key": "uint64", "segment_a_len": "int32", "sop_label": "int8"}
        columns |= {column: f"ndarray:{kind}" for column, kind in lists.items()}
    samples = [fixtures.unmasked_sample(row, name) if unmasked else mds_sample(row, name) for row in rows]
    arrays = [{key: np.array(v[1], v[0]) if type(v) is tuple else v for key, v in one.items()} for one in samples]
    check_as_mdswriter(tmp_path / "out", columns, arrays)


# ---- packs: every token of every row once, and where rows begin ----


PACK = 50
SINGLES = dataclasses.replace(SMALL, pairs="none")
NO_LABEL = -100


@pytest.fixture(scope="module")
def singles(tmp_path_factory) -> Path:
    parts = [
        inspect_fixtures.make_examples(draw_sentences(30, seed) + write_sentences(30, seed), SINGLES, 99 * seed)
        for seed in (1, 2)
    ]
    splits = {"train": parts, "validation": [inspect_fixtures.make_examples(write_sentences(9, 3), SINGLES, 900)]}
    return inspect_fixtures.write_folder(tmp_path_factory.mktemp("packs") / "shards", splits, SINGLES)


def read_packs(out: Path, to: str, split: str = "train") -> list[dict[str, Any]]:
    """The columns of each pack, as lists."""
    if to == "mds":
        samples = fixtures.read_mds(out / split)
        return [{key: value[1] if type(value) is tuple else value for key, value in each.items()} for each in samples]
    paths = sorted((out / "data").glob(f"{split}-*"))
    return [pack for path in paths for pack in pyarrow.parquet.read_table(path).to_pylist()]


def count_tokens(rows: list[tuple[list[int], dict[int, int]]]) -> Counter:
    """How often each token of text comes with each label, by plain Python."""
    return Counter(
        (token, originals.get(at, NO_LABEL)) for ids, originals in rows for at, token in enumerate(ids[1:-1], start=1)
    )


def split_pack(pack: dict[str, Any]) -> list[tuple[list[int], dict[int, int]]]:
    """The rows of a pack: the ids of each, and the originals by their position in it."""
    ids, rows = pack["input_ids"], []
    originals = dict(zip(pack.get("masked_positions", []), pack.get("masked_ids", []), strict=True))
    for begin, end in pairwise([*pack["row_starts"], len(ids)]):
        assert (ids[begin], ids[end - 1]) == (2, 3)
        rows.append((ids[begin:end], {at - begin: token for at, token in originals.items() if begin <= at < end}))
    assert sum(len(found) for _, found in rows) == len(originals)
    return rows


@pytest.mark.parametrize("to", ["parquet", "mds"])
@pytest.mark.parametrize("unmasked", [False, True])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_packs_have_every_token_of_the_rows_once(singles, tmp_path, to, unmasked, split):
    record = convert(singles, tmp_path / "out", to, pack=PACK, unmasked=unmasked)
    packs = read_packs(tmp_path / "out", to, split)
    assert record["num_rows"][split] == len(packs)
    wanted = [
        (row.original_ids.tolist(), {})
        if unmasked
        else (row.input_ids.tolist(), dict(zip(row.masked_positions.tolist(), row.masked_ids.tolist(), strict=True)))
        for row in open_shards(singles, split)
    ]
    assert count_tokens([row for pack in packs for row in split_pack(pack)]) == count_tokens(wanted)
    assert all(len(pack["input_ids"]) <= PACK for pack in packs)
    masked = ["masked_ids", "masked_positions"]
    own = {"parquet": ["attention_mask", "input_ids"], "mds": ["id", "input_ids", "len"]}[to]
    assert sorted(packs[0]) == sorted([*(own if unmasked else ["input_ids", *masked]), "row_starts"])
    if unmasked:
        for pack in packs:
            length = len(pack["input_ids"])
            assert pack["len"] == length if to == "mds" else pack["attention_mask"] == [1] * length


def test_the_types_of_the_columns_are_those_of_the_shards(singles, tmp_path):
    convert(singles, tmp_path / "out", "parquet", pack=PACK)
    (path,) = (tmp_path / "out" / "data").glob("train-*")
    schema = pyarrow.parquet.read_schema(path)
    found = {field.name: str(field.type.value_type) for field in schema}
    assert found == {**dict.fromkeys(("input_ids", "masked_positions", "masked_ids"), "uint16"), "row_starts": "int32"}
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features["row_starts"] == {"feature": {"dtype": "int32", "_type": "Value"}, "_type": "Sequence"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "Each row is a pack of examples `[CLS]" in card
    assert "| `row_starts` | where in a pack each example begins" in card


def test_workers_and_a_kill_change_neither_packs_nor_their_counts(singles, tmp_path):
    convert(singles, tmp_path / "one", "mds", pack=PACK, engine=MultiprocessEngine(2))
    with pytest.raises(KeyboardInterrupt):
        convert(singles, tmp_path / "killed", "mds", pack=PACK, engine=InterruptedEngine(1))
    record = convert(singles, tmp_path / "killed", "mds", pack=PACK)
    assert digest_folder(tmp_path / "one") == digest_folder(tmp_path / "killed")
    assert record["plan"]["pack"] == PACK
    packs = read_packs(tmp_path / "one", "mds") + read_packs(tmp_path / "one", "mds", "validation")
    parts, rows = sum(len(pack["row_starts"]) for pack in packs), 0
    for split in ("train", "validation"):
        rows += len(open_shards(singles, split))
    counts = record["packs"]
    assert (counts["num_rows"], counts["num_parts"]) == (rows, parts)
    assert counts["num_tokens"] == sum(len(pack["input_ids"]) for pack in packs)
    assert 0 < counts["num_cut_rows"] <= parts - rows


def test_an_mds_folder_of_packs_is_byte_for_byte_that_of_mdswriter(singles, tmp_path):
    convert(singles, tmp_path / "out", "mds", pack=300)
    types = {"input_ids": "uint16", "masked_ids": "uint16", "masked_positions": "uint16", "row_starts": "int32"}
    packs = read_packs(tmp_path / "out", "mds")
    assert max(len(pack["input_ids"]) for pack in packs) > 255
    samples = [{name: np.array(pack[name], kind) for name, kind in types.items()} for pack in packs]
    check_as_mdswriter(tmp_path / "out", {name: f"ndarray:{kind}" for name, kind in types.items()}, samples)


def test_the_command_says_how_full_packs_are_and_how_many_rows_are_cut(singles, tmp_path, capsys):
    assert run(["convert", str(singles), "-o", str(tmp_path / "out"), "--to", "mds", "--pack", str(PACK)]) == 0
    shown = capsys.readouterr().out
    assert "packs in 2 files" in shown
    packs = read_packs(tmp_path / "out", "mds") + read_packs(tmp_path / "out", "mds", "validation")
    full = sum(len(pack["input_ids"]) for pack in packs) / PACK / len(packs)
    assert f"packs are {100 * full:.1f} % full; " in shown
    assert " % of the rows are cut\n" in shown


def test_packs_that_can_not_hold_the_rows_are_refused(singles, out):
    named = "pack is 31 & have up to 32 tokens; give 32 or more"
    check_refused(lambda: convert(singles, out, "mds", pack=31), ConfigError, named)
    assert not out.exists()
