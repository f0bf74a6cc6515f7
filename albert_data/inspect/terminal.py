"""Text for a terminal: escaped, measured in columns, wrapped, coloured.

In: texts, each of one style, escaped by the caller with `escape_controls` (escaping.py), so that no control character
or invisible one reaches the terminal. Out: lines.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
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
    """Break at spaces and beside wide characters; a word longer than a line is broken anywhere.

    A text with a style is broken only at its spaces, unless it is longer than a line. Spaces at both ends of a line are
    left out.
    """
    styles = [styled.style for styled in texts for _ in styled.text]
    is_inside = [bool(styled.style) and i > 0 for styled in texts for i in range(len(styled.text))]
    text, may_break = "".join(styled.text for styled in texts), list(_find_breaks(texts))
    lines, end = [], 0
    while end < len(text):
        begin = len(text) - len(text[end:].lstrip(" "))  # after the spaces at the break
        end = _find_line_end(text, may_break, is_inside, begin, width)
        last = begin + len(text[begin:end].rstrip(" "))
        if begin < last:
            lines.append(_group_styles(text[begin:last], styles[begin:last]))
    return lines


def _find_breaks(texts: Sequence[StyledText]) -> Iterator[bool]:
    """For each character, whether a line may break before it.

    It may after a space, and before or after a wide character, except inside a styled text or before a combining mark,
    which belongs to the character before it. A styled text counts as wide if any of its characters is.
    """
    last, last_is_wide = "", False
    for styled in texts:
        holds_wide = any(_width(character) == 2 for character in styled.text)
        for i, character in enumerate(styled.text):
            columns, is_inside = _width(character), bool(styled.style) and i > 0
            is_wide = holds_wide if styled.style else columns == 2
            yield last == " " or (not is_inside and columns > 0 and (is_wide or last_is_wide))
            last, last_is_wide = character, is_wide or (columns == 0 and last_is_wide)


def _find_line_end(text: str, may_break: Sequence[bool], is_inside: Sequence[bool], begin: int, width: int) -> int:
    column, last_break = 0, begin
    for at in range(begin, len(text)):
        if may_break[at]:
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
