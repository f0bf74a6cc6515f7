"""Benchmarks for your own machine and text: builds by `python -m benchmarks`, training by `python -m benchmarks train`.

`python -m benchmarks lab` compares models, not speeds. The three need different packages, so only the chosen one is
imported.
"""

from __future__ import annotations

import importlib
import sys

import click

from albert_data.errors import AlbertDataError

SPEED = ("benchmarks.speed", "main")
NAMED = {"train": ("benchmarks.training_command", "train"), "lab": ("benchmarks.lab.command", "lab")}


def find_command(arguments: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that the arguments name, and its own arguments."""
    is_named = bool(arguments) and arguments[0] in NAMED
    module, name = NAMED[arguments[0]] if is_named else SPEED
    command = getattr(importlib.import_module(module), name)
    assert isinstance(command, click.Command)
    return command, arguments[is_named:]


def main() -> None:
    try:
        command, arguments = find_command(sys.argv[1:])
        command.main(arguments, prog_name=" ".join(["python -m benchmarks", *sys.argv[1:2][: command.name in NAMED]]))
    except AlbertDataError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
