"""`--drop-repeated-lines N` removes the lines of N documents, and the rest is built as if they never stood there."""

from __future__ import annotations

import gzip
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import build_fixtures as fixtures
import numpy as np
import pytest
import references
from corpus_fixtures import MAX_DOCUMENT, MAX_LINE, small_sizes
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import check_refused

from albert_data.clean.documents import clean_documents
from albert_data.clean.repetition import drop_lines, hash_lines
from albert_data.cli.main import run as run_command
from albert_data.config import TextConfig, VocabConfig
from albert_data.corpus.blocks import Block, Origin
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import find_inputs
from albert_data.corpus.lines import long_documents
from albert_data.corpus.mixtures import find_sources
from albert_data.corpus.tasks import ReadTask
from albert_data.errors import ConfigError
from albert_data.inspect.audit.corpus import read_corpus
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.library.building import train_vocab
from albert_data.survey import repeated_lines, sorted_columns
from albert_data.survey.benchmarks import write_benchmarks
from albert_data.survey.repeated_lines import LineJob, count_here, write_repeated
from albert_data.survey.sorted_columns import map_u64, write_columns
from albert_data.tokenizer.model import Tokenizer

FOOTERS = ["All rights reserved.", "Page 7 of 12", "Page 13 of 12", "See also: other pages"]
any_line = st.sampled_from(["a", "b 1", "b  22", "b\u30003", "c", "", " ", "\u2003a", "1", "22", "é 5 5", "d" * 9])
any_document = st.lists(any_line, min_size=1, max_size=6).map("\n".join)


def fold(line: str) -> str:
    return re.sub("[0-9]+", "0", " ".join(line.split()))


def drop(documents: list[str], least: int) -> list[str]:
    """The documents without repeated lines, slowly."""
    distinct = {"\n".join(" ".join(line.split()) for line in text.split("\n") if line.strip()) for text in documents}
    counts = Counter(form for text in distinct for form in {fold(line) for line in text.split("\n")} if form)
    return ["\n".join(line for line in text.split("\n") if counts[fold(line)] < least) for text in documents]


def clean(documents: list[str], repeated: np.ndarray | None = None) -> list[int]:
    """The keys of documents."""
    return clean_documents(block_of(documents), TextConfig(), Damage(), repeated).document_keys.tolist()


def block_of(documents: list[str]) -> Block:
    return Block(fixtures.to_jsonl(documents), Origin("in", "jsonl"))


@given(st.lists(st.lists(any_document, min_size=1, max_size=6), min_size=1, max_size=4), st.integers(2, 4))
def test_lines_of_enough_distinct_documents_are_removed_however_these_are_read(tasks, least):
    documents = [text for task in tasks for text in task]
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeated_lines, "ROWS_AT_ONCE", 3)
        patch.setattr(sorted_columns, "_ROWS_OF_FILE", 1)
        job, folder = LineJob(True, least, Path(name)), Path(name)
        found = [job(ReadTask(name=f"t{i}", block=block_of(task))) for i, task in enumerate(tasks)]
        path = write_repeated(folder, [file for files in found for file in files], least)
        assert list(folder.iterdir()) == [path]
        repeated = map_u64(path).copy()
    assert clean(documents, repeated) == clean(drop(documents, least))
    assert clean(documents[::-1], repeated) == clean(drop(documents, least)[::-1])


def test_a_line_of_very_many_documents_in_very_many_files_takes_no_more_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(repeated_lines, "ROWS_AT_ONCE", 100)
    monkeypatch.setattr(sorted_columns, "_ROWS_OF_FILE", 1)
    held, sort = list[int](), sorted_columns.sort_columns
    monkeypatch.setattr(sorted_columns, "sort_columns", lambda rows, **how: held.append(rows.shape[1]) or sort(rows))
    least, rng = 300, np.random.default_rng(3)
    keys = rng.integers(0, 2**63, (60, 200), np.uint64)  # of the documents of each file
    lines = np.repeat(np.array([5, 7], np.uint64), [199, 1])  # line 5 stands in 11,940 documents, line 7 in 60
    files = [write_columns(tmp_path, f"{i}.lines", np.stack([lines, some])) for i, some in enumerate(keys)]
    held.clear()
    assert map_u64(write_repeated(tmp_path, files, least)).tolist() == [0, 5]
    assert max(held) <= 2 * least + 200


@given(st.lists(any_document, min_size=1, max_size=5), st.sets(any_line))
def test_only_whole_lines_of_a_document_are_removed(documents, lines):
    data = "".join(f"{text}\n" for text in documents).encode()
    ends = np.cumsum([len(text.encode()) + 1 for text in documents])
    _, hashes = hash_lines(np.frombuffer("\n".join(sorted(lines)).encode(), np.uint8))
    repeated = np.unique(np.append(np.zeros(1, np.uint64), hashes))
    found = drop_lines(data, ends, repeated)
    assert found is not None
    left, new_ends, dropped = found
    forms = {fold(line) for line in lines if line.strip()}
    kept = [[line for line in text.split("\n") if fold(line) not in forms] for text in documents]
    parts = [part.tobytes().decode() for part in np.split(np.frombuffer(left, np.uint8), new_ends[:-1])]
    assert parts == ["".join(f"{line}\n" for line in text) or "\n" for text in kept]
    assert [line.decode().rstrip("\n") for line in dropped] == [
        line for text in documents for line in text.split("\n") if fold(line) in forms
    ]


# ---- documents that are cut ----

LONG_LINES = ["again", "  once  more", "one line", "two", "w" * 21, "    " + "w" * 40]
LONG_TEXT = st.lists(st.sampled_from(LONG_LINES), min_size=1, max_size=60)


@pytest.mark.parametrize("unwraps", [False, True])
@given(texts=st.lists(LONG_TEXT.map("\n".join), min_size=1, max_size=4), least=st.integers(2, 3))
@example(texts=["\n".join(["again", "x" * 15] * 30), "again"], least=2)  # what is removed moves the cuts of the rest
@example(texts=["    " + "w" * 40, "again"], least=2)  # a part of a line has the indentation besides
def test_a_long_document_counts_once_and_is_cut_alike_wherever_it_lies(texts, least, unwraps):
    settings = TextConfig(document_rule="file", drop_repeated_lines=least, unwrap=unwraps)
    with TemporaryDirectory() as name, small_sizes(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_documents, "_BEGINNING", 4)
        folders = [Path(name) / kind for kind in ("jsonl", "txt", "gz")]
        for folder in folders:
            folder.mkdir()
        (folders[0] / "in.jsonl").write_bytes(fixtures.to_jsonl(texts))
        for number, text in enumerate(texts):
            (folders[1] / f"{number}.txt").write_text(text)
            (folders[2] / f"{number}.txt.gz").write_bytes(gzip.compress(text.encode()))
        found, keys = [], []
        for folder in folders:
            inputs = find_inputs([str(folder)], text=settings)
            repeated = count_here(inputs, settings)
            assert repeated is not None
            found.append(repeated.tolist())
            keys.append(sorted(read_corpus(inputs, settings).keys.tolist()))
        beginnings = {text: beginning_of(text) for text in texts}
    assert found[1:] == found[:1] * 2
    assert keys[1:] == keys[:1] * 2
    counts = Counter(
        line
        for beginning in set(beginnings.values())
        for line in {fold(line) for text in texts if beginnings[text] == beginning for line in text.split("\n")}
    )
    short = [line for line in counts if len(line) < 16]
    _, hashes = hash_lines(np.frombuffer("\n".join(short).encode(), np.uint8))
    assert {int(one) for one in hashes} & set(found[0]) == {
        int(one) for line, one in zip(short, hashes, strict=True) if counts[line] >= least
    }


def beginning_of(text: str) -> str:
    """What identifies a document: its first characters if it is cut, else all of it."""
    canonical = "".join(f"{' '.join(line.split())}\n" for line in text.split("\n"))
    parts = references.cut_document(canonical.encode(), MAX_LINE, MAX_DOCUMENT)
    return "".join(text.split())[:4] if len(parts) > 1 else canonical


# ---- builds ----


def with_footers(documents: list[str]) -> list[str]:
    return [f"{text}\n{FOOTERS[i % 2]}\n{FOOTERS[2 + i % 2]}" for i, text in enumerate(documents)]


FULL = with_footers(fixtures.make_documents(60, seed=4))
DOCUMENTS = [text for text in drop(FULL, 10) if text.strip()]


@pytest.fixture
def plain(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The digest of a build of the text without the lines. Tasks are small."""
    fixtures.make_tasks_small(monkeypatch, 1 << 12)
    (tmp_path / "plain.jsonl").write_bytes(fixtures.to_jsonl(DOCUMENTS))
    return str(fixtures.run_build(tmp_path / "plain.jsonl", tmp_path / "plain", tokenizer).manifest.digest)


@pytest.mark.parametrize(("layout", "workers"), [("mixed", 2), ("jsonl", 0), ("txt", 0)])
def test_a_build_is_that_of_the_text_without_the_lines(layout, workers, plain, tmp_path, tokenizer):
    engine = MultiprocessEngine(workers) if workers else fixtures.InlineEngine()
    fixtures.write_corpus(tmp_path / "in", FULL, layout, random.Random(1))
    report = fixtures.run_build(tmp_path / "in", tmp_path / "out", tokenizer, engine, drop_repeated_lines=10)
    made = report.manifest
    assert made.digest == plain
    assert made.removed is not None
    entry = made.removed["repeated_lines"]
    lines = Counter(line for text in FULL for line in text.split("\n") if line.strip())
    lines -= Counter(line for text in DOCUMENTS for line in text.split("\n"))
    assert (entry.num_lines, entry.num_bytes) == (lines.total(), sum(map(len, lines.elements())))
    assert not (tmp_path / "out" / ".build").exists()


class KilledEngine(fixtures.InlineEngine):
    """Ends after a number of results, whatever they are of, and remembers what jobs it ran."""

    def __init__(self, results: int) -> None:
        self.left, self.jobs = results, list[str]()

    def run(self, job: Any, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        self.jobs.append(type(getattr(job, "job", job)).__name__)
        for found in super().run(job, tasks):
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            yield found


@pytest.mark.parametrize("results", [1, 12])
def test_a_killed_build_resumes_and_counts_no_lines_again(results, plain, tmp_path, tokenizer):
    fixtures.write_corpus(tmp_path / "in", FULL, "jsonl", random.Random(1))
    with pytest.raises(KeyboardInterrupt):
        fixtures.run_build(tmp_path / "in", tmp_path / "out", tokenizer, KilledEngine(results), drop_repeated_lines=10)
    has_counted = (tmp_path / "out/.build/lines/repeated.hashes").exists()
    engine = KilledEngine(-1)
    made = fixtures.run_build(tmp_path / "in", tmp_path / "out", tokenizer, engine, drop_repeated_lines=10).manifest
    assert made.digest == plain
    assert ("LineJob" in engine.jobs) != has_counted
    assert has_counted == (results > 1)


def test_a_vocabulary_and_what_inspect_reads_are_those_of_the_text_without_the_lines(tmp_path):
    keys = []
    for name, documents, least in (("plain", DOCUMENTS, None), ("full", FULL, 10)):
        path, text = tmp_path / f"{name}.jsonl", TextConfig(drop_repeated_lines=least)
        path.write_bytes(fixtures.to_jsonl(documents))
        train_vocab(path, tmp_path / name, config=VocabConfig(vocab_size=150), text=text, workers=1)
        keys.append(read_corpus(find_inputs([str(path)]), text).keys.tolist())
    assert keys[0] == keys[1]
    assert (tmp_path / "full/spiece.model").read_bytes() == (tmp_path / "plain/spiece.model").read_bytes()
    assert '"repeated_lines"' in (tmp_path / "full/vocab.json").read_text()


def test_a_benchmark_is_compared_without_the_lines(tmp_path):
    footer, text = " ".join(f"word{i}" for i in range(20)), " ".join(f"other{i}" for i in range(20))
    (tmp_path / "mix.toml").write_text('[[source]]\nname = "b"\npaths = "b.txt"\nweight = 0\n')
    repeated = np.unique(np.append(np.zeros(1, np.uint64), hash_lines(np.frombuffer(footer.encode(), np.uint8))[1]))
    found = []
    for lines in ([text, footer], [text]):
        (tmp_path / "b.txt").write_text("\n".join(lines))
        inputs = find_sources(str(tmp_path / "mix.toml"), None, TextConfig())
        (folder := tmp_path / str(len(lines))).mkdir()
        path = write_benchmarks(folder, inputs, TextConfig(), repeated)
        assert path is not None
        found.append(path.read_bytes())
    assert found[0] == found[1] != b""


@pytest.mark.parametrize("command", ["build", "vocab"])
def test_stdin_and_a_line_of_one_document_are_refused(command, tmp_path, monkeypatch, capsys):
    fixtures.set_stdin(monkeypatch, b"Some text.\n")
    assert run_command([command, "-", "--drop-repeated-lines", "5", "-o", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith(
        "Error: --drop-repeated-lines reads the corpus twice, and stdin can be read only once; write"
    )
    check_refused(lambda: TextConfig(drop_repeated_lines=1), ConfigError, "drop_repeated_lines is 1 & 2 to")
