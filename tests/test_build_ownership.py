"""OUT is new, empty or ours, and in it a file that no build wrote is never replaced or removed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import Corpus, InterruptedEngine, check_finished, digest_folder, interrupt, run_build
from shard_fixtures import seal

from albert_data.corpus.inputs import find_inputs
from albert_data.errors import AlbertDataError, OutputError
from albert_data.pipeline.build import build_shards
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import load_tokenizer

PRECIOUS = b"years of work"


def plant(path: Path, data: bytes = PRECIOUS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


class Sayings:
    """Records the lines that a build says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def start(self, *_: Any) -> None: ...
    def advance(self, *_: Any) -> None: ...
    def say(self, line: str) -> None:
        self.lines.append(line)


def build_and_listen(corpus: Corpus, out: Path, **settings: Any) -> list[str]:
    sayings, overwrite = Sayings(), settings.pop("overwrite", False)
    config = fixtures.make_config(num_shards=fixtures.CORPUS_SHARDS, **settings)
    inputs, engine = find_inputs([str(corpus.path)]), fixtures.InlineEngine()
    build_shards(inputs, out, corpus.tokenizer, config, engine, sayings, overwrite=overwrite)
    return sayings.lines


# ---- folders that are not ours ----

OUR_NAMES = ("tokenizer/spiece.model", "tokenizer/words.txt", "train/shard-00000.arrow", "train/shard-00002.arrow")
OTHER_NAMES = ("thesis.tex", "lost+found/1", "run/run.json", "train/notes.txt", "tokenizer/pieces.txt")
FOLDERS = ("train", "validation", "tokenizer")


@pytest.fixture(params=[False, True], ids=["build", "overwrite"])
def overwrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def check_refused(corpus: Corpus, out: Path, message: str, **settings: Any) -> None:
    """The build stops before any work, and nothing has changed."""
    before = digest_folder(out)
    with pytest.raises(OutputError, match=message):
        corpus.build(out, InterruptedEngine(0), **settings)
    assert digest_folder(out) == before


@pytest.mark.parametrize("name", ["README.md", *OUR_NAMES, *OTHER_NAMES])
def test_a_folder_with_other_files_is_refused(name: str, overwrite: bool, corpus: Corpus, tmp_path: Path):
    plant(tmp_path / "out" / name)
    first = name.split("/")[0].replace("+", r"\+")
    check_refused(corpus, tmp_path / "out", f"out holds {first}, but no build; name a new or em", overwrite=overwrite)
    plant(tmp_path / "out/zebra")
    plant(tmp_path / "out/zoo/1")
    check_refused(corpus, tmp_path / "out", f"out holds {first} and 2 other names", overwrite=overwrite)
    assert not (tmp_path / "out/.build").exists()


def test_files_of_a_build_without_its_manifest_are_not_ours(overwrite: bool, corpus: Corpus, tmp_path: Path):
    corpus.build(tmp_path / "out")
    (tmp_path / "out/manifest.json").unlink()
    check_refused(corpus, tmp_path / "out", "holds README.md and 3 other names, but no build", overwrite=overwrite)


def test_a_manifest_of_another_program_makes_no_folder_ours(overwrite: bool, corpus: Corpus, tmp_path: Path):
    plant(tmp_path / "out/manifest.json")
    message = "manifest.json is not as a build wrote it, so nothing there is replaced; name a new or empty folder"
    check_refused(corpus, tmp_path / "out", message, overwrite=overwrite)
    assert not (tmp_path / "out/.build").exists()


@pytest.mark.parametrize("name", [".DS_Store", ".git/config", ".build/lock"])
def test_hidden_files_do_not_count(name: str, overwrite: bool, corpus: Corpus, tmp_path: Path):
    """An empty lock is what a build leaves that was killed at once."""
    out, data = tmp_path / "out", b"" if name == ".build/lock" else PRECIOUS
    plant(out / name, data)
    corpus.build(out, overwrite=overwrite)
    kept = {} if name == ".build/lock" else {name: sha256(PRECIOUS).hexdigest()}
    assert digest_folder(out) == corpus.files | kept
    corpus.build(out, seed=8, overwrite=True)
    corpus.build(out, overwrite=True)
    assert digest_folder(out) == corpus.files | kept


@pytest.mark.parametrize("folder", [*FOLDERS, ".build", ".build/runs", ".build/shards/train", ".build/manifests"])
def test_nothing_is_written_or_removed_through_a_link(folder: str, overwrite: bool, corpus: Corpus, tmp_path: Path):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    for name in ("shard-00000.arrow", "spiece.model", "plan.json", "1.run"):
        plant(elsewhere / name)
    before = digest_folder(elsewhere)
    (out / folder).parent.mkdir(parents=True)
    (out / folder).symlink_to(elsewhere)
    check_refused(corpus, out, "is not a folder of a build|but no build", overwrite=overwrite)
    assert digest_folder(elsewhere) == before


@pytest.mark.parametrize("folder", [*FOLDERS, ".build/runs", ".build/shards/train"])
def test_nothing_is_removed_if_a_folder_of_ours_became_a_link(folder: str, corpus: Corpus, tmp_path: Path):
    """What lies behind the link has the names and the bytes that our manifest gives."""
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    corpus.build(out)
    interrupt(corpus, out, fixtures.CORPUS_TASKS + 2, overwrite=True, seed=8)
    (out / folder).rename(elsewhere)
    (out / folder).symlink_to(elsewhere)
    before = digest_folder(elsewhere)
    for settings in ({"seed": 8}, {}):
        check_refused(corpus, out, r"is (a link|not a folder of a build)", overwrite=True, **settings)
    assert digest_folder(elsewhere) == before


# ---- folders of ours ----


@pytest.mark.parametrize("results", [3, fixtures.CORPUS_TASKS + 2, 1000])  # 1000: it is finished
def test_other_files_in_a_folder_of_ours_do_not_stop_a_build_and_stay(results: int, corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    with suppress(KeyboardInterrupt):
        corpus.build(out, InterruptedEngine(results), seed=8)
    for name in OTHER_NAMES:
        plant(out / name)
    corpus.build(out, seed=8)
    assert open_shards(out).manifest.config.examples.seed == 8
    corpus.build(out, overwrite=True)
    assert digest_folder(out) == {**corpus.files, **dict.fromkeys(OTHER_NAMES, sha256(PRECIOUS).hexdigest())}


@pytest.mark.parametrize("name", OUR_NAMES)
def test_a_users_file_under_one_of_our_names_stops_the_build_and_stays(
    name: str, overwrite: bool, corpus: Corpus, tmp_path: Path
):
    for number, results in enumerate((3, fixtures.CORPUS_TASKS + 2, 1000)):
        out = tmp_path / str(number)
        with suppress(KeyboardInterrupt):
            corpus.build(out, InterruptedEngine(results))
        plant(out / name)
        if overwrite or results < 1000:
            message = rf"{name} was not written by a build, or was changed since.*move it away"
            check_refused(corpus, out, message, overwrite=overwrite)


def test_foreign_shards_beside_ours_stay_and_are_named(corpus: Corpus, tmp_path: Path):
    out, name = tmp_path / "out", "train/data-00000-of-00001.arrow"
    corpus.build(out, seed=8)
    plant(out / name)
    (line,) = [line for line in build_and_listen(corpus, out, overwrite=True) if name in line]
    assert "does not belong to this build and stays" in line
    build_and_listen(corpus, out, seed=8, overwrite=True)
    assert (out / name).read_bytes() == PRECIOUS


@pytest.mark.parametrize("name", ["README.md", "train/shard-00000.arrow", "manifest.json", ".build/lock"])
def test_a_link_under_one_of_our_names_stops_the_build(name: str, corpus: Corpus, tmp_path: Path):
    out, target = tmp_path / "out", plant(tmp_path / "target")
    (out / name).parent.mkdir(parents=True)
    (out / name).symlink_to(target)
    with pytest.raises(OutputError):
        corpus.build(out, overwrite=True)
    assert target.read_bytes() == PRECIOUS
    assert (out / name).is_symlink()


@pytest.mark.parametrize("content", ["{}", "{", '{"config": {}, "inputs": [1], "version": "1"}', None])
def test_a_foreign_build_folder_is_refused_and_left_alone(
    content: str | None, overwrite: bool, corpus: Corpus, tmp_path: Path
):
    """Without our mark not even a plan of ours makes it ours."""
    out = tmp_path / "out"
    interrupt(corpus, tmp_path / "other", 3)
    plan = (tmp_path / "other/.build/plan.json").read_bytes()
    plant(out / ".build/plan.json", plan if content is None else content.encode())
    plant(out / ".build/object.o")
    check_refused(corpus, out, r"\.build holds object.o, but no mark of a build; name a new or ", overwrite=overwrite)
    corpus.build(tmp_path / "finished")
    (out / ".build").rename(tmp_path / "finished/.build")
    check_refused(corpus, tmp_path / "finished", r"\.build holds object.o", overwrite=True)


def test_a_finished_build_is_found_beside_a_foreign_build_folder(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    corpus.build(out)
    plant(out / ".build/object.o")
    assert corpus.build(out).was_finished
    assert (out / ".build/object.o").read_bytes() == PRECIOUS


def test_files_of_others_in_our_work_folder_stay(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    interrupt(corpus, out, 3)
    names = [".build/notes.txt", ".build/runs/notes.txt", ".build/receipts/sub/a.json", ".build/shards/train/x.txt"]
    for name in names:
        plant(out / name)
    corpus.build(out, seed=8, overwrite=True)
    assert all((out / name).read_bytes() == PRECIOUS for name in names)


@pytest.mark.parametrize(
    "content", ["{}", "[]", "{", '{"version": "0.3.0", "config": {}, "tokenizer": {}, "inputs": [1]}']
)
def test_a_damaged_plan_of_ours_counts_as_none(content: str, corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    interrupt(corpus, out, 3)
    (out / ".build/plan.json").write_text(content)
    assert corpus.build(out).resumed_tasks == 0
    check_finished(corpus, out)


@pytest.mark.parametrize(
    "change", [b"{", b"{}", b'{"format": "other"}', None], ids=["cut", "empty", "foreign", "edited"]
)
def test_a_manifest_that_was_edited_is_kept(change: bytes | None, overwrite: bool, corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    corpus.build(out)
    edited = (out / "manifest.json").read_bytes().replace(b'"documents"', b'"docs"', 1)
    (out / "manifest.json").write_bytes(edited if change is None else change)
    before = digest_folder(out)
    with pytest.raises(OutputError, match=r"manifest.json is not as a build wrote it, so nothing there is replaced"):
        corpus.build(out, seed=8, overwrite=overwrite)
    assert digest_folder(out) == before


# ---- what we wrote, and somebody changed ----


def test_an_edited_card_stays_and_the_build_reports_it(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    corpus.build(out)
    plant(out / "README.md", b"# My shards\n")
    lines = build_and_listen(corpus, out, seed=8, overwrite=True)
    assert any("README.md is not as a build wrote it, and stays" in line for line in lines)
    assert (out / "README.md").read_bytes() == b"# My shards\n"
    (out / "README.md").unlink()
    assert not any("README.md" in line for line in build_and_listen(corpus, out, overwrite=True))
    check_finished(corpus, out)


def test_a_shard_or_model_that_was_changed_is_not_replaced(corpus: Corpus, tmp_path: Path):
    for number, name in enumerate(["train/shard-00001.arrow", "tokenizer/spiece.model"]):
        out = tmp_path / str(number)
        corpus.build(out)
        plant(out / name)
        with pytest.raises(OutputError, match="was changed since"):
            corpus.build(out, seed=8, overwrite=True)
        assert (out / name).read_bytes() == PRECIOUS


def test_a_manifest_that_names_files_elsewhere_removes_nothing(corpus: Corpus, tmp_path: Path):
    """Anybody can compute a seal, so a manifest with one may name any file."""
    out = tmp_path / "out"
    corpus.build(out, seed=8)
    victims = [
        plant(tmp_path / "victim.arrow"),
        plant(out / "train/notes.arrow"),
        plant(tmp_path / "train/shard-00000.arrow"),
    ]
    manifest = json.loads((out / "manifest.json").read_bytes())
    shard = manifest["splits"]["train"]["shards"][0]
    for name in ("../victim.arrow", str(victims[0]), "train/notes.arrow", "train/../../train/shard-00000.arrow"):
        manifest["splits"]["train"]["shards"].append({**shard, "file": name, "num_bytes": len(PRECIOUS)})
    del manifest["manifest_sha256"]
    (out / "manifest.json").write_text(json.dumps(seal(manifest)))
    corpus.build(out, overwrite=True)
    assert all(victim.read_bytes() == PRECIOUS for victim in victims)


# ---- odd folders, files and locks ----


def test_an_empty_folder_of_the_users_is_not_removed_by_a_build_that_fails(corpus: Corpus, tmp_path: Path):
    (tmp_path / "empty.txt").write_bytes(b"\n\n")
    (tmp_path / "out").mkdir()
    with pytest.raises(AlbertDataError):
        run_build(tmp_path / "empty.txt", tmp_path / "out", corpus.tokenizer)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_tokenizer_in_out_itself_may_be_the_one_that_is_used(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "out"
    plant(out / "tokenizer/spiece.model", corpus.tokenizer.model)
    check_refused(corpus, out, "holds tokenizer, but no build")
    shutil.rmtree(out)
    corpus.build(out, seed=8)
    tokenizer = load_tokenizer(out / "tokenizer")
    run_build(corpus.path, out, tokenizer, overwrite=True, num_shards=fixtures.CORPUS_SHARDS)
    check_finished(corpus, out)


@pytest.mark.parametrize("name", ["README.md", "train", "train/shard-00001.arrow", "notes"])
@pytest.mark.parametrize("act", [os.mkfifo, Path.mkdir], ids=["fifo", "folder"])
def test_a_fifo_or_folder_under_the_name_of_a_file_stops_the_build(
    act: Callable[[Path], None], name: str, corpus: Corpus, tmp_path: Path
):
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    act(out / name)
    check_refused(corpus, out, "holds .*, but no build")
    (out / name).rename(tmp_path / "odd")
    shutil.rmtree(out)
    corpus.build(out)
    if (out / name).exists():
        shutil.rmtree(out / name) if (out / name).is_dir() else (out / name).unlink()
    (tmp_path / "odd").rename(out / name)
    if name.endswith(".arrow") or (name == "train" and act is os.mkfifo):
        check_refused(corpus, out, "was not written by a build|is not a folder", overwrite=True, seed=8)
    else:
        corpus.build(out, overwrite=True, seed=8)
    assert (out / name).is_fifo() == (act is os.mkfifo)


@pytest.mark.parametrize("content", [b"notes of another tool", b"albert-data build\nand more"])
def test_a_foreign_lock_is_not_ours(content: bytes, corpus: Corpus, tmp_path: Path):
    lock = plant(tmp_path / "out/.build/lock", content)
    with pytest.raises(OutputError, match="holds lock, but no mark of a build"):
        corpus.build(tmp_path / "out")
    assert lock.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"albert-"])
def test_a_lock_with_a_partial_mark_is_ours(content: bytes, corpus: Corpus, tmp_path: Path):
    plant(tmp_path / "out/.build/lock", content)
    corpus.build(tmp_path / "out")
    check_finished(corpus, tmp_path / "out")
    plant(tmp_path / "other/.build/lock", content)
    plant(tmp_path / "other/notes.txt")
    check_refused(corpus, tmp_path / "other", "other holds notes.txt, but no build")
