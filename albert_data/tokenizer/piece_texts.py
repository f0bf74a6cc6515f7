"""What a piece shows of text: bytes of a divided character, or letters of scripts. In: what the piece is in text."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

from albert_data.text.unicode_tables import category, script

VISIBLE_SPACE = "\u2581"  # SentencePiece's visible space; kernels look for it
# Scripts that set no space between words, named as in unicode_tables.py. TAI is Tai Le, Tai Tham and Tai Viet, NEW is
# New Tai Lue.
_UNSPACED_SCRIPTS = frozenset(
    {"CJK", "HIRAGANA", "HENTAIGANA", "KATAKANA", "BOPOMOFO", "HANGZHOU", "IDEOGRAPHIC", "YI", "TANGUT", "NUSHU"}
    | {"THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "TAI", "NEW", "AHOM", "JAVANESE", "BALINESE", "BATAK", "KAWI"}
)
_BYTES = re.compile(rf"{VISIBLE_SPACE}?(<0x[0-9A-F]{{2}}>)+")
_NAMED = re.compile(rf"{VISIBLE_SPACE}?((<[^<>]+>)+|\[[A-Z]+\])")  # <unk>, <0xE2><0x82>, ▁[UNK]: names, not text


def num_bytes(piece: str) -> int:
    """How many bytes a piece stands for, if it is bytes that are no whole characters; 0 for any other piece."""
    return piece.count("<0x") + piece.startswith(VISIBLE_SPACE) if _BYTES.fullmatch(piece) else 0


def count_letters(piece: str) -> Counter[str]:
    """The letters of each script, as "LATIN"; none in a name."""
    if _NAMED.fullmatch(piece):
        return Counter()
    return Counter(script(character) for character in piece if category(character)[0] == "L")


def find_script(piece: str) -> str:
    """The script of most of its letters, in a tie of the first; empty without letters."""
    letters = count_letters(piece)
    return letters.most_common(1)[0][0] if letters else ""


@cache
def is_unspaced(character: str) -> bool:
    """Whether a character is of a script that sets no space between words."""
    return script(character) in _UNSPACED_SCRIPTS
