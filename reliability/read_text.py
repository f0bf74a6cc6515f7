"""The readers of text: every format, read by a whole build."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pyarrow
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet

from albert_data.config import BuildConfig, TextConfig
from albert_data.corpus.inputs import STDIN
from albert_data.shards.manifest import Manifest
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from reliability.cases import Case, Mutate, Oddity, Reader, WrongResult
from reliability.format_mutators import from_zst, inside, mutate_array, mutate_lines, to_gz, to_zst
from reliability.mutators import mutate_bytes
from reliability.oddities import gz_oddities, json_oddities, text_oddities, zst_oddities
from reliability.sound import Sound, build_config, run_build

LANGUAGES = ("en",) * 8 + ("zh", "de", "ar", "hi", "ja", "sw")


def text_readers(sound: Sound) -> list[Reader]:
    """Return a reader for each file name ending of a corpus, and one for stdin."""
    text = sound.corpus.read_bytes()
    lines = to_json_lines(text)
    table = to_table(text)
    reads = ReadText(load_tokenizer(sound.unigram))

    def make(name: str, share: int, seed: bytes, mutate: Mutate, oddities: Callable[[], list[Oddity]]) -> Reader:
        short = b"".join(seed.splitlines(keepends=True)[:3])
        seeds = [seed, short] if name in ("txt", "jsonl", STDIN) else [seed]
        return Reader(name=name, share=share, seeds=seeds, mutate=mutate, read=reads, oddities=oddities())

    import gzip

    return [
        make("txt", 120, text, mutate_bytes, text_oddities),
        make("jsonl", 120, lines, mutate_lines, json_oddities),
        make("txt.gz", 40, to_gz(text), inside(gzip.decompress, to_gz, mutate_bytes), list),
        make("jsonl.gz", 60, to_gz(lines), inside(gzip.decompress, to_gz, mutate_lines), gz_oddities),
        make("txt.zst", 40, to_zst(text), inside(from_zst, to_zst, mutate_bytes), list),
        make("jsonl.zst", 60, to_zst(lines), inside(from_zst, to_zst, mutate_lines), zst_oddities),
        make("json", 50, b"[" + b",".join(lines.splitlines()) + b"]", mutate_array, list),
        make("csv", 50, write_table(pyarrow.csv.write_csv, table), mutate_bytes, list),
        make("parquet", 50, write_table(pyarrow.parquet.write_table, table), mutate_bytes, list),
        make("feather", 30, write_table(pyarrow.feather.write_feather, table), mutate_bytes, list),
        make("arrow", 30, to_stream(table), mutate_bytes, list),
        make("stdin", 30, lines, mutate_lines, list),
    ]


def to_json_lines(text: bytes) -> bytes:
    documents = text.decode().strip().split("\n\n")
    return b"".join(json.dumps({"id": i, "text": text}).encode() + b"\n" for i, text in enumerate(documents))


def to_table(text: bytes) -> pyarrow.Table:
    documents = text.decode().strip().split("\n\n")
    return pyarrow.table({"id": range(len(documents)), "text": documents})


def write_table(write: Callable[[pyarrow.Table, io.BytesIO], None], table: pyarrow.Table) -> bytes:
    file = io.BytesIO()
    write(table, file)
    return file.getvalue()


def to_stream(table: pyarrow.Table) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
    return bytes(sink.getvalue())


class ReadText:
    """Builds shards from a file; from an oddity with the command's default settings."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, case: Case, data: bytes, folder: Path) -> None:
        config = build_config() if case.oddity else choose_config(case)
        if case.reader.name == "stdin":
            with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(data))):
                self._build(Path(STDIN), folder / "out", config)
            return
        path = folder / "in" / f"file.{case.reader.name}"
        path.parent.mkdir()
        path.write_bytes(data)
        if case.oddity is None or case.oddity.means is None:
            self._build(path, folder / "out", config)
        else:
            self._compare(case.oddity.name, path, case.oddity.means, folder)

    def _build(self, names: Path, out: Path, config: BuildConfig) -> Manifest:
        return run_build(names, out, self._tokenizer, config=config).manifest

    def _compare(self, name: str, path: Path, means: bytes, folder: Path) -> None:
        """Compare a build of the file with one of its plain form, each with a second file so that neither is empty."""
        plain = folder / "plain" / "file.txt"
        plain.parent.mkdir()
        plain.write_bytes(means)
        digests: list[str] = []
        for read in (path, plain):
            (read.parent / "other.txt").write_bytes(b"Another document, in a file of its own.\n")
            out = folder / f"out-{len(digests)}"
            digests.append(self._build(read.parent, out, build_config()).documents_digest)
        if digests[0] != digests[1]:
            raise WrongResult(f"{name.replace(' ', '-')} is accepted, but but it gives other documents than it has")


def choose_config(case: Case) -> BuildConfig:
    """Choose the settings that decide which code reads the text."""
    rng = case.random("config")
    text = TextConfig(
        sentences=rng.choice(("prose", "prose", "lines")),
        language=rng.choice(LANGUAGES),
        strict=rng.random() < 0.1,
    )
    return build_config(text=text, max_seq_len=rng.choice((8, 32, 128)))
