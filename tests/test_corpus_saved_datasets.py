"""Folders that datasets.save_to_disk writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from format_fixtures import make_table, write_parquet, write_stream
from test_corpus_formats import read_all

from albert_data.corpus.inputs import find_inputs
from albert_data.errors import InputError


def save(folder: Path, texts: list[str], num_files: int = 1) -> Path:
    folder.mkdir(parents=True)
    names = [f"data-{number:05d}-of-{num_files:05d}.arrow" for number in range(num_files)]
    for number, name in enumerate(names):
        write_stream(folder / name, make_table(texts[number::num_files]), rows=2)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "f", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text('{"text": "no document"}')
    write_stream(folder / "cache-1234.arrow", make_table(["of a cache"]))
    return folder


def save_splits(folder: Path) -> None:
    save(folder / "train", ["a", "b"])
    save(folder / "test", ["c"])
    (folder / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')


def read(folder: Path) -> list[str]:
    return [document.decode().strip() for document in read_all(folder)[0]]


def test_the_files_that_the_state_names_are_read_and_no_others(tmp_path):
    folder = save(tmp_path / "set", ["a", "b", "c"], num_files=2)
    said: list[str] = []
    assert len(find_inputs([str(folder)], said.append)) == 2
    assert said == [
        f"skipped files beside the data of a data set (3): {folder}/cache-1234.arrow, {folder}/dataset_info.json, "
        f"{folder}/state.json"
    ]
    assert read(folder) == ["a", "b", "c"]


def test_of_splits_train_is_read_or_the_one_that_is_named(tmp_path):
    save_splits(tmp_path / "set")
    said: list[str] = []
    find_inputs([str(tmp_path / "set")], said.append)
    assert f"skipped splits of a data set that has a split train (1): {tmp_path}/set/test; name one as an" in said[1]
    assert read(tmp_path / "set") == ["a", "b"]
    assert read(tmp_path / "set/test") == ["c"]
    (tmp_path / "set/dataset_dict.json").write_text('{"splits": ["test"]}')
    assert read(tmp_path / "set") == ["a", "b", "c"]
    (tmp_path / "set/test/state.json").unlink()
    with pytest.raises(InputError, match=r"set has no split test, which dataset_dict\.json names"):
        find_inputs([str(tmp_path / "set")])


def test_a_split_behind_a_link_is_named_if_nothing_is_left_to_read(tmp_path):
    save(tmp_path / "set/test", ["c"])
    save(tmp_path / "elsewhere", ["a"])
    (tmp_path / "set/train").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(InputError, match=r"no readable file \(.*; skipped links to folders \(1\): \S+/set/train\)"):
        find_inputs([str(tmp_path / "set")])


@pytest.mark.slow
def test_a_store_is_asked_for_the_descriptions_of_data_sets_that_are_there_alone(bucket, tmp_path):
    def count_answers(folder: str) -> int:
        before = bucket.server.requests["GET"]
        find_inputs([f"{bucket.url}/{folder}"])
        return bucket.server.requests["GET"] - before

    table = write_parquet(tmp_path / "a.parquet", make_table(["A text."])).read_bytes()
    for number in range(20):
        bucket.put(f"plain/{number}/a.txt", b"A text.")
        bucket.put(f"parquet/{number}.parquet", table)
    assert count_answers("plain") <= 42  # a list and a file for each folder
    assert count_answers("parquet") <= 62  # of each table the beginning and the end too
    save_splits(tmp_path / "set")
    for path in (tmp_path / "set").rglob("*.*"):
        bucket.put(str(path.relative_to(tmp_path)), path.read_bytes())
    assert [item.path for item in find_inputs([f"{bucket.url}/set"])] == [
        f"{bucket.url}/set/train/data-00000-of-00001.arrow"
    ]


def test_a_data_set_whose_rows_are_selected_by_indices_is_refused(tmp_path):
    folder = save(tmp_path / "set", ["a", "b"])
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(state | {"_indices_data_files": [{"filename": "indices.arrow"}]}))
    with pytest.raises(InputError, match="set has files of indices, .*; load it, and save it again"):
        find_inputs([str(folder)])


@pytest.mark.parametrize("name", ["missing.arrow", "../data-00000-of-00001.arrow"])
def test_a_file_that_is_missing_or_elsewhere_is_an_error(tmp_path, name):
    folder = save(tmp_path / "set", ["a"])
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    with pytest.raises(InputError, match=rf"data set .*set has no file {name}, which state\.json names"):
        find_inputs([str(folder)])


def test_a_state_of_another_program_changes_nothing(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    for state in ("{}", "[1]", "no JSON"):
        (tmp_path / "state.json").write_text(state)
        assert read(tmp_path) == ["text"]
