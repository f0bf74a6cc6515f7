"""How long each stage of a build took, over all workers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

STAGES = (
    "read",
    "clean",
    "segment",
    "tokenise",
    "pair",
    "mask",
    "sort",
    "write runs",
    "merge runs",
    "write shards",
)
Item = TypeVar("Item")


class Stages(dict[str, float]):
    """Seconds of each stage, by the clock on the wall."""

    @contextmanager
    def time(self, stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self[stage] = self.get(stage, 0.0) + time.perf_counter() - begin

    def time_each(self, stage: str, items: Iterable[Item]) -> Iterator[Item]:
        """Time the making of each item, and not what is done with it."""
        iterator = iter(items)
        while True:
            with self.time(stage):
                item = next(iterator, None)
            if item is None:
                return
            yield item

    def add(self, other: dict[str, float]) -> None:
        for stage, seconds in other.items():
            self[stage] = self.get(stage, 0.0) + seconds


def tabulate_stages(stages: Mapping[str, float], text_bytes: int) -> list[list[str]]:
    """A table: the stages that were run, seconds, their share, and how much of the text a second did. Last, all."""
    total = sum(stages.values())
    rows = [(stage, stages[stage]) for stage in STAGES if stage in stages] + [("all stages", total)]
    cells = [
        [name, f"{seconds:,.2f}", f"{100 * seconds / max(total, 1e-9):.1f} %", _rate(text_bytes, seconds)]
        for name, seconds in rows
    ]
    return [["stage", "seconds", "share", "MB/s"], *cells]


def _rate(text_bytes: int, seconds: float) -> str:
    return f"{text_bytes / 1e6 / seconds:,.1f}" if seconds else "-"


def format_stages(stages: Mapping[str, float], text_bytes: int) -> list[str]:
    """The same as lines of a terminal."""
    table = tabulate_stages(stages, text_bytes)
    return [f"{name:<14} {seconds:>9} {share:>7} {rate:>9}" for name, seconds, share, rate in table]
