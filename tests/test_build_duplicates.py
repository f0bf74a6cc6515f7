"""Copies of documents are dropped, so a build depends on the set of documents alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import InlineEngine, InterruptedEngine, PicklingEngine, digest_shards, run_build
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_data.jobs.engine import Engine, MultiprocessEngine
from albert_data.shards.manifest import Counts
from albert_data.shards.reader import Example, open_shards
from albert_data.tokenizer.model import Tokenizer

DOCUMENTS = fixtures.make_documents(120, seed=7)
COPIES = [*DOCUMENTS, *DOCUMENTS[:40], *DOCUMENTS[20:60], *[DOCUMENTS[3]] * 50]
SPLITS = ("train", "validation")


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 12):
        yield


@pytest.fixture(scope="module")
def reference(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build in which each document occurs once."""
    folder = tmp_path_factory.mktemp("once")
    fixtures.write_corpus(folder / "in", DOCUMENTS, "txt", random.Random(0))
    run_build(folder / "in", folder / "out", tokenizer)
    return folder / "out"


def read_counts(out: Path) -> Counts:
    return open_shards(out).manifest.counts


def check_same_set(out: Path, reference: Path) -> None:
    assert digest_shards(out) == digest_shards(reference)
    found, wanted = open_shards(out).manifest, open_shards(reference).manifest
    assert (found.documents_digest, found.splits, found.digest) == (
        wanted.documents_digest,
        wanted.splits,
        wanted.digest,
    )


def check_tokens_add_up(out: Path) -> None:
    """Without special tokens, the rows of each pass hold the tokens that were read minus those that were dropped."""
    manifest = open_shards(out).manifest
    counts, splits = manifest.counts, manifest.splits.values()
    num_specials = sum(3 * split.num_rows - (split.num_unpaired or 0) for split in splits)
    passes = manifest.config.examples.dupe_factor
    num_text = sum(split.num_tokens for split in splits) - num_specials
    assert num_text == passes * (counts.tokens - (counts.duplicate_tokens or 0))


def list_texts(out: Path) -> Counter[tuple[bytes, ...]]:
    return Counter(describe(row) for split in SPLITS for row in open_shards(out, split))


def describe(row: Example) -> tuple[bytes, ...]:
    columns = (row.input_ids, row.masked_positions, row.masked_ids)
    return (*(column.tobytes() for column in columns), repr((row.segment_a_len, row.sop_label)).encode())


@pytest.mark.parametrize("layout", fixtures.LAYOUTS)
def test_copies_spread_over_any_files_give_the_bytes_of_the_documents_alone(
    layout: str, reference: Path, tokenizer: Tokenizer, tmp_path: Path
):
    fixtures.write_corpus(tmp_path / "in", COPIES, layout, random.Random(layout))
    run_build(tmp_path / "in", tmp_path / "out", tokenizer)
    check_same_set(tmp_path / "out", reference)
    counts = read_counts(tmp_path / "out")
    assert counts.documents == len(COPIES)
    assert counts.duplicate_documents == len(COPIES) - len(DOCUMENTS)
    assert counts.tokens - (counts.duplicate_tokens or 0) == read_counts(reference).tokens
    assert read_counts(reference).duplicate_documents == read_counts(reference).duplicate_tokens == 0
    for folder in (reference, tmp_path / "out"):
        check_tokens_add_up(folder)


@pytest.mark.parametrize(
    "engine",
    [MultiprocessEngine(1), MultiprocessEngine(2), MultiprocessEngine(4), PicklingEngine()],
    ids=["1 worker", "2 workers", "4 workers", "pickling"],
)
def test_copies_are_dropped_by_any_number_of_workers(
    engine: Engine, reference: Path, tokenizer: Tokenizer, tmp_path: Path
):
    fixtures.write_corpus(tmp_path / "in", COPIES, "mixed", random.Random(5))
    run_build(tmp_path / "in", tmp_path / "out", tokenizer, engine)
    check_same_set(tmp_path / "out", reference)
    assert read_counts(tmp_path / "out").duplicate_documents == len(COPIES) - len(DOCUMENTS)


@pytest.mark.parametrize("results", [1, 9, 30])
def test_a_resumed_build_counts_the_copies_in_shards_that_were_finished_before(
    results: int, reference: Path, tokenizer: Tokenizer, tmp_path: Path
):
    fixtures.write_corpus(tmp_path / "in", COPIES, "txt", random.Random(5))
    run_build(tmp_path / "in", tmp_path / "whole", tokenizer, num_shards=6)
    with pytest.raises(KeyboardInterrupt):
        run_build(tmp_path / "in", tmp_path / "out", tokenizer, InterruptedEngine(results), num_shards=6)
    run_build(tmp_path / "in", tmp_path / "out", tokenizer, num_shards=6)
    assert (tmp_path / "out/manifest.json").read_bytes() == (tmp_path / "whole/manifest.json").read_bytes()
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "whole")


def test_all_copies_are_kept_on_request(reference: Path, tokenizer: Tokenizer, tmp_path: Path):
    fixtures.write_corpus(tmp_path / "in", COPIES, "txt", random.Random(5))
    run_build(tmp_path / "in", tmp_path / "out", tokenizer, keep_duplicates=True)
    fixtures.write_corpus(tmp_path / "other", COPIES, "mixed", random.Random(6))
    run_build(tmp_path / "other", tmp_path / "again", tokenizer, MultiprocessEngine(2), keep_duplicates=True)
    check_same_set(tmp_path / "again", tmp_path / "out")
    check_tokens_add_up(tmp_path / "out")
    assert read_counts(tmp_path / "out").duplicate_documents is None
    kept, once = list_texts(tmp_path / "out"), list_texts(reference)
    assert kept.keys() == once.keys()
    by_key = Counter(map(fixtures.document_key, COPIES))
    for split in SPLITS:
        found = Counter(row.document_key for row in open_shards(tmp_path / "out", split))
        alone = Counter(row.document_key for row in open_shards(reference, split))
        assert found == Counter({key: count * by_key[key] for key, count in alone.items()})


def test_rows_of_different_passes_are_not_copies(tokenizer: Tokenizer, tmp_path: Path):
    for name, documents in (("once", ["the\n\nwater"]), ("twice", ["the\n\nwater", "the\n\nwater"])):
        fixtures.write_corpus(tmp_path / name, documents, "txt", random.Random(0))
        run_build(tmp_path / name, tmp_path / f"{name}-out", tokenizer, dupe_factor=4)
    check_same_set(tmp_path / "twice-out", tmp_path / "once-out")
    assert len(open_shards(tmp_path / "twice-out")) == 4
    assert read_counts(tmp_path / "twice-out").duplicate_documents == 1
    check_tokens_add_up(tmp_path / "twice-out")


@pytest.mark.parametrize(("num_shards", "slices_read"), [(None, 1), (3, 6)])
def test_many_copies_change_neither_shards_nor_record_batches(
    num_shards: int | None, slices_read: int, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A slice holds more bytes than are read at once, so it is read in parts."""
    monkeypatch.setattr("albert_data.pipeline.shard_plan.SLICE_BYTES", 1 << 12)
    monkeypatch.setattr("albert_data.pipeline.shard_plan.SHARD_BYTES", 1 << 14)
    monkeypatch.setattr("albert_data.pipeline.reducing._SLICES_READ", slices_read)
    for name, documents in (("once", DOCUMENTS), ("often", DOCUMENTS * 9)):
        fixtures.write_corpus(tmp_path / name, documents, "jsonl", random.Random(1))
        run_build(tmp_path / name, tmp_path / f"{name}-out", tokenizer, num_shards=num_shards)
    check_same_set(tmp_path / "often-out", tmp_path / "once-out")
    assert len(list((tmp_path / "once-out/train").iterdir())) == (num_shards or 9)


def test_different_documents_with_the_same_key_are_both_kept(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each document has one of three keys, and occurs twice."""
    monkeypatch.setattr("albert_data.corpus.documents.xxh3_64_intdigest", lambda text: len(text) % 3)
    documents = DOCUMENTS[:60]
    for name, some in (("once", documents), ("twice", documents * 2)):
        fixtures.write_corpus(tmp_path / name, some, "txt", random.Random(name))
        run_build(tmp_path / name, tmp_path / f"{name}-out", tokenizer, max_seq_len=512)
    check_same_set(tmp_path / "twice-out", tmp_path / "once-out")
    assert sum(list_texts(tmp_path / "once-out").values()) >= len(documents)
    assert read_counts(tmp_path / "twice-out").duplicate_documents == len(documents)
    check_tokens_add_up(tmp_path / "twice-out")


texts = st.text(st.sampled_from("the water a. \n"), min_size=1, max_size=30).filter(lambda text: text.strip())


@settings(max_examples=20)
@given(st.lists(texts, min_size=1, max_size=9), st.sampled_from(fixtures.LAYOUTS), st.integers(0, 2**63 - 1))
def test_any_list_of_documents_gives_the_bytes_of_its_set(
    tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory, documents: list[str], layout: str, seed: int
):
    folder = tmp_path_factory.mktemp("any")
    documents = [*documents, "One that surely holds a token."]
    alone = list({fixtures.canonical(document): document for document in documents}.values())
    options: dict[str, Any] = {"seed": seed, "max_seq_len": 8, "sentences": "lines"}
    for name, some, how in (("list", documents, layout), ("set", alone, "txt")):
        fixtures.write_corpus(folder / name, some, how, random.Random(seed))
        run_build(folder / name, folder / f"{name}-out", tokenizer, InlineEngine(), **options)
    check_same_set(folder / "list-out", folder / "set-out")
    check_tokens_add_up(folder / "list-out")
    skipped = open_shards(folder / "list-out").manifest.damage.get("no_tokens", 0)
    skipped -= open_shards(folder / "set-out").manifest.damage.get("no_tokens", 0)
    assert read_counts(folder / "list-out").duplicate_documents == len(documents) - len(alone) - skipped
