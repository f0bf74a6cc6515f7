"""The attempts in the folder of a quickstart: one for each text and set of options, none of which replaces another.

DIR/.quickstart.json lists them by number. The first has DIR/vocab, DIR/shards, DIR/report.html and DIR/run, the second
DIR/vocab-2 and so on. A training of another number of minutes has a name with them, as DIR/run-3-minutes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert_data.errors import OutputError, explain_os_error
from albert_data.files import read_json, write_json
from albert_data.jobs.work_folder import take_lock
from albert_data.storage import FILE, find_kind

if TYPE_CHECKING:
    from albert_data.corpus.inputs import Input

RECORD, _LOCK = ".quickstart.json", ".quickstart.lock"  # hidden, so that no glob of the user takes them for text
MINUTES = 10  # of a training without a number in its name
_KIND = "attempts of albert-data quickstart"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One text with one set of options, and where its files lie.

    options: words that decide the shards; text_sha256: of the inputs' names, sizes and times; bad: what the audit
    found to be bad, as lines of text, None before the audit; fixes: options that may help.
    """

    folder: Path
    number: int
    options: tuple[str, ...]
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

    def run(self, minutes: float) -> Path:
        """The folder of a training of so many minutes."""
        run = self._place("run")
        return run if minutes == MINUTES else run.with_name(f"{run.name}-{format_minutes(minutes)}-minutes")

    def _place(self, name: str) -> Path:
        return self.folder / (name if self.number == 1 else f"{name}-{self.number}")

    def is_begun(self) -> bool:
        """Whether one of its names is taken."""
        run = self._place("run").name
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        ours = {path.name for path in (self.vocab, self.shards, self.report)} | {run}
        return any(name in ours or (name.startswith(f"{run}-") and name.endswith("-minutes")) for name in names)

    def save(self) -> None:
        """Write it to the list of attempts."""
        values = {field: getattr(self, field) for field in _FIELDS}
        write_json(self.folder / RECORD, {"kind": _KIND, **_read(self.folder), str(self.number): values})


_FIELDS = [field.name for field in dataclasses.fields(Attempt) if field.name not in ("folder", "number")]


def format_minutes(minutes: float) -> str:
    """The same for 3 and 3.0.

    >>> format_minutes(3.0), format_minutes(2.5)
    ('3', '2.5')
    """
    return str(float(minutes)).removesuffix(".0")


@contextmanager
def lock_attempts(folder: Path) -> Iterator[None]:
    """Make the folder, and keep other quickstarts out of it. Raises OutputError."""
    taken = f"{folder}: another quickstart is writing there; wait for it, or stop it"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unlock = take_lock(folder / _LOCK, b"quickstart\n", taken)
    except OSError as error:
        raise OutputError(
            f"output {folder} can't be written: {explain_os_error(error)}; name another folder"
        ) from error
    try:
        yield
    finally:
        unlock()


def choose_attempt(folder: Path, options: tuple[str, ...], inputs: list[Input]) -> Attempt:
    """The attempt of these inputs and options; a new one beside what is there if there is none.

    Raises OutputError for a list of attempts that is not ours.
    """
    # What decides whether a build takes its text for the same; the name is one of them.
    identify = attrgetter("path", "size", "modified_ns", "language", "is_validation", "source")
    text_sha256 = sha256(repr([identify(item) for item in inputs]).encode()).hexdigest()
    there = [_parse(folder, number, values) for number, values in _read(folder).items() if number != "kind"]
    for attempt in there:
        if (attempt.options, attempt.text_sha256) == (options, text_sha256):
            return attempt
    new = (Attempt(folder=folder, number=number, options=options, text_sha256=text_sha256) for number in count(1))
    return next(attempt for attempt in new if not attempt.is_begun())


def _read(folder: Path) -> dict[str, Any]:
    """The list of attempts. Raises OutputError if it is not ours."""
    path = folder / RECORD
    if (kind := find_kind(path, follow=False)) is None:
        return {}
    try:
        values = read_json(path) if kind == FILE else {}
        if values.get("kind") != _KIND:
            raise ValueError("it is of another kind")
        return values
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} was not written by quickstart ({error}); move it away") from error


def _parse(folder: Path, number: str, values: Any) -> Attempt:
    try:
        if values.keys() != set(_FIELDS):
            raise ValueError("a field is missing or unknown")
        lists = {name: tuple(map(str, values[name])) for name in ("options", "fixes")}
        bad = None if values["bad"] is None else tuple(map(str, values["bad"]))
        return Attempt(folder=folder, number=int(number), text_sha256=str(values["text_sha256"]), bad=bad, **lists)
    except (AttributeError, TypeError, ValueError) as error:
        raise OutputError(f"{folder / RECORD} is damaged at {number[:20]!r} ({error}); move it away") from error
