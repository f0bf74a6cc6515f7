"""Estimate what a build makes from a sample of the corpus.

In: inputs, a tokenizer, the settings. Out: a `BuildEstimate`, or None where the sample holds no token. The sample is
tokenised and masked as a build does it (corpus/samples.py says what is in it). Copies of documents are not known from
a sample, so they count as if they stayed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from albert_data.config import BuildConfig
from albert_data.corpus.inputs import Input
from albert_data.corpus.samples import Sample, read_samples
from albert_data.corpus.sources import ONE_PASS, MixtureSource, share_tokens
from albert_data.corpus.tasks import ReadTask
from albert_data.jobs.compiling import compile_with_notice
from albert_data.jobs.progress import Progress
from albert_data.pipeline.exchanging import Exchange
from albert_data.pipeline.make_rows import RUN_BYTES, MakeRows
from albert_data.pipeline.shard_plan import SHARD_BYTES
from albert_data.pipeline.shuffle import Shuffle
from albert_data.pipeline.warming import Warming
from albert_data.storage import is_remote
from albert_data.survey.made import Made
from albert_data.survey.sizes import measure_rows
from albert_data.text.wording import about, about_bytes
from albert_data.tokenizer.model import Tokenizer

READ_BYTES = 8 << 20  # of an input in a store, by a request
COMPARE_RATE = 0.27e9  # bytes of text a second, in whose documents near-duplicates are found, by one process
_MOST_SECONDS = 2.0  # no more places are read then; a slow tokenizer or disk reaches it


@dataclass(frozen=True, kw_only=True)
class BuildEstimate:
    """About what a build makes.

    sample_bytes: of text, by which it was judged
    documents, text_bytes, tokens: of the corpus, in one pass
    rows, shard_bytes: of all passes, of what is used of a mixture; before compression
    work_bytes: of the sorted runs, which lie on the disk beside the shards until the build is finished
    """

    sample_bytes: int
    documents: int
    text_bytes: int
    tokens: int
    rows: int
    shard_bytes: int
    work_bytes: int

    def __repr__(self) -> str:
        counts = ", ".join(f"{about(getattr(self, name))} {name}" for name in ("documents", "tokens", "rows"))
        return f"BuildEstimate(about {counts}, {about_bytes(self.shard_bytes)} of shards)"

    def to_dict(self) -> dict[str, int]:
        """The figures for JSON, by stable names."""
        return {**vars(self)}


@dataclass(kw_only=True)
class _Measured:
    """What samples hold, then what these stand for, in one pass."""

    documents: float = 0.0
    text_bytes: float = 0.0
    tokens: float = 0.0
    rows: float = 0.0
    row_bytes: float = 0.0

    def add(self, other: _Measured, factor: float = 1.0) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + factor * value)


def estimate_build(
    inputs: list[Input], tokenizer: Tokenizer, config: BuildConfig, progress: Progress
) -> BuildEstimate | None:
    """Estimate a build, in about a second. No stream is read, and nothing is written."""
    job = MakeRows(config, tokenizer, Path(), Path())
    exchange = Exchange(config.examples, tokenizer) if config.examples.task.has_random else None
    compile_with_notice(Warming(job, tokenizer, exchange=exchange), progress.say)
    deadline = time.monotonic() + _MOST_SECONDS
    by_source, covered, sample_bytes = defaultdict[MixtureSource | None, _Measured](_Measured), 0.0, 0.0
    for sample in read_samples(inputs, config.text):
        measured = _measure(job, sample)
        covered += sample.stands_for
        sample_bytes += measured.text_bytes
        by_source[sample.source].add(measured, sample.factor)
        if time.monotonic() > deadline:
            break
    if not sum(one.tokens for one in by_source.values()):
        return None
    scale = sum(item.size for item in inputs) / covered  # over 1 if the time was up
    return _sum(by_source, config, scale, sample_bytes)


def count_requests(found: BuildEstimate, inputs: Sequence[Input], num_tasks: int, out: Path) -> int:
    """About how many requests a store of objects gets; 0 if all lies on disks. num_tasks: of map."""
    reads = sum(1 + -(-item.size // READ_BYTES) for item in inputs if is_remote(item.path))
    if not is_remote(out):
        return reads
    num_runs, num_shards = max(num_tasks, found.work_bytes // RUN_BYTES, 1), max(found.shard_bytes // SHARD_BYTES, 1)
    shuffle = Shuffle.plan([found.shard_bytes // num_shards] * num_shards, num_runs)
    # The puts of each run with its receipt; of each shard with its own, a copy and a removal.
    return reads + shuffle.num_reads + 2 * num_runs + 4 * num_shards


def _measure(job: MakeRows, sample: Sample) -> _Measured:
    receipt, made = Made(), _Measured()
    task = ReadTask(name="", text=sample.text)
    for _, documents in job.tokenise(sample.block, receipt, task) if sample.block else ():
        rows = job.make_rows(documents, 0, receipt.seconds).examples
        num_tokens, num_masked = len(rows.input_ids), len(rows.masked_ids)
        made.rows += len(rows)
        made.row_bytes += measure_rows(len(rows), num_tokens, num_masked, rows.input_ids.itemsize)
    for name in ("documents", "text_bytes", "tokens"):
        setattr(made, name, receipt.counts[name])
    return made


def _sum(
    by_source: Mapping[MixtureSource | None, _Measured], config: BuildConfig, scale: float, sample_bytes: float
) -> BuildEstimate:
    """Add up the sources, each with the passes that it gets. scale: from what was measured to the corpus."""
    total, rows, shard_bytes, work_bytes = _Measured(), 0.0, 0.0, 0.0
    dupe_factor = config.examples.dupe_factor
    sizes = {source: scale * one.tokens for source, one in by_source.items() if source and source.alpha is not None}
    shares = share_tokens(sizes)
    for source, measured in by_source.items():
        made = dupe_factor if source is None else source.count_limit(dupe_factor) / ONE_PASS
        if source in shares:
            made = dupe_factor * shares[source] / max(sizes[source], 1.0)
        budget = source.tokens if source else None
        kept = made if budget is None else made * min(1.0, budget / max(scale * measured.tokens, 1.0))
        total.add(measured, scale)
        rows += scale * kept * measured.rows
        shard_bytes += scale * kept * measured.row_bytes
        work_bytes += scale * made * measured.row_bytes
    return BuildEstimate(
        sample_bytes=int(sample_bytes),
        documents=round(total.documents),
        text_bytes=round(total.text_bytes),
        tokens=round(total.tokens),
        rows=round(rows),
        shard_bytes=round(shard_bytes),
        work_bytes=round(work_bytes),
    )
