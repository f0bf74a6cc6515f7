"""`albert-data inspect`: what is in a shard folder, whether it is sound, a model's parameters, training runs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from albert_data.cli.loading import load_lightly
from albert_data.cli.output import show, tell
from albert_data.train.config import MODEL_PRESETS

if TYPE_CHECKING:
    from albert_data.corpus.inputs import Input
    from albert_data.inspect.choice import Choice
    from albert_data.inspect.report import Report

NUM_SHOWN, NUM_IN_HTML = 3, 300
_LABELS = {"in-order": 0, "swapped": 1}
_PATH = click.Path(path_type=Path)
# What the options are for, the modes that heed them, and they: one who asks for more than a mode shows is told so.
# --json goes with every mode.
_OPTIONS = (
    (
        "rows of a shard folder",
        ("shards",),
        ("num_examples", "split", "seed", "is_random", "numbers", "text", "label", "html"),
    ),
    ("a shard folder", ("shards", "audit"), ("audit", "corpus")),
    ("runs", ("runs",), ("shards", "plot")),
)


@click.command()
@click.argument("paths", type=_PATH, nargs=-1, metavar="OUT | RUN...")
@click.option(
    "-n",
    "--num-examples",
    type=click.IntRange(0),
    metavar="ROWS",
    help=f"Rows to decode and show.  [default: {NUM_SHOWN}; {NUM_IN_HTML} with --html]",
)
@click.option(
    "--split",
    default="train",
    show_default=True,
    metavar="train|validation",
    help="Where the rows are from. The statistics are always of both.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="SEED",
    help="Decides which rows are shown.",
)
@click.option("--random", "is_random", is_flag=True, help="Show other rows at each call.")
@click.option(
    "--row", "numbers", type=click.IntRange(0), multiple=True, metavar="N", help="Show this row. May be repeated."
)
@click.option("--grep", "text", metavar="TEXT", help="Show the first rows whose text, before masking, holds TEXT.")
@click.option("--label", type=click.Choice(list(_LABELS)), help="Show only rows whose segments stand so.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
@click.option("--html", type=_PATH, metavar="PATH", help="Write the report as one HTML page that needs no network.")
@click.option("--audit", is_flag=True, help="Look for what makes a pretraining set bad, and show nothing else.")
@click.option(
    "--corpus",
    multiple=True,
    metavar="INPUT",
    help="What the shards were built from, to tell sources, and with --audit lost characters. May be repeated.",
)
@click.option(
    "--preset",
    type=click.Choice(list(MODEL_PRESETS)),
    metavar="NAME",
    help="Instead of shards, count the parameters of a model beside the paper's: tiny, base, large, xlarge, "
    "xxlarge, or one of version 1, such as base-v1.",
)
@click.option("--shards", type=_PATH, metavar="OUT", help="Of a run: show what its layers do with validation rows.")
@click.option("--plot", type=_PATH, metavar="PATH", help="Draw that, as .png, .svg or .pdf. Needs matplotlib.")
def inspect(
    paths: tuple[Path, ...],
    as_json: bool,
    audit: bool,
    corpus: tuple[str, ...],
    preset: str | None,
    shards: Path | None,
    plot: Path | None,
    **of_rows: Any,
) -> None:
    """Measure the shards in OUT beside the paper's figures, and decode some rows; or show training runs.

    Colours are left out where the output is no terminal or NO_COLOR is set.

    \b
    Example:
      albert-data inspect shards -n 5 --split validation
      albert-data inspect shards --grep "white whale" --label swapped
      albert-data inspect shards --html report.html --corpus books.jsonl.gz
      albert-data inspect shards --json > statistics.json
      albert-data inspect shards --audit --corpus books.jsonl.gz
      albert-data inspect --preset base
      albert-data inspect run other-run --shards shards --plot layers.png
    """
    from albert_data.cli.runs import are_runs, show_runs

    if preset is not None:
        if paths:
            raise click.UsageError("Give OUT or --preset, not both.")
        _check_options("preset")
        _show_preset(preset, as_json=as_json)
    elif not paths:
        raise click.UsageError("Missing argument 'OUT' or option '--preset'.")
    elif are_runs(paths):
        _check_options("runs")
        show_runs(paths, shards=shards, plot=plot, as_json=as_json)
    elif len(paths) > 1:
        raise click.UsageError("Give one shard folder; only runs are shown side by side.")
    elif audit:
        _check_options("audit")
        _show_audit(paths[0], corpus, as_json)
    else:
        _check_options("shards")
        _show_shards(paths[0], corpus, as_json=as_json, **of_rows)


def _check_options(mode: str) -> None:
    """Raise UsageError, naming them, for options on the command line that this mode would not heed."""
    context = click.get_current_context()
    named = {parameter.name: max(parameter.opts, key=len) for parameter in context.command.params}
    faults = []
    for purpose, owners, options in _OPTIONS:
        given = [named[o] for o in options if context.get_parameter_source(o) is ParameterSource.COMMANDLINE]
        if given and mode not in owners:
            faults.append(f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} for {purpose}")
    if faults:
        raise click.UsageError(f"{'; '.join(faults)}: leave out what does not go together")


def _show_shards(
    out: Path, corpus: tuple[str, ...], *, split: str, as_json: bool, html: Path | None, **rows: Any
) -> None:
    _check_usage(**rows)
    with load_lightly():
        from albert_data.files import check_output, write_output
        from albert_data.inspect.html.writing import check_charts
        from albert_data.inspect.report import inspect_folder
        from albert_data.shards.places import list_files

    inputs = _find_corpus(out, corpus)
    if html:
        check_charts()
        check_output(html, [*(Path(item.path) for item in inputs or ()), *list_files(out)])
    default = NUM_IN_HTML if html else NUM_SHOWN
    report = inspect_folder(out, split=split, choice=_make_choice(default, **rows), corpus=inputs)
    if html:
        page = report.to_html().encode()
        is_file = write_output(html, page)
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
    elif html is None:
        _print_text(report)
    elif is_file and not _is_stdout(html):
        show(f"{html}: {len(page) / 1e6:.1f} MB; open it in a browser")


def _check_usage(
    *,
    numbers: tuple[int, ...],
    text: str | None,
    label: str | None,
    is_random: bool,
    num_examples: int | None,
    **_: Any,
) -> None:
    """Raise UsageError, naming both, where one option leaves another without effect."""
    is_seeded = click.get_current_context().get_parameter_source("seed") is ParameterSource.COMMANDLINE
    given = {
        "--grep": text is not None,
        "--label": label is not None,
        "--num-examples": num_examples is not None,
        "--random": is_random,
        "--seed": is_seeded,
    }
    rules = (
        (bool(numbers), "--row names the rows by itself", tuple(given)),
        (text is not None, "--grep shows the first rows that hold the text", ("--random", "--seed")),
        (is_random, "--random draws other rows at each call", ("--seed",)),
    )
    for applies, why, idle in rules:
        named = [name for name in idle if given[name]]
        if applies and named:
            raise click.UsageError(f"{why}; leave out {' and '.join(named)}")


def _make_choice(
    default: int,
    *,
    num_examples: int | None,
    seed: int,
    is_random: bool,
    numbers: tuple[int, ...],
    text: str | None,
    label: str | None,
) -> Choice:
    from albert_data.inspect.choice import Choice

    return Choice(
        count=default if num_examples is None else num_examples,
        seed=int.from_bytes(os.urandom(4), "little") if is_random else seed,
        numbers=numbers,
        text=text,
        label=None if label is None else _LABELS[label],
    )


def _is_stdout(path: Path) -> bool:
    """Whether what is written to a path, such as /dev/stdout, goes where this command prints."""
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # ValueError: a stdout of Python's own, without a descriptor
        return False


def _print_text(report: Report) -> None:
    from albert_data.inspect.terminal import make_encodable

    width = shutil.get_terminal_size(fallback=(80, 24)).columns
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    click.echo(make_encodable(report.to_text(width, colour=colour), sys.stdout.encoding))


def _find_corpus(out: Path, corpus: tuple[str, ...]) -> list[Input] | None:
    """The inputs of --corpus, to be read as the build in `out` read them."""
    from albert_data.corpus.inputs import find_inputs
    from albert_data.shards.manifest_file import read_manifest

    return find_inputs(corpus, tell, read_manifest(out).config.text) if corpus else None


def _show_preset(name: str, *, as_json: bool) -> None:
    from albert_data.train.sizes import describe_sizes, sizes_to_dict

    click.echo(json.dumps(sizes_to_dict(name), indent=2) if as_json else describe_sizes(name))


def _show_audit(out: Path, corpus: tuple[str, ...], as_json: bool) -> None:
    from albert_data.inspect.audit.audit import audit_folder
    from albert_data.inspect.terminal import make_encodable

    found = audit_folder(out, _find_corpus(out, corpus))
    text = json.dumps(found.to_dict(), indent=2) if as_json else found.to_text()
    click.echo(make_encodable(text, sys.stdout.encoding))
