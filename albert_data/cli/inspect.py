"""`albert-data inspect`: statistics of a shard folder, and some of its rows decoded."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import click


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "-n",
    "--num-examples",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    metavar="ROWS",
    help="Rows to decode and show.",
)
@click.option(
    "--split",
    default="train",
    show_default=True,
    metavar="train|validation",
    help="Where the rows are from. The statistics are always of both.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="SEED",
    help="Decides which rows are shown.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def inspect(out: Path, num_examples: int, split: str, seed: int, as_json: bool) -> None:
    """Measure the shards in OUT beside the paper's figures, and decode some rows.

    Colours are left out where the output is no terminal or NO_COLOR is set.

    \b
    Example:
      albert-data inspect shards -n 5 --split validation
      albert-data inspect shards --json > statistics.json
    """
    from albert_data.inspect.report import inspect_folder
    from albert_data.inspect.terminal import make_encodable

    report = inspect_folder(out, split=split, num_examples=num_examples, seed=seed)
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
        return
    width = shutil.get_terminal_size(fallback=(80, 24)).columns
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    click.echo(make_encodable(report.to_text(width, colour=colour), sys.stdout.encoding))
