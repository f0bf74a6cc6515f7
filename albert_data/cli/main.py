"""The `albert-data` command. Each subcommand is one call into the library; its module is imported when it runs."""

from __future__ import annotations

import importlib
import sys
from difflib import get_close_matches
from io import StringIO
from typing import Any

import click

from albert_data.errors import AlbertDataError, ArgumentError, explain_disk_error
from albert_data.storage.interrupts import INTERRUPTED
from albert_data.text.escaping import escape_controls
from albert_data.text.output import discard, tell, tell_bug, tell_error
from albert_data.version import __version__

COMMANDS = {
    "quickstart": "Train a vocabulary, build shards, train a small model.",
    "vocab": "Train a vocabulary on text.",
    "build": "Turn text into pretraining shards.",
    "inspect": "Show what is in a shard folder.",
    "audit": "Look for what makes shards bad for pretraining.",
    "verify": "Check a shard folder against its manifest.",
    "convert": "Write shards in the format of another trainer.",
    "train": "Pretrain a small ALBERT on a shard folder.",
    "runs": "Show training runs side by side.",
    "score": "Measure which of two sentences a model finds likelier.",
    "export": "Write a trained model as a Hugging Face folder.",
}


class LazyGroup(click.Group):
    """Imports a command's module only when that command runs, so that --help is quick."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of stdout has closed the pipe, as `| head` does; click would exit with 1
            discard(sys.stdout)
            return 0
        except ArgumentError as error:  # of the library function that the command called
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            assert command is not None
            raise click.UsageError(str(error), click.Context(command, ctx, ctx.invoked_subcommand)) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of these arguments; suggest one with a similar name if there is none."""
        name = args[0]  # an unknown option if it begins with a hyphen: click reports that
        if name not in COMMANDS and not name.startswith("-"):
            similar = " or ".join(f"'{found}'" for found in get_close_matches(name, COMMANDS))
            hint = f"Did you mean {similar}?" if similar else "`albert-data --help` lists all commands."
            raise click.UsageError(f"No such command '{name}'. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"albert_data.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(__version__, prog_name="albert-data")
def cli() -> None:
    """Turn text into ALBERT pretraining shards, look at them, and train on them.

    \b
    Example:
      albert-data quickstart corpus/ -o first
      albert-data vocab corpus/ -o vocab
      albert-data build corpus/ --tokenizer vocab -o shards
      albert-data inspect shards
      albert-data audit shards
      albert-data train shards -o run
      albert-data export run -o model
    """


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code.

    An error of the library or of the system is printed as one line, a usage error with the usage.
    """
    try:
        result = cli.main(arguments, prog_name="albert-data", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        usage = StringIO()
        error.show(usage)
        shown = usage.getvalue().replace(error.message, escape_controls(error.message))  # which holds what was typed
        tell(*shown.rstrip("\n").split("\n"))
        return error.exit_code
    except AlbertDataError as error:
        tell_error(str(error))
        return 1
    # A second Ctrl-C in `train`, or one in a program that calls `run`; click makes an Abort of it.
    except (KeyboardInterrupt, click.Abort):
        tell("Interrupted.")
        return INTERRUPTED
    except OSError as error:
        tell_error(str(explain_disk_error(error)))
        return 1
    except MemoryError:
        tell_error("memory ran out; use fewer --workers, or a machine with more memory")
        return 1
    except Exception as error:  # a bug: one line, and the traceback in a file
        return tell_bug(error, arguments)
