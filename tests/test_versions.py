"""Builds record the versions that made them: other versions are recognised and kept, old rows keep their rules."""

from __future__ import annotations

import json

import build_fixtures as fixtures
import pytest
from build_fixtures import CountingEngine, InlineEngine, check_finished, digest_folder, interrupt
from shard_fixtures import seal

from albert_data.errors import OutputError
from albert_data.pipeline import plan
from albert_data.rules import RULES_VERSION, current_versions
from albert_data.shards.manifest import MANIFEST_NAME, SEAL
from albert_data.shards.manifest_file import read_manifest
from albert_data.shards.reader import open_shards
from albert_data.storage.files import read_json

NUMBER, UNICODE, LIBRARIES = current_versions()
NEWER_LIBRARY = (NUMBER, UNICODE, {**LIBRARIES, "sentencepiece": "99.0"})


def test_manifest_and_plan_say_what_made_the_build(finished):
    manifest = read_manifest(finished)
    for recorded in (manifest, manifest.plan):
        assert (recorded.rules_version, recorded.unicode_version, recorded.libraries) == current_versions()
    assert {"sentencepiece", "pyarrow"} <= LIBRARIES.keys()


def test_rows_without_a_pair_are_counted(finished):
    for name, split in read_manifest(finished).splits.items():
        rows = [row.sop_label for row in open_shards(finished, name)]
        assert split.num_unpaired == sum(shard.num_unpaired or 0 for shard in split.shards) == rows.count(-1)


# ---- what other rules built ----


def test_a_build_of_another_format_is_kept(corpus, tmp_path):
    out = tmp_path / "out"
    corpus.build(out)
    path = out / MANIFEST_NAME
    values = {key: value for key, value in read_json(path).items() if key != SEAL}
    path.write_text(json.dumps(seal({**values, "format_version": 1})))
    before = digest_folder(out)
    for overwrite in (False, True):
        with pytest.raises(OutputError, match="format albert-data 1; this version reads albert-data 2: build it again"):
            corpus.build(out, overwrite=overwrite)
        assert digest_folder(out) == before


@pytest.mark.parametrize(
    ("there", "what"),
    [
        (NEWER_LIBRARY, f"another version of sentencepiece (99.0 there, {LIBRARIES['sentencepiece']} here)"),
        ((NUMBER, UNICODE, {**LIBRARIES, "old": "1"}), "another version of old (1 there, none here)"),
        ((NUMBER, "13.0", LIBRARIES), f"other Unicode tables (13.0 there, {UNICODE} here)"),
        ((1, UNICODE, LIBRARIES), f"other rules (1 there, {NUMBER} here)"),
    ],
)
@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "unfinished"])
def test_a_build_by_other_versions_is_named_and_kept_until_overwritten(
    corpus, tmp_path, monkeypatch, is_finished, there, what
):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(plan, "current_versions", lambda packages: there)
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


def test_work_by_newer_rules_is_kept(corpus, tmp_path):
    """Even if its plan can't be read."""
    out = tmp_path / "out"
    interrupt(corpus, out, 3)
    path = out / ".build" / "plan.json"
    path.write_text(json.dumps({**read_json(path), "inputs": 1, "rules_version": RULES_VERSION + 1}))
    runs = sorted(out.rglob("*.run"))
    versions = rf"\({RULES_VERSION + 1} there, {RULES_VERSION} here\)"
    with pytest.raises(OutputError, match=rf"other rules {versions}.*--overwrite"):
        corpus.build(out, InlineEngine())
    assert sorted(out.rglob("*.run")) == runs
    corpus.build(out, InlineEngine(), overwrite=True)
