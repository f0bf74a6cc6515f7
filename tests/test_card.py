"""README.md in OUT: what it says is what the shards hold, whatever names and licences hold; and its licence."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import InterruptedEngine, digest_folder, run_build
from hypothesis import example, given
from hypothesis import strategies as st
from mixture_fixtures import Mixed, build_mixture, write_mixture
from shard_fixtures import change_manifest, describe_folder

import albert_data
from albert_data.errors import ConfigError
from albert_data.inspect.verify import verify
from albert_data.languages import is_source_name
from albert_data.pipeline.card import _DROPPED, check_license, make_card
from albert_data.shards.manifest import SPLITS, Counts, Manifest
from albert_data.shards.manifest_file import read_manifest
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer

yaml = pytest.importorskip("yaml", reason="PyYAML comes with transformers")
POOL = fixtures.make_documents(40, seed=12)
BARE = Manifest.from_values(describe_folder(Path(), {split: [] for split in SPLITS}))


def read_metadata(card: bytes) -> dict[str, Any]:
    """What the Hub reads of a card."""
    found: dict[str, Any] = yaml.safe_load(card.decode().split("---\n")[1])
    return found


def read_table(card: bytes, title: str) -> list[list[str]]:
    """The cells of the table whose first title this is, without its head."""
    lines = card.decode().split(f"| {title} |", 1)[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def write(folder: Path, documents: list[str]) -> Path:
    fixtures.write_corpus(folder / "in", documents, "jsonl", random.Random(0))
    return folder / "in"


# ---- what it says ----


def test_the_table_of_splits_is_that_of_the_rows(tokenizer: Tokenizer, tmp_path: Path):
    run_build(write(tmp_path, POOL), tmp_path / "out", tokenizer, validation_fraction=0.3, max_seq_len=32)
    card = (tmp_path / "out/README.md").read_bytes()
    for split, num_rows, num_tokens, _, unpaired, full, _ in read_table(card, "split"):
        rows = list(open_shards(tmp_path / "out", split))
        total = sum(len(row.input_ids) for row in rows)
        assert [num_rows, num_tokens] == [f"{len(rows):,}", f"{total:,}"]
        assert unpaired == f"{100 * sum(row.sop_label < 0 for row in rows) / len(rows):.1f} %"
        assert full == f"{100 * total / (32 * len(rows)):.1f} %"
    assert read_metadata(card)["size_categories"] == ["n<1K"]
    assert "language" not in read_metadata(card)
    assert "| language | not named; sentences are found by the rules of English (`en`) |" in card.decode()


def test_the_shares_of_sources_are_those_of_the_rows(tokenizer: Tokenizer, tmp_path: Path):
    languages = ("de", "zh", "web|cc")
    lines = [json.dumps({"text": text, "lang": languages[number % 3]}) for number, text in enumerate(POOL)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    run_build(tmp_path / "in.jsonl", tmp_path / "languages", tokenizer, language_field="lang")
    sources = [
        Mixed(documents=POOL[:20], weight=2.0),
        Mixed(documents=POOL[15:30]),
        Mixed(documents=POOL[30:], weight=0.0),
    ]
    build_mixture(write_mixture(tmp_path / "mixed", sources), tmp_path / "mixture", tokenizer, dupe_factor=2)
    for name, shown in (("languages", ["de", "web&#124;cc", "zh"]), ("mixture", ["source 0", "source 1", "source 2"])):
        tokens: Counter[int | None] = Counter()
        for split in SPLITS:
            for row in open_shards(tmp_path / name, split):
                tokens[row.source] += len(row.input_ids)
        card = (tmp_path / name / "README.md").read_bytes()
        table = [[row[0], *row[-2:]] for row in read_table(card, "source")]
        wanted = ((tokens[number], 100 * tokens[number] / tokens.total()) for number in range(3))
        assert table == [
            [name, f"{count:,}", f"{share:.1f} %"] for name, (count, share) in zip(shown, wanted, strict=True)
        ]
        assert list(verify(tmp_path / name)) == []
        change_manifest(tmp_path / name, lambda manifest: manifest["source_tokens"].append(1))
        [fault] = verify(tmp_path / name)
        said = f"source_tokens has 4 values, {tokens.total() + 1:,} in all; the splits have {tokens.total():,}"
        assert said in str(fault)


def test_the_languages_are_those_that_rows_have(tokenizer: Tokenizer, tmp_path: Path):
    sources = [
        Mixed(documents=POOL[:20], keys={"language": '"no"'}),
        Mixed(documents=POOL[20:30], weight=0.0, keys={"language": '"fr"'}),
        Mixed(documents=POOL[30:], keys={"language": '"und"'}),
    ]
    build_mixture(write_mixture(tmp_path / "mixed", sources), tmp_path / "out", tokenizer)
    card = (tmp_path / "out/README.md").read_bytes()
    assert read_metadata(card)["language"] == ["no"]  # "no" without quotation marks would be false
    assert "| language | Norwegian (`no`), undetermined (`und`) |" in card.decode()


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
def test_metadata_name_a_language_that_somebody_named(
    names: list[str], settings: dict[str, str], language: str, tokenizer: Tokenizer, tmp_path: Path
):
    documents = [{"text": text, "lang": names[number % len(names)]} for number, text in enumerate(POOL)]
    built = {"tokenizer": tokenizer, "license": "Free for all", "max_seq_len": 64, **settings}
    albert_data.build(documents=documents, output=tmp_path / "out", engine=fixtures.InlineEngine(), **built)
    albert_data.convert_shards(tmp_path / "out", tmp_path / "parquet", "parquet", workers=1)
    for name in ("out", "parquet"):
        found = read_metadata((tmp_path / name / "README.md").read_bytes())
        assert found.get("language", []) == language.split()
        assert found["license_details"] == "Free for all"


def test_what_was_dropped_is_counted_with_its_reason(tokenizer: Tokenizer, tmp_path: Path):
    documents = [*POOL, *POOL[:3]]
    (tmp_path / "in.jsonl").write_text("\n".join([*(json.dumps({"text": text}) for text in documents), "{", "[]"]))
    run_build(tmp_path / "in.jsonl", tmp_path / "out", tokenizer)
    counts = read_manifest(tmp_path / "out").counts
    [copies, damage] = read_table((tmp_path / "out/README.md").read_bytes(), "what")
    assert copies[::2] == ["duplicate documents", "3"]
    assert copies[3] == f"{counts.duplicate_tokens:,}"
    assert damage == ["`malformed_json`", "lines that are not a JSON object, skipped", "2", ""]
    assert b"\n\nNothing.\n\n" in make_card(BARE)


def test_every_count_of_dropped_documents_has_a_line_in_the_card():
    names = {field.name for field in dataclasses.fields(Counts) if field.default is None}
    assert {name for name in names if name.endswith("_documents")} == {*_DROPPED, "moved_documents"}


names = st.text(min_size=1, max_size=64).filter(is_source_name)
licenses = st.text(min_size=1, max_size=200).filter(lambda text: text.isprintable() and bool(text.strip()))


@example("mit", ["de-DE"])
@given(licenses, st.lists(names, min_size=1, max_size=4, unique=True))
def test_no_licence_and_no_name_can_leave_its_place(license: str, sources: list[str]):
    check_license(license)
    manifest = dataclasses.replace(BARE, license=license, sources=tuple(sources), source_tokens=(1,) * len(sources))
    card = make_card(manifest)
    metadata = read_metadata(card)
    said = {key: metadata.pop(key) for key in ("license", "license_details") if key in metadata}
    assert said in ({"license": license.lower()}, {"license": "other", "license_details": license})
    bare = read_metadata(make_card(BARE))
    assert {**metadata, "language": None} == {**bare, "language": None}
    assert len(read_table(card, "source")) == len(sources)
    assert all(len(row) == 3 for row in read_table(card, "source"))
    assert "<" not in card.decode().split("---\n", 2)[2].replace("n<1K", "")


@pytest.mark.parametrize("license", ["", " ", "two\nlines", "a\x1b[31m", "x" * 201, "\u2028"])
def test_a_licence_is_one_line_of_text(license: str):
    with pytest.raises(ConfigError, match="in one line, such as"):
        check_license(license)


# ---- the licence is no part of the plan ----


def test_a_licence_changes_no_shard_and_no_other_file(tokenizer: Tokenizer, tmp_path: Path):
    inputs = write(tmp_path, POOL)
    run_build(inputs, tmp_path / "a", tokenizer)
    run_build(inputs, tmp_path / "b", tokenizer, license="cc0-1.0")
    a, b = digest_folder(tmp_path / "a"), digest_folder(tmp_path / "b")
    assert {name for name in a if a[name] != b[name]} == {"README.md", "manifest.json"}
    assert a.keys() == b.keys()
    assert read_manifest(tmp_path / "a").plan == read_manifest(tmp_path / "b").plan


def test_an_unfinished_build_is_resumed_with_another_licence(tokenizer: Tokenizer, tmp_path: Path):
    inputs = write(tmp_path, POOL)
    run_build(inputs, tmp_path / "whole", tokenizer, license="mit", num_shards=3)
    with pytest.raises(KeyboardInterrupt):
        run_build(inputs, tmp_path / "out", tokenizer, InterruptedEngine(2), license="cc0-1.0", num_shards=3)
    assert run_build(inputs, tmp_path / "out", tokenizer, license="mit", num_shards=3).resumed_tasks
    assert digest_folder(tmp_path / "out") == digest_folder(tmp_path / "whole")


def test_a_finished_build_takes_another_licence_and_keeps_its_shards(tokenizer: Tokenizer, tmp_path: Path):
    inputs, out = write(tmp_path, POOL), tmp_path / "out"
    run_build(inputs, tmp_path / "fresh", tokenizer, license="mit")
    run_build(inputs, out, tokenizer, license="cc0-1.0")
    shards = {path: path.stat().st_ino for path in out.rglob("*.arrow")}
    assert run_build(inputs, out, tokenizer, license="mit").was_finished
    assert digest_folder(out) == digest_folder(tmp_path / "fresh")
    assert {path: path.stat().st_ino for path in out.rglob("*.arrow")} == shards
    assert run_build(inputs, out, tokenizer).manifest.license == "mit"  # without a licence it stays as it is
    run_build(inputs, out, tokenizer, overwrite=True)
    assert read_manifest(out).license is None


def test_a_card_that_the_user_edited_keeps_its_text_when_the_licence_changes(tokenizer: Tokenizer, tmp_path: Path):
    inputs, out = write(tmp_path, POOL), tmp_path / "out"
    run_build(inputs, out, tokenizer)
    (out / "README.md").write_text("mine")
    run_build(inputs, out, tokenizer, license="mit")
    assert (out / "README.md").read_text() == "mine"
    assert read_manifest(out).license == "mit"
    assert not (out / ".build").exists()


def test_a_licence_is_changed_whenever_the_change_before_was_killed(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    inputs, out, replace = write(tmp_path, POOL[:12]), tmp_path / "out", os.replace
    run_build(inputs, tmp_path / "wanted", tokenizer, license="mit")
    for left in range(20):
        shutil.rmtree(out, ignore_errors=True)
        run_build(inputs, out, tokenizer, license="cc0-1.0")
        changes = iter(range(left))

        def die_later(*paths: Any, changes: Iterator[int] = changes) -> None:
            if next(changes, None) is None:
                raise KeyboardInterrupt
            replace(*paths)

        monkeypatch.setattr(os, "replace", die_later)
        with suppress(KeyboardInterrupt):
            run_build(inputs, out, tokenizer, license="mit")
        monkeypatch.setattr(os, "replace", replace)
        was_killed = next(changes, None) is None
        assert (out / "manifest.json").exists()  # at every moment it is a finished build
        run_build(inputs, out, tokenizer, license="mit")
        assert digest_folder(out) == digest_folder(tmp_path / "wanted"), left
        if not was_killed:
            break
    assert left > 3
