"""Text as it is found: odd characters, documents and lines of any size, in bounded memory."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest

from albert_data.cli.main import run
from albert_data.shards.manifest import Manifest
from albert_data.shards.reader import open_shards

DOCUMENTS = fixtures.make_documents(20, seed=7)
PEAK_BYTES = 600_000_000
JSON_PEAK_BYTES = 1_000_000_000  # a line of JSON can't be read in parts: it takes a few copies of itself

# A build whose every worker says, after each task, how much memory it had at most; then the parent does.
MEASURE = """
import sys
from pathlib import Path
import pyarrow
from albert_data.pipeline.build import build_shards
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.config import BuildConfig, ExampleConfig, TextConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.tokenizer.model import load_tokenizer

def say_peak(who):
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    with open("peaks", "a") as file:
        print(who, int(line.split()[1]) * 1024, file=file)

class Measuring(MultiprocessEngine):
    def run(self, job, tasks):
        def measured(task):
            result = job(task)
            say_peak("worker")
            return result
        return super().run(measured, tasks)

config = BuildConfig(text=TextConfig(sentences="lines"), examples=ExampleConfig(max_seq_len=512))
build_shards(find_inputs([sys.argv[1]]), Path("out"), load_tokenizer("model.model"), config, Measuring(2))
say_peak("parent")
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, tokenizer_model: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    fixtures.load_tokenizers_once(monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("model.model").write_bytes(tokenizer_model)
    return tmp_path


def build(name: str, data: bytes, *options: str) -> Manifest:
    """The manifest of a corpus of one file."""
    Path(name).write_bytes(data)
    out = f"out-{name}"
    arguments = ["build", name, "--tokenizer", "model.model", "-o", out, "--workers", "1"]
    assert run([*arguments, "--max-seq-len", "64", *options]) == 0
    return open_shards(out).manifest


def test_nul_and_other_control_characters_are_text():
    documents = ["A\x00B and\x00.", "\x00", "\x1b[31mred\x7f"]
    manifest = build("odd.jsonl", fixtures.to_jsonl(documents))
    assert manifest.counts.documents == 3
    assert not set(manifest.damage) - {"no_tokens"}
    assert manifest.documents_digest == build("odd.txt", fixtures.to_txt(documents)).documents_digest


@pytest.mark.parametrize(
    "text",
    ["x" * 100_000, "的" * 50_000, "? " * 50_000, "\u0301" * 50_000, "a\u200d" * 30_000, "\U0001f469" * 30_000],
    ids=["one word", "Chinese", "punctuation", "combining marks", "joiners", "emoji"],
)
def test_runs_of_one_character_are_read(text):
    manifest = build("run.txt", text.encode(), "--mask-prob", "0.3")
    assert manifest.counts.documents == 1
    lengths = open_shards("out-run.txt").lengths
    assert lengths.max(initial=0) <= 64


# ---- size ----


@pytest.mark.slow
@pytest.mark.parametrize("word", ["wordwordword", "词语 "])
def test_a_line_of_3_mb_is_read_alike_from_text_and_json(word):
    """Cut where it is over 1 MiB. The JSON lines are parted into tasks between them, never inside one."""
    lines = [f"{number} " + word * (3_000_000 // len(word.encode())) for number in range(2)]
    options = ("--sentences", "lines")
    txt = build("long.txt", fixtures.to_txt(lines), *options)
    jsonl = build("long.jsonl", fixtures.to_jsonl(lines), *options)
    gz = build("long.jsonl.gz", gzip.compress(fixtures.to_jsonl(lines), 1), *options)
    assert txt.counts.documents == 2
    for name in ("digest", "documents_digest", "counts", "damage"):
        assert getattr(txt, name) == getattr(jsonl, name) == getattr(gz, name)


@pytest.mark.slow
def test_a_document_of_20_mb_is_read_alike_from_every_format():
    """Without a blank line it fills several blocks; it is cut into documents of at most 4 MiB."""
    lines = [line for document in fixtures.make_documents(400, seed=8) for line in document.split("\n")]
    text = "\n".join(lines * 60)[:20_000_000]
    documents = [*DOCUMENTS, text, *DOCUMENTS]
    options = ("--sentences", "lines")
    txt = build("long.txt", fixtures.to_txt(documents), *options)
    assert txt.damage["long_document_cut"] == len(text.encode()) // (4 << 20)
    for name, data in (
        ("long.jsonl", fixtures.to_jsonl(documents)),
        ("long.txt.gz", gzip.compress(fixtures.to_txt(documents), 1)),
        ("long.jsonl.zst", fixtures.to_zst(fixtures.to_jsonl(documents))),
    ):
        other = build(name, data, *options)
        for key in ("digest", "documents_digest", "counts", "damage"):
            assert getattr(other, key) == getattr(txt, key)


def write_document(file: Any) -> None:
    """200 MB in lines of 100 bytes, without a blank line."""
    for _ in range(200):
        file.write((b"water and mountain " * 5 + b"ends\n") * 10_000)


def write_line(file: Any) -> None:
    """100 MB without a line feed."""
    for _ in range(100):
        file.write(b"mountain and river, " * 50_000)


def write_json_line(file: Any) -> None:
    """100 MB of short lines in one text."""
    file.write(json.dumps({"text": "mountain and river.\n" * 5_000_000}).encode() + b"\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "write", "limit"),
    [
        ("large.txt", write_document, PEAK_BYTES),
        ("large.txt.gz", write_document, PEAK_BYTES),
        ("large.txt.gz", write_line, PEAK_BYTES),
        ("large.jsonl", write_json_line, JSON_PEAK_BYTES),
    ],
)
def test_memory_is_bounded_whatever_the_size_of_a_document_or_line(name, write, limit):
    with gzip.open(name, "wb", 1) if name.endswith(".gz") else Path(name).open("wb") as file:
        write(file)
    done = subprocess.run([sys.executable, "-c", MEASURE, name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peaks = [line.split() for line in Path("peaks").read_text().splitlines()]
    assert {who for who, _ in peaks} == {"worker", "parent"}
    assert max(int(peak) for _, peak in peaks) < limit, sorted(peaks)[-3:]


def test_abbreviations_are_part_of_a_build_and_their_file_of_none(capsys):
    """Others make another build, and a finished one is read without the file."""
    Path("in.txt").write_text("Seen by pat. Smith today. Told to pat. The end.")
    Path("mine.txt").write_text("en pat.\nde bspw.  # of another text\n")
    command = ["build", "in.txt", "--tokenizer", "model.model", "--max-seq-len", "64", "--workers", "1", "-o", "out"]
    assert run([*command, "--abbreviations", "mine.txt"]) == 0
    manifest = open_shards("out").manifest
    assert (manifest.config.text.abbreviations, manifest.counts.sentences) == ("de bspw\nen pat", 3)
    Path("mine.txt").write_text("en Pat.")
    assert run([*command, "--abbreviations", "mine.txt"]) == run(command) == 1
    shown = capsys.readouterr()
    assert "abbreviations=2" in shown.out
    assert "abbreviations is de bspw, en pat there and en Pat here" in shown.err
    assert "abbreviations is de bspw, en pat there and None here" in shown.err
    Path("mine.txt").unlink()
    assert run(["verify", "out"]) == run(["inspect", "out"]) == run(["audit", "out", "--corpus", "in.txt"]) == 0


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("ka pat.", [], "--abbreviations has none for en"),
        ("en pat.", ["--sentences", "lines"], "--abbreviations has none for text with --sentences lines"),
        ("en pat.\n\nde", [], "--abbreviations mine.txt, line 3"),
        (None, [], "--abbreviations mine.txt can't be read"),
    ],
)
def test_abbreviations_without_use_are_refused(content, options, message, capsys):
    Path("in.txt").write_text("A text. Of two sentences.")
    if content is not None:
        Path("mine.txt").write_text(content)
    command = ["build", "in.txt", "--tokenizer", "model.model", "--abbreviations", "mine.txt", "-o", "out"]
    assert run([*command, *options]) == 1
    assert message in capsys.readouterr().err
    assert not Path("out").exists()
