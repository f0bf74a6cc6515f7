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

NAMES = ("README.md", "tokenizer/spiece.model", "train/shard-00000.arrow", "lost+found/1", "train/notes.txt")
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


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_with_other_files_is_refused(name, overwrite, corpus, out):
    plant(out / name)
    plant(out / "zebra")
    first = name.split("/")[0].replace("+", r"\+")
    check_refused(corpus, out, f"out holds {first} and 1 more, but no build; name a new or em", overwrite=overwrite)
    assert not (out / ".build").exists()


@pytest.mark.parametrize("content", [MINE, b"{", b"{}", b'{"format": "other"}', "edited", None])
def test_a_folder_without_a_manifest_as_a_build_wrote_it_is_not_ours(content, overwrite, corpus, built):
    path, message = (
        built / "manifest.json",
        "manifest.json is not as a build wrote it, so nothing there is replaced; name",
    )
    if content is None:
        path.unlink()
        message = "holds README.md and 3 more, but no build"
    else:
        path.write_bytes(path.read_bytes().replace(b'"tokens"', b'"t"', 1) if content == "edited" else content)
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
@pytest.mark.parametrize("is_ours", [False, True])
def test_nothing_is_written_or_removed_through_a_link(folder, is_ours, corpus, out, finished):
    """What lies behind the link has the names that a build gives; where OUT is ours, also the bytes."""
    elsewhere = out.with_name("elsewhere")
    for name in ("shard-00000.arrow", "spiece.model", "plan.json", "1.run"):
        plant(elsewhere / name)
    if is_ours:
        shutil.copytree(finished, out)
        interrupt(corpus, out, fixtures.CORPUS_TASKS + 2, overwrite=True, seed=8)
        (elsewhere / "ours").mkdir()
        if (out / folder).exists():
            elsewhere = (out / folder).rename(elsewhere / "ours" / "moved")
    (out / folder).parent.mkdir(parents=True, exist_ok=True)
    (out / folder).symlink_to(elsewhere)
    before = digest_folder(out.with_name("elsewhere"))
    check_refused(corpus, out, "is (a link|not a folder of a build)|but no build", overwrite=is_ours)
    assert digest_folder(out.with_name("elsewhere")) == before


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


def link(path: Path) -> None:
    path.symlink_to(plant(next(one for one in path.parents if one.name == "out").with_name("target")))


@pytest.mark.parametrize("name", ["README.md", "train", "train/shard-00001.arrow", "notes", ".build/lock"])
@pytest.mark.parametrize("act", [os.mkfifo, Path.mkdir, link])
def test_what_is_no_file_under_the_name_of_one_stops_the_build_or_stays(act, name, corpus, built, tmp_path):
    (tmp_path / "new/out" / name).parent.mkdir(parents=True)
    act(tmp_path / "new/out" / name)
    check_refused(corpus, tmp_path / "new/out", "holds .*, but no (build|mark)")
    if (built / name).is_dir():
        shutil.rmtree(built / name)
    (built / name).unlink(missing_ok=True)
    (built / name).parent.mkdir(exist_ok=True)
    act(built / name)
    if name.endswith((".arrow", "lock")) or (name == "train" and act is not Path.mkdir):
        message = "was not written by a build|is not a folder|is a link|no mark of a build"
        check_refused(corpus, built, message, overwrite=True, seed=8)
    else:
        corpus.build(built, overwrite=True, seed=8)
    assert (built / name).is_fifo() == (act is os.mkfifo)
    assert (built / name).is_symlink() == (act is link)


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
    assert corpus.build(out).was_finished
    assert (out / ".build/object.o").read_bytes() == MINE


def test_what_no_build_makes_in_our_work_folder_stays(corpus, out):
    interrupt(corpus, out, 3)
    for name in (".build/mine/notes.txt", ".build/receipts/sub/a.json"):
        plant(out / name)
    (out / ".build/runs/link").symlink_to(plant(out.with_name("target")))
    corpus.build(out, seed=8, overwrite=True)
    assert (out / ".build/mine/notes.txt").read_bytes() == (out / ".build/receipts/sub/a.json").read_bytes() == MINE
    assert (out / ".build/runs/link").read_bytes() == MINE


@pytest.mark.parametrize("content", ["[]", "{", '{"version": "0.3.0", "config": {}, "tokenizer": {}, "inputs": [1]}'])
def test_a_damaged_plan_of_ours_counts_as_none(content, corpus, out):
    interrupt(corpus, out, 3)
    (out / ".build/plan.json").write_text(content)
    assert corpus.build(out).resumed_tasks == 0
    check_finished(corpus, out)


def test_a_tokenizer_in_out_itself_may_be_the_one_that_is_used(corpus, out):
    plant(out / "tokenizer/spiece.model", corpus.tokenizer.model)
    check_refused(corpus, out, "holds tokenizer, but no build")
    shutil.rmtree(out)
    corpus.build(out, seed=8)
    tokenizer = load_tokenizer(out / "tokenizer")
    run_build(corpus.path, out, tokenizer, overwrite=True, num_shards=fixtures.CORPUS_SHARDS)
    check_finished(corpus, out)


@pytest.mark.parametrize("content", [b"", b"albert-", b"notes of another tool", b"albert-data build\nand more"])
def test_a_lock_is_ours_if_it_has_our_mark_or_its_beginning(content, corpus, out):
    plant(out / ".build/lock", content)
    if len(content) > 9:
        check_refused(corpus, out, "holds lock, but no mark of a build")
        return
    plant(out / "notes.txt")
    check_refused(corpus, out, "out holds notes.txt, but no build")
    (out / "notes.txt").unlink()
    corpus.build(out)
    check_finished(corpus, out)
