"""Documents into sentences, as places in one buffer: what the tokenizer takes.

In: `Lines`. Out: `Text`. With "lines" a line is a sentence; with "prose" each line is segmented by the
rules of its language (sentencex). A sentence is stripped of white space; empty ones are dropped.
Most lines are segmented by `corpus.sentences`. The others go to sentencex itself, whose time grows with the
square of a line's length (12 KB of Chinese: 0.6 MB/s; 1 MB of backticks: 6 minutes). So a long one is cut: after
ideographic full stops, and what is over 4 KB then at white space, after a sentence's end if there is one.
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

_STRIPPED = " \t\n\r\x0b\x0c"
_STOPS = "。！？｡"
_FULL_STOP = re.compile(rf"[{_STOPS}]+[”’」』》）)\]\"']*")
_WIDE_SPACE = re.compile(r"[^\S \t\n\r\x0b\x0c]")
_PART_LEN = 200  # characters
_MAX_PART = 4096  # bytes
_SENTENCE_END = re.compile(rb"(?:[.!?]|\xe3\x80\x82|\xef\xbc[\x81\x9f]|\xe2\x80\xa6)[\"')\]]*[ \t]+")


@dataclass(frozen=True, kw_only=True)
class Text:
    """Sentences of whole documents.

    utf8: uint8; sentence_begins, sentence_ends: int64, where each sentence stands in it, in order;
    is_heading: bool, of each sentence;
    document_offsets: int64, num_documents + 1, in sentences; document_keys: uint64.
    """

    utf8: np.ndarray
    sentence_begins: np.ndarray
    sentence_ends: np.ndarray
    is_heading: np.ndarray
    document_offsets: np.ndarray
    document_keys: np.ndarray


def make_text(lines: Lines, config: TextConfig) -> Text:
    """Part documents into sentences."""
    if config.sentences == "lines":
        utf8, begins, ends = lines.utf8, lines.line_offsets[:-1], lines.line_offsets[1:] - 1
        document_offsets = lines.document_offsets
    else:
        utf8, offsets, line_sentences = _make_segmenter(config.language).segment(lines.utf8, lines.line_offsets)
        begins, ends = offsets[:-1], offsets[1:]
        document_offsets = line_sentences[lines.document_offsets]
    return Text(
        utf8=utf8,
        sentence_begins=begins,
        sentence_ends=ends,
        is_heading=np.zeros(len(begins), bool),
        document_offsets=document_offsets,
        document_keys=lines.document_keys,
    )


def slice_sentences(utf8: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> list[bytes]:
    """The bytes of each sentence."""
    data = utf8.tobytes()
    return [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


@lru_cache
def _make_segmenter(language: str) -> Segmenter:
    """One for each language and process, for it learns."""
    return Segmenter(language, partial(_segment_odd, language))


def _segment_odd(language: str, line: str) -> list[str]:
    parts = (part for long_part in _part_line(line) for part in _cut_part(long_part))
    sentences = (sentence for part in parts for sentence in _segment_part(part, language))
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


def _cut_part(part: str) -> Iterator[str]:
    """Cut a part into some of at most 4,096 bytes."""
    if len(part) <= _MAX_PART // 4:
        yield part
        return
    data, begin = part.encode(), 0
    while len(data) - begin > _MAX_PART:
        end = _find_cut(data, begin)
        yield data[begin:end].decode()
        begin = end
    yield data[begin:].decode()


def _find_cut(data: bytes, begin: int) -> int:
    """After the last sentence that ends in the second half of 4,096 bytes, or the last white space, or a character."""
    end = begin + _MAX_PART
    ends = [found.end() for found in _SENTENCE_END.finditer(data, begin + _MAX_PART // 2, end)]
    cut = ends[-1] if ends else max(data.rfind(b" ", begin, end), data.rfind(b"\t", begin, end)) + 1
    if cut <= begin:
        cut = end
        while data[cut] & 0xC0 == 0x80:
            cut -= 1
    return cut
