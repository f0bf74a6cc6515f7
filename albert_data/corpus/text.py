"""Documents into sentences, as one buffer with offsets: what the tokenizer takes.

In: `Lines`. Out: `Text`. With "lines" a line is a sentence; with "prose" each line is segmented by the
rules of its language (sentencex). A sentence is stripped of white space; empty ones are dropped.
The time that sentencex takes grows with the square of a line's length where no spaces part the sentences
(12 KB of Chinese: 0.6 MB/s), so a long line is first parted after ideographic full stops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from albert_data.config import TextConfig
from albert_data.corpus.documents import Lines
from albert_data.kernels import kernel

_STRIPPED = " \t\n\r\x0b\x0c"
_STOPS = "。！？｡"
_FULL_STOP = re.compile(rf"[{_STOPS}]+[”’」』》）)\]\"']*")
# A line of Chinese that no rule of any language parts: seven times as quick to see as to segment.
ONE_SENTENCE = re.compile(r"[\u3400-\u9fff，、；：“”‘’《》 ]*[。！？]?”?\Z")
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
        utf8, sentence_offsets, line_sentences = _segment(lines, config.language)
    return Text(
        utf8=utf8,
        sentence_offsets=sentence_offsets,
        document_offsets=line_sentences[lines.document_offsets],
        document_keys=lines.document_keys,
    )


def _segment(lines: Lines, language: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sentences of every line: utf8, sentence offsets in bytes, line offsets in sentences."""
    sentences: list[str] = []
    line_sentences = [0]
    for line in lines.utf8.tobytes().decode().split("\n")[:-1]:
        if ONE_SENTENCE.match(line):
            sentences.append(line)
        else:
            for part in _part_line(line):
                sentences += filter(None, [sentence.strip(_STRIPPED) for sentence in _segment_part(part, language)])
        line_sentences.append(len(sentences))
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    utf8 = np.frombuffer("".join(sentences).encode(), np.uint8)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    if offsets[-1] != len(utf8):
        offsets = characters_to_bytes(utf8, offsets)
    return utf8, offsets, np.array(line_sentences, np.int64)


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


@kernel
def characters_to_bytes(utf8: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Turn rising offsets in characters into offsets in bytes of UTF-8."""
    out = np.empty_like(offsets)
    character, at = 0, 0
    for i in range(len(offsets)):
        while character < offsets[i]:
            at += 1
            while at < len(utf8) and utf8[at] & 0xC0 == 0x80:
                at += 1
            character += 1
        out[i] = at
    return out
