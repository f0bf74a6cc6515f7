"""Documents into sentences, as one buffer with offsets: what the tokenizer takes.

In: `Lines`. Out: `Text`. With "lines" a line is a sentence; with "prose" each line is segmented by the
rules of its language (sentencex). A sentence is stripped of white space; empty ones are dropped.
Most lines are segmented by `corpus.sentences`. The others go to sentencex itself, whose time grows with the
square of a line's length where no spaces part the sentences (12 KB of Chinese: 0.6 MB/s): a long one is first
parted after ideographic full stops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np

from albert_data.config import TextConfig
from albert_data.corpus.documents import Lines
from albert_data.corpus.sentences import Segmenter
from albert_data.kernels import kernel

_STRIPPED = " \t\n\r\x0b\x0c"
_STOPS = "。！？｡"
_FULL_STOP = re.compile(rf"[{_STOPS}]+[”’」』》）)\]\"']*")
_WIDE_SPACE = re.compile(r"[^\S \t\n\r\x0b\x0c]")
_PART_LEN = 200  # characters


@dataclass(frozen=True, kw_only=True)
class Text:
    """Sentences of whole documents.

    utf8: uint8, the sentences one after another; sentence_offsets: int64, num_sentences + 1, in bytes;
    document_offsets: int64, num_documents + 1, in sentences; document_keys: uint64.
    """

    utf8: np.ndarray
    sentence_offsets: np.ndarray
    document_offsets: np.ndarray
    document_keys: np.ndarray


def make_text(lines: Lines, config: TextConfig) -> Text:
    """Part documents into sentences."""
    if config.sentences == "lines":
        utf8 = drop_line_feeds(lines.utf8, lines.line_offsets)
        sentence_offsets = lines.line_offsets - np.arange(len(lines.line_offsets))
        line_sentences = np.arange(len(lines.line_offsets))
    else:
        utf8, sentence_offsets, line_sentences = _make_segmenter(config.language).segment(
            lines.utf8, lines.line_offsets
        )
    return Text(
        utf8=utf8,
        sentence_offsets=sentence_offsets,
        document_offsets=line_sentences[lines.document_offsets],
        document_keys=lines.document_keys,
    )


@lru_cache
def _make_segmenter(language: str) -> Segmenter:
    """One for each language and process, for it learns."""
    return Segmenter(language, partial(_segment_odd, language))


def _segment_odd(language: str, line: str) -> list[str]:
    sentences = (sentence for part in _part_line(line) for sentence in _segment_part(part, language))
    return [stripped for sentence in sentences if (stripped := sentence.strip(_STRIPPED))]


def _segment_part(part: str, language: str) -> Sequence[str]:
    """Segment by sentencex, which ends the process where a wide space precedes a full stop: it gets plain ones."""
    from sentencex import segment

    if part.isascii() or not _WIDE_SPACE.search(part):
        found: list[str] = segment(language, part)
        return found
    ends = np.cumsum([len(sentence) for sentence in segment(language, _WIDE_SPACE.sub(" ", part))]).tolist()
    return [part[begin:end] for begin, end in pairwise([0, *ends])]


def _part_line(line: str) -> Iterator[str]:
    """Part a line after ideographic full stops, into parts of 200 characters or more."""
    begin = 0
    stops = _FULL_STOP.finditer(line) if any(mark in line for mark in _STOPS) else ()
    for stop in stops:
        if stop.end() - begin >= _PART_LEN:
            yield line[begin : stop.end()]
            begin = stop.end()
    yield line[begin:]


@kernel
def drop_line_feeds(utf8: np.ndarray, line_offsets: np.ndarray) -> np.ndarray:
    """Copy the lines without the line feed that ends each."""
    num_lines = len(line_offsets) - 1
    out = np.empty(len(utf8) - num_lines, np.uint8)
    for line in range(num_lines):
        begin, end = line_offsets[line], line_offsets[line + 1] - 1
        out[begin - line : end - line] = utf8[begin:end]
    return out
