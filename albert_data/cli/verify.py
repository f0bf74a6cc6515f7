"""`albert-data verify`: whether a shard folder still is what its manifest says."""

from __future__ import annotations

from pathlib import Path

import click

from albert_data.cli.entry import fast_imports
from albert_data.cli.options import engine_options, json_option, open_engine, shards_argument
from albert_data.output import show, show_json


@click.command()
@shards_argument
@click.option("--quick", is_flag=True, help="Check only sizes and hashes, not the rows.")
@engine_options
@json_option
def verify(shards: Path, quick: bool, workers: int, engine: str, address: str | None, as_json: bool) -> None:
    """Check the shards against their manifest, and every row against the format.

    Prints a line for each fault. The exit code is 1 if there is one.

    \b
    Example:
      albert-data verify shards
      albert-data verify shards --quick
    """
    with fast_imports():
        from albert_data.library.progress import Bar
        from albert_data.library.shards import verify_shards

    with Bar(tells_stages=False) as bar, open_engine(engine, address, workers) as opened:
        place = None if engine == "local" else opened  # here threads do it: they need no tokenizer of their own
        found = verify_shards(
            shards,
            quick=quick,
            workers=workers,
            engine=place,
            progress=bar,
            tell=lambda fault: None if as_json else bar.print(f"{shards}: {fault}"),
        )
    if as_json:
        show_json(found.to_dict())
    elif not found.faults:
        show(f"{shards}: {found.contents}")
    if found.faults:
        raise SystemExit(1)
