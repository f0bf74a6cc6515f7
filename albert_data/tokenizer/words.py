"""Which pieces begin a word, for cutting and masking whole words (ALBERT, section 4.1).

A piece that begins with "▁" begins a word. A piece of punctuation or symbols alone, and a piece in a
script without spaces, is a word of its own: it begins one, and so does whatever follows it.

A shard folder keeps the rules that built it: `words_version_1.py` decides for those of version 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from albert_data.kernels import helper
from albert_data.rules import RULES_VERSION
from albert_data.tokenizer import words_version_1
from albert_data.unicode_tables import category, script

SPACE = "\u2581"  # SentencePiece's visible space

# Scripts that set no space between words, by the names that unicode_tables.py has for them.
_UNSPACED_SCRIPTS = frozenset(
    {"CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "HANGZHOU", "IDEOGRAPHIC", "YI", "THAI", "LAO", "KHMER", "MYANMAR"}
    | {"TIBETAN"}
)


@dataclass(frozen=True, kw_only=True)
class WordRule:
    """bool arrays over the vocabulary: `starts` begins a word, `standalone` is a whole word by itself."""

    starts: np.ndarray
    standalone: np.ndarray

    @classmethod
    def from_pieces(cls, pieces: Sequence[str], rules_version: int = RULES_VERSION) -> WordRule:
        decide = words_version_1.is_standalone if rules_version == 1 else is_standalone
        standalone = np.array([decide(piece) for piece in pieces], bool)
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
    return category(character)[0] in "PS"


@cache
def is_unspaced(character: str) -> bool:
    """Whether a character is of a script that sets no space between words."""
    return script(character) in _UNSPACED_SCRIPTS


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
