"""`albert-data inspect`: what is in a shard folder, in figures and in rows."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from albert_data.cli.entry import fast_imports
from albert_data.cli.options import PATH, corpus_option, find_corpus, json_option, shards_argument
from albert_data.cli.output import show
from albert_data.errors import ConfigError
from albert_data.storage import FILE, find_kind
from albert_data.train.folder import RUN_FILE

if TYPE_CHECKING:
    from albert_data.inspect.choice import RowChoice
    from albert_data.inspect.report import ShardReport

NUM_SHOWN, NUM_IN_HTML = 3, 300
_ORDERS = ("in-order", "swapped", "random")  # those of all sentence tasks; see pair_tasks.py
# An option, what it does, and the options that would have no effect with it.
_CONFLICTS = (
    ("--row", "already says which rows", ("--grep", "--label", "--num-examples", "--random", "--seed")),
    ("--grep", "shows the first rows that contain the text", ("--random", "--seed")),
    ("--random", "draws other rows each time", ("--seed",)),
)


@click.command()
@shards_argument
@click.option(
    "-n",
    "--num-examples",
    type=click.IntRange(0),
    metavar="ROWS",
    help=f"How many rows to show.  [default: {NUM_SHOWN}; {NUM_IN_HTML} with --html]",
)
@click.option(
    "--split",
    default="train",
    show_default=True,
    metavar="train|validation",
    help="Split to show rows of. The statistics always cover both.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="SEED",
    help="Seed of the random choice of rows.",
)
@click.option("--random", "is_random", is_flag=True, help="Show other rows each time.")
@click.option(
    "--row",
    "numbers",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Show the row with this number. May be repeated.",
)
@click.option("--grep", "text", metavar="TEXT", help="Show the first rows that contain TEXT, as it was before masking.")
@click.option("--label", type=click.Choice(_ORDERS), help="Show only rows whose segments stand like this.")
@json_option
@click.option("--html", type=PATH, metavar="PATH", help="Write the report as one HTML page that works offline.")
@corpus_option("Text that the shards were built from; adds figures for each file. May be repeated.")
def inspect(shards: Path, split: str, as_json: bool, html: Path | None, corpus: tuple[str, ...], **choice: Any) -> None:
    """Measure the shards against the figures of the paper, and show some rows.

    Colours are used on a terminal, unless NO_COLOR is set.

    \b
    Example:
      albert-data inspect shards -n 5 --split validation
      albert-data inspect shards --grep "white whale" --label swapped
      albert-data inspect shards --html report.html --corpus books.jsonl.gz
      albert-data inspect shards --json > statistics.json
    """
    if find_kind(shards / RUN_FILE) == FILE:
        raise click.UsageError(f"{shards} is a training run; `albert-data runs {shards}` shows it")
    _refuse_conflicts()
    with fast_imports():
        from albert_data.corpus.inputs import list_read
        from albert_data.files import check_output, write_output
        from albert_data.inspect.report import inspect_folder
        from albert_data.shards.paths import list_files

    inputs = find_corpus(shards, corpus)
    if html:  # before the work: it must not replace the corpus or a shard
        check_output(html, [*list_read(inputs or ()), *list_files(shards)])
    chosen = _make_choice(shards, NUM_IN_HTML if html else NUM_SHOWN, **choice)
    report = inspect_folder(shards, split=split, choice=chosen, corpus=inputs)
    if html:
        from albert_data.inspect.html.page import render

        page = render(report).encode()
        is_saved = write_output(html, page)
    if as_json:
        show(json.dumps(report.to_dict(), indent=2))
    elif html is None:
        _print_text(report)
    # Nothing for a pipe or a device; after a page on stdout this line would become part of it.
    elif is_saved and not _is_stdout(html):
        show(f"{html}: {len(page) / 1e6:.1f} MB; open it in a browser")


def _refuse_conflicts() -> None:
    """Raise UsageError for an option that would have no effect with another one."""
    context = click.get_current_context()
    given = {
        max(parameter.opts, key=len)  # its long form
        for parameter in context.command.params
        if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    }
    for option, what, ignored in _CONFLICTS:
        named = [name for name in ignored if name in given]
        if option in given and named:
            raise click.UsageError(f"{option} {what}; leave out {' and '.join(named)}")


def _make_choice(
    shards: Path,
    default: int,
    *,
    num_examples: int | None,
    seed: int,
    is_random: bool,
    label: str | None,
    **others: Any,
) -> RowChoice:
    from albert_data.inspect.choice import RowChoice

    return RowChoice(
        count=default if num_examples is None else num_examples,
        seed=int.from_bytes(os.urandom(4), "little") if is_random else seed,
        label=None if label is None else _find_label(shards, label),
        **others,
    )


def _find_label(shards: Path, order: str) -> int:
    from albert_data.shards.manifest_file import read_manifest

    task = read_manifest(shards).config.examples.task
    names = [name.replace(" ", "-") for name in task.orders]
    if order not in names:
        allowed = f"allowed are {', '.join(names)}" if names else "leave it out"
        raise ConfigError(f"--label is {order}, but {shards} was built with --pairs {task.name}; {allowed}")
    return names.index(order)


def _is_stdout(path: Path) -> bool:
    """Whether a path such as /dev/stdout leads to where this command prints."""
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # ValueError: sys.stdout has no file descriptor, for example in tests
        return False


def _print_text(report: ShardReport) -> None:
    """Print the report. Its text is escaped already, and `show` would escape the colour codes as well."""
    from albert_data.escaping import make_encodable

    width = shutil.get_terminal_size(fallback=(80, 24)).columns
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    click.echo(make_encodable(report.to_text(width, colour=colour), sys.stdout.encoding))
