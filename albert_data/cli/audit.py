"""`albert-data audit`: whether something in a shard folder makes it bad for pretraining."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albert_data.cli.options import corpus_option, json_option, shards_argument
from albert_data.text.output import show_json, show_text, tell

if TYPE_CHECKING:
    from albert_data.inspect.audit.audit import Audit

FAILED = 3  # the exit code of --fail-on; 1 is an error and 2 a usage error


@click.command()
@shards_argument
@corpus_option("Text that the shards were built from, for two more checks. Repeatable.")
@json_option
@click.option(
    "--fail-on",
    type=click.Choice(("bad", "look")),
    help=f"End with exit code {FAILED} if a verdict is bad, or look or bad.  [default: never]",
)
@click.option(
    "--ignore", multiple=True, metavar="CHECK", help="Check to leave out of --fail-on, as --json names it. Repeatable."
)
def audit(shards: Path, as_json: bool, fail_on: str | None, **settings: Any) -> Audit:
    """Look for what makes the shards bad for pretraining.

    Each check gives a figure and a verdict: ok, look (it may be intended: check), bad (fix it before you train) or not
    known. The exit code is 0 whatever they are, except with --fail-on.

    \b
    Example:
      albert-data audit shards --corpus books.jsonl.gz
      albert-data audit shards --fail-on look --ignore largest_source
    """
    from albert_data.library.shards import audit_shards

    found = audit_shards(shards, progress=True, **settings)
    if as_json:
        show_json(found.to_dict())
    else:
        show_text(found.to_text())
    failed = found.list_failed(fail_on) if fail_on else []
    if failed:
        tell(f"exit code {FAILED} by --fail-on {fail_on}: {', '.join(failed)}")
        click.get_current_context().exit(FAILED)
    return found
