"""Copies and near-duplicates are dropped: a build is as if only the documents that stay had been given."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import dedup_reference
import mixture_fixtures as mixtures
import pytest
import references
from build_fixtures import InlineEngine, PicklingEngine, build_documents, digest_shards, document_key, run_build
from hypothesis import given
from hypothesis import strategies as st
from mixture_fixtures import Mixed
from refusals import check_refused, refused

from albert_data.config import BuildConfig
from albert_data.corpus.fields import hash_group
from albert_data.corpus.inputs import find_inputs
from albert_data.errors import ConfigError
from albert_data.jobs.engine import Engine, MultiprocessEngine
from albert_data.pipeline import steps
from albert_data.pipeline.build import build_shards
from albert_data.pipeline.reducing import ReduceJob
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


# ---- near-duplicates ----


def rank(documents: Sequence[str]) -> list[str]:
    def size(one: str) -> int:
        return len("\n".join(" ".join(line.split()) for line in one.splitlines()).encode())

    return sorted(set(documents), key=lambda one: (-size(one), document_key(one)))


ORIGINALS = fixtures.make_documents(90, seed=11)
# And longer copies of every third.
SIMILAR = [*ORIGINALS, *(f"{one}\nRead by {number}." for number, one in enumerate(ORIGINALS[::3]))]
STAYING = [one for one, similar in dedup_reference.find_staying(rank(SIMILAR), 0.8).items() if similar is None]


@pytest.fixture(scope="module")
def staying(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build of the documents that stay."""
    out = tmp_path_factory.mktemp("staying") / "out"
    build_documents(STAYING, out, tokenizer)
    return out


def test_the_documents_of_these_tests_are_similar():
    assert 20 <= len(SIMILAR) - len(STAYING) <= 30


@pytest.mark.parametrize(("layout", "engine"), [*zip(fixtures.LAYOUTS, ENGINES, strict=True)], ids=fixtures.LAYOUTS)
def test_a_build_is_that_of_the_documents_that_stay(
    layout: str, engine: Engine, staying: Path, tokenizer: Tokenizer, tmp_path: Path
):
    documents, out = [*SIMILAR, *SIMILAR[40:100]], tmp_path / "out"
    counts = build_documents(documents, out, tokenizer, engine, layout, drop_near_duplicates=True).manifest.counts
    assert digest_shards(out) == digest_shards(staying)
    found, wanted = open_shards(out).manifest, open_shards(staying).manifest
    assert (found.documents_digest, found.splits) == (wanted.documents_digest, wanted.splits)
    assert counts.near_duplicate_documents == len(SIMILAR) - len(STAYING)
    dropped = (counts.duplicate_tokens or 0) + (counts.near_duplicate_tokens or 0)
    assert counts.tokens - dropped == wanted.counts.tokens - (wanted.counts.duplicate_tokens or 0)


def is_similar(one: str, other: str) -> bool:
    return dedup_reference.measure_similarity(one, other) >= 0.8


class EngineThatEndsInReduce(InlineEngine):
    def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        for found in super().run(job, tasks):
            yield found
            if isinstance(job, ReduceJob):
                raise KeyboardInterrupt


def test_a_build_killed_while_it_writes_shards_compares_no_documents_again(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = {"drop_near_duplicates": True, "num_shards": 6}
    whole = build_documents(SIMILAR, tmp_path / "whole", tokenizer, **settings).manifest
    with pytest.raises(KeyboardInterrupt):
        run_build(tmp_path / "whole-in", tmp_path / "out", tokenizer, EngineThatEndsInReduce(), **settings)
    monkeypatch.delattr(steps, "find_near_duplicates")
    assert run_build(tmp_path / "whole-in", tmp_path / "out", tokenizer, **settings).manifest == whole


def test_an_earlier_source_of_a_mixture_keeps_its_documents_and_weights_come_later(
    tokenizer: Tokenizer, tmp_path: Path
):
    longer = [f"{one}\nRead by me." for one in ORIGINALS[::3]]
    sources = [Mixed(documents=ORIGINALS, weight=0.5), Mixed(documents=longer)]
    path = mixtures.write_mixture(tmp_path / "all", sources)
    report = mixtures.build_mixture(path, tmp_path / "out", tokenizer, drop_near_duplicates=True)
    similar = {new for new, old in zip(longer, ORIGINALS[::3], strict=True) if is_similar(new, old)}
    assert report.manifest.near_duplicates
    assert report.manifest.near_duplicates.sources == {"source 0": 0, "source 1": len(similar)}
    rest = [Mixed(documents=ORIGINALS, weight=0.5), Mixed(documents=[one for one in longer if one not in similar])]
    mixtures.build_mixture(mixtures.write_mixture(tmp_path / "rest", rest), tmp_path / "wanted", tokenizer)
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "wanted")
    assert report.manifest.documents_digest == open_shards(tmp_path / "wanted").manifest.documents_digest


def test_documents_for_validation_stay_and_training_lacks_what_is_similar(tokenizer: Tokenizer, tmp_path: Path):
    longer = [f"{one}\nRead by me." for one in ORIGINALS[:20]]
    train = [*longer, *ORIGINALS[15:]]  # some are similar, some equal
    for name, some in (("train", train), ("held", ORIGINALS[:20])):
        fixtures.write_corpus(tmp_path / name, some, "txt", random.Random(1))
    config = fixtures.make_config(drop_near_duplicates=True, validation_fraction=0)
    inputs = find_inputs([str(tmp_path / "train")], text=config.text, validation=[str(tmp_path / "held")])
    manifest = build_shards(inputs, tmp_path / "out", tokenizer, config, InlineEngine()).manifest
    similar = [new for new, old in zip(longer, ORIGINALS, strict=False) if is_similar(new, old)]
    assert manifest.counts.near_duplicate_documents == len(similar) > 10
    assert manifest.counts.left_out_documents == 5
    keys = {split: {row.document_key for row in open_shards(tmp_path / "out", split)} for split in manifest.splits}
    assert keys["validation"] == set(map(document_key, ORIGINALS[:20]))
    assert keys["train"] == set(map(document_key, train)) - keys["validation"] - set(map(document_key, similar))


def write_languages(path: Path, documents: Sequence[tuple[str, str]]) -> Path:
    path.write_text("".join(json.dumps({"text": text, "lang": language}) + "\n" for text, language in documents))
    return path


def test_one_text_of_two_languages_counts_for_each_when_it_is_dropped(tokenizer: Tokenizer, tmp_path: Path):
    longer = [f"{one}\nRead by me." for one in ORIGINALS[:8]]
    assert all(map(is_similar, longer, ORIGINALS))
    english = [(one, "en") for one in [*ORIGINALS[:8], *ORIGINALS[3:6], *longer, *ORIGINALS[20:30]]]
    german = [(one, "de") for one in [*ORIGINALS[2:6], *ORIGINALS[28:32]]]
    kept = [(one, "en") for one in [*longer, *ORIGINALS[20:30]]] + german[4:]
    path = write_languages(tmp_path / "in.jsonl", random.Random(3).sample(found := english + german, len(found)))
    settings = {"drop_near_duplicates": True, "language_field": "lang"}
    made = run_build(path, tmp_path / "out", tokenizer, **settings).manifest
    wanted = run_build(
        write_languages(tmp_path / "kept.jsonl", kept), tmp_path / "kept", tokenizer, **settings
    ).manifest
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "kept")
    assert made.documents_digest == wanted.documents_digest
    assert made.near_duplicates
    assert made.near_duplicates.sources == {"de": 4, "en": 8}
    counts = made.counts
    assert (counts.duplicate_documents, counts.near_duplicate_documents) == (3, 12)
    assert counts.documents - 3 - 12 == wanted.counts.documents == len(kept)
    dropped_tokens = (counts.duplicate_tokens or 0) + (counts.near_duplicate_tokens or 0)
    assert counts.tokens - dropped_tokens == wanted.counts.tokens


@pytest.mark.parametrize("grouped", [False, True])
def test_copies_of_what_is_dropped_are_counted_where_one_document_stays(
    grouped: bool, tokenizer: Tokenizer, tmp_path: Path
):
    longer, dropped = next((longer, one) for one in ORIGINALS if is_similar(one, longer := f"{one}\nRead by me."))
    keys = [hash_group(one) if grouped else document_key(one) for one in (longer, dropped)]
    seed = next(
        seed for seed in count() if [references.split_key(key, seed) < 0.005 * 2**64 for key in keys] == [False, True]
    )  # only what is dropped is drawn for validation
    for number, text in enumerate([longer, longer, *[dropped] * 5]):
        (tmp_path / f"in/{number}").mkdir(parents=True)
        data = json.dumps({"text": text, "group": text} if grouped else {"text": text})
        (tmp_path / f"in/{number}/in.jsonl.gz").write_bytes(gzip.compress(data.encode()))  # a task of its own
    settings = {"drop_near_duplicates": True, "seed": seed}
    if grouped:
        settings["group_field"] = "group"
    made = run_build(tmp_path / "in", tmp_path / "out", tokenizer, **settings).manifest
    assert made.documents_digest == f"{document_key(longer):016x}"
    counts = made.counts
    assert (counts.documents, counts.duplicate_documents, counts.near_duplicate_documents) == (7, 5, 1)
    run_build(tmp_path / "in/0", tmp_path / "alone", tokenizer, seed=seed)
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "alone")


def test_nothing_similar_changes_nothing(tokenizer: Tokenizer, tmp_path: Path):
    for name, drops in (("plain", False), ("dropping", True)):
        build_documents(STAYING, tmp_path / name, tokenizer, drop_near_duplicates=drops)
    assert digest_shards(tmp_path / "plain") == digest_shards(tmp_path / "dropping")
    assert open_shards(tmp_path / "plain").manifest.near_duplicates is None


@refused(
    ({"drop_near_duplicates": True, "similarity": 0.4}, ConfigError, "similarity is 0.4 & 0.5 to 1.0"),
    ({"drop_near_duplicates": True, "similarity": 1.01}, ConfigError, "similarity is 1.01"),
    ({"similarity": 0.7}, ConfigError, "which only drop_near_duplicates uses"),
    ({"drop_near_duplicates": True, "keep_duplicates": True}, ConfigError, "leave out keep_duplicates"),
)
def test_settings_that_do_not_fit_are_refused(call, kind, named):
    check_refused(lambda: BuildConfig(**call), kind, named)
