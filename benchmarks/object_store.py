"""What a store of objects adds to a build on a cluster: requests, the seconds that they take, and dollars.

Sources, for S3 Standard in us-east-1:
    rates, time to answer   https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html
    deletes in batches      https://hadoop.apache.org/docs/current/api/org/apache/hadoop/fs/BulkDelete.html: each object
                            of a batch counts as one write
    prices                  https://aws.amazon.com/s3/pricing: a HEAD as a GET; COPY, POST and LIST as a PUT; no DELETE
Rates are those of a partition of names. S3 makes more while many requests come, and answers with 503 until then; it
does not say how soon.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from albert_data.storage import objects

GET_RATE, PUT_RATE = 5_500, 3_500  # requests a second, of a partition; deletes are counted with puts
ANSWER_SECONDS = 0.1  # S3 documents 0.1 to 0.2, for small objects and for the first byte of others
GET_DOLLARS, PUT_DOLLARS = 0.4e-6, 5e-6
AT_ONCE = 32  # requests of one process, where the code makes several at once
FIRST_READ_BYTES, READ_BYTES = 64 << 10, 8 << 20  # of a file that is read in order; reads double between them
_SHARDS_OF_TASK, _RECEIPTS_OF_TASK = 100, 1_000  # to publish, to read


class StepRequests(NamedTuple):
    """The requests of a step. gets_spread, puts_spread: whether over all partitions, or all to one."""

    gets: int
    puts: int
    gets_spread: bool = False
    puts_spread: bool = False

    @property
    def dollars(self) -> float:
        return self.gets * GET_DOLLARS + self.puts * PUT_DOLLARS

    def least_seconds(self, num_partitions: int) -> float:
        """What the store needs to answer all, at its documented rates."""
        gets = self.gets / GET_RATE / (num_partitions if self.gets_spread else 1)
        return max(gets, self.puts / PUT_RATE / (num_partitions if self.puts_spread else 1))


def count_puts(num_bytes: float) -> int:
    """Requests that write an object: one, or an upload's parts, its begin and its end."""
    return 1 if num_bytes < objects.PART_BYTES else 2 + -int(-num_bytes // objects.PART_BYTES)


def measure_publishing(num_shards: int, num_cpus: int, *, by_tasks: bool) -> float:
    """Seconds of HEAD, COPY and DELETE of all shards, and a listing. by_tasks: on all CPUs, else by one process."""
    rounds = 3 * ceil(num_shards / AT_ONCE)
    if by_tasks:
        rounds = ceil(num_shards / _SHARDS_OF_TASK / num_cpus) * (2 * ceil(_SHARDS_OF_TASK / AT_ONCE) + 1)
    seconds = max(rounds * ANSWER_SECONDS, StepRequests(num_shards, 2 * num_shards).least_seconds(1))
    return seconds + ceil(num_shards / 1000) * ANSWER_SECONDS


def measure_cleaning(num_files: int, *, in_batches: bool) -> float:
    """Seconds to delete what `.build` holds, a file or 1,000 by a request."""
    rounds = ceil(num_files / AT_ONCE / (1000 if in_batches else 1))
    return max(rounds * ANSWER_SECONDS, num_files / PUT_RATE)


def measure_resuming(num_runs: int, num_merged: int, num_shards: int, num_cpus: int, *, by_tasks: bool) -> float:
    """Seconds of requests after a kill just before publishing: listings, receipts of runs and of shards.

    by_tasks: receipts of shards on all CPUs, those of runs by one process; else of shards by one process, and of runs
    in turn, two reads each, with a HEAD for each run.
    """
    rounds = sum(ceil(number / 1000) for number in (num_runs, num_runs + num_merged, num_shards, num_shards))
    if not by_tasks:
        return (rounds + 3 * num_runs + ceil(num_shards / AT_ONCE)) * ANSWER_SECONDS
    rounds += ceil(num_runs / AT_ONCE)
    waves = ceil(num_shards / _RECEIPTS_OF_TASK / num_cpus)
    read = max(waves * ceil(_RECEIPTS_OF_TASK / AT_ONCE) * ANSWER_SECONDS, num_shards / GET_RATE)
    return rounds * ANSWER_SECONDS + read
