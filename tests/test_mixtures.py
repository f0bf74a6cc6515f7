"""Mixtures: whose each document is, and how often it is used; test_golden_decisions has what changes no byte."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import mixture_fixtures as mixtures
import pytest
from build_fixtures import run_build
from hypothesis import given
from hypothesis import strategies as st
from mixture_fixtures import Mixed, build_mixture, expect, read_rows, write_mixture
from refusals import check_refused, refused
from test_contamination import list_grams

from albert_data.errors import ConfigError, InputError, OutputError
from albert_data.inspect.verify import verify
from albert_data.shards.manifest import MixedSource
from albert_data.survey import document_lists
from albert_data.tokenizer.model import Tokenizer

POOL = fixtures.make_documents(24, seed=5)
LINES, PROSE = {"sentences": '"lines"'}, {"sentences": '"prose"'}
WEIGHTS = (0.0, 0.3, 0.5, 1.0, 1.7, 2.0, 3.0)


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 12), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(document_lists, "RANGE_DOCUMENTS", 7)
        yield


class PlainBuilds:
    """The rows of each document of POOL in builds without a mixture, by rule of sentences and dupe factor."""

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        self._folder, self._tokenizer = folder, tokenizer
        fixtures.write_corpus(folder / "in", POOL, "txt", random.Random(0))
        self._rows: dict[tuple[str, int], dict[int, list[Any]]] = {}

    def read(self, sentences: str, dupe_factor: int) -> dict[int, list[Any]]:
        name = (sentences, dupe_factor)
        if name not in self._rows:
            out = self._folder / f"{sentences}-{dupe_factor}"
            run_build(self._folder / "in", out, self._tokenizer, sentences=sentences, dupe_factor=dupe_factor)
            self._rows[name] = read_rows(out)
        return self._rows[name]


@pytest.fixture(scope="module")
def plain(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> PlainBuilds:
    return PlainBuilds(tmp_path_factory.mktemp("plain"), tokenizer)


some_sources = st.lists(
    st.builds(
        Mixed,
        documents=st.lists(st.sampled_from(POOL), min_size=1, max_size=16),
        weight=st.sampled_from(WEIGHTS),
        keys=st.sampled_from((LINES, PROSE)),
    ),
    min_size=1,
    max_size=4,
)


@given(sources=some_sources, dupe_factor=st.sampled_from((1, 2)), layout=st.sampled_from(("txt", "jsonl.gz")))
def test_each_document_has_the_rows_of_its_first_source_as_often_as_that_says(
    sources, dupe_factor, layout, plain, tokenizer, tmp_path_factory
):
    """A document of n passes has the rows that it has in a plain build with dupe factor n, read as its source says."""
    folder = tmp_path_factory.mktemp("mixture")
    path, wanted, sources = write_mixture(folder, sources, layout), {}, leave_out_contaminated(sources)
    for document, (number, passes) in expect(sources, dupe_factor).items():
        rule = sources[number].keys["sentences"].strip('"')
        rows = plain.read(rule, passes)[fixtures.document_key(document)]
        wanted[fixtures.document_key(document)] = [(number, row) for _, row in rows]
    if not wanted:
        with pytest.raises(InputError, match="the mixture uses no document; raise the weights"):
            build_mixture(path, folder / "out", tokenizer, dupe_factor=dupe_factor)
        return
    report = build_mixture(path, folder / "out", tokenizer, dupe_factor=dupe_factor)
    assert read_rows(folder / "out") == wanted
    fixtures.check_split(folder / "out", expect(sources, dupe_factor), None)
    assert not list(verify(folder / "out"))
    check_counts(report.manifest.mixture or (), sources, dupe_factor)
    tokens = [0] * len(sources)
    for number, row in chain.from_iterable(wanted.values()):
        tokens[number] += count_tokens((number, row))
    assert [entry.num_used_tokens for entry in report.manifest.mixture or ()] == tokens
    assert report.manifest.sources == tuple(f"source {number}" for number in range(len(sources)))
    assert report.manifest.documents_digest == f"{sum(wanted) % 2**64:016x}"
    listed = [document for one in sources for document in one.documents]
    assert report.manifest.counts.duplicate_documents == len(listed) - len(set(listed))


def leave_out_contaminated(sources: list[Mixed]) -> list[Mixed]:
    grams = {gram for one in sources if one.weight == 0 for text in one.documents for gram in list_grams(text)}
    return [
        one if one.weight == 0 else replace(one, documents=[t for t in one.documents if not list_grams(t) & grams])
        for one in sources
    ]


def check_counts(found: tuple[MixedSource, ...], sources: list[Mixed], dupe_factor: int) -> None:
    used, owners = expect(sources, dupe_factor), {}
    for number, source in enumerate(sources):
        for document in source.documents:
            owners.setdefault(document, number)
    for number, entry in enumerate(found):
        own = [document for document, owner in owners.items() if owner == number]
        assert entry.num_documents == len(own)
        assert entry.num_used_documents == len([document for document in own if document in used])
        assert entry.passes == pytest.approx((sources[number].weight or 0) * dupe_factor)


def test_another_weight_is_another_build(tokenizer, tmp_path):
    out = tmp_path / "out"
    path = write_mixture(tmp_path, [Mixed(documents=POOL[:4], weight=1.0), Mixed(documents=POOL[4:8])])
    written = path.read_text()
    build_mixture(path, out, tokenizer)
    path.write_text(f"# The same.\n{written}")
    assert build_mixture(path, out, tokenizer).was_finished
    path.write_text(written.replace("weight = 1.0", "weight = 1.5"))
    with pytest.raises(OutputError, match=r"weight of source source 0 is 1\.0 there and 1\.5 here"):
        build_mixture(path, out, tokenizer)
    path.write_text(written.rpartition("[[source]]")[0])
    with pytest.raises(OutputError, match="the mixture has 2 sources there and 1 here"):
        build_mixture(path, out, tokenizer)
    with pytest.raises(OutputError, match="the mixture has 2 sources there and 0 here"):
        run_build(tmp_path / "s0", out, tokenizer)


# ---- budgets ----


@pytest.mark.parametrize("dupe_factor", [1, 3])
@pytest.mark.parametrize("budget", [1, 40, 123, 400])
def test_a_budget_takes_the_tokens_that_come_nearest(budget, dupe_factor, plain, tokenizer, tmp_path):
    sources = [Mixed(documents=POOL[:6]), Mixed(documents=POOL[3:], tokens=budget)]
    path = write_mixture(tmp_path, sources)
    report = build_mixture(path, tmp_path / "out", tokenizer, dupe_factor=dupe_factor)
    rows = plain.read("prose", 1)
    sizes = {one: sum(map(count_tokens, rows[fixtures.document_key(one)])) for one in POOL[6:]}
    ranked = sorted(POOL[6:], key=mixtures.choice_key)
    whole, rest = divmod(budget * dupe_factor, sum(sizes.values()))
    sums = [0, *accumulate(sizes[document] for document in ranked)]
    wanted = whole * sums[-1] + min(sums, key=lambda size: abs(size - rest))
    entry = (report.manifest.mixture or ())[1]
    assert entry.num_tokens == sums[-1]
    assert entry.num_used_tokens == wanted


def count_tokens(sourced: tuple[int | None, mixtures.Row]) -> int:
    _, (ids, *_, label) = sourced
    return len(ids) - (2 if label < 0 else 3)


# ---- settings that meet a mixture ----


def test_copies_that_are_kept_stay_in_their_sources(tokenizer, plain, tmp_path):
    sources = [Mixed(documents=[*POOL[:5], POOL[0]]), Mixed(documents=POOL[:7], weight=2.0)]
    report = build_mixture(write_mixture(tmp_path, sources), tmp_path / "out", tokenizer, keep_duplicates=True)
    assert [entry.num_used_documents for entry in report.manifest.mixture or ()] == [6, 7]
    assert report.manifest.counts.duplicate_documents is None
    once, found = plain.read("prose", 1), read_rows(tmp_path / "out")
    for number, document in enumerate(POOL[:7]):
        key = fixtures.document_key(document)
        of_first = (2 if number == 0 else 1 if number < 5 else 0) * len(once[key])
        assert [source for source, _ in found[key]].count(0) == of_first


def test_a_build_that_uses_one_document_puts_it_into_training(tokenizer, tmp_path):
    path = write_mixture(tmp_path, [Mixed(documents=POOL[:9], weight=0.0), Mixed(documents=POOL[8:10], weight=2.0)])
    report = build_mixture(path, tmp_path / "out", tokenizer)
    assert [split.num_rows > 0 for split in report.manifest.splits.values()] == [True, False]


@refused(
    ({"weight": 500.5}, ConfigError, "source 0 & the weight 500.5, times dupe_factor 2; at most 1,000"),
    ({"keys": {"text_field": '"body"'}}, InputError, "source 'source 0' of the mixture holds no document & \"text\""),
)
def test_a_source_of_too_many_passes_or_without_text_is_refused(call, kind, named, tokenizer, tmp_path):
    path = write_mixture(tmp_path, [Mixed(documents=POOL, **call), Mixed(documents=POOL)], "jsonl")
    check_refused(lambda: build_mixture(path, tmp_path / "out", tokenizer, dupe_factor=2), kind, named)
