"""One process a GPU, as torchrun starts them; or the only one.

What the processes have to agree on at each step (counts, the clock, whether to stop) goes over the CPU by gloo, so
that no GPU is waited for; gradients go over NCCL, or by gloo on CPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from albert_data.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among its like."""

    rank: int = 0
    num_ranks: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sums over all ranks, the same on each."""
        if self.num_ranks == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return [float(value) for value in total]

    def wait(self) -> None:
        """Until all ranks are here."""
        self.sum([0.0])


ALONE = Ranks()


def read_ranks() -> Ranks:
    """What torchrun says in the environment; without it, one rank. Raises ConfigError where that makes no sense."""
    try:
        values = {name: int(os.environ.get(name.upper(), default)) for name, default in _VARIABLES.items()}
    except ValueError as error:
        raise ConfigError(f"the environment of torchrun is damaged: {error}") from error
    return Ranks(rank=values["rank"], num_ranks=values["world_size"], local_rank=values["local_rank"])


_VARIABLES = {"rank": 0, "world_size": 1, "local_rank": 0}


@contextmanager
def join_ranks(device_type: str) -> Iterator[Ranks]:
    """Meet the other ranks, and leave them at the end."""
    ranks = read_ranks()
    if ranks.num_ranks == 1:
        yield ranks
        return
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo")
    except (ValueError, RuntimeError) as error:
        raise ConfigError(
            f"WORLD_SIZE is {ranks.num_ranks}, but the processes don't meet: {error}; start them by torchrun"
        ) from error
    try:
        yield ranks
    finally:
        dist.destroy_process_group()
