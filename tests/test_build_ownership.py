"""OUT is new, empty or ours, and in it a file that no build wrote is never replaced or removed."""

from __future__ import annotations

import os
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import MINE, Corpus, InterruptedEngine, check_finished, digest_folder, interrupt, plant, run_build

from albert_data.errors import OutputError
from albert_data.jobs.progress import NullProgress
from albert_data.tokenizer.model import load_tokenizer

# ---- folders that are not ours ----

OUR_NAMES = ("tokenizer/spiece.model", "tokenizer/words.txt", "train/shard-00000.arrow", "train/shard-00002.arrow")
OTHER_NAMES = ("thesis.tex", "lost+found/1", "run/run.json", "train/notes.txt", "tokenizer/pieces.txt")
FOLDERS = ("train", "validation", "tokenizer")


@pytest.fixture(params=[False, True], ids=["build", "overwrite"])
def overwrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def built(finished: Path, out: Path) -> Path:
    """A copy of a finished build."""
    return shutil.copytree(finished, out)


def check_refused(corpus: Corpus, out: Path, message: str, **settings: Any) -> None:
    """The build stops before any work, and nothing has changed."""
    before = digest_folder(out)
    with pytest.raises(OutputError, match=message):
        corpus.build(out, InterruptedEngine(0), **settings)
    assert digest_folder(out) == before


@pytest.mark.parametrize("name", ["README.md", *OUR_NAMES, *OTHER_NAMES])
def test_a_folder_with_other_files_is_refused(name, overwrite, corpus, out):
    plant(out / name)
    first = name.split("/")[0].replace("+", r"\+")
    check_refused(corpus, out, f"out holds {first}, but no build; name a new or em", overwrite=overwrite)
    plant(out / "zebra")
    plant(out / "zoo/1")
    check_refused(corpus, out, f"out holds {first} and 2 other names", overwrite=overwrite)
    assert not (out / ".build").exists()


def test_files_of_a_build_without_its_manifest_are_not_ours(overwrite, corpus, built):
    (built / "manifest.json").unlink()
    check_refused(corpus, built, "holds README.md and 3 other names, but no build", overwrite=overwrite)


@pytest.mark.parametrize("content", [MINE, b"{", b"{}", b'{"format": "other"}', None])
def test_a_manifest_that_no_build_wrote_stays(content, overwrite, corpus, built):
    edited = (built / "manifest.json").read_bytes().replace(b'"documents"', b'"docs"', 1)
    (built / "manifest.json").write_bytes(edited if content is None else content)
    message = "manifest.json is not as a build wrote it, so nothing there is replaced; name a new or empty folder"
    check_refused(corpus, built, message, overwrite=overwrite)
    assert not (built / ".build").exists()


@pytest.mark.parametrize("name", [".DS_Store", ".git/config", ".build/lock"])
def test_hidden_files_do_not_count(name, overwrite, corpus, out):
    """An empty lock is what a build leaves that was killed at once."""
    is_lock = name == ".build/lock"
    plant(out / name, b"" if is_lock else MINE)
    kept = {} if is_lock else {name: sha256(MINE).hexdigest()}
    corpus.build(out, overwrite=overwrite)
    assert digest_folder(out) == corpus.files | kept
    corpus.build(out, seed=8, overwrite=True)
    corpus.build(out, overwrite=True)
    assert digest_folder(out) == corpus.files | kept


@pytest.mark.parametrize("folder", [*FOLDERS, ".build", ".build/runs", ".build/shards/train", ".build/manifests"])
def test_nothing_is_written_or_removed_through_a_link(folder, overwrite, corpus, out):
    elsewhere = out.with_name("elsewhere")
    for name in ("shard-00000.arrow", "spiece.model", "plan.json", "1.run"):
        plant(elsewhere / name)
    before = digest_folder(elsewhere)
    (out / folder).parent.mkdir(parents=True)
    (out / folder).symlink_to(elsewhere)
    check_refused(corpus, out, "is not a folder of a build|but no build", overwrite=overwrite)
    assert digest_folder(elsewhere) == before


@pytest.mark.parametrize("folder", [*FOLDERS, ".build/runs", ".build/shards/train"])
def test_nothing_is_removed_if_a_folder_of_ours_became_a_link(folder, corpus, built):
    """What lies behind the link has the names and the bytes that our manifest gives."""
    elsewhere = built.with_name("elsewhere")
    interrupt(corpus, built, fixtures.CORPUS_TASKS + 2, overwrite=True, seed=8)
    (built / folder).rename(elsewhere)
    (built / folder).symlink_to(elsewhere)
    before = digest_folder(elsewhere)
    for settings in ({"seed": 8}, {}):
        check_refused(corpus, built, r"is (a link|not a folder of a build)", overwrite=True, **settings)
    assert digest_folder(elsewhere) == before


# ---- folders of ours; test_build_publishing has what happens at the end of a build ----


def test_an_edited_card_and_foreign_shards_stay_and_are_named(corpus, built, monkeypatch):
    lines = list[str]()
    monkeypatch.setattr(NullProgress, "say", lambda self, line: lines.append(line))
    name = "train/data-00000-of-00001.arrow"
    plant(built / "README.md")
    plant(built / name)
    corpus.build(built, seed=8, overwrite=True)
    (line,) = [line for line in lines if name in line]
    assert "does not belong to this build and stays" in line
    assert any("README.md is not as a build wrote it, and stays" in line for line in lines)
    assert (built / "README.md").read_bytes() == (built / name).read_bytes() == MINE
    (built / "README.md").unlink()
    lines.clear()
    corpus.build(built, overwrite=True)
    assert not any("README.md" in line for line in lines)
    assert digest_folder(built) == corpus.files | {name: sha256(MINE).hexdigest()}


@pytest.mark.parametrize("name", ["README.md", "train/shard-00000.arrow", "manifest.json", ".build/lock"])
def test_a_link_under_one_of_our_names_stops_the_build(name, corpus, out):
    target = plant(out.with_name("target"))
    (out / name).parent.mkdir(parents=True)
    (out / name).symlink_to(target)
    with pytest.raises(OutputError):
        corpus.build(out, overwrite=True)
    assert target.read_bytes() == MINE
    assert (out / name).is_symlink()


@pytest.mark.parametrize("content", [b"{", b'{"config": {}, "inputs": [1], "version": "1"}', None])
def test_a_foreign_build_folder_is_refused_and_left_alone(content, overwrite, corpus, out, finished, tmp_path):
    """Without our mark not even a plan of ours makes it ours."""
    if content is None:
        interrupt(corpus, tmp_path / "other", 3)
        content = (tmp_path / "other/.build/plan.json").read_bytes()
    plant(out / ".build/plan.json", content)
    plant(out / ".build/object.o")
    check_refused(corpus, out, r"\.build holds object.o, but no mark of a build; name a new or ", overwrite=overwrite)
    shutil.copytree(finished, out, dirs_exist_ok=True)
    check_refused(corpus, out, r"\.build holds object.o", overwrite=True)
    (out / ".build/plan.json").unlink()
    assert corpus.build(out).was_finished
    assert (out / ".build/object.o").read_bytes() == MINE


def test_files_of_others_in_our_work_folder_stay(corpus, out):
    interrupt(corpus, out, 3)
    names = [".build/notes.txt", ".build/runs/notes.txt", ".build/receipts/sub/a.json", ".build/shards/train/x.txt"]
    for name in names:
        plant(out / name)
    corpus.build(out, seed=8, overwrite=True)
    assert all((out / name).read_bytes() == MINE for name in names)


@pytest.mark.parametrize("content", ["[]", "{", '{"version": "0.3.0", "config": {}, "tokenizer": {}, "inputs": [1]}'])
def test_a_damaged_plan_of_ours_counts_as_none(content, corpus, out):
    interrupt(corpus, out, 3)
    (out / ".build/plan.json").write_text(content)
    assert corpus.build(out).resumed_tasks == 0
    check_finished(corpus, out)


# ---- odd folders, files and locks ----


def test_a_tokenizer_in_out_itself_may_be_the_one_that_is_used(corpus, out):
    plant(out / "tokenizer/spiece.model", corpus.tokenizer.model)
    check_refused(corpus, out, "holds tokenizer, but no build")
    shutil.rmtree(out)
    corpus.build(out, seed=8)
    tokenizer = load_tokenizer(out / "tokenizer")
    run_build(corpus.path, out, tokenizer, overwrite=True, num_shards=fixtures.CORPUS_SHARDS)
    check_finished(corpus, out)


@pytest.mark.parametrize("name", ["README.md", "train", "train/shard-00001.arrow", "notes"])
@pytest.mark.parametrize("act", [os.mkfifo, Path.mkdir], ids=["fifo", "folder"])
def test_a_fifo_or_folder_under_the_name_of_a_file_stops_the_build(act, name, corpus, built, tmp_path):
    (tmp_path / "new" / name).parent.mkdir(parents=True)
    act(tmp_path / "new" / name)
    check_refused(corpus, tmp_path / "new", "holds .*, but no build")
    if (built / name).is_dir():
        shutil.rmtree(built / name)
    (built / name).unlink(missing_ok=True)
    act(built / name)
    if name.endswith(".arrow") or (name == "train" and act is os.mkfifo):
        check_refused(corpus, built, "was not written by a build|is not a folder", overwrite=True, seed=8)
    else:
        corpus.build(built, overwrite=True, seed=8)
    assert (built / name).is_fifo() == (act is os.mkfifo)


@pytest.mark.parametrize("content", [b"notes of another tool", b"albert-data build\nand more"])
def test_a_foreign_lock_is_not_ours(content, corpus, out):
    plant(out / ".build/lock", content)
    check_refused(corpus, out, "holds lock, but no mark of a build")


@pytest.mark.parametrize("content", [b"", b"albert-"])
def test_a_lock_with_a_partial_mark_is_ours(content, corpus, out):
    plant(out / ".build/lock", content)
    plant(out / "notes.txt")
    check_refused(corpus, out, "out holds notes.txt, but no build")
    (out / "notes.txt").unlink()
    corpus.build(out)
    check_finished(corpus, out)
