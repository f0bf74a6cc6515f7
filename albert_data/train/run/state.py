"""The state of a training, which each update reads and changes. session.py makes, saves and restores it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from albert_data.train.config import TrainConfig
from albert_data.train.distributed import Ranks
from albert_data.train.folder import Identity
from albert_data.train.model.model import Albert
from albert_data.train.model.precision import Precision
from albert_data.train.run.metrics import Tally


@dataclass(frozen=True, kw_only=True)
class Initial:
    """Weights to begin with.

    model: on the CPU.
    tokenizer_sha256: of the tokenizer that they were trained with; None if unknown.
    origin: where they are from, for messages.
    """

    model: Albert
    tokenizer_sha256: str | None
    origin: Path


@dataclass(kw_only=True)
class Session:
    """The state between two updates, and what an update needs beside its batches.

    identity: everything that decides the weights (folder.py).
    network: the model, inside DistributedDataParallel if there are several ranks.
    scaler: of the loss in float16; in all formats it skips updates whose gradients are not finite.
    tally: the sums since the last line of metrics.
    obstacle: why the model is not compiled although the settings ask for it.
    step: the number of updates made.
    """

    config: TrainConfig
    precision: Precision
    ranks: Ranks
    identity: Identity
    model: Albert
    network: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    tally: Tally
    is_compiled: bool = False
    obstacle: str | None = None
    step: int = 0
