"""The words that matter to a full stop, in each language.

In: abbreviations.txt, which says what may follow the full stop of a word of each word class. Out: for a language a hash
table from words to their word classes, for the kernel (`look_up` in segmenting.py).

    slot   hashes            word_classes
    0      FNV-1a of "Mr"    TITLE                   a word's slot is the lowest bits of its hash,
    1      0                 0                       or the next one that was free
    2      FNV-1a of "a.m"   TIME | MAYBE

The table holds no words: a word of a text has the hash of another word in it with a chance of one in 10**16.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from albert_data.kernels.fnv import hash_bytes

_PATH = Path(__file__).with_name("abbreviations.txt")
# A word class is a bit, since a word may be of several.
_NAMES = ("title", "number", "volume", "maybe", "ends", "time", "lead", "starter", "speech", "pronoun", "name")
TITLE, NUMBER, VOLUME, MAYBE, ENDS, TIME, LEAD, STARTER, SPEECH, PRONOUN, NAME = (1 << i for i in range(len(_NAMES)))
_CASE_SENSITIVE = ("lead", "starter", "speech", "pronoun")
# Small letters and their capitals. str.upper would follow the Unicode version of the running Python, and so would the
# sentences.
_ALPHABETS = (
    ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    (
        "àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþāăąćĉċčďđēĕėęěĝğġģĥħĩīĭįĵķĺļľłńņňŋōŏőœŕŗřśŝşšţťŧũūŭůűųŵŷźżžșț",
        "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞĀĂĄĆĈĊČĎĐĒĔĖĘĚĜĞĠĢĤĦĨĪĬĮĴĶĹĻĽŁŃŅŇŊŌŎŐŒŔŖŘŚŜŞŠŢŤŦŨŪŬŮŰŲŴŶŹŻŽȘȚ",
    ),
    (
        "αβγδεζηθικλμνξοπρστυφχψωάέήίόύώабвгдежзийклмнопрстуфхцчшщъыьэюяѐёђѓєѕіїјљњћќѝўџґәғқңөұүһ",
        "ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩΆΈΉΊΌΎΏАБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯЀЁЂЃЄЅІЇЈЉЊЋЌЍЎЏҐӘҒҚҢӨҰҮҺ",
    ),
    ("աբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆ", "ԱԲԳԴԵԶԷԸԹԺԻԼԽԾԿՀՁՂՃՄՅՆՇՈՉՊՋՌՍՎՏՐՑՒՓՔՕՖ"),
)
_CAPITALS = {small: capital for alphabet in _ALPHABETS for small, capital in zip(*alphabet, strict=True)}
_SMALL = {capital: small for small, capital in _CAPITALS.items()}


@cache
def read_tables() -> dict[str, dict[str, int]]:
    """The words of each language in all their forms, with their word classes."""
    tables: dict[str, dict[str, int]] = {}
    table: dict[str, int] = {}
    for line in _PATH.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):  # [de-AT de]: a language, and those whose words it also has
            language, *bases = line.strip("[]").split()
            table = tables[language] = {word: classes for base in bases for word, classes in tables[base].items()}
        elif line and not line.startswith("#"):
            name, *words = line.split()
            word_class = TITLE if name == "rank" else 1 << _NAMES.index(name)
            for form in (form for word in words for form in list_forms(name, word)):
                table[form] = table.get(form, 0) | word_class
    return tables


def list_forms(name: str, word: str) -> set[str]:
    """The forms in which a listed word counts. name: of its word class, or "rank".

    >>> sorted(list_forms("maybe", "inc")), sorted(list_forms("title", "Fa")), sorted(list_forms("rank", "Rep"))
    (['Inc', 'inc'], ['Fa', 'fa'], ['Rep'])
    """
    if name == "rank" or name in _CASE_SENSITIVE:
        return {word}
    forms = {word, _CAPITALS.get(word[0], word[0]) + word[1:]}
    if name == "title" and len(word) > 1:
        forms.add(_SMALL.get(word[0], word[0]) + word[1:])
    return forms


def make_table(language: str, abbreviations: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The hash table of a language, at most half full: uint64 hashes and uint16 word classes, a power of two of each.

    A language without words has an empty table. abbreviations: words to add, as TextConfig has them.
    """
    words = dict(read_tables().get(language, {}))
    for code, word in (line.split() for line in (abbreviations or "").splitlines()):
        for form in list_forms("maybe", word) if code == language else ():
            words[form] = words.get(form, 0) | MAYBE
    size = 1 << max(4, (2 * len(words)).bit_length())
    hashes, word_classes = np.zeros(size, np.uint64), np.zeros(size, np.uint16)
    for word, classes in words.items():
        found = hash_bytes(word.encode())
        slot = found & size - 1
        while hashes[slot]:
            assert hashes[slot] != found, "two words of a table share a hash"
            slot = slot + 1 & size - 1
        hashes[slot], word_classes[slot] = found, classes
    return hashes, word_classes
