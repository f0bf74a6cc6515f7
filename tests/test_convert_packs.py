"""`convert --pack` writes every token of every row once, and says where rows begin."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from build_fixtures import InterruptedEngine, PicklingEngine, digest_folder
from convert_fixtures import check_as_mdswriter, convert, read_mds
from inspect_fixtures import SMALL, draw_sentences, make_examples, write_folder, write_sentences
from refusals import check_refused

from albert_data.cli.main import run
from albert_data.errors import ConfigError
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.shards.reader import open_shards

PACK = 50
SINGLES = dataclasses.replace(SMALL, pairs="none")
NO_LABEL = -100


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    parts = [make_examples(draw_sentences(30, seed) + write_sentences(30, seed), SINGLES, 99 * seed) for seed in (1, 2)]
    splits = {"train": parts, "validation": [make_examples(write_sentences(9, 3), SINGLES, 900)]}
    return write_folder(tmp_path_factory.mktemp("packs") / "shards", splits, SINGLES)


def read_packs(out: Path, to: str, split: str = "train") -> list[dict[str, Any]]:
    """The columns of each pack, as lists."""
    if to == "mds":
        samples = read_mds(out / split)
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
def test_packs_have_every_token_of_the_rows_once(shards, tmp_path, to, unmasked, split):
    record = convert(shards, tmp_path / "out", to, pack=PACK, unmasked=unmasked)
    packs = read_packs(tmp_path / "out", to, split)
    assert record["num_rows"][split] == len(packs)
    wanted = [
        (row.original_ids.tolist(), {})
        if unmasked
        else (row.input_ids.tolist(), dict(zip(row.masked_positions.tolist(), row.masked_ids.tolist(), strict=True)))
        for row in open_shards(shards, split)
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


def test_the_types_of_the_columns_are_those_of_the_shards(shards, tmp_path):
    convert(shards, tmp_path / "out", "parquet", pack=PACK)
    (path,) = (tmp_path / "out" / "data").glob("train-*")
    schema = pyarrow.parquet.read_schema(path)
    found = {field.name: str(field.type.value_type) for field in schema}
    assert found == {**dict.fromkeys(("input_ids", "masked_positions", "masked_ids"), "uint16"), "row_starts": "int32"}
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features["row_starts"] == {"feature": {"dtype": "int32", "_type": "Value"}, "_type": "Sequence"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "Each row is a pack of examples `[CLS]" in card
    assert "| `row_starts` | where in a pack each example begins" in card


@pytest.mark.parametrize("to", ["parquet", "mds"])
@pytest.mark.parametrize("engine", [MultiprocessEngine(2), PicklingEngine()])
def test_workers_and_a_kill_change_no_byte(shards, tmp_path, to, engine):
    convert(shards, tmp_path / "one", to, pack=PACK)
    convert(shards, tmp_path / "two", to, pack=PACK, engine=engine)
    with pytest.raises(KeyboardInterrupt):
        convert(shards, tmp_path / "killed", to, pack=PACK, engine=InterruptedEngine(1))
    record = convert(shards, tmp_path / "killed", to, pack=PACK)
    assert digest_folder(tmp_path / "one") == digest_folder(tmp_path / "two") == digest_folder(tmp_path / "killed")
    assert record["plan"]["pack"] == PACK
    packs = read_packs(tmp_path / "one", to) + read_packs(tmp_path / "one", to, "validation")
    parts, rows = sum(len(pack["row_starts"]) for pack in packs), 0
    for split in ("train", "validation"):
        rows += len(open_shards(shards, split))
    counts = record["packs"]
    assert (counts["num_rows"], counts["num_parts"]) == (rows, parts)
    assert counts["num_tokens"] == sum(len(pack["input_ids"]) for pack in packs)
    assert 0 < counts["num_cut_rows"] <= parts - rows


def test_an_mds_folder_of_packs_is_byte_for_byte_that_of_mdswriter(shards, tmp_path):
    convert(shards, tmp_path / "out", "mds", pack=300)
    types = {"input_ids": "uint16", "masked_ids": "uint16", "masked_positions": "uint16", "row_starts": "int32"}
    packs = read_packs(tmp_path / "out", "mds")
    assert max(len(pack["input_ids"]) for pack in packs) > 255
    samples = [{name: np.array(pack[name], kind) for name, kind in types.items()} for pack in packs]
    check_as_mdswriter(tmp_path / "out", {name: f"ndarray:{kind}" for name, kind in types.items()}, samples)


def test_the_command_says_how_full_packs_are_and_how_many_rows_are_cut(shards, tmp_path, capsys):
    assert run(["convert", str(shards), "-o", str(tmp_path / "out"), "--to", "mds", "--pack", str(PACK)]) == 0
    shown = capsys.readouterr().out
    assert "packs in 2 files" in shown
    packs = read_packs(tmp_path / "out", "mds") + read_packs(tmp_path / "out", "mds", "validation")
    full = sum(len(pack["input_ids"]) for pack in packs) / PACK / len(packs)
    assert f"packs are {100 * full:.1f} % full (" in shown
    assert " % without cuts); " in shown
    assert " % of the rows are cut\n" in shown


@pytest.mark.parametrize(
    ("pack", "code", "message"),
    [
        ("31", 1, "pack is 31, but rows of {} have up to 32 tokens; give 32 or more"),
        ("100000", 1, "pack is 100000; allowed are 8 to 65536"),
        ("long", 2, "'long' is not a valid integer"),
    ],
)
def test_packs_that_can_not_be_are_refused(shards, tmp_path, capsys, pack, code, message):
    assert run(["convert", str(shards), "-o", str(tmp_path / "out"), "--to", "mds", "--pack", pack]) == code
    *usage, line = capsys.readouterr().err.splitlines()
    assert message.format(shards) in line
    assert bool(usage) == (code == 2)
    assert not (tmp_path / "out").exists()


def test_rows_with_a_sentence_task_are_refused(tmp_path):
    folder = write_folder(tmp_path / "sop", {"train": [make_examples(write_sentences(3, 1), SMALL)]})
    named = "--pairs sop & a label each & leave out pack & --pairs none"
    check_refused(lambda: convert(folder, tmp_path / "out", "parquet", pack=64), ConfigError, named)
