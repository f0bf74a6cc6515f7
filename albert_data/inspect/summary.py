"""A shard folder on one page: its contents, and how close its rows are to what was intended.

In: a manifest and the statistics of each split. Out: lines of at most 80 columns, or values for JSON.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from albert_data.corpus.damage import REASONS
from albert_data.corpus.encodings import describe_encodings
from albert_data.inspect.counts import EDGE
from albert_data.inspect.input_files import InputFiles, cut_middle, describe_input_files, shorten_names
from albert_data.inspect.scripts import choose_scripts, count_scripts
from albert_data.inspect.statistics import QUANTILES, Figure, Statistics
from albert_data.inspect.terminal import count_columns, escape_controls, name_as_text
from albert_data.pipeline.advice import describe_losses
from albert_data.shards.manifest import DamagedInputs, Manifest, MixedSource, SplitEntry
from albert_data.wording import count_of, format_share

WIDTH = 80
_SHOWN_INPUTS = 5  # of each encoding
_BAR_LEN = 32
_CELL_LEN = 25
_NUM_FILES = 5
_NONE = "-"
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


def summarise(
    folder: Path,
    manifest: Manifest,
    statistics: Mapping[str, Statistics],
    pieces: Sequence[str],
    input_files: InputFiles | None,
) -> str:
    """The page for a person. statistics: of each split that has rows; pieces: what each is in text."""
    sections: list[Iterable[str]] = [
        _describe_build(folder, manifest),
        _list_counts(manifest),
        _list_splits(manifest.splits),
        _list_mixture(manifest.mixture or ()),
        _list_sources(statistics),
        _list_figures(statistics),
        _list_row_lens(statistics),
        _list_bins(statistics),
        _list_padding(statistics),
        _list_edges(statistics),
        _list_pieces(statistics, pieces),
        _list_scripts(statistics, pieces),
        _list_input_files(input_files),
        _list_encodings(manifest),
        _list_damage(manifest.damage),
        _list_damaged_inputs(manifest.damaged_inputs),
    ]
    return "\n\n".join(filter(None, map("\n".join, sections)))


def to_dict(
    folder: Path,
    manifest: Manifest,
    statistics: Mapping[str, Statistics],
    pieces: Sequence[str],
    input_files: InputFiles | None,
) -> dict[str, Any]:
    """The page for a program. Its names are stable: a key is added, but not renamed, in a later version."""
    kept = ("format", "format_version", "albert_data_version", "config", "tokenizer", "counts", "damage")
    values = manifest.to_values()
    splits = {
        name: {key: value for key, value in split.items() if key != "shards"} | {"num_shards": len(split["shards"])}
        for name, split in values["splits"].items()
    }
    return {
        "folder": name_as_text(folder),
        **{key: values[key] for key in kept},
        "splits": splits,
        **{key: values[key] for key in ("mixture", "damaged_inputs") if key in values},
        "statistics": {name: measured.to_dict() for name, measured in statistics.items()},
        "most_frequent_pieces": {
            name: [{"id": i, "piece": pieces[i], "num_tokens": tokens} for i, tokens in measured.most_frequent()]
            for name, measured in statistics.items()
        },
        "scripts": {
            name: [one.to_dict() for one in count_scripts(measured.piece_counts, pieces)]
            for name, measured in statistics.items()
        },
        "sources": None if input_files is None else input_files.to_dict(),
    }


def _describe_build(folder: Path, manifest: Manifest) -> list[str]:
    config = manifest.config.examples
    parts = (
        f"built by albert-data {manifest.albert_data_version}",
        count_of(len(manifest.inputs), "input"),
        f"tokenizer of {count_of(manifest.tokenizer.vocab_size, 'piece')}",
        f"rows of at most {count_of(config.max_seq_len, 'token')}",
        _describe_words(manifest),
        f"seed {config.seed}",
        f"dupe factor {config.dupe_factor:,}",
    )
    return [*_fill(str(folder), ""), *_fill(", ".join(parts), "  ")]


def _describe_words(manifest: Manifest) -> str:
    if not manifest.config.examples.masks_words:
        return "single pieces masked"
    return "whole words masked" if manifest.words is None else "whole words masked by a word list"


def _fill(text: str, indent: str, hanging: str = "") -> list[str]:
    return textwrap.wrap(escape_controls(text), WIDTH, initial_indent=indent, subsequent_indent=hanging or indent)


def _list_counts(manifest: Manifest) -> list[str]:
    counts = manifest.counts
    parts = [count_of(counts.documents, "document"), count_of(counts.sentences, "sentence")]
    parts += [f"{format_bytes(counts.text_bytes)} of text", count_of(counts.tokens, "token")]
    if counts.duplicate_documents:
        parts.append(f"{count_of(counts.duplicate_documents, 'equal document')} dropped")
    if counts.left_out_documents:
        parts.append(f"{count_of(counts.left_out_documents, 'validation document')} left out of training")
    return ["Corpus", *_fill(", ".join(parts), "  ")]


def format_bytes(num_bytes: int) -> str:
    """A size in the largest decimal unit in which it is at least 1."""
    if num_bytes < 1000:
        return count_of(num_bytes, "byte")
    value, unit = num_bytes / 1000, "kB"
    for larger in ("MB", "GB", "TB", "PB"):
        if value >= 999.95:
            value, unit = value / 1000, larger
    return f"{value:,.1f} {unit}"


def _list_splits(splits: Mapping[str, SplitEntry]) -> list[str]:
    lines = [f"{'Splits':<13}{'rows':>14}{'tokens':>18}{'masked':>16}{'shards':>8}{'size':>11}"]
    for name, split in splits.items():
        totals = f"{split.num_rows:>14,}{split.num_tokens:>18,}{split.num_masked:>16,}"
        lines.append(f"  {name:<11}{totals}{len(split.shards):>8,}{format_bytes(split.num_bytes):>11}")
    return lines


def _list_mixture(mixture: Sequence[MixedSource]) -> Iterator[str]:
    """What a mixture takes of its sources. Passes are on average over the documents, tokens those of text."""
    if mixture:
        yield f"{'Sources of the mixture':<32}{'passes':>8}{'documents':>14}{'used':>12}{'tokens used':>14}"
    for one in mixture:
        cells = f"{one.passes:>8.3g}{one.num_documents:>14,}{one.num_used_documents:>12,}{one.num_used_tokens:>14,}"
        yield f"  {_fit(escape_controls(f'{one.name} ({one.language})'), 29)} {cells}"


def _list_sources(statistics: Mapping[str, Statistics]) -> Iterator[str]:
    for name, measured in statistics.items():
        if measured.by_source:
            yield f"{f'Rows of {name} by source':<30}{'rows':>11}{'tokens':>15}{'share':>9}{'documents':>14}"
        for one in measured.by_source:
            share = format_figure("share", one.num_tokens / measured.num_tokens)
            cells = f"{one.num_rows:>11,}{one.num_tokens:>15,}{share:>9}{one.num_documents:>14,}"
            yield f"  {_fit(escape_controls(one.name), 27)} {cells}"


def _list_figures(statistics: Mapping[str, Statistics]) -> list[str]:
    if not statistics:
        return ["No split has rows."]
    lines = [f"{'Figures':<41}{'intended':>12}" + "".join(f"{name:>13}" for name in statistics)]
    for figures in zip(*(measured.figures for measured in statistics.values()), strict=True):
        first = figures[0]
        cells = "".join(f"{format_figure(first.name, figure.realised):>13}" for figure in figures)
        lines.append(f"  {label_figure(first):<39}{format_figure(first.name, first.intended):>12}{cells}")
    return lines


def label_figure(figure: Figure) -> str:
    """The name of a figure in words."""
    if figure.name in _LABELS:
        return _LABELS[figure.name]
    return f"spans of {count_of(int(figure.name.removeprefix('spans_of_')), 'word')}"


def format_figure(name: str, value: float | None) -> str:
    """A dash for None; a count if the name begins with "num_"; otherwise a share, whatever the name."""
    if value is None:
        return _NONE
    if 0 < value < 0.00005:
        return "<0.01 %"
    return f"{value:,.0f}" if name.startswith("num_") else format_share(value)


def _list_row_lens(statistics: Mapping[str, Statistics]) -> Iterator[str]:
    names = (name.replace("p", "") + " %" if name.startswith("p") else name for name in QUANTILES)
    header = "".join(f"{name:>7}" for name in names)
    if statistics:
        yield f"{'Row lengths':<13}{header}{'mean':>8}{'padding':>10}"
    for name, measured in statistics.items():
        cells = "".join(f"{length:>7,}" for length in measured.row_len_quantiles.values())
        yield f"  {name:<11}{cells}{measured.mean_row_len:>8.1f}{format_figure('padding', measured.padding_share):>10}"


def _list_bins(statistics: Mapping[str, Statistics]) -> Iterator[str]:
    """Shares of the rows by length. The bars show the first split; the longest has _BAR_LEN characters."""
    if not statistics:
        return
    yield f"{'Rows by length':<53}" + "".join(f"{name:>13}" for name in statistics)
    histograms = [[rows / m.num_rows for *_, rows in m.row_len_bins] for m in statistics.values()]
    bins = next(iter(statistics.values())).row_len_bins
    for (first, last, _), *shares in zip(bins, *histograms, strict=True):
        bar = "#" * max(round(_BAR_LEN * shares[0] / max(histograms[0])), shares[0] > 0)
        label = f"{f'{first:,} to {last:,}':<17}{bar:<34}"
        yield f"  {label}" + "".join(f"{format_share(share):>13}" for share in shares)


def _list_padding(statistics: Mapping[str, Statistics]) -> Iterator[str]:
    if not statistics:
        return
    lens = list(next(iter(statistics.values())).padding_by_bucket)
    cells = "".join(f"{bucket_len:>9,}" for bucket_len in lens)
    yield "Padding, if a row is padded to the next multiple of this many tokens"
    yield f"{'':13}{cells}"
    for name, measured in statistics.items():
        shares = (format_figure("padding", share) for share in measured.padding_by_bucket.values())
        yield f"  {name:<11}" + "".join(f"{share:>9}" for share in shares)


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
        if chosen := choose_scripts(count_scripts(measured.piece_counts, pieces)):
            yield f"{f'Scripts of {name}':<40}{'letters':>16}{'tokens':>14}{'share':>10}"
            for one in chosen:
                yield f"  {one.script:<38}{one.num_letters:>16,}{one.num_tokens:>14,}{format_share(one.share):>10}"


def _fit(text: str, columns: int) -> str:
    return text + " " * max(1, columns - count_columns(text))


def _list_input_files(input_files: InputFiles | None) -> Iterator[str]:
    if input_files is None:
        return
    files = input_files.rank(_NUM_FILES)
    yield f"{'Input files':<42}{'tokens':>18}{'share':>10}{'unknown':>10}"
    for file, name in zip(files, shorten_names(files, 39), strict=True):
        cells = "".join(f"{format_figure('share', share):>10}" for share in (file.share, file.unknown_rate))
        yield f"  {_fit(name, 40)}{file.num_tokens:>18,}{cells}"
    yield from _fill(describe_input_files(input_files), "  ")


def _list_edges(statistics: Mapping[str, Statistics]) -> Iterator[str]:
    if not statistics:
        return
    yield "Masked share at the ends of a row's text, relative to its middle (intended: 1)"
    positions = [*range(1, EDGE + 1), *range(-EDGE, 0)]
    yield f"{'':13}" + "".join(f"{position:>6}" for position in positions) + f"{'error':>7}"
    for name, measured in statistics.items():
        cells = (_NONE if ratio is None else f"{ratio:.2f}" for ratio in measured.edge_ratios)
        error = _NONE if measured.edge_error is None else f"{measured.edge_error:.2f}"
        yield f"  {name:<11}" + "".join(f"{cell:>6}" for cell in cells) + f"{error:>7}"


def _list_damage(damage: Mapping[str, int]) -> list[str]:
    lines = ["Damage"]
    for reason, count in damage.items():
        text = f"{count:>11,}  {REASONS.get(reason, reason.replace('_', ' '))}"
        lines += _fill(text, "  ", " " * 15)
    return lines if len(lines) > 1 else ["Damage: none"]


def name_encodings(manifest: Manifest) -> list[str]:
    """A line for each encoding that `--encoding auto` found."""
    found = ((item.encoding, escape_controls(item.path)) for item in manifest.inputs if item.encoding)
    return describe_encodings(found, _SHOWN_INPUTS)


def _list_encodings(manifest: Manifest) -> Iterator[str]:
    if lines := name_encodings(manifest):
        yield "Encodings found"
        for line in lines:
            yield from _fill(line, " " * 2)


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
    yield f"{describe_damaged(damaged):<66}{'documents':>14}"
    for item in damaged.worst:
        name = cut_middle(escape_controls(item.path), 63)
        yield f"  {_fit(name, 64)}{item.num_documents:>14,}"
        yield from _fill(describe_losses(item), " " * 4)
