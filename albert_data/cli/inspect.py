"""`albert-data inspect`: statistics of a shard folder, and some of its rows decoded; or a model's parameters."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import click

from albert_data.train.config import MODEL_PRESETS


@click.command()
@click.argument("out", type=click.Path(path_type=Path), required=False)
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
@click.option(
    "--preset",
    type=click.Choice(list(MODEL_PRESETS)),
    metavar="NAME",
    help="Instead of shards, count the parameters of a model beside the paper's: tiny, base, large, xlarge, "
    "xxlarge, or one of version 1, such as base-v1.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def inspect(out: Path | None, num_examples: int, split: str, seed: int, preset: str | None, as_json: bool) -> None:
    """Measure the shards in OUT beside the paper's figures, and decode some rows.

    Colours are left out where the output is no terminal or NO_COLOR is set.

    \b
    Example:
      albert-data inspect shards -n 5 --split validation
      albert-data inspect shards --json > statistics.json
      albert-data inspect --preset base
    """
    if preset is not None:
        if out is not None:
            raise click.UsageError("Give OUT or --preset, not both.")
        _show_preset(preset, as_json=as_json)
        return
    if out is None:
        raise click.UsageError("Missing argument 'OUT' or option '--preset'.")
    from albert_data.inspect.report import inspect_folder
    from albert_data.inspect.terminal import make_encodable

    report = inspect_folder(out, split=split, num_examples=num_examples, seed=seed)
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
        return
    width = shutil.get_terminal_size(fallback=(80, 24)).columns
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    click.echo(make_encodable(report.to_text(width, colour=colour), sys.stdout.encoding))


def _show_preset(name: str, *, as_json: bool) -> None:
    from albert_data.train.sizes import describe_sizes, sizes_to_dict

    click.echo(json.dumps(sizes_to_dict(name), indent=2) if as_json else describe_sizes(name))
