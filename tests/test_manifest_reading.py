"""Every reader of a manifest, in any state, reads it or refuses it in one sentence."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from inspect_fixtures import write_small
from shard_fixtures import change_manifest

from albert_data import files
from albert_data.errors import OutputError, ShardError, StorageError
from albert_data.files import read_json
from albert_data.inspect.audit.audit import audit_folder
from albert_data.inspect.choice import RowChoice
from albert_data.inspect.report import inspect_folder
from albert_data.inspect.verify import verify
from albert_data.pipeline.ownership import read_our_manifest
from albert_data.shards.manifest import MANIFEST_NAME, Plan, parse
from albert_data.shards.manifest_file import check_readable, load_manifest, read_manifest
from albert_data.shards.reader import open_shards

READERS: dict[str, Callable[[Path], object]] = {
    "open_shards": open_shards,
    "inspect": lambda folder: inspect_folder(folder, split="train", choice=RowChoice(count=1)),
    "audit": audit_folder,
    "build": read_our_manifest,
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "built"))


def list_ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every key of an object, and to the first item of every list."""
    items = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else []
    for key, inner in items:
        yield (*way, key)
        yield from list_ways(inner, (*way, key))


def check_refused(folder: Path, what: str) -> None:
    """Every reader names the fault, and `verify` gives it for the manifest."""
    for name, read in READERS.items():
        with pytest.raises((ShardError, OutputError)) as caught:
            read(folder)
        assert what in str(caught.value), name
        assert MANIFEST_NAME in str(caught.value), name
    faults = list(verify(folder, quick=True))
    assert {fault.file for fault in faults} == {MANIFEST_NAME}
    assert any(what in fault.what for fault in faults)


# ---- keys ----

# What a folder is read by without: the seal, by which `verify` trusts the rest, and settings of text and splits.
NOT_NEEDED = {"manifest_sha256", "format", "format_version"}


def test_a_manifest_without_any_one_of_its_keys_is_refused(folder: Path):
    whole = read_json(folder / MANIFEST_NAME)
    for key in whole.keys() - NOT_NEEDED:
        (folder / MANIFEST_NAME).write_text(json.dumps({name: whole[name] for name in whole if name != key}))
        check_refused(folder, f"{key} is missing")


@pytest.mark.parametrize("value", [None, True, -1, 1.5, "x", [], {}, [[]], [None], {"x": None}])
def test_a_value_of_another_type_is_refused_or_read_but_never_a_traceback(folder: Path, value: object):
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
        (lambda m: m["tokenizer"].update(pad_id=380), "tokenizer.pad_id is 380; allowed are ids below vocab_size, 380"),
        (lambda m: m["splits"]["train"].update(num_rows=-1), "num_rows is -1; a whole number from 0 on is needed"),
        (lambda m: m["splits"]["train"]["shards"].append(7), "splits.train.shards[1] is 7; an object is needed"),
        (lambda m: m["splits"].update(test={}), "splits holds 'test'; allowed are train, validation"),
        (lambda m: m["config"].update(language=7), "config.language is 7; a string is needed"),
        (lambda m: m["config"].update(max_seq_len=7), "config.max_seq_len is 7; allowed are 8 to 32768"),
        (lambda m: m["plan"].pop("inputs"), "plan.inputs is missing; a list is needed"),
        (lambda m: m["plan"].update(config=[]), "plan.config is []; an object is needed"),
        (lambda m: m["plan"].update(inputs=[{}]), "plan.inputs[0].path is missing; a string is needed"),
        (lambda m: m["inputs"].append("in.txt"), "inputs[1] is 'in.txt'; an object is needed"),
        (lambda m: m["ngram_shares"].append("1"), "ngram_shares[3] is '1'; a number is needed"),
    ],
)
def test_a_value_of_another_type_is_named(folder: Path, change: Callable[[dict[str, Any]], object], what: str):
    change_manifest(folder, change)
    check_refused(folder, what)


def test_unknown_keys_are_kept_and_no_fault(folder: Path):
    change_manifest(folder, lambda m: m.update(readme_sha256="0" * 64, more={"a": [1]}))
    assert load_manifest(folder).values["more"] == {"a": [1]}
    assert not list(verify(folder))
    for read in READERS.values():
        read(folder)


def test_a_plan_by_itself_is_checked_too():
    assert parse(Plan, {})[1][0] == "rules_version is missing; a whole number is needed"
    assert parse(Plan, []) == (None, ["it is []; an object is needed"])


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"version": "a\udcff"}, r"half a surrogate pair, in 'a\\udcff'; give what holds it otherwise"),
        ({"hub": {"a": 2**63}}, "a whole number of 64 bits"),
        ({"tokenizer": {"a": float("nan")}}, "beyond the range of float64"),
        ({"version": 3}, "version is 3; a string is needed"),
    ],
)
def test_nothing_is_written_that_no_reader_takes(folder: Path, values: dict[str, Any], what: str):
    manifest = read_manifest(folder)
    check_readable(manifest)
    with pytest.raises(ShardError, match=f"^no command could read the manifest of this build: .*{what}"):
        check_readable(dataclasses.replace(manifest, plan=dataclasses.replace(manifest.plan, **values)))


@pytest.mark.parametrize("version", [True, 1.0, "1", None, [1], 1, 3])
def test_a_format_version_is_one_whole_number(folder: Path, version: object):
    change_manifest(folder, lambda m: m.update(format_version=version))
    check_refused(folder, f"is of format albert-data {version}; this version reads albert-data 2: build it again")


# ---- JSON ----


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested too deep"),
        ("[" * 40 + "]" * 40, "nests its values deeper than 32 levels"),
        ('{"a":' * 40 + "1" + "}" * 40, "nests its values deeper than 32 levels"),
        ("9" * 5000, "manifest.json can't be read: Exceeds the limit"),
        ("9" * 4000, "holds a whole number of 13,288 bits; allowed are -(2**63 - 1) to 2**63 - 1"),
        (str(2**63), "holds a whole number of 64 bits; allowed are -(2**63 - 1) to 2**63 - 1"),
        ("NaN", "holds NaN, which is not JSON"),
        ("-Infinity", "holds -Infinity, which is not JSON"),
        ("1e999", "holds a number beyond the range of float64"),
        (r'"a\ud800"', "holds half a surrogate pair"),
        (r'{"a\udfff": 1}', "holds half a surrogate pair"),
    ],
)
def test_json_that_not_every_reader_accepts_is_refused(folder: Path, value: str, what: str):
    text = (folder / MANIFEST_NAME).read_text()
    (folder / MANIFEST_NAME).write_text(text.rstrip().removesuffix("}") + f', "more": {value}}}')
    check_refused(folder, what)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe", b"{}\0", '{"format": "albert-data"}'.encode("utf-16"), b"[1]", b"7"]
)
def test_a_manifest_that_is_no_object_in_utf_8_is_refused(folder: Path, data: bytes):
    (folder / MANIFEST_NAME).write_bytes(data)
    check_refused(folder, "manifest.json can't be read: ")


def test_a_manifest_of_a_gigabyte_is_refused_unread(folder: Path):
    os.truncate(folder / MANIFEST_NAME, 1 << 30)  # sparse: it takes no room
    check_refused(folder, f"it has 1,073,741,824 bytes; at most {files.MAX_BYTES:,} are allowed")


def test_a_manifest_of_too_many_values_is_refused_unparsed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "MAX_VALUES", 50)
    check_refused(folder, "values; at most 50 are allowed")


# ---- what stands in the place of a folder or a manifest ----


def bind_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(path))  # such a path may have 107 bytes


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (os.mkfifo, "is a FIFO; a regular file is needed"),
        (bind_socket, "is a socket; a regular file is needed"),
        (Path.mkdir, "is a folder; a regular file is needed"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device; a regular file is needed"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
        (lambda path: path.symlink_to("nowhere"), "No such file or directory"),
    ],
)
def test_only_a_regular_file_is_opened_as_a_manifest(folder: Path, make: Callable[[Path], object], what: str):
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
        (bind_socket, "is no folder but a socket"),
        (lambda path: path.symlink_to("/dev/null"), "is no folder but a device"),
        (lambda path: path.symlink_to(path), "can't be read: Too many levels of symbolic links"),
        (lambda path: path.symlink_to("nowhere"), "does not exist"),
        (lambda path: None, "does not exist"),
    ],
)
def test_a_path_that_is_no_folder_is_named(tmp_path: Path, make: Callable[[Path], object], what: str):
    path = tmp_path / "out"
    make(path)
    for read in (*list(READERS.values())[:3], lambda folder: list(verify(folder))):
        with pytest.raises(ShardError, match=what):
            read(path)


@pytest.mark.parametrize(("name", "what"), [("a\0b", "null byte|is no path"), ("a" * 300, "File name too long")])
def test_an_impossible_path_is_named(name: str, what: str):
    for read in (*list(READERS.values())[:3], lambda folder: list(verify(folder))):
        with pytest.raises((ShardError, StorageError), match=what):
            read(Path(name))


def test_a_folder_that_may_not_be_read_is_named(folder: Path):
    folder.chmod(0)
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            os.setuid(65534)  # root may read everything
        try:
            open_shards(folder)
        except ShardError as error:
            os._exit("Permission denied" not in str(error))
        os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    folder.chmod(0o755)
    assert code == 0
