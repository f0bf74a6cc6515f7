"""How long 20 GB would take on more cores: computed from the figures measured, with what it assumes.

Assumed: a core is as fast as the one measured, and cores lose what the largest number measured has lost. Whether
disk and memory keep up is set beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.results import OURS, Measurement

CORPUS_BYTES = 20e9
CORES = (2, 64)
# A generous bound, counted: text read, segmented, copied and hashed (10 passes), two cache lines of 64 bytes for
# each chunk of five bytes that is looked up, and tokens through pairing, masking, runs, reducing and shards (15).
MEMORY_BYTES_PER_BYTE = 50
WRITES = 2  # a row is written to a run, then to a shard
LDDL_NODES, LDDL_CORES, LDDL_MINUTES = 32, 128, 2  # DGX A100: two EPYC 7742 of 64 cores


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """cores: how many; efficiency: of each against one alone, as measured on `measured_cores`.

    rate: MB of text a second; write_rate: MB a second to the disk; memory_rate: MB a second to and from memory.
    """

    cores: int
    measured_cores: int
    efficiency: float
    linear_minutes: float
    minutes: float
    rate: float
    write_rate: float
    memory_rate: float


def find_efficiencies(scaling: list[Measurement], work: str) -> dict[int, float]:
    """The share of linear scaling that each number of workers reached."""
    rates = {int(row.figures["workers"]): row.timings[OURS].rate for row in scaling if row.work == work}
    alone = rates.get(1)
    return {workers: rate / alone / workers for workers, rate in rates.items() if rate and alone}


def estimate(build: Measurement, scaling: list[Measurement]) -> Iterator[Estimate]:
    """For each of CORES. build: with one worker, of prose; scaling: none if it was not measured."""
    rate = build.timings[OURS].rate
    if not rate:
        return
    efficiencies = find_efficiencies(scaling, build.work.removeprefix("build of ")) or {1: 1.0}
    shard_share = build.figures["shard_bytes"] / build.figures["text_bytes"]
    for cores in CORES:
        measured = max((workers for workers in efficiencies if workers <= cores), default=1)
        total = rate * cores * efficiencies[measured]
        yield Estimate(
            cores=cores,
            measured_cores=measured,
            efficiency=efficiencies[measured],
            linear_minutes=CORPUS_BYTES / 1e6 / (rate * cores) / 60,
            minutes=CORPUS_BYTES / 1e6 / total / 60,
            rate=total,
            write_rate=total * shard_share * WRITES,
            memory_rate=total * MEMORY_BYTES_PER_BYTE,
        )
