"""The compiled loop over lines: where each sentence begins and ends.

In: lines and a language's rule (`Source`). Out: the places of the sentences, and how many each line has. Time is linear
in the text, whatever it holds: each place is looked at once by the loop, and from a stop at most some words back and
ahead.
"""

from __future__ import annotations

import numpy as np

from albert_data.kernels import Pointer, helper, item, kernel, pointer, put
from albert_data.sentences.kinds import (
    ANGLE,
    BLANK,
    BULLET,
    COMMA,
    DASH,
    DIGIT,
    DOT,
    DOUBLE,
    DOUBLE_CURLY,
    ELLIPSIS,
    EXCLAIM,
    FIRST_PAIR,
    FIRST_QUOTE,
    FULL,
    IDEO,
    JOIN,
    LOWER,
    MARK,
    OTHER,
    ROUND,
    SQUARE,
    STRAIGHT_SINGLE,
    UPPER,
    WIDE_DOT,
    Source,
    is_space,
    is_word_kind,
    kind_at,
    kind_before,
    point_to_source,
    read_kind,
    skip_plain,
    step,
    step_back,
)
from albert_data.sentences.marks import (
    CASE,
    CLOSES,
    DEPTH,
    ELSEWHERE,
    FILLED,
    FIRST,
    LAST_STOP,
    LINE,
    LIST_NUMBER,
    LIST_STYLE,
    OPENS,
    STATE_SIZE,
    begin_sentence,
    close_mark,
    find_any_word,
    find_role,
    group_of,
    open_mark,
)
from albert_data.sentences.stops import IS_EXCLAIM, IS_FULL, is_end


@helper
def read_stop(source: Source, at: int, end: int) -> tuple[int, int, int]:
    """The end of the stop that stands there, its strength, and how many dots it counts for; `at` if it is none."""
    kind, after = kind_at(source, at, end), step(source, at)
    if kind == DOT:
        return after, 0, 1
    if kind == ELLIPSIS:
        return after, 0, 3
    if kind == EXCLAIM:
        return after, IS_EXCLAIM, 0
    if kind == FULL:
        return after, IS_FULL, 0
    then = kind_at(source, after, end)
    if kind == WIDE_DOT and then not in (LOWER, UPPER, DIGIT):
        return after, IS_FULL, 0
    if kind == DOUBLE and then == DOUBLE:
        return step(source, after), IS_FULL, 0
    return at, 0, 0


@helper
def read_run(source: Source, stop: int, end: int) -> tuple[int, int, int]:
    """The same for a run of stops, among them lone ones after white space, as in ". . ." and "! !"."""
    at, strength, dots = read_stop(source, stop, end)
    while at > stop and at < end:
        begin = step(source, at) if read_kind(source, at) == BLANK else at
        after, more, more_dots = read_stop(source, begin, end)
        if after == begin:
            break
        if begin > at:
            then = kind_at(source, after, end)
            if is_word_kind(then) or DOT <= then <= DOUBLE:
                break
        at, strength, dots = after, strength | more, dots + more_dots
    return at, strength, dots


@helper
def skip_notes(source: Source, at: int, end: int) -> int:
    """Skip the numbers of footnotes right after a stop: [1], ²."""
    while at < end:
        kind, after = read_kind(source, at), step(source, at)
        if kind == FIRST_PAIR + 2 * SQUARE:
            while after < end and after - at < 5 and read_kind(source, after) == DIGIT:
                after = step(source, after)
            if after == step(source, at) or kind_at(source, after, end) != FIRST_PAIR + 2 * SQUARE + 1:
                break
            after = step(source, after)
        elif kind != MARK:
            break
        at = after
    return at


@helper
def pass_closing(source: Source, state: Pointer, at: int, end: int, ends: Pointer) -> tuple[int, int, int]:
    """Close the marks right after a stop; also the group of the last one, -1 for none, and where it opened."""
    group, place = -1, ELSEWHERE
    while at < end:
        mark = at
        if read_kind(source, at) == BLANK and step(source, at) < end:  # as in « Oui ! »
            mark = step(source, at)
            kind = read_kind(source, mark)
            if kind < FIRST_PAIR or (group_of(kind) != ANGLE and group_of(kind) != DOUBLE_CURLY):
                break
        if find_role(source, state, item(state, LINE), mark, end) != CLOSES:
            break
        group = group_of(read_kind(source, mark))
        place = close_mark(source, state, group, mark, end, ends)
        at = step(source, mark)
    return at, group, place


@helper
def can_end(source: Source, state: Pointer, stop: int, strength: int, group: int, at: int, end: int) -> bool:
    """Whether what follows a stop and its closing marks lets a sentence end there: white space, mostly."""
    kind = kind_at(source, at, end)
    if kind == BLANK:
        return True
    if kind == DASH:  # “So.”—“No.”
        after = step(source, at)
        return after < end and find_role(source, state, item(state, LINE), after, end) == OPENS
    if COMMA <= kind <= DASH or kind == JOIN or DOT <= kind <= DOUBLE:
        return False
    if strength & IS_FULL != 0:
        return True
    opens = find_role(source, state, item(state, LINE), at, end) == OPENS
    if opens and group >= FIRST_QUOTE:
        return True
    before = kind_before(source, item(state, LINE), stop)
    if kind == OTHER and strength != 0:  # Burmese, Khmer
        return before in (OTHER, MARK) or group >= FIRST_QUOTE
    return (kind == IDEO or opens) and (group >= FIRST_QUOTE or before == IDEO)


@helper
def add_end(source: Source, state: Pointer, at: int, end: int, ends: Pointer) -> None:
    put(ends, item(state, FILLED), at)
    put(state, FILLED, item(state, FILLED) + 1)
    begin_sentence(source, state, at, end)


@helper
def pass_stop(source: Source, state: Pointer, stop: int, end: int, ends: Pointer) -> int:
    """End the sentence after a stop if it does end; return where to go on."""
    after, strength, dots = read_run(source, stop, end)
    if after == stop:
        return step(source, stop)
    at, group, place = pass_closing(source, state, skip_notes(source, after, end), end, ends)
    put(state, LAST_STOP, at)
    can = at < end and can_end(source, state, stop, strength, group, at, end)
    if can and is_end(source, state, stop, strength, dots, group, place, at, end):
        add_end(source, state, at, end, ends)
    return at


@helper
def read_marker(source: Source, begin: int, stop: int, end: int) -> tuple[int, int, int]:
    """Where the marker of an item begins whose delimiter, a full stop or a round bracket, stands at `stop`; its number,
    and its style. The style is 0 where there is no marker: a number of up to three digits, or a lower-case letter,
    between white space.
    """
    delimiter, after = item(source.utf8, stop), step(source, stop)
    if delimiter == 46 and after < end and item(source.utf8, after) == 41:  # 1.)
        delimiter, after = 42, after + 1
    at, number = stop, 0
    while at > begin and stop - at < 3 and 48 <= item(source.utf8, at - 1) <= 57:
        at -= 1
    for i in range(at, stop):
        number = 10 * number + item(source.utf8, i) - 48
    style = 2 * delimiter
    if at == stop and at > begin and 97 <= item(source.utf8, at - 1) <= 122:
        at, style = at - 1, style + 1
        number = item(source.utf8, at) - 96
    if at == stop or kind_at(source, after, end) != BLANK:
        return stop, 0, 0
    before = kind_before(source, begin, at)
    return at, number, style if before in (BLANK, BULLET) else 0


@helper
def skip_back(source: Source, begin: int, at: int) -> int:
    """Skip white space backwards."""
    while kind_before(source, begin, at) == BLANK and at > begin:
        at = step_back(source, at)
    return at


@helper
def pass_marker(source: Source, state: Pointer, stop: int, end: int, ends: Pointer) -> None:
    """End the sentence before the marker of the next item, where the line began with the marker of the one before."""
    begin = item(state, LINE)
    at, number, style = read_marker(source, begin, stop, end)
    if style == 0:
        return
    at = skip_back(source, begin, at)
    if at > begin and kind_before(source, begin, at) == BULLET:
        at = skip_back(source, begin, step_back(source, at))
    if at == begin:
        put(state, LIST_NUMBER, number)
        put(state, LIST_STYLE, style)
    elif style == item(state, LIST_STYLE) and number == item(state, LIST_NUMBER) + 1:
        put(state, LIST_NUMBER, number)
        if find_any_word(source, state, at):
            add_end(source, state, at, end, ends)


@helper
def pass_bullet(source: Source, state: Pointer, at: int, end: int, ends: Pointer) -> int:
    """End the sentence before a bullet, where the line began with one and white space precedes it."""
    begin = item(state, LINE)
    is_list = read_kind(source, begin) == BULLET and kind_before(source, begin, at) == BLANK
    if is_list and find_any_word(source, state, at):
        add_end(source, state, skip_back(source, begin, at), end, ends)
    return step(source, at)


@helper
def pass_mark(source: Source, state: Pointer, at: int, end: int, ends: Pointer) -> int:
    """Open or close what a mark opens or closes."""
    kind = read_kind(source, at)
    role = find_role(source, state, item(state, LINE), at, end)
    if role == OPENS:
        open_mark(source, state, group_of(kind), at)
    elif role == CLOSES:
        close_mark(source, state, group_of(kind), at, end, ends)
    return step(source, at)


@helper
def trim_line(source: Source, begin: int, end: int) -> tuple[int, int]:
    """A line without the white space at both ends; all of one that has nothing else."""
    first, last = begin, end
    while first < last and is_space(source, first):
        first = step(source, first)
    while first < last and is_space(source, step_back(source, last)):
        last = step_back(source, last)
    return (first, last) if first < last else (begin, end)


@helper
def segment_line(source: Source, state: Pointer, begin: int, end: int, size: int, ends: Pointer) -> None:
    """Write the ends of a line's sentences. `end`: where its text ends."""
    put(state, LINE, begin)
    put(state, FIRST, item(state, FILLED))
    put(state, DEPTH, 0)
    put(state, LIST_STYLE, 0)
    put(state, LAST_STOP, -1)
    put(state, CASE, 0)
    begin_sentence(source, state, begin, end)
    at = skip_plain(source, begin, size)
    while at < end:
        kind = read_kind(source, at)
        if kind == DOT or kind == FIRST_PAIR + 2 * ROUND + 1:
            pass_marker(source, state, at, end, ends)
        if DOT <= kind <= DOUBLE:
            at = pass_stop(source, state, at, end, ends)
        elif kind == BULLET:
            at = pass_bullet(source, state, at, end, ends)
        else:
            at = pass_mark(source, state, at, end, ends)
        at = skip_plain(source, at, size)
    filled = item(state, FILLED)
    if filled > item(state, FIRST) and not find_any_word(source, state, end):
        filled -= 1  # what holds no letter and no digit belongs to the sentence before
    put(ends, filled, end)
    put(state, FILLED, filled + 1)


@helper
def is_broken_off(source: Source, begin: int, end: int) -> bool:
    """Whether a line ends with a dash, before closing marks: “But if—”."""
    at = end
    for _ in range(4):
        kind = kind_before(source, begin, at)
        if kind == DASH:
            return True
        if kind < STRAIGHT_SINGLE:
            return False
        at = step_back(source, at)
    return False


@kernel
def segment_lines(
    source: Source, line_offsets: np.ndarray, begins: np.ndarray, ends: np.ndarray, counts: np.ndarray, filled: int
) -> int:
    """Write where sentences begin and end, from the place `filled` on, and return how many there are then.

    line_offsets: of the lines to segment, and of the end of the last one; counts: int64, of sentences, for each line;
    negative where the line ends with neither a stop nor a dash.
    """
    found, size = point_to_source(source), len(source.utf8)
    states = np.zeros(STATE_SIZE, np.int64)
    state, offsets, all_begins, all_ends = pointer(states), pointer(line_offsets), pointer(begins), pointer(ends)
    put(state, FILLED, filled)
    for line in range(len(line_offsets) - 1):
        begin, end = trim_line(found, item(offsets, line), item(offsets, line + 1) - 1)
        first = item(state, FILLED)
        segment_line(found, state, begin, end, size, all_ends)
        for i in range(first, item(state, FILLED)):
            put(all_begins, i, begin)
            begin = item(all_ends, i)
            while begin < end and is_space(found, begin):
                begin = step(found, begin)
        count = item(state, FILLED) - first
        is_ended = item(state, LAST_STOP) == end or is_broken_off(found, item(state, LINE), end)
        counts[line] = count if is_ended else -count
    return int(item(state, FILLED))
