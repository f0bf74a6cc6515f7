"""Try hard to break albert-data: `python -m reliability fuzz` feeds it damaged files, `chaos` kills it at work.

docs/reliability.md says what is promised, what is tried, and how to read the reports.
"""

from __future__ import annotations

import importlib
import sys

import click

COMMANDS = {
    "fuzz": "Feed mutated files to every reader of outside bytes.",
    "chaos": "Send signals to commands, fill their disks, and compare what a rerun makes.",
}


class LazyGroup(click.Group):
    """Imports a command's module only when that command runs: one needs torch, the other nothing."""

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
    """Look for what breaks albert-data: damaged files, signals, full disks."""


if __name__ == "__main__":
    sys.exit(main(prog_name="python -m reliability"))
