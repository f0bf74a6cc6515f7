"""What a line shows of where a paragraph ends: its width, how it begins and how it ends.

In: valid UTF-8. Out: facts of each line, blank ones included, for unwrapping.py. A character of East Asian width counts
two columns, each other one. What is a letter, its case and its script come from the shipped Unicode tables.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from albert_data.corpus.utf8 import is_white
from albert_data.kernels import I64, Pointer, helper, item, kernel, pointer
from albert_data.unicode_tables import categories, scripts

# The columns of `facts`, an int64 row for each line. BEGIN .. END: the line without ASCII white space around it;
# TEXT: its first character that is no space of any width; WIDTH: columns up to END, with INDENT, of which at most
# MAX_INDENT count; WORD: columns of the first word.
BEGIN, TEXT, END, INDENT, WIDTH, WORD, FLAGS = range(7)
NUM_FACTS = 7
MAX_INDENT = 60

BLANK = 1
ODD = 2  # a row of a table (a tab or four spaces in it), or no letter or digit
LOWER, UPPER = 4, 8  # the case of the first letter, quotes, brackets and dashes before it left aside
STOP = 16  # ends in a stop, quotes and brackets after it left aside
MARK = 32  # begins with the mark of a list or the dash of a dialogue
HYPHEN, SOFT = 64, 128  # ends in a hyphen after a letter or digit; in a soft hyphen
DASH_END, DASH_START = 256, 512  # ends or begins with a dash that has no space on its inner side
GLUED_END, GLUED_START = 1024, 2048  # the last, the first letter is of a script without spaces
EDGE_END, EDGE_START = 4096, 8192  # the last, the first character is a mark of such a script
LOWER_FIRST, WORD_FIRST = 16384, 32768  # the first character is a lower-case letter; a letter or digit

# The bits of a character.
_LOWER, _UPPER, ALPHA, _WORD, _GLUED, _WIDE, _STOP, _CLOSING, _OPENING = (1 << bit for bit in range(9))
_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "YI", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
_GLUED_RANGES = ((0x3001, 0x3040), (0x30FB, 0x3100), (0xFE30, 0xFE50), (0xFF00, 0xFF66))
_WIDE_RANGES = (
    *((0x1100, 0x1160), (0x2E80, 0x303F), (0x3041, 0xA4D0), (0xAC00, 0xD7A4), (0xF900, 0xFB00)),
    *((0xFE30, 0xFE50), (0xFF00, 0xFF61), (0xFFE0, 0xFFE7), (0x1F300, 0x1FB00), (0x20000, 0x3FFFE)),
)
_STOPS = ".!?:…‼⁇⁈⁉。！？：．｡؟۔।॥།༎။።፧፨։᙮꓿"
_QUOTES = "\"'`*_"


@cache
def character_classes() -> np.ndarray:
    """The bits of each code point: uint16."""
    table = np.zeros(0x110000, np.uint16)
    numbers, names = categories()
    bits = dict.fromkeys(names, 0)
    for name in names:
        bits[name] |= {"L": ALPHA | _WORD, "M": ALPHA | _WORD, "N": _WORD}.get(name[0], 0)
    bits["Ll"] |= _LOWER
    bits["Lu"] |= _UPPER
    bits["Lt"] |= _UPPER
    for name, bit in (("Pe", _CLOSING), ("Pi", _CLOSING | _OPENING), ("Pf", _CLOSING | _OPENING), ("Ps", _OPENING)):
        bits[name] |= bit
    bits["Pd"] |= _OPENING
    table |= np.array([bits[name] for name in names], np.uint16)[numbers]
    numbers, names = scripts()
    table[np.isin(numbers, [names.index(name) for name in _WITHOUT_SPACES])] |= _GLUED
    for ranges, bit in ((_GLUED_RANGES, _GLUED), (_WIDE_RANGES, _WIDE)):
        for first, end in ranges:
            table[first:end] |= bit
    table[[ord(stop) for stop in _STOPS]] |= _STOP
    table[[ord(quote) for quote in _QUOTES]] |= _CLOSING | _OPENING
    table[[ord("¿"), ord("¡")]] |= _OPENING
    table.flags.writeable = False
    return table


@helper
def read_code(raw: Pointer, at: int) -> tuple[int, int]:
    """The character at a place of valid UTF-8, and where the next one begins."""
    first = I64(item(raw, at))
    if first < 0x80:
        return first, at + 1
    second = I64(item(raw, at + 1)) & 0x3F
    if first < 0xE0:
        return (first & 0x1F) << 6 | second, at + 2
    third = I64(item(raw, at + 2)) & 0x3F
    if first < 0xF0:
        return (first & 0xF) << 12 | second << 6 | third, at + 3
    return (first & 7) << 18 | second << 12 | third << 6 | I64(item(raw, at + 3)) & 0x3F, at + 4


@helper
def skip_indent(raw: Pointer, start: int, end: int) -> tuple[int, int, int]:
    """Where the ASCII white space of a line ends, where all white space at its beginning ends, and its columns."""
    at, begin, indent = start, -1, 0
    while at < end:
        byte = item(raw, at)
        if is_white(byte):
            indent = (indent // 8 + 1) * 8 if byte == 9 else indent + 1
            at += 1
            continue
        begin = at if begin < 0 else begin
        code, after = read_code(raw, at)
        if code != 0x3000 and code != 0xA0:
            break
        indent += 2 if code == 0x3000 else 1
        at = after
    return end if begin < 0 else begin, at, min(indent, MAX_INDENT)


@helper
def is_roman(byte: int) -> bool:
    folded = byte | 32
    return folded == 105 or folded == 118 or folded == 120 or folded == 108 or folded == 99


@helper
def is_letter(byte: int) -> bool:
    return 97 <= byte | 32 <= 122


@helper
def is_digit(byte: int) -> bool:
    return 48 <= byte <= 57


@helper
def has_mark(raw: Pointer, at: int, end: int) -> bool:
    """Whether a line begins with `-`, `*`, `+`, a bullet or a dash, `12.`, `iv)`, `a.` or `(3)`, and white space.

    A capital letter and a full stop are an initial.
    """
    code, after = read_code(raw, at)
    if after < end and is_white(item(raw, after)):
        if code == 45 or code == 42 or code == 43 or code == 0xB7 or 0x2012 <= code <= 0x2015:
            return True
        if code == 0x2022 or code == 0x2023 or code == 0x25AA or code == 0x25E6:
            return True
    is_open = code == 40
    first = at = after if is_open else at
    while at < end and is_digit(item(raw, at)):
        at += 1
    if at == first:
        while at < end and is_roman(item(raw, at)):
            at += 1
        if at < end and at <= first + 1 and is_letter(item(raw, first)):
            at = first + 1
    most = 3 if is_digit(item(raw, first)) else 5
    if at == first or at - first > most or at + 1 >= end:
        return False
    closing = item(raw, at)
    if closing == 46 and at == first + 1 and 65 <= item(raw, first) <= 90:
        return False
    return (closing == 41 or closing == 46 and not is_open) and is_white(item(raw, at + 1))


@helper
def is_dash(code: int) -> bool:
    return code == 45 or code == 0x2014 or code == 0x2015


@helper
def has_dash_start(raw: Pointer, at: int, end: int) -> bool:
    """Whether a line begins with `--` or a long dash, and what follows with no space between."""
    dashes, is_long = 0, False
    while at < end:
        code, after = read_code(raw, at)
        if not is_dash(code):
            return (dashes > 1 or is_long) and not is_white(code)
        dashes, is_long, at = dashes + 1, is_long or code != 45, after
    return False


@helper
def measure_text(raw: Pointer, at: int, end: int, classes: Pointer) -> tuple[int, int, int]:
    """Columns, columns of the first word, and flags of a line without the white space around it; it is not empty."""
    flags, columns, word, gap = 0, 0, -1, 0
    last, before, before_dashes, num_dashes = 32, 32, 32, 0
    core, has_begun, num_skipped, num_letters = 0, False, 0, 0
    start = at
    while at < end:
        if has_begun and word >= 0 and is_letter(item(raw, at)):  # most of a text: nothing is told by single letters
            first = at
            while at < end and is_letter(item(raw, at)):
                at += 1
            before = I64(item(raw, at - 2)) if at - first > 1 else last
            last = I64(item(raw, at - 1))
            core, columns, num_letters = ALPHA, columns + at - first, num_letters + at - first
            flags, gap, num_dashes = flags & ~GLUED_END, 0, 0
            continue
        code, after = read_code(raw, at)
        if is_white(code):
            gap += 1
            if code == 9 or gap >= 4 and columns >= 8:
                flags |= ODD
            word = columns if word < 0 else word
            columns, last, before, num_dashes, at = columns + 1, 32, last, 0, after
            continue
        kind, gap = I64(item(classes, code)), 0
        columns += 2 if kind & _WIDE else 1
        if at == start:
            word = columns if kind & _GLUED else -1
            flags |= LOWER_FIRST if kind & _LOWER else 0
            flags |= WORD_FIRST if kind & _WORD else 0
            flags |= EDGE_START if kind & _GLUED and not kind & _WORD else 0
        if not has_begun:
            num_skipped += 1
            if kind & _WORD or not kind & _OPENING or num_skipped > 8:
                has_begun = True
                flags |= LOWER if kind & _LOWER else UPPER if kind & _UPPER else 0
        if kind & _WORD:
            if num_letters == 0 and kind & _GLUED:
                flags |= GLUED_START
            flags = flags | GLUED_END if kind & _GLUED else flags & ~GLUED_END
            num_letters += 1
        core = core if kind & _CLOSING else kind
        if is_dash(code):
            before_dashes = last if num_dashes == 0 else before_dashes
            num_dashes += 1
        else:
            num_dashes = 0
        last, before, at = code, last, after
    kind = I64(item(classes, last))
    flags |= ODD if num_letters == 0 else 0
    flags |= STOP if core & _STOP else 0
    flags |= EDGE_END if kind & _GLUED and not kind & _WORD else 0
    if (last == 45 or last == 0x2010) and I64(item(classes, before)) & _WORD:
        flags |= HYPHEN
    elif last == 0xAD:
        flags |= SOFT
    elif num_dashes > 0 and (num_dashes > 1 or last != 45) and before_dashes != 32:
        flags |= DASH_END
    return columns, columns if word < 0 else word, flags


@kernel
def measure_lines(
    raw: np.ndarray, ends: np.ndarray, ends_at_blank: bool, classes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int, int]:
    """The facts of all lines, the lines at which documents begin and the last one ends, the bytes of the longest line,
    and those of the longest document.

    ends: int64, where documents end, if that is not at blank lines.
    """
    source, kinds = pointer(raw), pointer(classes)
    num_lines = 1
    for at in range(len(raw)):
        num_lines += item(source, at) == 10
    facts = np.zeros((num_lines, NUM_FACTS), np.int64)
    document_lines = np.zeros((num_lines if ends_at_blank else len(ends)) + 1, np.int64)
    row, num_documents, start, begun, longest_line, longest_document = 0, 0, 0, 0, 0, 0
    while start < len(raw):
        stop = start
        while stop < len(raw) and item(source, stop) != 10:
            stop += 1
        end = stop
        while end > start and is_white(item(source, end - 1)):
            end -= 1
        begin, text, indent = skip_indent(source, start, end)
        fact = facts[row]
        fact[BEGIN], fact[TEXT], fact[END], fact[INDENT] = begin, text, end, indent
        if begin == end:
            fact[FLAGS] = BLANK
        elif text == end:
            fact[FLAGS] = ODD
        else:
            columns, word, flags = measure_text(source, text, end, kinds)
            fact[WIDTH], fact[WORD] = indent + columns, word
            fact[FLAGS] = flags | (MARK if has_mark(source, text, end) else 0)
            fact[FLAGS] |= DASH_START if has_dash_start(source, text, end) else 0
        longest_line = max(longest_line, end - begin)
        row, start = row + 1, stop + 1
        if begin == end if ends_at_blank else num_documents < len(ends) and start >= ends[num_documents]:
            longest_document = max(longest_document, stop - begun)
            num_documents, begun = num_documents + 1, start
            document_lines[num_documents] = row
    if document_lines[num_documents] < row or num_documents < len(ends):
        longest_document = max(longest_document, len(raw) - begun)
        num_documents += 1
        document_lines[num_documents] = row
    return facts[:row], document_lines[: num_documents + 1], longest_line, longest_document
