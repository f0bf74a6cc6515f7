"""The words that matter to a stop, in each language, as a hash table for the kernels.

In: abbreviations.txt. A word has word classes, by what may follow its full stop (see there). Words are compared byte
for byte; in most classes one that is listed in lower case also counts with a capital. A slot holds the 64-bit FNV-1a
hash of a word, not its bytes: a word of a text has the hash of another word in the table with a chance of one in
10**16.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from albert_data.fnv import FNV_BASIS, add_byte, hash_bytes
from albert_data.kernels import I64, U64, helper, item
from albert_data.sentences.characters import (
    BLANK,
    DOUBLE,
    EXCLAIM,
    LAST_SLOT,
    RuledText,
    make_classes,
    read_class,
    step,
)

_PATH = Path(__file__).with_name("abbreviations.txt")
_CLASSES = ("title", "number", "volume", "maybe", "ends", "time", "lead", "starter", "speech", "pronoun", "name")
TITLE, NUMBER, VOLUME, MAYBE, ENDS, TIME, LEAD, STARTER, SPEECH, PRONOUN, NAME = (1 << i for i in range(len(_CLASSES)))
# What `is_ordinary` takes for abbreviations. Not `number`: "no", "sun" and "mar" are ordinary words, too.
ABBREVIATIONS = TITLE | VOLUME | MAYBE | ENDS | TIME | NAME
_CASE_SENSITIVE = ("lead", "starter", "speech", "pronoun")  # words count only as they are listed
# Pairs of small and capital letters. str.upper would follow the Unicode version of the running Python, and so would the
# sentences.
_LOWER = "àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþāăąćĉċčďđēĕėęěĝğġģĥħĩīĭįĵķĺļľłńņňŋōŏőœŕŗřśŝşšţťŧũūŭůűųŵŷźżžșț"
_UPPER = "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞĀĂĄĆĈĊČĎĐĒĔĖĘĚĜĞĠĢĤĦĨĪĬĮĴĶĹĻĽŁŃŅŇŊŌŎŐŒŔŖŘŚŜŞŠŢŤŦŨŪŬŮŰŲŴŶŹŻŽȘȚ"
_LOWER += "αβγδεζηθικλμνξοπρστυφχψωάέήίόύώабвгдежзийклмнопрстуфхцчшщъыьэюяѐёђѓєѕіїјљњћќѝўџґәғқңөұүһ"
_UPPER += "ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩΆΈΉΊΌΎΏАБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯЀЁЂЃЄЅІЇЈЉЊЋЌЍЎЏҐӘҒҚҢӨҰҮҺ"
_LOWER += "աբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆ"
_UPPER += "ԱԲԳԴԵԶԷԸԹԺԻԼԽԾԿՀՁՂՃՄՅՆՇՈՉՊՋՌՍՎՏՐՑՒՓՔՕՖ"
_CAPITALS = dict(zip(_LOWER, _UPPER, strict=True)) | {chr(97 + i): chr(65 + i) for i in range(26)}
_SMALL = {capital: small for small, capital in _CAPITALS.items()}
# ASCII characters that end sentences in some languages: the Greek question mark, the Armenian full stop, dandas typed
# as |, and two Ethiopic colons.
_ASCII_STOPS = {"el": (";", EXCLAIM), "grc": (";", EXCLAIM), "hy": (":", EXCLAIM)}
_ASCII_STOPS |= dict.fromkeys(("hi", "mr", "ne", "sa", "bho", "mai", "bn", "as", "or", "pa", "gu"), ("|", EXCLAIM))
_ASCII_STOPS |= dict.fromkeys(("am", "ti"), (":", DOUBLE))
# Languages in which a full stop after a number makes it an ordinal.
_WITH_ORDINALS = "az bs cs da de dsb et eu fi fo hr hsb hu is kk ky lb lv nb nn no sh sk sl sr tk tr"
MAX_WORD = 48  # bytes


@cache
def make_source(language: str) -> RuledText:
    """The rule of a language, without text yet. A language without a table has the general rule, and no words."""
    ascii_classes = make_classes()[:128].copy()
    if language in _ASCII_STOPS:
        character, char_class = _ASCII_STOPS[language]
        ascii_classes[ord(character)] = char_class
    hashes, word_classes = _make_table(read_tables().get(language, {}))
    settings = np.array([len(hashes) - 1, language in _WITH_ORDINALS.split()], np.int64)
    return RuledText(np.zeros(0, np.uint8), ascii_classes, make_classes(), hashes, word_classes, settings)


@cache
def read_tables() -> dict[str, dict[str, int]]:
    """The words of each language, and their word classes as bits."""
    tables: dict[str, dict[str, int]] = {}
    table: dict[str, int] = {}
    for line in _PATH.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            name, *bases = line.strip("[]").split()
            table = tables[name] = {word: value for base in bases for word, value in tables[base].items()}
        elif line and not line.startswith("#"):
            name, *words = line.split()
            for word in words:
                for form, value in _find_forms(name, word).items():
                    table[form] = table.get(form, 0) | value
    return tables


def _find_forms(name: str, word: str) -> dict[str, int]:
    """The forms of a listed word, and the word class of each.

    A word also counts with a capital, and a title of several letters also without one. A rank is a title only as it is
    listed, and words of _CASE_SENSITIVE classes count only so.
    """
    if name == "rank":
        return {word: TITLE}
    word_class = 1 << _CLASSES.index(name)
    if name in _CASE_SENSITIVE:
        return {word: word_class}
    forms = dict.fromkeys((word, _CAPITALS.get(word[0], word[0]) + word[1:]), word_class)
    if name == "title" and len(word) > 1:
        forms[_SMALL.get(word[0], word[0]) + word[1:]] = word_class
    return forms


def _make_table(words: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """An open-addressing hash table with linear probing, at most half full: hashes, and word classes."""
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


@helper
def look_up(source: RuledText, begin: int, end: int) -> int:
    """The word classes of a word, white space in it left out; 0 if it isn't listed."""
    if end - begin > MAX_WORD or end <= begin:
        return 0
    found, at = FNV_BASIS, begin
    while at < end:
        after = step(source, at)
        if read_class(source, at) != BLANK:  # "U. S." is looked up as "U.S."
            while at < after:
                found = add_byte(found, item(source.utf8, at))
                at += 1
        at = after
    last_slot = item(source.settings, LAST_SLOT)
    slot = I64(found & U64(last_slot))
    while item(source.hashes, slot) != 0:
        if item(source.hashes, slot) == found:
            return int(item(source.word_classes, slot))
        slot = (slot + 1) & last_slot
    return 0
