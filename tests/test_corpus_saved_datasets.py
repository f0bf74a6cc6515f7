"""Folders that datasets.save_to_disk writes, of the present layout and of older ones with indices."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow
import pytest
from format_fixtures import MOST_ROWS, declare_nulls, make_table, write_parquet, write_stream
from test_corpus_formats import read_all

from albert_data.corpus.inputs import find_inputs
from albert_data.errors import InputError


def save(folder: Path, texts: list[str], num_files: int = 1, indices: list[int] | None = None) -> Path:
    folder.mkdir(parents=True)
    names = [f"data-{number:05d}-of-{num_files:05d}.arrow" for number in range(num_files)]
    for number, name in enumerate(names):
        write_stream(folder / name, make_table(texts[number::num_files]), rows=2)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "f", "_split": None}
    if indices is not None:
        write_stream(folder / "indices.arrow", pyarrow.table({"indices": pyarrow.array(indices, pyarrow.uint64())}), 2)
        state["_indices_data_files"] = [{"filename": "indices.arrow"}]
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
        f"skipped 3 files beside the data of a data set: {folder}/cache-1234.arrow, {folder}/dataset_info.json, "
        f"{folder}/state.json"
    ]
    assert read(folder) == ["a", "b", "c"]


def test_of_splits_train_is_read_or_the_one_that_is_named(tmp_path):
    save_splits(tmp_path / "set")
    said: list[str] = []
    find_inputs([str(tmp_path / "set")], said.append)
    assert f"skipped a split of a data set that has a split train: {tmp_path}/set/test; name it as an input" in said[1]
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
    with pytest.raises(InputError, match=r"no readable file \(.*; skipped a link to a folder: \S+/set/train\)"):
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


def test_indices_select_rows_in_any_order_as_often_as_they_name_them(tmp_path):
    folder = save(tmp_path / "set", ["a", "b", "c", "d", "e"], indices=[4, 0, 4, 2])
    assert read(folder) == ["a", "c", "e", "e"]
    (item,) = find_inputs([str(folder)])
    assert item.modified_ns == max(
        (folder / name).stat().st_mtime_ns for name in ("data-00000-of-00001.arrow", "indices.arrow")
    )


@pytest.mark.parametrize(
    "indices",
    [
        *([0, 5], [-1], pyarrow.array([-1, -2], pyarrow.int8()), pyarrow.array([2**63], pyarrow.uint64())),
        *([0, None], [0.0], [True], ["0"], declare_nulls(MOST_ROWS), None),
    ],
    ids=str,
)
def test_indices_that_are_wrong_or_no_table_are_named(tmp_path, indices):
    folder = save(tmp_path / "set", ["a", "b"], indices=[0])
    if indices is None:
        (folder / "indices.arrow").write_bytes(b"no table")
    else:
        write_stream(folder / "indices.arrow", pyarrow.table({"indices": pyarrow.array(indices)}), rows=MOST_ROWS)
    with pytest.raises(InputError, match=r"indices .*indices\.arrow can't be read: .*; save the data set again"):
        read(folder)


def test_indices_select_rows_of_large_batches_and_count_those_without_text(tmp_path):
    texts = [f"text {number}" for number in range(10_000)]
    folder = save(tmp_path / "set", texts, indices=[9999, 0, 4096, 4095, 4096])
    write_stream(folder / "data-00000-of-00001.arrow", make_table(texts), rows=10_000)
    assert read(folder) == ["text 0", "text 4095", "text 4096", "text 4096", "text 9999"]
    write_stream(folder / "data-00000-of-00001.arrow", pyarrow.table({"text": pyarrow.nulls(10_000)}), rows=10_000)
    assert read_all(folder) == ([], Counter(field_not_text=5))


def test_damaged_data_with_indices_is_an_error_because_later_rows_would_have_other_numbers(tmp_path):
    folder = save(tmp_path / "set", ["a", "b", "c", "d"], indices=[3])
    path = folder / "data-00000-of-00001.arrow"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"data-00000-of-00001\.arrow can't be read as Arrow: .*; restore it"):
        read(folder)


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
