"""Shares by size to a power (`alpha`): what each source gets, and that a build by them is one by weights."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import InterruptedEngine, PicklingEngine, digest_shards
from hypothesis import given
from hypothesis import strategies as st
from mixture_fixtures import Mixed, build_mixture, count_text, write_mixture

from albert_data.config import TextConfig
from albert_data.corpus.mixtures import find_sources
from albert_data.corpus.sources import MAX_PASSES, MixtureSource, share_tokens
from albert_data.errors import ConfigError, OutputError
from albert_data.inspect.verify import verify
from albert_data.jobs.engine import Engine, MultiprocessEngine
from albert_data.jobs.progress import NullProgress
from albert_data.pipeline import choosing, document_lists
from albert_data.pipeline.build import build_shards
from albert_data.pipeline.estimate import estimate
from albert_data.shards.manifest import MixedSource
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer

POOL = fixtures.make_documents(60, seed=17)
SOURCES = [
    Mixed(documents=POOL[:34]),
    Mixed(documents=[*POOL[30:48], *POOL[:5]], keys={"sentences": '"lines"'}),
    Mixed(documents=POOL[46:49]),
]


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 12), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(document_lists, "RANGE_DOCUMENTS", 7)
        yield


def write(folder: Path, sources: Sequence[Mixed] = SOURCES, layout: str = "txt", seed: int = 0, **keys: float) -> Path:
    path = write_mixture(folder, sources, layout, seed)
    path.write_text("\n".join([*(f"{key} = {value}" for key, value in keys.items()), path.read_text()]))
    return path


# ---- the shares ----


def find_shares(sizes: Sequence[int], alpha: float, max_passes: float) -> list[float]:
    """The tokens of each source by a search for the common factor at which they are as many as all sources have."""
    low, high = 0.0, 2.0 * sum(sizes) + 1

    def take(factor: float) -> list[float]:
        return [min(factor * size**alpha, max_passes * size) if size else 0.0 for size in sizes]

    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(take(middle)) < sum(sizes) else (low, middle)
    return take(low)


def name_sources(count: int, alpha: float, max_passes: float) -> list[MixtureSource]:
    settings: dict[str, Any] = {"paths": ("x",), "text": TextConfig(), "alpha": alpha, "max_passes": max_passes}
    return [MixtureSource(number=number, name=f"s{number}", **settings) for number in range(count)]


@given(
    sizes=st.lists(st.integers(0, 10**12), min_size=1, max_size=8),
    alpha=st.floats(0, 1),
    max_passes=st.floats(1, MAX_PASSES),
)
def test_shares_are_as_the_sizes_to_a_power_and_what_a_source_can_not_give_the_others_do(
    sizes: list[int], alpha: float, max_passes: float
):
    sources = name_sources(len(sizes), alpha, max_passes)
    found = list(share_tokens(dict(reversed(list(zip(sources, sizes, strict=True))))).values())
    by_number = share_tokens(dict(zip(sources, sizes, strict=True)))
    assert sorted(found) == sorted(by_number.values())
    wanted = find_shares(sizes, alpha, max_passes)
    assert [by_number[source] for source in sources] == pytest.approx(wanted, rel=1e-6, abs=len(sizes))
    assert sum(found) == pytest.approx(sum(sizes), abs=len(sizes))


# ---- builds ----


def read_tokens(out: Path) -> list[int]:
    """The tokens of text of each source, counted in the rows."""
    found = [0] * len(open_shards(out).manifest.sources or ())
    for split in ("train", "validation"):
        for row in open_shards(out, split):
            assert row.source is not None
            found[row.source] += count_text(row)
    return found


def find_largest(documents: Sequence[str], tokenizer: Tokenizer) -> int:
    return max(len(tokenizer.encode(text.splitlines())[0]) for text in documents)


def check_shares(mixture: Sequence[MixedSource], tokens: Sequence[int], largest: int, dupe_factor: int) -> None:
    """Each source has the tokens of its share, within half of its largest document."""
    alpha, max_passes = mixture[0].alpha, mixture[0].max_passes
    assert alpha is not None
    assert max_passes is not None
    wanted = find_shares([one.num_tokens for one in mixture], alpha, max_passes)
    for one, found, share in zip(mixture, tokens, wanted, strict=True):
        assert found == one.num_used_tokens
        assert abs(found - share * dupe_factor) <= largest / 2 + 1
        assert one.passes <= max_passes * dupe_factor


@pytest.mark.parametrize("dupe_factor", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("max_passes", [1.0, 2.5, 20.0])
def test_the_rows_have_the_shares(
    alpha: float, max_passes: float, dupe_factor: int, tokenizer: Tokenizer, tmp_path: Path
):
    path = write(tmp_path, alpha=alpha, max_passes=max_passes)
    report = build_mixture(path, tmp_path / "out", tokenizer, dupe_factor=dupe_factor)
    largest = find_largest(POOL, tokenizer)
    check_shares(report.manifest.mixture or (), read_tokens(tmp_path / "out"), largest, dupe_factor)
    assert not list(verify(tmp_path / "out"))


def test_very_many_sources_are_counted_in_fewer_ranges_of_keys(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(choosing, "_CELL_BITS", 7)
    assert choosing.choose_bucket_bits(3) == 5
    report = build_mixture(write(tmp_path, alpha=0.3), tmp_path / "out", tokenizer)
    mixture, largest = report.manifest.mixture or (), find_largest(POOL, tokenizer)
    tokens = max(one.num_tokens for one in mixture)
    check_shares(mixture, read_tokens(tmp_path / "out"), 2 * (largest + tokens // 32), 1)


def test_a_build_by_alpha_is_one_by_the_weights_that_it_gives(tokenizer: Tokenizer, tmp_path: Path):
    report = build_mixture(write(tmp_path / "alpha", alpha=0.3), tmp_path / "out", tokenizer, dupe_factor=2)
    mixture = report.manifest.mixture or ()
    assert [(one.weight, one.tokens, one.alpha, one.max_passes) for one in mixture] == [(None, None, 0.3, 4.0)] * 3
    weights = [Fraction(one.passes) / 2 for one in mixture]
    sources = [Mixed(**{**vars(one), "weight": float(weight)}) for one, weight in zip(SOURCES, weights, strict=True)]
    build_mixture(write_mixture(tmp_path / "weights", sources), tmp_path / "same", tokenizer, dupe_factor=2)
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "same")


@pytest.fixture(scope="module")
def reference(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("reference")
    build_mixture(write(folder, alpha=0.3), folder / "out", tokenizer, num_shards=3)
    return digest_shards(folder / "out")


@pytest.mark.parametrize("layout", fixtures.LAYOUTS)
@pytest.mark.parametrize("engine", [PicklingEngine(), MultiprocessEngine(2)])
def test_layout_copies_and_workers_change_no_byte(
    layout: str, engine: Engine, reference: Mapping[str, str], tokenizer: Tokenizer, tmp_path: Path
):
    copied = [Mixed(**{**vars(one), "documents": [*one.documents, *one.documents[::2]]}) for one in SOURCES]
    path = write(tmp_path, copied, layout, seed=1, alpha=0.3)
    build_mixture(path, tmp_path / "out", tokenizer, engine, num_shards=3)
    assert digest_shards(tmp_path / "out") == reference


@pytest.mark.parametrize("results", range(0, 17, 2))
def test_an_interrupted_build_resumes_to_the_same_bytes(
    results: int, reference: Mapping[str, str], tokenizer: Tokenizer, tmp_path: Path
):
    path, out = write(tmp_path, layout="mixed", alpha=0.3), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        build_mixture(path, out, tokenizer, InterruptedEngine(results), num_shards=3)
    build_mixture(path, out, tokenizer, num_shards=3)
    assert digest_shards(out) == reference
    assert not (out / ".build").exists()


class Saying(NullProgress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def start(self, stage: str, total: int | None, unit: str = "B") -> None:
        self.said.append(stage)

    def say(self, line: str) -> None:
        self.said.append(line)


def test_the_shares_are_said_before_rows_are_made(tokenizer: Tokenizer, tmp_path: Path):
    config, progress = fixtures.make_config(), Saying()
    inputs = find_sources([str(write(tmp_path, alpha=0.3))], text=config.text)
    report = build_shards(inputs, tmp_path / "out", tokenizer, config, fixtures.InlineEngine(), progress)
    mixture, said = report.manifest.mixture or (), progress.said
    total = sum(one.num_used_tokens for one in mixture)
    at = said.index(f"by alpha the sources give {total:,} tokens of text:")
    first = mixture[0]
    share = f"{100 * first.num_used_tokens / total:.2f} %"
    assert said[at + 1] == f"  source 0: {share}, {first.passes:.3g} passes over {first.num_tokens:,} tokens"
    assert said[at - 1] == "counting tokens"
    assert said[at + 4] == "tokenising, pairing, masking"


def test_sizes_are_those_of_the_documents_that_stay(tokenizer: Tokenizer, tmp_path: Path):
    """Near-duplicates, copies and documents with text of a benchmark count in no size."""
    words = [" ".join(random.Random(number).choices(fixtures.WORDS, k=80)) for number in range(30)]
    similar = [f"{text} by me." for text in words[:10]]
    sources = [
        Mixed(documents=[*words[:14], *similar, *words[:3]]),
        Mixed(documents=words[12:28]),
        Mixed(documents=[words[20], words[29]], weight=0.0),
    ]
    path = write(tmp_path, sources, alpha=0.5, max_passes=9)
    report = build_mixture(path, tmp_path / "out", tokenizer, drop_near_duplicates=True)
    mixture, counts = report.manifest.mixture or (), report.manifest.counts
    assert (counts.near_duplicate_documents, counts.contaminated_documents) == (10, 1)
    assert [one.num_documents for one in mixture] == [14, 13, 2]
    largest = find_largest([*words, *similar], tokenizer)
    check_shares(mixture[:2], read_tokens(tmp_path / "out")[:2], largest, 1)
    assert (mixture[2].alpha, mixture[2].num_used_tokens) == (None, 0)


def test_another_alpha_is_another_build(tokenizer: Tokenizer, tmp_path: Path):
    path = write(tmp_path, alpha=0.3)
    build_mixture(path, tmp_path / "out", tokenizer)
    assert build_mixture(path, tmp_path / "out", tokenizer).was_finished
    path.write_text(path.read_text().replace("alpha = 0.3", "alpha = 0.5"))
    with pytest.raises(OutputError, match=r"alpha of source source 0 is 0\.3 there and 0\.5 here"):
        build_mixture(path, tmp_path / "out", tokenizer)


def test_passes_and_dupe_factor_together_are_limited(tokenizer: Tokenizer, tmp_path: Path):
    with pytest.raises(ConfigError, match="has the weight 600, times dupe_factor 2; at most 1,000 passes"):
        build_mixture(write(tmp_path, alpha=0.3, max_passes=600), tmp_path / "out", tokenizer, dupe_factor=2)


def test_an_estimate_knows_the_shares(tokenizer: Tokenizer, tmp_path: Path):
    config = fixtures.make_config(pairs="none", short_seq_prob=0.0)
    sources = [Mixed(documents=POOL[:40]), Mixed(documents=POOL[40:57]), Mixed(documents=POOL[57:])]
    path = write(tmp_path, sources, alpha=0.0, max_passes=20)
    report = build_mixture(path, tmp_path / "out", tokenizer, pairs="none", short_seq_prob=0.0)
    found = estimate(find_sources([str(path)], text=config.text), tokenizer, config, 1, NullProgress())
    assert found is not None
    rows = sum(split.num_rows for split in report.manifest.splits.values())
    assert found.rows == pytest.approx(rows, rel=0.1)
