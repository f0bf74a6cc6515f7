"""`albert-data runs`: training runs side by side."""

from __future__ import annotations

from pathlib import Path

import click

from albert_data.cli.options import PATH, json_option
from albert_data.text.output import show_json, show_text


@click.command()
@click.argument("runs", type=PATH, metavar="RUN...", nargs=-1, required=True)
@json_option
def runs(runs: tuple[Path, ...], as_json: bool) -> None:
    """Show the learning curves of training runs.

    RUN is the output folder of `train`.

    \b
    Example:
      albert-data runs run other-run
    """
    from albert_data.runs.view import describe_run, run_to_dict

    if as_json:
        show_json({"runs": [run_to_dict(run) for run in runs]})
    else:
        show_text("\n\n".join(map(describe_run, runs)))
