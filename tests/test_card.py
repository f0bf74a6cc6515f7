"""README.md in OUT: what it says is what the shards hold, whatever names and licences hold; and its licence."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import InterruptedEngine, digest_folder, run_build
from hypothesis import example, given
from hypothesis import strategies as st
from mixture_fixtures import Mixed, build_mixture, write_mixture
from shard_fixtures import describe_folder

import albert_data
from albert_data.errors import ConfigError
from albert_data.jobs.progress import NullProgress
from albert_data.shards.card import DROPPED, check_license, make_card
from albert_data.shards.manifest import SPLITS, Counts, Manifest, SplitEntry
from albert_data.shards.manifest_file import read_manifest
from albert_data.shards.reader import open_shards
from albert_data.text.languages import is_source_name

yaml = pytest.importorskip("yaml", reason="PyYAML comes with transformers")
POOL = fixtures.make_documents(40, seed=12)
BARE = Manifest.from_values(describe_folder(Path(), {split: [] for split in SPLITS}))


def read_metadata(card: bytes) -> dict[str, Any]:
    """What the Hub reads of a card."""
    found: dict[str, Any] = yaml.safe_load(card.decode().split("---\n")[1])
    return found


def write(folder: Path, documents: list[str]) -> Path:
    fixtures.write_corpus(folder / "in", documents, "jsonl", random.Random(0))
    return folder / "in"


# ---- what it says ----


def test_the_whole_card(golden):
    splits = {"train": SplitEntry(num_rows=1000, num_tokens=128_000, num_masked=19_200, num_unpaired=25, shards=())}
    sources = {"sources": ("de", "web|cc"), "source_tokens": (96_000, 32_000)}
    counts = dataclasses.replace(BARE.counts, duplicate_documents=1234)
    changed = {"license": "Free <b>", "counts": counts, "damage": {"malformed_json": 2}, **sources}
    card = make_card(dataclasses.replace(BARE, splits={**BARE.splits, **splits}, **changed))
    golden("card.md", card.decode().split("---\n", 2)[2])
    assert read_metadata(card) == {
        **{"license": "other", "license_details": "Free <b>", "language": ["de"], "size_categories": ["1K<n<10K"]},
        **{"task_categories": ["fill-mask"], "tags": ["albert-data", "sentence-order-prediction", "n-gram-masking"]},
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "train/*.arrow"}]}],
    }
    assert make_card(BARE).endswith(b"repaired:\n\nNothing.\n")


def test_the_tokens_of_sources_are_those_of_the_rows(tokenizer, tmp_path):
    sources = [
        Mixed(documents=POOL[:20], weight=2.0, keys={"language": '"no"'}),
        Mixed(documents=POOL[15:30], keys={"language": '"und"'}),
        Mixed(documents=POOL[30:], weight=0.0, keys={"language": '"fr"'}),
    ]
    build_mixture(write_mixture(tmp_path / "mixed", sources), tmp_path / "out", tokenizer, dupe_factor=2)
    tokens: Counter[int | None] = Counter()
    for split in SPLITS:
        for row in open_shards(tmp_path / "out", split):
            tokens[row.source] += len(row.input_ids)
    assert read_manifest(tmp_path / "out").source_tokens == tuple(tokens[number] for number in range(3))
    card = (tmp_path / "out/README.md").read_bytes()
    assert read_metadata(card)["language"] == ["no"]  # "no" without quotation marks would be false


@pytest.mark.parametrize(
    ("names", "settings", "language"),
    [
        (["en", "de", "fr", "ru", "zh", "ar", "ne"], {"language_field": "lang"}, "ar de en fr ne ru zh"),
        (["English", "German", "web"], {"language_field": "lang"}, "en de"),
        (["en"], {"language": "en"}, "en"),
        (["en"], {"language": "de-AT"}, "de"),
        (["en", "de"], {}, ""),  # nobody says that it is English
    ],
)
def test_metadata_name_a_language_that_somebody_named(names, settings, language, tokenizer, tmp_path):
    documents = [{"text": text, "lang": names[number % len(names)]} for number, text in enumerate(POOL)]
    built = {"tokenizer": tokenizer, "license": "Free for all", "max_seq_len": 64, **settings}
    albert_data.build(documents=documents, output=tmp_path / "out", engine=fixtures.InlineEngine(), **built)
    albert_data.convert_shards(tmp_path / "out", tmp_path / "parquet", "parquet", workers=1)
    for name in ("out", "parquet"):
        found = read_metadata((tmp_path / name / "README.md").read_bytes())
        assert found.get("language", []) == language.split()
        assert found["license_details"] == "Free for all"


def test_every_count_of_dropped_documents_has_a_line_in_the_card():
    names = {field.name for field in dataclasses.fields(Counts) if field.default is None}
    others = {"moved_documents", "uncomposed_documents"}
    assert {name for name in names if name.endswith("_documents")} == {*DROPPED, *others}


names = st.text(min_size=1, max_size=64).filter(is_source_name)
licenses = st.text(min_size=1, max_size=200).filter(lambda text: text.isprintable() and bool(text.strip()))


@example("mit", ["de-DE"])
@given(licenses, st.lists(names, min_size=1, max_size=4, unique=True))
def test_no_licence_and_no_name_can_leave_its_place(license, sources):
    check_license(license)
    manifest = dataclasses.replace(BARE, license=license, sources=tuple(sources), source_tokens=(1,) * len(sources))
    card = make_card(manifest)
    metadata, text = read_metadata(card), card.decode().split("---\n", 2)[2]
    said = {key: metadata.pop(key) for key in ("license", "license_details") if key in metadata}
    assert said in ({"license": license.lower()}, {"license": "other", "license_details": license})
    assert {**metadata, "language": None} == {**read_metadata(make_card(BARE)), "language": None}
    rows = text.split("| source |")[1].split("\n\n")[0].splitlines()[2:]
    assert [row.count("|") for row in rows] == [4] * len(sources)
    assert "<" not in text


@pytest.mark.parametrize("license", ["", " ", "two\nlines", "a\x1b[31m", "x" * 201, "\u2028"])
def test_a_licence_is_one_line_of_text(license):
    with pytest.raises(ConfigError, match="in one line, such as"):
        check_license(license)


# ---- the licence is no part of the plan ----


def test_a_finished_build_keeps_its_licence_and_says_how_to_change_it(tokenizer, tmp_path, monkeypatch):
    inputs, out, lines = write(tmp_path, POOL), tmp_path / "out", list[str]()
    monkeypatch.setattr(NullProgress, "say", lambda self, line: lines.append(line))
    run_build(inputs, out, tokenizer, license="mit")
    made = digest_folder(out)
    for license, count in ((None, 0), ("mit", 0), ("cc0-1.0", 1)):
        lines.clear()
        assert run_build(inputs, out, tokenizer, license=license).manifest.license == "mit"
        assert sum("is finished with another licence; edit README.md" in line for line in lines) == count
    assert digest_folder(out) == made


def test_an_unfinished_build_is_resumed_with_another_licence(tokenizer, tmp_path):
    inputs = write(tmp_path, POOL)
    run_build(inputs, tmp_path / "whole", tokenizer, license="mit", num_shards=3)
    with pytest.raises(KeyboardInterrupt):
        run_build(inputs, tmp_path / "out", tokenizer, InterruptedEngine(2), license="cc0-1.0", num_shards=3)
    assert run_build(inputs, tmp_path / "out", tokenizer, license="mit", num_shards=3).resumed_tasks
    assert digest_folder(tmp_path / "out") == digest_folder(tmp_path / "whole")
