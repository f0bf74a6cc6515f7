"""The progress of reading adds up to the sizes of the files, compressed or not; without progress lines are logged."""

from __future__ import annotations

import gzip
import io
import json
import logging
import sys
from pathlib import Path

import build_fixtures as fixtures

import albert_data
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


def test_without_progress_notes_and_warnings_are_logged_and_nothing_is_printed(here, caplog, capfd):
    lines = [json.dumps({"text": text}) for text in Path("corpus.txt").read_text().split("\n\n")]
    (here / "in").mkdir()
    (here / "in/a.jsonl").write_text("\n".join([*lines, '{"body": "No text."}', '{"text": ""}']))
    (here / "in/a.pdf").touch()
    with caplog.at_level(logging.INFO, logger="albert_data"):
        albert_data.build("in", "out", tokenizer="model.model", max_seq_len=32, workers=1)
        albert_data.train_vocab("in", "vocab", vocab_size=115, workers=1)
    said = {(record.levelname, record.getMessage()[:8].strip()) for record in caplog.records}
    assert {("WARNING", "skipped"), ("WARNING", "damage"), ("INFO", "note"), ("INFO", "training")} <= said
    assert {record.name for record in caplog.records} == {"albert_data"}
    assert capfd.readouterr() == ("", "")
    caplog.clear()
    albert_data.build("in", "out2", tokenizer="model.model", max_seq_len=32, workers=1, progress=True)
    assert caplog.records == []
