"""How long each stage of a build took, over all workers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from albert_data.text.wording import format_share

STAGES = (
    *("read", "clean", "sign", "segment", "tokenise", "pair", "mask", "sort", "write runs"),
    *("compare", "merge runs", "write shards"),
)
Item = TypeVar("Item")


class Stages(dict[str, float]):
    """Seconds of wall time of each stage."""

    @contextmanager
    def time(self, stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self[stage] = self.get(stage, 0.0) + time.perf_counter() - begin

    def time_each(self, stage: str, items: Iterable[Item]) -> Iterator[Item]:
        """Time how long the iterator takes to make each item, without what the caller does with it."""
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


def format_stages(stages: Mapping[str, float], text_bytes: int) -> list[str]:
    """A line for each stage that ran, and one for their sum: seconds, share, and MB of text per second."""
    total = sum(stages.values())
    lines = [f"{'stage':<14} {'seconds':>9} {'share':>7} {'MB/s':>9}"]
    for name in (*(stage for stage in STAGES if stage in stages), "all stages"):
        seconds = stages.get(name, total)
        share = format_share(seconds / max(total, 1e-9), 1)
        rate = f"{text_bytes / 1e6 / seconds:,.1f}" if seconds else "-"
        lines.append(f"{name:<14} {seconds:>9,.2f} {share:>7} {rate:>9}")
    return lines
