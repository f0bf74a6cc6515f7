"""The report of a shard folder as one HTML page: a row explained, charts, figures, the audit and a viewer of rows.

In: a shard folder's manifest, statistics, audit and chosen rows. Out: HTML.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from string import Template
from typing import Any

from albert_data.examples.pair_tasks import NO_LABEL
from albert_data.inspect.audit.audit import audit_splits
from albert_data.inspect.choice import RowChoice
from albert_data.inspect.html.anatomy import render_anatomy
from albert_data.inspect.report import ShardReport, describe_build, list_counts, list_tables
from albert_data.inspect.statistics import Statistics
from albert_data.inspect.tables import format_figure
from albert_data.report import page
from albert_data.report.charts import Plot, Series, make_ticks, share_ticks
from albert_data.report.page import Chart, escape, read_asset
from albert_data.shards.decoding import PLAIN, Example, Token, decode_segments, name_pair
from albert_data.shards.reader import Shards
from albert_data.storage import find_storage, make_path
from albert_data.text.escaping import escape_controls
from albert_data.text.wording import count_of
from albert_data.tokenizer.model import Tokenizer

MAX_BYTES = 3_500_000  # a page of up to 4 MB opens without a delay
# "<" can't end the element nor open a comment; U+2028 and U+2029 end a line in old JavaScript.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def render(report: ShardReport) -> str:
    """The whole page. The shards are audited here, which reads all rows once more."""
    shards, statistics = report.shards, report.statistics
    data, num_embedded = embed_rows(shards, report.rows)
    rows = ((f"rows of {name}", f"{split.num_rows:,}") for name, split in report.manifest.splits.items())
    parts = {
        "Summary": page.render_tiles([*list_counts(report.manifest), *rows]),
        "Anatomy of a row": render_anatomy(shards, statistics, *report.choice.numbers[:1]),
        "Charts": page.render_charts([draw_lens(statistics)] if statistics else []),
        "Figures beside those intended": "\n".join(_render_figures(report)),
        "Audit": audit_splits(shards.folder, report.opened).to_html(),
        "Examples": render_viewer(shards, num_embedded, len(report.rows), report.choice),
    }
    return page.render_page(
        [page.PageSection(name=title.split()[0].lower(), title=title, body=body) for title, body in parts.items()],
        kind="ALBERT pretraining shards",
        title=make_path(find_storage(shards.folder).resolve(shards.folder)).name,
        about=describe_build(report.manifest),
        style=read_asset(__package__, "rows.css"),
        script=read_asset(__package__, "rows.js"),
        data=data,
    )


def _render_figures(report: ShardReport) -> Iterator[str]:
    for (head, *rows), caption, is_prose in list_tables(report):
        yield f"<p>{escape(caption)}</p>" if caption else ""
        yield page.render_table(head, rows, kind="prose" if is_prose else "")


def draw_lens(statistics: Mapping[str, Statistics]) -> Chart:
    """The lengths of rows: bars for the first split, and an outline for the other."""
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
    for (first, last, _), *row in zip(bins, *shares, strict=True):
        table.append([f"{first:,} to {last:,}", *(format_figure("share", share) for share in row)])
    parts = []
    for name, measured in statistics.items():
        lens = measured.row_len_quantiles
        half, few = f"half of the rows hold {lens['median']:,} tokens or more", f"one in twenty {lens['p5']:,} or fewer"
        parts.append(f"{name}: {half}, {few}")
    title, says = "Lengths of the rows", f"{'; '.join(parts)}."
    return Chart(name="lengths", title=title, says=says, svg=plot.to_svg("lengths", title, says), table=table)


# ---- the viewer of rows ----


def embed_rows(shards: Shards, rows: Iterable[int]) -> tuple[str, int]:
    """JSON for rows.js, the viewer's script, and how many of the rows it holds: as many as fit into MAX_BYTES.

    A row is `{"row", "label", "tokens", "masked", "document", "segments": [{"name", "parts"}]}`, with `b`, the document
    of segment B, if that is another one, and `source`, a number, if rows have one. A part is a string of plain text,
    or `[kind, original, shown]` of a masked token. Text of a corpus can't end the element that holds the JSON.
    """
    parts: list[str] = []
    size = 0
    for row in rows:
        part = escape_json(_to_dict(shards[row], row, shards.tokenizer))
        size += len(part.encode()) + 2
        if size > MAX_BYTES:
            break
        parts.append(part)
    return f"[{','.join(parts)}]", len(parts)


def escape_json(value: object) -> str:
    """JSON that stands safely inside a `script` element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)


def render_viewer(shards: Shards, num_embedded: int, num_chosen: int, choice: RowChoice) -> str:
    """The form of the viewer, with a sentence that says which rows it holds."""
    form, config = Template(read_asset(__package__, "rows.html")), shards.manifest.config
    task = config.examples.task
    labels = "".join(
        f'<option value="{label}" title="{escape(task.describe(label))}">{escape(name)}</option>'
        for label, name in [*enumerate(task.orders), (NO_LABEL, "no pair")]
    )
    names, sources = shards.manifest.sources or (), ""
    if names:
        options = "".join(f'<option value="{number}">{escape(name)}</option>' for number, name in enumerate(names))
        sources = f'<label>Source <select id="source"><option value="">any</option>{options}</select></label>'
    how = f"drawn at random (seed {choice.seed})"
    if choice.source is not None:
        how += f" from source {escape_controls(choice.source)}"
    elif len(names) > 1:
        how += " from each source in turn"
    if choice.numbers:
        how = "asked for by number"
    elif choice.text is not None:
        how = f"the first that hold {choice.text!r}"
    if num_embedded != num_chosen:
        how += f"; {num_chosen - num_embedded:,} more would make the page too large"
    says = f"{count_of(num_embedded, 'row')} of the {len(shards):,} of {shards.split}, {how}."
    return form.substitute(embedded=escape(says), labels=labels, sources=sources, language=escape(config.text.language))


def _to_dict(example: Example, row: int, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "row": row,
        "label": example.sop_label,
        "tokens": len(example.input_ids),
        "masked": len(example.masked_positions),
        "document": f"{example.document_key:016x}",
        **({} if example.document_key_b in (None, example.document_key) else {"b": f"{example.document_key_b:016x}"}),
        **({} if example.source is None else {"source": example.source}),
        "segments": [_segment_to_dict(*segment) for segment in decode_segments(example, tokenizer)],
    }


def _segment_to_dict(name: str, tokens: list[Token]) -> dict[str, Any]:
    parts: list[str | list[str]] = []
    for token in tokens:
        if token.kind == PLAIN:
            parts.append(escape_controls(token.original))
            continue
        if token.starts_word:
            parts.append(" ")
        parts.append([token.kind, *map(escape_controls, name_pair(token))])
    if parts and isinstance(parts[0], str):
        parts[0] = parts[0].removeprefix(" ")  # of the first word
    return {"name": name, "parts": parts}
