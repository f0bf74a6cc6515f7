"""Plain files are split into tasks, many at a time."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from albert_data.corpus import tasks
from albert_data.corpus.inputs import Input
from albert_data.corpus.tasks import FileRange


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file that stands for all. Sizes are divided by 2^17, and every document has 7 bytes."""
    for name in ("_MIN_TASK_BYTES", "_MAX_TASK_BYTES", "_LARGE_TASK_BYTES"):
        monkeypatch.setattr(tasks, name, getattr(tasks, name) >> 17)
    monkeypatch.setattr(tasks, "find_document", lambda file, format, at, size: min(at // 7 * 7 + 7, size))
    (tmp_path / "text").touch()
    return str(tmp_path / "text")


def make_inputs(path: str, sizes: list[int], format: str = "jsonl") -> list[Input]:
    return [Input(path=path, format=format, compression=None, size=size, modified_ns=0) for size in sizes]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(1, 30) | st.integers(1, 3000), min_size=1, max_size=12),
    format=st.sampled_from(["txt", "jsonl", "csv"]),
    is_slow=st.booleans(),
)
def test_the_parts_are_all_of_each_file_and_end_between_documents(
    path: str, sizes: list[int], format: str, is_slow: bool
):
    found = tasks.plan_tasks(make_inputs(path, sizes, format), is_slow=is_slow)
    files: list[list[FileRange]] = []
    for part in (part for task in found for part in task.ranges):
        files += [[]] if part.start == 0 else []
        files[-1].append(part)
    largest = max(32, sum(sizes) // 128) * 3 // 2 + 7
    for size, parts in zip(sizes, files, strict=True):
        assert [part.end for part in parts[:-1]] == [part.start for part in parts[1:]]
        assert parts[-1].end == size
        for part in parts:
            assert part.start % 7 == 0
            assert part.start < part.end
            assert part.is_part == (len(parts) > 1)
            assert format == "csv" or part.end - part.start <= largest
    assert len(files) == len(sizes)


def test_many_files_are_split_at_a_time(path: str, monkeypatch: pytest.MonkeyPatch):
    threads = set[int]()

    def cut(file: Any, format: str, at: int, size: int) -> int:
        threads.add(threading.get_ident())
        time.sleep(0.01)
        return at

    monkeypatch.setattr(tasks, "find_document", cut)
    tasks.plan_tasks(make_inputs(path, [1000] * 20))
    assert len(threads) > 8


def test_small_files_start_no_thread(path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threading.Thread, "start", None)
    assert len(tasks.plan_tasks(make_inputs(path, [5] * 1000))) > 100
