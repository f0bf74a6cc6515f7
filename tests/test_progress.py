"""The progress of reading adds up to the sizes of the files, compressed or not."""

from __future__ import annotations

import gzip
import io
import sys

import build_fixtures as fixtures
import pytest

from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import count_bytes, find_inputs
from albert_data.corpus.tasks import read_tasks
from albert_data.library.progress import Bar

DOCUMENTS = fixtures.to_jsonl(fixtures.make_documents(4000, seed=3))


def test_the_tasks_of_compressed_files_add_up_to_their_sizes(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(DOCUMENTS))
    (tmp_path / "b.jsonl.zst").write_bytes(fixtures.to_zst(DOCUMENTS))
    (tmp_path / "c.jsonl").write_bytes(DOCUMENTS)
    inputs = find_inputs([str(tmp_path)])
    tasks = list(read_tasks(inputs, fixtures.make_config().text, Damage()))
    assert sum(task.num_bytes for task in tasks) == count_bytes(inputs) == sum(item.size for item in inputs)
    assert all(task.num_bytes > 0 for task in tasks[:-1])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_tasks_of_a_slow_tokenizer_are_small_so_that_its_progress_is_seen(tmp_path, pack, monkeypatch):
    monkeypatch.setattr("albert_data.corpus.tasks._MIN_TASK_BYTES", len(DOCUMENTS) // 4)
    path = tmp_path / ("a.jsonl" if pack is bytes else "a.jsonl.gz")
    path.write_bytes(pack(DOCUMENTS))
    inputs, text = find_inputs([str(path)]), fixtures.make_config().text
    fast, slow = (list(read_tasks(inputs, text, Damage(), is_slow=is_slow)) for is_slow in (False, True))
    # Python 3.12 and later read 128 KiB of a gzip file at a time, as much as a task has here.
    assert len(slow) > (5 if pack is bytes else 1) * len(fast)
    assert sum(task.num_bytes for task in slow) == count_bytes(inputs)


def test_a_pipe_has_no_total_and_its_text_is_counted(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(DOCUMENTS)))
    assert count_bytes(find_inputs(["-"])) is None
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = Bar()
    bar.start("reading", None)
    bar.advance(0, 3_000_000)
    bar.close()
    assert "3.00M" in terminal.getvalue()
