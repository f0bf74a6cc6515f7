"""The attempts in the folder of a quickstart: one for each text and set of options, none of which replaces another.

DIR/quickstart.json lists them by number. The first has DIR/vocab, DIR/shards, DIR/report.html and DIR/run, the second
DIR/vocab-2 and so on.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from albert_data.errors import OutputError
from albert_data.files import read_json, write_json

RECORD = "quickstart.json"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One text with one set of options, and where its files lie.

    command: the words that decide the shards; text_sha256: of the inputs' names, sizes and times; bad: what the audit
    found to be bad, as lines of text, None before the audit; fixes: options that may help.
    """

    folder: Path
    number: int
    command: tuple[str, ...]
    text_sha256: str
    bad: tuple[str, ...] | None = None
    fixes: tuple[str, ...] = ()

    @property
    def vocab(self) -> Path:
        return self._place("vocab")

    @property
    def shards(self) -> Path:
        return self._place("shards")

    @property
    def report(self) -> Path:
        return self._place("report").with_suffix(".html")

    @property
    def run(self) -> Path:
        return self._place("run")

    def _place(self, name: str) -> Path:
        return self.folder / (name if self.number == 1 else f"{name}-{self.number}")

    def is_begun(self) -> bool:
        return any(map(os.path.lexists, (self.vocab, self.shards, self.report, self.run)))

    def save(self) -> None:
        """Write it to the list of attempts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        values = {field: getattr(self, field) for field in _FIELDS}
        write_json(self.folder / RECORD, {**_read(self.folder), str(self.number): values})


_FIELDS = [field.name for field in dataclasses.fields(Attempt) if field.name not in ("folder", "number")]


def choose_attempt(folder: Path, command: tuple[str, ...], inputs: object) -> Attempt:
    """The attempt of this text and these options; a new one beside what is there if there is none.

    inputs: anything whose repr shows their names, sizes and times. Raises OutputError for a list that is not ours.
    """
    text_sha256 = sha256(repr(inputs).encode(errors="surrogateescape")).hexdigest()
    try:
        there = [_parse(folder, number, values) for number, values in _read(folder).items()]
    except (OSError, ValueError, TypeError) as error:
        raise OutputError(
            f"{folder / RECORD} was not written by quickstart ({error}); move it away, or choose another --output"
        ) from error
    for attempt in there:
        if (attempt.command, attempt.text_sha256) == (command, text_sha256):
            return attempt
    new = (Attempt(folder=folder, number=number, command=command, text_sha256=text_sha256) for number in count(1))
    return next(attempt for attempt in new if not attempt.is_begun())


def _read(folder: Path) -> dict[str, Any]:
    return read_json(folder / RECORD) if os.path.lexists(folder / RECORD) else {}


def _parse(folder: Path, number: str, values: Any) -> Attempt:
    if not isinstance(values, dict) or values.keys() != set(_FIELDS) or not number.isdecimal():
        raise ValueError(f"{number[:20]!r} is no attempt")
    lists = {name: tuple(map(str, values[name])) for name in ("command", "fixes")}
    bad = None if values["bad"] is None else tuple(map(str, values["bad"]))
    return Attempt(folder=folder, number=int(number), text_sha256=str(values["text_sha256"]), bad=bad, **lists)
