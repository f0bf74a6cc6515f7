"""The page of the laboratory: tables, curves, the paper's figures, and whether the order that it found holds here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import mean, stdev

from albert_data.report.charts import Plot, Series, make_ticks
from albert_data.report.page import Chart, PageSection, escape, render_charts, render_page, render_table
from albert_data.text.wording import count_of
from benchmarks.lab.jobs import VALUES
from benchmarks.lab.running import Laboratory
from benchmarks.lab.tables import UNITS, Claim, Row, Table

_LOSS = "{:.3f}".format
_STYLES = [(colour, shape) for shape in ("line", "dashed", "dotted") for colour in ("first", "second", "third")]
_LAYER_TITLES = {
    "distance": "L2 distance between a layer's input and output, seed 0",
    "cosine": "Cosine of a layer's input and output, seed 0",
}
# Student's t of 5 % on both sides, for 1 to 10 degrees of freedom: so many standard errors decide a claim.
_CLEAR = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
_CAUTION = (
    "The paper's models were trained for hundreds of times as many updates, so only the order of the rows is to be "
    "compared. All rows have the same text, seeds, recipe and number of updates."
)


@dataclass(frozen=True)
class Sample:
    """A figure of a row, one value a seed. unit: a key of UNITS."""

    values: tuple[float, ...]
    unit: str = "%"

    @property
    def mean(self) -> float:
        return mean(self.values)

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None for one seed, which shows no spread."""
        return stdev(self.values) / math.sqrt(len(self.values)) if len(self.values) > 1 else None

    def __str__(self) -> str:
        if not self.values:
            return ""
        scale, digits, _ = UNITS[self.unit]
        spread = f" ± {stdev(self.values) * scale:,.{digits}f}" if len(self.values) > 1 else ""
        return f"{self.mean * scale:,.{digits}f}{spread} {self.unit}"


def judge(better: Sample, worse: Sample) -> str:
    """Whether the first is better: "holds", "is reversed", or "cannot be decided", with the reason.

    Decided by Welch's t-test at 5 %, with its degrees of freedom rounded down.
    """
    if better.error is None or worse.error is None:
        return "cannot be decided: one seed shows no spread"
    difference, error = better.mean - worse.mean, math.hypot(better.error, worse.error)
    scale, digits, unit = UNITS[better.unit]
    shown = f"{difference * scale:+,.{digits}f} ± {error * scale:,.{digits}f} {unit}"
    parts = [sample.error**4 / (len(sample.values) - 1) for sample in (better, worse) if sample.error]
    freedom = int(error**4 / sum(parts) + 1e-9) if parts else len(_CLEAR)
    if abs(difference) <= _CLEAR[min(freedom, len(_CLEAR)) - 1] * error:
        return f"cannot be decided at this size: {shown}"
    return f"{'holds' if difference > 0 else 'is reversed'}: {shown}"


def write_page(laboratory: Laboratory, tables: Iterable[tuple[Table, int]]) -> str:
    """The page as HTML, of what has been measured. tables: each with how many seeds of a row to show."""
    sections = [
        PageSection(name=table.name, title=table.title, body="\n".join(_describe(laboratory, table, seeds)))
        for table, seeds in tables
    ]
    title = f"Ablations of {laboratory.settings.preset}"
    return render_page(sections, kind="ALBERT laboratory", title=title, about=_CAUTION)


def collect(laboratory: Laboratory, table: Table, seeds: int) -> dict[tuple[str, str], Sample]:
    """The figures of a table by row and measure."""
    found = {}
    for row in table.rows:
        files = [laboratory.read(laboratory.name(row), seed)[VALUES] for seed in range(seeds)]
        for measure in table.measures:
            key = measure.key(row)
            values = tuple(values[key] for values in files if key in values)
            found[row.name, measure.name] = Sample(values, measure.unit)
    return found


def _describe(laboratory: Laboratory, table: Table, seeds: int) -> Iterator[str]:
    found = collect(laboratory, table, seeds)
    if verdicts := [_say(claim, found) for claim in table.claims]:
        yield "".join(["<ul>", *(f"<li>{escape(verdict)}</li>" for verdict in verdicts), "</ul>"])
    heads = ["row", "parameters", "minutes", *(measure.name for measure in table.measures)]
    heads += [f"paper: {name}" for name in table.paper_columns]
    rows = [
        [
            row.name,
            _count_parameters(laboratory, row),
            _count_minutes(laboratory, row, seeds),
            *(str(found[row.name, measure.name]) for measure in table.measures),
            *row.paper,
        ]
        for row in table.rows
    ]
    so_far = min(len(sample.values) for sample in found.values())
    measured = f", {so_far} measured so far" if so_far < seeds else ""
    yield render_table(heads, rows, caption=f"{count_of(seeds, 'seed')} a row{measured}; {table.source}")
    charts = [_draw_losses(laboratory, table)]
    if table.shows_layers:
        charts += [_draw_layers(laboratory, table, key) for key in _LAYER_TITLES]
    if there := [chart for chart in charts if chart is not None]:
        yield render_charts(there)


def _say(claim: Claim, found: dict[tuple[str, str], Sample]) -> str:
    pair = [found[row, claim.measure] for row in (claim.better, claim.worse)]
    known = all(sample.values for sample in pair)
    verdict = judge(*pair) if known else "is not measured yet"
    return f'That "{claim.better}" is better than "{claim.worse}" in {claim.measure} {verdict}.'


def _count_parameters(laboratory: Laboratory, row: Row) -> str:
    count = laboratory.read(laboratory.name(row), 0).get("parameters")
    return "" if count is None else f"{count / 1e6:.2f} M"


def _count_minutes(laboratory: Laboratory, row: Row, seeds: int) -> str:
    """How long the training took, evaluations included: the mean of the seeds. Empty if nothing was trained."""
    files = [laboratory.read(laboratory.name(row), seed) for seed in range(seeds)]
    found = [values["seconds"] for values in files if "seconds" in values]
    return f"{mean(found) / 60:.1f}" if found else ""


def _draw_losses(laboratory: Laboratory, table: Table) -> Chart | None:
    """The validation loss of each row's model of seed 0."""
    curves = {row.name: laboratory.read(laboratory.name(row), 0).get("curve", ()) for row in table.rows}
    return _draw(curves, "loss", table.name, "Validation MLM loss, each on its own shards, seed 0", "update")


def _draw_layers(laboratory: Laboratory, table: Table, key: str) -> Chart | None:
    """How far each layer of each row's model of seed 0 moves the hidden states."""
    found = {row.name: laboratory.read(laboratory.name(row), 0).get("layers") for row in table.rows}
    curves = {name: list(enumerate(layers[key], 1)) for name, layers in found.items() if layers}
    return _draw(curves, key, table.name, _LAYER_TITLES[key], "layer")


def _draw(
    found: Mapping[str, Sequence[tuple[float, float]]], key: str, name: str, title: str, x_name: str
) -> Chart | None:
    """A line for each row that has points."""
    curves = {row: points for row, points in found.items() if points}
    if not curves:
        return None
    series = [Series(row, *style) for row, style in zip(curves, cycle(_STYLES), strict=False)]
    values = [value for points in curves.values() for _, value in points]
    last = max(at for points in curves.values() for at, _ in points)
    low, high = min(values) - 0.05, max(values) + 0.05
    ticks = make_ticks(0, last, "{:,.0f}".format), make_ticks(low, high, _LOSS)
    plot = Plot((0, last), (low, high), *ticks, x_name, series)
    for one, points in zip(series, curves.values(), strict=True):
        plot.line(one, points, has_markers=True)
    says = "; ".join(f"{row}: {points[0][1]:.3f} to {points[-1][1]:.3f}" for row, points in curves.items())
    return Chart(name=f"{key}-{name}", title=title, says=says, svg=plot.to_svg(f"{key}-{name}", title, says))
