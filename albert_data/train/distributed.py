"""The processes of a training run: one for each GPU, as torchrun starts them, or a single one.

At each step the processes agree on counts, the clock and whether to stop. They exchange these by gloo on the CPU, so
that nobody waits for a GPU. Gradients go over NCCL, or by gloo on CPUs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from albert_data.errors import ConfigError, WorkerError

# Of an exchange: the first process may evaluate, save and write the page meanwhile.
TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The processes of a run.

    rank: the number of this process, from 0.
    num_ranks: how many there are.
    local_rank: the number of this process on its machine, and of its GPU.
    """

    rank: int = 0
    num_ranks: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the sums over all ranks, the same on each."""
        if self.num_ranks == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return [float(value) for value in total]

    def follow_first(self, measure: Callable[[], float]) -> float:
        """Return what the first rank measures, on every rank: its clock and its files decide for all."""
        return self.sum([measure() if self.is_first else 0.0])[0]

    def gather(self, value: float) -> list[float]:
        """Return the values of all ranks in their order, the same on each."""
        return self.sum([value if rank == self.rank else 0.0 for rank in range(self.num_ranks)])

    def gather_hashes(self, text: str) -> list[float]:
        """Return a hash of each rank's text. It has 48 bits, which a float holds exactly."""
        return self.gather(int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big"))

    def wait(self) -> None:
        """Wait until all ranks have come here."""
        self.sum([0.0])


ALONE = Ranks()


def read_ranks() -> Ranks:
    """Read torchrun's environment variables; without them there is one rank. Raises ConfigError for a bad value."""
    names = {"rank": "RANK", "num_ranks": "WORLD_SIZE", "local_rank": "LOCAL_RANK"}
    try:
        return Ranks(**{field: int(os.environ[name]) for field, name in names.items() if name in os.environ})
    except ValueError as error:
        raise ConfigError(f"the environment of torchrun is damaged: {error}") from error


@contextmanager
def join_ranks(device_type: str) -> Iterator[Ranks]:
    """Connect to the other ranks, and disconnect at the end."""
    ranks = read_ranks()
    if ranks.num_ranks == 1:
        yield ranks
        return
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo", timeout=TIMEOUT)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(
            f"WORLD_SIZE is {ranks.num_ranks}, but the processes can't connect: {error}; start them with torchrun; on "
            "several machines set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the network interface between them"
        ) from error
    try:
        yield ranks
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        raise WorkerError(
            f"process {ranks.rank} of {ranks.num_ranks} lost the connection to another one, whose message says why; "
            "start all of them again with --resume"
        ) from error
    # Not after an error: it may wait for ever for a process that is gone.
    dist.destroy_process_group()


def _is_lost(error: RuntimeError) -> bool:
    """Whether an exchange failed because of another process. gloo has no class of errors of its own."""
    return isinstance(error, dist.DistBackendError) or "gloo" in str(error)
