"""Keeps the results as JSON. The file is written after every row, so that an interrupted benchmark keeps its rows.

    {"parts": {"tokenising": {"command": .., "machine": {..}, "rows": [..]}, ..}}

A part that is measured again replaces its old rows; other parts stay, with the machine they were measured on.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from benchmarks.machine import describe_machine

MEGABYTE = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The times of one contender. seconds: one figure a repetition; missing: the reason if there is none."""

    num_bytes: int = 0
    seconds: tuple[float, ...] = ()
    missing: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float | None:
        """MB of text a second."""
        return self.num_bytes / MEGABYTE / self.median if self.num_bytes and self.seconds and self.median > 0 else None

    def __str__(self) -> str:
        if self.missing:
            return self.missing
        return f"{self.rate:.1f} MB/s" if self.rate else f"{self.median:.2f} s"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One piece of work, done by several contenders. figures: other measured values, by name."""

    work: str
    timings: dict[str, Timing] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)

    def ratio(self, name: str) -> float | None:
        """Our rate divided by that of a contender."""
        ours, theirs = (self.timings.get(contender, Timing()).rate for contender in (OURS, name))
        return ours / theirs if ours and theirs else None

    def __str__(self) -> str:
        found = [f"{name} {timing}" for name, timing in self.timings.items()]
        found += [f"{ratio:.2f}x {SENTENCEPIECE}"] if (ratio := self.ratio(SENTENCEPIECE)) else []
        return f"{self.work}: " + ", ".join(found + [f"{name} {value:,.0f}" for name, value in self.figures.items()])


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Compares our ids of a text with SentencePiece's. num_ties: how many of the differences are ties in float32."""

    model: str
    text: str
    num_sentences: int
    num_different: int
    num_ties: int
    slow_reason: str | None
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        way = "by SentencePiece itself" if self.slow_reason else "fast"
        differ = f"{self.num_different} of {self.num_sentences:,} differ, {self.num_ties} of them ties"
        return f"{self.model}, {self.text}: {differ}; {way}"


PASS = "a further pass"  # the beginning of that work's name
OURS, SENTENCEPIECE, TOKENIZERS, DATASETS = "albert-data", "SentencePiece", "tokenizers", "datasets + transformers"
UNCOLLECTED = "SentencePiece, collector off"
COLLATOR = "DataCollatorForLanguageModeling"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of the benchmark: its rows, and the command and machine that they were measured with."""

    command: str
    machine: dict[str, Any]
    rows: list[Any]

    @property
    def measurements(self) -> list[Measurement]:
        return [row for row in self.rows if isinstance(row, Measurement)]

    @property
    def comparisons(self) -> list[Comparison]:
        return [row for row in self.rows if isinstance(row, Comparison)]


def read_row(saved: dict[str, Any]) -> Measurement | Comparison:
    if "model" in saved:
        return Comparison(**saved | {"examples": tuple(saved["examples"])})
    timings = {
        name: Timing(**timing | {"seconds": tuple(timing["seconds"])}) for name, timing in saved["timings"].items()
    }
    return Measurement(work=saved["work"], timings=timings, figures=saved["figures"])


class Results:
    """The parts measured so far, kept in a file."""

    def __init__(self, path: Path, read_row: Callable[[dict[str, Any]], Any] = read_row) -> None:
        """read_row: makes a row from its fields in JSON. Raises ClickException if the file holds no results."""
        self.path = path
        self.parts: dict[str, Part] = {}
        if path.exists():
            try:
                saved = json.loads(path.read_text(encoding="utf-8"))["parts"]
                self.parts = {
                    name: Part(**part | {"rows": [read_row(row) for row in part["rows"]]})
                    for name, part in saved.items()
                }
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise click.ClickException(f"{path} holds no results of this program; remove it") from error

    def get(self, name: str) -> Part:
        return self.parts.get(name, Part(command="", machine={}, rows=[]))

    def record(self, name: str, command: str, rows: Iterable[Any], **machine: Any) -> None:
        """Measure a part: print and save each row when it comes. machine: added to the description of the machine."""
        part = Part(command=command, machine=describe_machine() | machine, rows=[])
        for row in rows:
            click.echo(f"  {row}")
            part.rows.append(row)
            self.parts[name] = part
            self._save()

    def _save(self) -> None:
        parts = {name: asdict(part) for name, part in self.parts.items()}
        temporary = self.path.with_name(self.path.name + ".tmp")
        temporary.write_text(json.dumps({"parts": parts}, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, self.path)


def describe_command(context: click.Context, *first: str) -> str:
    """Return the command line as given, with the names of files without their folders. It begins with `first`."""
    words = ["python", "-m", "benchmarks", *first]
    for parameter in context.command.params:
        name = str(parameter.name)
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and name != "work":
            words += _words_of(parameter, context.params[name])
    return shlex.join(words)


def _words_of(parameter: click.Parameter, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [parameter.opts[0] if value else parameter.secondary_opts[0]]
    value = value.name if isinstance(value, Path) else ",".join(value) if isinstance(value, list) else str(value)
    return [value] if isinstance(parameter, click.Argument) else [parameter.opts[0], value]
