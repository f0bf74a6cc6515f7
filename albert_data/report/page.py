"""A page of a report: sections of tables and charts in one HTML file.

In: text, and HTML made by the functions here. Out: HTML. Text from a corpus, a tokenizer, a path or a training run goes
through `escape`, so it can't become markup or an invisible character.
"""

from __future__ import annotations

import html
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from string import Template

from albert_data.text.escaping import escape_controls


@dataclass(frozen=True, kw_only=True)
class PageSection:
    """A part of a page. name: its anchor; body: HTML."""

    name: str
    title: str
    body: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A drawing with its meaning."""

    name: str
    title: str
    says: str  # the meaning as a sentence, for screen readers too
    svg: str
    table: Sequence[Sequence[str]] = field(default=())  # its numbers, the names of the columns first


def escape(text: str) -> str:
    """Text for an element or an attribute. Control characters and lone surrogates are written out, as in `\\x1b`."""
    return html.escape(escape_controls(text))


def render_page(
    sections: Sequence[PageSection],
    *,
    kind: str,
    title: str,
    about: str,
    style: str = "",
    script: str = "",
    data: str = "",
) -> str:
    """The whole page. kind: the line above the title; style: CSS after theme.css.

    data: JSON for the script, already safe inside a `script` element.
    """
    style = read_asset(__package__, "theme.css") + style
    elements = f'<script type="application/json" id="data">{data}</script>\n<script>{script}</script>' if script else ""
    return Template(read_asset(__package__, "page.html")).substitute(
        style_hash=_hash(style),
        script_hash=f"'{_hash(script)}'" if script else "'none'",
        style=style,
        kind=escape(kind),
        title=escape(title),
        about=escape(about),
        links=" ".join(f'<a href="#{section.name}">{escape(section.title)}</a>' for section in sections),
        sections="\n".join(map(_render_section, sections)),
        scripts=elements,
    )


def embed_page(page: str) -> str:
    """A page inside a cell of a notebook: a frame, so that neither changes the look of the other."""
    style = "border: 0; width: 100%; height: 40rem"
    return f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" style="{style}"></iframe>'


def read_asset(package: str, name: str) -> str:
    """A text file that is installed with a package."""
    return (files(package) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _render_section(section: PageSection) -> str:
    title = f'<h2 id="{section.name}-title">{escape(section.title)}</h2>'
    return f'<section id="{section.name}" aria-labelledby="{section.name}-title">\n{title}\n{section.body}\n</section>'


def render_tiles(tiles: Iterable[tuple[str, str]]) -> str:
    """The most important numbers, large: (name, value) each."""
    cells = (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles)
    return '<dl class="tiles">\n' + "\n".join(cells) + "\n</dl>"


def render_charts(charts: Iterable[Chart]) -> str:
    """Charts side by side, as many as fit."""
    return '<div class="charts">\n' + "\n".join(map(_render_chart, charts)) + "\n</div>"


def _render_chart(chart: Chart) -> str:
    table = ""
    if chart.table:  # hidden until the reader opens it
        rows = render_table(chart.table[0], chart.table[1:])
        table = f"<details><summary>The figures</summary>{rows}</details>"
    return (
        f'<figure class="card" id="chart-{chart.name}"><h3>{escape(chart.title)}</h3>{chart.svg}'
        f"<figcaption>{escape(chart.says)}</figcaption>{table}</figure>"
    )


def render_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", kind: str = "") -> str:
    """A table whose first column names the rows. kind: a class, "prose" for columns of sentences.

    It scrolls sideways where it is wider than the window.
    """
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(map(_render_row, rows))
    start = f'<div class="scroll"><table class="{kind}">' if kind else '<div class="scroll"><table>'
    return f"{start}{named}<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"


def _render_row(row: Sequence[str]) -> str:
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
    return f'<tr><th scope="row"><bdi>{escape(row[0])}</bdi></th>{cells}</tr>'
