"""A manifest is one typed object: what is written is what is read, and what is read is what the format says."""

from __future__ import annotations

import dataclasses
import json
import re
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shard_fixtures import NO_LAYOUT, VERSIONS, describe_folder

from albert_data.config import BuildConfig, ExampleConfig, TextConfig
from albert_data.errors import ConfigError, ShardError
from albert_data.languages import is_source_name
from albert_data.pair_tasks import PAIR_TASKS
from albert_data.rules import RULES_VERSION
from albert_data.shards.manifest import (
    SPLITS,
    Counts,
    DamagedInput,
    DamagedInputs,
    FileEntry,
    InputEntry,
    Manifest,
    MixedSource,
    Plan,
    ShardEntry,
    SourceEntry,
    SplitEntry,
    TokenizerEntry,
    hash_manifest,
)

counts = st.integers(0, 2**63 - 1)
words = st.text(string.ascii_letters, max_size=9)
versions = {
    "rules_version": st.integers(1, RULES_VERSION),
    "unicode_version": words,
    "libraries": st.dictionaries(words, words),
}
totals = {"num_rows": counts, "num_tokens": counts, "num_masked": counts, "num_unpaired": counts}
totals["num_random"] = st.none() | counts
shards = st.builds(ShardEntry, **totals, num_bytes=counts, file=words, sha256=words)
splits = st.builds(SplitEntry, **totals, shards=st.lists(shards, max_size=2).map(tuple))
inputs = st.lists(st.builds(InputEntry, bytes=counts, modified_ns=st.integers(-9, 9), path=words), max_size=2).map(
    tuple
)
tokenizers = st.builds(
    TokenizerEntry,
    **{name: st.integers(0, 9) for name in ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")},
    vocab_size=st.integers(10, 99),
    file=words,
    sha256=words,
)
field_names = st.text(min_size=1).filter(lambda names: all(name.strip() for name in names.split(",")))
configs = st.builds(
    BuildConfig,
    text=st.builds(TextConfig, text_field=field_names, strict=st.booleans()),
    examples=st.builds(
        ExampleConfig,
        max_seq_len=st.integers(8, 99),
        pairs=st.sampled_from(list(PAIR_TASKS)),
        whole_word=st.booleans(),
        seed=counts,
    ),
    num_shards=st.none() | st.integers(1, 9),
    validation_fraction=st.floats(0, 0.5),
)

source_names = words.filter(is_source_name)
source_values = {
    "name": source_names,
    **dict.fromkeys(("language", "text_field", "documents", "sentences"), words),
    "paths": st.lists(words, max_size=2).map(tuple),
    "num_inputs": counts,
    "weight": st.none() | st.floats(0, 9),
    "tokens": st.none() | counts,
    "encoding": st.none() | words,
}
made_counts = dict.fromkeys(("num_documents", "num_tokens", "num_used_documents", "num_used_tokens"), counts)


def mixtures(kind: type[SourceEntry], **values: Any) -> st.SearchStrategy[Any]:
    return st.none() | st.lists(st.builds(kind, **source_values, **values), max_size=2).map(tuple)


numbers = {"num_without_documents": counts, "num_damaged": counts}
damaged = st.builds(
    DamagedInput,
    path=words,
    num_documents=counts,
    damage=st.dictionaries(words, counts),
    fields=st.lists(words).map(tuple),
    text_field=st.none() | words,
)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    plan = st.builds(
        Plan,
        **versions,
        version=words,
        config=st.dictionaries(words, st.none() | counts | words),
        tokenizer=st.dictionaries(words, words),
        inputs=inputs,
        mixture=mixtures(SourceEntry),
    )
    made = st.builds(
        Manifest,
        **versions,
        albert_data_version=words,
        config=configs,
        ngram_shares=st.lists(st.floats(0, 1)).map(tuple),
        tokenizer=tokenizers,
        inputs=inputs,
        plan=plan,
        documents_digest=words,
        counts=st.builds(
            Counts,
            documents=counts,
            sentences=counts,
            text_bytes=counts,
            tokens=counts,
            **dict.fromkeys(NO_LAYOUT, counts),
            duplicate_documents=st.none() | counts,
        ),
        damage=st.dictionaries(words, counts),
        damaged_inputs=st.none() | st.builds(DamagedInputs, worst=st.lists(damaged, max_size=2).map(tuple), **numbers),
        splits=st.dictionaries(st.sampled_from(SPLITS), splits),
        digest=words,
        sources=st.none() | st.lists(source_names).map(tuple),
        label_names=st.none() | st.lists(words).map(tuple),
        card=st.none() | st.builds(FileEntry, file=words, sha256=words),
        manifest_sha256=st.none() | words,
    )
    mixture = draw(mixtures(MixedSource, passes=st.floats(0, 9), **made_counts))
    if mixture is None:
        return draw(made)
    return dataclasses.replace(draw(made), mixture=mixture, sources=tuple(source.name for source in mixture))


def values() -> dict[str, Any]:
    return describe_folder(Path(), {split: [] for split in SPLITS})


@given(manifests())
def test_a_manifest_is_read_as_it_was_written(manifest: Manifest):
    written = json.loads(json.dumps(manifest.to_values()))
    assert Manifest.from_values(written) == manifest
    assert manifest.to_values() == written


def test_a_manifest_is_written_as_it_was_read():
    assert Manifest.from_values(values()).to_values() == values()


@given(manifests())
def test_the_seal_is_the_hash_of_all_other_values(manifest: Manifest):
    sealed = manifest.seal()
    assert sealed.manifest_sha256 == hash_manifest(manifest.to_values()) == hash_manifest(sealed.to_values())


def test_a_mixture_has_the_names_of_the_sources():
    entry = {
        **{"name": "a", "paths": ["a.txt"], "num_inputs": 1, "weight": 1.0, "passes": 1.0, "unwrap": False},
        **{"language": "en", "text_field": "text", "documents": "file", "sentences": "lines"},
        **dict.fromkeys(made_counts, 1),
    }
    assert Manifest.from_values(values() | {"sources": ["a"], "mixture": [entry]}).find_text_config(0).language == "en"
    for sources in ({"sources": ["b"]}, {"sources": ["a", "a"]}, {}):
        with pytest.raises(ShardError, match="mixture names other sources than `sources`"):
            Manifest.from_values(values() | {"mixture": [entry]} | sources)


def test_a_manifest_can_t_be_changed():
    manifest = Manifest.from_values(values())
    with pytest.raises(dataclasses.FrozenInstanceError):
        manifest.digest = "0"  # type: ignore[misc]


def test_settings_are_read_as_a_config():
    assert Manifest.from_values(values()).config == BuildConfig()
    for name in BuildConfig().to_flat_dict():
        found = values()
        del found["config"][name]
        with pytest.raises(ShardError, match=f"config.{name} is missing"):
            Manifest.from_values(found)


def test_a_setting_out_of_range_is_named():
    for name, value, what in (
        ("ngram", 99, "config.ngram is 99; allowed are 1 to 10"),
        ("compression", "gzip", "config.compression is 'gzip'; allowed are none, zstd, lz4"),
        ("seed", None, "config.seed is None; a whole number is needed"),
        ("language", None, "config.language is None; a string is needed"),
    ):
        found = values()
        found["config"][name] = value
        with pytest.raises(ShardError, match=re.escape(what)):
            Manifest.from_values(found)


@pytest.mark.parametrize("name", ["text_field", "language_field", "group_field", "word_separator", "where", "encoding"])
def test_text_that_no_manifest_can_hold_is_no_setting(name: str):
    with pytest.raises(ConfigError, match=rf"^{name} is not valid UTF-8: 'a\\udcff'; give it as the terminal shows it"):
        BuildConfig.from_settings(**{name: "a\udcff"})


def test_a_manifest_says_what_made_it():
    for key in VERSIONS:
        found = values()
        del found[key]
        with pytest.raises(ShardError, match=f"{key} is missing"):
            Manifest.from_values(found)


def test_a_key_that_may_be_missing_may_not_be_null():
    for key in ("card", "sources", "manifest_sha256"):
        with pytest.raises(ShardError, match=f"{key} is None"):
            Manifest.from_values({**values(), key: None})


@pytest.mark.parametrize("version", [0, -1, RULES_VERSION + 1])
def test_unknown_rules_versions_are_refused(version: int):
    what = f"rules_version is {version}; allowed are 1 to {RULES_VERSION}"
    with pytest.raises(ShardError, match=what):
        Manifest.from_values({**values(), "rules_version": version})


def test_every_key_of_the_classes_is_in_the_format_s_table():
    text = (Path(__file__).parent.parent / "docs" / "reference" / "format.md").read_text()
    table = text.split("## manifest.json")[1].split("## A run")[0]
    for kind in (Manifest, Plan, Counts, SplitEntry, ShardEntry, InputEntry, FileEntry):
        for field in dataclasses.fields(kind):
            assert f"`{field.name}`" in table, (kind, field.name)
