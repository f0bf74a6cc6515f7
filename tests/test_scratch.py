"""Folders of tasks on a disk of this machine: those of killed tasks go, and nothing else does."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from albert_data.storage.scratch import machine_scratch, remove_abandoned

# Says its folder, and keeps it until it is killed.
_WORK = """
from albert_data.storage.scratch import machine_scratch
with machine_scratch() as folder:
    (folder / "rows").write_text("rows")
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    remove_abandoned.cache_clear()
    return tmp_path


def test_a_folder_is_removed_at_the_end_also_of_a_task_that_fails(scratch):
    def fail() -> None:
        with machine_scratch() as folder:
            assert folder.parent == scratch
            (folder / "rows").write_text("rows")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert list(scratch.iterdir()) == []


def test_the_folder_of_a_killed_task_is_removed_by_the_next_and_one_in_use_is_not(scratch):
    works = [
        subprocess.Popen([sys.executable, "-c", _WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    killed, alive = (Path(work.stdout.readline().strip()) for work in works if work.stdout)
    works[0].send_signal(signal.SIGKILL)
    works[0].wait()
    with machine_scratch() as folder:
        assert set(scratch.iterdir()) == {folder, alive}
    assert not killed.exists()
    works[1].communicate("\n")
    assert list(scratch.iterdir()) == []


def test_what_no_task_locked_is_not_removed(scratch):
    """Others may have put it there, or a task that has not got its lock yet."""
    empty, full, locked = (scratch / f"albert-data-task-{name}" for name in ("empty", "full", "locked"))
    for folder in (empty, full, locked, scratch / "elsewhere"):
        folder.mkdir()
    (full / "notes.txt").write_text("not ours")
    (locked / "lock").write_text("mine")
    (scratch / "albert-data-task-file").write_text("mine")
    (scratch / "albert-data-task-link").symlink_to(scratch / "elsewhere")
    before = set(scratch.rglob("*"))
    with machine_scratch():
        pass
    assert set(scratch.rglob("*")) == before
