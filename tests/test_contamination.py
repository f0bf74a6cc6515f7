"""A source of weight 0 takes all documents out of the others that contain 13 words of one of its texts in a row."""

from __future__ import annotations

import random
from collections.abc import Iterator

import build_fixtures as fixtures
import numpy as np
import pytest
from build_fixtures import InterruptedEngine, digest_shards, keys_of
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from mixture_fixtures import Mixed, build_mixture, write_mixture
from refusals import check_refused

from albert_data.cli.main import cli
from albert_data.errors import InputError
from albert_data.shards.manifest_file import read_manifest
from albert_data.survey import benchmarks
from albert_data.survey.contamination import find_contaminated, hash_grams
from albert_data.survey.gram_index import index_grams, sort_grams


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 11):
        yield


# ---- against plain Python ----


def list_grams(text: str) -> set[tuple[str, ...]]:
    words: list[str] = []
    for part in text.split():
        word = ""
        for letter in part:
            if "\u4e00" <= letter <= "\u9fff":
                words += [word, letter] if word else [letter]
                word = ""
            else:
                word += letter
        words += [word] if word else []
    lens = [18 if "\u4e00" <= word <= "\u9fff" else 13 for word in words]
    grams = {tuple(words[i : i + n]) for i, n in enumerate(lens) if i + n <= len(words)}
    return grams or ({tuple(words)} if words else set())


def flatten(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    data = [fixtures.canonical(text) for text in texts]
    return np.frombuffer(b"".join(data), np.uint8), np.cumsum([0, *map(len, data)])


some_texts = st.lists(
    st.lists(st.sampled_from(["a", "b", "longer-words-too", "的", "了x", "\n"]), min_size=1, max_size=40).map(" ".join),
    min_size=1,
    max_size=6,
).map(lambda texts: [text for text in texts if text.strip()])


@given(benchmark=some_texts, texts=some_texts)
def test_documents_are_found_as_in_plain_python(benchmark, texts):
    wanted = set[tuple[str, ...]]().union(*map(list_grams, benchmark))
    hashes, offsets = hash_grams(*flatten(benchmark))
    assert len(offsets) == len(benchmark) + 1
    assert len(sort_grams(hashes)) == len(wanted)
    found = find_contaminated(*flatten(texts), index_grams(sort_grams(hashes)))
    assert found.tolist() == [bool(list_grams(text) & wanted) for text in texts]


# ---- builds ----

POOL = fixtures.make_documents(40, seed=31)
BENCHMARK = [" ".join(f"word{20 * number + i}" for i in range(15)) for number in range(4)]
SHORT = "A question of six words?"


def plant(document: str, text: str) -> str:
    """In the middle of a line."""
    lines = document.split("\n")
    return "\n".join([*lines[:1], f"So it {text} said", *lines[1:]])


def make_sources(order: int) -> tuple[list[Mixed], list[str], list[str]]:
    """Sources, and the documents that stay and that are left out."""
    clean = [*POOL[:20], " ".join(BENCHMARK[0].split()[:12]) + " else", f"{SHORT} Or more."]
    dirty = [plant(POOL[20 + i], " ".join(text.split()[:13])) for i, text in enumerate(BENCHMARK)]
    dirty += [BENCHMARK[1], f"  {SHORT}\n", BENCHMARK[2].replace(" ", "\n")]
    benchmark = Mixed(documents=[*BENCHMARK, SHORT], weight=0.0)
    others = [Mixed(documents=[*clean[:9], *dirty[:3]]), Mixed(documents=[*clean[9:], *dirty[3:]], weight=2.0)]
    return [*others[:order], benchmark, *others[order:]], clean, dirty


@pytest.mark.parametrize("order", [0, 1, 2])
def test_only_documents_without_text_of_the_benchmark_stay(order, tmp_path, tokenizer):
    sources, clean, dirty = make_sources(order)
    build_mixture(write_mixture(tmp_path, sources), tmp_path / "out", tokenizer)
    train, validation = keys_of(tmp_path / "out")
    assert train | validation == set(map(fixtures.document_key, clean))
    counts = read_manifest(tmp_path / "out").counts
    assert (counts.contaminated_documents, counts.documents) == (len(dirty), len(clean) + 5)
    result = CliRunner().invoke(cli, ["inspect", str(tmp_path / "out"), "-n", "0"])
    assert f"other documents with text of a benchmark left out {len(dirty)}" in " ".join(result.stdout.split())


def test_a_resumed_build_reads_no_benchmark_again(tmp_path, tokenizer, monkeypatch):
    path = write_mixture(tmp_path, make_sources(1)[0])
    build_mixture(path, tmp_path / "out", tokenizer)
    with pytest.raises(KeyboardInterrupt):
        build_mixture(path, tmp_path / "killed", tokenizer, InterruptedEngine(3))
    monkeypatch.delattr(benchmarks, "hash_grams")
    build_mixture(path, tmp_path / "killed", tokenizer)
    assert fixtures.digest_folder(tmp_path / "killed") == fixtures.digest_folder(tmp_path / "out")


@pytest.mark.parametrize("settings", [{"drop_near_duplicates": True}, {"keep_duplicates": True}, {"pairs": "nsp"}])
def test_the_rest_is_a_build_without_the_documents(settings, tmp_path, tokenizer):
    sources, clean, _ = make_sources(2)
    build_mixture(write_mixture(tmp_path / "a", sources), tmp_path / "out", tokenizer, **settings)
    kept = [
        Mixed(documents=[text for text in one.documents if text in clean], weight=one.weight) for one in sources[:2]
    ]
    kept.append(Mixed(documents=random.Random(0).sample(BENCHMARK, 4), weight=0.0))
    build_mixture(write_mixture(tmp_path / "b", kept), tmp_path / "other", tokenizer, **settings)
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "other")
    assert read_manifest(tmp_path / "other").counts.contaminated_documents == 0


def test_without_a_benchmark_nothing_is_counted_and_one_without_text_is_refused(finished, tokenizer, tmp_path):
    assert read_manifest(finished).counts.contaminated_documents is None
    path = write_mixture(tmp_path, [Mixed(documents=POOL[:9]), Mixed(documents=[" \n "], weight=0.0)])
    named = "source 'source 1' has the weight 0 & holds no text; check its paths"
    check_refused(lambda: build_mixture(path, tmp_path / "out", tokenizer), InputError, named)
