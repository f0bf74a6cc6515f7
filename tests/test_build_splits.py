"""No split is empty if there are enough documents; a hash chooses the document that is moved for that."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import build_fixtures as fixtures
import numpy as np
import pytest
from build_fixtures import InterruptedEngine, digest_shards, run_build

from albert_data.draws import split_keys
from albert_data.pipeline.engine import MultiprocessEngine
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer

DOCUMENTS = fixtures.make_documents(40, seed=11)


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 12):
        yield


def keys_of(out: Path) -> tuple[set[int], set[int]]:
    """The document keys in training and in validation."""
    train, validation = ({row.document_key for row in open_shards(out, name)} for name in ("train", "validation"))
    return train, validation


def sort_by_split_key(documents: list[str], seed: int) -> list[int]:
    keys = np.array([fixtures.document_key(document) for document in documents], np.uint64)
    return [int(key) for key in keys[np.argsort(split_keys(np.uint64(seed), keys))]]


@pytest.mark.parametrize("layout", fixtures.LAYOUTS)
@pytest.mark.parametrize("count", [2, 3, 40])
def test_validation_gets_the_document_of_the_smallest_split_key(
    layout: str, count: int, tokenizer: Tokenizer, tmp_path: Path
):
    documents = DOCUMENTS[:count]
    fixtures.write_corpus(tmp_path / "in", documents, layout, random.Random(layout))
    run_build(tmp_path / "in", tmp_path / "out", tokenizer, MultiprocessEngine(2), validation_fraction=1e-9)
    first, *others = sort_by_split_key(documents, seed=0)
    assert keys_of(tmp_path / "out") == (set(others), {first})
    fixtures.write_corpus(tmp_path / "again", documents * 2, "txt", random.Random(1))
    run_build(tmp_path / "again", tmp_path / "again-out", tokenizer, validation_fraction=1e-9, num_shards=None)
    assert digest_shards(tmp_path / "again-out") == digest_shards(tmp_path / "out")


def test_training_gets_the_document_of_the_largest_split_key(tokenizer: Tokenizer, tmp_path: Path):
    """Seeds for which the split keys of all documents are below the threshold."""
    documents = DOCUMENTS[:3]
    fixtures.write_corpus(tmp_path / "in", documents, "txt", random.Random(0))
    keys = np.array([fixtures.document_key(document) for document in documents], np.uint64)
    seeds = [seed for seed in range(200) if (split_keys(np.uint64(seed), keys) < np.uint64(2**63)).all()]
    assert len(seeds) > 5
    for seed in seeds[:6]:
        run_build(tmp_path / "in", tmp_path / f"{seed}", tokenizer, seed=seed, validation_fraction=0.5)
        *others, last = sort_by_split_key(documents, seed)
        assert keys_of(tmp_path / f"{seed}") == ({last}, set(others))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("copies", [1, 3])
def test_a_single_document_goes_to_training(seed: int, copies: int, tokenizer: Tokenizer, tmp_path: Path):
    fixtures.write_corpus(tmp_path / "in", DOCUMENTS[:1] * copies, "jsonl", random.Random(0))
    run_build(tmp_path / "in", tmp_path / "out", tokenizer, seed=seed, validation_fraction=0.5)
    assert keys_of(tmp_path / "out") == ({fixtures.document_key(DOCUMENTS[0])}, set())


def test_documents_without_a_row_do_not_count(tokenizer: Tokenizer, tmp_path: Path):
    (tmp_path / "in.txt").write_text("the water.\n\n\x01\n\n\x02")
    run_build(tmp_path / "in.txt", tmp_path / "out", tokenizer, validation_fraction=1e-9)
    assert keys_of(tmp_path / "out") == ({fixtures.document_key("the water.")}, set())


def test_a_validation_fraction_of_zero_moves_no_document(tokenizer: Tokenizer, tmp_path: Path):
    fixtures.write_corpus(tmp_path / "in", DOCUMENTS, "txt", random.Random(0))
    run_build(tmp_path / "in", tmp_path / "out", tokenizer, validation_fraction=0.0)
    assert keys_of(tmp_path / "out") == (set(map(fixtures.document_key, DOCUMENTS)), set())


def test_the_bytes_of_other_documents_are_those_of_a_build_without_a_move(tokenizer: Tokenizer, tmp_path: Path):
    """Each training shard has the same rows as without the move, minus those of the moved document."""
    fixtures.write_corpus(tmp_path / "in", DOCUMENTS, "txt", random.Random(0))
    for name, fraction in (("moved", 1e-9), ("whole", 0.0)):
        run_build(tmp_path / "in", tmp_path / name, tokenizer, validation_fraction=fraction, dupe_factor=2)
    first = sort_by_split_key(DOCUMENTS, seed=0)[0]
    rows = {
        name: [(row.document_key, row.input_ids.tobytes()) for row in open_shards(tmp_path / name)]
        for name in ("moved", "whole")
    }
    assert rows["moved"] == [row for row in rows["whole"] if row[0] != first]
    validation = [row.input_ids.tobytes() for row in open_shards(tmp_path / "moved", "validation")]
    assert validation == [ids for key, ids in rows["whole"] if key == first]


def test_a_large_training_section_is_read_in_parts_for_validation(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fixtures.write_corpus(tmp_path / "in", DOCUMENTS, "txt", random.Random(0))
    run_build(tmp_path / "in", tmp_path / "out", tokenizer, validation_fraction=1e-9)
    monkeypatch.setattr("albert_data.pipeline.reducing._SLICES_READ", 1)
    with monkeypatch.context() as patch:
        patch.setattr("albert_data.pipeline.reducing.SLICE_BYTES", 1 << 10)
        run_build(tmp_path / "in", tmp_path / "parts", tokenizer, validation_fraction=1e-9)
    for split in ("train", "validation"):
        found, wanted = (
            [row.input_ids.tobytes() for row in open_shards(tmp_path / name, split)] for name in ("parts", "out")
        )
        assert found == wanted


@pytest.mark.parametrize("results", [1, 3, 5])
def test_a_killed_build_moves_the_same_document(results: int, tokenizer: Tokenizer, tmp_path: Path):
    fixtures.write_corpus(tmp_path / "in", DOCUMENTS, "txt", random.Random(0))
    options = {"validation_fraction": 1e-9, "num_shards": 3}
    run_build(tmp_path / "in", tmp_path / "whole", tokenizer, **options)
    with pytest.raises(KeyboardInterrupt):
        run_build(tmp_path / "in", tmp_path / "out", tokenizer, InterruptedEngine(results), **options)
    run_build(tmp_path / "in", tmp_path / "out", tokenizer, **options)
    assert (tmp_path / "out/manifest.json").read_bytes() == (tmp_path / "whole/manifest.json").read_bytes()
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "whole")
