"""What the command line prints: escaped for terminals. If stderr can't be written to, a command continues."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TextIO

import click

from albert_data.text.escaping import escape_controls, make_encodable
from albert_data.text.wording import wrap_words
from albert_data.version import __version__

BUG = 70  # EX_SOFTWARE of sysexits.h


def show(*lines: str, fits: bool = False) -> None:
    """Print on stdout. Each line stays one, whatever names in it contain. fits: divided as `fit` does."""
    text = make_harmless(lines, sys.stdout.encoding)
    click.echo(fit(text, sys.stdout) if fits else text)


def show_text(text: str) -> None:
    """Print a text of lines, in which names are escaped already."""
    show(*text.split("\n"))


def show_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout. NaN and infinity, which JSON lacks, become null."""
    finite = json.loads(json.dumps(values), parse_constant=lambda name: None)
    show_text(json.dumps(finite, indent=2))


def tell(*lines: str) -> None:
    """Print on stderr, as `show` does. If it can't be written (a full disk, a closed pipe) they are dropped."""
    with suppress(ValueError):  # Python's file object is closed
        try:
            click.echo(fit(make_harmless(lines, getattr(sys.stderr, "encoding", None)), sys.stderr), err=True)
        except OSError:
            discard(sys.stderr)


def fit(text: str, stream: TextIO | None) -> str:
    """Escaped text for a terminal, which would break inside words. Long lines go on below what follows their label."""
    if stream is None or not stream.isatty():
        return text
    width, lines = shutil.get_terminal_size().columns, list[str]()
    for line in text.split("\n"):
        label = re.findall(r"^ *(?:\w+ {2,})?", line)[0]
        lines += wrap_words(line, width, "", " " * len(label), cuts=False) if len(line) > width else [line]
    return "\n".join(lines)


def discard(stream: TextIO) -> None:
    """Redirect a stream that can't be written to the null device: flushing its buffer at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def make_harmless(lines: Iterable[str], encoding: str | None) -> str:
    """Escape control characters, a line feed inside a line too, and characters that the encoding lacks."""
    return make_encodable("\n".join(map(escape_controls, lines)), encoding)


def tell_error(message: str) -> None:
    """Print an error as one line, whatever its names and values contain."""
    tell("Error: " + message)


def tell_bug(error: Exception, arguments: list[str]) -> int:
    """Write the traceback of an unexpected error to a file and print a line that names it; returns the exit code."""
    head = f"albert-data {__version__}, Python {sys.version}\n{sys.platform}\narguments: {arguments}\n\n"
    what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    try:
        descriptor, path = tempfile.mkstemp(prefix="albert-data-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(head + "".join(traceback.format_exception(error)))
        where = f"please report it with {path}, which contains the traceback"
    except OSError as fault:
        where = f"its traceback could not be saved ({fault.strerror})"
    tell_error(f"this is a bug of albert-data ({what}); {where}")
    return BUG
