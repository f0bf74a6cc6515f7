"""Plain files are split into tasks, many at a time."""

from __future__ import annotations

import gzip
import json
import os
import random
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from format_fixtures import write_stream
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from albert_data.clean.documents import clean_documents
from albert_data.config import TextConfig
from albert_data.corpus import tasks
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import Input, find_inputs
from albert_data.corpus.samples import read_samples
from albert_data.corpus.tasks import FileRange
from albert_data.errors import InputError


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file that stands for all. Sizes are divided by 2^17, and every document has 7 bytes."""
    for name in ("_MIN_TASK_BYTES", "_MAX_TASK_BYTES", "_LARGE_TASK_BYTES"):
        monkeypatch.setattr(tasks, name, getattr(tasks, name) >> 17)
    monkeypatch.setattr(tasks, "find_document", lambda file, format, at, stop, size, mark: min(at // 7 * 7 + 7, size))
    (tmp_path / "text").touch()
    return str(tmp_path / "text")


def make_inputs(path: str, sizes: list[int], format: str = "jsonl") -> list[Input]:
    return [Input(path=path, format=format, compression=None, size=size, modified_ns=0) for size in sizes]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(1, 30) | st.integers(1, 3000), min_size=1, max_size=12),
    format=st.sampled_from(["txt", "jsonl", "csv"]),
)
def test_the_parts_are_all_of_each_file_and_end_between_documents(path, sizes, format):
    found = tasks.plan_tasks(make_inputs(path, sizes, format))
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


def test_many_files_are_split_at_a_time(path, monkeypatch):
    threads = set[int]()

    def cut(file: Any, format: str, at: int, stop: int, size: int, mark: bytes | None) -> int:
        threads.add(threading.get_ident())
        time.sleep(0.01)
        return at

    monkeypatch.setattr(tasks, "find_document", cut)
    tasks.plan_tasks(make_inputs(path, [1000] * 20))
    assert len(threads) > 8


def test_small_files_start_no_thread(path, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", None)
    assert len(tasks.plan_tasks(make_inputs(path, [5] * 1000))) > 100


def find_end(data: bytes, format: str, at: int) -> int:
    """The first end of a document in a line that begins behind a byte."""
    begin = 0
    for line in data.splitlines(keepends=True):
        end = begin + len(line)
        if begin > at and format == "jsonl":
            return begin
        if begin > at and not line.strip() and line.endswith(b"\n"):
            return end
        begin = end
    return len(data)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.lists(st.sampled_from([b"\n", b"a\n", b" \n", b"abc"])).map(b"".join),
    cuts=st.sets(st.integers(0, 60)).map(sorted),
    format=st.sampled_from(["txt", "jsonl"]),
)
def test_a_file_is_cut_at_the_first_end_of_a_document_behind_each_cut(tmp_path, monkeypatch, data, cuts, format):
    monkeypatch.setattr(tasks, "CUTS_OF_JOB", 3)
    (tmp_path / "text").write_bytes(data)
    cuts = [at for at in cuts if at < len(data)]
    (item,) = make_inputs(str(tmp_path / "text"), [len(data)], format)
    (parts,) = tasks._split_files([item], [cuts], TextConfig())
    expected = {0, len(data), *(find_end(data, format, at) for at in cuts)}
    assert sorted({0, len(data), *(part.end for part in parts)}) == sorted(expected)


def test_each_line_of_a_file_without_ends_of_documents_is_read_once(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("A line of text without a blank one.\n" * 100_000)
    lines = 0

    def has_text(line: bytes) -> bool:
        nonlocal lines
        lines += 1
        return True

    monkeypatch.setattr(tasks, "_MIN_TASK_BYTES", 1 << 16)
    monkeypatch.setattr(tasks, "has_text", has_text)
    inputs = find_inputs([str(tmp_path / "a.txt")])
    assert len(tasks.plan_tasks(inputs)) == 1
    assert 90_000 < lines < 101_000
    list(read_samples(inputs, TextConfig()))
    assert lines < 302_000


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "emptied": (lambda path: os.truncate(path, 0), "is another of 0 bytes now"),
    "shorter": (lambda path: os.truncate(path, path.stat().st_size - 1), "is another of"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() * 2), "is another of"),
    "rewritten": (lambda path: os.utime(path, ns=(1, path.stat().st_mtime_ns + 1)), "is another of"),
    "a FIFO": (make_fifo, "is a FIFO now; give the command again when no program writes to it"),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.jsonl.gz", "a.arrow", "b.arrow", "a.parquet"])
def test_a_file_that_is_changed_before_it_is_opened_again_is_an_error(name, change, message, tmp_path):
    path = tmp_path / name
    texts = [f"Text number {number}. It is here." for number in range(3000)]
    table = pyarrow.table({"text": texts})
    if name == "b.arrow":
        table = pyarrow.table({"text": pyarrow.array(texts).dictionary_encode()})
    if name.endswith(".arrow"):
        write_stream(path, table, rows=100)
    elif name == "a.parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=100)
    else:
        lines = "\n".join(json.dumps({"text": text}) for text in texts)
        data = {"a.txt": "\n\n".join(texts), "a.csv": "\n".join(["text", *texts])}.get(name, lines).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    inputs = find_inputs([str(path)])
    (task,) = tasks.read_tasks(inputs, TextConfig(), Damage(), is_whole=lambda task: True)
    change(path)
    for read in (lambda: [task], lambda: tasks.read_tasks(inputs, TextConfig(), Damage())):
        with pytest.raises(InputError, match=f"^input {path} has changed since it was found: it was a file.*{message}"):
            [list(one.read(Damage())) for one in read()]


# ---- many small files ----

TEXTS = [b"One.\n\nTwo.", b"\xef\xbb\xbfA line\r\nand\r", b"Last \xe2\x80\xa8 line.\n\n", b" \n\nWords\n", b"a.\n" * 40]
LINES = [
    b'{"text": "One.", "n": "x"}\n{"text": "Two."}',
    b'\xef\xbb\xbf{"text": "Three."}\n\n',
    b'{"text": "a\\r\\nb"}\r\n',
]
ODD_TEXTS = [b"", b" \n", "\u200b\n".encode(), b"caf\xe9 is damaged.\n"]
ODD_LINES = [b"", b"\n", b'{"text": ""}', b'{"text": "caf\xe9"}', b'{"text": ', b'{"other": "x"}\n{"text": "Four."}']


def read_files(inputs: list[Input], text: TextConfig) -> tuple[int, list[Any], Damage]:
    """The number of blocks, the documents in order, and the damage."""
    damage, blocks, documents = Damage(), 0, list[Any]()
    for task in tasks.read_tasks(inputs, text, damage):
        for block in task.read(damage):
            lines = clean_documents(block, text, damage)
            ends = lines.line_offsets[lines.document_offsets]
            groups = lines.columns.groups
            groups = [None] * len(lines.document_keys) if groups is None else groups.tolist()
            texts = [lines.utf8[begin:end].tobytes() for begin, end in pairwise(ends)]
            documents += zip(texts, groups, strict=True)
            blocks += 1
    return blocks, documents, damage


@pytest.mark.parametrize("odd", [0, 1, 7])
@pytest.mark.parametrize(
    "text",
    [
        TextConfig(),
        TextConfig(document_rule="file"),
        TextConfig(document_rule="file", unwrap=True),
        TextConfig(unwrap=True),
        TextConfig(unicode="nfc", group_field="n"),
    ],
    ids=["blank-line", "file", "unwrapped file", "unwrap", "fields"],
)
def test_small_files_are_read_together_as_they_would_be_alone(text, odd, tmp_path, monkeypatch):
    for kind, sound, others in (("txt", TEXTS, ODD_TEXTS), ("jsonl", LINES, ODD_LINES)):
        files = [*sound * 8, *others * odd]
        random.Random(0).shuffle(files)
        for number, data in enumerate(files):
            (tmp_path / f"{number:03d}.{kind}").write_bytes(data)
        inputs = find_inputs([f"{tmp_path}/*.{kind}"])
        num_blocks, documents, damage = read_files(inputs, text)
        with monkeypatch.context() as patch:
            patch.setattr(tasks, "_SMALL_FILE_BYTES", 0)
            _, expected, expected_damage = read_files(inputs, text)
        assert documents == expected
        assert (damage.counts, damage.layout) == (expected_damage.counts, expected_damage.layout)
        assert damage.inputs.finish() == expected_damage.inputs.finish()
        alone = kind == "txt" and text == TextConfig(unwrap=True)
        assert num_blocks == (len(inputs) if alone else 1) or odd
