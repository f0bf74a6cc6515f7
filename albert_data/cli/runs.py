"""What `albert-data inspect` shows of training runs."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from albert_data.errors import ConfigError
from albert_data.train.folder import RUN_FILE

if TYPE_CHECKING:
    from albert_data.train.layers import Layers


def are_runs(paths: tuple[Path, ...]) -> bool:
    """Whether all of these are run folders. Raises UsageError for a mixture, which nothing is said of."""
    found = [(path / RUN_FILE).is_file() for path in paths]
    if any(found) and not all(found):
        raise click.UsageError(f"{paths[found.index(False)]} is no run; give runs alone, or one shard folder")
    return all(found)


def show_runs(runs: tuple[Path, ...], *, shards: Path | None, plot: Path | None, as_json: bool) -> None:
    """Print each run and, where shards are given, the layers of all of them side by side."""
    from albert_data.inspect.terminal import escape_controls, make_encodable
    from albert_data.train.runs.view import describe_layers, describe_run, run_to_dict
    from albert_data.train.sizes import describe_paper

    if plot is not None and shards is None:
        raise click.UsageError("--plot draws what the layers do with validation rows; give --shards too")
    measured = _measure_layers(runs, shards, plot) if shards is not None else []
    if as_json:
        found = [run_to_dict(run) for run in runs]
        click.echo(json.dumps({"runs": found, "layers": [dataclasses.asdict(one) for one in measured]}, indent=2))
        return
    pages = [*(describe_run(run) for run in runs), describe_paper()]
    pages += [describe_layers(measured)] if measured else []
    for page in pages:
        text = "\n".join(map(escape_controls, page.split("\n")))
        click.echo(make_encodable(text, sys.stdout.encoding) + "\n")
    if not measured:
        click.echo("With --shards OUT: how much each layer changes what goes through it.")


def _measure_layers(runs: tuple[Path, ...], shards: Path, plot: Path | None) -> list[Layers]:
    for package, extra in (("torch", "train"), *([("matplotlib", "report")] if plot is not None else [])):
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            raise ConfigError(f"this needs {package}; install it with: pip install 'albert-data[{extra}]'") from error
    from albert_data.shards.places import list_files
    from albert_data.shards.reader import open_shards
    from albert_data.train.folder import list_files as list_run_files
    from albert_data.train.layers import check_plot, draw_layers, measure_run

    if plot is not None:
        check_plot(plot, [*list_files(shards), *(path for run in runs for path in list_run_files(run))])
    rows = open_shards(shards, split="validation")
    measured = [measure_run(run, rows) for run in runs]
    if plot is not None:
        draw_layers(measured, plot)
    return measured
