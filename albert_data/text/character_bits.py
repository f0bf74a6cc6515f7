"""What a character is where text is laid out and joined: a letter, its case, of a script without spaces, wide, a mark.

From the shipped Unicode tables, for kernels. When a mark ends a sentence is another question: sentences/segmenting.py.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from albert_data.text.unicode_tables import categories, scripts

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
# Full stops, question and exclamation marks of all scripts that need no white space after them.
FULL_STOPS = (
    "。！？｡։۔؟؞\u061d\u061f\u0700\u0701\u0702\u07f9\u0837\u0839\u083d\u083e।॥။።፧፨᙮᜵᜶។៕៚๚๛᠃᠉᥄᥅᪨᪩᪪᪫᭚᭛᭞᭟᰻᰼᱾᱿\u2e3c﹒﹖﹗"
    "\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d\uaa5e\uaa5f\uaaf0\uaaf1\uabeb"
    "\U00010a56\U00010a57\U00011047\U00011048\U000110be\U000110bf\U000110c0\U000110c1\U00011141\U00011142\U00011143"
    "\U000111c5\U000111c6\U000111cd\U00011238\U00011239\U0001144b\U0001144c\U000115c2\U000115c3\U00011641\U00011642"
    "\U0001173c\U0001173d\U0001173e\U00016a6e\U00016a6f\U00016af5\U00016b37\U00016b38\U00016b44\U0001bc9f"
)
_OTHER_STOPS = ".!?:…‼⁇⁈⁉：．།༎"
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
    table[[ord(stop) for stop in FULL_STOPS + _OTHER_STOPS]] |= STOP_MARK
    table[[ord(quote) for quote in _QUOTES]] |= CLOSING | OPENING
    table[[ord("¿"), ord("¡")]] |= OPENING
    table.flags.writeable = False
    return table
