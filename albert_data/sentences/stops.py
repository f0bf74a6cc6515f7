"""Runs of stops, and whether a sentence ends after one.

The questions in order: Does what follows allow an end (white space, mostly)? Is the stop in a bracket inside a
sentence, or in a quotation before a letter without case? Does a word follow with which a sentence continues (in lower
case, or a name with a verb of speech)? Does a full stop belong to an abbreviation, an initial or a number
(full_stops.py)?
"""

from __future__ import annotations

from typing import NamedTuple

from albert_data.kernels import helper, item, put
from albert_data.sentences.characters import (
    ACCENT,
    BLANK,
    CLOSE_SINGLE,
    CLOSE_SQUARE,
    COMMA,
    DASH,
    DIGIT,
    DOT,
    DOUBLE,
    ELLIPSIS,
    EXCLAIM,
    FIRST_QUOTE_GROUP,
    FULL,
    IDEO,
    JOIN,
    LEADING,
    LOWER,
    OPEN_SQUARE,
    OTHER,
    STRAIGHT_DOUBLE,
    STRAIGHT_SINGLE,
    TITLE_MARKS,
    UPPER,
    WIDE_DOT,
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
from albert_data.sentences.full_stops import ends_at_dot, find_word_end, is_i, is_ordinary, is_quote
from albert_data.sentences.marks import (
    CASE,
    ELSEWHERE,
    FIRST_IN_SENTENCE,
    NO,
    OPENS,
    SENTENCE,
    UNKNOWN,
    YES,
    find_role,
    group_of,
    has_word,
)
from albert_data.sentences.words import SPEECH, STARTER, TITLE, look_up

IS_EXCLAIM, IS_FULL = 1, 2
_URDU = 0xDB  # the first byte of "۔", which stands after abbreviations, too; no other stop begins with it
_MAX_SKIPPED = 8  # marks before a word
_MAX_NOTE = 5  # bytes from the bracket of a footnote number to its last digit


class Run(NamedTuple):
    """Stops in a row. kinds: bits IS_EXCLAIM and IS_FULL, 0 for dots alone; dots: how many, three for "…"."""

    begin: int
    end: int
    kinds: int
    dots: int


class Closing(NamedTuple):
    """Marks that close right after a run. group: of the last, -1 for none; context: of its opening mark (marks.py)."""

    end: int
    group: int
    context: int


@helper
def read_stop(line: Line, at: int) -> Run:
    """The stop at a position; its end is `at` if there is none."""
    stop, after = class_at(line, at), step(line.source, at)
    if stop == DOT:
        return Run(at, after, 0, 1)
    if stop == ELLIPSIS:
        return Run(at, after, 0, 3)
    if stop == EXCLAIM:
        return Run(at, after, IS_EXCLAIM, 0)
    if stop == FULL:
        return Run(at, after, IS_FULL, 0)
    following = class_at(line, after)
    if stop == WIDE_DOT and following not in (LOWER, UPPER, DIGIT):
        return Run(at, after, IS_FULL, 0)
    if stop == DOUBLE and following == DOUBLE:
        return Run(at, step(line.source, after), IS_FULL, 0)
    return Run(at, at, 0, 0)


@helper
def read_run(line: Line, begin: int) -> Run:
    """The stops from a position on, among them lone ones after white space, as in ". . ." and "! !"."""
    run = read_stop(line, begin)
    while begin < run.end < line.end:
        at = step(line.source, run.end) if read_class(line.source, run.end) == BLANK else run.end
        stop = read_stop(line, at)
        if stop.end == at:
            break
        if at > run.end:
            following = class_at(line, stop.end)
            if is_letter_or_digit(following) or is_stop(following):  # as in ". .NET" and ". ..."
                break
        run = Run(begin, stop.end, run.kinds | stop.kinds, run.dots + stop.dots)
    return run


@helper
def skip_notes(line: Line, at: int) -> int:
    """Skip the numbers of footnotes right after a stop: [1], ²."""
    while at < line.end:
        char_class, after = read_class(line.source, at), step(line.source, at)
        if char_class == OPEN_SQUARE:
            number = after
            while after < line.end and after - at < _MAX_NOTE and read_class(line.source, after) == DIGIT:
                after = step(line.source, after)
            if after == number or class_at(line, after) != CLOSE_SQUARE:
                break
            after = step(line.source, after)
        elif char_class != ACCENT:
            break
        at = after
    return at


@helper
def can_end(line: Line, run: Run, closing: Closing) -> bool:
    """Whether what follows a run and its closing marks allows an end: white space, mostly."""
    at = closing.end
    following, is_quotation = class_at(line, at), closing.group >= FIRST_QUOTE_GROUP
    if following == BLANK:
        return True
    if following == DASH:  # “So.”—“No.”
        after = step(line.source, at)
        return after < line.end and find_role(line, after) == OPENS
    if following in (COMMA, JOIN) or is_stop(following):
        return False
    if run.kinds & IS_FULL != 0:
        return True
    opens = find_role(line, at) == OPENS
    if opens and is_quotation:
        return True
    before = class_before(line, run.begin)
    if following == OTHER and run.kinds != 0:  # ! and ? inside Burmese or Khmer, which has no spaces
        return before in (OTHER, ACCENT) or is_quotation
    # Between Chinese or Japanese letters, and before an opening mark: 真的!好。 Not after Latin letters: Yahoo!知恵袋
    return (following == IDEO or opens) and (is_quotation or before == IDEO)


@helper
def skip_marks(line: Line, at: int) -> tuple[int, bool]:
    """Skip what may stand between a stop and the next word; also tells whether a quotation mark was among it."""
    is_quoted = False
    for _ in range(_MAX_SKIPPED):
        mark = class_at(line, at)
        if is_quote(mark):
            is_quoted = True
        elif mark in (DASH, JOIN):
            at = skip_blanks(line, step(line.source, at))
            continue
        elif not (is_opening(mark) or mark in (STRAIGHT_SINGLE, CLOSE_SINGLE, LEADING)):
            break
        at = step(line.source, at)
    return at, is_quoted


@helper
def read_first(line: Line, word: int) -> int:
    """The class of a word's first letter. After the Dutch 's and 't the next word counts: 's Avonds."""
    first, after = class_at(line, word), step(line.source, word)
    if first != LOWER or class_at(line, after) != BLANK:
        return first
    is_short_form = class_before(line, word) in (STRAIGHT_SINGLE, CLOSE_SINGLE)
    return class_at(line, step(line.source, after)) if is_short_form else first


@helper
def names_speaker(line: Line, at: int) -> bool:
    """Whether up to four words follow of which the last is a verb of speech, as in “Go!” Mr. Smith said."""
    for _ in range(4):
        word_end = find_word_end(line, at)
        classes = look_up(line.source, at, word_end)
        if classes & SPEECH != 0:
            return True
        # A starter begins a sentence instead, except I: “Go!” I said.
        if word_end == at or read_class(line.source, at) != UPPER or (classes & STARTER != 0 and not is_i(line, at)):
            return False
        if classes & TITLE != 0 and class_at(line, word_end) == DOT:
            word_end += 1
        at = skip_blanks(line, word_end)
        if at in (word_end, line.end):
            return False
    return False


@helper
def is_hiragana(line: Line, at: int) -> bool:
    """Whether U+3040 .. U+309F is at a position: E3 81 80 .. E3 82 9F."""
    utf8 = line.source.utf8
    second = item(utf8, at + 1)
    return bool(item(utf8, at) == 0xE3 and (second == 0x81 or second == 0x82 and item(utf8, at + 2) < 0xA0))


@helper
def is_lower_text(line: Line) -> bool:
    """Whether lower case does not show in this line that a sentence continues.

    So it is in text without capitals: the line has none, and two full stops after ordinary words.
    """
    if item(line.state, CASE) == UNKNOWN:
        at, num_stops = line.begin, 0
        while at < line.end and read_class(line.source, at) != UPPER:
            if read_class(line.source, at) == DOT and num_stops < 2:
                following = class_at(line, at + 1)
                is_before_end = following in (BLANK, STRAIGHT_DOUBLE) or is_closing(following)
                num_stops += is_before_end and class_before(line, at) != DOT and is_ordinary(line, at)
            at = step(line.source, at)
        put(line.state, CASE, YES if at >= line.end and num_stops == 2 else NO)
    return bool(item(line.state, CASE) == YES)


@helper
def continues_in_lower_case(line: Line, run: Run, is_quotation: bool) -> bool:
    """Whether lower case after a run shows that a sentence continues. is_quotation: whether a quotation ends there."""
    if is_quotation or (run.kinds == 0 and run.dots > 1) or not is_lower_text(line):
        return True
    return run.kinds == 0 and not is_ordinary(line, run.begin)


@helper
def is_end(line: Line, run: Run, closing: Closing) -> bool:
    """Whether a sentence ends after a run and what closes after it, where `can_end` allows it."""
    group = closing.group
    is_spaced, is_quotation = class_at(line, closing.end) == BLANK, group >= FIRST_QUOTE_GROUP
    is_one_dot, are_dots = run.kinds == 0 and run.dots == 1, run.kinds == 0 and run.dots > 1
    next_word, is_quoted = skip_marks(line, skip_blanks(line, closing.end))
    first = read_first(line, next_word)
    if not has_word(line, closing.end):
        return False
    if 0 <= group < FIRST_QUOTE_GROUP and closing.context != FIRST_IN_SENTENCE:
        return False  # the stop belongs to a parenthesis
    if group == TITLE_MARKS and not is_spaced:  # 《谁？》 names a work
        return False
    left = class_before(line, run.begin)
    if run.dots > 1 and is_opening(left) and group_of(left) < FIRST_QUOTE_GROUP:  # [...]
        return False
    if is_quotation and OTHER <= first <= IDEO and not is_quoted:
        # No capital shows whether the sentence continues. It does after a quotation that begins it (“真的吗？”她问。)
        # or that stands right after a letter (他说“好。”). It ends after one that follows a space or a mark inside it,
        # unless hiragana, such as と, come next.
        return closing.context == ELSEWHERE and not is_hiragana(line, next_word)
    if run.kinds & IS_FULL != 0:
        return item(line.source.utf8, run.begin) != _URDU or ends_at_dot(line, run.begin, next_word)
    # After one full stop a quotation in lower case may begin a sentence: 'it is so.' 'is it?'
    if first == LOWER and not (is_quoted and is_one_dot) and continues_in_lower_case(line, run, is_quotation):
        return False
    is_speech = is_quotation or class_at(line, item(line.state, SENTENCE)) == DASH  # — Go! Tom cried.
    if is_speech and not is_one_dot and names_speaker(line, next_word):
        return False
    if are_dots:  # before the word I, up to three dots are a pause, and more end a sentence: I ... I know.... I do.
        return is_spaced and first != DIGIT and (run.dots > 3 or not is_i(line, next_word))
    # At the end of a quotation the word before the full stop does not matter.
    return not is_one_dot or is_quotation or ends_at_dot(line, run.begin, next_word)
