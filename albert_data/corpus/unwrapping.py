"""Join the lines of hard-wrapped paragraphs: `--unwrap`.

In: documents of valid UTF-8, their lines as they were written. Out: the same documents with a line for each paragraph.
Nothing marks the line ends that a wrapping program made, so they are inferred, from the text of the document alone.

1. A document's width W is the smallest number of columns that 95 % of its lines do not exceed; lines over 160 columns
   do not count, and are joined with no other. In a document of under 16 lines W is at least 60. Nothing is joined if W
   is under 32, or if half of the text is in lines over 160 columns. Rule 5 has an exception to all of this.
2. A wrapping program breaks a line where the next word does not fit. So the columns of a line and of the first word of
   the next one are added: a sum over W - 2 is a wrap. Other programs and people are less exact. So a sum over 0.8 W is
   enough if the line does not end in a stop, over 0.55 W if the next line begins in lower case, and any sum if the line
   ends in a hyphen and the next one begins with a lower-case letter. (A wrap that is
   missed after a stop costs nothing, as the sentence ends there anyway; elsewhere it cuts a sentence.) If less than a
   fifth of the sums in a document of 16 lines or more are over 0.8 W, nothing in it is joined (except by rule 5).
3. A paragraph ends
   - at a blank line, and at a line without a letter or digit, or with a tab or four spaces inside it (tables);
   - before a line with more indentation than the line before. In a document whose first lines are indented (a fifth or
     more of its indented lines are followed by one that is not), before any line with indentation. In both cases a line
     still continues the paragraph if it belongs to an item of a list, or if it begins in lower case after a line
     without a stop;
   - before the mark of a list or of a dialogue, if the line before ends in a stop or is in a list.
4. Verse is not joined: four lines or more between blank ones, of which none after the first begins in lower case, some
   after the first begin in upper case, and some are not full (W - 2 in rule 2).
5. Lines are joined by a space. Nothing is put between letters of scripts without spaces, next to their marks, next to a
   dash without a space between it and the text of its line, and after a hyphen (hyphens.py). A soft hyphen at the end,
   before a letter or digit, is dropped and its line joined, whatever rules 1, 2 and 4, the indentation and the mark of
   a list say: it marks a broken word.
"""

from __future__ import annotations

import numpy as np

from albert_data.ascii import LINE_FEED, SPACE
from albert_data.character_bits import character_properties
from albert_data.corpus.hyphens import resolve_hyphens
from albert_data.corpus.long_documents import MAX_DOCUMENT, MAX_LINE
from albert_data.corpus.wrapped_lines import (
    BLANK,
    DASH_END,
    DASH_START,
    END,
    ENDS,
    FLAGS,
    HYPHEN,
    INDENT,
    ITEM,
    LOWER,
    LOWER_FIRST,
    NOT_PROSE,
    SOFT,
    STOP,
    TEXT,
    UNDECIDED,
    UNSPACED_END,
    UNSPACED_MARK_END,
    UNSPACED_MARK_START,
    UNSPACED_START,
    UPPER,
    WIDTH,
    WITH_NOTHING,
    WITH_SPACE,
    WITHOUT_HYPHEN,
    WORD,
    WORD_FIRST,
    measure_lines,
)
from albert_data.kernels import copy_items, helper, kernel, pointer, put
from albert_data.utf8 import step_back

_LONGEST = 160  # columns of a line that a program has wrapped
_LEAST_WIDTH, _USUAL_WIDTH = 32, 60
_FEW_LINES = 16
_VERSE_LINES = 4


def unwrap(data: bytes, ends: np.ndarray | None) -> tuple[bytes, np.ndarray | None] | None:
    """Join the lines of wrapped paragraphs; None if a document or line is so long that it must be cut first.

    ends: int64, where documents end, each after a line feed; None if blank lines end them.
    """
    no_ends = np.zeros(0, np.int64)
    # The limit is of the bytes as they were written. It is checked first, because the facts would take much memory.
    if ends is not None and np.diff(ends, prepend=0).max(initial=0) > MAX_DOCUMENT:
        return None
    raw, properties = np.frombuffer(data, np.uint8), character_properties()
    facts, document_lines, longest_line, longest_document = measure_lines(
        raw, no_ends if ends is None else ends, ends is None, properties
    )
    if longest_line > MAX_LINE or longest_document > MAX_DOCUMENT:
        return None
    joins = choose_joins(facts, document_lines)
    resolve_hyphens(raw, facts, document_lines, joins, properties)
    joined, new_ends = write_paragraphs(raw, facts, document_lines, joins, ends is None)
    return joined.tobytes(), None if ends is None else new_ends


@helper
def needs_no_space(flags: int, following: int) -> bool:
    """Whether no space joins two lines because of their script or a dash. flags, following: of the two lines."""
    if flags & UNSPACED_MARK_END or following & UNSPACED_MARK_START:
        return True
    if flags & UNSPACED_END and following & UNSPACED_START:
        return True
    return following & DASH_START != 0 or flags & DASH_END != 0 and following & WORD_FIRST != 0


@helper
def reach(fact: np.ndarray, following: np.ndarray) -> int:
    """The columns of a line and the first word of the next one, if they stood in one line."""
    space = 0 if needs_no_space(fact[FLAGS], following[FLAGS]) else 1
    return int(fact[WIDTH] + space + following[WORD])


@helper
def find_width(facts: np.ndarray, begin: int, end: int, counts: np.ndarray) -> int:
    """The width that a document is wrapped at; 0 if it does not look wrapped. counts: scratch, lines of each width."""
    counts[:] = 0
    num_lines, narrow, wide = 0, 0, 0
    for i in range(begin, end):
        if facts[i, FLAGS] & BLANK:
            continue
        width = facts[i, WIDTH]
        if width > _LONGEST:
            wide += width
        else:
            counts[width] += 1
            num_lines += 1
            narrow += width
    if num_lines == 0 or wide > narrow:
        return 0
    width, below = 0, counts[0]
    while 20 * below < 19 * num_lines:  # below 95 %
        width += 1
        below += counts[width]
    if num_lines < _FEW_LINES:
        return max(width, _USUAL_WIDTH)
    if width < _LEAST_WIDTH:
        return 0
    num_full, num_pairs = 0, 0
    for i in range(begin, end - 1):
        if (facts[i, FLAGS] | facts[i + 1, FLAGS]) & BLANK == 0:
            num_full += 5 * reach(facts[i], facts[i + 1]) > 4 * width
            num_pairs += 1
    return width if 5 * num_full >= num_pairs else 0


@helper
def is_verse(facts: np.ndarray, begin: int, end: int, width: int) -> bool:
    """Whether the lines between two blank ones are verse."""
    if end - begin < _VERSE_LINES:
        return False
    has_upper, has_short = False, False
    for i in range(begin, end - 1):
        following = facts[i + 1, FLAGS]
        if following & LOWER:
            return False
        has_upper = has_upper or following & UPPER != 0
        has_short = has_short or reach(facts[i], facts[i + 1]) <= width - 2
    return has_upper and has_short


@helper
def indents_paragraphs(facts: np.ndarray, begin: int, end: int) -> bool:
    """Whether the first lines of a document's paragraphs are indented, and the others are not."""
    first, others = 0, 0
    for i in range(begin, end - 1):
        if facts[i, INDENT] > 0 and (facts[i, FLAGS] | facts[i + 1, FLAGS]) & BLANK == 0:
            if facts[i + 1, INDENT] == 0:
                first += 1
            else:
                others += 1
    return first > 0 and 4 * first >= others


@helper
def continues(fact: np.ndarray, following: np.ndarray, width: int, by_indent: bool, in_list: bool) -> bool:
    """Whether the next line continues the paragraph of a line."""
    flags, after = fact[FLAGS], following[FLAGS]
    has_stop, is_lower = flags & STOP != 0, after & LOWER != 0
    if fact[WIDTH] > _LONGEST or following[WIDTH] > _LONGEST:
        return False
    least = 0 if by_indent else fact[INDENT]
    if following[INDENT] > least and not in_list and (has_stop or not is_lower):
        return False
    if after & ITEM and (has_stop or in_list):
        return False
    if flags & HYPHEN and after & LOWER_FIRST:
        return True
    columns = reach(fact, following)
    if is_lower:
        return 20 * columns > 11 * width
    return columns > width - 2 if has_stop else 5 * columns > 4 * width


@helper
def choose_join(flags: int, after: int) -> int:
    """How two lines of one paragraph are joined."""
    if flags & HYPHEN and after & LOWER_FIRST:
        return UNDECIDED
    if flags & HYPHEN:
        return WITH_NOTHING if after & WORD_FIRST else WITH_SPACE
    return WITH_NOTHING if needs_no_space(flags, after) else WITH_SPACE


@kernel
def choose_joins(facts: np.ndarray, document_lines: np.ndarray) -> np.ndarray:
    """How each line continues in the next one: uint8, ENDS, WITH_SPACE and so on."""
    joins = np.zeros(len(facts), np.uint8)
    counts = np.zeros(_LONGEST + 1, np.int64)
    for document in range(len(document_lines) - 1):
        i, end = document_lines[document], document_lines[document + 1]
        width, by_indent = find_width(facts, i, end, counts), indents_paragraphs(facts, i, end)
        while i < end:
            block_end = i
            while block_end < end and facts[block_end, FLAGS] & BLANK == 0:
                block_end += 1
            verse = width > 0 and is_verse(facts, i, block_end, width)
            in_list = block_end > i and facts[i, FLAGS] & ITEM != 0
            while i + 1 < block_end:
                flags, after = facts[i, FLAGS], facts[i + 1, FLAGS]
                if (flags | after) & NOT_PROSE == 0:
                    if flags & SOFT and after & WORD_FIRST:
                        joins[i] = WITHOUT_HYPHEN
                    elif width > 0 and not verse and continues(facts[i], facts[i + 1], width, by_indent, in_list):
                        joins[i] = choose_join(flags, after)
                if joins[i] == ENDS:
                    in_list = after & ITEM != 0
                i += 1
            i = block_end + 1
    return joins


@kernel
def write_paragraphs(
    raw: np.ndarray, facts: np.ndarray, document_lines: np.ndarray, joins: np.ndarray, ends_at_blank: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The text with its lines joined, and where each document ends in it."""
    out = np.empty(len(raw) + len(facts) + len(document_lines), np.uint8)
    ends = np.empty(len(document_lines) - 1, np.int64)
    source, target = pointer(raw), pointer(out)
    filled = 0
    for document in range(len(ends)):
        first, join = filled, ENDS
        for i in range(document_lines[document], document_lines[document + 1]):
            begin, end = facts[i, TEXT], facts[i, END]
            join = joins[i]
            if begin == end:
                continue
            if join == WITHOUT_HYPHEN:
                end = step_back(source, end)
            copy_items(target, filled, source, begin, end - begin)
            filled += end - begin
            if join in (ENDS, WITH_SPACE):
                put(target, filled, LINE_FEED if join == ENDS else SPACE)
                filled += 1
        # A blank line ends the document. Elsewhere only an empty one gets a line feed, so that it ends after one, too.
        if ends_at_blank or filled == first:
            put(target, filled, LINE_FEED)
            filled += 1
        ends[document] = filled
    return out[:filled], ends
