"""Options that several commands share, their defaults read from the settings they fill."""

from __future__ import annotations

import dataclasses
import os
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

import click

from albert_data.config import DOCUMENT_RULES, SENTENCE_RULES, TextConfig

Command = TypeVar("Command", bound=Callable[..., Any])
_SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_LIST_WIDTH = 80  # columns


def default_of(config: type[Any], name: str) -> Any:
    """The default of a dataclass field: the one place where it stands."""
    return next(field.default for field in dataclasses.fields(config) if field.name == name)


def parse_size(value: str | int) -> int:
    """A number of bytes: 64000000, 64M, 64MB."""
    text = str(value).upper().removesuffix("B")
    unit = text[-1:] if text[-1:] in _SIZES else ""
    try:
        return int(float(text.removesuffix(unit)) * _SIZES[unit])
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is no size; write it as 64000000, 64M or 1.5G") from None


def _list_languages(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Show the codes of all languages for `--language help`, and stop."""
    if value == "help":
        from albert_data.cli.output import show
        from albert_data.languages import LANGUAGES
        from albert_data.sentences.words import read_tables

        tables = read_tables()
        for title, is_listed in (("Languages with abbreviations of their own", True), ("Other languages", False)):
            names = [f"{code} {name}" for code, name in LANGUAGES.items() if (code in tables) == is_listed]
            show(f"{title}:\n{_wrap(names)}\n")
        context.exit()
    return value


def _wrap(names: list[str]) -> str:
    """Names with commas between, parted between names alone."""
    listed = ", ".join(name.replace(" ", "\u00a0") for name in names)
    lines = textwrap.wrap(listed, _LIST_WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\u00a0", " ")


def text_options(command: Command) -> Command:
    """--sentences, --language, --documents, --unwrap and the others that fill a TextConfig."""
    for option in (
        click.option(
            "--strict",
            is_flag=True,
            help="Fail at the first damaged place instead of repairing or skipping it.",
        ),
        click.option(
            "--encoding",
            default=default_of(TextConfig, "encoding"),
            metavar="NAME",
            help="Encoding of all inputs.  [default: UTF-8, or UTF-16 with a byte order mark]",
        ),
        click.option(
            "--language-field",
            default=default_of(TextConfig, "language_field"),
            metavar="NAME",
            help="Field of a JSON line that names its language.  [default: all are in --language]",
        ),
        click.option(
            "--unwrap",
            is_flag=True,
            help="Join the lines of hard-wrapped paragraphs.",
        ),
        click.option(
            "--documents",
            type=click.Choice(DOCUMENT_RULES),
            default=default_of(TextConfig, "documents"),
            show_default=True,
            help="What ends a document in .txt; with file, blank lines end paragraphs alone.",
        ),
        click.option(
            "--text-field",
            default=default_of(TextConfig, "text_field"),
            show_default=True,
            metavar="NAME",
            help="Field of a JSON line that holds the text.",
        ),
        click.option(
            "--language",
            default=default_of(TextConfig, "language"),
            show_default=True,
            metavar="CODE",
            is_eager=True,
            callback=_list_languages,
            help="Language whose rules end a sentence (ISO 639); help lists all.",
        ),
        click.option(
            "--sentences",
            type=click.Choice(SENTENCE_RULES),
            default=default_of(TextConfig, "sentences"),
            show_default=True,
            help="Segment each line into sentences, or take each line as one.",
        ),
    ):
        command = option(command)
    return command


def workers_option(command: Command) -> Command:
    """--workers: changes no byte of the result."""
    return click.option(
        "--workers",
        type=click.IntRange(1, 1024),
        default=lambda: len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        show_default="one a core",
        help="Workers, one beside the other.",
    )(command)


input_arguments = click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
