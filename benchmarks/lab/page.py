"""The page of the laboratory: tables, curves, the paper's figures, and whether the order that it found holds here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import mean, stdev

from albert_data.report.charts import Plot, Series, make_ticks
from albert_data.report.page import Chart, Section, render_charts, render_list, render_page, render_table
from albert_data.wording import count_of
from benchmarks.lab.jobs import VALUES
from benchmarks.lab.running import Laboratory
from benchmarks.lab.tables import Claim, Row, Table

_LOSS = "{:.3f}".format
_STYLES = [(colour, shape) for shape in ("line", "dashed", "dotted") for colour in ("first", "second", "third")]
_CLEAR = 2.0  # standard errors between two means that decide a claim
_CAUTION = (
    "The paper's models were trained for hundreds of times as many updates, so only the order of the rows is to be "
    "compared. All rows have the same text, tokens, seeds and recipe."
)


@dataclass(frozen=True)
class Sample:
    """A figure of a row, one value a seed."""

    values: tuple[float, ...]

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
        spread = f" ± {stdev(self.values) * 100:.1f}" if len(self.values) > 1 else ""
        return f"{self.mean * 100:.1f}{spread} %"


def judge(better: Sample, worse: Sample) -> str:
    """Whether the first is better: "holds", "is reversed", or "cannot be decided", with the reason."""
    if better.error is None or worse.error is None:
        return "cannot be decided: one seed shows no spread"
    difference, error = better.mean - worse.mean, math.hypot(better.error, worse.error)
    if abs(difference) < _CLEAR * error:
        return f"cannot be decided at this size: {difference * 100:+.1f} ± {error * 100:.1f} points"
    return f"{'holds' if difference > 0 else 'is reversed'}: {difference * 100:+.1f} ± {error * 100:.1f} points"


def write_page(laboratory: Laboratory, tables: Sequence[Table], seeds: int | None) -> str:
    """The page as HTML, of what has been measured."""
    sections = [
        Section(name=table.name, title=table.title, body="\n".join(_describe(laboratory, table, seeds or table.seeds)))
        for table in tables
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
            found[row.name, measure.name] = Sample(tuple(values[key] for values in files if key in values))
    return found


def _describe(laboratory: Laboratory, table: Table, seeds: int) -> Iterator[str]:
    found = collect(laboratory, table, seeds)
    if verdicts := [_say(claim, found) for claim in table.claims]:
        yield render_list(verdicts)
    heads = ["row", "parameters", *(measure.name for measure in table.measures)]
    heads += [f"paper: {name}" for name in table.paper_columns]
    rows = [
        [
            row.name,
            _count_parameters(laboratory, row),
            *(str(found[row.name, measure.name]) for measure in table.measures),
            *row.paper,
        ]
        for row in table.rows
    ]
    yield render_table(heads, rows, caption=f"{count_of(seeds, 'seed')} a row; {table.source}")
    if chart := _draw(laboratory, table):
        yield render_charts([chart])


def _say(claim: Claim, found: dict[tuple[str, str], Sample]) -> str:
    pair = [found[row, claim.measure] for row in (claim.better, claim.worse)]
    known = all(sample.values for sample in pair)
    verdict = judge(*pair) if known else "is not measured yet"
    return f'That "{claim.better}" is better than "{claim.worse}" in {claim.measure} {verdict}.'


def _count_parameters(laboratory: Laboratory, row: Row) -> str:
    count = laboratory.read(laboratory.name(row), 0).get("parameters")
    return "" if count is None else f"{count / 1e6:.2f} M"


def _draw(laboratory: Laboratory, table: Table) -> Chart | None:
    """The validation loss of the first seed of each row."""
    curves = {row.name: points for row in table.rows if (points := laboratory.curve(row, 0, "mlm_loss"))}
    if not curves:
        return None
    series = [Series(name, *style) for name, style in zip(curves, cycle(_STYLES), strict=False)]
    values = [value for points in curves.values() for _, value in points]
    steps = max(step for points in curves.values() for step, _ in points)
    low, high = min(values) - 0.05, max(values) + 0.05
    ticks = make_ticks(0, steps, "{:,.0f}".format), make_ticks(low, high, _LOSS)
    plot = Plot((0, steps), (low, high), *ticks, "update", series)
    for one, points in zip(series, curves.values(), strict=True):
        plot.line(one, points, has_markers=True)
    says = "; ".join(f"{name}: {points[0][1]:.3f} to {points[-1][1]:.3f}" for name, points in curves.items())
    title = "Validation MLM loss, each on its own shards"
    return Chart(name=f"loss-{table.name}", title=title, says=says, svg=plot.to_svg(table.name, title, says))
