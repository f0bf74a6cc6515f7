"""What the corpus of a build tells that rows and manifest do not: figures of its files, and lost characters.

In: the rows, and the files that a build read, as a row does not say which file it comes from. Out: how many tokens each
file has, and how many of these are unknown, or parts of characters; and the characters that the tokenizer loses.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from albert_data.clean.documents import clean_documents
from albert_data.config import BuildConfig, TextConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import Input
from albert_data.corpus.tasks import read_tasks
from albert_data.errors import InputError
from albert_data.inspect.audit.rows import Subject
from albert_data.inspect.terminal import count_columns
from albert_data.storage.scratch import machine_scratch
from albert_data.survey.near_duplicates import NearDuplicates, find_near_duplicates
from albert_data.survey.parts import PartWriter
from albert_data.survey.repeated_lines import count_here
from albert_data.survey.signatures import choose_bands
from albert_data.survey.sorted_columns import map_u64
from albert_data.text.escaping import JOINERS, escape_controls, name_as_text
from albert_data.text.wording import count_of
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE

_NUM_CHARACTERS = 0x110000
_CUT = "..."  # of names that are too long


@dataclass(frozen=True, kw_only=True)
class CorpusFiles:
    """The documents and characters of files."""

    names: list[str]  # of the files
    keys: np.ndarray  # uint64, sorted, of all documents
    files: np.ndarray  # int32, the index in `names` of the first file that has each key
    characters: np.ndarray  # int64 [all code points], how often each occurs
    near_duplicates: NearDuplicates
    similar_keys: np.ndarray  # uint64, sorted: of the documents that are similar to another one

    def find_files(self, keys: np.ndarray) -> np.ndarray:
        """The file of each document: int32, -1 where no file has it."""
        owners = np.full(len(keys), -1, np.int32)
        _, here, there = np.intersect1d(keys, self.keys, return_indices=True)
        owners[here] = self.files[there]
        return owners


def read_corpus(inputs: list[Input], text: TextConfig) -> CorpusFiles:
    """Read all documents once, as a build with these settings does, and find the near-duplicates that it could drop.

    They take about as much disk as the text. Raises InputError as a build does.
    """
    names = [name_as_text(item.path) for item in inputs]
    numbers = {item.path: number for number, item in reversed(list(enumerate(inputs)))}  # the first, if one comes twice
    characters = np.zeros(_NUM_CHARACTERS, np.int64)
    keys, files = [np.zeros(0, np.uint64)], [np.zeros(0, np.int32)]
    damage, similarity = Damage(strict=False), BuildConfig.similarity
    repeated = count_here(inputs, text)
    with machine_scratch() as scratch, ExitStack() as opened:
        writer = PartWriter(scratch, "corpus", 0, choose_bands(similarity), opened)
        tasks = read_tasks(inputs, text, damage)
        for block, task_text in ((block, task.text) for task in tasks for block in task.read(damage, joins=False)):
            lines = clean_documents(block, task_text, damage, repeated)
            writer.add(lines)
            codes = np.frombuffer(lines.utf8.tobytes().decode().encode("utf-32-le"), np.uint32)
            counts = np.bincount(codes)
            characters[: len(counts)] += counts
            keys.append(lines.document_keys)
            files.append(np.full(len(lines.document_keys), numbers[block.origin.path], np.int32))
        found = find_near_duplicates(scratch, writer.finish(), similarity, scratch)
        similar = np.zeros(0, np.uint64) if found.file is None else map_u64(scratch / found.file).copy()
    all_keys, first = np.unique(np.concatenate(keys), return_index=True)
    return CorpusFiles(
        names=names,
        keys=all_keys,
        files=np.concatenate(files)[first],
        characters=characters,
        near_duplicates=found,
        similar_keys=similar,
    )


@dataclass(frozen=True)
class Lost:
    """A character that the tokenizer loses. how: what happens to it."""

    character: str
    count: int
    how: str


def find_lost(characters: np.ndarray, tokenizer: Tokenizer) -> tuple[int, list[Lost]]:
    """The number of visible characters, and those that the tokenizer loses, the most frequent first.

    Each distinct character is normalised and encoded by itself. It is lost if normalisation removes it or its marks, or
    if the result is encoded as <unk>. Changes of case and of compatibility forms, such as full-width
    letters, are no loss.
    """
    codes = [code for code in np.flatnonzero(characters).tolist() if _is_visible(chr(code))]
    normalised = [tokenizer.normalise(chr(code)).replace(VISIBLE_SPACE, "").strip() for code in codes]
    ids, offsets = tokenizer.encode(normalised)
    num_unk = np.diff(np.concatenate(([0], np.cumsum(ids == tokenizer.unk_id)))[offsets]).tolist()
    lost = []
    for code, after, unk in zip(codes, normalised, num_unk, strict=True):
        if how := _explain(chr(code), after, unk > 0):
            lost.append(Lost(chr(code), int(characters[code]), how))
    return int(characters[codes].sum()), sorted(lost, key=lambda one: (-one.count, one.character))


def _is_visible(character: str) -> bool:
    return character in JOINERS or unicodedata.category(character)[0] not in "CZ"


def _explain(character: str, after: str, is_unk: bool) -> str:
    """What the tokenizer makes of a character that it loses; empty for any other."""
    if not after:
        return "is removed"
    if is_unk:
        return "becomes <unk>"
    forms = (unicodedata.normalize("NFKD", text) for text in (character, after))
    marks = [sum(map(bool, map(unicodedata.combining, form))) for form in forms]
    return f"becomes {after}" if marks[0] > marks[1] else ""


# ---- files ----


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file, or several as one."""

    name: str
    num_tokens: int  # of text, in all rows
    num_unknown: int
    share: float  # of the tokens of all files
    num_files: int = 1
    num_bytes: int = 0  # byte pieces

    @property
    def unknown_rate(self) -> float | None:
        return self.num_unknown / self.num_tokens if self.num_tokens else None

    @property
    def byte_rate(self) -> float:
        return self.num_bytes / self.num_tokens if self.num_tokens else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "file": self.name,
            "num_tokens": self.num_tokens,
            "share": self.share,
            "num_unknown": self.num_unknown,
            "unknown_rate": self.unknown_rate,
        }


@dataclass(frozen=True, kw_only=True)
class InputFiles:
    """files: those of the corpus, in order; num_documents: of the shards; num_documents_found: those in some file."""

    files: list[InputFile]
    num_documents: int
    num_documents_found: int

    @property
    def largest(self) -> InputFile:
        return max(self.files, key=lambda file: file.num_tokens)

    @property
    def worst(self) -> InputFile:
        """The file with the highest unknown rate."""
        return max(self.files, key=lambda file: file.unknown_rate or 0.0)

    def rank(self, count: int) -> list[InputFile]:
        """The `count` largest files, the largest first, then all others as one; a single other file as itself."""
        ranked = sorted(self.files, key=lambda file: (-file.num_tokens, file.name))
        shown, rest = ranked[:count], ranked[count:]
        if len(rest) < 2:
            return ranked
        return [
            *shown,
            InputFile(
                name=f"{len(rest):,} other files",
                num_tokens=sum(file.num_tokens for file in rest),
                num_unknown=sum(file.num_unknown for file in rest),
                share=sum(file.share for file in rest),
                num_files=len(rest),
            ),
        ]

    def to_dict(self) -> dict[str, Any]:
        """For JSON, by stable names."""
        return {
            "num_documents": self.num_documents,
            "num_documents_found": self.num_documents_found,
            "files": [file.to_dict() for file in self.rank(len(self.files))],
        }


def attribute(subject: Subject, corpus: CorpusFiles) -> InputFiles:
    """Count the tokens of each row for the file that has its document.

    Raises InputError if no document of the shards is found.
    """
    owners = corpus.find_files(subject.documents)
    found = owners >= 0
    if not found.any():
        raise InputError("--corpus has none of the shards' documents; give the inputs that they were built from")
    return _list_files(corpus.names, subject, owners[subject.owners], found)


def attribute_sources(subject: Subject) -> InputFiles | None:
    """The same for each source, as if it were a file; None where rows have no sources."""
    names = subject.shards[0].manifest.sources
    if names is None:
        return None
    found = np.ones(len(subject.documents), bool)
    return _list_files([f"source {name}" for name in names], subject, subject.facts.sources, found)


def _list_files(names: Sequence[str], subject: Subject, owners: np.ndarray, found: np.ndarray) -> InputFiles:
    """owners: int [rows], the file of each, or -1; found: bool [documents], whether one of the files has it."""
    has_file, facts = owners >= 0, subject.facts
    tokens, unknown, of_bytes = (
        np.bincount(owners[has_file], values[has_file], len(names)).astype(np.int64).tolist()
        for values in (facts.num_text, facts.num_unknown, facts.num_bytes)
    )
    total = max(sum(tokens), 1)
    files = [
        InputFile(name=name, num_tokens=n, num_unknown=unknown[i], num_bytes=of_bytes[i], share=n / total)
        for i, (name, n) in enumerate(zip(names, tokens, strict=True))
    ]
    return InputFiles(files=files, num_documents=len(found), num_documents_found=int(found.sum()))


def describe_missing(input_files: InputFiles) -> str:
    """How many documents are in no file; empty if all are in one."""
    num_missing = input_files.num_documents - input_files.num_documents_found
    documents = count_of(input_files.num_documents, "document")
    return f"{num_missing:,} of the {documents} are in no file of --corpus." if num_missing else ""


def shorten_names(files: Sequence[InputFile], columns: int) -> list[str]:
    """Short names that distinguish files: escaped, without the folder that all are in, cut in the middle."""
    common = os.path.commonprefix([file.name for file in files if file.num_files == 1])
    folder = common[: common.rfind(os.sep) + 1]
    return [cut_middle(escape_controls(file.name.removeprefix(folder)), columns) for file in files]


def cut_middle(text: str, columns: int) -> str:
    """A text of at most so many columns, its middle left out."""
    if count_columns(text) <= columns:
        return text
    end = _take(text[::-1], 2 * columns // 3 - len(_CUT))[::-1]
    return _take(text, columns - len(_CUT) - count_columns(end)) + _CUT + end


def _take(text: str, columns: int) -> str:
    """The longest prefix of at most `columns` columns."""
    widths = accumulate(map(count_columns, text))
    return text[: sum(width <= columns for width in widths)]
