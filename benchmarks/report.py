"""Writes the results as a page of tables with a plot.

In: `Results`. Out: Markdown, and a PNG beside it if matplotlib is installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.estimate import LDDL_CORES, LDDL_MINUTES, LDDL_NODES, MEMORY_BYTES_PER_BYTE, WRITES, estimate
from benchmarks.results import (
    COLLATOR,
    DATASETS,
    OURS,
    PASS,
    SENTENCEPIECE,
    TOKENIZERS,
    UNCOLLECTED,
    Comparison,
    Measurement,
    Part,
    Results,
)

NONE = "–"
# The minimum of a figure (the maximum of a time or a size) and its aim, by the name of the work, by "2 workers" etc.,
# and by "peak memory".
AIMS: dict[str, tuple[str, str]] = {
    "tokenising English, table cold": ("15x", "25x"),
    "tokenising Chinese, table cold": ("4x", "8x"),
    "build of English lines": ("10x", "15x"),
    "build of English prose": ("5x", "8x"),
    "build of Chinese prose": ("3x", "5x"),
    f"{PASS} over English prose": ("20x", "35x"),
    "2 workers": ("1.85x", "1.95x"),
    "16 workers": ("12x", "15x"),
    "albert-data --help": ("0.25", "0.15"),
    "build of the sample corpus (139 KB)": ("2.5", "1.5"),
    "the same with no kernel compiled yet": ("20", "8"),
    "peak memory": ("600", "–"),
}
AGAINST_SENTENCEPIECE = ("tokenising", "build", "passes")
RIVALS = (TOKENIZERS, DATASETS)

INTRO = """# Speed

Made by `python -m benchmarks`; run it on your own corpora: see the end. Rates are MB (10^6 bytes) of text a second.
Rates and times are medians over the repetitions; in each repetition the contenders take turns on the same text. Corpora
appear in the commands by their file names.
"""

AGAINST = """
## Against SentencePiece, on one core

SentencePiece's rate is for `SentencePieceProcessor.encode(sentences, num_threads=1)` only; a build tokenises and does
much more. SentencePiece makes a list for each sentence, so Python's garbage collector slows it down; *collector off* is
the same call without the collector, and our ratio to it. *Tokenising*: a list of str, one for each sentence, to ids, by
`load_tokenizer(DIR).encode(sentences)`; *from a buffer*: the sentences are in one buffer of UTF-8, as in a build;
*cold*: a new tokenizer; *warm*: it has encoded the text once. *Build*: the whole process
`albert-data build --workers 1 --max-seq-len 512`, start-up included, from a plain .txt: *lines* has a sentence on each
line and `--sentences lines`, *prose* is the corpus as it is. *A further pass*: a quarter of the additional time of
`--dupe-factor 5`. A corpus smaller than `--build-megabytes` is repeated with a line changed in each document; so after
the first copy the chunk table has all words.
"""

PLOT = """
![Rates on one core]({name})
"""

BESIDE = f"""
## Beside other libraries, on one core

*{TOKENIZERS}*: Hugging Face's Unigram model with the same pieces, scores and normalisation, one thread.
*{DATASETS}*: `datasets.map` with `AlbertTokenizerFast`, cut to 512 tokens, then `DataCollatorForLanguageModeling`; no
sentence order, no whole words, and nothing is written. Both run on the first few MB of the corpus, since they are slow.
"""

SCALING = """
## Workers

Builds of prose from one plain .txt, by the number of workers.
"""

STARTUP = """
## Start-up
"""

MEMORY = """
## Memory

Builds of prose with two workers; the largest worker's peak resident memory.
"""

LOADING = f"""
## Loading training batches, on one core

From memory-mapped shards of rows of at most 512 tokens to padded tensors, by `albert_data.train.ShardLoader`: an epoch
with new masks, drawn as the build draws them (whole words, spans), and one with the stored masks. Beside it
transformers' *{COLLATOR}* on the same batches of rows, which are lists before the measurement; it pads
them and masks pieces. One thread each. Tokens are those of the rows, without padding. The requirement is at least 10 M
tokens/s and 10 times the collator.
"""

EXACTNESS = """
## Exactness

How many of all sentences have other ids than SentencePiece gives them. A *tie*: two segmentations whose scores, summed
in float32 along the sentence, are equal at all boundaries that both have. *Fast*: by the chunk table; *falls back*: all
text goes through SentencePiece itself, and only a part is compared. The models were trained on samples of the corpora,
with about {size} pieces each; the vocabularies are those of the other measurements.
"""

ESTIMATE = f"""
## 20 GB, computed

From the rate of one worker that builds English prose. It assumes that every core is as fast as the measured one, and as
efficient as on the largest measured number of cores. Written: each row {WRITES} times, to a sorted run and to a shard.
Memory: {MEMORY_BYTES_PER_BYTE} bytes for each byte of text, a generous count; a server of 64 cores moves 200,000 MB/s
or more.
"""

LDDL = (
    f"For comparison, [NVIDIA LDDL](https://github.com/NVIDIA/LDDL) states less than {LDDL_MINUTES} minutes for the\n"
    f"dataset of BERT (Wikipedia and books, of about this size) on {LDDL_NODES} DGX A100, that is "
    f"{LDDL_NODES * LDDL_CORES:,} cores\nand at most {LDDL_NODES * LDDL_CORES * LDDL_MINUTES / 60:.0f} core-hours; "
    "here {hours:.1f}. It does other work: WordPiece, BERT's pairs, Parquet, many nodes."
)

YOURSELF = """
## Measure it yourself

    pip install -e '.[bench]'
    python -m benchmarks --english BOOKS.jsonl.gz --chinese CLASSICS.jsonl.gz --languages UDHR.jsonl.gz -o speed.md

A corpus is JSON lines, plain or .gz, with a field `text`; English or Chinese is enough. The figures (.json) are written
beside the page as they come. To continue an interrupted benchmark, give `--only` with the remaining parts. On a machine
with more cores, measure only the scaling, with enough text for all of them:

    python -m benchmarks --english BOOKS.jsonl.gz --only scaling --build-megabytes 4000 -o speed.md
"""


def write_report(results: Results, page: Path) -> None:
    """Write the page, and the plot beside it if there is something to plot."""
    plot = page.with_suffix(".png")
    against = [row for name in AGAINST_SENTENCEPIECE for row in results.get(name).measurements]
    is_plotted = draw_plot([row for row in against if PASS not in row.work], plot)
    sections = [
        INTRO,
        *describe_parts(results.parts),
        *section(AGAINST, against_table(against)),
        *([PLOT.format(name=plot.name)] if is_plotted else []),
        *section(BESIDE, rivals_table(against)),
        *section(SCALING, scaling_table(results.get("scaling").measurements)),
        *section(STARTUP, startup_table(results.get("startup").measurements)),
        *section(MEMORY, memory_table(results.get("memory").measurements)),
        *section(LOADING, loading_table(results.get("loading").measurements)),
        *exactness_section(results.get("exactness").comparisons),
        *estimate_section(results.get("build").measurements, results.get("scaling").measurements),
        YOURSELF,
    ]
    page.write_text("\n".join(text.strip("\n") + "\n" for text in sections), encoding="utf-8")


def section(text: str, lines: list[str]) -> list[str]:
    """Return a section with its table, or nothing if the table has no rows."""
    return [text, "\n".join(lines)] if len(lines) > 2 else []


def table(head: str, rows: Iterable[Iterable[object]]) -> list[str]:
    """Return a table as lines of Markdown. head: the columns, separated by |."""
    columns = [column.strip() for column in head.split("|")]
    return [line_of(columns), "|" + "---|" * len(columns), *(line_of(row) for row in rows)]


def line_of(cells: Iterable[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def describe_parts(parts: dict[str, Part]) -> Iterator[str]:
    """Yield machine and versions once for all parts that share them, and a command once for all parts that it ran."""
    groups: dict[str, dict[str, list[str]]] = {}
    for name, part in parts.items():
        commands = groups.setdefault(name_machine(part.machine), {})
        commands.setdefault(part.command, []).append(f"{name}, {part.machine['load']}")
    for machine, commands in groups.items():
        yield f"{machine}\nAbove each command stands how many processes ran when its parts began (load average)."
        yield "\n".join(f"    # {'; '.join(names)}\n    {command}" for command, names in commands.items())


def name_machine(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{package} {found}" for package, found in machine["versions"].items())
    return (
        f"{machine['date']}, {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['system']}, Python {machine['python']}, {versions}."
    )


def format_rate(row: Measurement, name: str) -> str:
    timing = row.timings.get(name)
    if timing is None:
        return NONE
    return timing.missing or (f"{timing.rate:.1f}" if timing.rate else NONE)


def format_ratio(row: Measurement, name: str) -> str:
    """Return how many times as fast as that contender ours is."""
    ratio = row.ratio(name)
    return f"{ratio:.2f}x" if ratio else NONE


def against_table(rows: list[Measurement]) -> list[str]:
    return table(
        "work | albert-data, MB/s | SentencePiece, MB/s | ratio | at least | aim | collector off, MB/s | ratio",
        (
            (
                row.work,
                format_rate(row, OURS),
                format_rate(row, SENTENCEPIECE),
                format_ratio(row, SENTENCEPIECE),
                *AIMS.get(row.work, (NONE, NONE)),
                format_rate(row, UNCOLLECTED),
                format_ratio(row, UNCOLLECTED),
            )
            for row in rows
        ),
    )


def rivals_table(rows: list[Measurement]) -> list[str]:
    cells = []
    for row in rows:
        for name in RIVALS:
            if name in row.timings:
                cells.append((row.work, name, format_rate(row, name), format_rate(row, OURS), format_ratio(row, name)))
    return table("work | rival | its MB/s | albert-data, MB/s | ratio", cells)


def scaling_table(rows: list[Measurement]) -> list[str]:
    cells = []
    for row in rows:
        first = next(one.timings[OURS].rate for one in rows if one.work == row.work)
        rate, workers = row.timings[OURS].rate, int(row.figures["workers"])
        speedup = rate / first if rate and first else 0.0
        aims = AIMS.get(f"{workers} workers", (NONE, NONE))
        cells.append((row.work, workers, format_rate(row, OURS), f"{speedup:.2f}x", f"{speedup / workers:.0%}", *aims))
    return table("corpus | workers | MB/s | against one | of linear | at least | aim", cells)


def startup_table(rows: list[Measurement]) -> list[str]:
    return table(
        "work | seconds | at most | aim",
        ((row.work, f"{row.timings[OURS].median:.2f}", *AIMS.get(row.work, (NONE, NONE))) for row in rows),
    )


def memory_table(rows: list[Measurement]) -> list[str]:
    return table(
        "corpus | text, MB | peak of a worker, MB | at most | aim",
        (
            (
                row.work,
                f"{row.figures['text_bytes'] / 1e6:.0f}",
                f"{row.figures['peak_bytes'] / 1e6:.0f}",
                *AIMS.get("peak memory", (NONE, NONE)),
            )
            for row in rows
        ),
    )


def loading_table(rows: list[Measurement]) -> list[str]:
    return table(
        f"work | tokens a batch | of them padding | albert-data, M tokens/s | {COLLATOR}, M tokens/s | ratio",
        (
            (
                row.work,
                f"{row.figures['batch_tokens']:,.0f}",
                f"{row.figures['padding_percent']:.1f} %",
                format_token_rate(row, OURS),
                format_token_rate(row, COLLATOR),
                format_speedup(row, COLLATOR),
            )
            for row in rows
        ),
    )


def format_token_rate(row: Measurement, name: str) -> str:
    timing = row.timings[name]
    return timing.missing or f"{row.figures['num_tokens'] / 1e6 / timing.median:.1f}"


def format_speedup(row: Measurement, name: str) -> str:
    """Return how many times as fast as that contender ours is at the same work."""
    theirs = row.timings[name]
    return NONE if theirs.missing else f"{theirs.median / row.timings[OURS].median:.1f}x"


def exactness_section(rows: list[Comparison]) -> list[str]:
    if not rows:
        return []
    from benchmarks.exactness import VOCAB_SIZE

    texts = list(dict.fromkeys(row.text for row in rows))
    lines = table(
        "model | way | " + " | ".join(texts), (exactness_row(model, rows, texts) for model in models_of(rows))
    )
    reasons = dict.fromkeys(f"- {row.model}: {row.slow_reason}" for row in rows if row.slow_reason)
    total, different = sum(row.num_sentences for row in rows), sum(row.num_different for row in rows)
    ties = sum(row.num_ties for row in rows)
    verdict = f"In all, {different} of {total:,} differ, {ties} of them ties."
    why = ["Why a model falls back:\n", *reasons] if reasons else []
    return [EXACTNESS.format(size=f"{VOCAB_SIZE:,}"), "\n".join(lines), verdict, *(["\n".join(why)] if why else [])]


def models_of(rows: list[Comparison]) -> list[str]:
    return list(dict.fromkeys(row.model for row in rows))


def exactness_row(model: str, rows: list[Comparison], texts: list[str]) -> list[str]:
    found = {row.text: row for row in rows if row.model == model}
    way = "falls back" if any(row.slow_reason for row in found.values()) else "fast"
    return [model, way, *(format_comparison(found.get(text)) for text in texts)]


def format_comparison(row: Comparison | None) -> str:
    if row is None:
        return NONE
    ties = f" ({row.num_ties} ties)" if row.num_ties else ""
    return f"{row.num_different} of {row.num_sentences:,}{ties}"


def estimate_section(builds: list[Measurement], scaling: list[Measurement]) -> list[str]:
    prose = next((row for row in builds if row.work.endswith("English prose")), None)
    found = list(estimate(prose, scaling)) if prose else []
    if not found:
        return []
    lines = table(
        "cores | linear, minutes | efficiency, measured on | minutes | MB/s of text | written, MB/s | memory, MB/s",
        (
            (
                one.cores,
                f"{one.linear_minutes:.2f}",
                f"{one.efficiency:.0%} on {one.measured_cores}",
                f"{one.minutes:.2f}",
                f"{one.rate:.0f}",
                f"{one.write_rate:.0f}",
                f"{one.memory_rate:,.0f}",
            )
            for one in found
        ),
    )
    return [ESTIMATE, "\n".join(lines), LDDL.format(hours=found[-1].minutes * found[-1].cores / 60)]


def draw_plot(rows: list[Measurement], path: Path) -> bool:
    """Draw bars of the rates of each work, by contender. Returns False without matplotlib or without rows."""
    rows = [row for row in rows if row.ratio(SENTENCEPIECE)]
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    if not rows:
        return False
    names = [name for name in (OURS, SENTENCEPIECE, *RIVALS) if any(row.timings.get(name) for row in rows)]
    figure = Figure(figsize=(8, 1 + 0.5 * len(rows)), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(names)
    for number, name in enumerate(names):
        heights = [index + (number - (len(names) - 1) / 2) * height for index in range(len(rows))]
        rates = [row.timings[name].rate or 0 if name in row.timings else 0 for row in rows]
        axes.barh(heights, rates, height, label=name)
    axes.set_yticks(range(len(rows)), [row.work for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("MB of text a second on one core")
    axes.legend()
    figure.savefig(path, dpi=80)
    return True
