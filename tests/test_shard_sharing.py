"""Opened shards can be pickled and copied, shared by threads and forked processes, and given as tables and tensors."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from inspect_fixtures import write_folder
from row_fixtures import Row, numbered_rows, plain
from shard_fixtures import change_manifest, write_shards
from test_inspect_html import write_hostile

import albert_data
from albert_data.errors import ShardError
from albert_data.shards.reader import Example, Shards, open_shards
from albert_data.storage.sharing import SharedLock

NUM_ROWS = 400
ROWS = numbered_rows(NUM_ROWS)
LAYOUT = [[ROWS[at : at + 10] for at in range(begin, begin + 100, 10)] for begin in range(0, NUM_ROWS, 100)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four shards of ten record batches: more of these than a reader holds at once."""
    return write_shards(tmp_path / "out", LAYOUT)


@pytest.fixture(params=["none", "zstd"])
def any_folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return write_shards(tmp_path / "out", LAYOUT, request.param)


def to_row(example: Example) -> Row:
    masks = list(zip(example.masked_positions.tolist(), example.masked_ids.tolist(), strict=True))
    return (example.input_ids.tolist(), example.segment_a_len, example.sop_label, masks, example.document_key)


def check_all(shards: Shards) -> None:
    assert list(map(to_row, shards)) == ROWS
    assert plain(shards.rows(np.arange(NUM_ROWS))) == ROWS
    assert shards.lengths.tolist() == [len(row[0]) for row in ROWS]


# ---- copies ----

COPIES: dict[str, Callable[[Shards], Shards]] = {
    "pickle": lambda shards: pickle.loads(pickle.dumps(shards)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("make", COPIES)
@pytest.mark.parametrize("is_used", [False, True])
def test_a_copy_gives_the_same_rows(folder, make, is_used):
    shards = open_shards(folder)
    if is_used:
        check_all(shards)
    found = COPIES[make](shards)
    check_all(found)
    assert (found.folder, found.split, found.manifest) == (shards.folder, shards.split, shards.manifest)
    check_all(shards)


def test_a_pickle_of_a_relative_path_is_read_from_any_folder(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    shards = open_shards("out")
    data = pickle.dumps(shards)
    monkeypatch.chdir("/")
    check_all(pickle.loads(data))
    assert pickle.loads(data).folder == Path("out")
    check_all(copy.copy(shards))


def test_a_pickle_of_a_folder_that_was_built_anew_is_refused(folder):
    data = pickle.dumps(open_shards(folder))
    change_manifest(folder, lambda manifest: manifest.update(digest="0" * 64))
    with pytest.raises(ShardError, match="was built anew since it was opened; open it again"):
        pickle.loads(data)
    shutil.rmtree(folder)
    with pytest.raises(ShardError, match="No such file or directory"):
        pickle.loads(data)


# ---- threads ----


READS: list[Callable[[Shards, list[int]], tuple[object, object]]] = [
    lambda shards, wanted: (plain(shards.rows(np.array(wanted))), [ROWS[i] for i in wanted]),
    lambda shards, wanted: ([to_row(shards[i]) for i in wanted], [ROWS[i] for i in wanted]),
    lambda shards, wanted: (shards.lengths[wanted].tolist(), [len(ROWS[i][0]) for i in wanted]),
    lambda shards, wanted: ([row for batch in shards.batches() for row in plain(batch)], ROWS),
    lambda shards, wanted: (len(shards), NUM_ROWS),
]


def use(shards: Shards, seed: int) -> None:
    """Read in every way, in an order of its own, and compare."""
    draw = random.Random(seed)
    for _ in range(20):
        found, expected = draw.choice(READS)(shards, draw.choices(range(NUM_ROWS), k=20))
        assert found == expected


def test_threads_that_share_shards_get_the_right_rows(any_folder):
    for round_ in range(2):
        shards = open_shards(any_folder)
        begin = threading.Barrier(8)

        def work(seed: int, shards: Shards = shards, begin: threading.Barrier = begin) -> None:
            begin.wait()
            use(shards, seed)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8 * round_, 8 * round_ + 8)))
        check_all(shards)


# ---- processes ----


def fork_and(work: Callable[[], object], seconds: int = 30) -> int:
    """Do that in a forked child; its exit code, 0 if all is well. A child that hangs is killed by its own alarm."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(seconds)
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_can_read_while_threads_of_the_parent_read(any_folder):
    shards, is_over = open_shards(any_folder), threading.Event()

    def keep_reading(seed: int) -> None:
        while not is_over.is_set():
            use(open_shards(any_folder), seed)
            use(shards, seed)

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(keep_reading, seed) for seed in range(3)]
        try:
            codes = [fork_and(lambda: check_all(shards)) for _ in range(4)]
        finally:
            is_over.set()
        for reader in readers:
            reader.result()
    assert codes == [0] * 4


def test_a_lock_that_another_thread_held_is_free_in_a_forked_child():
    lock, is_held, may_go = SharedLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock.hold():
            is_held.set()
            may_go.wait()

    def take() -> None:
        with lock.hold(), lock.hold():
            pass

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    try:
        assert fork_and(take, seconds=10) == 0
    finally:
        may_go.set()
        holder.join()
    take()


def read_some(shards: Shards, wanted: list[int]) -> list[Row]:
    return [to_row(shards[i]) for i in wanted]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_shards_can_be_sent_to_processes(folder, method):
    wanted = [3, 399, 0]
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(read_some, (open_shards(folder), wanted)) == [ROWS[i] for i in wanted]


# ---- rows as a table of Arrow, a DataFrame, tensors, and as text for a notebook ----


@pytest.fixture
def opened(finished: Path) -> Shards:
    return open_shards(finished)


def test_a_table_has_the_rows_in_order(opened):
    table = opened.to_arrow().to_pylist()
    assert len(table) == len(opened) > 3
    for there, here in zip(table, opened, strict=True):
        assert there["input_ids"] == here.input_ids.tolist()
        assert there["masked_ids"] == here.masked_ids.tolist()
        assert (there["segment_a_len"], there["document_key"]) == (here.segment_a_len, here.document_key)


def test_a_split_without_rows_is_a_table_without_rows(tmp_path, opened):
    empty = open_shards(write_folder(tmp_path, {}), "validation").to_arrow()
    assert (empty.num_rows, empty.schema.names) == (0, opened.to_arrow().schema.names)


def test_a_data_frame_has_the_rows(opened):
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = opened.to_pandas()
    assert list(frame["input_ids"][3]) == opened[3].input_ids.tolist()
    assert frame["sop_label"].tolist() == [row.sop_label for row in opened]


def test_tensors_have_the_rows(opened):
    torch = pytest.importorskip("torch", reason="the train extra is not installed")
    found = opened.to_torch()
    assert {one.dtype for one in found.values()} == {torch.int64}
    for name, offsets in (("input_ids", "offsets"), ("masked_positions", "mask_offsets")):
        lists = found[name].tensor_split(found[offsets][1:-1])
        assert [one.tolist() for one in lists] == [getattr(row, name).tolist() for row in opened]
    keys = found["document_keys"].numpy().view(np.uint64)
    assert keys.tolist() == [row.document_key for row in opened]


def test_a_row_shows_its_text_and_what_is_to_be_predicted(opened):
    row = next(row for row in opened if len(row.masked_ids))
    page = row._repr_html_()
    assert page is not None
    assert page.count("<mark ") == len(row.masked_positions)
    assert f"{len(row.masked_positions)} masked" in page
    assert opened._repr_html_().count("<b>A</b>") == 3
    copied = pickle.loads(pickle.dumps(row))
    assert isinstance(copied, Example)
    assert copied._repr_html_() is None
    assert repr(copied) == repr(row)


def test_text_and_names_are_escaped_in_a_notebook(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = open_shards(write_hostile(Path("<i>out")))
    pages = [found._repr_html_(), found[0]._repr_html_() or ""]
    assert all("<script" not in page and "<i>" not in page for page in pages)
    assert "&lt;" in pages[1]
    frame = albert_data.inspect_shards("<i>out")._repr_html_()
    assert frame.startswith('<iframe srcdoc="')
    assert frame.count("<") == 2, "the page is an attribute of the frame"
