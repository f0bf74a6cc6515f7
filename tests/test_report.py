"""The report library: charts are sound SVG that follows the page's colours, and no text becomes markup."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_data.report.charts import (
    WIDTH,
    Plot,
    Series,
    make_ticks,
    share_ticks,
)
from albert_data.report.page import Chart, PageSection, escape, render_charts, render_page, render_table

EVIL = "<script>alert(1)</script>\"'&\x1b[31m\u202e\udcff"
LINE, DASHED = Series("train", shape="line"), Series("validation", "second", "dashed")
SVG = "{http://www.w3.org/2000/svg}"
finite = st.floats(-1e12, 1e12, allow_nan=False)


def read(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def numbers(svg: ElementTree.Element, *names: str) -> list[float]:
    return [float(found) for element in svg.iter() for name in names if (found := element.get(name)) is not None]


@given(finite, finite)
def test_ticks_are_round_numbers_inside_the_range_and_few(first, second):
    low, high = sorted((first, second))
    ticks = list(make_ticks(low, high, "{:g}".format))
    assert len(ticks) <= 7
    slack = 1e-6 * (abs(low) + abs(high) + 1)
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    if high - low > 1e-3 * max(abs(low), abs(high), 1e-3):
        assert len(ticks) >= 2
        step = ticks[1] - ticks[0]
        digits = step / 10 ** math.floor(math.log10(step) + 1e-6)
        assert any(math.isclose(digits, digit, rel_tol=1e-6) for digit in (1, 2, 2.5, 5))


@pytest.mark.parametrize(
    ("high", "labels"),
    [
        (1.0, ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]),
        (0.13, ["0.0 %", "2.5 %", "5.0 %", "7.5 %", "10.0 %", "12.5 %"]),
    ],
)
def test_shares_have_as_many_decimals_as_distinguish_the_ticks(high, labels):
    assert list(share_ticks(0.0, high).values()) == labels


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=20))
def test_a_plot_stays_inside_its_frame_whatever_the_values(points):
    xs, ys = [x for x, _ in points], [y for _, y in points]
    plot = Plot((min(xs), max(xs)), (min(ys), max(ys)), {}, {}, "step", [LINE, DASHED])
    plot.line(LINE, points, has_markers=True)
    plot.level(DASHED, 1e13)
    svg = read(plot.to_svg("loss", "Loss", "says"))
    height = float(svg.attrib["viewBox"].split()[3])
    assert all(0 <= x <= WIDTH for x in numbers(svg, "x", "x1", "x2", "cx"))
    assert all(0 <= y <= height for y in numbers(svg, "y", "y1", "y2", "cy"))


def test_the_legend_names_every_series_and_one_series_needs_none():
    for series, shown in (([LINE, DASHED], ["train", "validation"]), ([LINE], [])):
        svg = read(Plot((0, 1), (0, 1), {}, {}, "step", series).to_svg("loss", "Loss", "says"))
        assert [text.text for text in svg.iter(f"{SVG}text")] == [*shown, "step"]


def test_text_can_not_become_markup_anywhere_in_a_page():
    plot = Plot((0, 1), (0, 1), {0.5: EVIL}, {}, EVIL, [Series(EVIL), Series(EVIL, "second")])
    svg = plot.to_svg("stages", EVIL, EVIL)
    read(svg)
    chart = Chart(name="stages", title=EVIL, says=EVIL, svg=svg, table=[[EVIL], [EVIL]])
    body = render_charts([chart]) + render_table([EVIL], [[EVIL, EVIL]], caption=EVIL)
    page = render_page([PageSection(name="a", title=EVIL, body=body)], kind=EVIL, title=EVIL, about=EVIL)
    assert "<script" not in page
    assert not set("\x1b\u202e\udcff") & set(page)
    assert page.count(escape(EVIL)) == 20
    page.encode()
