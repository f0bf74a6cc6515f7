"""The readers of text: every format, through a whole build, as the command reads it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from albert_data.config import BuildConfig, TextConfig
from albert_data.corpus.inputs import STDIN
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from reliability.cases import Case, Mutate, Oddity, Reader, WrongResult
from reliability.format_mutators import from_zst, inside, mutate_lines, to_gz, to_zst
from reliability.mutators import mutate_bytes
from reliability.oddities import gz_oddities, json_oddities, text_oddities, zst_oddities
from reliability.sound import Sound, build_config, run_build

LANGUAGES = ("en",) * 8 + ("zh", "de", "ar", "hi", "ja", "xx")


def text_readers(sound: Sound) -> list[Reader]:
    """A reader for each ending that a corpus may have, and one for stdin."""
    text = sound.corpus.read_bytes()
    lines = to_json_lines(text)
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
        make("stdin", 30, lines, mutate_lines, list),
    ]


def to_json_lines(text: bytes) -> bytes:
    documents = text.decode().strip().split("\n\n")
    return b"".join(json.dumps({"id": i, "text": text}).encode() + b"\n" for i, text in enumerate(documents))


class ReadText:
    """Builds shards of a file; for an oddity, with the defaults of the command."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, case: Case, data: bytes, folder: Path) -> None:
        config = build_config() if case.oddity else choose_config(case)
        if case.reader.name == "stdin":
            with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(data))):
                self._build(Path(STDIN), folder / "out", config)
            return
        path = folder / f"in.{case.reader.name}"
        path.write_bytes(data)
        digest = self._build(path, folder / "out", config)["documents_digest"]
        if case.oddity is not None and case.oddity.means is not None:
            self._compare(case.oddity.name, digest, case.oddity.means, folder)

    def _build(self, names: Path, out: Path, config: BuildConfig) -> dict[str, Any]:
        return run_build(names, out, self._tokenizer, config=config).manifest

    def _compare(self, name: str, digest: str, means: bytes, folder: Path) -> None:
        plain = folder / "plain.txt"
        plain.write_bytes(means)
        if self._build(plain, folder / "plain", build_config())["documents_digest"] != digest:
            raise WrongResult(f"{name.replace(' ', '-')}: accepted, but its documents are others than they should be")


def choose_config(case: Case) -> BuildConfig:
    """Settings of a case: those that decide which code reads the text."""
    rng = case.random("config")
    text = TextConfig(
        sentences=rng.choice(("prose", "prose", "lines")),
        language=rng.choice(LANGUAGES),
        strict=rng.random() < 0.1,
    )
    return build_config(text=text, max_seq_len=rng.choice((8, 32, 128)))
