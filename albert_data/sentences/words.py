"""The words that a stop can belong to, in each language, as a hash table for the kernels.

In: abbreviations.txt. A word has classes, by what may follow its full stop (see there). Words are compared byte for
byte; one that is listed in lower case counts with a capital, too. A slot holds the 64-bit FNV-1a hash of a word: that a
word of a text shares its hash with one of the table has a chance of one in 10**16.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from albert_data.kernels import I64, U64, helper, item
from albert_data.sentences.kinds import BLANK, DOUBLE, EXCLAIM, Source, make_kinds, read_kind, step

_PATH = Path(__file__).with_name("abbreviations.txt")
_CLASSES = ("title", "number", "volume", "maybe", "ends", "time", "lead", "starter", "speech", "pronoun", "name")
TITLE, NUMBER, VOLUME, MAYBE, ENDS, TIME, LEAD, STARTER, SPEECH, PRONOUN, NAME = (1 << i for i in range(len(_CLASSES)))
ABBREVIATIONS = TITLE | VOLUME | MAYBE | ENDS | TIME | NAME  # words of `number` are ordinary words, too
_CASELESS = ("lead", "starter", "speech", "pronoun")  # taken as they are listed
_LOWER = "àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþāăąćĉċčďđēĕėęěĝğġģĥħĩīĭįĵķĺļľłńņňŋōŏőœŕŗřśŝşšţťŧũūŭůűųŵŷźżžșț"
_UPPER = "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞĀĂĄĆĈĊČĎĐĒĔĖĘĚĜĞĠĢĤĦĨĪĬĮĴĶĹĻĽŁŃŅŇŊŌŎŐŒŔŖŘŚŜŞŠŢŤŦŨŪŬŮŰŲŴŶŹŻŽȘȚ"
_LOWER += "αβγδεζηθικλμνξοπρστυφχψωάέήίόύώабвгдежзийклмнопрстуфхцчшщъыьэюяѐёђѓєѕіїјљњћќѝўџґәғқңөұүһ"
_UPPER += "ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩΆΈΉΊΌΎΏАБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯЀЁЂЃЄЅІЇЈЉЊЋЌЍЎЏҐӘҒҚҢӨҰҮҺ"
_LOWER += "աբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆ"
_UPPER += "ԱԲԳԴԵԶԷԸԹԺԻԼԽԾԿՀՁՂՃՄՅՆՇՈՉՊՋՌՍՎՏՐՑՒՓՔՕՖ"
_CAPITALS = dict(zip(_LOWER, _UPPER, strict=True)) | {chr(97 + i): chr(65 + i) for i in range(26)}
_SMALL = {capital: small for small, capital in _CAPITALS.items()}
# ASCII characters that end sentences in some languages: the Greek question mark, typed dandas and Armenian full stops.
_ASCII_STOPS = {"el": (";", EXCLAIM), "grc": (";", EXCLAIM), "hy": (":", EXCLAIM)}
_ASCII_STOPS |= dict.fromkeys(("hi", "mr", "ne", "sa", "bho", "mai", "bn", "as", "or", "pa", "gu"), ("|", EXCLAIM))
_ASCII_STOPS |= dict.fromkeys(("am", "ti"), (":", DOUBLE))
# Languages in which a full stop after a number makes it an ordinal.
_WITH_ORDINALS = "az bs cs da de dsb et eu fi fo hr hsb hu is kk ky lb lv nb nn no sh sk sl sr tk tr"
_OFFSET, _PRIME = U64(0xCBF29CE484222325), U64(0x100000001B3)
MAX_WORD = 48  # bytes


@cache
def make_source(language: str) -> Source:
    """The rule of a language, still without text. One without a table has the rule of all, with no words."""
    ascii = make_kinds()[:128].copy()
    if language in _ASCII_STOPS:
        character, kind = _ASCII_STOPS[language]
        ascii[ord(character)] = kind
    keys, values = _make_table(read_tables().get(language, {}))
    settings = np.array([len(keys) - 1, language in _WITH_ORDINALS.split()], np.int64)
    return Source(np.zeros(0, np.uint8), ascii, make_kinds(), keys, values, settings)


@cache
def read_tables() -> dict[str, dict[str, int]]:
    """The words of each language with their classes."""
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
    """A word of a class as it may be written, and the class of each form: with a capital, and a title without.

    A rank is a title only as it is listed.
    """
    if name == "rank":
        return {word: TITLE}
    value = 1 << _CLASSES.index(name)
    if name in _CASELESS:
        return {word: value}
    forms = dict.fromkeys((word, _CAPITALS.get(word[0], word[0]) + word[1:]), value)
    if name == "title" and len(word) > 1:
        forms[_SMALL.get(word[0], word[0]) + word[1:]] = value
    return forms


def _make_table(words: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    size = 1 << max(4, (2 * len(words)).bit_length())
    keys, values = np.zeros(size, np.uint64), np.zeros(size, np.uint16)
    for word, value in words.items():
        key = hash_bytes(word.encode())
        slot = key & size - 1
        while keys[slot]:
            assert keys[slot] != key, "two words of a table share a hash"
            slot = slot + 1 & size - 1
        keys[slot], values[slot] = key, value
    return keys, values


def hash_bytes(word: bytes) -> int:
    value = int(_OFFSET)
    for byte in word:
        value = (value ^ byte) * int(_PRIME) % 2**64
    return value


@helper
def look_up(source: Source, begin: int, end: int) -> int:
    """The classes of a word, white space in it left out; 0 if it isn't listed."""
    if end - begin > MAX_WORD or end <= begin:
        return 0
    value, at = _OFFSET, begin
    while at < end:
        after = step(source, at)
        if read_kind(source, at) != BLANK:
            while at < after:
                value = (value ^ U64(item(source.utf8, at))) * _PRIME
                at += 1
        at = after
    mask = item(source.settings, 0)
    slot = I64(value & U64(mask))
    while item(source.keys, slot) != 0:
        if item(source.keys, slot) == value:
            return int(item(source.values, slot))
        slot = (slot + 1) & mask
    return 0
