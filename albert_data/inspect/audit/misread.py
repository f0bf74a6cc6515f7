"""Find words that a program misread (OCR), text that was decoded wrongly, and encoded data, in texts of rows.

In: texts. Out: for each its suspicious words, if it has several. The words of all texts take the place of a dictionary.

A word counts as misread if replacing one letter by what looks like it (`tlie`: li for h) gives a word that stands in
many more texts, and if it is unlikely as a new word. That is judged by its letters: each has a probability after the
two before it, add-one, counted on the words that stand in two texts or more, each once. Without this, half as many rows
of real OCR were found. Suspicious are also words with a symbol between letters (`donâ€™t`), and long ones in which
letters and digits alternate (base64, hashes).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

MIN_TEXTS, _TIMES = 20, 4  # texts that have the right word, and how many times as many as those with the misread one
_MIN_BITS = 30  # of -log2 of the probability of the misread word, and 2 log2 of how many times as many
_LETTERS, _MIN_FREQUENT = range(3, 31), 50  # of a right word; how many such words are needed
_MIN_WORDS, _MIN_SHARE = 2, 0.01  # different suspicious words, per word of the text
_SHOWN, _SHOWN_LETTERS = 3, 24

# Right and wrong, either way round: what OCR takes most frequently for one another in books and papers; at the end
# what it, or a PDF's font without ligatures, leaves out or sees in addition.
_LOOK_ALIKE = """h-li h-b h-ii e-c e-o i-1 i-l l-1 l-t o-0 c-o s-5 s-f s-a u-n u-a ll-u n-ii in-m rn-m nn-im m-ni m-iii
y-v w-vv w-av w-\\v r-i r-i' f-l f-t f-i p-ji p-j) p-l) b-l) d-cl d-(l t-i a-n ri-n fi- fl- ff- ffi-"""
_WORD = re.compile(r"\w[^\s\u2010-\u2015\u2026\u2e3a\u2e3b]*\w")  # dashes and an ellipsis stand between words
_SYMBOLS = r"*\\^|~\u00a2-\u00ac\u00ae\u00b1\u00b6\u00bf\u00d7\u00f7\u2020-\u2022\u20ac\u2122\u25a0\ufffd"
_SYMBOL = re.compile(rf"[^\W\d_][{_SYMBOLS}][{_SYMBOLS}\u2018-\u201f]*[^\W\d_]")  # maybe with quotation marks
_LONG, _FROM_LETTER, _MANY = 20, re.compile(r"[a-z][0-9]"), 2  # letters and digits of an encoded word, and changes


def find_misread(texts: Sequence[str]) -> list[str | None] | None:
    """The suspicious words of each text that has several; None if the texts share too few words to know."""
    words = [_WORD.findall(text.lower()) for text in texts]
    num_texts = Counter(word for found in words for word in set(found))
    right = [word for word, count in num_texts.items() if count >= MIN_TEXTS and len(word) in _LETTERS]
    if len(right) < _MIN_FREQUENT:
        return None
    suspicious = {word: word[:_SHOWN_LETTERS] for word in num_texts if _is_odd(word)}
    suspicious |= {word: f"{word} ({meant})" for word, meant in _find_pairs(right, num_texts).items()}
    return [_list(found, suspicious) for found in words]


def _is_odd(word: str) -> bool:
    return bool(_SYMBOL.search(word)) or (len(word) >= _LONG and len(_FROM_LETTER.findall(word)) >= _MANY)


def _list(words: Sequence[str], suspicious: dict[str, str]) -> str | None:
    found = [suspicious[word] for word in dict.fromkeys(words) if word in suspicious]
    is_many = len(found) >= max(_MIN_WORDS, _MIN_SHARE * len(words))
    return ", ".join(found[:_SHOWN]) if is_many else None


def _find_pairs(right: Sequence[str], num_texts: Counter[str]) -> dict[str, str]:
    """Each misread word with the right one."""
    alike = defaultdict[str, list[str]](list)
    for one, other in (pair.split("-") for pair in _LOOK_ALIKE.split()):
        alike[one].append(other)
        alike[other].append(one)
    measure = _learn_letters(word for word, count in num_texts.items() if count >= 2)
    found = {}
    for word in sorted(right, key=num_texts.__getitem__):  # the most frequent one is kept
        for other in list_look_alikes(word, alike):
            count = num_texts.get(other, 0)
            if 0 < count * _TIMES <= num_texts[word]:
                bits = 2 * math.log2(num_texts[word] / count) + measure(other)
                if bits >= _MIN_BITS:
                    found[other] = word
    return found


def list_look_alikes(word: str, alike: Mapping[str, list[str]]) -> Iterator[str]:
    """The word with one to three letters at one place replaced by what looks like them.

    >>> list(list_look_alikes("he", {"h": ["li"]}))
    ['lie']
    """
    for at in range(len(word)):
        for end in range(at + 1, min(at + 3, len(word)) + 1):
            for other in alike.get(word[at:end], ()):
                yield word[:at] + other + word[end:]


def _learn_letters(words: Iterable[str]) -> Callable[[str], float]:
    """Returns -log2 of a word's probability by its letters, each after the two before it, with spaces around."""
    grams = [gram for word in words for gram in _list_trigrams(word)]
    counts, before = Counter(grams), Counter(gram[:2] for gram in grams)
    num = len({gram[2] for gram in grams})  # letters
    return lambda word: sum(math.log2((before[gram[:2]] + num) / (counts[gram] + 1)) for gram in _list_trigrams(word))


def _list_trigrams(word: str) -> list[str]:
    padded = f"  {word} "
    return [padded[at : at + 3] for at in range(len(padded) - 2)]
