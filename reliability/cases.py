"""The cases of the fuzzer: readers of files from outside, inputs for them, and outcomes.

A case is a reader and a number. The first numbers of a reader are its oddities: inputs that broke something once. The
others are mutated by a random generator seeded with (seed, reader, number), so a case can be made again on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from reliability.mutators import mutate_bytes

Mutate = Callable[[Random, bytes, Sequence[bytes]], bytes]


class WrongResult(Exception):
    """An input was accepted, but the result is wrong. The first word of the message says which check failed."""


@dataclass(frozen=True, kw_only=True)
class Oddity:
    """An input that is not mutated. make: returns its bytes; means: the same documents as plain text, if known."""

    name: str
    make: Callable[[], bytes]
    means: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One kind of file from outside, and the code that reads it.

    share: how many of a thousand cases it gets; seeds: valid inputs, which are mutated.
    read: reads a case's bytes in an empty folder; it raises AlbertDataError to refuse them.
    """

    name: str
    share: int
    seeds: Sequence[bytes]
    read: Callable[[Case, bytes, Path], object]
    mutate: Mutate = mutate_bytes
    oddities: Sequence[Oddity] = ()


@dataclass(frozen=True, kw_only=True)
class Case:
    """One input of one reader. given: bytes to use instead of those that the number makes."""

    reader: Reader
    seed: int
    number: int
    given: bytes | None = None

    @property
    def oddity(self) -> Oddity | None:
        oddities = self.reader.oddities
        return oddities[self.number] if self.number < len(oddities) else None

    def make(self) -> bytes:
        """Return the bytes to read."""
        if self.given is not None:
            return self.given
        if self.oddity is not None:
            return self.oddity.make()
        rng = self.random("bytes")
        return self.reader.mutate(rng, rng.choice(self.reader.seeds), self.reader.seeds)

    def random(self, purpose: str) -> Random:
        """Return a generator for this case. Equal cases and purposes draw equal numbers on any machine."""
        return Random(f"{self.seed} {self.reader.name} {self.number} {purpose}")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An outcome that is not allowed.

    what: the name of the exception, or hang, memory, signal N; place: file and function in albert_data.
    """

    what: str
    place: str
    trace: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a case ended. is_refused: with an AlbertDataError; peak_bytes: resident, above those of an idle child."""

    case: Case
    is_refused: bool
    fault: Fault | None
    seconds: float
    peak_bytes: int
