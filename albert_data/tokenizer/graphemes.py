"""Which characters can't be separated from their neighbours: a masked word is never less than a grapheme cluster.

In: a character. Out: whether it continues the character before it, and whether the character after it continues it.
Source: UAX #29, grapheme cluster boundaries, rules GB9, GB9a, GB9b, GB9c and GB11, by the shipped Unicode tables. Five
deviations. Two make clusters larger: every mark continues, also the few of Myanmar, Tai Tham and Ahom that UAX #29 lets
begin a cluster; a ZERO WIDTH JOINER, a sign that stacks consonants and a Thai nikhahit are joined to any character
after them. Three make clusters smaller: a flag whose two regional indicators are in two pieces becomes two clusters; a
sign that stacks consonants and is followed by another mark, which no spelling has, does not join the next letter; GB9c
is applied in scripts without spaces only. In the others a piece without "▁" continues a word of letters anyway.
"""

from __future__ import annotations

from functools import cache

from albert_data.unicode_tables import category, script

_JOINER = "\u200d"
# Skin tones and tags stand after emoji.
_EMOJI_PARTS = frozenset(chr(code) for codes in (range(0x1F3FB, 0x1F400), range(0xE0020, 0xE0080)) for code in codes)
# These continue a character although they are no marks: ZERO WIDTH NON-JOINER, Thai and Lao AM, half-width voicing
# marks.
_CONTINUING = frozenset("\u200c\u200d\u0e33\u0eb3\uff9e\uff9f") | _EMOJI_PARTS
_KANA_MARKS = frozenset("\u3099\u309a")
# Prepended marks: the next character belongs to them (GB9b).
_PREPENDED = (
    (0x0600, 0x0605),
    (0x06DD, 0x06DD),
    (0x070F, 0x070F),
    (0x0890, 0x0891),
    (0x08E2, 0x08E2),
    (0x0D4E, 0x0D4E),
    (0x110BD, 0x110BD),
    (0x110CD, 0x110CD),
    (0x111C2, 0x111C3),
    (0x1193F, 0x1193F),
    (0x11941, 0x11941),
    (0x11A3A, 0x11A3A),
    (0x11A84, 0x11A89),
    (0x11D46, 0x11D46),
    (0x11F02, 0x11F02),
)
# Never the last character of a cluster. Five signs put the next consonant under the one before: Myanmar virama, Khmer
# coeng, Tai Tham sakot, Balinese adeg adeg, Javanese pangkon (rule GB9c of Unicode 16, for scripts without spaces). And
# Thai nikhahit: NFKC writes the vowel AM as nikhahit and AA.
_NO_ENDS = frozenset("\u1039\u17d2\u1a60\u1b44\ua9c0\u0e4d")
_JOINING = _NO_ENDS | {_JOINER} | {chr(code) for first, last in _PREPENDED for code in range(first, last + 1)}


@cache
def continues(character: str) -> bool:
    """Whether a character never begins a grapheme cluster, except at the beginning of text."""
    return category(character) in ("Mn", "Mc", "Me") or character in _CONTINUING


def joins_next(character: str) -> bool:
    """Whether any character after this one belongs to its cluster."""
    return character in _JOINING


@cache
def follows_whole_word(character: str) -> bool:
    """Whether a continuing character occurs after symbols, ideographs and kana only."""
    return script(character) == "VARIATION" or character in _EMOJI_PARTS or character in _KANA_MARKS
