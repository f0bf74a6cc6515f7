"""What kind each character is, and the loops over bytes that the kernels of sentences share.

A kind tells what a character can do to a sentence: end it, quote, hold it together, or nothing. A character is odd
where sentencex may make more of it than these kernels know, and beyond the basic plane.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from albert_data.kernels import (
    Int,
    Pointer,
    Word,
    count_trailing_zeros,
    helper,
    item,
    load_word,
    pointer,
    put,
    store_word,
)

# Kinds of characters. JOINED are the word characters that are no letters. After the straight quotes come pairs:
# an even kind opens what the next one closes, and » opens too.
PLAIN, LETTER, JOINED, STOP, ODD, ELLIPSIS, APOSTROPHE, OPEN, CLOSE, STRAIGHT = range(10)
_CURLY = "“”‘’«»《》「」"
FIRST_CURLY, RIGHT_SINGLE, LEFT_GUILLEMET = (STRAIGHT + 1 + _CURLY.index(quote) for quote in "“’«")
QUOTES = frozenset(_CURLY + '"')
_KINDS = {
    JOINED: "_",
    STOP: ".!?。！？｡",
    ODD: "@\\`‚‛„‟‹›",
    ELLIPSIS: "…",
    APOSTROPHE: "'",
    OPEN: "(<{[（",
    CLOSE: ")>}]）",
    STRAIGHT: '"',
}
_KINDS |= {FIRST_CURLY + i: quote for i, quote in enumerate(_CURLY)}
_CATEGORIES = {
    LETTER: [b"Lu", b"Ll", b"Lt", b"Lm", b"Lo", b"Nl"],
    JOINED: [b"Nd"],
    PLAIN: [b"No", b"Sm", b"Sc", b"Sk", b"So", b"Co"],
}
_PUNCTUATION = re.compile("[ \t!-/:-@[-^{-~¡§¶·¿‐-‗†‡‧‰-‸※⸺⸻、〃〈〉『-】〔-〟〰・\uff02-\uff0d／：；＠［-］｛-･]")
_DOUBTFUL = re.compile("[\u2460-\u27bf]")  # bullets, circled letters

_NONE, _HIGH, _LOW7, _CASE = (Word(byte * 0x0101010101010101) for byte in (0, 0x80, 0x7F, 0x20))
_FROM_A, _BEYOND_Z = (Word(byte * 0x0101010101010101) for byte in (0x1F, 0x05))


class Source(NamedTuple):
    """Lines, each with a line feed, and the kind of each character of the basic plane. In kernels, pointers.

    utf8: uint8; line_offsets: int64; kinds: uint8.
    """

    utf8: np.ndarray
    line_offsets: np.ndarray
    kinds: np.ndarray


@lru_cache
def make_kinds() -> np.ndarray:
    characters = np.arange(0x10000, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    categories = np.frombuffer("".join(map(unicodedata.category, characters)).encode(), "S2")
    kinds = np.full(0x10000, ODD, np.uint8)
    for kind, names in _CATEGORIES.items():
        kinds[np.isin(categories, names)] = kind
    kinds[_find(_DOUBTFUL, characters, kinds == PLAIN)] = ODD
    kinds[_find(_PUNCTUATION, characters, kinds == ODD)] = PLAIN
    for kind, those in _KINDS.items():
        kinds[list(map(ord, those))] = kind
    return kinds


def _find(pattern: re.Pattern[str], characters: str, where: np.ndarray) -> list[int]:
    return [match.start() for match in pattern.finditer(characters) if where[match.start()]]


@helper
def point_to_source(source: Source) -> Source:
    return Source(pointer(source.utf8), pointer(source.line_offsets), pointer(source.kinds))


@helper
def is_blank(byte: int) -> bool:
    return byte == 32 or byte == 9


@helper
def is_stop(byte: int) -> bool:
    return byte == 46 or byte == 33 or byte == 63


@helper
def is_digit(byte: int) -> bool:
    return 48 <= byte <= 57


@helper
def is_upper(byte: int) -> bool:
    return 65 <= byte <= 90


@helper
def is_low(byte: int) -> bool:
    """Whether a sentence goes on with it: a lower-case letter or a digit, of ASCII."""
    return 97 <= byte <= 122 or 48 <= byte <= 57


@helper
def find_width(lead: int) -> int:
    return 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)


@helper
def read_kind(source: Source, at: int) -> int:
    """The kind of a character; one beyond the basic plane is odd."""
    code = Int(item(source.utf8, at))
    if code >= 0xF0:
        return ODD
    if code >= 0x80:
        second = Int(item(source.utf8, at + 1)) & 0x3F
        if code < 0xE0:
            code = (code & 0x1F) << 6 | second
        else:
            code = (code & 0xF) << 12 | second << 6 | Int(item(source.utf8, at + 2)) & 0x3F
    return int(item(source.kinds, code))


@helper
def is_word(source: Source, at: int) -> bool:
    """Whether a letter, a digit or an underscore stands there."""
    return LETTER <= read_kind(source, at) <= JOINED


@helper
def skip_blanks(utf8: Pointer, at: int, end: int) -> int:
    while at < end and is_blank(item(utf8, at)):
        at += 1
    return at


@helper
def skip_stops(source: Source, at: int, end: int) -> int:
    """Skip stops and blanks."""
    while at < end and (is_blank(item(source.utf8, at)) or read_kind(source, at) == STOP):
        at += find_width(item(source.utf8, at))
    return at


@helper
def is_run(source: Source, stop: int, after: int) -> bool:
    return after - stop > find_width(item(source.utf8, stop))


@helper
def find_others(word: Word) -> Word:
    """The high bit of each of eight bytes that is neither an ASCII letter nor a space."""
    folded, spaces = (word & _LOW7) | _CASE, word ^ _CASE
    letters = ((folded + _FROM_A) ^ (folded + _BEYOND_Z)) & ~word
    return ~(letters | ~((spaces & _LOW7) + _LOW7 | spaces)) & _HIGH


@helper
def skip_plain(source: Source, at: int, size: int) -> int:
    """Skip what nothing hangs on; the line feed stops it."""
    while True:
        if at + 8 <= size:
            others = find_others(load_word(source.utf8, at))
            if others == _NONE:
                at += 8
                continue
            at += count_trailing_zeros(others) >> 3
        while item(source.utf8, at) >= 0xE0 and read_kind(source, at) < STOP:
            at += 3
        byte = Int(item(source.utf8, at))
        if byte >= 0x80 or item(source.kinds, byte) >= STOP:
            return at
        at += 1


@helper
def put_bytes(out: Pointer, filled: int, utf8: Pointer, begin: int, end: int) -> int:
    """Add bytes to others, and return how many these are now."""
    length, at = end - begin, 0
    while at + 8 <= length:
        store_word(out, filled + at, load_word(utf8, begin + at))
        at += 8
    if at > 0:
        store_word(out, filled + length - 8, load_word(utf8, end - 8))
        return filled + length
    while at < length:
        put(out, filled + at, item(utf8, begin + at))
        at += 1
    return filled + length
