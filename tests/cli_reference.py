"""Print docs/reference/cli.md: the help of every command. `make docs` writes it; a test compares."""

from __future__ import annotations

import click

from albert_data.cli.main import COMMANDS, cli

_WIDTH = 80
_COMPLETION = (
    "To complete commands, options, values and file names by Tab in bash, add this line to `~/.bashrc`:",
    "",
    '    eval "$(_ALBERT_DATA_COMPLETE=bash_source albert-data)"',
    "",
    "In zsh and fish the word is `zsh_source` and `fish_source`.",
)


def render() -> str:
    """The whole page."""
    parts = ["# Command line", "", "Made from `--help` by `make docs`.", "", *_COMPLETION, ""]
    top = click.Context(cli, info_name="albert-data", terminal_width=_WIDTH, help_option_names=["-h", "--help"])
    parts += _section("albert-data", cli, top)
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=top, terminal_width=_WIDTH)
        parts += _section(f"albert-data {name}", command, context)
    return "\n".join(parts)


def _section(title: str, command: click.Command, context: click.Context) -> list[str]:
    return [f"## {title}", "", "```", command.get_help(context), "```", ""]


if __name__ == "__main__":
    print(render(), end="")
