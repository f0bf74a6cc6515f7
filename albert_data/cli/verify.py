"""`albert-data verify`: whether a shard folder still is what its manifest says."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
def verify(out: Path) -> None:
    """Check the shards in OUT against their manifest, and every row against the format.

    Prints a line for each fault, and exits with 1 if there is one.

    \b
    Example:
      albert-data verify shards
    """
    from albert_data.inspect.audit import audit, describe_sound
    from albert_data.inspect.terminal import escape_controls, make_encodable

    num_faults = 0
    for fault in audit(out):
        num_faults += 1
        click.echo(make_encodable(escape_controls(f"{out}: {fault}"), sys.stdout.encoding))
    if num_faults:
        raise SystemExit(1)
    click.echo(make_encodable(escape_controls(f"{out}: {describe_sound(out)}"), sys.stdout.encoding))
