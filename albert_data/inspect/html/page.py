"""The report of a shard folder as one HTML page: a row explained, charts, figures, the audit and a viewer of rows.

In: a shard folder's manifest, statistics, audit and chosen rows. Out: HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from albert_data.corpus.damage import REASONS
from albert_data.inspect.audit.audit import Audit
from albert_data.inspect.audit.rules import BAD, LOOK, VERDICTS, Check
from albert_data.inspect.html.anatomy import render_anatomy
from albert_data.inspect.html.charts import draw_charts
from albert_data.inspect.html.rows import embed_rows, render_viewer
from albert_data.inspect.scripts import choose_scripts, count_scripts
from albert_data.inspect.statistics import Statistics
from albert_data.inspect.summary import (
    describe_damaged,
    format_bytes,
    format_figure,
    label_figure,
    name_encodings,
)
from albert_data.pipeline.advice import describe_losses
from albert_data.report.page import (
    Section,
    escape,
    read_asset,
    render_charts,
    render_details,
    render_list,
    render_page,
    render_table,
    render_tiles,
)
from albert_data.shards.manifest import DamagedInputs, Manifest
from albert_data.shards.reader import Shards
from albert_data.storage import find_storage, make_path
from albert_data.wording import count_of

if TYPE_CHECKING:
    from albert_data.inspect.report import Report

_PADDING_NOTE = (
    "Padding is counted as if each row were padded to the next multiple of the bucket's length; "
    "batches of rows of similar length have no more padding than that."
)
_NO_FILES = (
    "Unknown tokens by file: left out, because a row does not say which input file it is from. "
    "Name the build's inputs to see it: albert-data inspect SHARDS --html PATH --corpus INPUT."
)


def render(report: Report, audit: Audit) -> str:
    """The whole page."""
    shards, statistics = report.shards, report.statistics
    data, num_embedded = embed_rows(shards, report.rows)
    parts = {
        "Summary": render_tiles(_list_tiles(shards.manifest, statistics)),
        "Anatomy of a row": render_anatomy(shards, statistics),
        "Charts": render_charts(draw_charts(statistics, report.input_files)),
        "Figures beside those intended": _render_figures(shards, statistics),
        "Audit": _render_audit(audit),
        "Examples": render_viewer(shards, num_embedded, len(report.rows), report.choice),
        "Notes": render_list(_list_notes(report)),
    }
    return render_page(
        [Section(name=title.split()[0].lower(), title=title, body=body) for title, body in parts.items()],
        kind="ALBERT pretraining shards",
        title=make_path(find_storage(shards.folder).resolve(shards.folder)).name,
        about=_describe(shards.manifest),
        style=read_asset(__package__, "rows.css"),
        script=read_asset(__package__, "rows.js"),
        data=data,
    )


def _list_notes(report: Report) -> Iterable[str]:
    yield _PADDING_NOTE
    if report.input_files is None:
        yield _NO_FILES


def _describe(manifest: Manifest) -> str:
    config = manifest.config.examples
    parts = (
        f"Built by albert-data {manifest.albert_data_version} from {count_of(len(manifest.inputs), 'input')}",
        f"tokenizer of {count_of(manifest.tokenizer.vocab_size, 'piece')}",
        f"rows of at most {config.max_seq_len:,} tokens",
        "whole words masked" if config.masks_words else "single pieces masked",
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
    if counts.left_out_documents:
        yield "validation documents left out of training", f"{counts.left_out_documents:,}"
    for name, split in manifest.splits.items():
        yield f"examples of {name} ({format_bytes(split.num_bytes)})", f"{split.num_rows:,}"
    for name, measured in list(statistics.items())[:1]:
        yield f"<unk> tokens of {name}", format_figure("share", measured.unk_share)
        yield f"padding, rows padded to {measured.config.max_seq_len:,}", format_figure("share", measured.padding_share)


def _render_figures(shards: Shards, statistics: Mapping[str, Statistics]) -> str:
    parts = [_render_intended(statistics), *_render_sources(shards.manifest, statistics)]
    parts += [_render_encodings(shards.manifest), _render_damage(shards.manifest.damage)]
    parts.append(_render_damaged_inputs(shards.manifest.damaged_inputs))
    for make in (_render_pieces, _render_scripts):
        parts += [make(name, measured, shards.tokenizer.piece_texts) for name, measured in statistics.items()]
    return "\n".join(parts)


def _render_intended(statistics: Mapping[str, Statistics]) -> str:
    if not statistics:
        return "<p>No split has rows.</p>"
    rows = []
    for figures in zip(*(measured.figures for measured in statistics.values()), strict=True):
        first = figures[0]
        values = [first.intended, *(figure.realised for figure in figures)]
        rows.append([label_figure(first), *(format_figure(first.name, value) for value in values)])
    return render_table(["", "intended", *statistics], rows)


def _render_sources(manifest: Manifest, statistics: Mapping[str, Statistics]) -> Iterable[str]:
    """A table of the mixture, if the build has one, and one of the rows of each split by source."""
    rows = [
        [one.name, one.language, f"{one.passes:.3g}", *(f"{n:,}" for n in (one.num_documents, one.num_used_documents))]
        for one in manifest.mixture or ()
    ]
    if rows:
        yield render_table(["source of the mixture", "language", "passes", "documents", "used"], rows)
    for name, measured in statistics.items():
        rows = [
            [
                one.name,
                *(f"{n:,}" for n in (one.num_rows, one.num_tokens)),
                format_figure("share", one.num_tokens / measured.num_tokens),
                f"{one.num_documents:,}",
                *(format_figure("share", share) for share in (one.unk_share, one.unpaired_share)),
            ]
            for one in measured.by_source
        ]
        if rows:
            heads = ["rows", "tokens", "share", "documents", "<unk> in the text", "rows without a pair"]
            yield render_table([f"source of rows of {name}", *heads], rows)


def _render_damage(damage: Mapping[str, int]) -> str:
    if not damage:
        return "<p>No document was dropped or repaired.</p>"
    rows = ([REASONS.get(reason, reason), f"{count:,}"] for reason, count in sorted(damage.items()))
    return render_table(["what was dropped or repaired", "number"], rows)


def _render_encodings(manifest: Manifest) -> str:
    rows = [[line] for line in name_encodings(manifest)]
    return render_table(["encodings found"], rows, kind="prose") if rows else ""


def _render_damaged_inputs(damaged: DamagedInputs | None) -> str:
    if damaged is None:
        return ""
    rows = ([item.path, f"{item.num_documents:,}", describe_losses(item)] for item in damaged.worst)
    return render_table([describe_damaged(damaged), "documents", "damage"], rows, kind="prose")


def _render_pieces(name: str, measured: Statistics, pieces: Sequence[str]) -> str:
    rows = (
        [pieces[i], f"{tokens:,}", format_figure("share", tokens / measured.num_maskable)]
        for i, tokens in measured.most_frequent()
    )
    return render_details(f"Most frequent pieces of {name}", render_table(["piece", "tokens", "share"], rows))


def _render_scripts(name: str, measured: Statistics, pieces: Sequence[str]) -> str:
    """Nothing where there is only one."""
    chosen = choose_scripts(count_scripts(measured.piece_counts, pieces))
    rows = [
        [one.script, f"{one.num_letters:,}", f"{one.num_tokens:,}", format_figure("share", one.share)] for one in chosen
    ]
    table = render_table(["script", "letters", "tokens", "share of the letters"], rows)
    return render_details(f"Scripts of {name}", table) if rows else ""


def _render_audit(audit: Audit) -> str:
    """What needs attention first, each with what to do; then all checks."""
    if not audit.checks:
        return "<p>Nothing was checked: no split has rows.</p>"
    concerns = [check for verdict in (BAD, LOOK) for check in audit.checks if check.verdict == verdict]
    counts = ", ".join(f"{audit.count(verdict):,} {verdict}" for verdict in VERDICTS if audit.count(verdict))
    says = f"{count_of(len(audit.checks), 'check')} for what makes a pretraining set bad: {counts}."
    if not concerns:
        says += " There is nothing to do."
    rows = ([check.rule.title, check.verdict, check.finding] for check in audit.checks)
    table = render_table(["check", "verdict", "what was found"], rows, kind="prose")
    return "\n".join([f"<p>{escape(says)}</p>", *map(_render_concern, concerns), table])


def _render_concern(check: Check) -> str:
    return (
        f'<div class="card concern"><h3><span class="verdict {check.verdict}">{check.verdict}</span> '
        f"{escape(check.rule.title)}</h3><p>{escape(check.finding)}.</p>"
        f"<p>To do: {escape(check.rule.advice)}.</p></div>"
    )
