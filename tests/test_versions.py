"""Builds record the versions that made them: other versions are recognised and kept, old rows keep their rules."""

from __future__ import annotations

import json
from pathlib import Path

import build_fixtures as fixtures
import pytest
from build_fixtures import Corpus, CountingEngine, InlineEngine, check_finished, digest_folder, interrupt
from inspect_fixtures import (
    SMALL,
    TRAIN,
    draw_sentences,
    get_tokenizer,
    make_examples,
    rehash,
    write_folder,
    write_sentences,
)
from shard_fixtures import VERSIONS, to_version_1

from albert_data.errors import OutputError
from albert_data.files import read_json
from albert_data.inspect.choice import RowChoice
from albert_data.inspect.report import inspect_folder
from albert_data.inspect.verify import verify
from albert_data.pipeline import identity
from albert_data.rules import RULES_VERSION, current_versions
from albert_data.shards.manifest import MANIFEST_NAME
from albert_data.shards.manifest_file import read_manifest
from albert_data.shards.reader import open_shards
from albert_data.shards.schema import shard_schema, write_shard

NUMBER, UNICODE, LIBRARIES = current_versions()
NEWER_LIBRARY = (NUMBER, UNICODE, {**LIBRARIES, "sentencepiece": "99.0"})


def turn_old(out: Path) -> None:
    """Rewrite a folder's manifest in the format of version 1."""
    path = out / MANIFEST_NAME
    path.write_text(json.dumps(to_version_1(read_json(path))))


def test_manifest_and_plan_say_what_made_the_build(corpus: Corpus, tmp_path: Path):
    manifest = corpus.build(tmp_path / "out").manifest
    for recorded in (manifest, manifest.plan):
        assert (recorded.rules_version, recorded.unicode_version, recorded.libraries) == current_versions()
    assert {"sentencepiece", "pyarrow"} <= LIBRARIES.keys()


def test_rows_without_a_pair_are_counted(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    corpus.build(out)
    for name, split in read_manifest(out).splits.items():
        rows = [row.sop_label for row in open_shards(out, name)]
        assert split.num_unpaired == sum(shard.num_unpaired or 0 for shard in split.shards) == rows.count(-1)


# ---- what other rules built ----


def test_a_build_by_older_rules_is_not_finished_for_the_same_command(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    corpus.build(out)
    turn_old(out)
    before = digest_folder(out)
    with pytest.raises(OutputError) as caught:
        corpus.build(out)
    assert f"holds a finished build by older rules (version 1, this is {RULES_VERSION})" in str(caught.value)
    assert "--overwrite" in str(caught.value)
    assert digest_folder(out) == before
    corpus.build(out, overwrite=True)
    check_finished(corpus, out)


@pytest.mark.parametrize(
    ("there", "what"),
    [
        (NEWER_LIBRARY, f"another version of sentencepiece (99.0 there, {LIBRARIES['sentencepiece']} here)"),
        ((NUMBER, UNICODE, {**LIBRARIES, "old": "1"}), "another version of old (1 there, none here)"),
        ((NUMBER, "13.0", LIBRARIES), f"other Unicode tables (13.0 there, {UNICODE} here)"),
        ((1, UNICODE, LIBRARIES), f"older rules (version 1, this is {NUMBER})"),
    ],
)
@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "unfinished"])
def test_a_build_by_other_versions_is_named_and_kept_until_overwritten(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_finished: bool, there: tuple, what: str
):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(identity, "current_versions", lambda packages: there)
        if is_finished:
            corpus.build(out)
        else:
            interrupt(corpus, out, 3)
    before = digest_folder(out)
    state = "a finished" if is_finished else "an unfinished"
    with pytest.raises(OutputError) as caught:
        corpus.build(out)
    assert f"holds {state} build by {what}" in str(caught.value)
    assert "--overwrite" in str(caught.value)
    assert digest_folder(out) == before
    engine = CountingEngine()
    corpus.build(out, engine, overwrite=True)
    assert len(engine.mapped) == fixtures.CORPUS_TASKS, "nothing of the other build counts"
    check_finished(corpus, out)


def test_a_plan_without_versions_counts_as_one_by_older_rules(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    interrupt(corpus, out, 3)
    path = out / ".build" / "plan.json"
    plan = {key: value for key, value in read_json(path).items() if key not in VERSIONS}
    path.write_text(json.dumps(plan))
    with pytest.raises(OutputError, match=r"an unfinished build by older rules \(version 1, this is 2\)"):
        corpus.build(out, InlineEngine())


def test_work_by_newer_rules_is_kept(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    interrupt(corpus, out, 3)
    path = out / ".build" / "plan.json"
    path.write_text(json.dumps({**read_json(path), "rules_version": RULES_VERSION + 1}))
    runs = sorted(out.rglob("*.run"))
    with pytest.raises(OutputError, match=r"newer rules \(version 3, this is 2\).*--overwrite"):
        corpus.build(out, InlineEngine())
    assert sorted(out.rglob("*.run")) == runs
    corpus.build(out, InlineEngine(), overwrite=True)


def test_inspect_shows_a_folder_of_version_1(tmp_path: Path):
    rows = make_examples(draw_sentences(40, 1), SMALL)
    old = write_folder(tmp_path / "old", {"train": [rows]}, SMALL)
    turn_old(old)
    page = inspect_folder(old, split="train", choice=RowChoice(count=2))
    assert "Splits" in page.to_text()
    assert page.to_dict()["format_version"] == 1


def test_a_changed_byte_of_a_shard_of_version_1_is_found(tmp_path: Path):
    """To find it, verify writes the rows again, in the folder's version of the format."""
    rows, tokenizer = make_examples(write_sentences(9, 1), SMALL), get_tokenizer()
    folder = write_folder(tmp_path, {"train": [rows]})
    write_shard(folder / TRAIN, [rows], shard_schema(tokenizer.id_dtype, 1), "none")
    rehash(folder, TRAIN)
    turn_old(folder)
    data = bytearray((folder / TRAIN).read_bytes())
    assert not list(verify(folder))
    data[6] ^= 1  # padding after the first magic number
    (folder / TRAIN).write_bytes(data)
    assert [(fault.byte, "The rows are as they were built" in fault.what) for fault in verify(folder)][-1] == (6, True)
