"""Which pieces begin a word, for cutting and masking whole words (ALBERT, section 4.1).

A piece that begins with "▁" begins a word. A piece of only punctuation or symbols, and a piece in a script without
spaces, is standalone, a word of its own: it begins one, and so does the piece after it. But no word begins inside a
grapheme cluster, the character that a reader sees: a piece that begins with a mark continues the word before it,
whatever that is. A lone "▁" belongs to the word after it, as it does in a piece "▁中国". The bytes that spell one
character (<0xE9> <0xBE> <0x98>) belong to one word, and the first one begins a word if the character is CJK or an
emoji.

With a word list (lexicon.py), pieces in scripts without spaces that spell a word of the list are one word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from albert_data.errors import TokenizerError
from albert_data.kernels import helper
from albert_data.text.unicode_tables import category, script
from albert_data.tokenizer.lexicon import Lexicon
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE, count_letters, is_unspaced

NEVER = -2  # outweighs the 1 of the neighbour, and the 2 of a clause: no word begins between them
CLAUSE = 2  # `standalone` of a mark after which a clause may end
_CLAUSE_MARKS = frozenset(",;:、，；：،؛")
_BLANK = re.compile(rf"[\s{VISIBLE_SPACE}]*")
_MOST_ODD = 0.02  # of the pieces: those with a space elsewhere; a few that users add do little harm

_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>(<0x[0-9A-F]{2}>)*")  # of byte-level BPE it may be several bytes
# First bytes of U+3000 to U+9FFF, emoji and rare ideographs; nearly all these characters are words of their own.
_STARTING_BYTES = frozenset(range(0xE3, 0xEA)) | {0xF0}
_CONTINUATION_BYTES = range(0x80, 0xC0)  # of UTF-8


def read_codes(text: str) -> tuple[range, ...]:
    """The ranges of code points that a text lists.

    >>> read_codes("41-43 2581")
    (range(65, 68), range(9601, 9602))
    """
    bounds = (codes.split("-") for codes in text.split())
    return tuple(range(int(first[0], 16), int(first[-1], 16) + 1) for first in bounds)


@dataclass(frozen=True, kw_only=True)
class WordRule:
    """Which pieces begin words: a word begins where `standalone` of a piece + `starts` of the next one is above 0."""

    # int8 [vocabulary], 1 if a word begins at the piece, 0 if only after a standalone one, NEVER if not even so
    starts: np.ndarray
    # int8 [vocabulary], 1 if a word begins after the piece, and CLAUSE if a clause may end there, too; 0 if only where
    # the next piece's `starts` is 1, NEVER if not even so
    standalone: np.ndarray
    lexicon: Lexicon | None = None  # no word begins at a token that it joins to the one before; None without a list

    @classmethod
    def from_pieces(cls, pieces: Sequence[str], lexicon: Lexicon | None = None) -> WordRule:
        starts, standalone = np.array([judge_piece(piece) for piece in pieces], np.int8).T
        return cls(starts=starts.copy(), standalone=standalone.copy(), lexicon=lexicon)

    @classmethod
    def every_piece(cls, vocab_size: int) -> WordRule:
        """Each piece is a word, as with `--pieces`; which of them end clauses is not known."""
        return cls(starts=np.ones(vocab_size, np.int8), standalone=np.ones(vocab_size, np.int8))

    def find_joined(self, ids: np.ndarray) -> np.ndarray:
        """Whether the word list joins each token to the one before it: bool; empty without a word list.

        ids: of any number of rows, with their special pieces, which part segments and rows.
        """
        return np.zeros(0, np.bool_) if self.lexicon is None else self.lexicon.find_joined(ids)


def check_marks(pieces: Sequence[str], name: str) -> None:
    """Raise TokenizerError if pieces do not show where words begin."""
    most, where = _MOST_ODD, "elsewhere"
    odd = [piece for piece in pieces if VISIBLE_SPACE in piece.lstrip(VISIBLE_SPACE) and not _BLANK.fullmatch(piece)]
    if VISIBLE_SPACE not in "".join(pieces):  # scripts without spaces need none
        pieces = list(filter(count_letters, pieces))
        odd, most, where = [piece for piece in pieces if not is_standalone(piece)], 0.5, "nowhere"
    if len(odd) > most * len(pieces):
        raise TokenizerError(
            f"{name}: its pieces do not show where words begin: of {len(pieces):,} pieces {len(odd):,}, such as "
            f"{odd[0]!r:.80}, have a space {where}; mask single pieces with --pieces, or give another tokenizer"
        )


def judge_piece(piece: str) -> tuple[int, int]:
    """The two numbers of a piece, see WordRule.

    >>> [judge_piece(piece) for piece in ("▁go", "ing", "!", ",", "中", "\u0301")]
    [(1, 0), (0, 0), (1, 1), (1, 2), (1, 1), (-2, 0)]
    """
    if found := _BYTE_PIECE.fullmatch(piece):
        byte = int(found[1], 16)
        return NEVER if byte in _CONTINUATION_BYTES else int(byte in _STARTING_BYTES), 0
    if piece == VISIBLE_SPACE:
        return 1, NEVER
    alone = is_standalone(piece)
    starts = 1 if alone or piece.startswith(VISIBLE_SPACE) else 0
    ends = CLAUSE if alone and piece.rstrip(VISIBLE_SPACE)[-1:] in _CLAUSE_MARKS else int(alone)
    # An empty piece has no first character; VISIBLE_SPACE stands in for it, which continues nothing.
    return NEVER if continues(piece[:1] or VISIBLE_SPACE) else starts, NEVER if piece[-1:] in _JOINING else ends


def is_standalone(piece: str) -> bool:
    """Whether a piece is a word of its own: all punctuation and symbols, or in a script without spaces."""
    text = piece.replace(VISIBLE_SPACE, "")
    if text.isascii() and text.isalpha():
        return False  # the quick answer for most pieces
    if any(map(is_unspaced, text)):
        return True
    bases = [character for character in text if not continues(character)]
    if bases:
        return all(map(is_symbol, bases))
    # A piece of marks continues the word before it. Where that is always a word of its own, as before kana marks, the
    # next word begins after the piece.
    return any(map(follows_whole_word, text))


@cache
def is_symbol(character: str) -> bool:
    """Whether a character is punctuation or a symbol."""
    return category(character)[0] in "PS"


@helper
def begins_word(ids: np.ndarray, at: int, segment_begin: int, starts: np.ndarray, standalone: np.ndarray) -> bool:
    """Whether a word begins at token `at` of the segment that begins at token `segment_begin`."""
    return at == segment_begin or starts[ids[at]] + standalone[ids[at - 1]] > 0


@helper
def begins_clause(ids: np.ndarray, at: int, starts: np.ndarray, standalone: np.ndarray) -> bool:
    """Whether token `at` of a sentence, not its first, begins a word after a comma or the like. Not in 1,000."""
    return bool(starts[ids[at]] > 0 and standalone[ids[at - 1]] == CLAUSE)


def find_word_starts(ids: np.ndarray, rule: WordRule) -> np.ndarray:
    """Whether each token of one segment begins a word: bool, as long as `ids`."""
    sums: np.ndarray = rule.starts[ids]
    sums[1:] += rule.standalone[ids[:-1]]
    sums[:1] = 1
    begins: np.ndarray = sums > 0
    if rule.lexicon is not None:
        begins &= ~rule.lexicon.find_joined(ids)
    return begins


# ---- grapheme clusters: a masked word is never less than one ----
#
# In: a character. Out: whether it continues the character before it, and whether the character after it continues it.
# Source: UAX #29, grapheme cluster boundaries, rules GB9, GB9a, GB9b, GB9c and GB11, by the shipped Unicode tables.
# Five deviations. Two make clusters larger: every mark continues, also the few of Myanmar, Tai Tham and Ahom that UAX
# #29 lets begin a cluster; a ZERO WIDTH JOINER, a sign that stacks consonants and a Thai nikhahit are joined to any
# character after them. Three make clusters smaller: a flag whose two regional indicators are in two pieces becomes two
# clusters; a sign that stacks consonants and is followed by another mark, which no spelling has, does not join the next
# letter; GB9c is applied in scripts without spaces only. In the others a piece without "▁" continues a word of letters
# anyway.

# Skin tones and tags stand after emoji.
_EMOJI_PARTS = frozenset(chr(code) for codes in read_codes("1F3FB-1F3FF E0020-E007F") for code in codes)
# These continue a character although they are no marks: ZERO WIDTH NON-JOINER, Thai and Lao AM, half-width voicing
# marks.
_CONTINUING = frozenset("\u200c\u200d\u0e33\u0eb3\uff9e\uff9f") | _EMOJI_PARTS
_KANA_MARKS = frozenset("\u3099\u309a")
# Prepended marks: the next character belongs to them (GB9b).
_PREPENDED = read_codes(
    "600-605 6DD 70F 890-891 8E2 D4E 110BD 110CD 111C2-111C3 1193F 11941 11A3A 11A84-11A89 11D46 11F02"
)
# Never the last character of a cluster: ZERO WIDTH JOINER; five signs that put the next consonant under the one before
# (rule GB9c of Unicode 16, for scripts without spaces): Myanmar virama, Khmer coeng, Tai Tham sakot, Balinese adeg
# adeg, Javanese pangkon; and Thai nikhahit: NFKC writes the vowel AM as nikhahit and AA.
_JOINING = frozenset("\u200d\u1039\u17d2\u1a60\u1b44\ua9c0\u0e4d") | {
    chr(code) for codes in _PREPENDED for code in codes
}


@cache
def continues(character: str) -> bool:
    """Whether a character never begins a grapheme cluster, except at the beginning of text."""
    return category(character) in ("Mn", "Mc", "Me") or character in _CONTINUING


@cache
def follows_whole_word(character: str) -> bool:
    """Whether a continuing character occurs after symbols, ideographs and kana only."""
    return script(character) == "VARIATION" or character in _EMOJI_PARTS or character in _KANA_MARKS
