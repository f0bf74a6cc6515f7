"""Text for a terminal: escaped, measured in columns, wrapped, coloured.

In: texts, each of one style, escaped by the caller with `escape_controls` (escaping.py), so that no control character
or invisible one reaches the terminal. Out: lines.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

_NO_COLUMN = frozenset({"Mn", "Me", "Cf"})
_RESET = "\x1b[0m"


class StyledText(NamedTuple):
    """Text of one style. style: a name that `paint` knows, or "" for none."""

    text: str
    style: str = ""


Line = list[StyledText]


def count_columns(text: str) -> int:
    """The columns that a text fills in a terminal: two for a wide character, none for a combining mark."""
    return sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in _NO_COLUMN:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrap(texts: Sequence[StyledText], width: int) -> list[Line]:
    """Break at spaces; a word longer than a line is broken anywhere, but outside of a text with a style if possible.

    Spaces at both ends of a line are left out.
    """
    styles = [styled.style for styled in texts for _ in styled.text]
    is_inside = [bool(styled.style) and i > 0 for styled in texts for i in range(len(styled.text))]
    text = "".join(styled.text for styled in texts)
    lines, end = [], 0
    while end < len(text):
        begin = len(text) - len(text[end:].lstrip(" "))  # after the spaces at the break
        end = _find_line_end(text, is_inside, begin, width)
        last = begin + len(text[begin:end].rstrip(" "))
        if begin < last:
            lines.append(_group_styles(text[begin:last], styles[begin:last]))
    return lines


def _find_line_end(text: str, is_inside: Sequence[bool], begin: int, width: int) -> int:
    column, last_break = 0, begin
    for at in range(begin, len(text)):
        if text[at - 1 : at] == " ":
            last_break = at
        columns = _width(text[at])
        if column + columns > width and text[at] != " ":
            # A longer word is broken here, or before the marker that is here; at least one character is taken.
            outside = next((i for i in range(at, begin, -1) if not is_inside[i]), at)
            return last_break if last_break > begin else max(outside, begin + 1)
        column += columns
    return len(text)


def _group_styles(text: str, styles: Sequence[str]) -> Line:
    pairs = groupby(zip(text, styles, strict=True), key=lambda pair: pair[1])
    return [StyledText("".join(character for character, _ in group), style) for style, group in pairs]


def paint(line: Line, palette: Mapping[str, str]) -> str:
    """A line as a string. palette: the escape sequence of each style; other styles have no colour."""
    return "".join(f"{palette[one.style]}{one.text}{_RESET}" if one.style in palette else one.text for one in line)
