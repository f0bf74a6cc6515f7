"""Tables of figures, for a terminal of 80 columns; html/page.py shows the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from albert_data.inspect.sources import SourceStatistics
from albert_data.inspect.terminal import count_columns
from albert_data.text.escaping import escape_controls
from albert_data.text.wording import format_share, list_some, wrap_words

WIDTH = 80
_MAX_SOURCES, _MAX_NAMED = 30, 10  # in a table; by name in a sentence


class FigureTable(NamedTuple):
    """rows: cells, the head first; caption: a sentence above them; is_prose: cells are sentences, not numbers."""

    rows: Sequence[Sequence[str]]
    caption: str = ""
    is_prose: bool = False


def format_figure(name: str, value: float | None) -> str:
    """A dash for None; a count if the name begins with "num_"; otherwise a share, whatever the name."""
    if value is None:
        return "-"
    if 0 < value < 0.00005:
        return "<0.01 %"
    return f"{value:,.0f}" if name.startswith("num_") else format_share(value)


def tabulate_sources(title: str, sources: Sequence[SourceStatistics]) -> FigureTable:
    """The rows of each source, as many as a person reads."""
    small = [one.name for one in sources if one.is_small]
    says = f"{title}, the worst first"
    if len(sources) > _MAX_SOURCES:
        says += f"; {len(sources) - _MAX_SOURCES:,} more are in --json"
    if small:
        says += f"; of too few documents to be judged: {list_some(small, _MAX_NAMED)}"
    table = [["", "rows", "tokens", "<unk>", "no pair", "no task", "masked", "words/token"]]
    for one in sources[:_MAX_SOURCES]:
        *shares, words = one.shares.values()
        cells = [f"{one.num_rows:,}", f"{one.num_tokens:,}", *(format_figure("share", share) for share in shares)]
        table.append([one.name, *cells, "-" if words is None else f"{words:.2f}"])
    return FigureTable(table, says)


def lay_out(table: FigureTable) -> Iterator[str]:
    """The lines of a table. Its first column is aligned left and indented below the head."""
    yield from fill(table.caption)
    head, *rows = ([escape_controls(cell) for cell in row] for row in table.rows)
    if table.is_prose:
        yield head[0]
        for row in rows:
            yield from fill("  ".join(row), "  ", " " * 4)
        return
    names, *columns = zip(head, *([f"  {name}", *cells] for name, *cells in rows), strict=True)
    widths = [2 + max(map(len, column)) for column in columns]
    first = max(map(count_columns, names))
    for name, *cells in zip(names, *columns, strict=True):
        numbers = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        yield f"{name}{' ' * (first - count_columns(name))}{numbers}".rstrip()


def fill(text: str, indent: str = "", hanging: str = "") -> list[str]:
    return wrap_words(escape_controls(text), WIDTH, indent, hanging)
