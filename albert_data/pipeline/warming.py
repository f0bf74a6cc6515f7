"""Run every kernel of a build once, on a few words, so that it is compiled before workers start.

First those that only a build has: while `quickstart` learns a vocabulary, a second process compiles them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from albert_data.config import TextConfig
from albert_data.corpus.tasks import WARMING_BLOCK, ReadTask, compile_reading
from albert_data.data import DocumentColumns, Documents, Examples, Lines, Text
from albert_data.jobs.stages import Stages
from albert_data.kernels.draws import split_keys
from albert_data.pipeline.exchanging import Exchange
from albert_data.pipeline.make_rows import MakeRows
from albert_data.pipeline.row_buffer import FoundRows, RowScratch, find_copies, find_rows, take_examples
from albert_data.pipeline.sorted_runs import KeyedRows, join_keys, sort_rows
from albert_data.survey.made import Made
from albert_data.survey.near_duplicates import compile_comparing
from albert_data.tokenizer.model import Tokenizer

_RARE = f"1 {'x' * 1000}"  # its long chunk gets its ids from the library of any tokenizer
_TEXT = Text(
    utf8=np.array(bytearray(b"One word. Two words.")),
    sentence_begins=np.array([0, 10]),
    sentence_ends=np.array([9, 20]),
    document_offsets=np.array([0, 2]),
    is_heading=np.zeros(2, bool),
    columns=DocumentColumns(np.zeros(1, np.uint64)),
)


@dataclass(frozen=True)
class Warming:
    """Runs every kernel that a build needs on a few words. Raises what `Tokenizer.prepare` raises.

    texts: settings of a mixture's sources. It can be pickled, so that other machines can do the same.
    """

    job: MakeRows
    tokenizer: Tokenizer
    texts: tuple[TextConfig, ...] = ()
    exchange: Exchange | None = None

    def __call__(self) -> None:
        self.tokenizer.encode([_RARE])
        self._make_rows([self.tokenizer.encode_documents(_TEXT)])
        compile_reading()
        for text in self.texts:
            list(self._read(text))
        if self.job.config.drop_near_duplicates:
            compile_comparing()
        parts = self._read(self.job.config.text)
        self._make_rows([documents for _, documents in parts])

    def _make_rows(self, parts: list[Documents]) -> None:
        rows = _sort_and_take([self.job.make_rows(documents, 0, Stages()) for documents in parts])
        if self.exchange is not None:
            self.exchange(rows, np.zeros(len(rows), np.uint64))

    def _read(self, text: TextConfig) -> Iterator[tuple[Lines, Documents]]:
        """A few words, of which no setting leaves out any."""
        task = ReadTask(name="", text=replace(text, min_chars=None), is_validation=True)
        return self.job.tokenise(WARMING_BLOCK, Made(), task)


def _sort_and_take(parts: list[KeyedRows]) -> Examples:
    """Do to the rows what is done to them between mapping and a shard, without the files between."""
    keys = join_keys(parts)
    split_keys(np.uint64(0), keys.document_keys)
    num_rows = len(keys.indices)
    scratch, found = RowScratch(parts[0].examples.input_ids.dtype), FoundRows.empty(num_rows)
    run = sort_rows(parts, keys, np.zeros(num_rows, bool), scratch)
    records = scratch.reserve(0)  # the records that `sort_rows` wrote: the buffer does not grow
    find_rows(records, 0, len(run.records), np.uint64(0), np.uint64(2**64 - 1), found, 0)
    find_copies(records, found.starts, np.zeros(num_rows, bool))
    return take_examples(records, found.starts)
