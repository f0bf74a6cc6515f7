"""Documents into sentences: the tokenizer's input.

In: `Lines`. Out: `Text`, the same buffer with the positions of sentences. With `--sentences lines` a line is a
sentence; with `prose` the rule of the language segments each line (segmenting.py). Sentences have no white space at
their ends, and none is empty.
"""

from __future__ import annotations

import numpy as np

from albert_data.clean.documents import clean_documents
from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block, Origin
from albert_data.corpus.damage import Damage
from albert_data.corpus.lines.line_ends import break_lines
from albert_data.data import Lines, Text, slice_sentences
from albert_data.sentences import segmenting
from albert_data.text.languages import decode_language

_MAX_HEADING = 200  # bytes
_MAX_SHORT_HEADING = 100  # bytes; all sentences of a heading up to this size are marked, of a longer one only its last
_MAX_HEADINGS = 3  # lines in a row; more without a stop are verse, a list, or text of a language without stops
_MIN_SENTENCE = 2  # the fewest bytes of a sentence that is not the last of its line: a letter and a stop


def find_sentences(lines: Lines, config: TextConfig) -> Text:
    """Split documents into sentences."""
    if config.sentences == "lines":
        begins, ends = lines.line_offsets[:-1], lines.line_offsets[1:] - 1
        counts, is_heading = np.ones(len(begins), np.int64), np.zeros(len(begins), bool)
    else:
        begins, ends, counts, kinds = _segment(lines, config)
        is_heading = _mark_headings(lines, counts, kinds)
    line_sentences = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return Text(
        utf8=lines.utf8,
        sentence_begins=begins,
        sentence_ends=ends,
        document_offsets=line_sentences[lines.document_offsets],
        is_heading=is_heading,
        columns=lines.columns,
    )


def split_sentences(text: str, language: str = "en", abbreviations: str | None = None) -> list[str]:
    """Split a text into sentences as a build does. Sentences have no white space at their ends.

    language: an ISO 639 code. abbreviations: as in TextConfig. Raises ConfigError if one of them is none.
    """
    config = TextConfig(language=language, abbreviations=abbreviations)
    data = break_lines(text.encode("utf-8", "surrogatepass"))
    found = find_sentences(clean_documents(Block(data, Origin("", "txt")), config, Damage()), config)
    return [part.decode() for part in slice_sentences(found.utf8, found.sentence_begins, found.sentence_ends)]


def _segment(lines: Lines, config: TextConfig) -> segmenting.Segmented:
    """Where sentences begin and end, and of what kind each line is."""
    num_lines = len(lines.line_offsets) - 1
    capacity = len(lines.utf8) // _MIN_SENTENCE + num_lines + 1
    begins, ends = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    counts, kinds = np.empty(num_lines, np.int64), np.empty(num_lines, np.uint8)
    filled = 0
    for code, first, last in _group_by_language(lines, config.language):
        rule = segmenting.make_rule(code, config.abbreviations)._replace(utf8=lines.utf8)
        part = segmenting.Segmented(begins, ends, counts[first:last], kinds[first:last])
        filled = segmenting.segment_lines(rule, lines.line_offsets[first : last + 1], part, filled)
    return segmenting.Segmented(begins[:filled], ends[:filled], counts, kinds)


def _group_by_language(lines: Lines, language: str) -> list[tuple[str, int, int]]:
    """Consecutive documents of one language: the language, their first line, and the line after their last."""
    source_codes = lines.columns.source_codes
    if source_codes is None or len(source_codes) == 0:
        return [(language, 0, len(lines.line_offsets) - 1)]
    firsts = np.concatenate([[0], np.flatnonzero(np.diff(source_codes)) + 1])
    bounds = lines.document_offsets[np.append(firsts, len(source_codes))].tolist()
    codes = [decode_language(code) for code in source_codes[firsts].tolist()]
    return list(zip(codes, bounds[:-1], bounds[1:], strict=True))


def _mark_headings(lines: Lines, counts: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Which sentences belong with the next one: bool."""
    are_headings = _find_headings(lines, kinds)
    are_short = are_headings & (np.diff(lines.line_offsets) <= _MAX_SHORT_HEADING)
    is_heading: np.ndarray = np.repeat(are_short, counts)
    is_heading[np.cumsum(counts)[are_headings] - 1] = True
    return is_heading


def _find_headings(lines: Lines, kinds: np.ndarray) -> np.ndarray:
    """Which lines belong with the next one: bool.

    A title: it is short and ends without a stop; at most three stand in a row, before a line with a stop. At most three
    that end without a comma, too, may also stand before a line that is long or ends in a comma. A number, a line that
    ends in a colon, and one that leads in the quotation on the next line: these before any line except another one.

    kinds: uint8, see `segmenting.Segmented`.
    """
    has_stop, has_colon = kinds & segmenting.HAS_STOP > 0, kinds & segmenting.HAS_COLON > 0
    is_numbered = kinds & segmenting.IS_NUMBERED > 0
    is_first, is_last = np.zeros(len(kinds), bool), np.zeros(len(kinds), bool)  # of their documents
    is_first[lines.document_offsets[:-1]] = is_last[lines.document_offsets[1:] - 1] = True
    leads_in = (kinds & segmenting.LEADS_IN > 0) & (np.roll(kinds, -1) & segmenting.IS_QUOTED > 0)
    introduces = has_colon | is_numbered | leads_in
    introduces &= ~is_last & ~np.roll(introduces, -1)
    is_short = np.diff(lines.line_offsets) <= _MAX_HEADING
    is_title = is_numbered | (~has_stop & (is_short | has_colon))
    is_text = ~is_title | (kinds & segmenting.HAS_COMMA > 0)
    found: np.ndarray = _find_runs(is_title, ~is_title & has_stop, is_first, is_last)
    found |= _find_runs(~is_text, is_text, is_first, is_last) | introduces
    return found


def _find_runs(is_title: np.ndarray, is_text: np.ndarray, is_first: np.ndarray, is_last: np.ndarray) -> np.ndarray:
    """Which lines are among at most _MAX_HEADINGS titles in a row before a text of the same document: bool."""
    run_firsts = np.flatnonzero(is_title & (is_first | ~np.roll(is_title, 1)))
    run_lasts = np.flatnonzero(is_title & (is_last | ~np.roll(is_title, -1)))
    is_followed = ~is_last[run_lasts] & np.roll(is_text, -1)[run_lasts]
    are_headings = is_followed & (run_lasts - run_firsts < _MAX_HEADINGS)
    # +1 at the first line of each run of headings, -1 after its last: the cumulative sum is 1 inside of them.
    steps = np.zeros(len(is_title) + 1, np.int64)
    steps[run_firsts[are_headings]] = 1
    steps[run_lasts[are_headings] + 1] -= 1
    found: np.ndarray = np.cumsum(steps[:-1]) > 0
    return found
