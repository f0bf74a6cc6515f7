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
from albert_data.shards.reader import Shards
from albert_data.train.data.loader import fixed_batches
from albert_data.train.data.order import padded_len
from albert_data.train.model.checkpoint import find_newest, load_model
from albert_data.train.model.model import Albert

BATCH_TOKENS = 16_384
NUM_ROWS = 256


@dataclass(frozen=True, kw_only=True)
class Layers:
    """What each layer of a model does, beginning with the first.

    name: of the run.
    distances: mean L2 distance of a layer's input and output.
    similarities: mean cosine similarity of the same.
    """

    name: str
    distances: tuple[float, ...]
    similarities: tuple[float, ...]


def measure_run(run: Path, shards: Shards) -> Layers:
    """Measure the newest checkpoint of a run.

    Raises CheckpointError if it has none, has another vocabulary, or has too few positions for the rows.
    """
    model = load_model(find_newest(run, "wait for its first"))
    num_pieces, longest = (
        shards.manifest.tokenizer.vocab_size,
        padded_len(int(shards.lengths[:NUM_ROWS].max(initial=1))),
    )
    wrong = ""
    if model.config.vocab_size != num_pieces:
        wrong = f"{model.config.vocab_size:,} pieces, but the shards have {num_pieces:,}"
    elif model.config.max_positions < longest:
        wrong = f"{model.config.max_positions:,} positions, but rows of the shards need {longest:,}"
    if wrong:
        raise CheckpointError(f"{run} has {wrong}; give the shards that it was trained on")
    distances, similarities = measure_layers(model, shards, num_rows=NUM_ROWS)
    return Layers(name=str(run), distances=tuple(distances), similarities=tuple(similarities))


@torch.no_grad()
def measure_layers(model: Albert, shards: Shards, *, num_rows: int) -> tuple[list[float], list[float]]:
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
    hooks = [
        module.register_forward_hook(lambda module, arguments, x_BTH: states.append(x_BTH))
        for module in (model.embeddings, *model.encoder.ffns)
    ]
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()
