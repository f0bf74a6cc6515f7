"""The compiled loop over lines: where each sentence begins and ends.

In: lines and a language's rule (`RuledText`). Out: where sentences begin and end, and how many each line has. Time is
linear in the text, whatever it holds: the loop passes each position once, and from a stop it looks at most some words
back and ahead. (`is_lower_text` reads a whole line, but only once.)
"""

from __future__ import annotations

import numpy as np

from albert_data.ascii import DIGIT_0, FULL_STOP, SMALL_A, SMALL_Z, SPACE, is_digit
from albert_data.kernels import helper, item, kernel, pointer, put
from albert_data.sentences.characters import (
    ANGLE,
    BLANK,
    BULLET,
    CLOSE_ROUND,
    DASH,
    DOT,
    DOUBLE_CURLY,
    FIRST_PAIR,
    STRAIGHT_SINGLE,
    Line,
    RuledText,
    class_at,
    class_before,
    is_stop,
    point_to_source,
    read_class,
    skip_blanks_back,
    skip_plain,
    step,
)
from albert_data.sentences.marks import (
    CASE,
    CLOSES,
    DEPTH,
    ELSEWHERE,
    LAST_STOP,
    LIST_NUMBER,
    LIST_STYLE,
    NUM_ENDS,
    OPENS,
    STATE_SIZE,
    UNKNOWN,
    begin_sentence,
    close_mark,
    find_role,
    group_of,
    has_word,
    open_mark,
)
from albert_data.sentences.stops import Closing, can_end, is_end, read_run, skip_notes
from albert_data.utf8 import step_back

_CLOSE = ord(")")


@helper
def pass_closing(line: Line, at: int) -> Closing:
    """Close the marks right after a stop. Before some, a space may stand: « Oui ! »"""
    closing = Closing(at, -1, ELSEWHERE)
    while closing.end < line.end:
        mark = closing.end
        after = step(line.source, mark)
        if read_class(line.source, mark) == BLANK and after < line.end:
            mark = after
            char_class = read_class(line.source, mark)
            if char_class < FIRST_PAIR or group_of(char_class) not in (ANGLE, DOUBLE_CURLY):
                break
        if find_role(line, mark) != CLOSES:
            break
        group = group_of(read_class(line.source, mark))
        closing = Closing(step(line.source, mark), group, close_mark(line, group, mark))
    return closing


@helper
def add_end(line: Line, at: int) -> None:
    """End the sentence at a position, and begin the next one."""
    num_ends = item(line.state, NUM_ENDS)
    put(line.ends, num_ends, at)
    put(line.state, NUM_ENDS, num_ends + 1)
    begin_sentence(line, at)


@helper
def pass_stop(line: Line, at: int) -> int:
    """End the sentence after the run of stops at a position if it ends there. Returns where the loop continues."""
    run = read_run(line, at)
    if run.end == at:  # no stop here, although its class is one: a wide dot before a digit, for example
        return step(line.source, at)
    closing = pass_closing(line, skip_notes(line, run.end))
    put(line.state, LAST_STOP, closing.end)
    if closing.end < line.end and can_end(line, run, closing) and is_end(line, run, closing):
        add_end(line, closing.end)
    return closing.end


@helper
def read_marker(line: Line, stop: int) -> tuple[int, int, int]:
    """Where the marker of a list item begins, its number, and its style, which is 0 if there is no marker.

    A marker is a number of up to three digits or a small letter (a is 1), then a full stop, a closing bracket, or both,
    as `2.`, `b)` and `3.)`. White space surrounds it; a bullet may precede it. stop: of the full stop or bracket.
    """
    utf8, delimiter, after = line.source.utf8, item(line.source.utf8, stop), step(line.source, stop)
    if delimiter == FULL_STOP and after < line.end and item(utf8, after) == _CLOSE:
        delimiter, after = FULL_STOP - 1, after + 1  # both: a value that no single delimiter has
    at, number = stop, 0
    while at > line.begin and stop - at < 3 and is_digit(item(utf8, at - 1)):
        at -= 1
    for i in range(at, stop):
        number = 10 * number + item(utf8, i) - DIGIT_0
    style = 2 * delimiter  # odd for letters
    if at == stop and at > line.begin and SMALL_A <= item(utf8, at - 1) <= SMALL_Z:
        at, style = at - 1, style + 1
        number = item(utf8, at) - SMALL_A + 1
    if at == stop or class_at(line, after) != BLANK:
        return stop, 0, 0
    return at, number, style if class_before(line, at) in (BLANK, BULLET) else 0


@helper
def pass_marker(line: Line, stop: int) -> None:
    """End the sentence before a marker if the line began with one of this style, and this number is the next."""
    at, number, style = read_marker(line, stop)
    if style == 0:
        return
    at = skip_blanks_back(line, at)
    if at > line.begin and class_before(line, at) == BULLET:
        at = skip_blanks_back(line, step_back(line.source.utf8, at))
    if at == line.begin:
        put(line.state, LIST_NUMBER, number)
        put(line.state, LIST_STYLE, style)
    elif style == item(line.state, LIST_STYLE) and number == item(line.state, LIST_NUMBER) + 1:
        put(line.state, LIST_NUMBER, number)
        if has_word(line, at):
            add_end(line, at)


@helper
def pass_bullet(line: Line, at: int) -> None:
    """End the sentence before a bullet, where the line began with one and white space precedes it."""
    is_list = read_class(line.source, line.begin) == BULLET and class_before(line, at) == BLANK
    if is_list and has_word(line, at):
        add_end(line, skip_blanks_back(line, at))


@helper
def pass_mark(line: Line, at: int) -> None:
    """Open or close the mark at a position, if there is one."""
    role, group = find_role(line, at), group_of(read_class(line.source, at))
    if role == OPENS:
        open_mark(line, group, at)
    elif role == CLOSES:
        close_mark(line, group, at)


@helper
def segment_line(line: Line, size: int) -> None:
    """Write where the sentences of a line end. size: of the whole text."""
    state, source = line.state, line.source
    put(state, DEPTH, 0)
    put(state, LIST_STYLE, 0)
    put(state, LAST_STOP, -1)
    put(state, CASE, UNKNOWN)
    begin_sentence(line, line.begin)
    at = skip_plain(source, line.begin, size)
    while at < line.end:
        char_class = read_class(source, at)
        if char_class in (DOT, CLOSE_ROUND):
            pass_marker(line, at)
        if is_stop(char_class):
            at = pass_stop(line, at)
        else:
            if char_class == BULLET:
                pass_bullet(line, at)
            else:
                pass_mark(line, at)
            at = step(source, at)
        at = skip_plain(source, at, size)
    num_ends = item(state, NUM_ENDS)
    if num_ends > line.first_end and not has_word(line, line.end):
        num_ends -= 1  # a rest without a letter or digit belongs to the sentence before
    put(line.ends, num_ends, line.end)
    put(state, NUM_ENDS, num_ends + 1)


@helper
def is_broken_off(line: Line) -> bool:
    """Whether a line ends with a dash, before up to three quotation marks or brackets: “But if—”."""
    at = line.end
    for _ in range(4):
        char_class = class_before(line, at)
        if char_class == DASH:
            return True
        if char_class < STRAIGHT_SINGLE:  # no quotation mark or bracket
            return False
        at = step_back(line.source.utf8, at)
    return False


@kernel
def segment_lines(
    source: RuledText, line_offsets: np.ndarray, begins: np.ndarray, ends: np.ndarray, counts: np.ndarray, filled: int
) -> int:
    """Write where sentences begin and end, from index `filled` on, and return how many there are then.

    line_offsets: of the lines to segment, and the end of the last one; counts: int64, the number of sentences of each
    line, negative where the line ends with neither a stop nor a dash.
    """
    found, size = point_to_source(source), len(source.utf8)
    states = np.zeros(STATE_SIZE, np.int64)
    state, offsets, all_begins, all_ends = pointer(states), pointer(line_offsets), pointer(begins), pointer(ends)
    put(state, NUM_ENDS, filled)
    for i in range(len(line_offsets) - 1):
        begin, end = item(offsets, i), item(offsets, i + 1) - 1
        first = item(state, NUM_ENDS)
        line = Line(found, begin, end, state, all_ends, first)
        segment_line(line, size)
        for sentence in range(first, item(state, NUM_ENDS)):
            put(all_begins, sentence, begin)
            begin = item(all_ends, sentence)
            begin += begin < end and item(found.utf8, begin) == SPACE  # a canonical line has no other white space
        count = item(state, NUM_ENDS) - first
        counts[i] = count if item(state, LAST_STOP) == end or is_broken_off(line) else -count
    return int(item(state, NUM_ENDS))
