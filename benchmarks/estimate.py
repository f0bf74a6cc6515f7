"""Estimates how long 20 GB would take on more cores, from the measured figures.

Assumptions: each core is as fast as the measured one, and the efficiency is that of the largest measured number of
cores. The needed rates of disk and memory are computed too, to compare them with the machine's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.results import OURS, Measurement

CORPUS_BYTES = 20e9
CORES = (2, 64)
# A generous upper bound for each byte of text: reading, segmenting, copying and hashing read it 10 times; looking up a
# chunk of five bytes loads two cache lines of 64 bytes (25 a byte); pairing, masking, sorted runs, reducing and shards
# move the tokens (15).
MEMORY_BYTES_PER_BYTE = 50
WRITES = 2  # a row is written to a sorted run, then to a shard
LDDL_NODES, LDDL_CORES, LDDL_MINUTES = 32, 128, 2  # DGX A100: two EPYC 7742 of 64 cores


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """efficiency: the speed of each core relative to a single one, as measured on `measured_cores`.

    rate: MB of text a second; write_rate: MB a second to disk; memory_rate: MB a second to and from memory.
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
    """Return, by number of workers, the reached share of linear scaling."""
    rates = {int(row.figures["workers"]): row.timings[OURS].rate for row in scaling if row.work == work}
    alone = rates.get(1)
    return {workers: rate / alone / workers for workers, rate in rates.items() if rate and alone}


def estimate(build: Measurement, scaling: list[Measurement]) -> Iterator[Estimate]:
    """Yield an estimate for each of CORES. build: of prose with one worker; scaling: empty if not measured."""
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
