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
from albert_data.corpus.inputs import Input
from albert_data.corpus.lines.encodings import describe_encodings
from albert_data.inspect import view
from albert_data.inspect.audit.rows import gather_subject
from albert_data.inspect.choice import RowChoice, choose_rows
from albert_data.inspect.input_files import (
    CorpusFiles,
    InputFiles,
    attribute,
    cut_middle,
    describe_input_files,
    read_similar,
    shorten_names,
)
from albert_data.inspect.statistics import EDGE, QUANTILES, Figure, Statistics, count_scripts, measure
from albert_data.inspect.terminal import count_columns
from albert_data.shards.advice import describe_losses, list_removed
from albert_data.shards.manifest import DamagedInputs, Manifest
from albert_data.shards.reader import Shards, check_split, open_splits
from albert_data.text.escaping import escape_controls, name_as_text
from albert_data.text.wording import count_of, format_share, wrap_words

WIDTH = 80
_SHOWN_INPUTS = 5  # of each encoding
_BAR_LEN = 32
_CELL_LEN = 25
_NUM_FILES = 5
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
    "num_broken_words": "words masked in part",
    "num_special_masked": "special tokens masked",
    "num_special_replacements": "special pieces as replacements",
}


@dataclass(frozen=True, kw_only=True)
class ShardReport:
    """A shard folder, measured."""

    opened: list[Shards]  # the splits with rows
    corpus: CorpusFiles | None  # what the inputs hold; None where they are not given, or where no split has rows
    statistics: dict[str, Statistics]  # of each split with rows
    shards: Shards  # the split whose rows are shown
    rows: list[int]  # the numbers of these rows, chosen by `choice`
    choice: RowChoice
    input_files: InputFiles | None  # figures of the corpus's files; None without a corpus

    @property
    def manifest(self) -> Manifest:
        return self.shards.manifest

    @property
    def pieces(self) -> list[str]:
        """What each piece is in text."""
        return self.shards.tokenizer.piece_texts

    def to_text(self, width: int = WIDTH, *, colour: bool = False) -> str:
        """The summary in at most 80 columns, then the rows in at most `width`."""
        page = "\n\n".join(filter(None, map("\n".join, _list_sections(self))))
        if not self.rows:
            return page if self.choice.count == 0 else f"{page}\n\n{self._explain_none()}"
        tokenizer, task = self.shards.tokenizer, self.manifest.config.examples.task
        shown = [view.show_example(self.shards[i], i, tokenizer, width, colour=colour, task=task) for i in self.rows]
        title = f"Examples of {self.shards.split}"
        return "\n\n".join([page, f"{title}\n{view.show_legend(width, colour=colour)}", *shown])

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON. Its names are stable: a key is added, but not renamed, in a later version."""
        pieces = self.pieces
        return {
            "folder": name_as_text(self.shards.folder),
            **self.manifest.to_summary(),
            "statistics": {name: measured.to_dict() for name, measured in self.statistics.items()},
            "most_frequent_pieces": {
                name: [{"id": i, "piece": pieces[i], "num_tokens": tokens} for i, tokens in measured.most_frequent()]
                for name, measured in self.statistics.items()
            },
            "scripts": {
                name: [vars(one) for one in count_scripts(measured.piece_counts, pieces)]
                for name, measured in self.statistics.items()
            },
            "sources": None if self.input_files is None else self.input_files.to_dict(),
            "examples": [view.to_dict(self.shards[i], i, self.shards.tokenizer) for i in self.rows],
        }

    def _explain_none(self) -> str:
        """Why there is no row to show."""
        wanted = []
        if self.choice.text is not None:
            wanted.append(f"holds {escape_controls(repr(self.choice.text))}")
        if self.choice.label is not None:
            wanted.append(f"is {self.manifest.config.examples.task.describe(self.choice.label).split(':')[0]}")
        return f"{self.shards.split} has no row{' that ' if wanted else ''}{' and '.join(wanted)}."


def inspect_folder(folder: Path, *, split: str, choice: RowChoice, corpus: list[Input] | None = None) -> ShardReport:
    """Measure every split and choose rows of one. corpus: the inputs of the build, for figures by file and the audit.

    Raises ShardError if the folder is no finished build, holds malformed rows, or lacks a row asked for, and
    InputError for a corpus that can't be read, or that has no document of the shards.
    """
    opened = open_splits(folder)
    check_split(folder, split, list(opened))
    shown = opened[split]
    filled = {name: shards for name, shards in opened.items() if len(shards) > 0}
    statistics = {name: measure(shards) for name, shards in filled.items()}  # first, as it refuses malformed rows
    rows = choose_rows(shown, choice)
    contents = read_similar(corpus, shown.manifest.config.text) if corpus and filled else None
    return ShardReport(
        opened=list(filled.values()),
        corpus=contents,
        statistics=statistics,
        rows=rows,
        shards=shown,
        choice=choice,
        input_files=None if contents is None else attribute(gather_subject(list(filled.values())), contents),
    )


# ---- the summary as text ----


def _list_sections(report: ShardReport) -> Iterator[Iterable[str]]:
    """The lines of each section; none where there is nothing to show."""
    manifest, statistics = report.manifest, report.statistics
    yield _describe_build(report.shards.folder, manifest)
    yield _list_counts(manifest)
    yield _list_splits(manifest)
    yield _tabulate((32, 8, 14, 12, 14), tabulate_mixture(manifest))
    yield _list_sources(statistics)
    if statistics:
        widths = (41, 12, *(13 for _ in statistics))
        yield _tabulate(widths, [["Figures", "intended", *statistics], *tabulate_figures(statistics)])
        yield _list_row_lens(statistics)
        yield _list_bins(statistics)
        yield _list_padding(statistics)
        yield _list_edges(statistics)
        yield _list_pieces(statistics, report.pieces)
        yield _list_scripts(statistics, report.pieces)
    else:
        yield ["No split has rows."]
    yield _list_input_files(report.input_files)
    if lines := name_encodings(manifest):
        yield ["Encodings found", *(part for line in lines for part in _fill(line, "  "))]
    yield _list_damage(manifest.damage)
    yield _list_damaged_inputs(manifest.damaged_inputs)
    if lines := list_removed(manifest.removed):
        yield ["Removed", *(part for line in lines for part in _fill(line, "  "))]


def _tabulate(widths: Sequence[int], table: Iterable[Sequence[str]]) -> Iterator[str]:
    """A line for each row, the head first; the first column is aligned left, and indented below the head."""
    for number, (name, *cells) in enumerate(table):
        first = f"  {_fit(name, widths[0] - 2)}" if number else f"{name:<{widths[0]}}"
        yield first + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))


def _fit(text: str, columns: int) -> str:
    return text + " " * max(1, columns - count_columns(text))


def _fill(text: str, indent: str, hanging: str = "") -> list[str]:
    return wrap_words(escape_controls(text), WIDTH, indent, hanging)


def _describe_build(folder: Path, manifest: Manifest) -> list[str]:
    parts = [f"built by albert-data {manifest.albert_data_version}", count_of(len(manifest.inputs), "input")]
    return [*_fill(str(folder), ""), *_fill(", ".join([*parts, *describe_settings(manifest)]), "  ")]


def describe_settings(manifest: Manifest) -> list[str]:
    """The most important settings of the build."""
    config, words = manifest.config.examples, "single pieces masked"
    if config.masks_words:
        words = "whole words masked" if manifest.words is None else "whole words masked by a word list"
    return [
        f"tokenizer of {count_of(manifest.tokenizer.vocab_size, 'piece')}",
        f"rows of at most {count_of(config.max_seq_len, 'token')}",
        words,
        f"seed {config.seed}",
        f"dupe factor {config.dupe_factor:,}",
    ]


def _list_counts(manifest: Manifest) -> list[str]:
    counts = manifest.counts
    parts = [count_of(counts.documents, "document"), count_of(counts.sentences, "sentence")]
    parts += [f"{format_bytes(counts.text_bytes)} of text", count_of(counts.tokens, "token")]
    parts += [f"{count_of(count, noun)} {fate}" for count, noun, fate in list_dropped(manifest)]
    return ["Corpus", *_fill(", ".join(parts), "  ")]


def list_dropped(manifest: Manifest) -> Iterator[tuple[int, str, str]]:
    """How many documents the build left out, as what, and how that is called: for each kind that there is."""
    for name, noun, fate in (
        ("duplicate_documents", "equal document", "dropped"),
        ("contaminated_documents", "other document", "with text of a benchmark left out"),
        ("near_duplicate_documents", "near-duplicate", "dropped"),
        ("left_out_documents", "validation document", "left out of training"),
    ):
        if count := getattr(manifest.counts, name):
            yield count, noun, fate


def format_bytes(num_bytes: int) -> str:
    """A size in the largest decimal unit in which it is at least 1."""
    if num_bytes < 1000:
        return count_of(num_bytes, "byte")
    value, unit = num_bytes / 1000, "kB"
    for larger in ("MB", "GB", "TB", "PB"):
        if value >= 999.95:
            value, unit = value / 1000, larger
    return f"{value:,.1f} {unit}"


def _list_splits(manifest: Manifest) -> Iterator[str]:
    table = [["Splits", "rows", "tokens", "masked", "shards", "size"]]
    for name, split in manifest.splits.items():
        counts = (split.num_rows, split.num_tokens, split.num_masked, len(split.shards))
        table.append([name, *(f"{count:,}" for count in counts), format_bytes(split.num_bytes)])
    return _tabulate((13, 14, 18, 16, 8, 11), table)


def tabulate_mixture(manifest: Manifest) -> list[list[str]]:
    """What a mixture takes of its sources. Passes are on average over the documents, tokens those of text."""
    table = [["Sources of the mixture", "passes", "documents", "used", "tokens used"]]
    for one in manifest.mixture or ():
        counts = (one.num_documents, one.num_used_documents, one.num_used_tokens)
        name = escape_controls(f"{one.name} ({one.language})")
        table.append([name, f"{one.passes:.3g}", *(f"{count:,}" for count in counts)])
    return table if manifest.mixture else []


def tabulate_sources(name: str, measured: Statistics) -> list[list[str]]:
    """The rows of a split by source; nothing where these have no sources."""
    table = [[f"Rows of {name} by source", "rows", "tokens", "share", "documents", "<unk>", "without a pair"]]
    for one in measured.by_source:
        shares = (one.num_tokens / measured.num_tokens, one.unk_share, one.unpaired_share)
        share, *others = (format_figure("share", share) for share in shares)
        counts = (f"{one.num_rows:,}", f"{one.num_tokens:,}", share, f"{one.num_documents:,}")
        table.append([escape_controls(one.name), *counts, *others])
    return table if measured.by_source else []


def _list_sources(statistics: Mapping[str, Statistics]) -> Iterator[str]:
    for name, measured in statistics.items():
        yield from _tabulate((30, 11, 15, 9, 14), [row[:5] for row in tabulate_sources(name, measured)])


def tabulate_figures(statistics: Mapping[str, Statistics]) -> Iterator[list[str]]:
    """For each figure its name in words, what is intended, and what each split realises."""
    for figures in zip(*(measured.figures for measured in statistics.values()), strict=True):
        name, intended, _ = figures[0]
        cells = (format_figure(name, value) for value in (intended, *(figure.realised for figure in figures)))
        yield [label_figure(figures[0]), *cells]


def label_figure(figure: Figure) -> str:
    """The name of a figure in words."""
    if figure.name in _LABELS:
        return _LABELS[figure.name]
    return f"spans of {count_of(int(figure.name.removeprefix('spans_of_')), 'word')}"


def format_figure(name: str, value: float | None) -> str:
    """A dash for None; a count if the name begins with "num_"; otherwise a share, whatever the name."""
    if value is None:
        return "-"
    if 0 < value < 0.00005:
        return "<0.01 %"
    return f"{value:,.0f}" if name.startswith("num_") else format_share(value)


def _list_row_lens(statistics: Mapping[str, Statistics]) -> Iterator[str]:
    names = (name.replace("p", "") + " %" if name.startswith("p") else name for name in QUANTILES)
    rows = []
    for name, measured in statistics.items():
        lens = (f"{length:,}" for length in measured.row_len_quantiles.values())
        rows.append([name, *lens, f"{measured.mean_row_len:.1f}", format_figure("padding", measured.padding_share)])
    return _tabulate((13, *(7 for _ in QUANTILES), 8, 10), [["Row lengths", *names, "mean", "padding"], *rows])


def _list_bins(statistics: Mapping[str, Statistics]) -> Iterator[str]:
    """Shares of the rows by length. The bars show the first split; the longest has _BAR_LEN characters."""
    histograms = [[rows / m.num_rows for *_, rows in m.row_len_bins] for m in statistics.values()]
    bins, rows = next(iter(statistics.values())).row_len_bins, []
    for (first, last, _), *shares in zip(bins, *histograms, strict=True):
        bar = "#" * max(round(_BAR_LEN * shares[0] / max(histograms[0])), shares[0] > 0)
        rows.append([f"{f'{first:,} to {last:,}':<17}{bar}", *map(format_share, shares)])
    return _tabulate((53, *(13 for _ in statistics)), [["Rows by length", *statistics], *rows])


def _list_padding(statistics: Mapping[str, Statistics]) -> Iterator[str]:
    lens = list(next(iter(statistics.values())).padding_by_bucket)
    yield "Padding, if a row is padded to the next multiple of this many tokens"
    rows = (
        [name, *(format_figure("padding", share) for share in measured.padding_by_bucket.values())]
        for name, measured in statistics.items()
    )
    yield from _tabulate((13, *(9 for _ in lens)), [["", *(f"{bucket_len:,}" for bucket_len in lens)], *rows])


def _list_edges(statistics: Mapping[str, Statistics]) -> Iterator[str]:
    yield "Masked share at the ends of a row's text, relative to its middle (intended: 1)"
    places = [*range(1, EDGE + 1), *range(-EDGE, 0)]
    rows = (
        [name, *("-" if value is None else f"{value:.2f}" for value in (*measured.edge_ratios, measured.edge_error))]
        for name, measured in statistics.items()
    )
    yield from _tabulate((13, *(6 for _ in places), 7), [["", *map(str, places), "error"], *rows])


def _list_pieces(statistics: Mapping[str, Statistics], pieces: Sequence[str]) -> Iterator[str]:
    """The most frequent pieces of each split in three columns, with their share of its tokens of text."""
    for name, measured in statistics.items():
        cells = [
            _fit(f"{escape_controls(pieces[i])} {format_share(tokens / measured.num_maskable)}", _CELL_LEN)
            for i, tokens in measured.most_frequent()
        ]
        yield f"Most frequent pieces of {name}"
        yield from (f"  {''.join(cells[at : at + 3])}".rstrip() for at in range(0, len(cells), 3))


def _list_scripts(statistics: Mapping[str, Statistics], pieces: Sequence[str]) -> Iterator[str]:
    """The scripts of each split that has several."""
    for name, measured in statistics.items():
        yield from _tabulate((40, 16, 14, 10), tabulate_scripts(name, measured, pieces))


def tabulate_scripts(name: str, measured: Statistics, pieces: Sequence[str]) -> list[list[str]]:
    """Letters, tokens and share of each script of a split; nothing where there is only one, apart from loan words."""
    rows = [
        [one.script, f"{one.num_letters:,}", f"{one.num_tokens:,}", format_share(one.share)]
        for one in count_scripts(measured.piece_counts, pieces)
        if one.share > _MIN_LETTERS
    ]
    return [[f"Scripts of {name}", "letters", "tokens", "share"], *rows] if len(rows) > 1 else []


def tabulate_input_files(input_files: InputFiles, count: int, columns: int) -> list[list[str]]:
    """Tokens, their share and that of unknown ones, of the largest files, with names of so many columns."""
    files, table = input_files.rank(count), [["Input files", "tokens", "share", "unknown"]]
    for file, name in zip(files, shorten_names(files, columns), strict=True):
        shares = (format_figure("share", share) for share in (file.share, file.unknown_rate))
        table.append([name, f"{file.num_tokens:,}", *shares])
    return table


def _list_input_files(input_files: InputFiles | None) -> Iterator[str]:
    if input_files is not None:
        yield from _tabulate((42, 18, 10, 10), tabulate_input_files(input_files, _NUM_FILES, 39))
        yield from _fill(describe_input_files(input_files), "  ")


def name_encodings(manifest: Manifest) -> list[str]:
    """A line for each encoding that `--encoding auto` found."""
    found = ((item.encoding, escape_controls(item.path)) for item in manifest.inputs if item.encoding)
    return describe_encodings(found, _SHOWN_INPUTS)


def _list_damage(damage: Mapping[str, int]) -> list[str]:
    lines = ["Damage"]
    for reason, count in damage.items():
        text = f"{count:>11,}  {REASONS.get(reason, reason.replace('_', ' '))}"
        lines += _fill(text, "  ", " " * 15)
    return lines if len(lines) > 1 else ["Damage: none"]


def describe_damaged(damaged: DamagedInputs) -> str:
    """How many inputs are damaged, as the title of a list of the worst."""
    parts = []
    if damaged.num_without_documents:
        parts.append(f"{count_of(damaged.num_without_documents, 'input')} without a document")
    if damaged.num_damaged:
        parts.append(f"{count_of(damaged.num_damaged, 'input')} with damage")
    return f"{', '.join(parts)}; the worst"


def _list_damaged_inputs(damaged: DamagedInputs | None) -> Iterator[str]:
    if damaged is None:
        return
    names = (cut_middle(escape_controls(item.path), 63) for item in damaged.worst)
    rows = [[name, f"{item.num_documents:,}"] for name, item in zip(names, damaged.worst, strict=True)]
    head, *lines = _tabulate((66, 14), [[describe_damaged(damaged), "documents"], *rows])
    yield head
    for item, line in zip(damaged.worst, lines, strict=True):
        yield line
        yield from _fill(describe_losses(item), " " * 4)
