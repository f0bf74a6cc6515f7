"""Documents into sentences, as places in one buffer: what the tokenizer takes.

In: `Lines`. Out: `Text`. With "lines" a line is a sentence; with "prose" each line is segmented by the rule of its
language (`segmenting`). A sentence is stripped of white space; none is empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block
from albert_data.corpus.damage import Damage
from albert_data.corpus.documents import Lines, read_documents
from albert_data.corpus.line_ends import break_lines
from albert_data.languages import unpack_language
from albert_data.sentences.segmenting import segment_lines
from albert_data.sentences.words import make_source

_MAX_HEADING = 200  # bytes
_MAX_TITLE = 100  # bytes: all sentences of such a heading belong to the next one, otherwise its last one does
_MAX_HEADINGS = 3  # lines: more without a stop are verse, a list, or a language without stops
_WIDE_COLON = "：".encode()
_MIN_SENTENCE = 2  # bytes, white space after it included


@dataclass(frozen=True, kw_only=True)
class Text:
    """Sentences of whole documents.

    utf8: uint8; sentence_begins, sentence_ends: int64, where each sentence stands in it, in order;
    document_offsets: int64, num_documents + 1, in sentences; document_keys: uint64;
    is_heading: bool, of each sentence, whether it belongs with the next one;
    languages: uint32, packed codes (albert_data.languages) of the documents; None where the build has one language.
    """

    utf8: np.ndarray
    sentence_begins: np.ndarray
    sentence_ends: np.ndarray
    document_offsets: np.ndarray
    document_keys: np.ndarray
    is_heading: np.ndarray
    languages: np.ndarray | None = None


def make_text(lines: Lines, config: TextConfig) -> Text:
    """Part documents into sentences."""
    if config.sentences == "lines":
        begins, ends = lines.line_offsets[:-1], lines.line_offsets[1:] - 1
        counts, is_heading = np.ones(len(begins), np.int64), np.zeros(len(begins), bool)
    else:
        begins, ends, signed_counts = _segment(lines, config.language)
        counts = np.abs(signed_counts)
        is_heading = _mark_headings(lines, signed_counts)
    line_sentences = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return Text(
        utf8=lines.utf8,
        sentence_begins=begins,
        sentence_ends=ends,
        document_offsets=line_sentences[lines.document_offsets],
        document_keys=lines.document_keys,
        is_heading=is_heading,
        languages=lines.languages,
    )


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Part a text into sentences as a build does: its lines stripped, no white space around a sentence.

    language: an ISO 639 code. Raises ConfigError where it is unknown.
    """
    config, data = TextConfig(language=language), break_lines(text.encode("utf-8", "surrogatepass"))
    found = make_text(read_documents(Block(data=data, format="txt", path="", start=0), config, Damage()), config)
    return [part.decode() for part in slice_sentences(found.utf8, found.sentence_begins, found.sentence_ends)]


def slice_sentences(utf8: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> list[bytes]:
    """The bytes of each sentence."""
    data = utf8.tobytes()
    return [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def _segment(lines: Lines, language: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where sentences begin and end, and their number in each line, negative where it doesn't end with a stop."""
    num_lines = len(lines.line_offsets) - 1
    room = len(lines.utf8) // _MIN_SENTENCE + num_lines + 1
    begins, ends, counts = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(num_lines, np.int64)
    filled = 0
    for code, first, last in _find_runs(lines, language):
        source = make_source(code)._replace(utf8=lines.utf8)
        filled = segment_lines(source, lines.line_offsets[first : last + 1], begins, ends, counts[first:last], filled)
    return begins[:filled], ends[:filled], counts


def _find_runs(lines: Lines, language: str) -> list[tuple[str, int, int]]:
    """Runs of documents of one language, each with its first line and the one after its last."""
    languages = lines.languages
    if languages is None or len(languages) == 0:
        return [(language, 0, len(lines.line_offsets) - 1)]
    firsts = np.concatenate([[0], np.flatnonzero(np.diff(languages)) + 1])
    bounds = lines.document_offsets[np.append(firsts, len(languages))].tolist()
    codes = [unpack_language(packed) for packed in languages[firsts].tolist()]
    return list(zip(codes, bounds[:-1], bounds[1:], strict=True))


def _mark_headings(lines: Lines, signed_counts: np.ndarray) -> np.ndarray:
    """Which sentences belong with the next one (bool)."""
    counts, are_headings = np.abs(signed_counts), _find_headings(lines, signed_counts > 0)
    are_titles = are_headings & (np.diff(lines.line_offsets) <= _MAX_TITLE)
    is_heading: np.ndarray = np.repeat(are_titles, counts)
    is_heading[np.cumsum(counts)[are_headings] - 1] = True
    return is_heading


def _find_headings(lines: Lines, has_stop: np.ndarray) -> np.ndarray:
    """Which lines are headings (bool): short or ending in a colon, without a stop at the end, at most three on end,
    then one with a stop; before others, the last of lines that end in a colon.

    has_stop: bool, of each line, whether it ends with a stop or is broken off.
    """
    introduces = _end_in_colons(lines)
    candidates = ~has_stop & (introduces | (np.diff(lines.line_offsets) <= _MAX_HEADING))
    is_first, is_last = np.zeros(len(has_stop), bool), np.zeros(len(has_stop), bool)  # of their documents
    is_first[lines.document_offsets[:-1]] = is_last[lines.document_offsets[1:] - 1] = True
    run_firsts = np.flatnonzero(candidates & (is_first | ~np.roll(candidates, 1)))
    run_lasts = np.flatnonzero(candidates & (is_last | ~np.roll(candidates, -1)))
    is_followed = ~is_last[run_lasts] & np.roll(has_stop, -1)[run_lasts]
    are_headings = is_followed & (run_lasts - run_firsts < _MAX_HEADINGS)
    steps = np.zeros(len(has_stop) + 1, np.int64)
    steps[run_firsts[are_headings]] = 1
    steps[run_lasts[are_headings] + 1] -= 1
    introduces &= ~has_stop & ~is_last & ~np.roll(introduces, -1)
    found: np.ndarray = introduces | (np.cumsum(steps[:-1]) > 0)
    return found


def _end_in_colons(lines: Lines) -> np.ndarray:
    """Which lines end in a colon (bool), narrow or wide."""
    utf8, ends = lines.utf8, lines.line_offsets[1:] - 1
    found: np.ndarray = utf8[ends - 1] == ord(":")
    for i in np.flatnonzero((utf8[ends - 1] == _WIDE_COLON[-1]) & (np.diff(lines.line_offsets) > len(_WIDE_COLON))):
        found[i] = utf8[ends[i] - len(_WIDE_COLON) : ends[i]].tobytes() == _WIDE_COLON
    return found
