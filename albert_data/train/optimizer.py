"""AdamW as BERT sets it up, and the learning rate of each step."""

from __future__ import annotations

import torch
from torch import nn

from albert_data.train.config import TrainConfig


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Decay every matrix; biases and LayerNorms, which are vectors, are left alone."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.adam_eps, fused=True)


def lr_at(step: int, config: TrainConfig) -> float:
    """The rate of update `step`, counted from 0: rises to `lr` in the warm-up, then falls to 0 at the end."""
    warmup_steps = round(config.warmup_share * config.steps)
    if step < warmup_steps:
        return config.lr * (step + 1) / warmup_steps
    return config.lr * (config.steps - step) / (config.steps - warmup_steps)
