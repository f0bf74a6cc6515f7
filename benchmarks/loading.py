"""Compares loading training batches on one core with transformers' collator for masked language modelling.

Both take turns on the same batches of rows. Ours: `ShardLoader`, from memory-mapped shards to padded tensors, with the
stored masks and with new ones; it has whole words, segments and sentence order. The rival:
`DataCollatorForLanguageModeling`, which pads the rows and masks pieces. Its rows are unmasked lists, as `datasets`
gives them, made before the measurement.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from albert_data import Shards, open_shards
from albert_data.shards.rows import restore_ids
from benchmarks import jobs, rivals
from benchmarks.corpora import Corpus, Setup
from benchmarks.results import COLLATOR, OURS, Measurement, Timing
from benchmarks.tokenising import alternate, time_call

BATCH_TOKENS = (16_384, 131_072)
OPTIONS = ("--max-seq-len", "512", "--validation-fraction", "0")


def measure(setup: Setup) -> Iterator[Measurement]:
    for corpus in setup.corpora:
        with tempfile.TemporaryDirectory(dir=setup.work) as folder:
            out = Path(folder) / "out"
            jobs.build([corpus.path], out, corpus.model, "--language", corpus.language, *OPTIONS)
            yield from measure_shards(corpus, open_shards(out), setup.runs)


def measure_shards(corpus: Corpus, shards: Shards, runs: int) -> Iterator[Measurement]:
    """Measure an epoch with new masks and one with the stored masks, for each batch size."""
    from albert_data.train import ShardLoader

    texts = read_texts(shards)
    collate, missing = rivals.find_collator(corpus.model)
    for batch_tokens in BATCH_TOKENS:
        loader = ShardLoader(shards, batch_tokens=batch_tokens)
        batches, num_cells = zip(*((batch.rows, batch.input_ids_BT.numel()) for batch in loader), strict=True)
        contenders: dict[str, Callable[[], float]] = {
            "stored": lambda loader=loader: time_epoch(loader, 0),
            OURS: lambda loader=loader: time_epoch(loader, 1),
        }
        time_epoch(loader, 1)  # compiles the kernels
        if collate is not None:
            lists = [[texts[row] for row in rows] for rows in batches]
            contenders[COLLATOR] = lambda lists=lists: time_call(lambda: [len(collate(rows)) for rows in lists])
        seconds = alternate(contenders, runs)
        figures = {"num_tokens": float(shards.lengths.sum()), "batch_tokens": float(batch_tokens)}
        figures["padding_percent"] = 100 * (1 - figures["num_tokens"] / sum(num_cells))
        theirs = Timing(seconds=seconds.get(COLLATOR, ()), missing=missing)
        for masks, name in (("new", OURS), ("stored", "stored")):
            timings = {OURS: Timing(seconds=seconds[name]), COLLATOR: theirs}
            yield Measurement(work=f"loading {corpus.name}, {masks} masks", timings=timings, figures=figures)


def read_texts(shards: Shards) -> list[list[int]]:
    """Return the original ids of all rows."""
    rows = shards.rows(np.arange(len(shards)))
    return [part.tolist() for part in np.split(restore_ids(rows), rows.offsets[1:-1])]


def time_epoch(loader: Any, epoch: int) -> float:
    """Return the seconds for all batches of an epoch; each batch is freed before the next."""
    loader.load_state_dict({**loader.state_dict(), "epoch": epoch, "window": 0, "batch": 0})
    return time_call(lambda: sum(batch.num_tokens for batch in loader))
