"""The facts of a line that show where paragraphs end: its width, how it begins and how it ends.

In: valid UTF-8. Out: the facts of each line, blank ones included, for unwrapping.py. A wide East Asian character counts
as two columns, any other as one. What is a letter, its case and its script come from the shipped Unicode tables.
"""

from __future__ import annotations

import numpy as np

from albert_data.ascii import (
    CASE_BIT,
    FULL_STOP,
    HYPHEN_MINUS,
    LINE_FEED,
    SPACE,
    TAB,
    is_capital,
    is_digit,
    is_letter,
    is_white,
)
from albert_data.character_bits import (
    CLOSING,
    LOWER_LETTER,
    OPENING,
    STOP_MARK,
    UNSPACED,
    UPPER_LETTER,
    WIDE,
    WORD_CHARACTER,
)
from albert_data.corpus.white_space import skip_white, skip_white_back
from albert_data.kernels import I64, Pointer, helper, item, kernel, pointer
from albert_data.utf8 import read_character, step_back

# The columns of `facts`, an int64 row for each line.
TEXT, END = 0, 1  # the line without the white space around it
INDENT = 2  # columns before TEXT, at most MAX_INDENT
WIDTH = 3  # columns, INDENT included
WORD = 4  # columns of the first word
FLAGS = 5
NUM_FACTS = 6
MAX_INDENT = 60

# Bits of FLAGS.
BLANK = 1
NOT_PROSE = 2  # the row of a table (a tab, or four spaces that end after column 8 of its text), or no letter or digit
LOWER, UPPER = 4, 8  # the case of the first letter, after quotes, brackets and dashes
STOP = 16  # ends in a stop, before quotes and brackets
ITEM = 32  # begins with the mark of a list or the dash of a dialogue
HYPHEN, SOFT = 64, 128  # ends in a hyphen after a letter or digit; in a soft hyphen
DASH_END, DASH_START = 256, 512  # a dash at the end or beginning, no space between it and the text
UNSPACED_END, UNSPACED_START = 1024, 2048  # the last or first letter is of a script without spaces
UNSPACED_MARK_END, UNSPACED_MARK_START = 4096, 8192  # the last or first character is a mark of such a script
LOWER_FIRST, WORD_FIRST = 16384, 32768  # the first character is a lower-case letter; is a letter or digit

# How a line continues in the next one: not at all, with a space, with nothing between, with nothing and without its
# last character, which is a hyphen. UNDECIDED is for hyphens.py.
ENDS, WITH_SPACE, WITH_NOTHING, WITHOUT_HYPHEN, UNDECIDED = range(5)

UNICODE_HYPHEN, _SOFT_HYPHEN, _EM_DASH, _HORIZONTAL_BAR = 0x2010, 0xAD, 0x2014, 0x2015
_IDEOGRAPHIC_SPACE = 0x3000


@helper
def measure_indent(raw: Pointer, start: int, end: int) -> int:
    """The columns of white space, at most MAX_INDENT."""
    at, indent = start, 0
    while at < end:
        code, at = read_character(raw, at)
        indent = (indent // 8 + 1) * 8 if code == TAB else indent + (2 if code == _IDEOGRAPHIC_SPACE else 1)
    return min(indent, MAX_INDENT)


_NUMERALS = tuple(b"ivxlc")
_OPEN, _CLOSE = b"()"
_MAX_MARKS = 8  # quotes, brackets and dashes that may stand before the first letter
_LIST_MARKS = tuple(ord(character) for character in "-*+·•‣▪◦‒–—―")


@helper
def is_numeral(byte: int) -> bool:
    """Whether a byte is I, V, X, L or C, in either case."""
    return (byte | CASE_BIT) in _NUMERALS


@helper
def begins_item(raw: Pointer, at: int, end: int) -> bool:
    """Whether a line begins with `-`, `*`, `+`, a bullet or a dash, `12.`, `iv)`, `a.` or `(3)`, and white space.

    A capital letter and a full stop are an initial, so `A.` begins no item.
    """
    code, after = read_character(raw, at)
    if after < end and is_white(item(raw, after)) and code in _LIST_MARKS:
        return True
    is_open = code == _OPEN
    first = at = after if is_open else at
    while at < end and is_digit(item(raw, at)):
        at += 1
    if at == first:
        while at < end and is_numeral(item(raw, at)):
            at += 1
        if at < end and at <= first + 1 and is_letter(item(raw, first)):  # a single letter, be it a numeral or not
            at = first + 1
    most = 3 if is_digit(item(raw, first)) else 5  # digits, or letters of a numeral (XVIII)
    if at == first or at - first > most or at + 1 >= end:
        return False
    closing = item(raw, at)
    if closing == FULL_STOP and at == first + 1 and is_capital(item(raw, first)):
        return False
    return (closing == _CLOSE or closing == FULL_STOP and not is_open) and is_white(item(raw, at + 1))


@helper
def is_dash(code: int) -> bool:
    """Whether a character can be part of `--` or a long dash; the en dash is neither."""
    return code in (HYPHEN_MINUS, _EM_DASH, _HORIZONTAL_BAR)


@helper
def has_dash_start(raw: Pointer, at: int, end: int) -> bool:
    """Whether a line begins with `--` or a long dash, and no space follows."""
    dashes, is_long = 0, False
    while at < end:
        code, after = read_character(raw, at)
        if not is_dash(code):
            return (dashes > 1 or is_long) and not is_white(code)
        dashes, is_long, at = dashes + 1, is_long or code != HYPHEN_MINUS, after
    return False


@helper
def has_dash_end(raw: Pointer, begin: int, end: int) -> bool:
    """Whether a line ends with `--` or a long dash, and no space precedes it."""
    dashes, is_long, at = 0, False, end
    while at > begin:
        at = step_back(raw, at)
        code, _ = read_character(raw, at)
        if not is_dash(code):
            return (dashes > 1 or is_long) and not is_white(code)
        dashes, is_long = dashes + 1, is_long or code != HYPHEN_MINUS
    return False


@helper
def find_first_flags(raw: Pointer, begin: int, end: int, table: Pointer) -> int:
    """What the beginning of a line shows: its first character, and the case of its first letter."""
    properties = I64(item(table, read_character(raw, begin)[0]))
    flags = LOWER_FIRST if properties & LOWER_LETTER else 0
    flags |= WORD_FIRST if properties & WORD_CHARACTER else 0
    flags |= UNSPACED_MARK_START if properties & UNSPACED and not properties & WORD_CHARACTER else 0
    flags |= DASH_START if has_dash_start(raw, begin, end) else 0
    at, num_marks = begin, 0
    while at < end:
        code, at = read_character(raw, at)
        if is_white(code):
            continue
        properties, num_marks = I64(item(table, code)), num_marks + 1
        if properties & WORD_CHARACTER or not properties & OPENING or num_marks > _MAX_MARKS:
            flags |= LOWER if properties & LOWER_LETTER else 0
            return flags | (UPPER if properties & UPPER_LETTER else 0)
    return flags


@helper
def find_last_flags(raw: Pointer, begin: int, end: int, table: Pointer) -> int:
    """What the last two characters of a line show, and whether a stop stands before its closing marks."""
    at = step_back(raw, end)
    last, _ = read_character(raw, at)
    before = read_character(raw, step_back(raw, at))[0] if at > begin else SPACE
    properties, at = I64(item(table, last)), end
    flags = UNSPACED_MARK_END if properties & UNSPACED and not properties & WORD_CHARACTER else 0
    while at > begin:
        at = step_back(raw, at)
        code, _ = read_character(raw, at)
        properties = I64(item(table, code))
        if not is_white(code) and not properties & CLOSING:
            flags |= STOP if properties & STOP_MARK else 0
            break
    if last in (HYPHEN_MINUS, UNICODE_HYPHEN) and I64(item(table, before)) & WORD_CHARACTER:
        return flags | HYPHEN
    if last == _SOFT_HYPHEN:
        return flags | SOFT
    return flags | (DASH_END if has_dash_end(raw, begin, end) else 0)


@helper
def find_letter_flags(raw: Pointer, begin: int, end: int, table: Pointer) -> int:
    """Whether the first and the last letter or digit of a line are of scripts without spaces, or there is none."""
    at, properties = begin, 0
    while at < end and not properties & WORD_CHARACTER:
        code, at = read_character(raw, at)
        properties = I64(item(table, code))
    if not properties & WORD_CHARACTER:
        return NOT_PROSE
    flags = UNSPACED_START if properties & UNSPACED else 0
    at, properties = end, 0
    while not properties & WORD_CHARACTER:
        at = step_back(raw, at)
        properties = I64(item(table, read_character(raw, at)[0]))
    return flags | (UNSPACED_END if properties & UNSPACED else 0)


@helper
def measure_text(raw: Pointer, begin: int, end: int, table: Pointer) -> tuple[int, int, bool]:
    """Columns, columns of the first word, and whether it looks like a row of a table; of a line that is not empty.

    begin, end: without the white space around the line.
    """
    columns, word, gap, is_row, at = 0, -1, 0, False, begin  # gap: white space right before this position
    first = I64(item(table, read_character(raw, begin)[0]))
    if first & UNSPACED:  # a line may break after it, as after a word
        word = 2 if first & WIDE else 1
    while at < end:
        if is_letter(item(raw, at)):  # most characters, so they skip the table
            columns, gap, at = columns + 1, 0, at + 1
            continue
        code, at = read_character(raw, at)
        if is_white(code):
            gap += 1
            word = columns if word < 0 else word
            if code == TAB or gap >= 4 and columns >= 8:  # as in NOT_PROSE
                is_row = True
        else:
            gap = 0
        columns += 2 if I64(item(table, code)) & WIDE else 1
    return columns, columns if word < 0 else word, is_row


@helper
def measure_line(fact: np.ndarray, raw: Pointer, start: int, end: int, table: Pointer) -> None:
    """Write the facts of the line start .. end, which has no white space at its end."""
    text, _ = skip_white(raw, start, end)
    indent = measure_indent(raw, start, text)
    fact[TEXT], fact[END], fact[INDENT] = text, end, indent
    if text == end:
        fact[FLAGS] = BLANK
        return
    columns, word, is_row = measure_text(raw, text, end, table)
    fact[WIDTH], fact[WORD] = indent + columns, word
    flags = find_first_flags(raw, text, end, table) | find_last_flags(raw, text, end, table)
    flags |= find_letter_flags(raw, text, end, table) | (NOT_PROSE if is_row else 0)
    fact[FLAGS] = flags | (ITEM if begins_item(raw, text, end) else 0)


@kernel
def measure_lines(
    raw: np.ndarray, ends: np.ndarray, ends_at_blank: bool, table: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int, int]:
    """The facts of all lines, the offsets of documents in lines, the bytes of the longest line and document.

    ends_at_blank: whether blank lines end documents; ends: int64, where they end otherwise; table: the properties of
    all characters.
    """
    source, properties = pointer(raw), pointer(table)
    num_lines = 1
    for at in range(len(raw)):
        num_lines += item(source, at) == LINE_FEED
    facts = np.zeros((num_lines, NUM_FACTS), np.int64)
    document_lines = np.zeros((num_lines if ends_at_blank else len(ends)) + 1, np.int64)
    row, num_documents, start, begun, longest_line, longest_document = 0, 0, 0, 0, 0, 0
    while start < len(raw):
        stop = start
        while stop < len(raw) and item(source, stop) != LINE_FEED:
            stop += 1
        end = skip_white_back(source, start, stop)
        measure_line(facts[row], source, start, end, properties)
        longest_line = max(longest_line, end - facts[row, TEXT])
        row, start = row + 1, stop + 1
        if ends_at_blank:
            is_end = facts[row - 1, FLAGS] == BLANK
        else:
            is_end = num_documents < len(ends) and start >= ends[num_documents]
        if is_end:
            longest_document = max(longest_document, stop - begun)
            num_documents, begun = num_documents + 1, start
            document_lines[num_documents] = row
    # Lines are left after the last blank line or end, or a document of no bytes, whose end is after no line.
    if document_lines[num_documents] < row or num_documents < len(ends):
        longest_document = max(longest_document, len(raw) - begun)
        num_documents += 1
        document_lines[num_documents] = row
    return facts[:row], document_lines[: num_documents + 1], longest_line, longest_document
