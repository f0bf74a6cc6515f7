"""Made-up shards in memory, with the interface of albert_data.shards.reader.Shards. Each piece is a word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from build_fixtures import digest_folder
from shard_fixtures import describe_folder
from toy_rows import CLS, FIRST_ORDINARY, MASK, SEP, SMALL, TINY, FakeShards

from albert_data.data import Examples
from albert_data.shards.manifest import Manifest
from albert_data.train.config import MODEL_PRESETS
from albert_data.train.loop import train


def make_examples(num_rows: int, *, vocab_size: int, max_seq_len: int, seed: int) -> Examples:
    """Make rows of random tokens and lengths. Every tenth has no second segment; every row has at least one mask."""
    random = np.random.default_rng(seed)
    ids: list[np.ndarray] = []
    a_lens, labels, positions, originals = [], [], [], []
    for row in range(num_rows):
        tokens = random.integers(FIRST_ORDINARY, vocab_size, random.integers(4, max_seq_len - 2))
        cut = int(random.integers(1, len(tokens)))
        single = row % 10 == 9
        parts = [[CLS], tokens, [SEP]] if single else [[CLS], tokens[:cut], [SEP], tokens[cut:], [SEP]]
        filled = np.concatenate(parts).astype(np.uint16)
        candidates = np.flatnonzero(filled >= FIRST_ORDINARY)
        masked = np.sort(random.choice(candidates, max(1, len(candidates) // 7), replace=False))
        positions.append(masked.astype(np.uint16))
        originals.append(filled[masked].copy())
        filled[masked] = MASK
        ids.append(filled)
        a_lens.append(len(tokens) if single else cut)
        labels.append(-1 if single else row % 2)
    empty = np.empty(0, np.uint16)
    return Examples(
        input_ids=np.concatenate([empty, *ids]),
        offsets=np.cumsum([0, *map(len, ids)]),
        segment_a_len=np.array(a_lens, np.int32),
        sop_label=np.array(labels, np.int8),
        masked_positions=np.concatenate([empty, *positions]),
        masked_ids=np.concatenate([empty, *originals]),
        mask_offsets=np.cumsum([0, *map(len, positions)]),
        document_keys=np.arange(num_rows, dtype=np.uint64),
    )


def make_shards(
    num_rows: int, *, vocab_size: int = 40, max_seq_len: int = 24, seed: int = 0, num_validation: int = 0
) -> FakeShards:
    values = describe_folder(Path(), {}, vocab_size)
    values["config"]["max_seq_len"] = max_seq_len
    values["digest"] = f"toy {num_rows} {vocab_size} {max_seq_len} {seed}"
    examples = make_examples(num_rows, vocab_size=vocab_size, max_seq_len=max_seq_len, seed=seed)
    shards = FakeShards(examples, Manifest.from_values(values))
    shards.set_aside(num_validation)
    return shards


def read_metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class Toys:
    """Functions that make toys. A fixture returns them, since a test folder is not a package to import from."""

    make_shards = staticmethod(make_shards)
    read_metrics = staticmethod(read_metrics)


@pytest.fixture
def toys() -> type[Toys]:
    return Toys


@pytest.fixture(scope="session")
def module_toys() -> type[Toys]:
    """The same functions, for fixtures of a module and for tests with hypothesis."""
    return Toys


def use_in_memory(patch: pytest.MonkeyPatch, rows: FakeShards, validation: FakeShards | None = None) -> None:
    """Make training open these splits in memory, whatever its folder is, and use a toy model as preset "tiny"."""
    patch.setitem(MODEL_PRESETS, "tiny", SMALL)
    rows.set_aside(0 if validation is None else len(validation))
    splits = {"train": rows, "validation": validation}
    patch.setattr("albert_data.train.loader.open_shards", lambda path, split: splits[split])


@pytest.fixture
def use_shards(monkeypatch):
    """use_shards(train, validation): `use_in_memory` for one test."""
    return partial(use_in_memory, monkeypatch)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory) -> Iterator[Path]:
    """The folder of a finished run by TINY over 40 rows, 10 for validation, to be read only."""
    run = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        use_in_memory(patch, make_shards(40), make_shards(10, seed=1))
        train(run.with_name("out"), run, TINY)
    files = digest_folder(run)
    yield run
    assert digest_folder(run) == files, "a test changed the run that all share"
