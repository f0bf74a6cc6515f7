"""Charts as inline SVG, drawn without a library.

In: numbers. Out: an `svg` element, 320 units wide so that its letters are large enough to read in a narrow window.
Colours are classes of theme.css (`fill-first`, `stroke-ink`), so that one drawing serves the light and the dark scheme.
Series differ in shape too, for readers who don't distinguish the colours. Text is not drawn as outlines, so it can be
searched and copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from albert_data.report.page import escape
from albert_data.text.wording import format_share

WIDTH, HEIGHT = 320, 204
_LETTER = 5.6  # mean width of a letter at 10 units, to make room for text: the browser's font is not known here
_LEGEND_LINE, _BELOW = 15, 36  # heights of a line of the legend, and of ticks and title below the axis
Range = tuple[float, float]
Ticks = Mapping[float, str]


class Series(NamedTuple):
    """A data series. name: in the legend; shape: bar, line, dashed or dotted."""

    name: str
    colour: str = "first"
    shape: str = "bar"

    @property
    def paint(self) -> str:
        """Its CSS classes."""
        return f"fill-{self.colour}" if self.shape == "bar" else f"line {self.shape} stroke-{self.colour}"


def element(tag: str, classes: str = "", text: str = "", **attributes: float | str) -> str:
    """One SVG element. Underscores in the names of attributes stand for hyphens."""
    named = {"class": classes, **attributes} if classes else attributes
    shown = "".join(f' {name.replace("_", "-")}="{_show(value)}"' for name, value in named.items())
    return f"<{tag}{shown}>{escape(text)}</{tag}>" if text else f"<{tag}{shown}/>"


def _show(value: float | str) -> str:
    """A number with one decimal: a tenth of a unit is less than a pixel."""
    return value if isinstance(value, str) else f"{round(value, 1):g}"


def make_ticks(low: float, high: float, form: Callable[[float], str], most: int = 6) -> dict[float, str]:
    """Labels at round numbers, 1, 2, 2.5 or 5 times a power of ten apart. most: the most labels."""
    span = (high - low) or 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10, 20) if span / (power * factor) < most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return {number * step: form(number * step) for number in range(first, last + 1)}


def share_ticks(low: float, high: float) -> dict[float, str]:
    """Ticks of an axis of shares, with as many decimals as distinguish them."""
    found = make_ticks(low, high, str)
    decimals = next((n for n in range(8) if all(abs(round(100 * at, n) - 100 * at) < 1e-9 for at in found)), 8)
    return {at: format_share(at, decimals) for at in found}


class Plot:
    """A chart with two axes, drawn on by its methods in their order; a legend where there are several series."""

    def __init__(self, x: Range, y: Range, x_ticks: Ticks, y_ticks: Ticks, x_title: str, legend: Sequence[Series]):
        self._x, self._y = x, (y if y[0] < y[1] else (y[0] - 1, y[0] + 1))
        self._left = 10 + _LETTER * max(map(len, y_ticks.values()), default=0)
        self._right, self._bottom = WIDTH - 10.0, HEIGHT - _BELOW
        lines = _lay_out_legend(legend if len(legend) > 1 else (), self._left)
        self._top = 10.0 + _LEGEND_LINE * len(lines)
        self._body = [mark for number, line in enumerate(lines) for mark in _draw_legend(line, number)]
        self._draw_axes(x_ticks, y_ticks, x_title)

    def _draw_axes(self, x_ticks: Ticks, y_ticks: Ticks, x_title: str) -> None:
        for value, label in y_ticks.items():
            at = self._to_y(value)
            self._add("line", "stroke-grid", x1=self._left, x2=self._right, y1=at, y2=at)
            self._add("text", "fill-ink", label, x=self._left - 5, y=at + 3.5, text_anchor="end")
        self._add("line", "stroke-muted", x1=self._left, x2=self._right, y1=self._bottom, y2=self._bottom)
        for value, label in x_ticks.items():
            middle = min(self._to_x(value), WIDTH - _LETTER * len(label) / 2)  # the last label may be long
            self._add("text", "fill-ink", label, x=middle, y=self._bottom + 14, text_anchor="middle")
        middle = (self._left + self._right) / 2
        self._add("text", "fill-muted", x_title, x=middle, y=HEIGHT - 5, text_anchor="middle")

    def _add(self, tag: str, classes: str, text: str = "", **attributes: float | str) -> None:
        self._body.append(element(tag, classes, text, **attributes))

    def _to_x(self, value: float) -> float:
        low, high = self._x
        return self._left + (value - low) / ((high - low) or 1.0) * (self._right - self._left)

    def _to_y(self, value: float) -> float:
        """Values beyond the axis are drawn at its end."""
        low, high = self._y
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return self._bottom - share * (self._bottom - self._top)

    def bar(self, series: Series, begin: float, end: float, height: float) -> None:
        left, right, top = self._to_x(begin), self._to_x(end), self._to_y(height)
        self._add("rect", series.paint, x=left, y=top, width=right - left, height=self._bottom - top)

    def line(self, series: Series, points: Sequence[tuple[float, float]], *, has_markers: bool = False) -> None:
        places = [(self._to_x(x), self._to_y(y)) for x, y in points]
        self._add("polyline", series.paint, points=_join(places))
        if has_markers or len(places) == 1:
            for x, y in places:
                self._add("circle", f"fill-{series.colour}", cx=x, cy=y, r=2.4)

    def stairs(self, series: Series, edges: Sequence[float], heights: Sequence[float]) -> None:
        """The outline of a histogram: a height between each two edges."""
        ends = zip(edges, edges[1:], heights, strict=False)
        self.line(series, [point for begin, end, height in ends for point in ((begin, height), (end, height))])

    def level(self, series: Series, y: float) -> None:
        """A line from side to side."""
        self.line(series, [(self._x[0], y), (self._x[1], y)])

    def to_svg(self, name: str, title: str, says: str) -> str:
        """The drawing as an element. title, says: what a screen reader says of it."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{escape(title)}</title>'
            f'<desc id="{name}-desc">{escape(says)}</desc>{"".join(self._body)}</svg>'
        )


def _join(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_show(x)},{_show(y)}" for x, y in places)


def _lay_out_legend(legend: Sequence[Series], left: float) -> list[list[tuple[float, Series]]]:
    """Lines of series with their x, as many in a line as fit."""
    lines: list[list[tuple[float, Series]]] = []
    x = float(WIDTH)
    for series in legend:
        width = 34 + _LETTER * len(series.name)
        if x + width > WIDTH and (not lines or lines[-1]):
            lines.append([])
            x = left
        lines[-1].append((x, series))
        x += width
    return lines


def _draw_legend(line: Sequence[tuple[float, Series]], number: int) -> Iterable[str]:
    y = _LEGEND_LINE * (number + 0.5) + 2
    for x, series in line:
        if "line" in series.paint:
            yield element("line", series.paint, x1=x, x2=x + 18, y1=y, y2=y)
        else:
            yield element("rect", series.paint, x=x, y=y - 4, width=18, height=8)
        yield element("text", "fill-ink", series.name, x=x + 23, y=y + 3.5)
