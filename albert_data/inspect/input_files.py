"""How many tokens each input file of a build has, and how many of these are unknown, or parts of characters.

In: the rows, and the files that a build read, as a row does not say which file it comes from. Out: figures of each
file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from albert_data.errors import InputError
from albert_data.inspect.audit.corpus import Corpus
from albert_data.inspect.audit.rows import Subject
from albert_data.inspect.terminal import count_columns, escape_controls
from albert_data.wording import count_of, format_share

_CUT = "..."
_SHORT = 40  # columns


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file, or several as one. num_tokens: of text, in all rows; share: of the tokens of all files.

    num_bytes: byte pieces.
    """

    name: str
    num_tokens: int
    num_unknown: int
    share: float
    num_files: int = 1
    num_bytes: int = 0

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


def attribute(subject: Subject, corpus: Corpus) -> InputFiles:
    """Count the tokens of each row for the file that has its document.

    Raises InputError if no document of the shards is found.
    """
    owners = corpus.find_files(subject.documents)
    found = owners >= 0
    if not found.any():
        raise InputError("--corpus has none of the shards' documents; give the inputs that they were built from")
    totals = [
        np.bincount(owners[found], subject.add_by_document(values)[found], len(corpus.names))
        for values in (subject.facts.num_text, subject.facts.num_unknown, subject.facts.num_bytes)
    ]
    return _list_files(corpus.names, totals, found)


def attribute_sources(subject: Subject) -> InputFiles | None:
    """The same for each source, as if it were a file; None where rows have no sources."""
    names = subject.shards[0].manifest.sources
    if names is None:
        return None
    totals = [
        np.bincount(subject.facts.sources, values, len(names))
        for values in (subject.facts.num_text, subject.facts.num_unknown, subject.facts.num_bytes)
    ]
    return _list_files([f"source {name}" for name in names], totals, np.ones(len(subject.documents), bool))


def _list_files(names: Sequence[str], totals: Sequence[np.ndarray], found: np.ndarray) -> InputFiles:
    """totals: tokens, unknown ones, byte pieces of each name; found: bool, whether each document is of one of these."""
    all_tokens = max(float(totals[0].sum()), 1.0)
    files = [
        InputFile(name=name, num_tokens=int(tokens), num_unknown=int(unknown), num_bytes=int(of_bytes), share=share)
        for name, tokens, unknown, of_bytes, share in zip(
            names, *totals, (totals[0] / all_tokens).tolist(), strict=True
        )
    ]
    return InputFiles(files=files, num_documents=len(found), num_documents_found=int(found.sum()))


def describe_input_files(input_files: InputFiles) -> str:
    """The most important facts, in one sentence."""
    worst, num_missing = input_files.worst, input_files.num_documents - input_files.num_documents_found
    if worst.unknown_rate:
        name = shorten_names(input_files.files, _SHORT)[input_files.files.index(worst)]
        text = f"The highest unknown rate of a file is {format_share(worst.unknown_rate)}, of {name}"
    else:
        text = "No file has an unknown token"
    if num_missing:
        text += f"; {num_missing:,} of the {count_of(input_files.num_documents, 'document')} are in no file of --corpus"
    return f"{text}."


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
