"""`albert-data verify`: whether a shard folder still is what its manifest says."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from albert_data.cli.loading import load_lightly
from albert_data.cli.options import workers_option


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--quick", is_flag=True, help="Check sizes and hashes alone, not the rows.")
@workers_option
def verify(out: Path, quick: bool, workers: int) -> None:
    """Check the shards in OUT against their manifest, and every row against the format.

    Prints a line for each fault, and exits with 1 if there is one.

    \b
    Example:
      albert-data verify shards
      albert-data verify shards --quick
    """
    with load_lightly():
        from albert_data.cli.progress import Bar
        from albert_data.inspect.terminal import escape_controls, make_encodable
        from albert_data.inspect.verify import describe_sound
        from albert_data.inspect.verify import verify as find_faults

    def tell(what: object) -> None:
        bar.print(make_encodable(escape_controls(f"{out}: {what}"), sys.stdout.encoding))

    num_faults, bar = 0, Bar(tells_stages=False)
    try:
        for fault in find_faults(out, quick=quick, workers=workers, progress=bar):
            num_faults += 1
            tell(fault)
    finally:
        bar.close()
    if num_faults:
        raise SystemExit(1)
    tell(describe_sound(out, quick=quick))
