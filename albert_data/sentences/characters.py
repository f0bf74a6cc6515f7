"""The class of each character in the rule of sentences, and how kernels read classes from UTF-8.

In: the shipped Unicode tables and the lists below. Out: tables of classes, and helpers that look them up. Classes from
BULLET on can decide where sentences end, and the main loop stops at them; it skips all others.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from albert_data.kernels import U64, Pointer, count_trailing_zeros, helper, item, load_u64, pointer
from albert_data.unicode_tables import categories
from albert_data.utf8 import find_width, read_character, step_back

# LOWER, UPPER: letters with case. OTHER: letters without. HANGUL: letters of Korean. IDEO: letters of Chinese, Japanese
# and Yi, which have stops but no spaces (Thai, without stops, is OTHER). DIGIT. ACCENT: belongs to the word before it:
# accents, raised numbers. BLANK: white space and controls. JOIN: joins the parts of a word. COMMA: a sentence continues
# after it. DASH. LEADING: may stand before the first word of a sentence. PLAIN: all others.
PLAIN, LOWER, UPPER, OTHER, HANGUL, IDEO, DIGIT, ACCENT, BLANK, JOIN, COMMA, DASH, LEADING = range(13)
# DOT: may belong to an abbreviation. EXCLAIM: ends a sentence before white space. FULL: ends one anywhere. ELLIPSIS.
# WIDE_DOT: as FULL, unless a letter with case or a digit follows. DOUBLE: ends a sentence where two stand together.
BULLET, DOT, EXCLAIM, FULL, ELLIPSIS, WIDE_DOT, DOUBLE, STRAIGHT_SINGLE, STRAIGHT_DOUBLE, LINE_FEED = range(13, 23)
# From here on each group of marks has two classes: an even one for its opening marks, an odd one for its closing marks.
# So 23 is no class.
FIRST_PAIR = 24
(
    ROUND,
    SQUARE,
    TITLE_MARKS,
    CORNER,
    WHITE_CORNER,
    ANGLE,
    DOUBLE_CURLY,
    SINGLE_CURLY,
    STRAIGHT_DOUBLE_GROUP,
    STRAIGHT_SINGLE_GROUP,
) = range(10)
FIRST_QUOTE_GROUP = CORNER  # the groups from here on are quotation marks
CLOSE_ROUND = FIRST_PAIR + 2 * ROUND + 1
OPEN_SQUARE, CLOSE_SQUARE = FIRST_PAIR + 2 * SQUARE, FIRST_PAIR + 2 * SQUARE + 1
CLOSE_SINGLE = FIRST_PAIR + 2 * SINGLE_CURLY + 1  # also the apostrophe

_CATEGORIES = {
    LOWER: ("Ll",),
    UPPER: ("Lu", "Lt"),
    OTHER: ("Lo", "Lm", "Nl"),
    DIGIT: ("Nd",),
    ACCENT: ("Mn", "Mc", "Me", "Cf"),
    BLANK: ("Zs", "Cc"),
}
_RANGES = {
    OTHER: ((0x10D0, 0x10FF),),  # Georgian: lower case by its category, but sentences begin with it
    HANGUL: ((0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xD7A3)),
    IDEO: (
        *((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3031, 0x3035), (0x3041, 0x30FA), (0x30FC, 0x312F)),
        *((0x31A0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA48C), (0xF900, 0xFAFF), (0xFF66, 0xFF9D)),
        (0x20000, 0x3FFFD),
    ),
}
_LISTED = {
    PLAIN: "\N{ZERO WIDTH SPACE}",  # a place for a line break, so it separates words
    ACCENT: "°¹²³⁰⁴⁵⁶⁷⁸⁹\N{HALFWIDTH KATAKANA VOICED SOUND MARK}\N{HALFWIDTH KATAKANA SEMI-VOICED SOUND MARK}",
    JOIN: "-‐‑/&·",
    COMMA: ",;:、，；：،؛・",
    DASH: "–—―‒⸺⸻─━",
    LEADING: "¿¡*_",
    BULLET: "•◦▪▫⁃‣●○■□◆◇▶►➢➤✓✔",
    DOT: ".",
    # With the Armenian marks and the Tibetan shad. Where no white space follows, all of these stand inside a word or
    # belong to a name.
    EXCLAIM: "!?‼⁇⁈⁉‽⸮\u037e\u055c\u055e\u0f0d\u0f0e\u0f11",
    ELLIPSIS: "…‥⋯",
    WIDE_DOT: "．",
    DOUBLE: "\N{ETHIOPIC WORDSPACE}",
    STRAIGHT_SINGLE: "'",
    STRAIGHT_DOUBLE: '"',
    LINE_FEED: "\n",
}
# Full stops, question and exclamation marks of all scripts that need no white space after them.
_FULL_STOPS = (
    "。！？｡։۔؟؞\u061d\u061f\u0700\u0701\u0702\u07f9\u0837\u0839\u083d\u083e।॥။።፧፨᙮᜵᜶។៕៚๚๛᠃᠉᥄᥅᪨᪩᪪᪫᭚᭛᭞᭟᰻᰼᱾᱿\u2e3c﹒﹖﹗"
    "\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d\uaa5e\uaa5f\uaaf0\uaaf1\uabeb"
    "\U00010a56\U00010a57\U00011047\U00011048\U000110be\U000110bf\U000110c0\U000110c1\U00011141\U00011142\U00011143"
    "\U000111c5\U000111c6\U000111cd\U00011238\U00011239\U0001144b\U0001144c\U000115c2\U000115c3\U00011641\U00011642"
    "\U0001173c\U0001173d\U0001173e\U00016a6e\U00016a6f\U00016af5\U00016b37\U00016b38\U00016b44\U0001bc9f"
)
_PAIRS = {
    ROUND: "()（）﹙﹚⦅⦆",
    SQUARE: "[]［］【】〔〕〖〗{}｛｝",
    TITLE_MARKS: "《》〈〉⟨⟩",
    CORNER: "「」｢｣﹁﹂",
    WHITE_CORNER: "『』﹃﹄",
    ANGLE: "«»‹›",
    DOUBLE_CURLY: "“”„”‟”〝〞",
    SINGLE_CURLY: "‘’‚’",
}


LAST_SLOT, HAS_ORDINALS = 0, 1


class RuledText(NamedTuple):
    """Text, and the rule of its language. Arrays in Python, pointers in helpers.

    utf8: uint8, lines, each followed by a line feed; ascii_classes: uint8, of the ASCII characters in this language;
    classes: uint8, of all code points; hashes: uint64, word_classes: uint16: a hash table of words; settings: int64, at
    LAST_SLOT the last slot of that table, at HAS_ORDINALS whether a full stop after a number makes it an ordinal.
    """

    utf8: np.ndarray
    ascii_classes: np.ndarray
    classes: np.ndarray
    hashes: np.ndarray
    word_classes: np.ndarray
    settings: np.ndarray


class Line(NamedTuple):
    """One line in the kernels: `source` (pointers), and its text begin .. end, which is canonical.

    state: what is known of it so far (see marks.py); ends: where the sentences of all lines end; those of this line
    begin at index first_end.
    """

    source: RuledText
    begin: int
    end: int
    state: Pointer
    ends: Pointer
    first_end: int


@cache
def make_classes() -> np.ndarray:
    """The class of each code point: uint8."""
    numbers, names = categories()
    by_category = np.full(len(names), PLAIN, np.uint8)
    for char_class, members in _CATEGORIES.items():
        by_category[[names.index(name) for name in members]] = char_class
    classes: np.ndarray = by_category[numbers]
    is_letter = (classes >= LOWER) & (classes <= OTHER)
    for char_class, ranges in _RANGES.items():
        for first, last in ranges:
            classes[first : last + 1][is_letter[first : last + 1]] = char_class
    for char_class, characters in {**_LISTED, FULL: _FULL_STOPS}.items():
        classes[list(map(ord, characters))] = char_class
    for group, characters in _PAIRS.items():
        classes[list(map(ord, characters[::2]))] = FIRST_PAIR + 2 * group
        classes[list(map(ord, characters[1::2]))] = FIRST_PAIR + 2 * group + 1
    classes.flags.writeable = False
    return classes


@helper
def point_to_source(source: RuledText) -> RuledText:
    return RuledText(
        pointer(source.utf8),
        pointer(source.ascii_classes),
        pointer(source.classes),
        pointer(source.hashes),
        pointer(source.word_classes),
        pointer(source.settings),
    )


@helper
def step(source: RuledText, at: int) -> int:
    """The position of the next character."""
    return at + find_width(item(source.utf8, at))


@helper
def read_class(source: RuledText, at: int) -> int:
    """The class of the character at a position."""
    first = item(source.utf8, at)
    if first < 0x80:
        return int(item(source.ascii_classes, first))
    return int(item(source.classes, read_character(source.utf8, at)[0]))


@helper
def class_at(line: Line, at: int) -> int:
    """As read_class; BLANK at the end of the line."""
    return read_class(line.source, at) if at < line.end else BLANK


@helper
def class_before(line: Line, at: int) -> int:
    """The class of the character before a position; BLANK at the beginning of the line."""
    return read_class(line.source, step_back(line.source.utf8, at)) if at > line.begin else BLANK


@helper
def is_letter(char_class: int) -> bool:
    return LOWER <= char_class <= IDEO


@helper
def is_letter_or_digit(char_class: int) -> bool:
    return LOWER <= char_class <= DIGIT


@helper
def is_stop(char_class: int) -> bool:
    return DOT <= char_class <= DOUBLE


@helper
def is_opening(char_class: int) -> bool:
    return char_class >= FIRST_PAIR and char_class & 1 == 0


@helper
def is_closing(char_class: int) -> bool:
    return char_class >= FIRST_PAIR and char_class & 1 == 1


@helper
def skip_blanks(line: Line, at: int) -> int:
    while at < line.end and read_class(line.source, at) == BLANK:
        at = step(line.source, at)
    return at


@helper
def skip_blanks_back(line: Line, at: int) -> int:
    while at > line.begin and class_before(line, at) == BLANK:
        at = step_back(line.source.utf8, at)
    return at


_EACH_BYTE = 0x0101010101010101
_HIGH_BIT, _LOW_BITS, _CASE_BIT = U64(0x80 * _EACH_BYTE), U64(0x7F * _EACH_BYTE), U64(0x20 * _EACH_BYTE)
_FROM_A, _BEYOND_Z = U64((0x80 - 0x61) * _EACH_BYTE), U64((0x80 - 0x7B) * _EACH_BYTE)


@helper
def find_others(eight: U64) -> U64:
    """The high bit of each of eight bytes that is neither an ASCII letter nor a space.

    All sums are of at most 0x7F + 0x7F, so that none carries into the next byte.
    """
    folded, spaces = (eight & _LOW_BITS) | _CASE_BIT, eight ^ _CASE_BIT  # 0x20 is the case bit and also the space
    # The first sum sets the high bit from "a" on, the second after "z". Bytes beyond ASCII are excluded.
    letters = ((folded + _FROM_A) ^ (folded + _BEYOND_Z)) & ~eight
    not_spaces = (spaces & _LOW_BITS) + _LOW_BITS | spaces  # a space became zero, whose sum is 0x7F
    return ~letters & not_spaces & _HIGH_BIT


@helper
def skip_plain(source: RuledText, at: int, size: int) -> int:
    """Skip what can't matter. The line feed stops it, so it needs no end of the line. size: of the whole text."""
    while True:
        if at + 8 <= size:
            others = find_others(load_u64(source.utf8, at))
            if others == U64(0):
                at += 8
                continue
            at += count_trailing_zeros(others) >> 3
        while 0xE0 <= item(source.utf8, at) < 0xF0:  # characters of three bytes: most of Chinese, Korean, Hindi ...
            if read_class(source, at) >= BULLET:
                return at
            at += 3
        if read_class(source, at) >= BULLET:
            return at
        at = step(source, at)
