"""Write unicode.tsv, composition.tsv and normalization.tsv from the tables of the Python that runs this (3.13: 15.1).

    python3.13 scripts/make_unicode_table.py

A line is a range of code points: the first, its general category, and its script (letters, marks and numbers only;
"-" for others). The script is the first word of the characters' Unicode names, which is what the names are made of.

A line of composition.tsv is a code point with a combining class or a canonical decomposition: both, the class 0 if it
has none, and "!" after a decomposition that NFC never composes again.

A line of normalization.tsv is a range of code points and what tokenizer/sentencepiece/albert.py has to know of each:
the code points that NFKD and lower case make of it, without combining characters (capital sigma stays: its lower case
depends on its neighbours), or that it is "cased", "ignorable" (case-ignorable), "digit" (str.isdigit), "space"
(str.isspace). Hangul syllables are left out, as arithmetic decomposes them.
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "albert_data"
TABLE, NORMALIZATION, COMPOSITION = (
    FOLDER / f"{name}.tsv" for name in ("text/unicode", "tokenizer/normalization", "text/composition")
)
_HANGUL, _SIGMA = range(0xAC00, 0xD7A4), "\u03a3"
_WIDTHS = ("HALFWIDTH", "FULLWIDTH")


def describe(code: int) -> tuple[str, str]:
    """The general category and the script of a code point."""
    character = chr(code)
    category = unicodedata.category(character)
    words = unicodedata.name(character, "").replace("-", " ").split(" ")
    if words[0] in _WIDTHS:
        words = words[1:]
    return category, words[0] if category[0] in "LMN" and words[0] else "-"


def make_table() -> str:
    lines, before = [f"# Unicode {unicodedata.unidata_version}"], None
    for code in range(sys.maxunicode + 1):
        described = describe(code)
        if described != before:
            lines.append("\t".join((f"{code:X}", *described)))
            before = described
    return "\n".join([*lines, ""])


def make_composition() -> str:
    lines = [f"# Unicode {unicodedata.unidata_version}"]
    for code in range(sys.maxunicode + 1):
        character, parts = chr(code), unicodedata.decomposition(chr(code))
        parts = "" if parts.startswith("<") else " ".join(f"{int(part, 16):X}" for part in parts.split())
        is_lost = parts and unicodedata.normalize("NFC", character) != character
        if parts or unicodedata.combining(character):
            lines.append(f"{code:X}\t{unicodedata.combining(character)}\t{parts}{'!' if is_lost else ''}")
    return "\n".join([*lines, ""])


def replace(character: str) -> str:
    """What the normalisation makes of a character."""
    parts = unicodedata.normalize("NFKD", character)
    return "".join(part if part == _SIGMA else part.lower() for part in parts if not unicodedata.combining(part))


def list_properties(character: str) -> list[str]:
    """The properties of a character. str.lower shows two: it makes a final sigma after a cased character, and looks
    past characters that are case-ignorable.
    """
    is_seen = (character + _SIGMA).lower().endswith("\u03c2")
    is_ignorable = ("a" + character + _SIGMA).lower().endswith("\u03c2") and not is_seen
    found = {"cased": is_seen, "ignorable": is_ignorable, "digit": character.isdigit(), "space": character.isspace()}
    return [name for name, has_it in found.items() if has_it]


def list_facts(code: int) -> list[str]:
    character = chr(code)
    replacement = character if code in _HANGUL else replace(character)
    codes = [" ".join(f"{ord(part):X}" for part in replacement)] if replacement != character else []
    return codes + list_properties(character)


def make_normalization() -> str:
    ranges: list[tuple[str, int, int]] = []  # a fact, and the first and last code points of a range
    open_ranges: dict[str, int] = {}
    for code in range(sys.maxunicode + 2):
        facts = [] if code > sys.maxunicode or 0xD800 <= code < 0xE000 else list_facts(code)
        for fact in [fact for fact in open_ranges if fact not in facts]:
            ranges.append((fact, open_ranges.pop(fact), code - 1))
        for fact in facts:
            open_ranges.setdefault(fact, code)
    lines = [f"{first:X}..{last:X}\t{fact}" if last > first else f"{first:X}\t{fact}" for fact, first, last in ranges]
    return "\n".join([f"# Unicode {unicodedata.unidata_version}", *lines, ""])


if __name__ == "__main__":
    TABLE.write_text(make_table())
    COMPOSITION.write_text(make_composition())
    NORMALIZATION.write_text(make_normalization())
