"""How a long run tells how far it is. The library is silent; the command line draws a bar."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told of stages, and of what is done in each."""

    def start(self, stage: str, total: int | None, unit: str = "bytes") -> None:
        """A stage begins; total is None where it can't be known, the unit empty where only time is."""

    def advance(self, done: int, text_bytes: int = 0) -> None:
        """More units of the stage's total are done, and more bytes of text were read."""

    def say(self, line: str) -> None:
        """Something that the user should know now."""


class NullProgress:
    """No progress shown."""

    def start(self, stage: str, total: int | None, unit: str = "bytes") -> None:
        pass

    def advance(self, done: int, text_bytes: int = 0) -> None:
        pass

    def say(self, line: str) -> None:
        pass
