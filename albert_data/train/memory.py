"""Cuts batches so that they fit in the memory of a GPU.

A micro-batch that did not fit is halved, as long as it has several rows, and the same step is made again.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from albert_data.errors import ConfigError
from albert_data.train.loader import ShardLoader

if TYPE_CHECKING:  # it imports this module
    from albert_data.train.session import Session


@contextmanager
def explain_out_of_memory(device_info: str) -> Iterator[None]:
    """Turn running out of GPU memory for the weights or the optimiser's state into a ConfigError."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise ConfigError(
            f"the weights and the optimiser's state do not fit on {device_info}; end other programs that use it, "
            "or start another run with a smaller --preset"
        ) from error


def halve_batches(session: Session, loader: ShardLoader, shape: tuple[int, int], error: BaseException) -> str:
    """Make the loader's micro-batches smaller, and return a line that says so.

    error: the OutOfMemoryError of a micro-batch of `shape`, rows and length.
    Raises ConfigError if smaller ones are impossible, or if there are several ranks: the others wait for the gradients
    of this step.
    """
    traceback.clear_frames(error.__traceback__)  # the frames refer to the activations
    session.optimizer.zero_grad()
    torch.cuda.empty_cache()
    num_rows, row_len = shape
    smaller = max(loader.longest, num_rows * row_len // 2)
    what = f"a batch of {num_rows * row_len:,} tokens, in rows of {row_len}, does not fit on "
    what += session.precision.device_info
    if smaller >= num_rows * row_len:
        raise ConfigError(f"{what}; start another run with a smaller --preset") from error
    if session.ranks.num_ranks > 1:
        raise ConfigError(f"{what}; --resume with --micro-tokens {smaller}") from error
    loader.micro_tokens = smaller
    return f"step {session.step + 1:,}: {what}; from now on at most {smaller:,} tokens are computed at once"
