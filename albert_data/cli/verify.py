"""`albert-data verify`: whether a shard folder still is what its manifest says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from albert_data.cli.options import engine_options, json_option, open_engine, shards_argument
from albert_data.text.output import show, show_json


@click.command()
@shards_argument
@click.option("--quick", is_flag=True, help="Check only sizes and hashes, not the rows.")
@engine_options
@json_option
def verify(shards: Path, as_json: bool, **settings: Any) -> None:
    """Check the shards against their manifest, and every row against the format.

    Prints a line for each fault. The exit code is 1 if there is one.

    \b
    Example:
      albert-data verify shards --quick
    """
    from albert_data.library.progress import Bar
    from albert_data.library.shards import verify_shards

    with Bar() as bar, open_engine(settings) as given:
        given["tell"] = lambda fault: None if as_json else bar.print(f"{shards}: {fault}")
        found = verify_shards(shards, progress=bar, **given)
    if as_json:
        show_json(found.to_dict())
    elif not found.faults:
        show(f"{shards}: {found.contents}")
    if found.faults:
        click.get_current_context().exit(1)
