"""Measures how much each layer changes its input (Lan et al. 2020, section 3.1, figure 1).

In: a checkpoint and validation rows. Out: for each layer the L2 distance and the cosine similarity between its input
and its output, means over the tokens that are not padding. The paper finds that with shared layers these figures change
smoothly from layer to layer, and that the distance does not converge to 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albert_data.errors import CheckpointError, ShardError
from albert_data.train.data.loader import Rows
from albert_data.train.data.order import padded_len
from albert_data.train.model.checkpoint import list_checkpoints, load_model
from albert_data.train.model.model import Albert
from albert_data.train.run.evaluation import fixed_batches

BATCH_TOKENS = 16_384
NUM_ROWS = 256


@dataclass(frozen=True, kw_only=True)
class Layers:
    """For each layer, beginning with the first: mean L2 distance and cosine similarity of its input and output."""

    name: str
    distances: tuple[float, ...]
    similarities: tuple[float, ...]


def measure_run(run: Path, shards: Rows, *, num_rows: int = NUM_ROWS) -> Layers:
    """Measure the newest checkpoint of a run.

    Raises CheckpointError if it has none, has another vocabulary, or has too few positions for the rows.
    """
    checkpoints = list_checkpoints(run)
    if not checkpoints:
        raise CheckpointError(f"{run}: the run has no checkpoint yet; wait for its first")
    model = load_model(checkpoints[-1])
    if model.config.vocab_size != shards.manifest.tokenizer.vocab_size:
        raise CheckpointError(
            f"{run}: has {model.config.vocab_size:,} pieces, but the shards have "
            f"{shards.manifest.tokenizer.vocab_size:,}; give the shards that it was trained on"
        )
    longest = padded_len(int(shards.lengths[:num_rows].max(initial=1)))
    if longest > model.config.max_positions:
        raise CheckpointError(
            f"{run}: has {model.config.max_positions:,} positions, but rows of the shards need {longest:,}; "
            "give the shards that it was trained on"
        )
    distances, similarities = measure_layers(model, shards, num_rows=num_rows)
    return Layers(name=str(run), distances=tuple(distances), similarities=tuple(similarities))


@torch.no_grad()
def measure_layers(model: Albert, shards: Rows, *, num_rows: int) -> tuple[list[float], list[float]]:
    """Mean L2 distances and cosine similarities of each layer over the first rows of a split."""
    totals = np.zeros((model.config.num_layers, 2))  # distance and similarity
    num_tokens = 0
    for batch in fixed_batches(shards, num_rows=num_rows, batch_tokens=BATCH_TOKENS):
        real_BT = batch.valid_BT.clone()
        real_BT[len(batch.rows) :] = False
        with record_states(model) as states:
            model.encode(batch)
        states = states[:: model.config.num_inner_groups]  # of a layer, the output of its last inner layer
        for layer, (before, after) in enumerate(zip(states, states[1:], strict=False)):
            x_NH, y_NH = before[real_BT].double(), after[real_BT].double()  # N: here the real tokens
            totals[layer] += (float((y_NH - x_NH).norm(dim=1).sum()), float(F.cosine_similarity(x_NH, y_NH).sum()))
        num_tokens += int(real_BT.sum())
    if not num_tokens:
        raise ShardError("there are no rows to measure layers on; build the shards with --validation-fraction")
    means = totals / num_tokens
    return means[:, 0].tolist(), means[:, 1].tolist()


@contextmanager
def record_states(model: Albert) -> Iterator[list[Tensor]]:
    """Collect the input of the first layer and the output of every inner layer, each time that the model runs."""
    states: list[Tensor] = []

    def keep(module: object, arguments: object, x_BTH: Tensor) -> None:
        states.append(x_BTH)

    hooks = [module.register_forward_hook(keep) for module in (model.embeddings, *model.encoder.ffns)]
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()
