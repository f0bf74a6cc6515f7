"""The charts of the report of shards, each with its numbers as a table and in a sentence.

In: the statistics of each split that has rows. Out: `Chart`s. What a build intends is drawn in the colour of
the text (`ink`), what it realised in others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.inspect.report import format_figure
from albert_data.inspect.statistics import Statistics
from albert_data.report.charts import Plot, Series, make_ticks, share_ticks
from albert_data.report.page import Chart
from albert_data.text.wording import count_of, format_share

_NUM_BINS = 32
_MAX_POINTS, _MAX_LINES = 512, 32  # of the chart of positions, and of its table
_COLOURS = ("first", "second")  # of the splits
Measured = Mapping[str, Statistics]
Shares = Sequence[float | None]


def draw_charts(statistics: Measured) -> list[Chart]:
    """All charts of splits with rows, none where there is no such split."""
    draw = (_draw_lens, _draw_ngrams, _draw_positions, _draw_shown, _draw_labels, _draw_padding)
    return [function(statistics, next(iter(statistics.values())).config) for function in draw] if statistics else []


def _percent(share: float | None) -> str:
    return format_figure("share", share)


def _tabulate(head: Sequence[str], labels: Iterable[str], columns: Iterable[Shares]) -> list[list[str]]:
    """A table with the shares of each label."""
    return [list(head), *([label, *map(_percent, row)] for label, *row in zip(labels, *columns, strict=True))]


def _draw_lens(statistics: Measured, config: ExampleConfig) -> Chart:
    max_len = config.max_seq_len
    edges = np.unique(np.linspace(0, max_len, min(_NUM_BINS, max_len) + 1).round().astype(int)).tolist()
    shares = [(np.add.reduceat(m.row_lens[1:], edges[:-1]) / m.num_rows).tolist() for m in statistics.values()]
    top = 1.1 * max(map(max, shares))
    series = [Series(name, _COLOURS[i], ("bar", "line")[i]) for i, name in enumerate(statistics)]
    ticks = make_ticks(0, max_len, "{:,.0f}".format), share_ticks(0, top)
    plot = Plot((0, max_len), (0, top), *ticks, "tokens in a row", series)
    bins = list(zip(edges, edges[1:], strict=False))
    for (first, last), share in zip(bins, shares[0], strict=True):
        plot.bar(series[0], first, last - 0.14 * (last - first), share)
    for other, found in zip(series[1:], shares[1:], strict=True):
        plot.stairs(other, edges, found)
    table = _tabulate(["tokens", *statistics], [f"{first + 1:,} to {last:,}" for first, last in bins], shares)
    parts = []
    for name, measured in statistics.items():
        lens = measured.row_len_quantiles
        half, few = f"half of the rows hold {lens['median']:,} tokens or more", f"one in twenty {lens['p5']:,} or fewer"
        parts.append(f"{name}: {half}, {few}")
    title, says = "Lengths of the rows", f"{'; '.join(parts)}."
    return Chart(name="lengths", title=title, says=says, svg=plot.to_svg("lengths", title, says), table=table)


def _draw_groups(labels: Sequence[str], shares: Mapping[Series, Shares], x_title: str) -> Plot:
    """For each label a group of bars, one of each series."""
    top = 1.15 * max(max(share or 0.0 for share in found) for found in shares.values()) or 1.0
    ticks = {i + 0.4: label for i, label in enumerate(labels)}
    plot = Plot((-0.1, len(labels) - 0.1), (0, top), ticks, share_ticks(0, top), x_title, list(shares))
    width = 0.8 / len(shares)
    for number, (series, found) in enumerate(shares.items()):
        for i, share in enumerate(found):
            begin, height = i + number * width, share or 0.0
            plot.bar(series, begin, begin + 0.9 * width, height, f"{100 * height:.1f}")
    return plot


def _draw_beside_intended(
    statistics: Measured, name: str, title: str, figures: Mapping[str, str], x_title: str
) -> Chart:
    """Groups of bars of some figures, given by name with a label each: what is intended beside each split."""
    shares: dict[Series, Shares] = {}
    for i, (split, measured) in enumerate(statistics.items()):
        found = {one.name: one for one in measured.figures}
        shares.setdefault(Series("intended", "ink", "hollow"), [found[figure].intended for figure in figures])
        shares[Series(split, _COLOURS[i])] = [found[figure].realised for figure in figures]
    intended, realised = list(shares.values())[:2]
    widest = max(abs((share or 0.0) - (wanted or 0.0)) for share, wanted in zip(realised, intended, strict=True))
    says = f"{next(iter(statistics))} is within {100 * widest:.2f} percentage points of what is intended."
    svg = _draw_groups(list(figures.values()), shares, x_title).to_svg(name, title, says)
    table = _tabulate(["", *(series.name for series in shares)], figures.values(), shares.values())
    return Chart(name=name, title=title, says=says, svg=svg, table=table)


def _draw_ngrams(statistics: Measured, config: ExampleConfig) -> Chart:
    figures = {f"spans_of_{n}": str(n) for n in range(1, config.longest_span + 1)}
    return _draw_beside_intended(statistics, "ngrams", "Masked spans against p(n)", figures, "words in a span")


def _draw_shown(statistics: Measured, _: ExampleConfig) -> Chart:
    figures = {"shown_as_mask": "[MASK]", "shown_as_random": "a random piece", "shown_as_kept": "unchanged"}
    return _draw_beside_intended(statistics, "shown", "What a masked token shows", figures, "shown")


def _draw_positions(statistics: Measured, config: ExampleConfig) -> Chart:
    """Of the split with the most rows: in a small one the shares are chance alone."""
    name, measured = max(statistics.items(), key=lambda item: item[1].num_rows)
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
    says = f"{inside} of the positions of {name} lie within two standard errors of {_percent(wanted)}."
    table = [["position, from", "maskable tokens", "masked"]]
    step = max(1, math.ceil(len(starts) / _MAX_LINES))
    for i in range(0, len(starts), step):
        total = tokens[i : i + step].sum()
        table.append([f"{starts[i]:.0f}", f"{total:,}", _percent(masked[i : i + step].sum() / total)])
    return Chart(name="positions", title=title, says=says, svg=plot.to_svg("positions", title, says), table=table)


def _draw_labels(statistics: Measured, config: ExampleConfig) -> Chart:
    names = [*config.task.orders, "no pair"]
    shares: dict[Series, Shares] = {
        Series(name, _COLOURS[i]): [count / measured.num_rows for count in measured.label_counts]
        for i, (name, measured) in enumerate(statistics.items())
    }
    title, says = "Order of the segments", f"{'; '.join(_say_labels(*item) for item in statistics.items())}."
    svg = _draw_groups(names, shares, "order").to_svg("labels", title, says)
    table = _tabulate(["", *statistics], names, shares.values())
    return Chart(name="labels", title=title, says=says, svg=svg, table=table)


def _say_labels(name: str, measured: Statistics) -> str:
    orders, (*counts, unpaired) = measured.config.task.orders, measured.label_counts
    pairs, alone = sum(counts), count_of(unpaired, "row") + " without a pair"
    if not orders:
        return f"{name}: {alone}"
    intended = 1 / len(orders)
    error = math.sqrt(intended * (1 - intended) / pairs) if pairs else 0.0
    shares = [
        f"{_percent(count / pairs) if pairs else 'none'} of the pairs are {order}"
        for order, count in zip(orders[1:], counts[1:], strict=True)
    ]
    chance = (
        f" ({format_share(intended, 0)} intended; the standard error is {100 * error:.2f} percentage points)"
        if pairs
        else ""
    )
    return f"{name}: {', '.join(shares)}{chance}, {alone}"


def _draw_padding(statistics: Measured, config: ExampleConfig) -> Chart:
    found = {name: measured.padding_by_bucket for name, measured in statistics.items()}
    labels = [f"{bucket_len:,}" for bucket_len in next(iter(found.values()))]
    shares = {Series(name, _COLOURS[i]): list(by_len.values()) for i, (name, by_len) in enumerate(found.items())}
    parts = (
        f"{name}: {_percent(m.padding_share)} of a batch is padding if every row is padded to "
        f"{config.max_seq_len:,} tokens, {_percent(m.pad_to_buckets(64))} in buckets of 64"
        for name, m in statistics.items()
    )
    title, says = "Padding by the length of buckets", f"{'; '.join(parts)}."
    plot = _draw_groups(labels, shares, "each row padded to a multiple of this many tokens")
    table = _tabulate(["padded to a multiple of", *statistics], labels, shares.values())
    return Chart(name="padding", title=title, says=says, svg=plot.to_svg("padding", title, says), table=table)
