"""Join the lines of hard-wrapped paragraphs: `--unwrap`.

In: documents of valid UTF-8, their lines as they were written. Out: the same documents with a line for each
paragraph. Nothing marks the line ends that a wrapping program made, so they are inferred, from the text of the
document alone.

1. A document's width W is the smallest number of columns that 95 % of its lines do not exceed; lines over 160 columns
   do not count, and are joined with no other. In a document of under 16 lines W is at least 60. Nothing is joined if
   W is under 32, or if half of the text is in lines over 160 columns. Rule 5 has an exception to all of this.
2. A wrapping program breaks a line where the next word does not fit. So the columns of a line and of the first word
   of the next one are added: a sum over W - 2 is a wrap. Other programs and people are less exact. So a sum over 0.8
   W is enough if the line does not end in a stop, over 0.55 W if the next line begins in lower case, and any sum if
   the line ends in a hyphen and the next one begins with a lower-case letter. (A wrap that is missed after a stop
   costs nothing, as the sentence ends there anyway; elsewhere it cuts a sentence.) If less than a fifth of the sums
   in a document of 16 lines or more are over 0.8 W, nothing in it is joined (except by rule 5).
3. A paragraph ends
   - at a blank line, and at a line without a letter or digit, or with a tab or four spaces inside it (tables);
   - before a line with more indentation than the line before. In a document whose first lines are indented (a fifth
     or more of its indented lines are followed by one that is not), before any line with indentation. In both cases a
     line still continues the paragraph if it belongs to an item of a list, or if it begins in lower case after a line
     without a stop;
   - before the mark of a list or of a dialogue, if the line before ends in a stop or is in a list;
   - after a line whose first letter has no case, as nothing else shows a heading there, if it ends in a stop and the
     next one begins with a letter or digit, or if that is under half of W and ends in a number ("ข้อ 5").
4. Verse is not joined: four lines or more between blank ones, of which none after the first begins in lower case,
   some after the first begin in upper case, and some are not full (W - 2 in rule 2).
5. Lines are joined by a space. Nothing is put between letters of scripts without spaces, next to their marks, next to
   a dash without a space between it and the text of its line, and after a hyphen (`decide_hyphens`). A soft hyphen
   at the end, before a letter or digit, is dropped and its line joined, whatever rules 1, 2 and 4, the indentation and
   the mark of a list say: it marks a broken word.
6. Page numbers and running heads are removed before rules 3 to 5, by their place and their repetition (section 2).

Five steps: measure the facts of each line, find page furniture, choose how each line continues, decide what becomes of
hyphens, write the text.
"""

from __future__ import annotations

import secrets

import numpy as np

from albert_data.corpus.lines.long_documents import MAX_DOCUMENT, MAX_LINE
from albert_data.corpus.lines.white_space import find_feed, skip_white, skip_white_back
from albert_data.kernels import I64, U64, Pointer, copy_items, helper, item, kernel, pointer, put
from albert_data.kernels.draws import mix
from albert_data.kernels.fnv import FNV_BASIS, add_byte, hash_bytes
from albert_data.text.ascii import (
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
from albert_data.text.character_bits import (
    ALPHA,
    CLOSING,
    LOWER_LETTER,
    OPENING,
    STOP_MARK,
    UNSPACED,
    UPPER_LETTER,
    WIDE,
    WORD_CHARACTER,
    character_properties,
)
from albert_data.text.utf8 import read_character, step_back


def unwrap(data: bytes, ends: np.ndarray, ends_at_blank: bool = False) -> tuple[bytes, np.ndarray, list[bytes]] | None:
    """Text with its lines joined, where documents end in it, and the page furniture that was removed, line by line.

    None if a document or line is so long that it must be cut first.
    ends: int64, where documents end, each after a line feed; empty if blank lines end them, as they are in the result
    """
    # The limit is of the bytes as they were written. It is checked first, because the facts would take much memory.
    if np.diff(ends, prepend=0).max(initial=0) > MAX_DOCUMENT:
        return None
    raw, properties = np.frombuffer(data, np.uint8), character_properties()
    facts, document_lines, longest_line, longest_document = measure_lines(raw, ends, ends_at_blank, properties)
    if longest_line > MAX_LINE or longest_document > MAX_DOCUMENT:
        return None
    widths = find_widths(facts, document_lines)
    removed = find_furniture(raw, facts, document_lines, widths, properties, _SEED)
    furniture = [data[begin:end] for begin, end in facts[removed == FURNITURE, TEXT : END + 1].tolist()]
    if furniture:
        is_kept = removed == KEPT
        document_lines = np.append(0, np.cumsum(is_kept))[document_lines]
        facts = facts[is_kept]
    joins = choose_joins(facts, document_lines, widths)
    decide_hyphens(raw, facts, document_lines, joins, properties)
    joined, new_ends = write_paragraphs(raw, facts, document_lines, joins, ends_at_blank)
    return joined.tobytes(), ends if ends_at_blank else new_ends, furniture


# ---- 1. the facts of a line: how wide it is, how it begins and how it ends ----
#
# An int64 row for each line. A document of the two lines "    The quick brown-" and "fox jumps." has
#
#     TEXT  END  INDENT  WIDTH  WORD  FLAGS
#        4   20       4     20     3  UPPER | WORD_FIRST | HYPHEN
#       21   31       0     10     3  LOWER | LOWER_FIRST | WORD_FIRST | STOP
#
# A wide East Asian character counts as two columns, any other as one. What is a letter, its case and its script come
# from the shipped Unicode tables.

TEXT, END = 0, 1  # the bytes of the line, without the white space around it
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
NUMBER_END, CASELESS = 65536, 131072  # the last letter or digit is a digit; the first one is a letter without case

UNICODE_HYPHEN, _SOFT_HYPHEN, _EM_DASH, _HORIZONTAL_BAR = 0x2010, 0xAD, 0x2014, 0x2015
_IDEOGRAPHIC_SPACE, _FORM_FEED = 0x3000, 0x0C
_LETTERS = LOWER_LETTER | UPPER_LETTER | ALPHA
_WORDSPACE = 0x1361  # of Ethiopic; two are typed for a full stop


@helper
def measure_indent(raw: Pointer, start: int, end: int) -> int:
    """The columns of white space, at most MAX_INDENT; after a form feed, if there is one."""
    at, indent = start, 0
    while at < end:
        code, at = read_character(raw, at)
        if code == _FORM_FEED:  # it begins a page
            indent = 0
            continue
        indent = (indent // 8 + 1) * 8 if code == TAB else indent + (2 if code == _IDEOGRAPHIC_SPACE else 1)
    return min(indent, MAX_INDENT)


_NUMERALS = tuple(b"ivxlc")
_OPEN, _CLOSE = b"()"
_ZERO = ord("0")
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
def has_dash(raw: Pointer, begin: int, end: int, is_last: bool) -> bool:
    """Whether a line begins, or ends, with `--` or a long dash, and no space is between it and the text."""
    dashes, is_long = 0, False
    while begin < end:
        at = step_back(raw, end) if is_last else begin
        code, after = read_character(raw, at)
        if not is_dash(code):
            return (dashes > 1 or is_long) and not is_white(code)
        dashes, is_long = dashes + 1, is_long or code != HYPHEN_MINUS
        begin, end = (begin, at) if is_last else (after, end)
    return False


@helper
def find_first_flags(raw: Pointer, begin: int, end: int, table: Pointer) -> int:
    """What the beginning of a line shows: its first character, and the case of its first letter."""
    properties = I64(item(table, read_character(raw, begin)[0]))
    flags = LOWER_FIRST if properties & LOWER_LETTER else 0
    flags |= WORD_FIRST if properties & WORD_CHARACTER else 0
    flags |= UNSPACED_MARK_START if properties & UNSPACED and not properties & WORD_CHARACTER else 0
    flags |= DASH_START if has_dash(raw, begin, end, False) else 0
    at, num_marks = begin, 0
    while at < end:
        code, at = read_character(raw, at)
        if is_white(code):
            continue
        properties, num_marks = I64(item(table, code)), num_marks + 1
        if properties & WORD_CHARACTER or not properties & OPENING or num_marks > _MAX_MARKS:
            if properties & _LETTERS == ALPHA or 0x10D0 <= code < 0x1100:  # sentences begin with Georgian lower case
                return flags | CASELESS
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
    flags |= STOP if last == before == _WORDSPACE else 0
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
    return flags | (DASH_END if has_dash(raw, begin, end, True) else 0)


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
    flags |= 0 if properties & ALPHA else NUMBER_END
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
        stop = find_feed(source, start, len(raw))
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


# ---- 2. page furniture: page numbers and running heads between the lines of a paragraph ----
#
#     ... acquaintance with Miss     The first and the last line are text, with a *break* between: one to four lines
#                                    that may be furniture, and blank ones. The break interrupts a sentence: the line
#     - 203 -                        before has no stop and continues in the line after (rules 2 and 3), which begins in
#     204 BLEAK HOUSE.               lower case and is over half of the width. (In scripts without case: which has no
#     who came in ...                capital, and no line of the break ends in a stop.)
#
# What may be furniture is not full (over 0.8 W in rule 2, without its indentation), or has a gap. It is one of
# - NUMBERED: its first or last word is a number of one to four digits, or a roman one. Its other words have no letter
#   in lower case, or are those of three such lines or more ("Page 12"), or there are none;
# - REPEATED: it has letters, does not begin in lower case, and stands in the document three times or more;
# - CAPITALS: it has capitals, but no letter in lower case.
#
# Numbers of breaks that interrupt are page numbers if they rise, by at most 16 and by at most one in eight lines, if
# there are three or more, and if half of their pages have 0.8 to 1.25 times the lines of the median. Then these are
# anchors, and a numbered line is removed if its number lies between those of the anchors around it, and its words are
# those of a line at an anchor. A repeated line is removed if two of its places, and a fifth of them, interrupt; the
# first stays if it does not interrupt: it may be the title. Capitals go with others in a break that interrupts.

NUMBERED, REPEATED, CAPITALS = 1, 2, 3
KEPT, FURNITURE, BLANK_OF_BREAK = 0, 1, 2  # what becomes of a line
_LEAST_LINES = 24  # of a document with three pages
_MOST_IN_BREAK = 4
_LEAST_TIMES, _LEAST_ANCHORS = 3, 3
_MOST_STEPS, _LEAST_PITCH = 16, 8  # pages between two anchors; lines of a page
_NUMBERED_WORDS = U64(0x5851F42D4C957F2D)  # words beside a number are counted apart from others

# An int64 row for each line that may be furniture.
LINE = 0  # in the document
KIND = 1
NUMBER = 2  # -1 for none
SLOT = 3  # of its words in the table of a document
WORDS, OTHER_WORDS = 4, 5  # hashes: of all its letters and digits; of those beside the number, 0 without one
CASES = 6  # of the letters beside the number, see _LETTERS
NUM_MARKS = 7

# An int64 row for each break.
BEFORE, AFTER = 0, 1  # the lines of text around it
FIRST, LAST = 2, 3  # the first of its rows above, and the one after the last
PAGE = 4  # its last number, -1 for none
INTERRUPTS = 5
NUM_BREAK_FACTS = 6

_NUMERAL_VALUES = np.zeros(128, np.int64)
for _numeral, _value in zip("ivxlc", (1, 5, 10, 50, 100), strict=True):
    _NUMERAL_VALUES[ord(_numeral)] = _NUMERAL_VALUES[ord(_numeral.upper())] = _value


@helper
def read_number(raw: Pointer, at: int, end: int, values: np.ndarray) -> int:
    """The number that a word is, in digits or a roman one; -1 if it is another word."""
    number, size = 0, end - at
    if size > 0 and is_digit(item(raw, at)):
        while at < end and is_digit(item(raw, at)):
            number, at = 10 * number + I64(item(raw, at)) - _ZERO, at + 1
        return number if at == end and size <= 4 else -1
    last = 0
    while end > at and is_numeral(item(raw, end - 1)):
        end -= 1
        value = values[I64(item(raw, end))]
        number, last = number + (value if value >= last else -value), max(value, last)
    return number if at == end and 0 < size <= 12 else -1


@helper
def find_number(raw: Pointer, begin: int, end: int, table: Pointer, values: np.ndarray) -> tuple[int, int, int]:
    """The number that the first or last word of a line is, and its bytes; -1 if there is none. Digits go first."""
    first = begin
    while first < end and I64(item(table, read_character(raw, first)[0])) & WORD_CHARACTER == 0:
        first = read_character(raw, first)[1]
    after = first
    while after < end and I64(item(table, read_character(raw, after)[0])) & WORD_CHARACTER:
        after = read_character(raw, after)[1]
    last = end
    while last > after and I64(item(table, read_character(raw, step_back(raw, last))[0])) & WORD_CHARACTER == 0:
        last = step_back(raw, last)
    start = last
    while start > after and I64(item(table, read_character(raw, step_back(raw, start))[0])) & WORD_CHARACTER:
        start = step_back(raw, start)
    number = read_number(raw, first, after, values)
    other = read_number(raw, start, last, values) if start > after else -1
    if number >= 0 and (other < 0 or is_digit(item(raw, first)) or not is_digit(item(raw, start))):
        return number, first, after
    return other, start, last


@helper
def hash_words(raw: Pointer, begin: int, end: int, number: int, after: int, table: Pointer) -> tuple[U64, int]:
    """The hash of the letters and digits of a line without those of its number, and the cases of these letters."""
    hashed, cases, at = FNV_BASIS, 0, begin
    while at < end:
        if at == number:
            at = after
            continue
        byte = I64(item(raw, at))
        if is_letter(byte):  # most characters, so they skip the table
            hashed, cases, at = (
                add_byte(hashed, byte),
                cases | (UPPER_LETTER if is_capital(byte) else LOWER_LETTER),
                at + 1,
            )
            continue
        code, following = read_character(raw, at)
        properties = I64(item(table, code))
        if properties & WORD_CHARACTER:
            cases |= properties & _LETTERS
            for i in range(at, following):
                hashed = add_byte(hashed, I64(item(raw, i)))
        at = following
    return hashed, cases


@helper
def is_full(fact: np.ndarray, following: np.ndarray, width: int) -> bool:
    """Whether the next word would not have fitted into a line without indentation, and there is no gap inside."""
    if fact[FLAGS] & NOT_PROSE:
        return False
    indent = int(fact[INDENT])
    return 5 * (fact[WIDTH] - indent) > 4 * width or 5 * (reach(fact, following) - indent) > 4 * width


@helper
def list_short_lines(
    raw: Pointer, facts: np.ndarray, width: int, table: Pointer, values: np.ndarray, marks: np.ndarray
) -> int:
    """Write the rows of lines that may be furniture by their length, and return how many there are.

    facts: of the lines of a document
    """
    count = 0
    for i in range(len(facts) - 1):
        if facts[i, FLAGS] & BLANK or is_full(facts[i], facts[i + 1], width):
            continue
        begin, end, row = facts[i, TEXT], facts[i, END], marks[count]
        number, first, after = find_number(raw, begin, end, table, values)
        if number < 0 and facts[i, FLAGS] & LOWER:  # the last lines of most paragraphs
            continue
        words, cases = hash_words(raw, begin, end, -1, -1, table)
        others = U64(0)
        if number >= 0:
            others, cases = hash_words(raw, begin, end, first, after, table)
            others ^= _NUMBERED_WORDS
        row[LINE], row[NUMBER], row[WORDS], row[OTHER_WORDS], row[CASES] = i, number, I64(words), I64(others), cases
        count += number >= 0 or cases != 0
    return count


@helper
def count_marks(marks: np.ndarray, seed: np.uint64) -> tuple[np.ndarray, np.ndarray]:
    """A hash table of the words of all rows, and of those beside numbers: keys and counts."""
    size = 8
    while size < 4 * len(marks):  # at most half full
        size *= 2
    keys, counts = np.zeros(size, np.uint64), np.zeros(size, np.int64)
    for row in marks:
        for column in range(WORDS, CASES):
            if row[column] != 0:
                key = U64(row[column]) | U64(1)
                slot = find_slot(keys, key, seed)
                keys[slot] = key
                counts[slot] += 1
    return keys, counts


@helper
def choose_kinds(facts: np.ndarray, marks: np.ndarray, seed: np.uint64) -> tuple[int, np.ndarray]:
    """Keep the rows of lines that may be furniture, with their kinds; how many, and how often words occur, by slot."""
    (keys, counts), num_kept = count_marks(marks, seed), 0
    for row in marks:
        cases, has_lower = row[CASES], row[CASES] & LOWER_LETTER != 0
        slot, kind = find_slot(keys, U64(row[WORDS]) | U64(1), seed), 0
        if cases and counts[slot] >= _LEAST_TIMES and facts[row[LINE], FLAGS] & LOWER == 0:
            kind = REPEATED
        elif row[NUMBER] >= 0:
            others = find_slot(keys, U64(row[OTHER_WORDS]) | U64(1), seed)
            if not has_lower or counts[others] >= _LEAST_TIMES:
                kind, slot = NUMBERED, others
        if kind == 0 and cases & UPPER_LETTER and not has_lower:
            kind = CAPITALS
        if kind:
            kept = marks[num_kept]
            kept[:] = row
            kept[KIND], kept[SLOT], kept[NUMBER] = kind, slot, row[NUMBER] if kind == NUMBERED else -1
            num_kept += 1
    return num_kept, counts


@helper
def interrupts(facts: np.ndarray, row: np.ndarray, marks: np.ndarray, width: int) -> bool:
    """Whether a break stands inside a sentence. row: of the break."""
    before, after = facts[row[BEFORE]], facts[row[AFTER]]
    flags = after[FLAGS]
    if (before[FLAGS] | flags) & NOT_PROSE or before[FLAGS] & STOP or flags & UPPER or 2 * after[WIDTH] <= width:
        return False
    if not flags & LOWER:
        for i in range(row[FIRST], row[LAST]):
            if facts[marks[i, LINE], FLAGS] & STOP:
                return False
    return continues(before, after, width, False, False)


@helper
def find_breaks(facts: np.ndarray, marks: np.ndarray, width: int, breaks: np.ndarray) -> int:
    """Write the rows of a document's breaks, and return how many there are. marks: of its lines."""
    count, mark = 0, 0
    while mark < len(marks):
        first, line, page, is_break = mark, marks[mark, LINE], -1, False
        after = line
        while after < len(facts):
            if mark < len(marks) and marks[mark, LINE] == after:
                is_break = is_break or marks[mark, KIND] != CAPITALS
                page = marks[mark, NUMBER] if marks[mark, NUMBER] >= 0 else page
                mark += 1
            elif facts[after, FLAGS] & BLANK == 0:
                break
            after += 1
        before = line - 1
        while before >= 0 and facts[before, FLAGS] & BLANK:
            before -= 1
        if is_break and mark - first <= _MOST_IN_BREAK and before >= 0 and after < len(facts):
            row = breaks[count]
            row[BEFORE], row[AFTER], row[FIRST], row[LAST], row[PAGE] = before, after, first, mark, page
            row[INTERRUPTS] = interrupts(facts, row, marks, width)
            count += 1
    return count


@helper
def is_next_page(row: np.ndarray, following: np.ndarray) -> bool:
    """Whether the number of one break may be that of a page soon after that of another."""
    steps, num_lines = int(following[PAGE] - row[PAGE]), int(following[BEFORE] - row[BEFORE])
    return 0 < steps <= _MOST_STEPS and num_lines >= _LEAST_PITCH * steps


@helper
def find_anchors(breaks: np.ndarray) -> np.ndarray:
    """Which breaks have numbers that are page numbers by each other: int64, ascending; empty if that is not sure."""
    numbered = np.flatnonzero((breaks[:, INTERRUPTS] > 0) & (breaks[:, PAGE] >= 0))
    anchors, count = np.empty(len(numbered), np.int64), 0
    for i in range(len(numbered)):
        has_next = i + 1 < len(numbered) and is_next_page(breaks[numbered[i]], breaks[numbered[i + 1]])
        follows = i > 0 and is_next_page(breaks[numbered[i - 1]], breaks[numbered[i]])
        if (has_next or follows) and (count == 0 or breaks[anchors[count - 1], PAGE] < breaks[numbered[i], PAGE]):
            anchors[count] = numbered[i]
            count += 1
    if count < _LEAST_ANCHORS:
        return anchors[:0]
    found = breaks[anchors[:count]]
    pitches = (found[1:, BEFORE] - found[:-1, BEFORE]) / (found[1:, PAGE] - found[:-1, PAGE])
    median = np.sort(pitches)[(count - 1) // 2]
    num_even = np.count_nonzero((pitches >= 0.8 * median) & (pitches <= 1.25 * median))
    return anchors[:count] if 2 * num_even >= count - 1 else anchors[:0]


@helper
def choose_numbered(marks: np.ndarray, breaks: np.ndarray, anchors: np.ndarray, in_anchors: np.ndarray) -> None:
    """Take KIND from the numbered lines of breaks that are no page numbers, and from those of other lines.

    in_anchors: scratch, zeros, a slot for each words
    """
    for anchor in anchors:
        for i in range(breaks[anchor, FIRST], breaks[anchor, LAST]):
            in_anchors[marks[i, SLOT]] = 1
    following = 0
    for number in range(len(breaks)):
        while following < len(anchors) and anchors[following] < number:
            following += 1
        for i in range(breaks[number, FIRST], breaks[number, LAST]):
            if marks[i, KIND] != NUMBERED:
                continue
            page, is_page = marks[i, NUMBER], len(anchors) > 0 and in_anchors[marks[i, SLOT]] > 0
            if is_page:
                after = breaks[anchors[min(following, len(anchors) - 1)], PAGE]
                before = breaks[anchors[max(following - 1, 0)], PAGE]
                low = before if following > 0 else after - _MOST_STEPS
                high = after if following < len(anchors) else before + _MOST_STEPS
                is_page = low <= page <= high
            marks[i, KIND] = NUMBERED if is_page else 0


@helper
def choose_repeated(marks: np.ndarray, breaks: np.ndarray, counts: np.ndarray) -> None:
    """Take KIND from the repeated lines of breaks that are no running heads. counts: of each slot, in the document."""
    num_interrupting, is_seen = np.zeros_like(counts), np.zeros_like(counts)
    for row in breaks:
        for i in range(row[FIRST], row[LAST]):
            num_interrupting[marks[i, SLOT]] += row[INTERRUPTS] * (marks[i, KIND] == REPEATED)
    for row in breaks:
        for i in range(row[FIRST], row[LAST]):
            slot = marks[i, SLOT]
            if marks[i, KIND] == REPEATED:
                is_head = num_interrupting[slot] >= 2 and 5 * num_interrupting[slot] >= counts[slot]
                marks[i, KIND] = REPEATED if is_head and (is_seen[slot] or row[INTERRUPTS]) else 0
                is_seen[slot] = 1


@helper
def remove_break(facts: np.ndarray, marks: np.ndarray, row: np.ndarray, width: int, removed: np.ndarray) -> None:
    """Write what becomes of the lines of a break. Its blank lines go with it if the paragraph continues after it."""
    num_removed = 0
    for i in range(row[FIRST], row[LAST]):
        num_removed += marks[i, KIND] in (NUMBERED, REPEATED)
    takes_capitals = num_removed > 0 and row[INTERRUPTS] > 0
    for i in range(row[FIRST], row[LAST]):
        if marks[i, KIND] in (NUMBERED, REPEATED) or takes_capitals and marks[i, KIND] == CAPITALS:
            removed[marks[i, LINE]] = FURNITURE
    before, after = facts[row[BEFORE]], facts[row[AFTER]]
    if before[FLAGS] & STOP or not continues(before, after, width, False, False):
        return
    for i in range(row[BEFORE] + 1, row[AFTER]):
        if facts[i, FLAGS] & BLANK == 0 and removed[i] != FURNITURE:
            return
    for i in range(row[BEFORE] + 1, row[AFTER]):
        removed[i] = FURNITURE if removed[i] == FURNITURE else BLANK_OF_BREAK


@kernel
def find_furniture(
    raw: np.ndarray,
    facts: np.ndarray,
    document_lines: np.ndarray,
    widths: np.ndarray,
    properties: np.ndarray,
    seed: np.uint64,
) -> np.ndarray:
    """What becomes of each line: uint8, KEPT, FURNITURE or BLANK_OF_BREAK.

    widths: of documents; seed: see `find_slot`
    """
    removed = np.zeros(len(facts), np.uint8)
    source, table, values = pointer(raw), pointer(properties), _NUMERAL_VALUES
    for document in range(len(widths)):
        begin, end, width = document_lines[document], document_lines[document + 1], widths[document]
        if width == 0 or end - begin < _LEAST_LINES:
            continue
        lines, marks = facts[begin:end], np.zeros((end - begin, NUM_MARKS), np.int64)
        marks = marks[: list_short_lines(source, lines, width, table, values, marks)]
        num_marks, counts = choose_kinds(lines, marks, seed)
        marks = marks[:num_marks]
        breaks = np.zeros((num_marks, NUM_BREAK_FACTS), np.int64)
        breaks = breaks[: find_breaks(lines, marks, width, breaks)]
        choose_numbered(marks, breaks, find_anchors(breaks), np.zeros_like(counts))
        choose_repeated(marks, breaks, counts)
        for row in breaks:
            remove_break(lines, marks, row, width, removed[begin:end])
    return removed


# ---- 3. how each line continues in the next one ----

_LONGEST = 160  # columns of a line that a program has wrapped
_LEAST_WIDTH, _USUAL_WIDTH = 32, 60
_FEW_LINES = 16
_VERSE_LINES = 4

# How a line continues in the next one.
ENDS = 0  # not at all: the paragraph ends
WITH_SPACE, WITH_NOTHING = 1, 2  # with what between
WITHOUT_HYPHEN = 3  # with nothing between, and without its last character, which is a hyphen
UNDECIDED = 4  # until `decide_hyphens`


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
    if flags & CASELESS and after & WORD_FIRST and (has_stop or after & NUMBER_END and 2 * following[WIDTH] < width):
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
def find_widths(facts: np.ndarray, document_lines: np.ndarray) -> np.ndarray:
    """The width that each document is wrapped at: int64, 0 if it does not look wrapped."""
    counts, widths = np.zeros(_LONGEST + 1, np.int64), np.zeros(len(document_lines) - 1, np.int64)
    for document in range(len(widths)):
        widths[document] = find_width(facts, document_lines[document], document_lines[document + 1], counts)
    return widths


@kernel
def choose_joins(facts: np.ndarray, document_lines: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """How each line continues in the next one: uint8, ENDS, WITH_SPACE and so on. widths: see `find_widths`."""
    joins = np.zeros(len(facts), np.uint8)
    for document in range(len(document_lines) - 1):
        i, end = document_lines[document], document_lines[document + 1]
        width, by_indent = widths[document], indents_paragraphs(facts, i, end)
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


# ---- 4. hyphens at the ends of lines: dropped in a broken word, kept in a compound ----
#
#     ... of an ex-        The break has two halves, the head "ex" and the tail "ample", and two possible words:
#     ample that ...       joined, "example", and hyphenated, "ex-ample". The other lines of the document decide.
#
# Counted is how often each of the four stands inside the lines of the document; the case of ASCII letters does not
# matter. For example:
#
#     JOINED  HYPHENATED  HEAD  TAIL
#          2           0     0     0    the more frequent word wins, and votes: the hyphen is dropped
#          0           1     3     1    the same: it stays
#          0           0     3     1    equally frequent, but both halves are words: it stays
#          0           0     3     0    as most of the votes in this document say; without a majority it stays
#
# In three cases nothing is counted (`read_break`): the hyphen stays where another ASCII hyphen is next to a half
# ("five-and-" before "twenty"), and after a digit; before a conjunction it stays too, and a space follows ("pre- and
# post-war").
#
# The words of all breaks of a document lie in one hash table with open addressing: `keys`, uint64, the hash of a word
# with its lowest bit set (0 is a free slot), and `counts`, int64. Only words that it holds are counted.

_CONJUNCTIONS = np.array([hash_bytes(word) for word in (b"and", b"or", b"to", b"und", b"oder", b"bis")], np.uint64)
# Against words that were chosen to collide. It moves slots only, so no result depends on it.
_SEED = U64(secrets.randbits(64))
JOINED, HYPHENATED, HEAD, TAIL = range(4)


def decide_hyphens(
    raw: np.ndarray, facts: np.ndarray, document_lines: np.ndarray, joins: np.ndarray, properties: np.ndarray
) -> None:
    """Replace each UNDECIDED in `joins` by WITHOUT_HYPHEN, WITH_NOTHING or, after a suspended hyphen, WITH_SPACE."""
    undecided = np.flatnonzero(joins == UNDECIDED)
    if len(undecided) == 0:
        return
    bounds = np.searchsorted(undecided, document_lines)
    for document in np.flatnonzero(np.diff(bounds)):
        lines = facts[document_lines[document] : document_lines[document + 1]]
        breaks = undecided[bounds[document] : bounds[document + 1]]
        joins[breaks] = decide_breaks(raw, lines, breaks - document_lines[document], properties, _CONJUNCTIONS, _SEED)


@helper
def add_folded(state: U64, byte: int) -> U64:
    """Hash a byte, an ASCII capital as its small letter."""
    return add_byte(state, byte | CASE_BIT if is_capital(byte) else byte)


@helper
def hash_word(raw: Pointer, at: int, end: int, state: U64, table: Pointer) -> tuple[U64, int]:
    """Hash the letters from a position on; also returns where they end. state: of the bytes before."""
    while at < end:
        byte = I64(item(raw, at))
        if byte < 0x80:
            if not is_letter(byte):
                break
            state = add_byte(state, byte | CASE_BIT)
            at += 1
            continue
        code, after = read_character(raw, at)
        if I64(item(table, code)) & ALPHA == 0:
            break
        for i in range(at, after):
            state = add_folded(state, I64(item(raw, i)))
        at = after
    return state, at


@helper
def find_word_begin(raw: Pointer, begin: int, end: int, table: Pointer) -> int:
    """Where the letters before `end` begin."""
    while end > begin:
        at = step_back(raw, end)
        if I64(item(table, read_character(raw, at)[0])) & ALPHA == 0:
            break
        end = at
    return end


@helper
def find_slot(keys: np.ndarray, key: U64, seed: U64) -> int:
    """The slot of a key in an open-addressing hash table, or the free slot where it belongs. Keys are not 0.

    seed: unknown to the author of a text, who could otherwise choose words that share few slots. What the table holds
    for a key does not depend on it.
    """
    slot = I64(mix(key ^ seed) & U64(len(keys) - 1))
    while keys[slot] != U64(0) and keys[slot] != key:
        slot = (slot + 1) & (len(keys) - 1)
    return int(slot)


@helper
def count_word(keys: np.ndarray, counts: np.ndarray, hashed: U64, seed: U64) -> None:
    """Count a word if `keys` holds it."""
    slot = find_slot(keys, hashed | U64(1), seed)
    counts[slot] += keys[slot] != U64(0)


@helper
def count_words(
    raw: Pointer, begin: int, end: int, table: Pointer, keys: np.ndarray, counts: np.ndarray, seed: U64
) -> None:
    """Count in a line the words that `keys` holds: runs of letters, and two of them with one hyphen between."""
    at = begin
    pair, pair_at = U64(0), -1  # the hash of the last word and its hyphen, and the position after that hyphen
    while at < end:
        word, after = hash_word(raw, at, end, FNV_BASIS, table)
        if after == at:
            _, at = read_character(raw, at)
            continue
        count_word(keys, counts, word, seed)
        if at == pair_at:
            count_word(keys, counts, hash_word(raw, at, end, pair, table)[0], seed)
        at = after
        if at < end:
            code, after = read_character(raw, at)
            if code in (HYPHEN_MINUS, UNICODE_HYPHEN):
                pair, pair_at, at = add_byte(word, HYPHEN_MINUS), after, after


@helper
def read_break(
    raw: Pointer, fact: np.ndarray, following: np.ndarray, table: Pointer, conjunctions: np.ndarray, words: np.ndarray
) -> int:
    """Write the keys of the four words of a break to `words`, and return how its lines are joined.

    That is UNDECIDED if counts decide.
    """
    hyphen = step_back(raw, fact[END])
    begin, end = find_word_begin(raw, fact[TEXT], hyphen, table), following[END]
    head, _ = hash_word(raw, begin, hyphen, FNV_BASIS, table)
    tail, after = hash_word(raw, following[TEXT], end, FNV_BASIS, table)
    joined, _ = hash_word(raw, following[TEXT], end, head, table)
    hyphenated, _ = hash_word(raw, following[TEXT], end, add_byte(head, HYPHEN_MINUS), table)
    words[JOINED], words[HYPHENATED] = joined | U64(1), hyphenated | U64(1)
    words[HEAD], words[TAIL] = head | U64(1), tail | U64(1)
    if after < end and item(raw, after) == HYPHEN_MINUS:  # "day-" before "to-day"
        return WITH_NOTHING
    if begin > fact[TEXT] and item(raw, begin - 1) == HYPHEN_MINUS:  # "five-and-"
        return WITH_NOTHING
    if begin == hyphen:  # after a digit: "12-" before "year"
        return WITH_NOTHING
    for conjunction in conjunctions:
        if tail == conjunction:
            return WITH_SPACE
    return UNDECIDED


@kernel
def decide_breaks(
    raw: np.ndarray,
    facts: np.ndarray,
    breaks: np.ndarray,
    properties: np.ndarray,
    conjunctions: np.ndarray,
    seed: np.uint64,
) -> np.ndarray:
    """How the lines `breaks` of a document, which end in a hyphen, continue: uint8.

    facts: of the document's lines
    properties: of all characters
    conjunctions: uint64, their hashes
    seed: see `find_slot`
    """
    source, table = pointer(raw), pointer(properties)
    size = 8
    while size < 8 * len(breaks):  # at most half full: each break has four words
        size *= 2
    keys, counts = np.zeros(size, np.uint64), np.zeros(size, np.int64)
    words, slots = np.zeros(4, np.uint64), np.zeros((len(breaks), 4), np.int64)
    joins = np.empty(len(breaks), np.uint8)
    for i in range(len(breaks)):
        joins[i] = read_break(source, facts[breaks[i]], facts[breaks[i] + 1], table, conjunctions, words)
        for word in range(4):
            slots[i, word] = find_slot(keys, words[word], seed)
            keys[slots[i, word]] = words[word]
        counts[slots[i, HEAD]] -= 1  # `count_words` counts the halves at this break as words, which they are not
        counts[slots[i, TAIL]] -= 1
    for i in range(len(facts)):
        count_words(source, facts[i, TEXT], facts[i, END], table, keys, counts, seed)
    votes = 0
    for i in range(len(breaks)):
        if joins[i] == UNDECIDED:
            margin = counts[slots[i, JOINED]] - counts[slots[i, HYPHENATED]]
            if margin != 0:
                joins[i] = WITHOUT_HYPHEN if margin > 0 else WITH_NOTHING
                votes += 1 if margin > 0 else -1
            elif counts[slots[i, HEAD]] > 0 and counts[slots[i, TAIL]] > 0:
                joins[i] = WITH_NOTHING
    for i in range(len(breaks)):
        if joins[i] == UNDECIDED:
            joins[i] = WITHOUT_HYPHEN if votes > 0 else WITH_NOTHING
    return joins


# ---- 5. the text with its lines joined ----


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
