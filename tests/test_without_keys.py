"""`--without-keys` leaves out the documents that a file names: the shards are those of a build of the rest."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import InterruptedEngine, SpanningEngine, digest_shards, document_key, keys_of
from click.testing import CliRunner
from corpus_fixtures import small_sizes
from hypothesis import given
from hypothesis import strategies as st
from id_fixtures import RECORDS, Record, read_table, run, write
from refusals import check_refused, refused

from albert_data import build, document_keys
from albert_data.cli.main import cli
from albert_data.config import BuildConfig, TextConfig
from albert_data.errors import ConfigError, InputError, OutputError
from albert_data.survey.without import read_entries


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 12):
        yield


def leave_out(records: list[Record], keys: set[int], ids: set[str]) -> list[Record]:
    return [(text, id) for text, id in records if document_key(text) not in keys and id not in ids]


def write_list(path: Path, keys: set[int], ids: set[str]) -> Path:
    lines = ["# people who asked", "", *(f"{key:016x}" for key in keys), *(f" {id}\r" for id in ids)]
    random.Random(3).shuffle(lines)
    path.write_text("\ufeff" + "\n".join(lines), newline="")
    return path


def compare(folder: Path, records: list[Record], keys: set[int], ids: set[str], tokenizer: Any, **options: Any) -> None:
    """Build what is left of records by the option, and by itself in another order."""
    path = write_list(folder / "out.txt", keys | ({7} if keys else set()), ids | {"nobody"})
    rest = leave_out(records, keys, ids)
    report = run(write(folder / "in", records), folder / "out", tokenizer, without_keys=path, **options)
    run(write(folder / "rest-in", rest, seed=4), folder / "rest", tokenizer, **options)
    assert digest_shards(folder / "out") == digest_shards(folder / "rest")  # of the table too
    assert read_table(folder / "out") == read_table(folder / "rest")
    damage = report.manifest.damage
    if "drop_repeated_lines" not in options:  # which leaves nothing of some documents
        assert damage.get("without_keys", 0) == len(records) - len(rest)
        assert damage["unknown_keys"] == (2 if keys else 1)
    assert report.manifest.counts.documents <= len(rest)


@pytest.mark.parametrize(
    "options",
    [
        {"drop_near_duplicates": True, "similarity": 0.5, "group_field": "meta.id"},
        {"keep_duplicates": True, "dupe_factor": 2, "num_shards": 3},
        {"drop_repeated_lines": 3},
        {"unicode": "nfc", "unwrap": True, "sample": 0.9, "min_chars": 40},
    ],
    ids=lambda options: next(iter(options)),
)
def test_whatever_the_options_shards_are_those_of_a_build_of_the_rest(options, tokenizer, tmp_path):
    records = [*RECORDS[:60], *((text, "copy") for text, _ in RECORDS[:20])]
    records += [(f"{text}\nMore.", id) for text, id in RECORDS[:40]]
    keys = {document_key(records[number][0]) for number in (1, 5, 50, 70, 90)}
    keys = set() if "drop_repeated_lines" in options or "unwrap" in options else keys
    compare(tmp_path, records, keys, {"id 4", "id 30", "id 31"}, tokenizer, **options)


@given(records=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), max_size=12), out=st.sets(st.integers(0, 20)))
def test_whoever_is_left_out_shards_are_those_of_a_build_of_the_rest(records, out, tokenizer, tmp_path_factory):
    some = [(f"Document {number}.\nThe water.", f"{id}") for number, id in [*records, (30, 30), (31, 31)]]
    keys, ids = (
        {document_key(f"Document {number}.\nThe water.") for number in out if number > 9},
        {f"{n}" for n in out if n < 10},
    )
    keys &= {document_key(text) for text, _ in some}
    ids &= {id for text, id in some if document_key(text)}
    compare(tmp_path_factory.mktemp("without"), some, keys, ids, tokenizer)


def test_an_engine_over_machines_and_a_resumed_build_leave_out_the_same(tmp_path, tokenizer):
    names, keys = write(tmp_path / "in", RECORDS), {document_key(text) for text, _ in RECORDS[:40]}
    path = write_list(tmp_path / "out.txt", keys, {"id 60"})
    run(names, tmp_path / "whole", tokenizer, without_keys=path)
    run(names, tmp_path / "spanning", tokenizer, SpanningEngine(), without_keys=path)
    with pytest.raises(KeyboardInterrupt):
        run(names, tmp_path / "killed", tokenizer, InterruptedEngine(3), without_keys=path)
    write_list(tmp_path / "other.txt", keys, set())
    with pytest.raises(OutputError, match="unfinished build.* without_keys is"):
        run(names, tmp_path / "killed", tokenizer, without_keys=tmp_path / "other.txt")
    path.write_text("\n".join(reversed(path.read_text().split("\n"))))
    assert run(names, tmp_path / "killed", tokenizer, without_keys=path).resumed_tasks == 3
    path.unlink()
    assert (
        digest_shards(tmp_path / "whole") == digest_shards(tmp_path / "spanning") == digest_shards(tmp_path / "killed")
    )
    assert not keys_of(tmp_path / "whole")[0] & keys


def test_benchmarks_lose_their_documents_too(tmp_path, tokenizer):
    texts = [text for text, _ in RECORDS if text.count(" ") > 60][:6]
    path = tmp_path / "out.txt"
    path.write_text(f"{document_key(texts[0]):016x}")
    lines = {name: "".join(f"{text}\n\n" for text in some) for name, some in {"a": texts, "b": texts[:2]}.items()}
    for name, text in lines.items():
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "mix.toml").write_text(
        '[[source]]\nname = "a"\npaths = ["a.txt"]\n[[source]]\nname = "b"\npaths = ["b.txt"]\nweight = 0\n'
    )
    report = run(tmp_path / "mix.toml", tmp_path / "out", tokenizer, id_field=None, without_keys=path)
    assert report.manifest.counts.contaminated_documents == 1
    assert report.manifest.damage["without_keys"] == 2


KEY = "0123456789abcdef"


@refused(
    ((f"{KEY}\n\nperson", {}), InputError, "line 3: 'person' & --id-field"),
    ((f"# {KEY}\n{KEY}", {"drop_repeated_lines": 2}), InputError, f"line 2: '{KEY}' & --drop-repeated-lines"),
    (("\n" + "i" * 1027, {"id_field": "id"}), InputError, "line 2: 'iii & 1,024 bytes"),
    (("#" * 5000, {"id_field": "id"}), InputError, "line 1: '### & 1,024 bytes"),
    ((b"\xff\xfei\0d\0", {"id_field": "id"}), InputError, "line 1: & not UTF-8"),
)
def test_lines_that_name_nothing_are_refused(call, kind, named, tmp_path):
    data, settings = call
    (tmp_path / "out.txt").write_bytes(data if isinstance(data, bytes) else data.encode())
    check_refused(lambda: read_entries(tmp_path / "out.txt", TextConfig(**settings)), kind, f"--without-keys & {named}")


@refused(
    ({"tokenizer": None, "without_keys": "out.txt"}, ConfigError, "--without-keys needs a tokenizer"),
    ({"config": BuildConfig(without_keys="00")}, ConfigError, "--without-keys needs the file"),
    ({"without_keys": "none.txt"}, InputError, "--without-keys none.txt can't be read"),
    ({"without_keys": "all.txt"}, InputError, "no document & check --without-keys"),
)
def test_a_build_that_can_t_leave_out_is_refused(call, kind, named, tmp_path, tokenizer, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("One.")
    Path("out.txt").write_text(KEY)
    Path("all.txt").write_text(f"{document_keys('One.')[0]:016X}")
    check_refused(lambda: build("in.txt", "out", **{"tokenizer": tokenizer, **call}), kind, named)


def test_the_command_takes_a_file_and_an_empty_one_leaves_out_nothing(tmp_path, tokenizer_model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("One a.\n\nTwo b.\n\nThree c.")
    Path("model").write_bytes(tokenizer_model) if isinstance(tokenizer_model, bytes) else None
    model = "model" if isinstance(tokenizer_model, bytes) else str(tokenizer_model)
    for name, text in {"one": f"{document_keys('Two b.')[0]:016x}\n", "none": "# nobody\n"}.items():
        Path(name).write_text(text)
        found = CliRunner().invoke(
            cli, ["build", "in.txt", "--tokenizer", model, "--without-keys", name, "-o", f"{name}-out"]
        )
        assert found.exit_code == 0, found.output
        assert len(set.union(*keys_of(tmp_path / f"{name}-out"))) == (2 if name == "one" else 3)


@pytest.mark.parametrize("num_lines", [1, 10, 50])  # the last is read as a text file
def test_document_keys_are_those_of_a_build(num_lines):
    text = "".join(f"Café {number}.\n" for number in range(10, 10 + num_lines))
    with small_sizes(max_line=16, max_document=40):
        keys = document_keys(text)
        assert keys == document_keys(text.replace(" ", " \t ")) == document_keys(text, min_chars=99)
        if num_lines == 1:  # in bytes, the other form would be cut elsewhere
            assert keys == document_keys(text.replace("é", "e\u0301"))
    lines = text.splitlines()
    assert keys == [document_key("\n".join(lines[at : at + 4])) for at in range(0, num_lines, 4)]
    assert document_keys(" \n") == []
    check_refused(lambda: document_keys(text, drop_repeated_lines=2), ConfigError, "drop_repeated_lines")
