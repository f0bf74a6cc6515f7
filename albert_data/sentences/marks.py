"""Quotation marks and brackets: which open, which close, and what they hold together.

The shape of brackets, title marks and corner brackets decides. A quotation mark between white space and a letter opens,
whatever its shape; one between a letter or a stop and white space closes; elsewhere its shape decides, too, and a
straight " closes if one is open. ' and ’ may be apostrophes: ’ never opens, and both close only after a stop, a comma,
a dash or a closing mark. A stack holds the last 16 open marks. Where the closing mark follows within 256 bytes, the
sentence ends between the two are dropped: a short quotation stays whole, a long speech is split into its sentences.
"""

from __future__ import annotations

from albert_data.kernels import Pointer, helper, item, put
from albert_data.sentences.characters import (
    ANGLE,
    BLANK,
    CLOSE_SINGLE,
    COMMA,
    DASH,
    DOT,
    ELLIPSIS,
    FIRST_PAIR,
    IDEO,
    LEADING,
    OTHER,
    STRAIGHT_DOUBLE,
    STRAIGHT_DOUBLE_GROUP,
    STRAIGHT_SINGLE,
    STRAIGHT_SINGLE_GROUP,
    Line,
    class_at,
    class_before,
    is_closing,
    is_letter_or_digit,
    is_opening,
    is_stop,
    read_class,
    skip_blanks,
    step,
)

NO_MARK, OPENS, CLOSES = range(3)
# The context of a mark that opens. FIRST_IN_SENTENCE: before the first word of a sentence. AFTER_LETTER: later, right
# after a letter of a script without case (他说“好。”). ELSEWHERE: later, after anything else (他说：“好。”).
ELSEWHERE, FIRST_IN_SENTENCE, AFTER_LETTER = range(3)
MAX_HELD = 256  # bytes from an opening mark to the closing one
MAX_DEPTH = 16
# Indices in the state of a line (int64).
SENTENCE = 0  # position where the present sentence begins
FIRST_WORD = 1  # position of its first letter or digit (after close_mark, its begin); -1 if none is before SCANNED
SCANNED = 2  # up to here the sentence was searched for FIRST_WORD
NUM_ENDS = 3  # sentence ends found so far, in all lines
DEPTH = 4  # number of open marks
LIST_NUMBER, LIST_STYLE = 5, 6  # of the last list item; style 0 if the line is no list
LAST_STOP = 7  # where the last stop ends, with what closes after it
CASE = 8  # whether the line is text without capitals: UNKNOWN until `is_lower_text` is called
STACK = 9  # of each open mark its group, its position and its context
STATE_SIZE = STACK + 3 * MAX_DEPTH
UNKNOWN, NO, YES = range(3)


@helper
def has_word(line: Line, end: int) -> bool:
    """Whether the present sentence has a letter or digit before `end`.

    The search resumes where the last call stopped, so that all calls for a sentence take linear time together.
    """
    state, at = line.state, item(line.state, SCANNED)
    while item(state, FIRST_WORD) < 0 and at < end:
        if is_letter_or_digit(read_class(line.source, at)):
            put(state, FIRST_WORD, at)
        at = step(line.source, at)
    put(state, SCANNED, at)
    return bool(0 <= item(state, FIRST_WORD) < end)


@helper
def begin_sentence(line: Line, at: int) -> None:
    """Begin a sentence at the first character from `at` on that is no white space."""
    begin = skip_blanks(line, at)
    put(line.state, SENTENCE, begin)
    put(line.state, SCANNED, begin)
    put(line.state, FIRST_WORD, -1)


@helper
def group_of(char_class: int) -> int:
    if char_class == STRAIGHT_DOUBLE:
        return STRAIGHT_DOUBLE_GROUP
    if char_class == STRAIGHT_SINGLE:
        return STRAIGHT_SINGLE_GROUP
    return (char_class - FIRST_PAIR) >> 1


@helper
def find_open(state: Pointer, group: int) -> int:
    """The index on the stack of the last open mark of a group; -1 if none is open."""
    depth = item(state, DEPTH) - 1
    while depth >= 0 and item(state, STACK + 3 * depth) != group:
        depth -= 1
    return int(depth)


@helper
def find_role(line: Line, at: int) -> int:
    """Whether the character at a position opens, closes, or is no mark."""
    mark = read_class(line.source, at)
    if mark != STRAIGHT_DOUBLE and mark != STRAIGHT_SINGLE and mark < FIRST_PAIR:
        return NO_MARK
    group = group_of(mark)
    if mark >= FIRST_PAIR and group < ANGLE:  # brackets and corners: the shape alone decides
        return OPENS if is_opening(mark) else CLOSES
    left, right = class_before(line, at), class_at(line, step(line.source, at))
    # A side is free if no word touches the mark there.
    left_is_free = left in (BLANK, DASH, LEADING) or is_opening(left)
    right_is_free = right in (BLANK, COMMA, DASH, STRAIGHT_SINGLE, STRAIGHT_DOUBLE) or is_stop(right)
    right_is_free |= is_closing(right)
    if left_is_free and not right_is_free:
        return NO_MARK if mark == CLOSE_SINGLE else OPENS  # ’Tis: an apostrophe
    if mark in (STRAIGHT_SINGLE, CLOSE_SINGLE):  # it closes after a stop or a comma; elsewhere it is an apostrophe
        is_after_end = left in (COMMA, DASH) or DOT <= left <= ELLIPSIS or is_closing(left)
        return CLOSES if is_after_end else NO_MARK
    if right_is_free and not left_is_free:
        return CLOSES
    if mark == STRAIGHT_DOUBLE:
        return CLOSES if find_open(line.state, group) >= 0 else OPENS
    return OPENS if is_opening(mark) else CLOSES


@helper
def open_mark(line: Line, group: int, at: int) -> None:
    """Push a mark that opens on the stack."""
    state = line.state
    depth = item(state, DEPTH)
    if depth == MAX_DEPTH:  # forget the oldest
        for i in range(STACK, STACK + 3 * (MAX_DEPTH - 1)):
            put(state, i, item(state, i + 3))
        depth -= 1
    context = AFTER_LETTER if OTHER <= class_before(line, at) <= IDEO else ELSEWHERE
    top = STACK + 3 * depth
    put(state, top, group)
    put(state, top + 1, at)
    put(state, top + 2, context if has_word(line, at) else FIRST_IN_SENTENCE)
    put(state, DEPTH, depth + 1)


@helper
def close_mark(line: Line, group: int, at: int) -> int:
    """Pop the last open mark of a group with all that were opened after it, and return its context.

    If it opened at most MAX_HELD bytes ago, the sentence ends found since are dropped.
    """
    state, depth = line.state, find_open(line.state, group)
    if depth < 0:
        return ELSEWHERE
    put(state, DEPTH, depth)
    opened, num_ends = item(state, STACK + 3 * depth + 1), item(state, NUM_ENDS)
    if at - opened <= MAX_HELD:
        while num_ends > line.first_end and item(line.ends, num_ends - 1) > opened:
            num_ends -= 1
    if num_ends < item(state, NUM_ENDS):
        put(state, NUM_ENDS, num_ends)
        begin_sentence(line, item(line.ends, num_ends - 1) if num_ends > line.first_end else line.begin)
        put(state, FIRST_WORD, item(state, SENTENCE))  # it has a word, because sentences without one are not ended
    return int(item(state, STACK + 3 * depth + 2))
