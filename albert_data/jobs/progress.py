"""How long work reports its progress. By default the library shows nothing and logs; the command line draws a bar."""

from __future__ import annotations

import logging
from typing import Protocol, runtime_checkable

_LOGGER = logging.getLogger("albert_data")
_LOGGER.addHandler(logging.NullHandler())  # without any, Python prints warnings


def log(*lines: str) -> None:
    """Give lines to the logger: of text that is not read, and of advice, as warnings, which their labels say."""
    for line in lines:
        _LOGGER.log(logging.WARNING if line.startswith(("skipped", "damage", "warning")) else logging.INFO, "%s", line)


@runtime_checkable
class Progress(Protocol):
    """Receives the progress of each stage."""

    def start(self, stage: str, total: int | None, unit: str = "bytes") -> None:
        """A stage begins. total: None where it is not known; unit: empty where nothing but the time can be shown."""

    def advance(self, done: int, text_bytes: int = 0) -> None:
        """done: how many more units of the stage's total; text_bytes: how many more bytes of text were read."""

    def say(self, line: str) -> None:
        """Show a line that the user should read now."""


class NullProgress:
    """Shows no progress. Lines go to the logger `albert_data`."""

    def start(self, stage: str, total: int | None, unit: str = "bytes") -> None:
        pass

    def advance(self, done: int, text_bytes: int = 0) -> None:
        pass

    def say(self, line: str) -> None:
        log(line)
