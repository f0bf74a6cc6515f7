"""The charts of the report of shards, each with its numbers as a table and in a sentence.

In: the statistics of each split that has rows. Out: `Chart`s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from albert_data.inspect.report import format_figure
from albert_data.inspect.statistics import Statistics
from albert_data.report.charts import Plot, Series, make_ticks, share_ticks
from albert_data.report.page import Chart
from albert_data.text.wording import format_share

_MAX_POINTS, _MAX_LINES = 512, 32  # of the chart of positions, and of its table
Measured = Mapping[str, Statistics]


def draw_charts(statistics: Measured) -> list[Chart]:
    """All charts of splits with rows, none where there is no such split."""
    return [_draw_lens(statistics), _draw_positions(statistics)] if statistics else []


def _show(share: float) -> str:
    return format_figure("share", share)


def _draw_lens(statistics: Measured) -> Chart:
    """Bars for the first split, and an outline for the other."""
    bins = next(iter(statistics.values())).row_len_bins
    edges = [0, *(last for _, last, _ in bins)]
    shares = [[rows / m.num_rows for *_, rows in m.row_len_bins] for m in statistics.values()]
    top = 1.1 * max(map(max, shares))
    series = [
        Series(name, *look) for name, look in zip(statistics, (("first", "bar"), ("second", "line")), strict=False)
    ]
    ticks = make_ticks(0, edges[-1], "{:,.0f}".format), share_ticks(0, top)
    plot = Plot((0, edges[-1]), (0, top), *ticks, "tokens in a row", series)
    for first, last, share in zip(edges, edges[1:], shares[0], strict=False):
        plot.bar(series[0], first, last - 0.14 * (last - first), share)
    for other, found in zip(series[1:], shares[1:], strict=True):
        plot.stairs(other, edges, found)
    table = [["tokens", *statistics]]
    table += [[f"{a:,} to {b:,}", *map(_show, row)] for (a, b, _), *row in zip(bins, *shares, strict=True)]
    parts = []
    for name, measured in statistics.items():
        lens = measured.row_len_quantiles
        half, few = f"half of the rows hold {lens['median']:,} tokens or more", f"one in twenty {lens['p5']:,} or fewer"
        parts.append(f"{name}: {half}, {few}")
    title, says = "Lengths of the rows", f"{'; '.join(parts)}."
    return Chart(name="lengths", title=title, says=says, svg=plot.to_svg("lengths", title, says), table=table)


def _draw_positions(statistics: Measured) -> Chart:
    """Of the split with the most rows: in a small one the shares are chance alone."""
    name, measured = max(statistics.items(), key=lambda item: item[1].num_rows)
    config = measured.config
    width, wanted = math.ceil(config.max_seq_len / _MAX_POINTS), config.mask_prob  # width: positions in a bin
    starts = np.arange(0, config.max_seq_len, width)
    tokens, masked = (np.add.reduceat(found, starts) for found in (measured.position_tokens, measured.position_masked))
    starts, tokens, masked = (array[tokens > 0] for array in (starts, tokens, masked))
    shares = masked / tokens
    # Neighbours are masked together, in spans, so a bin of `width` positions counts as tokens / width draws.
    errors = 2 * np.sqrt(wanted * (1 - wanted) * width / tokens)
    # Few rows reach the last positions, so these deviate far by chance: they do not count for the height of the axis.
    middle = shares[tokens > np.max(tokens, initial=0) / 20]
    spread = max(0.2 * wanted, 1.3 * float(np.max(np.abs(middle - wanted), initial=0)))
    low, high = max(0.0, wanted - spread), wanted + spread
    series = (Series(name, shape="line"), Series("intended", "ink", "dashed"))
    band = Series("two standard errors", "band", "band")
    last = float(np.max(starts, initial=1))
    ticks = make_ticks(0, last, "{:,.0f}".format), share_ticks(low, high)
    plot = Plot((0, last), (low, high), *ticks, "position in the row", [*series, band])
    plot.band(band, starts.tolist(), (wanted - errors).tolist(), (wanted + errors).tolist())
    plot.level(series[1], wanted)
    plot.line(series[0], list(zip(starts.tolist(), shares.tolist(), strict=True)))
    inside = format_share(float(np.mean(np.abs(shares - wanted) <= errors)) if len(shares) else 0.0, 0)
    title = "Masked share by position"
    says = f"{inside} of the positions of {name} lie within two standard errors of {_show(wanted)}."
    table = [["position, from", "maskable tokens", "masked"]]
    step = max(1, math.ceil(len(starts) / _MAX_LINES))
    for i in range(0, len(starts), step):
        total = tokens[i : i + step].sum()
        table.append([f"{starts[i]:.0f}", f"{total:,}", _show(masked[i : i + step].sum() / total)])
    return Chart(name="positions", title=title, says=says, svg=plot.to_svg("positions", title, says), table=table)
