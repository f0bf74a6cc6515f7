"""What kind each character is to the rule of sentences, and how kernels read characters of UTF-8.

The kinds come from the shipped Unicode tables and from the lists below. From BULLET on, a kind can matter to where
sentences end, and the main loop looks at it; all others are passed over.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from albert_data.kernels import I64, U64, count_trailing_zeros, helper, item, load_u64, pointer
from albert_data.unicode_tables import categories

# PLAIN: no role. LOWER, UPPER: letters with case. OTHER: letters without. HANGUL. IDEO: of scripts without spaces whose
# text has stops. MARK: belongs to the character before. JOIN: joins parts of a word. COMMA: goes on with a sentence.
PLAIN, LOWER, UPPER, OTHER, HANGUL, IDEO, DIGIT, MARK, BLANK, JOIN, COMMA, DASH, INVERTED = range(13)
# DOT: may belong to an abbreviation. EXCLAIM: ends before white space. FULL: ends anywhere. DOUBLE: ends if doubled.
BULLET, DOT, EXCLAIM, FULL, ELLIPSIS, WIDE_DOT, DOUBLE, STRAIGHT_SINGLE, STRAIGHT_DOUBLE, LINE_FEED = range(13, 23)
FIRST_PAIR = 24  # then an opening and a closing kind of each group, in turn
(
    ROUND,
    SQUARE,
    TITLE_MARKS,
    CORNER,
    WHITE_CORNER,
    ANGLE,
    DOUBLE_CURLY,
    SINGLE_CURLY,
    DOUBLE_STRAIGHT,
    SINGLE_STRAIGHT,
) = range(10)
FIRST_QUOTE = CORNER  # the groups before are no quotation marks
CLOSE_SINGLE = FIRST_PAIR + 2 * SINGLE_CURLY + 1  # also the apostrophe

_NUM_CODE_POINTS = 0x110000
_CATEGORIES = {
    LOWER: ("Ll",),
    UPPER: ("Lu", "Lt"),
    OTHER: ("Lo", "Lm", "Nl"),
    DIGIT: ("Nd",),
    MARK: ("Mn", "Mc", "Me", "Cf"),
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
    PLAIN: "\u200b",  # a place to break, between words
    MARK: "°¹²³⁰⁴⁵⁶⁷⁸⁹\uff9e\uff9f",
    JOIN: "-‐‑/&·",
    COMMA: ",;:、，；：،؛・",
    DASH: "–—―‒⸺⸻─━",
    INVERTED: "¿¡*_",
    BULLET: "•◦▪▫⁃‣●○■□◆◇▶►➢➤✓✔",
    DOT: ".",
    # Where no white space follows, these stand inside a word or belong to a name: the Armenian marks, the Tibetan shad.
    EXCLAIM: "!?‼⁇⁈⁉‽⸮\u037e\u055c\u055e\u0f0d\u0f0e\u0f11",
    ELLIPSIS: "…‥⋯",
    WIDE_DOT: "．",
    DOUBLE: "\u1361",
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


class Source(NamedTuple):
    """What the kernels read. In kernels, pointers.

    utf8: uint8, lines each with a line feed; ascii: uint8, the kind of each ASCII character in one language; kinds:
    uint8, of each code point; keys: uint64, values: uint16: a hash table of words; settings: int64, the last slot of
    that table, and whether a full stop after a number makes an ordinal.
    """

    utf8: np.ndarray
    ascii: np.ndarray
    kinds: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    settings: np.ndarray


@cache
def make_kinds() -> np.ndarray:
    """The kind of each code point."""
    numbers, names = categories()
    by_category = np.full(len(names), PLAIN, np.uint8)
    for kind, those in _CATEGORIES.items():
        by_category[[names.index(name) for name in those]] = kind
    kinds: np.ndarray = by_category[numbers]
    is_letter = (kinds >= LOWER) & (kinds <= OTHER)
    for kind, ranges in _RANGES.items():
        for first, last in ranges:
            kinds[first : last + 1][is_letter[first : last + 1]] = kind
    for kind, characters in {**_LISTED, FULL: _FULL_STOPS}.items():
        kinds[list(map(ord, characters))] = kind
    for group, characters in _PAIRS.items():
        kinds[list(map(ord, characters[::2]))] = FIRST_PAIR + 2 * group
        kinds[list(map(ord, characters[1::2]))] = FIRST_PAIR + 2 * group + 1
    kinds.flags.writeable = False
    return kinds


_NONE, _HIGH, _LOW7, _CASE = (U64(byte * 0x0101010101010101) for byte in (0, 0x80, 0x7F, 0x20))
_FROM_A, _BEYOND_Z = (U64(byte * 0x0101010101010101) for byte in (0x1F, 0x05))


@helper
def point_to_source(source: Source) -> Source:
    return Source(
        pointer(source.utf8),
        pointer(source.ascii),
        pointer(source.kinds),
        pointer(source.keys),
        pointer(source.values),
        pointer(source.settings),
    )


@helper
def find_width(lead: int) -> int:
    return 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)


@helper
def step(source: Source, at: int) -> int:
    """Where the next character begins."""
    return at + find_width(item(source.utf8, at))


@helper
def step_back(source: Source, at: int) -> int:
    """Where the character before begins."""
    at -= 1
    while item(source.utf8, at) & 0xC0 == 0x80:
        at -= 1
    return at


@helper
def read_wide_kind(source: Source, at: int) -> int:
    """The kind of a character of three bytes."""
    utf8 = source.utf8
    code = (I64(item(utf8, at)) & 0xF) << 12 | (I64(item(utf8, at + 1)) & 0x3F) << 6 | I64(item(utf8, at + 2)) & 0x3F
    return int(item(source.kinds, code))


@helper
def read_kind(source: Source, at: int) -> int:
    """The kind of the character that begins there."""
    utf8, code = source.utf8, I64(item(source.utf8, at))
    if code < 0x80:
        return int(item(source.ascii, code))
    if code < 0xE0:
        code = (code & 0x1F) << 6 | I64(item(utf8, at + 1)) & 0x3F
    elif code < 0xF0:
        code = (code & 0xF) << 12 | (I64(item(utf8, at + 1)) & 0x3F) << 6 | I64(item(utf8, at + 2)) & 0x3F
    else:
        code = (code & 0x7) << 18 | (I64(item(utf8, at + 1)) & 0x3F) << 12
        code |= (I64(item(utf8, at + 2)) & 0x3F) << 6 | I64(item(utf8, at + 3)) & 0x3F
    return int(item(source.kinds, code))


@helper
def kind_at(source: Source, at: int, end: int) -> int:
    """The same; at the end of a line BLANK."""
    return read_kind(source, at) if at < end else BLANK


@helper
def kind_before(source: Source, begin: int, at: int) -> int:
    """The kind of the character before; at the beginning of a line BLANK."""
    return read_kind(source, step_back(source, at)) if at > begin else BLANK


@helper
def is_word_kind(kind: int) -> bool:
    return LOWER <= kind <= DIGIT


@helper
def is_opening(kind: int) -> bool:
    return kind >= FIRST_PAIR and kind & 1 == 0


@helper
def is_space(source: Source, at: int) -> bool:
    """Whether white space stands there: a blank that is no control character."""
    byte = item(source.utf8, at)
    if byte < 0xC2:
        return bool(byte == 32 or 9 <= byte <= 13)
    return read_kind(source, at) == BLANK and (byte > 0xC2 or item(source.utf8, at + 1) == 0xA0)


@helper
def skip_blanks(source: Source, at: int, end: int) -> int:
    while at < end and read_kind(source, at) == BLANK:
        at = step(source, at)
    return at


@helper
def find_others(word: U64) -> U64:
    """The high bit of each of eight bytes that is neither an ASCII letter nor a space."""
    folded, spaces = (word & _LOW7) | _CASE, word ^ _CASE
    letters = ((folded + _FROM_A) ^ (folded + _BEYOND_Z)) & ~word
    return ~(letters | ~((spaces & _LOW7) + _LOW7 | spaces)) & _HIGH


@helper
def skip_plain(source: Source, at: int, size: int) -> int:
    """Skip what can't matter; the line feed stops it."""
    while True:
        if at + 8 <= size:
            others = find_others(load_u64(source.utf8, at))
            if others == _NONE:
                at += 8
                continue
            at += count_trailing_zeros(others) >> 3
        while 0xE0 <= item(source.utf8, at) < 0xF0:  # most text without ASCII letters
            if read_wide_kind(source, at) >= BULLET:
                return at
            at += 3
        if read_kind(source, at) >= BULLET:
            return at
        at = step(source, at)
