"""Shares by size to a power (`alpha`), of the sources of a mixture and of languages: what each gets."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import numpy as np
import pytest
from build_fixtures import InlineEngine, digest_shards, run_build
from hypothesis import given
from hypothesis import strategies as st
from mixture_fixtures import Mixed, build_mixture, count_text, write_mixture
from refusals import check_refused, refused

from albert_data.config import BuildConfig, TextConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.corpus.mixtures import find_sources
from albert_data.corpus.sources import MAX_PASSES, MixtureSource, share_tokens
from albert_data.errors import ConfigError, InputError, OutputError
from albert_data.inspect.audit.audit import audit_folder
from albert_data.inspect.verify import verify
from albert_data.jobs.progress import NullProgress
from albert_data.pipeline.build import BuildReport, build_shards
from albert_data.pipeline.estimate import estimate_build
from albert_data.shards.manifest import MixedSource
from albert_data.shards.reader import open_shards
from albert_data.survey import budgets, document_lists, mixed_sources
from albert_data.survey.mixed_sources import list_languages
from albert_data.survey.passes import number_sources
from albert_data.tokenizer.model import Tokenizer

POOL = fixtures.make_documents(60, seed=17)
SOURCES = [
    Mixed(documents=POOL[:34]),
    Mixed(documents=[*POOL[30:48], *POOL[:5]], keys={"sentences": '"lines"'}),
    Mixed(documents=POOL[46:49]),
]

Build = Callable[..., BuildReport]
Record = tuple[str, str, str]  # language, group, text
LANGUAGES = ["de", "kea", "web cc", "zh"]


def name_language(number: int) -> str:
    return "zh" if number % 20 == 7 else "web cc" if number % 9 == 4 else "kea" if number % 7 == 3 else "de"


# German has two thirds of the text. Some documents are there in two languages, so they count in both.
ONCE = [(name_language(number), f"g{number % 19}", text) for number, text in enumerate(POOL)]
RECORDS = [*ONCE, *(("zh", f"g{number}", text) for number, (_, _, text) in enumerate(ONCE[:4]))]


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 12), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(document_lists, "RANGE_DOCUMENTS", 7)
        yield


def write_sources(folder: Path, sources: Sequence[Mixed] = SOURCES, **keys: float) -> Path:
    path = write_mixture(folder, sources)
    path.write_text("\n".join([*(f"{key} = {value}" for key, value in keys.items()), path.read_text()]))
    return path


def write_records(folder: Path, records: Sequence[Record] = RECORDS, layout: str = "one.jsonl") -> Path:
    """Write a JSON Lines or CSV file or, unless the layout is `one`, five of them; `copies` has half of all twice."""
    folder.mkdir(parents=True)
    records = random.Random(layout).sample(records, len(records))
    records = [*records, *records[::2]] if layout.startswith("copies") else records
    count, names = 1 if layout.startswith("one") else 5, ("lang", "group", "text")
    for part in range(count):
        rows = records[part::count]
        with (folder / f"{part}.{layout.split('.')[1]}").open("w", encoding="utf-8", newline="") as file:
            if layout.endswith("csv"):
                csv.writer(file).writerows([names, *rows])
            else:
                file.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    return folder


def build_languages(folder: Path, out: Path, tokenizer: Tokenizer, engine: Any = None, **settings: Any) -> BuildReport:
    return run_build(folder, out, tokenizer, engine, **{"language_field": "lang", "alpha": 0.3, **settings})


def prepare(kind: str, folder: Path, tokenizer: Tokenizer, **keys: float) -> Callable[..., BuildReport]:
    """Write the sources of a mixture, or records of languages, and return what builds them into a folder."""
    keys = {"alpha": 0.3, **keys}
    if kind == "mixture":
        return partial(build_mixture, write_sources(folder, **keys), tokenizer=tokenizer)
    return partial(build_languages, write_records(folder / "in"), tokenizer=tokenizer, **keys)


both = pytest.mark.parametrize("kind", ["mixture", "languages"])


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


@given(
    sizes=st.lists(st.integers(0, 10**12), min_size=1, max_size=8),
    alpha=st.floats(0, 1),
    max_passes=st.floats(1, MAX_PASSES),
)
def test_shares_are_as_the_sizes_to_a_power_and_what_a_source_can_not_give_the_others_do(sizes, alpha, max_passes):
    settings: dict[str, Any] = {"paths": ("x",), "text": TextConfig(), "alpha": alpha, "max_passes": max_passes}
    sources = [MixtureSource(number=number, name=f"s{number}", **settings) for number in range(len(sizes))]
    found = list(share_tokens(dict(reversed(list(zip(sources, sizes, strict=True))))).values())
    by_number = share_tokens(dict(zip(sources, sizes, strict=True)))
    assert sorted(found) == sorted(by_number.values())
    wanted = find_shares(sizes, alpha, max_passes)
    assert [by_number[source] for source in sources] == pytest.approx(wanted, rel=1e-6, abs=len(sizes))
    assert sum(found) == pytest.approx(sum(sizes), abs=len(sizes))


def check_shares(mixture: Sequence[MixedSource], out: Path, largest: int, dupe_factor: int = 1) -> None:
    """Each source has the tokens of its share in its rows, within half of its largest document."""
    tokens = [0] * len(open_shards(out).manifest.sources or ())
    for split in ("train", "validation"):
        for row in open_shards(out, split):
            assert row.source is not None
            tokens[row.source] += count_text(row)
    alpha, max_passes = mixture[0].alpha, mixture[0].max_passes
    assert alpha is not None
    assert max_passes is not None
    wanted = find_shares([one.num_tokens for one in mixture], alpha, max_passes)
    for one, found, share in zip(mixture, tokens, wanted, strict=False):
        assert found == one.num_used_tokens
        assert abs(found - share * dupe_factor) <= largest / 2 + 1
        assert one.passes <= max_passes * dupe_factor


def find_largest(documents: Sequence[str], tokenizer: Tokenizer) -> int:
    return max(len(tokenizer.encode(text.splitlines())[0]) for text in documents)


@both
@pytest.mark.parametrize(
    ("alpha", "max_passes", "dupe_factor"),
    [(0.0, 20.0, 1), (0.3, 2.5, 1), (0.7, 2.0, 3), (1.0, 1.0, 3)],
)
def test_the_rows_have_the_shares(kind, alpha, max_passes, dupe_factor, tokenizer, tmp_path):
    build = prepare(kind, tmp_path, tokenizer, alpha=alpha, max_passes=max_passes)
    mixture = build(tmp_path / "out", dupe_factor=dupe_factor).manifest.mixture or ()
    names = LANGUAGES if kind == "languages" else ["source 0", "source 1", "source 2"]
    assert [one.name for one in mixture] == names
    assert {(one.alpha, one.max_passes, one.weight, one.tokens) for one in mixture} == {(alpha, max_passes, None, None)}
    check_shares(mixture, tmp_path / "out", find_largest(POOL, tokenizer), dupe_factor)
    assert not list(verify(tmp_path / "out"))


def test_very_many_sources_are_counted_in_fewer_ranges_of_keys(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(budgets, "_CELL_BITS", 7)
    assert budgets.choose_bucket_bits(3) == 5
    mixture = prepare("mixture", tmp_path, tokenizer)(tmp_path / "out").manifest.mixture or ()
    tokens = max(one.num_tokens for one in mixture)
    check_shares(mixture, tmp_path / "out", 2 * (find_largest(POOL, tokenizer) + tokens // 32))


def test_a_build_by_alpha_is_one_by_the_weights_that_it_gives(tokenizer, tmp_path):
    report = prepare("mixture", tmp_path / "alpha", tokenizer)(tmp_path / "out", dupe_factor=2)
    weights = [float(Fraction(one.passes) / 2) for one in report.manifest.mixture or ()]
    sources = [Mixed(**{**vars(one), "weight": weight}) for one, weight in zip(SOURCES, weights, strict=True)]
    build_mixture(write_mixture(tmp_path / "weights", sources), tmp_path / "same", tokenizer, dupe_factor=2)
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "same")


@pytest.mark.parametrize("settings", [{}, {"group_field": "group"}, {"keep_duplicates": True}, {"dupe_factor": 2}])
def test_a_build_of_languages_is_that_of_a_mixture_with_a_source_for_each(settings, tokenizer, tmp_path):
    lines = ["alpha = 0.3"]
    for name in LANGUAGES:
        language = "und" if name == "web cc" else name
        lines += ["[[source]]", f'name = "{name}"', 'paths = "in"', f'language = "{language}"']
        lines += [f"where = \"lang == '{name}'\""]
    (tmp_path / "mixture.toml").write_text("\n".join(lines))
    build_languages(write_records(tmp_path / "in", ONCE), tmp_path / "out", tokenizer, **settings)
    build_mixture(tmp_path / "mixture.toml", tmp_path / "same", tokenizer, **settings)
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "same")


@pytest.mark.parametrize(
    "settings", [{}, {"group_field": "group"}, {"keep_duplicates": True}, {"drop_near_duplicates": True}]
)
def test_an_alpha_of_1_leaves_the_text_as_it_is(settings, tokenizer, tmp_path):
    longer = [(name, group, f"{text}\nRead by me.") for name, group, text in RECORDS[10:14]]
    folder = write_records(tmp_path / "in", [*RECORDS, *longer], "copies.csv")
    made = build_languages(folder, tmp_path / "out", tokenizer, alpha=1.0, **settings).manifest
    plain = build_languages(folder, tmp_path / "plain", tokenizer, alpha=None, **settings).manifest
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "plain")
    assert (made.counts, made.documents_digest) == (plain.counts, plain.documents_digest)
    assert made.near_duplicates == plain.near_duplicates
    assert plain.mixture is None


@pytest.mark.parametrize(("fraction", "seed"), [(None, 0), (None, 3), (0.3, 1), (0.3, 2)])
def test_documents_of_a_group_and_a_text_of_two_languages_lie_in_one_split(fraction, seed, tokenizer, tmp_path):
    build = prepare("languages", tmp_path, tokenizer, max_passes=1.5)
    build(tmp_path / "out", group_field="group", validation_fraction=fraction, seed=seed)
    train, validation = fixtures.keys_of(tmp_path / "out")
    assert validation
    assert not train & validation
    for group in {group for _, group, _ in ONCE}:
        keys = {fixtures.document_key(text) for _, name, text in ONCE[4:] if name == group}
        assert not keys & train or not keys & validation


def test_inputs_may_name_the_languages(tokenizer, tmp_path):
    records = [record for record in RECORDS if record[0] in ("de", "kea")]
    for name in ("de", "kea"):
        write_records(tmp_path / name, [record for record in records if record[0] == name])
    config = fixtures.make_config(alpha=0.3)
    inputs = find_inputs([f"{tmp_path / name}:{name}" for name in ("kea", "de")], text=config.text)
    build_shards(inputs, tmp_path / "out", tokenizer, config, InlineEngine())
    build_languages(write_records(tmp_path / "all", records), tmp_path / "same", tokenizer)
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "same")


# ---- sizes ----

WORDS = [" ".join(random.Random(number).choices(fixtures.WORDS, k=80)) for number in range(40)]
SIMILAR = [f"{text} by me." for text in WORDS[:10]]


def test_sizes_of_sources_are_those_of_the_documents_that_stay(tokenizer, tmp_path):
    """Near-duplicates, copies and documents with text of a benchmark count in no size."""
    sources = [
        Mixed(documents=[*WORDS[:14], *SIMILAR, *WORDS[:3]]),
        Mixed(documents=WORDS[12:28]),
        Mixed(documents=[WORDS[20], WORDS[29]], weight=0.0),
    ]
    path = write_sources(tmp_path, sources, alpha=0.5, max_passes=9)
    report = build_mixture(path, tmp_path / "out", tokenizer, drop_near_duplicates=True)
    mixture, counts = report.manifest.mixture or (), report.manifest.counts
    assert (counts.near_duplicate_documents, counts.contaminated_documents) == (10, 1)
    assert [one.num_documents for one in mixture] == [14, 13, 2]
    check_shares(mixture[:2], tmp_path / "out", find_largest([*WORDS[:30], *SIMILAR], tokenizer))
    assert (mixture[2].alpha, mixture[2].num_used_tokens) == (None, 0)


def test_an_estimate_is_near_the_rows_that_shares_give(tokenizer, tmp_path):
    path = write_records(tmp_path / "in", RECORDS * 40)
    settings: dict[str, Any] = {"pairs": "none", "short_seq_prob": 0.0, "max_passes": 40.0, "keep_duplicates": True}
    manifest = build_languages(path, tmp_path / "out", tokenizer, **settings).manifest
    config = fixtures.make_config(language_field="lang", alpha=0.3, **settings)
    found = estimate_build(find_inputs([str(path)], text=config.text), tokenizer, config, NullProgress())
    assert found is not None
    assert found.rows == pytest.approx(sum(split.num_rows for split in manifest.splits.values()), rel=0.1)


# ---- what is said and refused ----


def test_the_largest_shares_are_said(tokenizer, tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(mixed_sources, "_SHOWN", 2)
    monkeypatch.setattr(NullProgress, "say", lambda self, line: said.append(line))
    report = build_languages(write_records(tmp_path / "in", ONCE), tmp_path / "out", tokenizer)
    mixture = {one.name: one for one in report.manifest.mixture or ()}
    tokens = {name: one.num_used_tokens for name, one in mixture.items()}
    largest, total = sorted(tokens, key=lambda name: -tokens[name])[:2], sum(tokens.values())
    rest = sum(tokens[name] for name in tokens if name not in largest)
    at = said.index(f"by alpha the sources give {total:,} tokens of text:")
    for line, name in zip(said[at + 1 : at + 3], sorted(largest), strict=True):
        one = mixture[name]
        share = f"{100 * tokens[name] / total:.2f} %, {one.passes:.3g} passes over {one.num_tokens:,} tokens"
        assert line == f"  {name}: {share}"
    assert said[at + 3] == f"  2 others: {100 * rest / total:.2f} %; the manifest has all"
    (check,) = [check for check in audit_folder(tmp_path / "out").checks if check.rule.name == "duplicate_documents"]
    assert check.details["count"] == 0  # passes are no copies


def test_another_alpha_is_another_build(tokenizer, tmp_path):
    build = prepare("languages", tmp_path, tokenizer)
    build(tmp_path / "out")
    assert build(tmp_path / "out").was_finished
    check_refused(lambda: build(tmp_path / "out", alpha=0.5), OutputError, "alpha is 0.3 there and 0.5 here")


def test_a_language_that_was_not_there_when_tokens_were_counted_stops_the_build():
    languages = list_languages(BuildConfig(text=TextConfig(language_field="lang"), alpha=0.3), LANGUAGES)
    codes = np.array([language.code for language in reversed(languages)], np.uint32)
    assert number_sources(codes, languages).tolist() == [3, 2, 1, 0]
    for new in (0, codes.max() + 1):
        with pytest.raises(InputError, match="was changed while it was read"):
            number_sources(np.append(codes, np.uint32(new)), languages)


@refused(
    ({"alpha": 1.5}, ConfigError, "alpha is 1.5 & 0.0 to 1.0"),
    ({"alpha": None, "max_passes": 2.0}, ConfigError, "max_passes is 2 & alpha & give both"),
    ({"max_passes": 0.5}, ConfigError, "max_passes is 0.5 & 1 to 1000"),
    ({"max_passes": 501.0, "dupe_factor": 2}, ConfigError, "max_passes is 501.0 & 1 to 500"),
    ({"language_field": None}, ConfigError, "alpha is 0.3 & neither --language-field nor an INPUT:LANGUAGE"),
)
def test_settings_that_do_not_fit_are_refused(call, kind, named, tokenizer, tmp_path):
    folder = write_records(tmp_path / "in")
    check_refused(lambda: build_languages(folder, tmp_path / "out", tokenizer, **call), kind, named)


def test_inputs_that_do_not_fit_are_refused(tokenizer, tmp_path):
    folder = str(write_records(tmp_path / "in"))
    (tmp_path / "mixture.toml").write_text('[[source]]\nname = "all"\npaths = "in"\nweight = 2\n')
    config = fixtures.make_config(language_field="lang", alpha=0.3, validation_fraction=BuildConfig.validation_fraction)
    mixed, often = fixtures.make_config(alpha=0.3), fixtures.make_config(dupe_factor=2)
    passes = str(write_sources(tmp_path / "m", alpha=0.3, max_passes=600))
    for inputs, settings, kind, named in (
        (find_inputs(["-"], text=config.text), config, InputError, "--alpha reads the corpus twice & stdin"),
        (find_inputs([folder], text=config.text, validation=[folder]), config, ConfigError, "leave out --validation"),
        (find_sources([str(tmp_path / "mixture.toml")]), mixed, ConfigError, "in a mixture write alpha into its file"),
        (find_sources([passes]), often, ConfigError, "has the weight 600, times dupe_factor 2; at most 1,000 passes"),
    ):
        make = partial(build_shards, inputs, tmp_path / "out", tokenizer, settings, InlineEngine())
        check_refused(make, kind, named)
    assert not (tmp_path / "out").exists()
