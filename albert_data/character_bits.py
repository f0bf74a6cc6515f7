"""What a character is where text is laid out and joined: a letter, its case, of a script without spaces, wide, a mark.

From the shipped Unicode tables. Which marks end a sentence is another question: sentences/segmenting.py.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from albert_data.unicode_tables import categories, scripts

# The properties of a character, as bits. ALPHA: letters and marks; WORD_CHARACTER: these and numbers; UNSPACED: of a
# script without spaces; OTHER: no letter, number or separator.
LOWER_LETTER, UPPER_LETTER, ALPHA, WORD_CHARACTER, UNSPACED, WIDE, STOP_MARK, CLOSING, OPENING, OTHER = (
    1 << bit for bit in range(10)
)
_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "YI", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
# Punctuation of scripts without spaces, and full-width forms.
_UNSPACED_RANGES = ((0x3001, 0x3040), (0x30FB, 0x3100), (0xFE30, 0xFE50), (0xFF00, 0xFF66))
_WIDE_RANGES = (
    *((0x1100, 0x1160), (0x2E80, 0x303F), (0x3041, 0xA4D0), (0xAC00, 0xD7A4), (0xF900, 0xFB00)),
    *((0xFE30, 0xFE50), (0xFF00, 0xFF61), (0xFFE0, 0xFFE7), (0x1F300, 0x1FB00), (0x20000, 0x3FFFE)),
)
_STOPS = ".!?:…‼⁇⁈⁉。！？：．｡؟۔।॥།༎။።፧፨։᙮꓿"
_QUOTES = "\"'`*_"


@cache
def character_properties() -> np.ndarray:
    """The properties of each code point: uint16."""
    table = np.zeros(0x110000, np.uint16)
    numbers, names = categories()
    bits = dict.fromkeys(names, 0)
    for name in names:
        bits[name] |= {"L": ALPHA | WORD_CHARACTER, "M": ALPHA | WORD_CHARACTER, "N": WORD_CHARACTER}.get(name[0], 0)
        bits[name] |= 0 if name[0] in "LNZ" else OTHER
    bits["Ll"] |= LOWER_LETTER
    bits["Lu"] |= UPPER_LETTER
    bits["Lt"] |= UPPER_LETTER
    for name, bit in (("Pe", CLOSING), ("Pi", CLOSING | OPENING), ("Pf", CLOSING | OPENING), ("Ps", OPENING)):
        bits[name] |= bit
    bits["Pd"] |= OPENING
    table |= np.array([bits[name] for name in names], np.uint16)[numbers]
    numbers, names = scripts()
    table[np.isin(numbers, [names.index(name) for name in _WITHOUT_SPACES])] |= UNSPACED
    for ranges, bit in ((_UNSPACED_RANGES, UNSPACED), (_WIDE_RANGES, WIDE)):
        for first, end in ranges:
            table[first:end] |= bit
    table[[ord(stop) for stop in _STOPS]] |= STOP_MARK
    table[[ord(quote) for quote in _QUOTES]] |= CLOSING | OPENING
    table[[ord("¿"), ord("¡")]] |= OPENING
    table.flags.writeable = False
    return table
