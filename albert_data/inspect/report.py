"""All that `albert-data inspect` shows, measured once and laid out for a person or for a program.

`Report` is the result of one call. The HTML page is made in html/, with the charts and tables of the room report/.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albert_data.corpus.inputs import Input
from albert_data.inspect import summary, view
from albert_data.inspect.audit.audit import audit_splits
from albert_data.inspect.audit.corpus import Corpus, read_corpus
from albert_data.inspect.audit.rows import gather_subject
from albert_data.inspect.choice import Choice, choose_rows
from albert_data.inspect.input_files import InputFiles, attribute
from albert_data.inspect.statistics import Statistics, measure
from albert_data.inspect.terminal import escape_controls
from albert_data.shards.manifest import Manifest
from albert_data.shards.reader import Shards, check_split, open_splits


@dataclass(frozen=True, kw_only=True)
class Report:
    """opened: the splits with rows; statistics: of each of these. shards: the split whose rows are shown.

    rows: the numbers of these rows, chosen by `choice`. corpus:
    what the inputs hold, None where they are not given, or where no split has rows; input_files: figures of its files.
    """

    opened: list[Shards]
    corpus: Corpus | None
    statistics: dict[str, Statistics]
    shards: Shards
    rows: list[int]
    choice: Choice
    input_files: InputFiles | None

    def to_text(self, width: int = summary.WIDTH, *, colour: bool = False) -> str:
        """The summary in at most 80 columns, then the rows in at most `width`."""
        tokenizer, task = self.shards.tokenizer, self.shards.manifest.config.examples.task
        page = summary.summarise(*self._measured, self.input_files)
        if not self.rows:
            return page if self.choice.count == 0 else f"{page}\n\n{self._explain_none()}"
        shown = [view.show_example(self.shards[i], i, tokenizer, width, colour=colour, task=task) for i in self.rows]
        title = f"Examples of {self.shards.split}"
        return "\n\n".join([page, f"{title}\n{view.show_legend(width, colour=colour)}", *shown])

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict for JSON."""
        examples = [view.to_dict(self.shards[i], i, self.shards.tokenizer) for i in self.rows]
        page = summary.to_dict(*self._measured, self.input_files)
        return {**page, "examples": examples}

    def to_html(self) -> str:
        """The report for a browser. It audits the shards too, which reads all rows once more."""
        from albert_data.inspect.html.page import render

        audit = audit_splits(self.shards.folder, self.opened, self.corpus)
        return render(self, audit)

    @property
    def _measured(self) -> tuple[Path, Manifest, dict[str, Statistics], list[str]]:
        """The first arguments of each function of summary.py."""
        return self.shards.folder, self.shards.manifest, self.statistics, self.shards.tokenizer.piece_texts

    def _explain_none(self) -> str:
        """Why there is no row to show."""
        wanted = []
        if self.choice.text is not None:
            wanted.append(f"holds {escape_controls(repr(self.choice.text))}")
        if self.choice.label is not None:
            task = self.shards.manifest.config.examples.task
            wanted.append(f"is {task.describe(self.choice.label).split(':')[0]}")
        return f"{self.shards.split} has no row{' that ' if wanted else ''}{' and '.join(wanted)}."


def inspect_folder(folder: Path, *, split: str, choice: Choice, corpus: list[Input] | None = None) -> Report:
    """Measure every split and choose rows of one. corpus: the inputs of the build, for figures by file.

    Raises ShardError if the folder is no finished build, holds malformed rows, or lacks a row asked for, and
    InputError for a corpus that can't be read, or that has no document of the shards.
    """
    opened = open_splits(folder)
    check_split(folder, split, list(opened))
    shown = opened[split]
    filled = {name: shards for name, shards in opened.items() if len(shards) > 0}
    statistics = {name: measure(shards) for name, shards in filled.items()}  # first, as it refuses malformed rows
    rows = choose_rows(shown, choice)
    contents = read_corpus(corpus, shown.manifest.config.text) if corpus and filled else None
    return Report(
        opened=list(filled.values()),
        corpus=contents,
        statistics=statistics,
        rows=rows,
        shards=shown,
        choice=choice,
        input_files=None if contents is None else attribute(gather_subject(list(filled.values())), contents),
    )
