"""Which pieces are words of their own by version 1 of the rules, for shard folders built by it.

Version 1 asked Python for the names of characters, so its answers depend on the version of Python.
"""

from __future__ import annotations

import unicodedata
from functools import cache

# First words of the Unicode names of letters in scripts that set no space between words.
_UNSPACED_SCRIPTS = frozenset(
    {"CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "HANGZHOU", "IDEOGRAPHIC", "YI", "THAI", "LAO", "KHMER", "MYANMAR"}
    | {"TIBETAN", "KATAKANA-HIRAGANA"}
)


def judge_piece(piece: str) -> tuple[int, int]:
    """Whether a word begins at a piece, and whether one begins after it: the two numbers of WordRule."""
    alone = is_standalone(piece)
    return int(alone or piece.startswith("\u2581")), int(alone)


def is_standalone(piece: str) -> bool:
    """Whether a piece is all punctuation and symbols, or in a script without spaces."""
    text = piece.replace("\u2581", "")
    if text.isascii() and text.isalpha():
        return False  # the quick answer for most pieces
    return any(map(_is_unspaced, text)) or (bool(text) and all(map(_is_symbol, text)))


@cache
def _is_symbol(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


@cache
def _is_unspaced(character: str) -> bool:
    if unicodedata.east_asian_width(character) == "H":
        character = unicodedata.normalize("NFKC", character)[0]  # half-width kana
    return unicodedata.name(character, "").split(" ")[0] in _UNSPACED_SCRIPTS
