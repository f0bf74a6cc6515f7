"""A text in NFC and in other forms is one document: which form stays, in every kind of build."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import mixture_fixtures as mixtures
import pytest
from build_fixtures import InlineEngine, digest_shards
from hypothesis import given
from hypothesis import strategies as st
from toy_language import train_model

from albert_data.corpus.mixtures import find_sources
from albert_data.inspect.verify import verify
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.pipeline.build import BuildReport, build_shards
from albert_data.shards.manifest_file import read_manifest
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer

ACCENTS = str.maketrans({"e": "é", "o": "ộ", "k": "\u212a", "a": "å"})
POOL = [text.translate(ACCENTS) for text in fixtures.make_documents(14, seed=3)]


def forms_of(text: str) -> list[str]:
    """In NFC; decomposed; and with its first half decomposed, or its second."""
    composed, half = unicodedata.normalize("NFC", text), len(text) // 2
    decomposed = unicodedata.normalize("NFD", text)
    parts = (decomposed[: len(decomposed) // 2] + composed[half:], composed[:half] + decomposed[len(decomposed) // 2 :])
    return [composed, decomposed, *(part for part in parts if unicodedata.normalize("NFC", part) == composed)]


def choose(sources: Sequence[Sequence[str]]) -> list[list[str]]:
    """The documents of each source that stay, by the rule as it is written."""
    chosen: list[list[str]] = [[] for _ in sources]
    for key in dict.fromkeys(unicodedata.normalize("NFC", text) for texts in sources for text in texts):
        for texts, stays in zip(sources, chosen, strict=True):
            if found := [text for text in texts if unicodedata.normalize("NFC", text) == key]:
                stays.append(min(found, key=lambda text: (text != key, text.encode())))
                break
    return chosen


@cache
def get_tokenizer() -> Tokenizer:
    """One that gives each form of a text other ids."""
    texts = [form for text in POOL for form in forms_of(text)]
    lines = iter([line for text in texts for line in text.split("\n")])
    rules: dict[str, object] = {"normalization_rule_name": "identity", "vocab_size": 200}
    return Tokenizer(train_model(sentence_iterator=lines, **rules), "the tests' tokenizer")


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 10):
        yield


def run(folder: Path, sources: Sequence[Sequence[str]], kind: str, seed: int = 0, **options: Any) -> BuildReport:
    """Build a mixture of these sources, or a plain set of the last one, with the one before it as validation."""
    options = {"num_shards": 2, "validation_fraction": 0.3, **options}
    engine = MultiprocessEngine(2) if seed == 1 else InlineEngine()
    if kind == "mixture":
        path = mixtures.write_mixture(folder, [mixtures.Mixed(documents=texts) for texts in sources], "jsonl", seed)
        return mixtures.build_mixture(path, folder / "out", get_tokenizer(), engine, **options)
    paths = [folder / str(number) for number in range(len(sources))]
    for path, texts in zip(paths, sources, strict=True):
        fixtures.write_corpus(path, texts, "jsonl", random.Random(seed))
    options |= {"validation_fraction": 0.0} if len(paths) == 2 else {}
    config = fixtures.make_config(**options)
    inputs = find_sources([str(paths[-1])], text=config.text, validation=[str(path) for path in paths[:-1]])
    return build_shards(inputs, folder / "out", get_tokenizer(), config, engine)


some_texts = st.lists(st.sampled_from([form for text in POOL for form in forms_of(text)]), min_size=1, max_size=24)


@given(
    sources=st.lists(some_texts, min_size=2, max_size=2),
    kind=st.sampled_from(("plain", "validation", "mixture")),
    options=st.sampled_from(({}, {"drop_near_duplicates": True}, {"dupe_factor": 2, "pairs": "nsp"})),
    seed=st.integers(0, 1),
)
def test_a_build_of_all_forms_is_one_of_those_that_stay(sources, kind, options, seed, tmp_path_factory):
    sources = [[*POOL[:4], *sources[0]], [*sources[1], *POOL[-4:]]][-1 if kind == "plain" else -2 :]
    made, wanted = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("wanted")
    report = run(made, sources, kind, seed, **options)
    expected = run(wanted, choose(sources), kind, **options)
    assert digest_shards(made / "out") == digest_shards(wanted / "out")
    assert list(verify(made / "out")) == []
    assert not (made / "out" / ".build").exists(), "all files of the work are known"
    counts, fewer = report.manifest.counts, expected.manifest.counts
    assert counts.documents == sum(map(len, sources))
    num_left = sum(map(len, choose(sources)))
    left_out = (counts.left_out_documents or 0) + (counts.near_duplicate_documents or 0)
    assert counts.documents - (counts.duplicate_documents or 0) - left_out <= num_left
    assert counts.near_duplicate_documents == fewer.near_duplicate_documents


def test_with_alpha_one_form_of_all_languages_stays(tmp_path):
    composed, decomposed = zip(*(forms_of(text)[:2] for text in POOL), strict=True)
    texts = {"en": [*decomposed, *composed[:3]], "de": composed}
    lines = [json.dumps({"text": text, "lang": code}) for code, some in texts.items() for text in some]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    settings = {"language_field": "lang", "alpha": 0.5, "max_passes": 1.0}
    fixtures.run_build(tmp_path / "in.jsonl", tmp_path / "out", get_tokenizer(), **settings)
    manifest = read_manifest(tmp_path / "out")
    assert manifest.counts.uncomposed_documents == len(POOL)
    assert manifest.counts.duplicate_documents == len(POOL)
    kept = {(row.source, row.document_key) for row in open_shards(tmp_path / "out", "train")}
    kept |= {(row.source, row.document_key) for row in open_shards(tmp_path / "out", "validation")}
    assert len({key for _, key in kept}) == len(POOL)


@pytest.mark.parametrize("layout", ["txt", "jsonl", "one file"])
def test_nfc_makes_the_same_build_of_every_form(layout, tmp_path):
    digests = []
    for number in (0, 1):
        path = tmp_path / str(number)
        texts = [forms_of(text)[number] for text in POOL]
        fixtures.write_corpus(path, texts, "txt" if layout == "one file" else layout, random.Random(0))
        options = {"document_rule": "file"} if layout == "one file" else {}
        report = fixtures.run_build(path, tmp_path / f"out{number}", get_tokenizer(), unicode="nfc", **options)
        digests.append(report.manifest.digest)
    assert digests[0] == digests[1]
