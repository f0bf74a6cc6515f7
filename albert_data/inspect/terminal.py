"""Text for a terminal: escaped, measured in columns, wrapped, coloured.

In: stretches of text, each of one style. Out: lines. Control characters and invisible ones are
written as Python writes them in a string, `\\x1b`, so they never reach the terminal.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from albert_data.escaping import escape_controls as escape_controls
from albert_data.escaping import make_encodable as make_encodable
from albert_data.escaping import name_as_text as name_as_text

_NO_COLUMN = frozenset({"Mn", "Me", "Cf"})
_RESET = "\x1b[0m"


@dataclass(frozen=True, kw_only=True)
class Run:
    """Text of one style. style: a name that `paint` knows, or "" for none."""

    text: str
    style: str = ""


Line = list[Run]


def count_columns(text: str) -> int:
    """The columns that a text fills in a terminal: two for a wide character, none for a combining mark."""
    return sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in _NO_COLUMN:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrap(runs: Sequence[Run], width: int) -> list[Line]:
    """Break at spaces and beside wide characters; a word longer than a line is broken anywhere.

    A run with a style is broken only at its spaces. Spaces at both ends of a line are left out.
    """
    styles = [run.style for run in runs for _ in run.text]
    text, may_break = "".join(run.text for run in runs), list(_find_breaks(runs))
    lines, end = [], 0
    while end < len(text):
        begin = end + len(text[end:]) - len(text[end:].lstrip(" "))
        end = _find_line_end(text, may_break, begin, width)
        last = begin + len(text[begin:end].rstrip(" "))
        if begin < last:
            lines.append(_to_runs(text[begin:last], styles[begin:last]))
    return lines


def _find_breaks(runs: Sequence[Run]) -> Iterator[bool]:
    """For each character, whether a line may break before it."""
    last, last_is_wide = "", False
    for run in runs:
        holds_wide = any(_width(character) == 2 for character in run.text)
        for i, character in enumerate(run.text):
            columns, is_inside = _width(character), bool(run.style) and i > 0
            is_wide = holds_wide if run.style else columns == 2
            yield last == " " or (not is_inside and columns > 0 and (is_wide or last_is_wide))
            last, last_is_wide = character, is_wide or (columns == 0 and last_is_wide)


def _find_line_end(text: str, may_break: Sequence[bool], begin: int, width: int) -> int:
    column, last_break = 0, begin
    for at in range(begin, len(text)):
        if may_break[at]:
            last_break = at
        columns = _width(text[at])
        if column + columns > width and text[at] != " ":
            return last_break if last_break > begin else max(at, begin + 1)
        column += columns
    return len(text)


def _to_runs(text: str, styles: Sequence[str]) -> Line:
    pairs = groupby(zip(text, styles, strict=True), key=lambda pair: pair[1])
    return [Run(text="".join(character for character, _ in group), style=style) for style, group in pairs]


def paint(line: Line, palette: Mapping[str, str]) -> str:
    """A line as a string. palette: the escape sequence of each style; other styles have no colour."""
    return "".join(f"{palette[run.style]}{run.text}{_RESET}" if run.style in palette else run.text for run in line)
