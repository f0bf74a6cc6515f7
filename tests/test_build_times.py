"""The times of a build are kept outside of its folder, and checked when they are read."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import digest_folder

from albert_data.cli.main import run
from albert_data.pipeline import times
from albert_data.pipeline.stages import STAGES, Stages, format_stages, tabulate_stages
from albert_data.pipeline.times import BuildTimes, find_folder, read_times
from albert_data.shards.manifest_file import read_manifest

BUILD = ["build", "corpus.txt", "-o", "out", "--tokenizer", "model.model", "--max-seq-len", "64", "--workers", "2"]
KEPT = {
    "wall_seconds": 12.5,
    "num_workers": 2,
    "text_bytes": 3_000_000,
    "num_resumed_tasks": 0,
    "finished_utc": "2026-01-31T12:00:00Z",
    "stage_seconds": {"read": 1.5, "write_runs": 0.5},
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    fixtures.load_tokenizers_once(monkeypatch)


@pytest.fixture
def here(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of all commands, with its own cache folder `cache`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    return here


def inspect(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert run(["inspect", "out", "-n", "0", *arguments]) == 0
    return capsys.readouterr().out


SEALED = "5e" * 32  # a hash


def keep(value: object) -> str:
    """Write this, JSON or bytes, as the times of a build; returns the build's seal."""
    find_folder().mkdir(parents=True, exist_ok=True)
    path = find_folder() / f"{SEALED}.json"
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return SEALED


# ---- what a build keeps, and inspect shows ----


def test_inspect_shows_the_times_of_the_build(here: Path, capsys: pytest.CaptureFixture[str]):
    assert run(BUILD) == 0
    shown = json.loads(inspect(capsys, "--json"))
    assert list(shown["stage_seconds"]) == [stage.replace(" ", "_") for stage in STAGES]
    assert all(0 <= seconds < 60 for seconds in shown["stage_seconds"].values())
    about = shown["build_time"]
    assert 0 < about["wall_seconds"] < 600
    assert about["num_workers"] == 2
    assert about["num_resumed_tasks"] == 0
    assert about["text_bytes"] == read_manifest(Path("out")).counts.text_bytes
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", about["finished_utc"])
    text = inspect(capsys)
    block = next(part for part in text.split("\n\n") if part.startswith("Build time: ")).splitlines()
    assert max(map(len, block)) <= 80
    assert " with 2 workers, finished 20" in block[0]
    assert [line[2:16].strip() for line in block[-len(STAGES) - 2 :]] == ["stage", *STAGES, "all stages"]


def test_the_kept_times_name_no_file_and_are_outside_of_the_build(here: Path):
    assert run(BUILD) == 0
    seal = read_manifest(Path("out")).manifest_sha256
    (path,) = (path for path in Path("cache").rglob("*") if path.is_file())
    assert path == Path(f"cache/albert-data/builds/{seal}.json")
    kept = json.loads(path.read_text())
    assert kept.keys() == KEPT.keys()
    assert "corpus" not in path.read_text()
    assert str(here) not in path.read_text()


def test_the_times_of_a_build_change_none_of_its_bytes(here: Path):
    assert run(BUILD) == 0
    first, kept = digest_folder(Path("out")), times.read_times(read_manifest(Path("out")).manifest_sha256)
    assert run([*BUILD, "--overwrite", "--workers", "1"]) == 0
    assert digest_folder(Path("out")) == first
    again = times.read_times(read_manifest(Path("out")).manifest_sha256)
    assert kept is not None
    assert again is not None
    assert (kept.num_workers, again.num_workers) == (2, 1)


def test_a_build_that_was_finished_before_keeps_no_times(here: Path):
    assert run(BUILD) == 0
    (path,) = find_folder().iterdir()
    path.unlink()
    assert run(BUILD) == 0
    assert list(find_folder().iterdir()) == []


def test_a_resumed_build_is_shown_as_one(here: Path, capsys: pytest.CaptureFixture[str]):
    assert run(BUILD) == 0
    keep_as = find_folder() / f"{read_manifest(Path('out')).manifest_sha256}.json"
    keep_as.write_text(json.dumps(KEPT | {"num_resumed_tasks": 3}))
    text = " ".join(inspect(capsys).split())
    assert "it resumed a build with 3 tasks done, whose time is in the stages but not in these seconds" in text


def test_missing_times_are_reported(here: Path, capsys: pytest.CaptureFixture[str]):
    assert run(BUILD) == 0
    for path in find_folder().iterdir():
        path.unlink()
    text = " ".join(inspect(capsys).split())
    assert "Build time: not known here; only the machine and account that built the shards keep it" in text
    assert "`albert-data build --profile` prints it" in text
    shown = json.loads(inspect(capsys, "--json"))
    assert shown["stage_seconds"] is shown["build_time"] is None


@pytest.mark.parametrize("place", ["cache", "cache/albert-data", "cache/albert-data/builds"])
def test_a_cache_that_cant_be_written_fails_no_build(here: Path, capsys: pytest.CaptureFixture[str], place: str):
    path = here / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a file instead of a folder")
    assert run(BUILD) == 0
    assert "The times of this build could not be saved for `inspect`: " in capsys.readouterr().err
    assert "Build time: not known here" in inspect(capsys)


def test_a_user_without_a_home_can_build_and_inspect(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", fail)
    assert run(BUILD) == 0
    assert "Build time: not known here" in inspect(capsys)


@pytest.mark.parametrize(
    ("asked", "platform", "place"),
    [
        ("/some/cache", "linux", "/some/cache"),
        ("not/absolute", "linux", "/home/me/.cache"),
        ("", "linux", "/home/me/.cache"),
        ("", "darwin", "/home/me/Library/Caches"),
    ],
)
def test_the_cache_folder_is_the_platforms(monkeypatch: pytest.MonkeyPatch, asked: str, platform: str, place: str):
    monkeypatch.setenv("XDG_CACHE_HOME", asked)
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    assert find_folder() == Path(place, "albert-data", "builds")


def test_the_newest_are_kept_and_nothing_else_is_touched(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(times, "MAX_BUILDS", 4)
    find_folder().mkdir(parents=True)
    names = [f"{number:064x}.json" for number in range(6)] + [f"{9:064x}.json.tmp", "notes.txt", "0.json"]
    for age, name in enumerate(names):
        (find_folder() / name).write_text("{}")
        os.utime(find_folder() / name, (10**9 - age, 10**9 - age))
    assert run(BUILD) == 0
    new = f"{read_manifest(Path('out')).manifest_sha256}.json"
    assert {path.name for path in find_folder().iterdir()} == {new, *names[:3], "notes.txt", "0.json"}


# ---- nothing that is read is believed ----


def test_kept_times_are_read_back(here: Path):
    found = read_times(keep(KEPT))
    assert found is not None
    assert found.to_dict() == KEPT
    assert found.stages == {"read": 1.5, "write runs": 0.5}


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    "change",
    [{key: None} for key in KEPT]
    + [{"wall_seconds": value} for value in (-1, NAN, INFINITY, -INFINITY, 1e300, 10**400, True, "12", [1])]
    + [{"num_workers": value} for value in (-1, 1.0, True, 10**30, "2", NAN)]
    + [{"text_bytes": -1}, {"text_bytes": 10**30}, {"num_resumed_tasks": -1}, {"num_resumed_tasks": 0.5}]
    + [{"finished_utc": value} for value in ("", "now", "2026-1-31T12:00:00Z", "<b>", 5, "2026-02-30T12:00:00Z")]
    + [{"stage_seconds": value} for value in ([], "read", {"read": NAN}, {"read": -1}, {"read": "1"}, {"read": None})]
    + [{"stage_seconds": {"<script>": 1.0}}, {"stage_seconds": {"write runs": 1.0}}, {"path": "/home/me"}],
    ids=str,
)
def test_times_with_a_value_of_another_type_or_range_count_as_missing(here: Path, change: dict[str, Any]):
    assert read_times(keep(KEPT)) is not None
    assert read_times(keep({**KEPT, **change})) is None


@pytest.mark.parametrize("key", KEPT)
def test_times_without_a_key_count_as_missing(here: Path, key: str):
    assert read_times(keep({name: value for name, value in KEPT.items() if name != key})) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"null", b"5", b'"text"', b"\xff\xfe\x00", b"\0" * 300, b"[" * 60_000, b'{"a":' * 10_000]
    + [json.dumps(list(KEPT.items())).encode(), json.dumps(KEPT).encode() + b" " * 70_000],
    ids=range(11),
)
def test_a_damaged_file_of_times_counts_as_missing(here: Path, data: bytes):
    assert read_times(keep(data)) is None


def test_a_pipe_or_folder_counts_as_missing_and_does_not_block(here: Path):
    path = find_folder() / f"{keep(KEPT)}.json"
    path.unlink()
    os.mkfifo(path)
    assert read_times(SEALED) is None
    path.unlink()
    path.mkdir()
    assert read_times(SEALED) is None


@pytest.mark.parametrize("seal", [None, "", "5e" * 31, "5E" * 32, "../" * 20 + "5e5e", "5e" * 32 + "\n"])
def test_a_seal_that_is_not_a_hash_opens_no_file(here: Path, seal: str | None):
    keep(KEPT)
    assert read_times(seal) is None


def test_values_out_of_range_are_refused_when_times_are_made():
    with pytest.raises(ValueError, match="-1 is not a count"):
        BuildTimes(
            wall_seconds=1.0,
            num_workers=-1,
            text_bytes=0,
            num_resumed_tasks=0,
            finished_utc="2026-01-31T12:00:00Z",
            stages={},
        )


# ---- the table ----


def test_the_table_has_each_stage_once_and_their_sum_last():
    stages = Stages({"mask": 3.0, "read": 1.0, "sort": 0.0})
    table = tabulate_stages(stages, 8_000_000)
    assert table[1:] == [
        ["read", "1.00", "25.0 %", "8.0"],
        ["mask", "3.00", "75.0 %", "2.7"],
        ["sort", "0.00", "0.0 %", "-"],
        ["all stages", "4.00", "100.0 %", "2.0"],
    ]
    assert [line.split()[0] for line in format_stages(stages, 8_000_000)] == ["stage", "read", "mask", "sort", "all"]
    assert tabulate_stages({}, 0)[1:] == [["all stages", "0.00", "0.0 %", "-"]]
