"""Shares by size (`--alpha`) of languages that records or inputs name: those of a mixture with a source for each."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import numpy as np
import pytest
from build_fixtures import InterruptedEngine, PicklingEngine, digest_shards, run_build
from mixture_fixtures import build_mixture
from test_shares import Saying, check_shares, find_largest, read_tokens

from albert_data.cli.summary import describe_build
from albert_data.config import BuildConfig, TextConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.corpus.mixtures import find_sources
from albert_data.errors import ConfigError, InputError, OutputError
from albert_data.inspect.audit.audit import audit_folder
from albert_data.inspect.verify import verify
from albert_data.jobs.engine import Engine, MultiprocessEngine
from albert_data.jobs.progress import NullProgress
from albert_data.pipeline import document_lists, mixed_sources
from albert_data.pipeline.build import build_shards
from albert_data.pipeline.document_lists import number_sources
from albert_data.pipeline.estimate import estimate
from albert_data.pipeline.mixed_sources import list_languages
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer

Record = tuple[str, str, str]  # language, group, text
POOL = fixtures.make_documents(60, seed=23)
NAMES = ["de", "kea", "web cc", "zh"]


def name_language(number: int) -> str:
    return "zh" if number % 20 == 7 else "web cc" if number % 9 == 4 else "kea" if number % 7 == 3 else "de"


# German has two thirds of the text. Some documents are there in two languages, so they count in both.
ONCE = [(name_language(number), f"g{number % 19}", text) for number, text in enumerate(POOL)]
RECORDS = [*ONCE, *(("zh", f"g{number}", text) for number, (_, _, text) in enumerate(ONCE[:4]))]
LAYOUTS = ("one.jsonl", "parts.jsonl", "parts.csv", "copies.csv")


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 12), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(document_lists, "RANGE_DOCUMENTS", 7)
        yield


def write(folder: Path, layout: str = "one.jsonl", records: Sequence[Record] = RECORDS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    records = random.Random(layout).sample(records, len(records))
    records = [*records, *records[::2]] if layout.startswith("copies") else records
    count = 1 if layout.startswith("one") else 5
    for part in range(count):
        with (folder / f"{part}.{layout.split('.')[1]}").open("w", encoding="utf-8", newline="") as file:
            rows = records[part::count]
            if layout.endswith("csv"):
                csv.writer(file).writerows([("lang", "group", "text"), *rows])
            else:
                file.writelines(
                    json.dumps(dict(zip(("lang", "group", "text"), row, strict=True))) + "\n" for row in rows
                )
    return folder


def build(folder: Path, out: Path, tokenizer: Tokenizer, engine: Engine | None = None, **settings: Any) -> Any:
    return run_build(folder, out, tokenizer, engine, **{"language_field": "lang", "alpha": 0.3, **settings})


@pytest.mark.parametrize("dupe_factor", [1, 3])
@pytest.mark.parametrize(("alpha", "max_passes"), [(0.0, 4.0), (0.3, 20.0), (0.7, 1.5), (1.0, 1.0)])
def test_the_rows_have_the_shares(
    alpha: float, max_passes: float, dupe_factor: int, tokenizer: Tokenizer, tmp_path: Path
):
    settings = {"alpha": alpha, "max_passes": max_passes, "dupe_factor": dupe_factor}
    report = build(write(tmp_path / "in"), tmp_path / "out", tokenizer, **settings)
    mixture = report.manifest.mixture
    assert [one.name for one in mixture] == NAMES
    assert {(one.alpha, one.max_passes, one.weight) for one in mixture} == {(alpha, max_passes, None)}
    check_shares(mixture, read_tokens(tmp_path / "out"), find_largest(POOL, tokenizer), dupe_factor)
    assert not list(verify(tmp_path / "out"))


@pytest.mark.parametrize("settings", [{}, {"group_field": "group"}, {"keep_duplicates": True}, {"dupe_factor": 2}])
def test_a_build_is_that_of_a_mixture_with_a_source_for_each_language(
    settings: dict[str, Any], tokenizer: Tokenizer, tmp_path: Path
):
    lines = ["alpha = 0.3"]
    for name in NAMES:
        language = "und" if name == "web cc" else name
        lines += ["[[source]]", f'name = "{name}"', 'paths = "in"', f'language = "{language}"']
        lines += [f"where = \"lang == '{name}'\""]
    (tmp_path / "mixture.toml").write_text("\n".join(lines))
    build(write(tmp_path / "in", records=ONCE), tmp_path / "out", tokenizer, **settings)
    build_mixture(tmp_path / "mixture.toml", tmp_path / "same", tokenizer, **settings)
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "same")


@pytest.mark.parametrize(
    "settings", [{}, {"group_field": "group"}, {"keep_duplicates": True}, {"drop_near_duplicates": True}]
)
def test_an_alpha_of_1_leaves_the_text_as_it_is(settings: dict[str, Any], tokenizer: Tokenizer, tmp_path: Path):
    longer = [(name, group, f"{text}\nRead by me.") for name, group, text in RECORDS[10:14]]
    folder = write(tmp_path / "in", "copies.csv", [*RECORDS, *longer])
    made = build(folder, tmp_path / "out", tokenizer, alpha=1.0, **settings).manifest
    plain = build(folder, tmp_path / "plain", tokenizer, alpha=None, **settings).manifest
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "plain")
    assert (made.counts, made.documents_digest) == (plain.counts, plain.documents_digest)
    assert made.near_duplicates == plain.near_duplicates


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fraction", [None, 0.3])
def test_documents_of_a_group_and_a_text_of_two_languages_lie_in_one_split(
    fraction: float | None, seed: int, tokenizer: Tokenizer, tmp_path: Path
):
    settings = {"group_field": "group", "validation_fraction": fraction, "seed": seed, "max_passes": 1.5}
    build(write(tmp_path / "in"), tmp_path / "out", tokenizer, **settings)
    train, validation = fixtures.keys_of(tmp_path / "out")
    assert validation
    assert not train & validation
    for group in {group for _, group, _ in ONCE}:
        keys = {fixtures.document_key(text) for _, name, text in ONCE[4:] if name == group}
        assert not keys & train or not keys & validation


@pytest.fixture(scope="module")
def reference(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("reference")
    build(write(folder / "in"), folder / "out", tokenizer, num_shards=3)
    return digest_shards(folder / "out")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("engine", [PicklingEngine(), MultiprocessEngine(2)])
def test_layout_copies_and_workers_change_no_byte(
    layout: str, engine: Engine, reference: Mapping[str, str], tokenizer: Tokenizer, tmp_path: Path
):
    build(write(tmp_path / "in", layout), tmp_path / "out", tokenizer, engine, num_shards=3)
    assert digest_shards(tmp_path / "out") == reference


@pytest.mark.parametrize("results", range(0, 17, 2))
def test_an_interrupted_build_resumes_to_the_same_bytes(
    results: int, reference: Mapping[str, str], tokenizer: Tokenizer, tmp_path: Path
):
    folder, out = write(tmp_path / "in", "parts.jsonl"), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        build(folder, out, tokenizer, InterruptedEngine(results), num_shards=3)
    report = build(folder, out, tokenizer, num_shards=3)
    assert digest_shards(out) == reference
    assert [one.name for one in report.manifest.mixture] == NAMES


def test_inputs_may_name_the_languages(tokenizer: Tokenizer, tmp_path: Path):
    records = [record for record in RECORDS if record[0] in ("de", "kea")]
    for name in ("de", "kea"):
        write(tmp_path / name, records=[record for record in records if record[0] == name])
    config = fixtures.make_config(alpha=0.3)
    inputs = find_inputs([f"{tmp_path / name}:{name}" for name in ("kea", "de")], text=config.text)
    build_shards(inputs, tmp_path / "out", tokenizer, config, fixtures.InlineEngine())
    build(write(tmp_path / "all", records=records), tmp_path / "same", tokenizer)
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "same")


def test_sizes_are_those_of_the_documents_that_stay(tokenizer: Tokenizer, tmp_path: Path):
    """A document that is similar to a longer one counts in no size, whatever their languages."""
    words = [" ".join(random.Random(number).choices(fixtures.WORDS, k=80)) for number in range(40)]
    similar = [("kea", "", f"{text} by me.") for text in words[:10]]
    records = [*similar, *(("kea" if number % 8 == 0 else "de", "", text) for number, text in enumerate(words))]
    folder = write(tmp_path / "in", records=records)
    report = build(folder, tmp_path / "out", tokenizer, drop_near_duplicates=True, alpha=0.5, max_passes=9.0)
    manifest, largest = report.manifest, find_largest(words, tokenizer) + 10
    assert manifest.near_duplicates.sources == {"de": 8, "kea": 2}
    assert [one.num_documents for one in manifest.mixture] == [35 - 8, 5 - 2 + 10]
    check_shares(manifest.mixture, read_tokens(tmp_path / "out"), largest, 1)


def test_the_largest_shares_are_said_before_rows_are_made(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mixed_sources, "_SHOWN", 2)
    config, progress = fixtures.make_config(language_field="lang", alpha=0.3), Saying()
    inputs = find_sources([str(write(tmp_path / "in", records=ONCE))], text=config.text)
    report = build_shards(inputs, tmp_path / "out", tokenizer, config, fixtures.InlineEngine(), progress)
    tokens = {one.name: one.num_used_tokens for one in report.manifest.mixture or ()}
    largest, total = sorted(tokens, key=lambda name: -tokens[name])[:2], sum(tokens.values())
    at = progress.said.index(f"by alpha the sources give {total:,} tokens of text:")
    lines = progress.said[at + 1 : at + 4]
    for name, line in zip(sorted(largest), lines, strict=False):
        assert line.startswith(f"  {name}: {100 * tokens[name] / total:.2f} %, ")
    rest = sum(tokens[name] for name in tokens if name not in largest)
    assert lines[2] == f"  2 others: {100 * rest / total:.2f} %; the manifest has all"
    assert progress.said[at - 1 : at + 5 : 5] == ["counting tokens", "tokenising, pairing, masking"]
    shown = " ".join(describe_build(report, tmp_path / "out"))
    assert "the language field names 1 source without an ISO 639 code" in shown
    (check,) = [check for check in audit_folder(tmp_path / "out").checks if check.rule.name == "duplicate_documents"]
    assert check.details["count"] == 0  # passes are no copies


def test_another_alpha_is_another_build(tokenizer: Tokenizer, tmp_path: Path):
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    build(folder, out, tokenizer)
    assert build(folder, out, tokenizer).was_finished
    with pytest.raises(OutputError, match=r"alpha is 0\.3 there and 0\.5 here"):
        build(folder, out, tokenizer, alpha=0.5)


def test_a_language_that_was_not_there_when_tokens_were_counted_stops_the_build():
    languages = list_languages(BuildConfig(text=TextConfig(language_field="lang"), alpha=0.3), NAMES)
    codes = np.array([language.code for language in reversed(languages)], np.uint32)
    assert number_sources(codes, languages).tolist() == [3, 2, 1, 0]
    for new in (0, codes.max() + 1):
        with pytest.raises(InputError, match="was changed while it was read"):
            number_sources(np.append(codes, np.uint32(new)), languages)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 1.5}, r"alpha is 1\.5; allowed are 0\.0 to 1\.0"),
        ({"alpha": float("nan")}, "alpha is nan; allowed"),
        ({"alpha": None, "max_passes": 2.0}, "max_passes is 2, which limits what alpha gives; give both"),
        ({"max_passes": 0.5}, r"max_passes is 0\.5; allowed are 1 to 1000"),
        ({"max_passes": 501.0, "dupe_factor": 2}, r"max_passes is 501\.0; allowed are 1 to 500"),
        ({"language_field": None}, "alpha is 0.3, but neither --language-field nor an INPUT:LANGUAGE names languages"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    settings: dict[str, Any], message: str, tokenizer: Tokenizer, tmp_path: Path
):
    with pytest.raises(ConfigError, match=message):
        build(write(tmp_path / "in"), tmp_path / "out", tokenizer, **settings)


def test_inputs_that_do_not_fit_are_refused(tokenizer: Tokenizer, tmp_path: Path):
    folder = str(write(tmp_path / "in"))
    (tmp_path / "mixture.toml").write_text('[[source]]\nname = "all"\npaths = "in"\nweight = 2\n')
    config = fixtures.make_config(language_field="lang", alpha=0.3, validation_fraction=BuildConfig.validation_fraction)
    mixed = fixtures.make_config(alpha=0.3)
    cases = [
        (find_inputs(["-"], text=config.text), config, "--alpha reads the corpus twice, and stdin can be read only"),
        (find_inputs([folder], text=config.text, validation=[folder]), config, "leave out --validation"),
        (find_sources([str(tmp_path / "mixture.toml")]), mixed, "in a mixture write alpha into its file"),
    ]
    for inputs, settings, message in cases:
        with pytest.raises((ConfigError, InputError), match=message):
            build_shards(inputs, tmp_path / "out", tokenizer, settings, fixtures.InlineEngine())
    assert not (tmp_path / "out").exists()


def test_an_estimate_is_near_the_rows_that_shares_give(tokenizer: Tokenizer, tmp_path: Path):
    folder = write(tmp_path / "in", records=RECORDS * 40)
    settings = {"language_field": "lang", "pairs": "none", "short_seq_prob": 0.0, "max_passes": 40.0}
    report = build(folder, tmp_path / "out", tokenizer, **settings, keep_duplicates=True)
    config = fixtures.make_config(**settings, alpha=0.3)
    found = estimate(find_inputs([str(folder)], text=config.text), tokenizer, config, 1, NullProgress())
    assert found is not None
    rows = sum(split.num_rows for split in report.manifest.splits.values())
    assert found.rows == pytest.approx(rows, rel=0.1)


def test_a_build_without_alpha_has_no_shares(tokenizer: Tokenizer, tmp_path: Path):
    report = build(write(tmp_path / "in"), tmp_path / "out", tokenizer, alpha=None)
    assert report.manifest.mixture is None
    assert len(open_shards(tmp_path / "out")) > 0
