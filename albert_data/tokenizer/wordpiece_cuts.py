"""Where text can be cut for WordPiece so that its parts, tokenised alone, give the tokens of the whole.

Why the cuts are exact. BERT's rules replace each character alone, except that NFD sorts the combining marks that follow
one another. Then words are divided at white space and around each punctuation mark and ideograph, and each word is
segmented alone. So text falls apart on both sides of a character that is always a word, or the white space between two:
it is no combining mark, so no sorting reaches across it. At spaces each cut is exact.

The library decides which characters these are: its Unicode tables are not ours. Each candidate is tried between two
letters. All that is not a candidate, or beyond the basic plane, gets no cut beside it, which makes longer chunks and no
other ids.

For cutting.py every character becomes one of two classes, and a pair of two joined ones is no cut.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from albert_data.tokenizer.charsmap import NUM_BASIC
from albert_data.tokenizer.cutting import AFTER, BEFORE, SOLID, CutRule, make_rule
from albert_data.unicode_tables import categories, category

_JOINED, _ALONE = 1, 2  # classes
# BERT's ideographs, of which each is a word.
_IDEOGRAPHS = (
    range(0x4E00, 0xA000),
    range(0x3400, 0x4DC0),
    range(0xF900, 0xFB00),
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2B740),
    range(0x2B740, 0x2B820),
    range(0x2B920, 0x2CEB0),
    range(0x2F800, 0x2FA20),
)
_LEFT, _RIGHT = "a", "b"  # letters around a character that is tried; they stay what they are in lower case


def is_ideograph(code: int) -> bool:
    return any(code in codes for codes in _IDEOGRAPHS)


def is_punctuation(character: str) -> bool:
    """BERT's punctuation: all of ASCII that is visible and neither a letter nor a digit, and Unicode's."""
    if character.isascii():
        return "!" <= character <= "~" and not character.isalnum()
    return category(character)[0] == "P"


def make_cut_rule(split: Callable[[str], list[str]]) -> CutRule:
    """split: the words of a text, after normalisation, as the library gives them."""
    classes = np.full(NUM_BASIC, _JOINED, np.uint16)
    candidates = _list_candidates()
    classes[candidates[find_alone(candidates.tolist(), split)]] = _ALONE
    for codes in _IDEOGRAPHS:
        ends = [codes.start, codes.stop - 1]
        if codes.stop <= NUM_BASIC and all(find_alone(ends, split)):  # all or none, as tokenize_chinese_chars says
            classes[codes.start : codes.stop] = _ALONE
    flags = np.full(NUM_BASIC, BEFORE | AFTER | SOLID, np.uint8)
    flags[ord(" ")] = 0
    pairs = np.array([_JOINED << 16 | _JOINED], np.uint32)
    return make_rule(flags, classes, classes, pairs, joins_spaces=True)


def _list_candidates() -> np.ndarray:
    """ASCII, and the punctuation and white space of the basic plane, except the space: int64."""
    numbers, names = categories()
    may_be = np.array([name[0] in "PZ" for name in names])[numbers[:NUM_BASIC]]
    may_be[:0x80] = True
    may_be[ord(" ")] = False
    return np.flatnonzero(may_be)


def find_alone(codes: list[int], split: Callable[[str], list[str]]) -> np.ndarray:
    """Whether each character is always a word or the white space between two: bool."""
    words = split("".join(f"{_LEFT}{chr(code)}{_LEFT} {_RIGHT} " for code in codes))
    found: list[bool] = []
    group: list[str] = []
    for word in words:
        if word == _RIGHT:
            found.append(len(group) > 1 and group[0] == group[-1] == _LEFT)
            group = []
        else:
            group.append(word)
    return np.array(found, bool)
