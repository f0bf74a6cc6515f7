"""The charts of the report, each with its figures as a table and in a sentence.

In: the statistics of each split that has rows. Out: inline SVG, drawn by matplotlib. What a build intends is drawn
in ink, what it realised in colour; colours are told apart by place and pattern too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator, PercentFormatter

from albert_data.inspect.html.svg import COLOURS, RC, to_inline
from albert_data.inspect.sources import Sources, describe_sources, shorten_names
from albert_data.inspect.statistics import Statistics
from albert_data.inspect.summary import describe_build_time, format_figure
from albert_data.inspect.terminal import escape_controls
from albert_data.pipeline.stages import tabulate_stages
from albert_data.pipeline.times import BuildTimes
from albert_data.wording import count_of

_SIZE = (5.0, 3.0)  # inches of 72 points: at 360 points a letter is still large enough to read
_NUM_BINS = 32
_MAX_POINTS = 512
_NUM_SOURCES, _NAME_LEN = 20, 56  # files, and columns of a name
_SERIES = (COLOURS["first"], COLOURS["second"])
Measured = Mapping[str, Statistics]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """says: the chart in a sentence. table: its figures, the names of the columns in the first row."""

    name: str
    title: str
    says: str
    svg: str
    table: list[list[str]]


def draw_charts(statistics: Measured, build_time: BuildTimes | None, sources: Sources | None) -> list[Chart]:
    """All charts of splits with rows, none where there is no such split; of sources and times where they are known."""
    draw: Sequence[Callable[[Measured], Chart]] = ()
    if statistics:
        draw = (_draw_lens, _draw_ngrams, _draw_positions, _draw_standing, _draw_labels, _draw_padding)
    settings: Any = {**matplotlib.rcParamsDefault, **RC}  # whatever the user's own matplotlibrc says
    with matplotlib.rc_context(settings):
        charts = [function(statistics) for function in draw]
        charts += [_draw_sources(sources)] if sources else []
        return charts + ([_draw_stages(build_time)] if build_time and build_time.stages else [])


def _new_canvas() -> tuple[Any, Any]:
    canvas = Canvas(figsize=_SIZE, layout="constrained")
    return canvas, canvas.subplots()


def _finish(canvas: Any, name: str, title: str, says: str, table: list[list[str]]) -> Chart:
    return Chart(name=name, title=title, says=says, svg=to_inline(canvas, name, title, says), table=table)


def _percent(share: float | None) -> str:
    return format_figure("share", share)


def _draw_lens(statistics: Measured) -> Chart:
    canvas, axes = _new_canvas()
    max_len = next(iter(statistics.values())).config.max_seq_len
    edges = np.unique(np.linspace(0, max_len, min(_NUM_BINS, max_len) + 1).round().astype(int))
    table = [["tokens", *statistics]]
    columns = []
    for i, (name, measured) in enumerate(statistics.items()):
        rows = np.array(measured.row_lens[1:])
        shares = np.add.reduceat(rows, edges[:-1]) / measured.num_rows
        columns.append(shares)
        _draw_histogram(axes, edges, shares, name, i)
    for first, last, *of_bin in zip(edges, edges[1:], *columns, strict=False):
        table.append([f"{first + 1:,} to {last:,}", *map(_percent, of_bin)])
    axes.set(xlabel="tokens in a row", ylabel="share of the rows", xlim=(0, max_len))
    _finish_axes(axes, list(statistics))
    says = "; ".join(_say_lens(name, measured) for name, measured in statistics.items())
    return _finish(canvas, "lengths", "Lengths of the rows", f"{says}.", table)


def _draw_histogram(axes: Any, edges: np.ndarray, shares: np.ndarray, name: str, series: int) -> None:
    if series == 0:
        axes.bar(edges[:-1], shares, width=np.diff(edges) * 0.86, align="edge", color=_SERIES[0], label=name)
    else:
        axes.stairs(shares, edges, color=_SERIES[series], label=name, linewidth=1.6)


def _say_lens(name: str, measured: Statistics) -> str:
    lens = measured.row_len_quantiles
    return f"{name}: half of the rows hold {lens['median']:,} tokens or more, one in twenty {lens['p5']:,} or fewer"


def _finish_axes(axes: Any, names: Sequence[str]) -> None:
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    if len(names) > 1:
        handles, labels = axes.get_legend_handles_labels()
        found = dict(zip(labels, handles, strict=True))
        axes.legend([found[name] for name in names], names, loc="best")


def _draw_groups(
    statistics: Measured, name: str, title: str, labels: Sequence[str], figures: Sequence[str], xlabel: str
) -> Chart:
    """Bars of some figures: what is intended beside each split."""
    canvas, axes = _new_canvas()
    by_split = {split: {f.name: f for f in measured.figures} for split, measured in statistics.items()}
    intended = [next(iter(by_split.values()))[figure].intended or 0.0 for figure in figures]
    table = [["", "intended", *statistics]] + [[label, _percent(i)] for label, i in zip(labels, intended, strict=True)]
    places, width = np.arange(len(labels)), 0.8 / (1 + len(statistics))
    style = {"facecolor": "none", "edgecolor": COLOURS["ink"], "hatch": "//", "linewidth": 1}
    axes.bar(places, intended, width * 0.9, label="intended", **style)
    widest = 0.0
    for i, (split, found) in enumerate(by_split.items(), 1):
        realised = [found[figure].realised for figure in figures]
        heights = [share or 0.0 for share in realised]
        bars = axes.bar(places + i * width, heights, width * 0.9, color=_SERIES[i - 1], label=split)
        axes.bar_label(bars, [f"{100 * share:.1f}" for share in heights], fontsize=8, padding=1)
        for row, share in zip(table[1:], realised, strict=True):
            row.append(_percent(share))
        gaps = (abs(share - wanted) for share, wanted in zip(heights, intended, strict=True))
        widest = max(widest, *gaps) if i == 1 else widest
    axes.set_xticks(places + 0.4 - width / 2, labels)
    axes.set(xlabel=xlabel, ylabel="share")
    _finish_axes(axes, ["intended", *statistics])
    says = f"{next(iter(statistics))} comes to within {100 * widest:.2f} points of a hundred of what is intended."
    return _finish(canvas, name, title, says, table)


def _draw_ngrams(statistics: Measured) -> Chart:
    ngram = next(iter(statistics.values())).config.ngram
    figures = [f"spans_of_{n}" for n in range(1, ngram + 1)]
    labels = [str(n) for n in range(1, ngram + 1)]
    return _draw_groups(statistics, "ngrams", "Masked spans against p(n)", labels, figures, "words in a span")


def _draw_standing(statistics: Measured) -> Chart:
    figures = ["shown_as_mask", "shown_as_random", "shown_as_kept"]
    labels = ["[MASK]", "a random piece", "unchanged"]
    return _draw_groups(statistics, "standing", "What a masked token shows", labels, figures, "shown")


def _draw_positions(statistics: Measured) -> Chart:
    """Of the split with the most rows: chance alone makes the shares of a small one useless."""
    name, measured = max(statistics.items(), key=lambda item: item[1].num_rows)
    places, tokens, masked, width = _bin_positions(measured)
    filled = tokens > 0
    shares = masked[filled] / tokens[filled]
    wanted = measured.config.mask_prob
    # Neighbours are masked together, in spans: a bin tells no more than one of its positions does.
    errors = 2 * np.sqrt(wanted * (1 - wanted) * width / tokens[filled])
    canvas, axes = _new_canvas()
    band = {"color": COLOURS["band"], "linewidth": 0, "label": "two standard errors"}
    axes.fill_between(places[filled], wanted - errors, wanted + errors, **band)
    axes.axhline(wanted, color=COLOURS["ink"], linewidth=1, linestyle="--", label="intended")
    axes.plot(places[filled], shares, color=_SERIES[0], linewidth=1.2, label=name)
    middle = shares[tokens[filled] > np.max(tokens, initial=0) / 20]
    spread = max(0.2 * wanted, 1.3 * float(np.max(np.abs(middle - wanted), initial=0)))
    axes.set(xlabel="position in the row", ylabel="masked", ylim=(max(0, wanted - spread), wanted + spread))
    _finish_axes(axes, [name, "intended", "two standard errors"])
    inside = np.mean(np.abs(shares - wanted) <= errors) if len(shares) else 0.0
    says = f"{100 * inside:.0f} % of the positions of {name} lie within two standard errors of {_percent(wanted)}."
    rows = [
        [f"{place:.0f}", f"{n:,}", _percent(m / n)]
        for place, n, m in zip(*_thin(places[filled], tokens[filled], masked[filled]), strict=True)
    ]
    table = [["position, from", "maskable tokens", "masked"], *rows]
    return _finish(canvas, "positions", "Masked share by position", says, table)


def _bin_positions(measured: Statistics) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """The first position of each bin, its maskable tokens and its masked ones; positions in a bin."""
    width = math.ceil(measured.config.max_seq_len / _MAX_POINTS)
    starts = np.arange(0, measured.config.max_seq_len, width)
    counts = (measured.position_tokens, measured.position_masked)
    tokens, masked = (np.add.reduceat(np.array(values), starts) for values in counts)
    return starts, tokens, masked, width


def _thin(places: np.ndarray, tokens: np.ndarray, masked: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same in at most 32 rows of a table."""
    if len(places) == 0:
        return places, tokens, masked
    starts = np.arange(0, len(places), math.ceil(len(places) / 32))
    return places[starts], np.add.reduceat(tokens, starts), np.add.reduceat(masked, starts)


def _draw_labels(statistics: Measured) -> Chart:
    canvas, axes = _new_canvas()
    names = ("in order", "swapped", "no pair")
    styles = (COLOURS["first"], COLOURS["second"], COLOURS["third"])
    shares = np.array([np.array(m.label_counts) / m.num_rows for m in statistics.values()])
    left = np.zeros(len(statistics))
    for i, (name, colour) in enumerate(zip(names, styles, strict=True)):
        bars = axes.barh(list(statistics), shares[:, i], 0.6, left=left, color=colour, label=name)
        texts = [f"{100 * share:.1f} %" if share > 0.08 else "" for share in shares[:, i]]
        axes.bar_label(bars, texts, label_type="center", color=COLOURS["paper"], fontsize=9)
        left += shares[:, i]
    axes.invert_yaxis()
    axes.axvline(0.5, color=COLOURS["ink"], linewidth=1, linestyle="--")
    axes.grid(visible=False)
    axes.set(xlabel="share of the rows", xlim=(0, 1))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    canvas.legend(loc="outside upper center", ncols=3)
    table = [["", *names]] + [[name, *map(_percent, row)] for name, row in zip(statistics, shares, strict=True)]
    says = "; ".join(_say_labels(name, measured) for name, measured in statistics.items())
    return _finish(canvas, "labels", "Order of the segments", f"{says}.", table)


def _say_labels(name: str, measured: Statistics) -> str:
    in_order, swapped, unpaired = measured.label_counts
    pairs = in_order + swapped
    error = 0.5 / math.sqrt(pairs) if pairs else 0.0
    share = _percent(swapped / pairs) if pairs else "none"
    chance = f" (50 % intended; chance alone moves it by {100 * error:.2f} points)" if pairs else ""
    return f"{name}: {share} of the pairs are swapped{chance}, {count_of(unpaired, 'row')} without a pair"


def _draw_padding(statistics: Measured) -> Chart:
    canvas, axes = _new_canvas()
    lens = list(next(iter(statistics.values())).padding_by_group)
    places, width = np.arange(len(lens)), 0.8 / len(statistics)
    table = [["padded to a multiple of", *statistics]] + [[f"{group_len:,}"] for group_len in lens]
    for i, (name, measured) in enumerate(statistics.items()):
        shares = [share or 0.0 for share in measured.padding_by_group.values()]
        bars = axes.bar(places + i * width, shares, width * 0.9, color=_SERIES[i], label=name)
        axes.bar_label(bars, [f"{100 * share:.1f}" for share in shares], fontsize=8, padding=1)
        for row, share in zip(table[1:], shares, strict=True):
            row.append(_percent(share))
    axes.set_xticks(places + width * (len(statistics) - 1) / 2, [f"{group_len:,}" for group_len in lens])
    axes.set(xlabel="each row padded to the next multiple of so many tokens", ylabel="share of padding")
    _finish_axes(axes, list(statistics))
    says = "; ".join(
        f"{name}: {_percent(m.padding_share)} of a batch is padding if every row is padded to "
        f"{m.config.max_seq_len:,} tokens, {_percent(m.pad_to_groups(64))} in groups of 64"
        for name, m in statistics.items()
    )
    return _finish(canvas, "padding", "Padding by the size of a length group", f"{says}.", table)


def _draw_sources(sources: Sources) -> Chart:
    """Two bars a file, side by side under its name, which may be long and in any script."""
    files = sources.rank(_NUM_SOURCES)
    canvas = Canvas(figsize=(_SIZE[0], 0.8 + 0.42 * len(files)), layout="constrained")
    both = canvas.subplots(1, 2, sharey=True)
    shares = [file.share for file in files], [file.unknown_rate for file in files]
    for i, (axes, label) in enumerate(zip(both, ("share of the tokens", "unknown"), strict=True)):
        widths = [share or 0.0 for share in shares[i]]
        bars = axes.barh(np.arange(len(files)), widths, 0.4, color=_SERIES[i])
        axes.bar_label(bars, list(map(_percent, shares[i])), fontsize=8, padding=2)
        axes.grid(visible=False)
        axes.tick_params(left=False, labelleft=False)
        axes.spines["left"].set_visible(False)
        axes.set(xlabel=label, xlim=(0, 1.3 * max(*widths, 1e-4)), ylim=(len(files) - 0.5, -0.85))
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    for place, name in enumerate(shorten_names(files, _NAME_LEN)):
        # No layout, for it may reach into the bars beside it; no mathematics, for a name may hold dollars.
        both[0].text(0, place - 0.38, name, va="center", fontsize=9, clip_on=False, in_layout=False, parse_math=False)
    table = [["source file", "tokens", "share of the tokens", "unknown"]] + [
        [escape_controls(file.name), f"{file.num_tokens:,}", _percent(file.share), _percent(file.unknown_rate)]
        for file in files
    ]
    return _finish(canvas, "sources", "Unknown rate by source", describe_sources(sources), table)


def _draw_stages(build_time: BuildTimes) -> Chart:
    table = tabulate_stages(build_time.stages, build_time.text_bytes)
    names, shares = [row[0] for row in table[1:-1]], [row[2] for row in table[1:-1]]
    seconds = [build_time.stages[name] for name in names]
    canvas, axes = _new_canvas()
    axes.bar_label(axes.barh(names, seconds, 0.7, color=_SERIES[0]), shares, fontsize=8, padding=2)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set(xlabel="seconds, over all workers", xlim=(0, 1.2 * max(*seconds, 1e-3)))
    longest = int(np.argmax(seconds))
    says = f"{describe_build_time(build_time)}. Most went to {names[longest]}: {shares[longest]} of {table[-1][1]} s."
    return _finish(canvas, "stages", "Where the time of the build went", says, table)
