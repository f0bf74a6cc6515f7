"""Copies of documents are dropped, so a build depends on the set of documents alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import InlineEngine, PicklingEngine, build_documents, digest_shards
from hypothesis import given
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
    out = tmp_path_factory.mktemp("once") / "out"
    build_documents(DOCUMENTS, out, tokenizer)
    return out


def read_counts(out: Path) -> Counts:
    return open_shards(out).manifest.counts


def check_same_set(out: Path, reference: Path) -> None:
    assert digest_shards(out) == digest_shards(reference)
    for name in ("documents_digest", "splits", "digest"):
        assert getattr(open_shards(out).manifest, name) == getattr(open_shards(reference).manifest, name)


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


ENGINES = (InlineEngine(), MultiprocessEngine(1), MultiprocessEngine(2), PicklingEngine(), MultiprocessEngine(4))


@pytest.mark.parametrize(("layout", "engine"), [*zip(fixtures.LAYOUTS, ENGINES, strict=True)], ids=fixtures.LAYOUTS)
def test_copies_spread_over_any_files_give_the_bytes_of_the_documents_alone(
    layout: str, engine: Engine, reference: Path, tokenizer: Tokenizer, tmp_path: Path
):
    build_documents(COPIES, tmp_path / "out", tokenizer, engine, layout)
    check_same_set(tmp_path / "out", reference)
    counts = read_counts(tmp_path / "out")
    assert counts.documents == len(COPIES)
    assert counts.duplicate_documents == len(COPIES) - len(DOCUMENTS)
    assert counts.tokens - (counts.duplicate_tokens or 0) == read_counts(reference).tokens
    assert read_counts(reference).duplicate_documents == read_counts(reference).duplicate_tokens == 0
    for folder in (reference, tmp_path / "out"):
        check_tokens_add_up(folder)


def test_all_copies_are_kept_on_request(reference: Path, tokenizer: Tokenizer, tmp_path: Path):
    build_documents(COPIES, tmp_path / "out", tokenizer, keep_duplicates=True)
    build_documents(COPIES, tmp_path / "again", tokenizer, MultiprocessEngine(2), "mixed", keep_duplicates=True)
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
        build_documents(documents, tmp_path / name, tokenizer, dupe_factor=4)
    check_same_set(tmp_path / "twice", tmp_path / "once")
    assert len(open_shards(tmp_path / "twice")) == 4
    assert read_counts(tmp_path / "twice").duplicate_documents == 1
    check_tokens_add_up(tmp_path / "twice")


@pytest.mark.parametrize(("num_shards", "slices_read"), [(None, 1), (3, 6)])
def test_many_copies_change_neither_shards_nor_record_batches(
    num_shards: int | None, slices_read: int, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A slice holds more bytes than are read at once, so it is read in parts."""
    monkeypatch.setattr("albert_data.pipeline.shard_plan.SLICE_BYTES", 1 << 12)
    monkeypatch.setattr("albert_data.pipeline.shard_plan.SHARD_BYTES", 1 << 14)
    monkeypatch.setattr("albert_data.pipeline.reducing._SLICES_READ", slices_read)
    for name, documents in (("once", DOCUMENTS), ("often", DOCUMENTS * 9)):
        build_documents(documents, tmp_path / name, tokenizer, layout="jsonl", num_shards=num_shards)
    check_same_set(tmp_path / "often", tmp_path / "once")
    assert len(list((tmp_path / "once/train").iterdir())) == (num_shards or 9)


def test_different_documents_with_the_same_key_are_both_kept(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each document has one of three keys, and occurs twice."""
    monkeypatch.setattr("albert_data.corpus.documents.xxh3_64_intdigest", lambda text: len(text) % 3)
    documents = DOCUMENTS[:60]
    for name, some in (("once", documents), ("twice", documents * 2)):
        build_documents(some, tmp_path / name, tokenizer, max_seq_len=512)
    check_same_set(tmp_path / "twice", tmp_path / "once")
    assert sum(list_texts(tmp_path / "once").values()) >= len(documents)
    assert read_counts(tmp_path / "twice").duplicate_documents == len(documents)
    check_tokens_add_up(tmp_path / "twice")


texts = st.text(st.sampled_from("the water a. \n"), min_size=1, max_size=30).filter(lambda text: text.strip())


@given(st.lists(texts, min_size=1, max_size=9), st.sampled_from(fixtures.LAYOUTS), st.integers(0, 2**63 - 1))
def test_any_list_of_documents_gives_the_bytes_of_its_set(
    tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory, documents: list[str], layout: str, seed: int
):
    folder = tmp_path_factory.mktemp("any")
    documents = [*documents, "One that surely holds a token."]
    alone = list({fixtures.canonical(document): document for document in documents}.values())
    options: dict[str, Any] = {"seed": seed, "max_seq_len": 8, "sentences": "lines"}
    for name, some, how in (("list", documents, layout), ("set", alone, "txt")):
        build_documents(some, folder / name, tokenizer, layout=how, **options)
    check_same_set(folder / "list", folder / "set")
    check_tokens_add_up(folder / "list")
    skipped = open_shards(folder / "list").manifest.damage.get("no_tokens", 0)
    skipped -= open_shards(folder / "set").manifest.damage.get("no_tokens", 0)
    assert read_counts(folder / "list").duplicate_documents == len(documents) - len(alone) - skipped
