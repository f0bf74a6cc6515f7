"""`albert-data runs`: training runs side by side."""

from __future__ import annotations

from pathlib import Path

import click

from albert_data.cli.options import PATH, json_option
from albert_data.text.output import show_json, show_text
from albert_data.text.wording import wrap_words


@click.command()
@click.argument("runs", type=PATH, metavar="RUN...", nargs=-1, required=True)
@json_option
def runs(runs: tuple[Path, ...], as_json: bool) -> None:
    """Show the learning curves and the parameters of training runs.

    RUN is the output folder of `train`.

    \b
    Example:
      albert-data runs run other-run
    """
    from albert_data.runs.figures import read_run
    from albert_data.runs.verdicts import find_differences
    from albert_data.runs.view import describe_run, run_to_dict

    differences = find_differences([read_run(run) for run in runs])
    if as_json:
        show_json({"runs": [run_to_dict(run) for run in runs], "differences": differences})
        return
    pages = [describe_run(run) for run in runs]
    if differences:
        pages.append(
            "\n".join(["Not measured alike", *(line for text in differences for line in wrap_words(text, 80, "  "))])
        )
    show_text("\n\n".join(pages))
