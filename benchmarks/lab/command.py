"""`python -m benchmarks lab`: repeats the paper's tables at a small size, on your own text."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import click

from albert_data.storage.files import write_output
from albert_data.train.config import DEFAULT_PRESETS, MODEL_PRESETS
from benchmarks.lab.page import write_page
from benchmarks.lab.running import MIN_STEPS, Laboratory, Settings
from benchmarks.lab.tables import make_tables

PAGE = "report.html"
TABLES = tuple(make_tables(MODEL_PRESETS[DEFAULT_PRESETS["cpu"]]))
_DEFAULT = ("sentence", "masks")
COUNT = click.IntRange(min=1)


@click.command()
@click.argument("tables", metavar="[TABLE]...", nargs=-1, type=click.Choice(TABLES))
@click.option(
    "--corpus",
    "inputs",
    multiple=True,
    required=True,
    metavar="INPUT",
    help="A file, folder or glob, as for `albert-data build`. Can be given several times.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("lab"), show_default=True, metavar="DIR")
@click.option("--tokenizer", metavar="PATH", help="By default a vocabulary is trained.")
@click.option("--vocab-size", type=COUNT, default=Settings.vocab_size, show_default=True)
@click.option("--language", default=Settings.language, show_default=True, metavar="CODE")
@click.option("--preset", type=click.Choice(list(MODEL_PRESETS)), help="By default mini, or base on a GPU.")
@click.option("--max-seq-len", type=COUNT, default=Settings.max_seq_len, show_default=True)
@click.option("--validation-fraction", type=float, default=Settings.validation_fraction, show_default=True)
@click.option(
    "--budget",
    "minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=Settings.minutes,
    show_default=True,
    metavar="MINUTES",
    help="Training time of the default model. All other models make the same number of updates.",
)
@click.option("--steps", type=click.IntRange(min=MIN_STEPS), help="Updates of each model, instead of a budget.")
@click.option(
    "--num-rows", type=COUNT, default=Settings.num_rows, show_default=True, help="Most rows of a measurement."
)
@click.option("--seeds", type=COUNT, help="By default 3 for sentence, masks and costs, 1 for the other tables.")
@click.option("--jobs", type=COUNT, default=1, show_default=True, help="Models that are trained at once.")
def lab(tables: tuple[str, ...], output: Path, seeds: int | None, jobs: int, preset: str | None, **given: Any) -> None:
    """Repeat the ablations of the ALBERT paper on your own text, at a size that fits an evening.

    Builds the shards that a table needs, trains each of its rows by the same number of updates, and writes
    DIR/report.html, with the tables of earlier commands too. The same command resumes. By default: sentence and masks.

    \b
    Example:
      python -m benchmarks lab sentence --corpus books.jsonl --jobs 2 -o lab
    """
    if preset is None:
        from albert_data.train.device import choose_device

        preset = DEFAULT_PRESETS[choose_device("auto")[0].type]
    every = make_tables(MODEL_PRESETS[preset])
    chosen = [every[name] for name in dict.fromkeys(tables or _DEFAULT)]
    laboratory = Laboratory(
        folder=output, settings=Settings(preset=preset, **given), jobs=jobs, say=lambda line: click.echo(line)
    )
    laboratory.open()

    def end(number: int, _: object) -> None:
        laboratory.stop()
        sys.exit(128 + number)

    handled = [one for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) != signal.SIG_IGN]
    before = [signal.signal(number, end) for number in handled]
    try:
        laboratory.run(chosen, seeds)
    finally:  # what was interrupted shows the figures so far
        asked = {table.name: seeds or table.seeds for table in chosen}
        counts = {name: max(laboratory.count_seeds(table), asked.get(name, 0)) for name, table in every.items()}
        page = write_page(laboratory, [(every[name], count) for name, count in counts.items() if count])
        write_output(output / PAGE, page.encode())
        for number, handler in zip(handled, before, strict=True):
            signal.signal(number, handler)
    click.echo(f"{output / PAGE}")
