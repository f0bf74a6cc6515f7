"""The readers of text: every format, read by a whole build."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest import mock

import pyarrow.csv

from albert_data.config import BuildConfig, TextConfig
from albert_data.corpus.inputs import STDIN
from albert_data.shards.manifest import Manifest
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from reliability.cases import Case, Mutate, Oddity, Reader, WrongResult
from reliability.format_mutators import from_zst, inside, mutate_array, mutate_lines, mutate_rows, to_gz, to_zst
from reliability.mutators import mutate_bytes
from reliability.oddities import (
    PLAIN,
    csv_oddities,
    gz_oddities,
    json_oddities,
    mixture_oddities,
    text_oddities,
    wiki_oddities,
    zst_oddities,
)
from reliability.sound import Sound, build_config, run_build
from reliability.tables import (
    Write,
    make_tables,
    stream_oddities,
    table_oddities,
    write_feather,
    write_parquet,
    write_stream,
)

_NAMES = {"wiki": "wiki_00", "mixture.toml": "mixture.toml"}
MIXTURE = b"""# Sources
[[source]]
name = "a"
paths = ["a.txt", './a.txt']
weight = 1.5
[[source]]
name = "b"
paths = "*.txt"
language = "de"
tokens = 1_000
"""
# What may stand behind a key of a mixture: some is right for one of them.
_VALUES = (
    *("0", "1", "2.5", "-1", "1e9", "1e400", "nan", "10" * 30, "true", "2026-01-01"),
    *("{}", "[]", "[[]]", "[1]", "{a = 1}", '["a.txt", "*.txt"]'),
    *('"a"', '"b"', '""', '"a.txt"', '"*.txt"', '"@a.txt"', '"a.txt:de"', '"\\u0000"', '"de"'),
    *('"auto"', '"cp1252"', '"file"', '"lines"', '"text"'),
)
_KEYS = ("name", "paths", "weight", "tokens", "language", "text_field", "documents", "sentences", "unwrap", "encoding")


def mutate_mixture(rng: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Replace the values of some keys, or add keys; sometimes damage bytes."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, data, others)
    lines = data.decode().splitlines()
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(1, len(lines))
        key = lines[at].partition("=")[0].strip()
        new = f"{rng.choice(_KEYS) if key.startswith('[') or rng.random() < 0.3 else key} = {rng.choice(_VALUES)}"
        lines[at : at + (not key.startswith("["))] = [*([lines[at]] if key.startswith("[") else []), new]
    return "\n".join(lines).encode()


CONDITIONS = ("id != 3", "day >= '1970-01-03'", "at < '1970-01-01T00:00:00.000000009Z'", "price in [1, 2.5, 4]")
LANGUAGES = ("en",) * 8 + ("zh", "de", "ar", "hi", "ja", "sw")


def text_readers(sound: Sound) -> list[Reader]:
    """Return a reader for each file name ending of a corpus, and one for stdin."""
    text = sound.corpus.read_bytes()
    lines = to_json_lines(text)
    tables = make_tables(text)
    articles = to_articles(text)
    reads = ReadText(load_tokenizer(sound.unigram))

    def make(name: str, share: int, seed: bytes, mutate: Mutate, oddities: Callable[[], list[Oddity]]) -> Reader:
        short = b"".join(seed.splitlines(keepends=True)[:3])
        seeds = [seed, short] if name in ("txt", "jsonl", STDIN) else [seed]
        return Reader(name=name, share=share, seeds=seeds, mutate=mutate, read=reads, oddities=oddities())

    def make_table(name: str, share: int, write: Write, oddities: Sequence[Oddity]) -> Reader:
        return Reader(name=name, share=share, seeds=list(map(write, tables)), read=reads, oddities=oddities)

    return [
        make("txt", 120, text, mutate_bytes, text_oddities),
        make("jsonl", 120, lines, mutate_lines, json_oddities),
        make("txt.gz", 40, to_gz(text), inside(gzip.decompress, to_gz, mutate_bytes), list),
        make("jsonl.gz", 60, to_gz(lines), inside(gzip.decompress, to_gz, mutate_lines), gz_oddities),
        make("txt.zst", 40, to_zst(text), inside(from_zst, to_zst, mutate_bytes), list),
        make("jsonl.zst", 60, to_zst(lines), inside(from_zst, to_zst, mutate_lines), zst_oddities),
        make("json", 50, b"[" + b",".join(lines.splitlines()) + b"]", mutate_array, list),
        make("csv", 50, write_csv(tables[0]), mutate_rows, csv_oddities),
        make_table("parquet", 50, write_parquet, table_oddities(write_parquet)),
        make_table("feather", 30, write_feather, table_oddities(write_feather)),
        make_table("arrow", 50, write_stream, stream_oddities()),
        make("wiki", 20, articles, mutate_bytes, wiki_oddities),
        make("mixture.toml", 20, MIXTURE, mutate_mixture, mixture_oddities),
        make("stdin", 30, lines, mutate_lines, list),
    ]


def to_json_lines(text: bytes) -> bytes:
    documents = text.decode().strip().split("\n\n")
    return b"".join(json.dumps({"id": i, "text": text}).encode() + b"\n" for i, text in enumerate(documents))


def to_articles(text: bytes) -> bytes:
    """The documents as WikiExtractor writes articles."""
    documents = text.decode().strip().split("\n\n")
    articles = (f'<doc id="{i}" url="u" title="t">\n{text}\n\n</doc>\n' for i, text in enumerate(documents))
    return "".join(articles).encode()


def write_csv(table: pyarrow.Table) -> bytes:
    file = io.BytesIO()
    pyarrow.csv.write_csv(table, file)
    return file.getvalue()


class ReadText:
    """Builds shards from a file; from an oddity with the command's default settings."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, case: Case, data: bytes, folder: Path) -> None:
        config = choose_config(case)
        if case.reader.name == "stdin":
            with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(data))):
                self._build(Path(STDIN), folder / "out", config)
            return
        path = folder / "in" / _NAMES.get(case.reader.name, f"file.{case.reader.name}")
        path.parent.mkdir()
        path.write_bytes(data)
        if case.reader.name == "mixture.toml":
            (path.parent / "a.txt").write_bytes(PLAIN)
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
    is_table = case.reader.name in ("parquet", "feather", "arrow")
    language_field = "lang" if is_table else None
    if case.oddity:
        return build_config(text=TextConfig(language_field=language_field))
    has_encoding = not is_table and case.reader.name != "stdin"
    rng = case.random("config")
    text = TextConfig(
        language_field=language_field if rng.random() < 0.7 else None,
        sentences=rng.choice(("prose", "prose", "lines")),
        language=rng.choice(LANGUAGES),
        strict=rng.random() < 0.1 and not is_table,  # sound tables hold nulls
        encoding="auto" if has_encoding and rng.random() < 0.3 else None,
        where=rng.choice(CONDITIONS) if is_table and rng.random() < 0.3 else None,
        group_field=rng.choice(("id", "price")) if is_table and rng.random() < 0.3 else None,
        id_field=rng.choice(("id", "price")) if is_table and rng.random() < 0.3 else None,
    )
    if case.reader.name == "csv":
        text = replace(text, quoting=rng.choice(("auto", "long")))  # without quotes, the seed has no text field
    return build_config(text=text, max_seq_len=rng.choice((8, 32, 128)))
