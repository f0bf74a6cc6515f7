"""All that `albert-data inspect` shows, measured once and laid out for a person or for a program.

`ShardReport` is the result of one call: text of at most 80 columns, with rows as wide as the terminal, or values for
JSON. html/page.py makes the HTML page of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albert_data.corpus.damage import REASONS
from albert_data.corpus.lines.encodings import describe_encodings
from albert_data.inspect import view
from albert_data.inspect.choice import RowChoice, choose_rows
from albert_data.inspect.statistics import QUANTILES, Statistics, count_scripts, measure
from albert_data.inspect.tables import WIDTH, FigureTable, fill, format_figure, lay_out, tabulate_sources
from albert_data.shards.advice import describe_losses, list_removed
from albert_data.shards.manifest import DamagedInputs, Manifest
from albert_data.shards.reader import Shards, check_split, open_splits
from albert_data.text.escaping import escape_controls, name_as_text
from albert_data.text.wording import count_of, format_share

_SHOWN_INPUTS = 5  # of each encoding
_BAR_LEN = 32
_MIN_LETTERS = 0.01  # the share of a script; one with less is probably loan words and names
_LABELS = {
    "masked_share": "masked share of the tokens",
    "spans_longer": "longer spans",
    "shown_as_mask": "masked tokens shown as [MASK]",
    "shown_as_random": "masked tokens shown as a random piece",
    "shown_as_kept": "masked tokens left unchanged",
    "swapped_share": "pairs with swapped segments",
    "random_share": "pairs with B of another document",
    "unpaired_share": "rows without a pair",
    "num_unpaired": "number of rows without a pair",
    "unknown_share": "tokens of text that are <unk>",
}


@dataclass(frozen=True, kw_only=True)
class ShardReport:
    """A shard folder, measured."""

    opened: list[Shards]  # the splits with rows
    statistics: dict[str, Statistics]  # of each split with rows
    shards: Shards  # the split whose rows are shown
    rows: list[int]  # the numbers of these rows, chosen by `choice`
    choice: RowChoice

    @property
    def manifest(self) -> Manifest:
        return self.shards.manifest

    @property
    def pieces(self) -> list[str]:
        """What each piece is in text."""
        return self.shards.tokenizer.piece_texts

    def to_text(self, width: int = WIDTH, *, colour: bool = False) -> str:
        """The summary in 80 columns as far as names allow, then the rows in at most `width`."""
        page = "\n\n".join(filter(None, map("\n".join, _list_sections(self))))
        if not self.rows:
            return page if self.choice.count == 0 else f"{page}\n\n{self.shards.split} has no such row."
        tokenizer, task = self.shards.tokenizer, self.manifest.config.examples.task
        styles: dict[str, Any] = {"colour": colour, "task": task, "sources": self.manifest.sources}
        shown = [view.show_example(self.shards[i], i, tokenizer, width, **styles) for i in self.rows]
        title = f"Examples of {self.shards.split}"
        return "\n\n".join([page, f"{title}\n{view.show_legend(width, colour=colour)}", *shown])

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON. Its names are stable: a key is added, but not renamed, in a later version."""
        pieces = self.pieces
        return {
            "folder": name_as_text(self.shards.folder),
            **self.manifest.to_summary(),
            "statistics": {name: measured.to_dict() for name, measured in self.statistics.items()},
            "scripts": {
                name: [vars(one) for one in count_scripts(measured.piece_counts, pieces)]
                for name, measured in self.statistics.items()
            },
            "examples": [
                view.to_dict(self.shards[i], i, self.shards.tokenizer, self.manifest.sources) for i in self.rows
            ],
        }


def inspect_folder(folder: Path, *, split: str, choice: RowChoice) -> ShardReport:
    """Measure every split and choose rows of one.

    Raises ShardError if the folder is no finished build, holds malformed rows, or lacks a row asked for.
    """
    opened = open_splits(folder)
    check_split(folder, split, list(opened))
    shown = opened[split]
    filled = {name: shards for name, shards in opened.items() if len(shards) > 0}
    statistics = {name: measure(shards) for name, shards in filled.items()}  # first, as it refuses malformed rows
    rows = choose_rows(shown, choice)
    return ShardReport(opened=list(filled.values()), statistics=statistics, rows=rows, shards=shown, choice=choice)


# ---- the summary: what a terminal and a page show ----


def describe_build(manifest: Manifest) -> str:
    """What made the shards, and the most important settings."""
    config, words = manifest.config.examples, "single pieces masked"
    if config.masks_words:
        words = "whole words masked" if manifest.words is None else "whole words masked by a word list"
    parts = [
        f"Built by albert-data {manifest.albert_data_version} from {count_of(len(manifest.inputs), 'input')}",
        f"tokenizer of {count_of(manifest.tokenizer.vocab_size, 'piece')}",
        f"rows of at most {count_of(config.max_seq_len, 'token')}",
        words,
        f"seed {config.seed}",
        f"dupe factor {config.dupe_factor:,}",
    ]
    return f"{', '.join(parts)}."


def list_counts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """What the build read, and how many documents it left out, as what: names and numbers."""
    counts = manifest.counts
    yield "documents", f"{counts.documents:,}"
    yield "sentences", f"{counts.sentences:,}"
    yield "text", format_bytes(counts.text_bytes)
    yield "tokens", f"{counts.tokens:,}"
    for count, name in (
        (counts.duplicate_documents, "equal documents dropped"),
        (counts.contaminated_documents, "other documents with text of a benchmark left out"),
        (counts.near_duplicate_documents, "near-duplicates dropped"),
        (counts.left_out_documents, "validation documents left out of training"),
    ):
        if count:
            yield name, f"{count:,}"


def format_bytes(num_bytes: int) -> str:
    """A size in the largest decimal unit in which it is at least 1."""
    if num_bytes < 1000:
        return count_of(num_bytes, "byte")
    value, unit = num_bytes / 1000, "kB"
    for larger in ("MB", "GB", "TB", "PB"):
        if value >= 999.95:
            value, unit = value / 1000, larger
    return f"{value:,.1f} {unit}"


def list_tables(report: ShardReport) -> Iterator[FigureTable]:
    """What was measured, and what the build noted."""
    manifest, statistics, pieces = report.manifest, report.statistics, report.pieces
    yield FigureTable(_tabulate_splits(manifest))
    if statistics:
        yield FigureTable([["Figures", "intended", *statistics], *_tabulate_figures(statistics)])
        yield FigureTable(_tabulate_row_lens(statistics))
    else:
        yield FigureTable([["No split has rows."]])
    if manifest.mixture:
        yield FigureTable(_tabulate_mixture(manifest))
    for name, measured in statistics.items():
        if measured.by_source:
            yield tabulate_sources(f"Sources of {name}", measured.by_source)
        if len(scripts := tabulate_scripts(name, measured, pieces)) > 2:
            yield FigureTable(scripts)
    found = [(item.encoding, escape_controls(item.path)) for item in manifest.inputs if item.encoding]
    damage = [
        [f"{count:,}", REASONS.get(reason, reason.replace("_", " "))] for reason, count in manifest.damage.items()
    ]
    for head, rows in (
        (["Encodings found"], [[line] for line in describe_encodings(found, _SHOWN_INPUTS)]),
        (["Damage", "what was dropped or repaired"] if damage else ["Damage: none"], damage),
        *_list_damaged(manifest.damaged_inputs),
        (["Removed"], [[line] for line in list_removed(manifest.removed)]),
    ):
        if rows or head == ["Damage: none"]:
            yield FigureTable([head, *rows], is_prose=True)


def _tabulate_splits(manifest: Manifest) -> list[list[str]]:
    table = [["Splits", "rows", "tokens", "masked", "shards", "size"]]
    for name, split in manifest.splits.items():
        counts = (split.num_rows, split.num_tokens, split.num_masked, len(split.shards))
        table.append([name, *(f"{count:,}" for count in counts), format_bytes(split.num_bytes)])
    return table


def _tabulate_mixture(manifest: Manifest) -> list[list[str]]:
    """What a mixture takes of its sources. Passes are on average over the documents, tokens those of text."""
    table = [["Sources of the mixture", "passes", "documents", "used", "tokens used"]]
    for one in manifest.mixture or ():
        counts = (one.num_documents, one.num_used_documents, one.num_used_tokens)
        table.append([f"{one.name} ({one.language})", f"{one.passes:.3g}", *(f"{count:,}" for count in counts)])
    return table


def _tabulate_figures(statistics: Mapping[str, Statistics]) -> Iterator[list[str]]:
    """For each figure its name in words, what is intended, and what each split realises."""
    for figures in zip(*(measured.figures for measured in statistics.values()), strict=True):
        name, intended, _ = figures[0]
        label = _LABELS.get(name) or f"spans of {count_of(int(name.removeprefix('spans_of_')), 'word')}"
        cells = (format_figure(name, value) for value in (intended, *(figure.realised for figure in figures)))
        yield [label, *cells]


def _tabulate_row_lens(statistics: Mapping[str, Statistics]) -> list[list[str]]:
    names = (name.replace("p", "") + " %" if name.startswith("p") else name for name in QUANTILES)
    table = [["Row lengths", *names, "mean", "padding"]]
    for name, measured in statistics.items():
        lens = (f"{length:,}" for length in measured.row_len_quantiles.values())
        table.append([name, *lens, f"{measured.mean_row_len:.1f}", format_figure("padding", measured.padding_share)])
    return table


def tabulate_scripts(name: str, measured: Statistics, pieces: Sequence[str]) -> list[list[str]]:
    """Letters, tokens and share of each script of a split, except those of loan words."""
    rows = [
        [one.script, f"{one.num_letters:,}", f"{one.num_tokens:,}", format_share(one.share)]
        for one in count_scripts(measured.piece_counts, pieces)
        if one.share > _MIN_LETTERS
    ]
    return [[f"Scripts of {name}", "letters", "tokens", "share"], *rows]


def _list_damaged(damaged: DamagedInputs | None) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The head and the rows of a table of the worst inputs."""
    if damaged is None:
        return
    parts = []
    if damaged.num_without_documents:
        parts.append(f"{count_of(damaged.num_without_documents, 'input')} without a document")
    if damaged.num_damaged:
        parts.append(f"{count_of(damaged.num_damaged, 'input')} with damage")
    head = [f"{', '.join(parts)}; the worst", "documents", "damage"]
    yield head, [[one.path, count_of(one.num_documents, "document"), describe_losses(one)] for one in damaged.worst]


# ---- in a terminal ----


def _list_sections(report: ShardReport) -> Iterator[Iterable[str]]:
    """The lines of each section."""
    yield [*fill(str(report.shards.folder)), *fill(describe_build(report.manifest), "  ")]
    yield ["Corpus", *fill(", ".join(f"{name} {number}" for name, number in list_counts(report.manifest)), "  ")]
    yield from map(lay_out, list_tables(report))
    if report.statistics:
        yield lay_out(FigureTable(list(_draw_bins(report.statistics))))


def _draw_bins(statistics: Mapping[str, Statistics]) -> Iterator[list[str]]:
    """Shares of the rows by length. The bars show the first split; the longest has _BAR_LEN characters."""
    histograms = [[rows / m.num_rows for *_, rows in m.row_len_bins] for m in statistics.values()]
    yield ["Rows by length", *statistics]
    for (first, last, _), *shares in zip(next(iter(statistics.values())).row_len_bins, *histograms, strict=True):
        bar = "#" * max(round(_BAR_LEN * shares[0] / max(histograms[0])), shares[0] > 0)
        yield [f"{f'{first:,} to {last:,}':<17}{bar}", *map(format_share, shares)]
