"""Compile the kernels in the parent, before workers are forked, so that each inherits the machine code."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from albert_data.build.mapping import MapJob, TaskReceipt
from albert_data.build.progress import Progress
from albert_data.build.runs import join_keyed
from albert_data.build.stages import Stages
from albert_data.corpus.blocks import Block
from albert_data.corpus.damage import Damage

_PATIENCE_SECONDS = 1.5  # loading compiled kernels takes less, compiling them more
WARMING_BLOCK = Block(data=b"One word. Two words.\n\nThree.\n", format="txt", path="", start=0)


def compile_kernels(job: MapJob, progress: Progress) -> None:
    """Run every kernel that a build needs once, on a few words."""

    def make_some_rows() -> None:
        parts = job.read(WARMING_BLOCK, Damage(), TaskReceipt())
        rows = join_keyed([job.make_rows(documents, 0, Stages()) for documents in parts])
        rows.take(np.arange(len(rows.indices)))

    run_once(make_some_rows, progress)


def run_once(work: Callable[[], object], progress: Progress) -> None:
    """Run what compiles kernels, and say so if that takes its time."""
    notice = threading.Timer(_PATIENCE_SECONDS, progress.say, ["compiling the kernels, once a machine"])
    notice.start()
    try:
        work()
    finally:
        notice.cancel()
