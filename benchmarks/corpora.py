"""Reads corpora to measure on, segments and repeats them, and trains vocabularies on them.

In: JSON lines, plain or .gz, with a field `text`. A whole corpus is held in memory, so limit a large one with
`--megabytes`.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import count, pairwise
from pathlib import Path

import click

from albert_data import load_tokenizer
from albert_data.clean.documents import clean_documents
from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block, Origin
from albert_data.corpus.damage import Damage
from albert_data.data import slice_sentences
from albert_data.errors import AlbertDataError
from albert_data.sentences.text import find_sentences
from benchmarks import jobs
from benchmarks.results import MEGABYTE

MAX_UNKNOWN_SHARE = 0.1  # with more unknown tokens, the tokenizer is not made for this text
_GROUP = 200  # documents segmented at once


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Documents of one language. tokenizer: folder or file of its SentencePiece model; None if it has none."""

    name: str
    language: str
    path: Path
    texts: list[str]
    tokenizer: Path | None = None

    @cached_property
    def documents(self) -> list[list[str]]:
        """The sentences of each document, segmented as in a build."""
        return list(segment_documents(self.texts, self.language))

    @cached_property
    def sentences(self) -> list[str]:
        return [sentence for document in self.documents for sentence in document]

    @property
    def model(self) -> Path:
        """The tokenizer of a corpus that has one."""
        assert self.tokenizer is not None, f"{self.name} has no tokenizer"
        return self.tokenizer


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The input of every part of the benchmark.

    corpora: each has a vocabulary. languages: a corpus in many languages, used only for exactness.
    build_bytes: the minimal text of a build; a smaller corpus is repeated. work: a folder for temporary files.
    """

    corpora: list[Corpus]
    languages: Corpus | None
    runs: int
    build_bytes: int
    random_strings: int
    work: Path


def count_bytes(texts: Iterable[str]) -> int:
    return sum(len(text.encode()) for text in texts)


def take_bytes(texts: Iterable[str], max_bytes: float) -> list[str]:
    """Return the first texts, as many as fit, and at least one."""
    taken: list[str] = []
    for text in texts:
        max_bytes -= len(text.encode())
        if max_bytes < 0 and taken:
            break
        taken.append(text)
    return taken


def read_texts(corpus: Path, max_bytes: float = sys.maxsize) -> list[str]:
    """Read the first `max_bytes` of texts of a corpus. Raises ClickException for a file that is not a corpus."""
    texts = take_bytes(_parse_lines(corpus), max_bytes)
    if not any(text.strip() for text in texts):
        raise click.ClickException(f"{corpus} holds no text; JSON lines with a field `text` are needed")
    return texts


def _parse_lines(corpus: Path) -> Iterator[str]:
    try:
        with gzip.open(corpus) if corpus.suffix == ".gz" else corpus.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _parse_line(line, f"{corpus} line {number}")
    except (OSError, EOFError) as error:
        raise click.ClickException(f"{corpus} can't be read: {getattr(error, 'strerror', None) or error}") from error


def _parse_line(line: bytes, position: str) -> str:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise click.ClickException(
            f"{position} is not JSON ({error}); JSON lines with a field `text` are needed"
        ) from None
    text = record.get("text") if isinstance(record, dict) else None
    if not isinstance(text, str):
        found = ", ".join(sorted(record)[:8]) if isinstance(record, dict) else type(record).__name__
        raise click.ClickException(f"{position} has no text in a field `text`; found: {found or 'no field'}")
    return text.encode(errors="replace").decode()


def split_lines(text: str) -> list[str]:
    """Return the lines of a text that are not blank."""
    return [line for line in text.split("\n") if line.strip()]


def segment_documents(texts: list[str], language: str) -> Iterator[list[str]]:
    """Yield the sentences of each document, without empty documents."""
    for begin in range(0, len(texts), _GROUP):
        documents = ["\n".join(split_lines(text)) for text in texts[begin : begin + _GROUP]]
        block = Block("\n\n".join(documents).encode(), Origin("", "txt"))
        config = TextConfig(language=language)
        text = find_sentences(clean_documents(block, config, Damage()), config)
        found = slice_sentences(text.utf8, text.sentence_begins, text.sentence_ends)
        sentences = [sentence.decode() for sentence in found]
        yield from (sentences[start:end] for start, end in pairwise(text.document_offsets.tolist()))


def repeat_documents(documents: list[list[str]], min_bytes: float) -> Iterator[list[str]]:
    """Yield all documents, then copies with a distinguishing first line, until there are `min_bytes`."""
    num_bytes = 0
    for copy in count():
        for number, document in enumerate(documents):
            if copy and num_bytes >= min_bytes:
                return
            lines = [f"Copy {copy} of text {number}.", *document] if copy else document
            num_bytes += count_bytes(lines)
            yield lines


def write_text(documents: list[list[str]], path: Path, min_bytes: float) -> int:
    """Write documents as .txt, repeated to `min_bytes`. Returns the bytes without line feeds."""
    num_bytes = 0
    with path.open("w", encoding="utf-8") as file:
        for lines in repeat_documents(documents, min_bytes):
            num_bytes += count_bytes(lines)
            file.write("\n".join(lines) + "\n\n")
    return num_bytes


def train_vocabulary(corpus: Path, language: str, vocab_size: int, work: Path) -> Path:
    """Train a unigram vocabulary, or return the one that was trained on this file before."""
    state = corpus.stat()
    identity = f"{corpus.resolve()} {state.st_size} {state.st_mtime_ns} {language} {vocab_size}"
    out = work / f"vocab-{sha256(identity.encode()).hexdigest()[:12]}"
    if not (out / "vocab.json").exists():
        options = ["--vocab-size", str(vocab_size), "--language", language]
        jobs.run([jobs.find_program(), "vocab", str(corpus), "-o", str(out), *options])
    return out


def check_tokenizer(corpus: Corpus) -> None:
    """Raise ClickException if the tokenizer can't be loaded or is not made for this corpus."""
    try:
        tokenizer = load_tokenizer(corpus.model)
    except AlbertDataError as error:
        raise click.ClickException(str(error)) from error
    sample = take_bytes((line for text in corpus.texts for line in split_lines(text)), MEGABYTE)
    ids, _ = tokenizer.encode(sample)
    share = float((ids == tokenizer.unk_id).mean()) if len(ids) else 0.0
    if share > MAX_UNKNOWN_SHARE:
        raise click.ClickException(
            f"tokenizer {corpus.model} does not fit {corpus.path}: {share:.0%} of the tokens are unknown to it; "
            "give one that was trained on such text"
        )
