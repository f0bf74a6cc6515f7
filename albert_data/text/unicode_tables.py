"""The Unicode tables that affect the bytes of a build.

They are part of the package, so that every Python makes the same build.

In: unicode.tsv, ranges of code points with general category and script, written by scripts/make_unicode_table.py. Code
that only shows text (columns of a terminal, escaping) uses Python's own tables.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

_PATH = Path(__file__).with_name("unicode.tsv")
_NUM_CODE_POINTS = 0x110000
_CATEGORY, _SCRIPT = 0, 1  # columns


@cache
def _read() -> tuple[str, list[int], list[str], list[str]]:
    """Return the version, then the first code point, the category and the script of each range."""
    head, *lines = _PATH.read_text(encoding="ascii").splitlines()
    firsts, categories, scripts = zip(*(line.split("\t") for line in lines), strict=True)
    return head.removeprefix("# Unicode "), [int(first, 16) for first in firsts], list(categories), list(scripts)


def unicode_version() -> str:
    return _read()[0]


@cache
def _expand(column: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return a column of the table as a number for each code point, and the names that the numbers stand for."""
    _, firsts, *columns = _read()
    names, numbers = np.unique(columns[column], return_inverse=True)
    lengths = [end - begin for begin, end in pairwise([*firsts, _NUM_CODE_POINTS])]
    expanded = np.repeat(numbers.astype(np.uint16), lengths)
    expanded.flags.writeable = False
    return expanded, tuple(names.tolist())


def categories() -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the general category of each code point: numbers (uint16, 0x110000 of them), and their names ("Lu")."""
    return _expand(_CATEGORY)


def scripts() -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the script of each code point in the same form.

    The script of a letter, mark or number is the first word of its Unicode name ("LATIN", "CJK", "HIRAGANA"); other
    characters have "-".
    """
    return _expand(_SCRIPT)


def category(character: str) -> str:
    """The general category of a character, as "Lu"."""
    numbers, names = categories()
    return names[int(numbers[ord(character)])]


def script(character: str) -> str:
    """The script of a letter, mark or number, as "LATIN"; "-" for any other character."""
    numbers, names = scripts()
    return names[int(numbers[ord(character)])]
