"""A manifest is one typed object; every reader of one, in any state, reads it or refuses it in one sentence."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from inspect_fixtures import write_small
from refusals import check_refused, refused
from shard_fixtures import change_manifest, describe_folder

from albert_data.config import BuildConfig
from albert_data.errors import ConfigError, OutputError, ShardError, StorageError
from albert_data.inspect.audit.audit import audit_folder
from albert_data.inspect.choice import RowChoice
from albert_data.inspect.report import inspect_folder
from albert_data.inspect.verify import verify
from albert_data.pipeline.build_folder import read_our_manifest
from albert_data.rules import RULES_VERSION
from albert_data.shards.manifest import (
    MANIFEST_NAME,
    SPLITS,
    YOUNGER,
    Counts,
    FileEntry,
    InputEntry,
    Manifest,
    Plan,
    ShardEntry,
    SplitEntry,
    hash_manifest,
)
from albert_data.shards.manifest_file import check_readable, load_manifest, read_manifest
from albert_data.shards.reader import open_shards
from albert_data.shards.schema import Count
from albert_data.storage import files
from albert_data.storage.files import read_json, write_json

# ---- values ----

LEAVES: dict[Any, Any] = {
    **{int: 1, Count: 1, float: 0.5, bool: True, str: "x", Any: {"a": [None, 2**63 - 1]}},
    BuildConfig: BuildConfig.from_settings(text_field="é,b", strict=True, pairs="none", num_shards=3),
}


def fill(kind: Any, name: str = "") -> Any:
    """A value of an annotation or class of manifest.py, of which no part is left out."""
    if kind in LEAVES:
        return 99 if name == "vocab_size" else LEAVES[kind]
    inner = get_args(kind)
    if get_origin(kind) is Annotated or type(None) in inner:
        return fill(inner[0])
    if get_origin(kind) is tuple:
        return (fill(inner[0]),)
    if get_origin(kind) is Mapping:
        return {"train": fill(inner[1])}  # a name of a split
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{field.name: fill(hints[field.name], field.name) for field in dataclasses.fields(kind)})


def values() -> dict[str, Any]:
    return describe_folder(Path(), {split: [] for split in SPLITS})


@pytest.mark.parametrize("manifest", [fill(Manifest), Manifest.from_values(values())], ids=["all keys", "needed keys"])
def test_a_manifest_is_read_as_it_was_written_and_sealed_by_the_hash_of_all_other_values(manifest):
    written = json.loads(json.dumps(manifest.to_values()))
    assert Manifest.from_values(written) == manifest
    assert manifest.to_values() == written
    sealed = manifest.seal()
    assert sealed.manifest_sha256 == hash_manifest(manifest.to_values()) == hash_manifest(sealed.to_values())


MIXED = {
    **{"name": "a", "paths": ["a.txt"], "num_inputs": 1, "weight": 1.0, "passes": 1.0, "unwrap": False},
    **{"language": "en", "text_field": "text", "documents": "file", "sentences": "lines"},
    **dict.fromkeys(("num_documents", "num_tokens", "num_used_documents", "num_used_tokens"), 1),
}


def test_a_mixture_says_how_its_sources_were_read():
    assert Manifest.from_values(values() | {"sources": ["a"], "mixture": [MIXED]}).find_text_config(0).language == "en"


def setting(name: str, value: object) -> dict[str, Any]:
    return {"config": {**BuildConfig().to_flat_dict(), name: value}}


@refused(
    (setting("ngram", 99), ShardError, "config.ngram is 99 & 1 to 10"),
    (setting("compression", "gzip"), ShardError, "config.compression is 'gzip' & none, zstd, lz4"),
    (setting("seed", None), ShardError, "config.seed is None & a whole number"),
    (setting("language", None), ShardError, "config.language is None & a str"),
    ({"mixture": [MIXED]}, ShardError, "mixture & `sources`"),
    ({"mixture": [MIXED], "sources": ["b"]}, ShardError, "mixture & other & `sources`"),
    ({"mixture": [MIXED], "sources": ["a", "a"]}, ShardError, "mixture & names & `sources`"),
    *(
        ({"rules_version": version}, ShardError, f"rules_version is {version} & 1 to {RULES_VERSION}")
        for version in (0, -1, RULES_VERSION + 1)
    ),
)
def test_a_value_that_is_not_allowed_is_named(call, kind, named):
    check_refused(lambda: Manifest.from_values(values() | call), kind, named)


@pytest.mark.parametrize("name", BuildConfig().to_flat_dict())
def test_settings_are_all_needed_but_those_that_are_younger_than_some_builds(name):
    found = values()
    del found["config"][name]
    if name in YOUNGER:
        assert Manifest.from_values(found).config == Manifest.from_values(values()).config
        return
    check_refused(lambda: Manifest.from_values(found), ShardError, f"config.{name} is missing")


@pytest.mark.parametrize("name", ["text_field", "language_field", "group_field", "id_field", "where", "encoding"])
def test_text_that_no_manifest_can_hold_is_no_setting(name):
    named = rf"{name} is not valid UTF-8 & 'a\udcff' & give it as the terminal shows it"
    check_refused(lambda: BuildConfig.from_settings(**{name: "a\udcff"}), ConfigError, named)


def test_every_key_of_the_classes_is_in_the_format_s_table():
    text = (Path(__file__).parent.parent / "docs" / "reference" / "format.md").read_text()
    table = text.split("## manifest.json")[1].split("## A training run")[0]
    for kind in (Manifest, Plan, Counts, SplitEntry, ShardEntry, InputEntry, FileEntry):
        for field in dataclasses.fields(kind):
            assert f"`{field.name}`" in table, (kind, field.name)


# ---- files: every reader names the fault ----

READERS: dict[str, Callable[[Path], object]] = {
    "open_shards": open_shards,
    "inspect": lambda folder: inspect_folder(folder, split="train", choice=RowChoice(count=1)),
    "audit": audit_folder,
    "build": read_our_manifest,
}
# Of a folder in which a build finds nothing of its own.
OTHERS = (*list(READERS.values())[:3], lambda folder: list(verify(folder)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_small(tmp_path / "built")


def check_all_refuse(folder: Path, what: str) -> None:
    """Every reader names the fault, and `verify` gives it for the manifest."""
    for name, read in READERS.items():
        with pytest.raises((ShardError, OutputError)) as caught:
            read(folder)
        assert what in str(caught.value), name
        assert MANIFEST_NAME in str(caught.value), name
    faults = list(verify(folder, quick=True))
    assert {fault.file for fault in faults} == {MANIFEST_NAME}
    assert any(what in fault.what for fault in faults)


# `verify` alone needs the seal, by which it trusts the rest.
def test_a_manifest_without_any_one_of_its_keys_is_refused(folder):
    whole = read_json(folder / MANIFEST_NAME)
    for key in whole.keys() - {"format", "format_version"}:
        write_json(folder / MANIFEST_NAME, {name: whole[name] for name in whole if name != key})
        if key != "manifest_sha256":
            check_all_refuse(folder, f"missing required field `{key}`")
        assert [key in fault.what and "missing" in fault.what for fault in verify(folder)] == [True]


def list_ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every key of an object, and to the first item of every list."""
    items = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else []
    for key, inner in items:
        yield (*way, key)
        yield from list_ways(inner, (*way, key))


@pytest.mark.parametrize("value", [None, True, -1, 1.5, "x", [], {}, [[]], [None], {"x": None}])
def test_a_value_of_another_type_is_refused_or_read_but_never_a_traceback(folder, value):
    whole = read_json(folder / MANIFEST_NAME)
    num_refused = 0
    for *way, last in list_ways(whole):
        manifest = json.loads(json.dumps(whole))
        holder = manifest
        for key in way:
            holder = holder[key]
        holder[last] = value
        (folder / MANIFEST_NAME).write_text(json.dumps(manifest))
        try:
            open_shards(folder)
            read_manifest(folder)
        except ShardError:
            num_refused += 1
            assert list(verify(folder, quick=True)), (way, last)
    assert num_refused > 30


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda m: m["tokenizer"].update(pad_id=380), "pad_id is 380; allowed are ids below vocab_size, 380"),
        (lambda m: m["splits"]["train"].update(num_rows=-1), "Expected `int` >= 0 - at `$.splits[...].num_rows`"),
        (lambda m: m["counts"].update(tokens=2**63), "Expected `int` <= 9223372036854775807 - at `$.counts.tokens`"),
        (lambda m: m.update(format="other"), "this version reads albert-data 2: build it again"),
        (lambda m: m["splits"].update(test={}), "Expected `str` matching regex '^(train|validation)"),
        (lambda m: m["config"].update(language=7), "config.language is 7, of the type int; a str is needed"),
        (lambda m: m["config"].update(max_seq_len=7), "config.max_seq_len is 7; allowed are 8 to 32768"),
        (lambda m: m["plan"].pop("inputs"), "missing required field `inputs` - at `$.plan`"),
        *(
            (
                lambda m, version=version: m.update(format_version=version),
                f"is of format albert-data {version}; this version reads albert-data 2: build it again",
            )
            for version in (True, 1.0, "1", None, [1], 1, 3)
        ),
    ],
)
def test_a_value_of_another_type_is_named(folder, change, what):
    change_manifest(folder, change)
    check_all_refuse(folder, what)


def test_unknown_keys_are_kept_and_no_fault(folder):
    change_manifest(folder, lambda m: m.update(readme_sha256="0" * 64, more={"a": [1]}))
    assert load_manifest(folder).values["more"] == {"a": [1]}
    assert not list(verify(folder))
    for read in READERS.values():
        read(folder)


def test_a_plan_by_itself_is_checked_too():
    check_refused(lambda: Plan.from_values({}), ShardError, "missing required field `rules_version`")
    check_refused(lambda: Plan.from_values({"\ud800": 1}), ShardError, "surrogates not allowed")


@refused(
    ({"version": "a\udcff"}, ShardError, "no command could read & invalid utf-16 surrogate pair & otherwise"),
    ({"tokenizer": {"a": float("nan")}}, ShardError, "no command could read & invalid character"),
    ({"version": 3}, ShardError, "no command could read & Expected `str`, got `int` - at `$.plan.version`"),
)
def test_nothing_is_written_that_no_reader_takes(folder, call, kind, named):
    manifest = read_manifest(folder)
    check_readable(manifest)
    spoilt = dataclasses.replace(manifest, plan=dataclasses.replace(manifest.plan, **call))
    check_refused(lambda: check_readable(spoilt), kind, named)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested too deep"),
        ('{"a":' * 40 + "1" + "}" * 40, "nests its values deeper than 32 levels"),
        ("9" * 5000, "Integer value out of range"),
        ("NaN", "invalid character"),
        ("1e999", "Number out of range"),
        (r'{"a\udfff": 1}', "invalid utf-16 surrogate pair"),
    ],
)
def test_json_that_not_every_reader_accepts_is_refused(folder, value, what):
    text = (folder / MANIFEST_NAME).read_text()
    (folder / MANIFEST_NAME).write_text(text.rstrip().removesuffix("}") + f', "more": {value}}}')
    check_all_refuse(folder, what)


NO_OBJECTS = [b"", b"\xff\xfe", b"{", b"{}\0", '{"format": "albert-data"}'.encode("utf-16"), b"[1]", b"7"]


@pytest.mark.parametrize("data", NO_OBJECTS)
def test_a_manifest_that_is_no_object_in_utf_8_is_refused(folder, data):
    (folder / MANIFEST_NAME).write_bytes(data)
    check_all_refuse(folder, "manifest.json can't be read: ")


def test_a_manifest_that_is_too_large_is_refused_unread_or_unparsed(folder, monkeypatch):
    monkeypatch.setattr(files, "MAX_VALUES", 50)
    check_all_refuse(folder, "values; at most 50 are allowed")
    os.truncate(folder / MANIFEST_NAME, 1 << 30)  # sparse: it takes no room
    check_all_refuse(folder, f"it has 1,073,741,824 bytes; at most {files.MAX_BYTES:,} are allowed")


# ---- what stands in the place of a folder or a manifest ----


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (os.mkfifo, "is a FIFO; a regular file is needed"),
        (Path.mkdir, "is a folder; a regular file is needed"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
        (lambda path: path.symlink_to("nowhere"), "No such file or directory"),
    ],
)
def test_only_a_regular_file_is_opened_as_a_manifest(folder, make, what):
    (folder / MANIFEST_NAME).unlink()
    make(folder / MANIFEST_NAME)
    with pytest.raises(ShardError, match=what):
        open_shards(folder)
    assert [what in fault.what for fault in verify(folder)] == [True]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda path: path.write_text("text"), "is no folder but a file"),
        (os.mkfifo, "is no folder but a FIFO"),
        (lambda path: path.symlink_to("/dev/null"), "is no folder but a device"),
        (lambda path: path.symlink_to(path), "can't be read: Too many levels of symbolic links"),
        (lambda path: None, "out can't be read: No such file or directory; name one that `albert-data build` made"),
        (
            Path.mkdir,
            "holds no manifest.json, so it is no finished build; make one with `albert-data build INPUT... -o",
        ),
        (lambda path: write_small(path / "shards"), "out/shards, which holds one"),
        (lambda path: (path / ".build").mkdir(parents=True), "not finished & albert-data build INPUT... -o & the same"),
    ],
)
def test_a_folder_that_is_no_build_is_named_with_what_to_do(tmp_path, make, what):
    make(tmp_path / "out")
    for read in OTHERS:
        check_refused(lambda read=read: read(tmp_path / "out"), ShardError, what)


@pytest.mark.parametrize(("name", "what"), [("a\0b", "null|is no path"), ("a" * 300, "File name too long")])
def test_an_impossible_path_is_named(name, what):
    for read in OTHERS:
        with pytest.raises((ShardError, StorageError), match=what):
            read(Path(name))
