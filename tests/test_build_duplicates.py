"""Copies and near-duplicates are dropped: a build is as if only the documents that stay had been given."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import dedup_reference
import mixture_fixtures as mixtures
import pytest
from build_fixtures import InlineEngine, build_documents, digest_shards, document_key, run_build
from hypothesis import given
from hypothesis import strategies as st
from mixture_fixtures import Mixed
from refusals import check_refused, refused

from albert_data.corpus.inputs import find_inputs
from albert_data.errors import ConfigError
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.pipeline import steps
from albert_data.pipeline.build import build_shards
from albert_data.pipeline.merge_rows import MergeRows
from albert_data.shards.manifest import Counts, Manifest
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer

DOCUMENTS = fixtures.make_documents(120, seed=7)
COPIES = [*DOCUMENTS, *DOCUMENTS[:40], *DOCUMENTS[20:60], *[DOCUMENTS[3]] * 50]
SPLITS = ("train", "validation")
Build = Callable[..., Manifest]


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 12):
        yield


@pytest.fixture
def build(tokenizer: Tokenizer, tmp_path: Path) -> Build:
    """Builds documents into the folder of a name, like `build_documents`."""

    def run(documents: Sequence[str], name: str, *how: Any, **settings: Any) -> Manifest:
        return build_documents(documents, tmp_path / name, tokenizer, *how, **settings).manifest

    return run


def check_same(out: Path, alone: Path) -> Counts:
    """The same rows as of a build of the documents that stay, and all tokens are in rows or counted as dropped.

    Without special tokens, the rows of each pass hold the tokens that were read minus those that were dropped.
    """
    assert digest_shards(out) == digest_shards(alone)
    found, wanted = open_shards(out).manifest, open_shards(alone).manifest
    for name in ("documents_digest", "splits", "digest"):
        assert getattr(found, name) == getattr(wanted, name)
    for manifest in (found, wanted):
        counts, splits = manifest.counts, manifest.splits.values()
        num_specials = sum(3 * split.num_rows - (split.num_unpaired or 0) for split in splits)
        num_text = sum(split.num_tokens for split in splits) - num_specials
        dropped = (counts.duplicate_tokens or 0) + (counts.near_duplicate_tokens or 0)
        assert num_text == manifest.config.examples.dupe_factor * (counts.tokens - dropped)
    return found.counts


def test_all_copies_are_kept_on_request(build, tmp_path):
    build(DOCUMENTS, "once")
    build(COPIES, "out", keep_duplicates=True)
    build(COPIES, "again", MultiprocessEngine(2), "mixed", keep_duplicates=True)
    assert check_same(tmp_path / "again", tmp_path / "out").duplicate_documents is None
    by_key = Counter(map(document_key, COPIES))
    for split in SPLITS:
        kept, once = (
            Counter((row.document_key, mixtures.describe(row)) for row in open_shards(tmp_path / name, split))
            for name in ("out", "once")
        )
        assert kept == Counter({(key, row): count * by_key[key] for (key, row), count in once.items()})


def test_rows_of_different_passes_are_not_copies(build, tmp_path):
    build(["the\n\nwater"], "once", dupe_factor=4)
    build(["the\n\nwater"] * 2, "twice", dupe_factor=4)
    assert check_same(tmp_path / "twice", tmp_path / "once").duplicate_documents == 1
    assert len(open_shards(tmp_path / "twice")) == 4


@pytest.mark.parametrize(("num_shards", "slices_read"), [(None, 1), (3, 6)])
def test_many_copies_change_neither_shards_nor_record_batches(num_shards, slices_read, build, tmp_path, monkeypatch):
    """A slice holds more bytes than are read at once, so it is read in parts."""
    monkeypatch.setattr("albert_data.pipeline.shard_plan.SLICE_BYTES", 1 << 12)
    monkeypatch.setattr("albert_data.pipeline.shard_plan.SHARD_BYTES", 1 << 14)
    monkeypatch.setattr("albert_data.pipeline.merge_rows._SLICES_READ", slices_read)
    build(DOCUMENTS[:60], "once", layout="jsonl", num_shards=num_shards)
    build(DOCUMENTS[:60] * 9, "often", layout="jsonl", num_shards=num_shards)
    check_same(tmp_path / "often", tmp_path / "once")
    assert len(list((tmp_path / "once/train").iterdir())) == (num_shards or 4)


def test_different_documents_with_the_same_key_are_both_kept(build, tmp_path, monkeypatch):
    """Each document has one of three keys, and occurs twice."""
    monkeypatch.setattr("albert_data.clean.documents.xxh3_64_intdigest", lambda text: len(text) % 3)
    build(DOCUMENTS[:60], "once", max_seq_len=512)
    build(DOCUMENTS[:60] * 2, "twice", max_seq_len=512)
    assert check_same(tmp_path / "twice", tmp_path / "once").duplicate_documents == 60
    assert sum(len(open_shards(tmp_path / "once", split)) for split in SPLITS) >= 60


texts = st.text(st.sampled_from("the water a. \n"), min_size=1, max_size=30).filter(lambda text: text.strip())


@given(st.lists(texts, min_size=1, max_size=9), st.sampled_from(fixtures.LAYOUTS), st.integers(0, 2**63 - 1))
def test_any_list_of_documents_gives_the_bytes_of_its_set(tokenizer, tmp_path_factory, documents, layout, seed):
    folder = tmp_path_factory.mktemp("any")
    documents = [*documents, "One that surely holds a token."]
    alone = list({fixtures.canonical(document): document for document in documents}.values())
    options: dict[str, Any] = {"seed": seed, "max_seq_len": 8, "sentences": "lines"}
    skipped = []
    for name, some, how in (("list", documents, layout), ("set", alone, "txt")):
        made = build_documents(some, folder / name, tokenizer, layout=how, **options).manifest
        skipped.append(made.damage.get("no_tokens", 0))
    counts = check_same(folder / "list", folder / "set")
    assert counts.duplicate_documents == len(documents) - len(alone) - (skipped[0] - skipped[1])


# ---- near-duplicates ----


def rank(documents: Sequence[str]) -> list[str]:
    def size(one: str) -> int:
        return len("\n".join(" ".join(line.split()) for line in one.splitlines()).encode())

    return sorted(set(documents), key=lambda one: (-size(one), document_key(one)))


ORIGINALS = fixtures.make_documents(90, seed=11)
# And longer copies of every third.
SIMILAR = [*ORIGINALS, *(f"{one}\nRead by {number}." for number, one in enumerate(ORIGINALS[::3]))]
STAYING = [one for one, similar in dedup_reference.find_staying(rank(SIMILAR), 0.8).items() if similar is None]


def test_a_build_is_that_of_the_documents_that_stay(build, tmp_path):
    alone = build(STAYING, "alone").counts
    build([*SIMILAR, *SIMILAR[40:100]], "out", MultiprocessEngine(2), "mixed", drop_near_duplicates=True)
    counts = check_same(tmp_path / "out", tmp_path / "alone")
    assert counts.near_duplicate_documents == len(SIMILAR) - len(STAYING) >= 20
    assert counts.tokens - (counts.duplicate_tokens or 0) - (counts.near_duplicate_tokens or 0) == alone.tokens


def test_nothing_similar_changes_nothing(build):
    dropping, plain = build(STAYING, "dropping", drop_near_duplicates=True), build(STAYING, "plain")
    assert (dropping.digest, dropping.documents_digest) == (plain.digest, plain.documents_digest)
    assert plain.near_duplicates is None


def is_similar(one: str, other: str) -> bool:
    return dedup_reference.measure_similarity(one, other) >= 0.8


def test_a_build_killed_while_it_writes_shards_compares_no_documents_again(tokenizer, tmp_path, monkeypatch):
    class EngineThatEndsInMerge(InlineEngine):
        def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
            for found in super().run(job, tasks):
                yield found
                if isinstance(job, MergeRows):
                    raise KeyboardInterrupt

    settings = {"drop_near_duplicates": True, "num_shards": 6}
    whole = build_documents(SIMILAR, tmp_path / "whole", tokenizer, **settings).manifest
    with pytest.raises(KeyboardInterrupt):
        run_build(tmp_path / "whole-in", tmp_path / "out", tokenizer, EngineThatEndsInMerge(), **settings)
    monkeypatch.delattr(steps, "find_near_duplicates")
    assert run_build(tmp_path / "whole-in", tmp_path / "out", tokenizer, **settings).manifest == whole


def test_an_earlier_source_of_a_mixture_keeps_its_documents_and_weights_come_later(tokenizer, tmp_path):
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


def test_documents_for_validation_stay_and_training_lacks_what_is_similar(tokenizer, tmp_path):
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


def test_one_text_of_two_languages_counts_for_each_when_it_is_dropped(tokenizer, tmp_path):
    longer = [f"{one}\nRead by me." for one in ORIGINALS[:8]]
    assert all(map(is_similar, longer, ORIGINALS))
    english = [(one, "en") for one in [*ORIGINALS[:8], *ORIGINALS[3:6], *longer, *ORIGINALS[20:30]]]
    german = [(one, "de") for one in [*ORIGINALS[2:6], *ORIGINALS[28:32]]]
    kept = [(one, "en") for one in [*longer, *ORIGINALS[20:30]]] + german[4:]
    path = write_languages(tmp_path / "in.jsonl", random.Random(3).sample(found := english + german, len(found)))
    settings = {"drop_near_duplicates": True, "language_field": "lang"}
    made = run_build(path, tmp_path / "out", tokenizer, **settings).manifest
    write_languages(tmp_path / "kept.jsonl", kept)
    wanted = run_build(tmp_path / "kept.jsonl", tmp_path / "kept", tokenizer, **settings).manifest
    counts = check_same(tmp_path / "out", tmp_path / "kept")
    assert made.near_duplicates
    assert made.near_duplicates.sources == {"de": 4, "en": 8}
    assert (counts.duplicate_documents, counts.near_duplicate_documents) == (3, 12)
    assert counts.documents - 3 - 12 == wanted.counts.documents == len(kept)


@refused(
    ({"drop_near_duplicates": True, "similarity": 0.4}, ConfigError, "similarity is 0.4 & 0.5 to 1.0"),
    ({"drop_near_duplicates": True, "similarity": 1.01}, ConfigError, "similarity is 1.01"),
    ({"similarity": 0.7}, ConfigError, "which only drop_near_duplicates uses"),
    ({"drop_near_duplicates": True, "keep_duplicates": True}, ConfigError, "leave out keep_duplicates"),
    ({"group_field": "book", "keep_duplicates": True}, ConfigError, "leave out keep_duplicates"),
    ({"group_field": ""}, ConfigError, "group_field is ''"),
)
def test_settings_that_do_not_fit_are_refused(call, kind, named):
    check_refused(lambda: fixtures.make_config(**call), kind, named)
