"""Near-duplicates by sets of words and a double loop: slow and obvious."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "YI", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
_PUNCTUATION = ((0x3001, 0x3040), (0x30FB, 0x3100), (0xFE30, 0xFE50), (0xFF00, 0xFF66))


def is_unspaced(character: str) -> bool:
    script = unicodedata.name(character, "-").split()[0]
    return script in _SCRIPTS or any(first <= ord(character) < end for first, end in _PUNCTUATION)


def split_words(text: str) -> list[str]:
    """What stands between white space; each character of a script without spaces is a word."""
    words: list[str] = []
    for part in text.split():
        begin = 0
        for at, character in enumerate(part):
            if is_unspaced(character):
                words += [part[begin:at], character] if at > begin else [character]
                begin = at + 1
        words += [part[begin:]] if begin < len(part) else []
    return words


def find_shingles(text: str) -> Iterator[tuple[str, ...]]:
    words = split_words(text)
    found = False
    for begin, word in enumerate(words):
        size = 7 if is_unspaced(word[0]) else 5
        if begin + size <= len(words):
            found = True
            yield tuple(words[begin : begin + size])
    if words and not found:
        yield tuple(words)


@cache
def find_set(text: str) -> frozenset[tuple[str, ...]]:
    return frozenset(find_shingles(text))


def measure_similarity(first: str, second: str) -> float:
    mine, its = find_set(first), find_set(second)
    return len(mine & its) / len(mine | its)


def find_staying(ranked: Sequence[str], similarity: float) -> Mapping[str, str | None]:
    """For each text, the earlier one that stays and is similar to it; None if it stays itself. ranked: first first."""
    found: dict[str, str | None] = {}
    for text in ranked:
        similar = (
            other for other, kept in found.items() if kept is None and measure_similarity(text, other) >= similarity
        )
        found[text] = next(similar, None)
    return found
