"""Cuts batches so that they fit in memory: docs/explanation/architecture.md says how.

The bytes that a token needs are measured uncompiled, so that no shape is compiled that the run does not use. Compiled,
layers keep 2 % less (counted: 41.7 bytes an element and layer instead of 42.4 in bfloat16), and the loss much less.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from albert_data.errors import ConfigError
from albert_data.text.wording import count_of
from albert_data.train.data.batch import Batch, empty_batch
from albert_data.train.data.loader import ShardLoader
from albert_data.train.run.state import Session

PROBE_TOKENS = 2048
MAX_TOKENS = 131_072  # at once: more make an update no faster
CPU_TOKENS = 8192  # the same on a CPU, of which no program can tell beforehand that its memory runs out
MAX_ELEMENTS = 2**31 - 1  # of a tensor: many kernels count elements in 32 bits
USED_SHARE = 0.9  # of the free memory; the rest is for fragments, and for the rare batches with many masks


def free_bytes(device: torch.device) -> int | None:
    """The bytes that can still be allocated on a GPU. None for a CPU."""
    if device.type == "cpu":
        return None
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def peak_gb(device: torch.device) -> dict[str, float]:
    """The most GPU memory that tensors took so far, in GB, as a part of a metrics line; empty for a CPU."""
    return {} if device.type == "cpu" else {"peak_gb": round(torch.cuda.max_memory_allocated(device) / 1e9, 2)}


def fit_batches(session: Session, loader: ShardLoader) -> list[str]:
    """Set micro_tokens for the fewest micro-batches that fit on every rank's GPU, and return a line about it.

    On a CPU these have at most CPU_TOKENS. Changes nothing if the user chose micro_tokens, or if a step has no more
    tokens than that, or than would be measured.
    """
    longest, whole = loader.longest, loader.count_micro_tokens(1)
    num_rows = max(1, PROBE_TOKENS // longest)
    is_cpu = free_bytes(session.precision.device) is None
    if session.config.micro_tokens or whole <= (CPU_TOKENS if is_cpu else 2 * num_rows * longest):
        return []
    if is_cpu:
        parts, tokens = _divide(session, loader, CPU_TOKENS)
        return [f"memory      {parts} a step, of {tokens:,} tokens: more make a CPU no faster"]
    # Before the first step the optimiser has no state yet. It will need two tensors for each parameter.
    constant = 0 if session.optimizer.state else 2 * sum(p.nbytes for p in session.model.parameters())
    try:
        batches = [empty_batch(loader.shape(count, longest)) for count in (num_rows, 2 * num_rows)]
        with torch.compiler.set_stance("force_eager"):
            less, more = (_measure_peak(session, batch) for batch in batches)
        per_token, constant = max(1, more - less) / (num_rows * longest), constant + max(0, 2 * less - more)
    except torch.cuda.OutOfMemoryError:
        per_token = math.inf  # one row at a time is left to try
    free = free_bytes(session.precision.device) or 0  # the gradients are there, as in all micro-batches but the first
    session.optimizer.zero_grad()
    limit = (USED_SHARE * free - constant) / per_token
    parts, tokens = _divide(session, loader, min(limit, _most_tokens(loader, session.model.config.vocab_size)))
    need = "an unknown part" if math.isinf(per_token) else f"{(constant + per_token * tokens) / 1e9:.1f}"
    return [f"memory      {parts} a step, of {tokens:,} tokens: {need} of {free / 1e9:.1f} GB that are free on the GPU"]


def _divide(session: Session, loader: ShardLoader, limit: float) -> tuple[str, int]:
    """Set micro_tokens, at most `limit` on every rank if a row has no more. Return how many micro-batches, and it."""
    counts = range(1, -(-loader.count_micro_tokens(1) // loader.longest) + 1)
    num_batches = next((count for count in counts if loader.count_micro_tokens(count) <= limit), counts[-1])
    num_batches = int(max(session.ranks.gather(num_batches)))
    loader.micro_tokens = loader.count_micro_tokens(num_batches)
    return count_of(num_batches, "micro-batch", "micro-batches"), loader.micro_tokens


def _most_tokens(loader: ShardLoader, vocab_size: int) -> int:
    """The most tokens of a micro-batch whose logits, one for each masked token and piece, a kernel can count."""
    num_rows = max(1, MAX_TOKENS // loader.longest)  # a pack may be longer
    per_masked = num_rows * loader.longest / loader.shape(num_rows, loader.longest).mask_capacity
    return int(min(MAX_TOKENS, per_masked * (MAX_ELEMENTS // vocab_size)))


def _measure_peak(session: Session, batch: Batch) -> int:
    """The most bytes that forward and backward of a micro-batch take at once, without weights and gradients."""
    device = session.precision.device
    batch = batch.to(device)
    for _ in range(2):  # the first time, the gradients are made
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        with session.precision.autocast():
            output = session.model(batch)
        (output.mlm_nats + output.sop_nats).backward()
        del output
    return torch.cuda.max_memory_allocated(device) - before


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
        advice = "" if session.config.recompute else "--resume with --recompute, or "
        if (pack := loader.order.pack) is not None and pack.longest < pack.pack_len:  # such a run pads its rows
            advice += f"start another run with --micro-tokens {pack.longest}, or "
        raise ConfigError(f"{what}; {advice}start another run with a smaller --preset") from error
    if session.ranks.num_ranks > 1:
        raise ConfigError(f"{what}; --resume with --micro-tokens {smaller}") from error
    loader.micro_tokens = smaller
    return f"step {session.step + 1:,}: {what}; from now on at most {smaller:,} tokens are computed at once"
