"""`albert-data runs`: training runs side by side."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from albert_data.cli.options import PATH, json_option
from albert_data.library.arguments import require_packages
from albert_data.output import show_json, show_text

if TYPE_CHECKING:
    from albert_data.train.history.layers import Layers
    from albert_data.train.history.verdicts import Difference


@click.command()
@click.argument("runs", type=PATH, metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--shards",
    type=PATH,
    metavar="SHARDS",
    help="Measure on the validation rows of this shard folder how much each layer changes its input. Needs PyTorch.",
)
@click.option(
    "--plot", type=PATH, metavar="PATH", help="Draw what --shards measures as charts on an HTML page. Needs --shards."
)
@json_option
def runs(runs: tuple[Path, ...], shards: Path | None, plot: Path | None, as_json: bool) -> None:
    """Show the learning curves and the parameters of training runs.

    RUN is the output folder of `train`.

    \b
    Example:
      albert-data runs run
      albert-data runs run other-run --shards shards --plot layers.html
    """
    from albert_data.train.history.figures import read_run
    from albert_data.train.history.verdicts import find_differences
    from albert_data.train.history.view import describe_differences, describe_layers, describe_run, run_to_dict
    from albert_data.train.model.sizes import describe_paper

    if plot is not None and shards is None:
        raise click.UsageError("--plot draws what --shards measures; give --shards too")
    differences = find_differences([read_run(run) for run in runs])
    measured = _measure_layers(runs, shards, plot, differences) if shards is not None else []
    if as_json:
        found = {
            "runs": [run_to_dict(run) for run in runs],
            "differences": [dataclasses.asdict(one) for one in differences],
            "layers": [dataclasses.asdict(one) for one in measured],
        }
        show_json(found)
        return
    pages = [*(describe_run(run) for run in runs), *describe_differences(differences), describe_paper()]
    pages.append(
        describe_layers(measured) if measured else "With --shards SHARDS: how much each layer changes its input."
    )
    show_text("\n\n".join(pages))


def _measure_layers(
    runs: tuple[Path, ...], shards: Path, plot: Path | None, differences: list[Difference]
) -> list[Layers]:
    require_packages("runs", "torch", extra="train")
    from albert_data.shards.paths import list_files
    from albert_data.shards.reader import open_shards
    from albert_data.train.folder import list_files as list_run_files
    from albert_data.train.history.layers import measure_run
    from albert_data.train.history.page import check_plot, draw_layers

    if plot is not None:
        check_plot(plot, [*list_files(shards), *(path for run in runs for path in list_run_files(run))])
    rows = open_shards(shards, split="validation")
    measured = [measure_run(run, rows) for run in runs]
    if plot is not None:
        draw_layers(measured, plot, differences)
    return measured
