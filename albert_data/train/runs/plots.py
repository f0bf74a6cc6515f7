"""A curve of a run as an SVG element to stand in a page. Needs matplotlib.

Colours become CSS variables of the page, so that one drawing serves the light and the dark scheme; the two splits
differ in stroke and markers too, for those who don't tell the colours apart. Text stays text.
"""

from __future__ import annotations

import io
import re
from html import escape
from statistics import fmean
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from albert_data.train.runs.figures import Curve, Point

MOST_POINTS = 400  # of a curve: more than a screen shows, and few enough for a small page
# Colours that nothing else in the drawing has, each to be replaced by the variable of that name.
INK, GRID, TRAIN, VALIDATION, BASELINE = (f"#00000{digit}" for digit in range(1, 6))
VARIABLES = {INK: "ink", GRID: "grid", TRAIN: "train", VALIDATION: "validation", BASELINE: "baseline"}
STROKES: dict[str, dict[str, Any]] = {
    "train": {"color": TRAIN, "linewidth": 1.4},
    "validation": {"color": VALIDATION, "linewidth": 1.8, "linestyle": "--", "marker": "o", "markersize": 4},
}


def thin_points(points: list[Point], most: int = MOST_POINTS) -> list[Point]:
    """Put the means of as many neighbours together as bring the curve to `most` points."""
    size = -(-len(points) // most) or 1
    groups = [points[begin : begin + size] for begin in range(0, len(points), size)]
    return [(fmean(step for step, _ in group), fmean(value for _, value in group)) for group in groups]


def draw_curve(curve: Curve, points: dict[str, list[Point]], baseline: float | None, description: str) -> str:
    """Return an <svg> with the splits' curves and the baseline. description: its text alternative."""
    # Without the salt, the names by which two drawings in one page refer to their parts could meet.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": curve.key}):
        figure = Figure(figsize=(6.4, 3.2), layout="constrained", facecolor="none")
        axes = figure.subplots()
        for split, found in points.items():
            if found:
                steps, values = zip(*thin_points(found), strict=True)
                axes.plot(steps, values, label=split, **STROKES[split])
        if baseline is not None:
            label = f"{curve.baseline_name}: {curve.form.format(baseline)}"
            axes.axhline(baseline, color=BASELINE, linewidth=1.2, linestyle=":", label=label)
        _style(axes, curve)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return _for_a_page(buffer.getvalue(), description)


def _style(axes: Axes, curve: Curve) -> None:
    axes.set_facecolor("none")
    axes.set_xlabel("step", color=INK)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: curve.form.format(value)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(color=GRID, linewidth=0.6)
    axes.tick_params(color=GRID, labelcolor=INK)
    for side, spine in axes.spines.items():
        spine.set_color(GRID)
        spine.set_visible(side in ("left", "bottom"))
    axes.legend(frameon=False, labelcolor=INK)


def _for_a_page(svg: str, description: str) -> str:
    """Cut a file down to its element: no prolog, no names, no style that would reach the rest of the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    for colour, name in VARIABLES.items():
        svg = svg.replace(colour, f"var(--{name})")
    head = f'<svg role="img" aria-label="{escape(description)}" '
    return head + re.sub(r'(width|height)="[\d.]+pt" ?', "", svg.removeprefix("<svg "), count=2).strip()
