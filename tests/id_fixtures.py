"""Shared by the tests of ids: records in files of all formats with fields, builds of them, and their table."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
from build_fixtures import InlineEngine, document_key

from albert_data.corpus.mixtures import find_sources
from albert_data.pipeline.build import BuildReport, build_shards
from albert_data.tokenizer.model import Tokenizer

Record = tuple[str, str]  # text and id, "" for none


def write(folder: Path, records: Sequence[Record], seed: int = 0) -> Path:
    """In files of all formats with fields, in any order."""
    rng, records = random.Random(seed), list(records)
    rng.shuffle(records)
    folder.mkdir(parents=True, exist_ok=True)
    parts = [records[number::5] for number in range(5)]
    of_json = [[{"meta": {"id": id}, "text": text} if id else {"text": text} for text, id in part] for part in parts]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, of_json[0])) + "\n")
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(("\n".join(map(json.dumps, of_json[1])) + "\n").encode()))
    with (folder / "c.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text", "meta.id"], *parts[2]])
    ids = pyarrow.array([{"id": id or None} for _, id in parts[3]], pyarrow.struct({"id": pyarrow.string()}))
    pyarrow.parquet.write_table(pyarrow.table({"text": [text for text, _ in parts[3]], "meta": ids}), folder / "d.pq")
    (folder / "e.json").write_text(json.dumps(of_json[4]))
    return folder


def run(names: Path, out: Path, tokenizer: Tokenizer | None, engine: Any = None, **options: Any) -> BuildReport:
    named = {name: options.pop(name) for name in ("overwrite", "without_keys") if name in options}
    config = fixtures.make_config(**{"id_field": "meta.id", **options})
    inputs = find_sources([str(names)], text=config.text)
    report = build_shards(inputs, out, tokenizer, config, engine or InlineEngine(), **named)
    assert report
    return report


def read_table(out: Path) -> list[tuple[int, str]]:
    tables = [pyarrow.ipc.open_file(path).read_all() for path in sorted((out / "ids").glob("*.arrow"))]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def expect(records: Sequence[Record]) -> list[tuple[int, str]]:
    return sorted({(document_key(text), id.strip()) for text, id in records if id.strip()})


RECORDS = [(text, f"id {number % 70}") for number, text in enumerate(fixtures.make_documents(90, seed=5))]
