"""Write albert_data/unicode.tsv from the Unicode tables of the Python that runs this (3.13: Unicode 15.1).

    python3.13 scripts/make_unicode_table.py

A line is a range of code points: the first, its general category, and its script (letters, marks and numbers only;
"-" for others). The script is the first word of the characters' Unicode names, which is what the names are made of.
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

TABLE = Path(__file__).parent.parent / "albert_data" / "unicode.tsv"
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


if __name__ == "__main__":
    TABLE.write_text(make_table())
