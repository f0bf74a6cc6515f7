"""`albert-data inspect`: what is in a shard folder, in figures and in rows."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albert_data.cli.options import PATH, json_option, shards_argument, take_given
from albert_data.library.arguments import NUM_IN_HTML, NUM_SHOWN, RANGES
from albert_data.text.output import show_json, tell

if TYPE_CHECKING:
    from albert_data.library.shards import Inspection


@click.command()
@shards_argument
@click.option(
    "-n",
    "--num-examples",
    type=click.IntRange(*RANGES["num_examples"]),
    metavar="ROWS",
    help=f"How many rows to show.  [default: {NUM_SHOWN}; {NUM_IN_HTML} with --html]",
)
@click.option(
    "--split",
    default="train",
    show_default=True,
    metavar="train|validation",
    help="Split to show rows of; the statistics cover both.",
)
@click.option(
    "--seed",
    type=click.IntRange(*RANGES["seed"]),
    default=0,
    show_default=True,
    metavar="SEED",
    help="Seed of the random choice of rows.",
)
@click.option(
    "--row",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Show the row with this number; --html explains the first. Repeatable.",
)
@click.option("--grep", metavar="TEXT", help="Show the first rows with this text, as it was before masking.")
@click.option(
    "--source",
    metavar="NAME",
    help="Show only rows of this language or source.  [default: of all in turn]",
)
@json_option
@click.option("--html", type=PATH, metavar="PATH", help="Write the report as one HTML page that works offline.")
def inspect(shards: Path, as_json: bool, html: Path | None, **settings: Any) -> None:
    """Measure the shards against the figures of the paper, and show some rows.

    NO_COLOR turns the colours of a terminal off.

    \b
    Example:
      albert-data inspect shards -n 5 --split validation
      albert-data inspect shards --grep "white whale"
      albert-data inspect shards --html report.html
    """
    from albert_data.library.shards import inspect_shards

    report = inspect_shards(shards, html=html, **take_given(settings))
    if as_json:
        show_json(report.to_dict())
    elif html is None:
        _print_text(report)
    elif report.saved:  # nothing for a pipe or a device
        tell(f"{html}: {html.stat().st_size / 1e6:.1f} MB; open it in a browser")


def _print_text(report: Inspection) -> None:
    """Print the report. Its text is escaped already, and `show` would escape the colour codes as well."""
    from albert_data.text.escaping import make_encodable

    width = shutil.get_terminal_size(fallback=(80, 24)).columns
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    click.echo(make_encodable(report.to_text(width, colour=colour), sys.stdout.encoding))
