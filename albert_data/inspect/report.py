"""All that `albert-data inspect` shows, measured once and laid out for a person or for a program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albert_data.inspect import summary, view
from albert_data.inspect.manifest_keys import read_checked_manifest
from albert_data.inspect.statistics import Statistics, measure
from albert_data.shards.reader import Shards, open_shards


@dataclass(frozen=True, kw_only=True)
class Report:
    """statistics: of each split with rows; rows: the numbers of the rows to show, in `shards`."""

    statistics: dict[str, Statistics]
    shards: Shards
    rows: list[int]

    def to_text(self, width: int = summary.WIDTH, *, colour: bool = False) -> str:
        """The summary in at most 80 columns, then the rows in at most `width`."""
        page = summary.summarise(self.shards.folder, self.shards.manifest, self.statistics)
        if not self.rows:
            return page
        tokenizer = self.shards.tokenizer
        shown = [view.show_example(self.shards[i], i, tokenizer, width, colour=colour) for i in self.rows]
        title = f"Examples of {self.shards.split}"
        return "\n\n".join([page, f"{title}\n{view.show_legend(width, colour=colour)}", *shown])

    def to_dict(self) -> dict[str, Any]:
        """The same, of values that JSON has."""
        examples = [view.to_dict(self.shards[i], i, self.shards.tokenizer) for i in self.rows]
        return summary.to_dict(self.shards.folder, self.shards.manifest, self.statistics, examples)


def inspect_folder(folder: Path, *, split: str, num_examples: int, seed: int) -> Report:
    """Measure every split and choose rows of one.

    Raises ShardError if the folder is no finished build, or holds what can't be measured.
    """
    manifest = read_checked_manifest(folder)
    shown = open_shards(folder, split)
    statistics = {}
    for name in manifest["splits"]:
        shards = shown if name == split else open_shards(folder, name)
        if len(shards) > 0:
            statistics[name] = measure(shards)
    rows = view.choose_rows(len(shown), num_examples, seed)
    return Report(statistics=statistics, shards=shown, rows=rows)
