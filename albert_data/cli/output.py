"""What the command line prints: harmless for a terminal, and no reason to end where nobody can read it."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from contextlib import suppress

import click

from albert_data import __version__
from albert_data.escaping import escape_controls, make_encodable

BUG = 70  # EX_SOFTWARE of sysexits.h


def show(text: str) -> None:
    """Print lines on stdout."""
    click.echo(_make_harmless(text, sys.stdout.encoding))


def tell(text: str) -> None:
    """Print lines on stderr. Where these can't be written (a full disk, a closed pipe) they are left out."""
    with suppress(ValueError):  # a stream that was closed
        try:
            click.echo(_make_harmless(text, sys.stderr.encoding), err=True)
        except OSError:  # what is still unwritten would fail again as the process ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _make_harmless(text: str, encoding: str) -> str:
    """Write out what steers a terminal, except line feeds, and what the stream can't hold."""
    return make_encodable("\n".join(map(escape_controls, text.split("\n"))), encoding)


def tell_error(message: str) -> None:
    """Print an error as one line, whatever stands in the names and values that it holds."""
    tell("Error: " + message.replace("\n", "\\n"))


def tell_bug(error: Exception, arguments: list[str]) -> int:
    """Keep the traceback of an error that nobody foresaw in a file, and name it in one line; returns the exit code."""
    head = f"albert-data {__version__}, Python {sys.version}\n{sys.platform}\narguments: {arguments}\n\n"
    what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    try:
        descriptor, path = tempfile.mkstemp(prefix="albert-data-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(head + "".join(traceback.format_exception(error)))
        where = f"please report it with {path}, which holds the traceback"
    except OSError as fault:
        where = f"its traceback could not be kept ({fault.strerror})"
    tell_error(f"this is a bug of albert-data ({what}); {where}")
    return BUG
