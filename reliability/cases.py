"""What is tried: readers of outside bytes, inputs for them, and what may come out.

A case is a reader and a number. The first numbers of a reader are its oddities, inputs that broke something once;
the others are mutated, each by a random generator of (seed, reader, number), so a case can be made again anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from reliability.mutators import mutate_bytes

Mutate = Callable[[Random, bytes, Sequence[bytes]], bytes]


class WrongResult(Exception):
    """An input was accepted, but what came of it is not what it holds. The first word says which claim failed."""


@dataclass(frozen=True, kw_only=True)
class Oddity:
    """An input to try as it is. make: its bytes; means: the same documents in a plain form, where that is known."""

    name: str
    make: Callable[[], bytes]
    means: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One kind of outside bytes, and the code that reads them.

    share: how many of a thousand cases it gets; seeds: sound inputs, which are mutated.
    read: reads a case's bytes, in an empty folder; AlbertDataError says that it refuses them.
    """

    name: str
    share: int
    seeds: Sequence[bytes]
    read: Callable[[Case, bytes, Path], object]
    mutate: Mutate = mutate_bytes
    oddities: Sequence[Oddity] = ()


@dataclass(frozen=True, kw_only=True)
class Case:
    """One input of one reader. given: bytes that are tried instead of those that the number makes."""

    reader: Reader
    seed: int
    number: int
    given: bytes | None = None

    @property
    def oddity(self) -> Oddity | None:
        oddities = self.reader.oddities
        return oddities[self.number] if self.number < len(oddities) else None

    def make(self) -> bytes:
        """The bytes to read."""
        if self.given is not None:
            return self.given
        if self.oddity is not None:
            return self.oddity.make()
        rng = self.random("bytes")
        return self.reader.mutate(rng, rng.choice(self.reader.seeds), self.reader.seeds)

    def random(self, purpose: str) -> Random:
        """A generator of this case alone. Equal cases and purposes draw equal numbers, on any machine."""
        return Random(f"{self.seed} {self.reader.name} {self.number} {purpose}")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What came out that must not.

    what: the name of the exception, or hang, memory, signal N; place: where in albert_data.
    """

    what: str
    place: str
    trace: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a case ended. is_refused: with an AlbertDataError; peak_bytes: resident, above a child without work."""

    case: Case
    is_refused: bool
    fault: Fault | None
    seconds: float
    peak_bytes: int
