"""Tries to break albert-data: `python -m reliability fuzz` gives it damaged files, `chaos` and `ray` kill it while
it works.

docs/explanation/reliability.md says what is promised, what is tested, and how to read the reports.
"""

from __future__ import annotations

import importlib
import sys

import click

COMMANDS = {
    "fuzz": "Give mutated files to every reader of files from outside.",
    "chaos": "Send signals to commands, fill their disks, and compare the results of a rerun.",
    "stores": "Kill builds from and into a store that fails at random, and compare the results of a rerun.",
    "outage": "Train from a store that gives no answer for some seconds, and compare with the disk.",
    "mutants": "Break one place of the package at a time, and run the tests until one fails.",
    "ray": "Kill nodes, workers and the head of a Ray cluster while a build runs on it.",
}


class LazyGroup(click.Group):
    """Imports a command's module only when that command runs: one needs torch, the other does not."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"reliability.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup)
def main() -> None:
    """Try to break albert-data with damaged files, signals and full disks."""


if __name__ == "__main__":
    sys.exit(main(prog_name="python -m reliability"))
