"""The report as one HTML page: figures, charts and a browser of rows, with nothing to fetch.

In: a shard folder's manifest, statistics and chosen rows. Out: HTML. Whatever comes from a corpus, a tokenizer or
a path is escaped; the page's content security policy lets its own script and style sheet run, by their hashes,
and nothing else.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template

from albert_data.corpus.damage import REASONS
from albert_data.inspect.choice import Choice
from albert_data.inspect.html.browser import embed_rows
from albert_data.inspect.html.charts import Chart, draw_charts
from albert_data.inspect.scripts import choose_scripts, count_scripts
from albert_data.inspect.sources import Sources
from albert_data.inspect.statistics import Statistics
from albert_data.inspect.summary import NO_BUILD_TIME, format_bytes, format_figure, label_figure
from albert_data.inspect.terminal import escape_controls
from albert_data.inspect.view import ORDERS
from albert_data.pipeline.times import BuildTimes
from albert_data.shards.manifest import Manifest
from albert_data.shards.reader import Shards
from albert_data.wording import count_of

_PADDING_NOTE = (
    "Padding is counted as if each row were padded to the next multiple of the group's length; "
    "a batch of rows of like length comes to no more."
)
_NO_SOURCES = (
    "Unknown rate by source: left out, for a row does not say which file it is from. "
    "Name the build's inputs to see it: albert-data inspect OUT --html PATH --corpus INPUT."
)


def render(
    shards: Shards,
    statistics: Mapping[str, Statistics],
    rows: Sequence[int],
    choice: Choice,
    build_time: BuildTimes | None,
    sources: Sources | None,
) -> str:
    """The whole page."""
    data, num_embedded = embed_rows(shards, rows)
    style, script = _read("page.css"), _read("page.js")
    manifest = shards.manifest
    name = escape(escape_controls(shards.folder.resolve().name))
    return Template(_read("page.html")).substitute(
        style_hash=_hash(style),
        script_hash=_hash(script),
        style=style,
        script=script,
        title=name,
        about=escape(_describe(manifest)),
        tiles="\n".join(_make_tile(*tile) for tile in _list_tiles(manifest, statistics)),
        charts="\n".join(map(_render_chart, draw_charts(statistics, build_time, sources))),
        figures=_render_figures(statistics),
        damage=_render_damage(manifest.damage),
        pieces="\n".join(
            make(*item, shards.tokenizer.pieces)
            for make in (_render_pieces, _render_scripts)
            for item in statistics.items()
        ),
        notes="\n".join(f"<li>{escape(note)}</li>" for note in _list_notes(build_time, sources)),
        embedded=escape(_describe_rows(shards, num_embedded, len(rows), choice)),
        language=escape(manifest.config.text.language),
        rows=data,
    )


def _list_notes(build_time: BuildTimes | None, sources: Sources | None) -> Iterable[str]:
    yield _PADDING_NOTE
    if sources is None:
        yield _NO_SOURCES
    if build_time is None:
        yield f"Where the time of the build went: {NO_BUILD_TIME}."


def _read(name: str) -> str:
    return (files("albert_data.inspect.html") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def _describe(manifest: Manifest) -> str:
    config = manifest.config.examples
    parts = (
        f"Built by albert-data {manifest.albert_data_version} from {count_of(len(manifest.inputs), 'input')}",
        f"tokenizer of {count_of(manifest.tokenizer.vocab_size, 'piece')}",
        f"rows of at most {config.max_seq_len:,} tokens",
        "whole words masked" if config.whole_word else "single pieces masked",
        f"seed {config.seed}",
        f"dupe factor {config.dupe_factor:,}",
    )
    return ", ".join(parts) + "."


def _list_tiles(manifest: Manifest, statistics: Mapping[str, Statistics]) -> Iterable[tuple[str, str]]:
    counts = manifest.counts
    yield "documents", f"{counts.documents:,}"
    yield "sentences", f"{counts.sentences:,}"
    yield "text", format_bytes(counts.text_bytes)
    yield "tokens", f"{counts.tokens:,}"
    if counts.duplicate_documents:
        yield "equal documents dropped", f"{counts.duplicate_documents:,}"
    for name, split in manifest.splits.items():
        yield f"examples of {name} ({format_bytes(split.num_bytes)})", f"{split.num_rows:,}"
    for name, measured in list(statistics.items())[:1]:
        yield f"unknown tokens of {name}", format_figure("share", measured.unknown_share)
        yield f"padding at {measured.config.max_seq_len:,}", format_figure("share", measured.padding_share)


def _make_tile(name: str, value: str) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"


def _render_chart(chart: Chart) -> str:
    return (
        f'<figure class="card" id="chart-{chart.name}"><h3>{escape(chart.title)}</h3>{chart.svg}'
        f"<figcaption>{escape(chart.says)}</figcaption>"
        f"<details><summary>The figures</summary>{_render_table(chart.table[0], chart.table[1:])}</details></figure>"
    )


def _render_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column names the rows, scrolled sideways where it is too wide."""
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(_render_row(row) for row in rows)
    return f'<div class="scroll"><table><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>'


def _render_row(row: Sequence[str]) -> str:
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
    return f'<tr><th scope="row"><bdi>{escape(row[0])}</bdi></th>{cells}</tr>'


def _render_figures(statistics: Mapping[str, Statistics]) -> str:
    if not statistics:
        return "<p>No split has rows.</p>"
    rows = []
    for figures in zip(*(measured.figures for measured in statistics.values()), strict=True):
        first = figures[0]
        values = [first.intended, *(figure.realised for figure in figures)]
        rows.append([label_figure(first), *(format_figure(first.name, value) for value in values)])
    return _render_table(["", "intended", *statistics], rows)


def _render_damage(damage: Mapping[str, int]) -> str:
    if not damage:
        return "<p>No document was dropped or repaired.</p>"
    rows = ([REASONS.get(reason, escape_controls(reason)), f"{count:,}"] for reason, count in sorted(damage.items()))
    return _render_table(["what was dropped or repaired", "number"], rows)


def _render_pieces(name: str, measured: Statistics, pieces: Sequence[str]) -> str:
    rows = (
        [escape_controls(pieces[i]), f"{tokens:,}", format_figure("share", tokens / measured.num_maskable)]
        for i, tokens in measured.most_frequent()
    )
    table = _render_table(["piece", "tokens", "share"], rows)
    return f"<details><summary>Most frequent pieces of {escape(name)}</summary>{table}</details>"


def _render_scripts(name: str, measured: Statistics, pieces: Sequence[str]) -> str:
    """Nothing where there is one."""
    chosen = choose_scripts(count_scripts(measured.piece_counts, pieces))
    rows = [[one.script, f"{one.num_letters:,}", f"{one.num_tokens:,}", f"{one.share:.2%}"] for one in chosen]
    table = _render_table(["script", "letters", "tokens", "share of the letters"], rows)
    return f"<details><summary>Scripts of {escape(name)}</summary>{table}</details>" if rows else ""


def _describe_rows(shards: Shards, num_embedded: int, num_chosen: int, choice: Choice) -> str:
    rows = f"{count_of(num_embedded, 'row')} of the {len(shards):,} of {shards.split}"
    if choice.numbers:
        how = "asked for by number"
    elif choice.text is not None:
        how = f"the first that hold {escape_controls(repr(choice.text))}"
    else:
        how = f"drawn at random (seed {choice.seed})"
    label = "" if choice.label is None else f", {ORDERS[choice.label].split(':')[0]} alone"
    cut = "" if num_embedded == num_chosen else f"; {num_chosen - num_embedded:,} more would make the page too large"
    return f"{rows}, {how}{label}{cut}."
