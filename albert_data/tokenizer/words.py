"""Which pieces begin a word, for cutting and masking whole words (ALBERT, section 4.1).

A piece that begins with "▁" begins a word. A piece of punctuation or symbols alone, and a piece in a
script without spaces, is a word of its own: it begins one, and so does whatever follows it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from albert_data.kernels import helper

SPACE = "\u2581"  # SentencePiece's visible space

# First words of the Unicode names of letters in scripts that set no space between words.
_UNSPACED_SCRIPTS = frozenset(
    {"CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "HANGZHOU", "IDEOGRAPHIC", "YI", "THAI", "LAO", "KHMER", "MYANMAR"}
    | {"TIBETAN", "KATAKANA-HIRAGANA"}
)


@dataclass(frozen=True, kw_only=True)
class WordRule:
    """bool arrays over the vocabulary: `starts` begins a word, `standalone` is a whole word by itself."""

    starts: np.ndarray
    standalone: np.ndarray

    @classmethod
    def from_pieces(cls, pieces: Sequence[str]) -> WordRule:
        standalone = np.array([is_standalone(piece) for piece in pieces], bool)
        starts = np.array([piece.startswith(SPACE) for piece in pieces], bool) | standalone
        return cls(starts=starts, standalone=standalone)

    @classmethod
    def every_piece(cls, vocab_size: int) -> WordRule:
        """Each piece is a word, as `--pieces` asks for."""
        return cls(starts=np.ones(vocab_size, bool), standalone=np.ones(vocab_size, bool))


def is_standalone(piece: str) -> bool:
    """Whether a piece is a word of its own: all punctuation and symbols, or in a script without spaces."""
    text = piece.replace(SPACE, "")
    if text.isascii() and text.isalpha():
        return False  # at once, as for most pieces
    return any(map(is_unspaced, text)) or (bool(text) and all(map(is_symbol, text)))


@cache
def is_symbol(character: str) -> bool:
    """Whether a character is punctuation or a symbol."""
    return unicodedata.category(character)[0] in "PS"


@cache
def is_unspaced(character: str) -> bool:
    """Whether a character is of a script that sets no space between words."""
    if unicodedata.east_asian_width(character) == "H":
        character = unicodedata.normalize("NFKC", character)[0]  # half-width kana
    return unicodedata.name(character, "").split(" ")[0] in _UNSPACED_SCRIPTS


@helper
def begins_word(ids: np.ndarray, at: int, segment_begin: int, starts: np.ndarray, standalone: np.ndarray) -> bool:
    """Whether a word begins at token `at` of the segment that begins at token `segment_begin`."""
    return at == segment_begin or starts[ids[at]] or standalone[ids[at - 1]]


def find_word_starts(ids: np.ndarray, rule: WordRule) -> np.ndarray:
    """Whether each token of one segment begins a word: bool, as long as `ids`."""
    begins: np.ndarray = rule.starts[ids]
    begins[1:] |= rule.standalone[ids[:-1]]
    begins[:1] = True
    return begins
