"""Quotation marks and brackets: which open, which close, and what they hold together.

A mark between white space and a letter opens, whatever it looks like; one between a letter or a stop and white space
closes; elsewhere its shape decides. An open one is remembered on a stack of 16. Where its partner follows within 256
bytes, the sentence ends between the two are dropped: a short quotation stays whole, a speech falls apart into its
sentences.
"""

from __future__ import annotations

from albert_data.kernels import Pointer, helper, item, put
from albert_data.sentences.kinds import (
    ANGLE,
    BLANK,
    CLOSE_SINGLE,
    COMMA,
    DASH,
    DOT,
    DOUBLE_STRAIGHT,
    ELLIPSIS,
    FIRST_PAIR,
    IDEO,
    INVERTED,
    OTHER,
    SINGLE_STRAIGHT,
    STRAIGHT_DOUBLE,
    STRAIGHT_SINGLE,
    Source,
    is_opening,
    is_word_kind,
    kind_at,
    kind_before,
    read_kind,
    skip_blanks,
    step,
)

NO_MARK, OPENS, CLOSES = range(3)
ELSEWHERE, IS_FIRST, IS_EMBEDDED = range(3)  # where a mark opens: first in a sentence; right after a letter
MAX_HELD = 256  # bytes from an opening mark to the closing one
MAX_DEPTH = 16
# Places in the state of a line. LINE, SENTENCE: where the line and the present sentence begin; FIRST_WORD: the first
# letter or digit of the sentence, -1 if there is none up to SCANNED; FILLED: ends so far; FIRST: those of lines before;
# DEPTH: open marks; LIST_NUMBER, LIST_STYLE: of the last item; LAST_STOP: the end of the last stop and what closes
# after it; CASE: 0 before `is_lower_text` is asked, then 1 for no, 2 for yes; STACK: of each open mark its group,
# its place, and where that is (IS_FIRST ...).
LINE, SENTENCE, FIRST_WORD, SCANNED, FILLED, FIRST, DEPTH, LIST_NUMBER, LIST_STYLE, LAST_STOP, CASE, STACK = range(12)
STATE_SIZE = STACK + 3 * MAX_DEPTH


@helper
def find_any_word(source: Source, state: Pointer, end: int) -> bool:
    """Whether the present sentence has a letter or a digit before `end`."""
    at = item(state, SCANNED)
    while item(state, FIRST_WORD) < 0 and at < end:
        if is_word_kind(read_kind(source, at)):
            put(state, FIRST_WORD, at)
        at = step(source, at)
    put(state, SCANNED, at)
    return bool(0 <= item(state, FIRST_WORD) < end)


@helper
def begin_sentence(source: Source, state: Pointer, at: int, end: int) -> None:
    """Begin a sentence with the first character from `at` on that is no white space."""
    begin = skip_blanks(source, at, end)
    put(state, SENTENCE, begin)
    put(state, SCANNED, begin)
    put(state, FIRST_WORD, -1)


@helper
def group_of(kind: int) -> int:
    if kind == STRAIGHT_DOUBLE:
        return DOUBLE_STRAIGHT
    if kind == STRAIGHT_SINGLE:
        return SINGLE_STRAIGHT
    return (kind - FIRST_PAIR) >> 1


@helper
def is_open(state: Pointer, group: int) -> bool:
    depth = item(state, DEPTH) - 1
    while depth >= 0 and item(state, STACK + 3 * depth) != group:
        depth -= 1
    return bool(depth >= 0)


@helper
def find_role(source: Source, state: Pointer, begin: int, at: int, end: int) -> int:
    """Whether the mark that stands there opens or closes, or is none."""
    kind = read_kind(source, at)
    if kind != STRAIGHT_DOUBLE and kind != STRAIGHT_SINGLE and kind < FIRST_PAIR:
        return NO_MARK
    group = group_of(kind)
    if kind >= FIRST_PAIR and group < ANGLE:
        return OPENS if kind & 1 == 0 else CLOSES
    left, right = kind_before(source, begin, at), kind_at(source, step(source, at), end)
    left_is_free = left in (BLANK, DASH, INVERTED) or is_opening(left)
    right_is_free = right == BLANK or COMMA <= right <= DASH or DOT <= right <= STRAIGHT_DOUBLE
    right_is_free |= right >= FIRST_PAIR and right & 1 == 1
    if left_is_free and not right_is_free:
        return NO_MARK if kind == CLOSE_SINGLE else OPENS
    if kind in (STRAIGHT_SINGLE, CLOSE_SINGLE):  # else an apostrophe
        is_end = left in (COMMA, DASH) or DOT <= left <= ELLIPSIS or left >= FIRST_PAIR and left & 1 == 1
        return CLOSES if is_end else NO_MARK
    if right_is_free and not left_is_free:
        return CLOSES
    if kind == STRAIGHT_DOUBLE:
        return CLOSES if is_open(state, group) else OPENS
    return OPENS if kind & 1 == 0 else CLOSES


@helper
def open_mark(source: Source, state: Pointer, group: int, at: int) -> None:
    """Remember a mark that opens, and where: IS_FIRST, IS_EMBEDDED or ELSEWHERE."""
    depth = item(state, DEPTH)
    if depth == MAX_DEPTH:  # the oldest is forgotten
        for i in range(STACK, STACK + 3 * (MAX_DEPTH - 1)):
            put(state, i, item(state, i + 3))
        depth -= 1
    place = STACK + 3 * depth
    put(state, place, group)
    put(state, place + 1, at)
    left = kind_before(source, item(state, LINE), at)
    where = IS_EMBEDDED if OTHER <= left <= IDEO else ELSEWHERE
    put(state, place + 2, where if find_any_word(source, state, at) else IS_FIRST)
    put(state, DEPTH, depth + 1)


@helper
def close_mark(source: Source, state: Pointer, group: int, at: int, end: int, ends: Pointer) -> int:
    """Forget the mark that this one closes, with all that were opened since, and drop the ends between if they are few
    bytes apart. Returns where it opened.
    """
    depth = item(state, DEPTH) - 1
    while depth >= 0 and item(state, STACK + 3 * depth) != group:
        depth -= 1
    if depth < 0:
        return ELSEWHERE
    put(state, DEPTH, depth)
    opened = item(state, STACK + 3 * depth + 1)
    filled = item(state, FILLED)
    if at - opened <= MAX_HELD:
        while filled > item(state, FIRST) and item(ends, filled - 1) > opened:
            filled -= 1
    if filled < item(state, FILLED):
        put(state, FILLED, filled)
        after = item(ends, filled - 1) if filled > item(state, FIRST) else item(state, LINE)
        begin_sentence(source, state, after, end)
        put(state, FIRST_WORD, item(state, SENTENCE))  # there is one, or no end would have been found since
    return int(item(state, STACK + 3 * depth + 2))
