"""Run every kernel once before workers start: forked ones inherit the machine code, others load it from the disk.

On a cluster that is done once more on each machine (ray_worker.py).

Numba compiles a kernel when it is first called with arguments of some types. That takes half a minute for all, once on
each machine; later, loading them takes 0.25 s.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block
from albert_data.corpus.damage import Damage
from albert_data.corpus.json_arrays import JsonLines
from albert_data.corpus.line_ends import break_lines
from albert_data.draws import split_keys
from albert_data.examples.ragged import Examples
from albert_data.pipeline.exchanging import Exchange
from albert_data.pipeline.mapping import MapJob
from albert_data.pipeline.progress import Progress
from albert_data.pipeline.receipts import TaskReceipt
from albert_data.pipeline.records import FoundRecords, RecordScratch, find_copies, find_records, take_examples
from albert_data.pipeline.sorted_runs import KeyedRows, join_keys, sort_rows
from albert_data.pipeline.stages import Stages
from albert_data.tokenizer.model import Tokenizer

_PATIENCE_SECONDS = 1.5  # loading compiled kernels takes less, compiling them more
_NOTICE = "compiling the kernels, once on each machine"
WARMING_BLOCK = Block(data=b"One word.\nTwo words.\n\nThree ex-\namples.\n", format="txt", path="", start=0)


@dataclass(frozen=True)
class Warming:
    """Runs every kernel that a build needs on a few words. Raises what `Tokenizer.prepare` raises.

    texts: settings of a mixture's sources. It can be pickled, so that other machines can do the same.
    """

    job: MapJob
    tokenizer: Tokenizer
    texts: tuple[TextConfig, ...] = ()
    exchange: Exchange | None = None

    def __call__(self) -> None:
        compile_reading()
        self.tokenizer.compile_rare()
        for text in self.texts:
            list(self.job.read(WARMING_BLOCK, Damage(), TaskReceipt(), text))
        parts = self.job.read(WARMING_BLOCK, Damage(), TaskReceipt())
        rows = _sort_and_take([self.job.make_rows(documents, 0, Stages()) for documents in parts])
        if self.exchange is not None:
            self.exchange(rows, np.zeros(len(rows), np.uint64))


def compile_reading() -> None:
    """Run the kernels that read blocks."""
    break_lines(WARMING_BLOCK.data)
    JsonLines(io.BytesIO(b"[]"), "text").read()


def compile_with_notice(work: Callable[[], object], progress: Progress) -> None:
    """Call what runs kernels, and say so if it takes as long as compiling."""
    notice = threading.Timer(_PATIENCE_SECONDS, progress.say, [_NOTICE])
    notice.daemon = True
    notice.start()
    try:
        work()
    finally:
        notice.cancel()


def _sort_and_take(parts: list[KeyedRows]) -> Examples:
    """Do to the rows what is done to them between mapping and a shard, without the files between."""
    keys = join_keys(parts)
    split_keys(np.uint64(0), keys.document_keys)
    num_rows = len(keys.indices)
    scratch, found = RecordScratch(parts[0].examples.input_ids.dtype), FoundRecords.empty(num_rows)
    run = sort_rows(parts, keys, np.zeros(num_rows, bool), scratch)
    records = scratch.reserve(0)  # the records that `sort_rows` wrote: the buffer does not grow
    find_records(records, 0, len(run.records), np.uint64(0), np.uint64(2**64 - 1), found, 0)
    find_copies(records, found.starts, np.zeros(num_rows, bool))
    return take_examples(records, found.starts)
