"""The progress of reading adds up to the sizes of the files, compressed or not."""

from __future__ import annotations

import gzip
import io
import sys

import build_fixtures as fixtures

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
