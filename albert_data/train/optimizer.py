"""AdamW as in BERT, LAMB as in Google's code, and the learning rate of each step.

LAMB (You et al. 2020; ALBERT, section 4.1), as the released code has it: Adam without bias correction, the decay is
added to the update, and each matrix's update is multiplied by |matrix| / |update|, or by 1 if one of the norms is 0.
Biases and LayerNorms have no decay and no scaling. Query, key and value are three matrices in Google's code and one
parameter here, so each third has its own ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from albert_data.train.config import TrainConfig

PACKED = {"qkv.weight": 3}  # suffix of a parameter's name -> number of matrices in it


class Lamb(torch.optim.Optimizer):
    """LAMB over groups of parameters, with a few GPU calls for each group, however many parameters it has.

    num_blocks of a group: how many matrices each of its parameters holds, one after another in the first dimension.
    is_adapted: whether updates are scaled to the weights.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "num_blocks": 1, "is_adapted": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make one step. closure: a parameter that PyTorch's optimisers have; it must be None."""
        if closure is not None:
            raise TypeError("Lamb takes no closure")
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._step_group(group, params)

    def _step_group(self, group: dict[str, Any], params: list[Tensor]) -> None:
        for p in params:
            if not self.state[p]:
                self.state[p] = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        means = [self.state[p]["exp_avg"] for p in params]
        squares = [self.state[p]["exp_avg_sq"] for p in params]
        gradients: list[Tensor] = [p.grad for p in params if p.grad is not None]
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, group["eps"])
        updates: list[Tensor] = list(torch._foreach_div(means, roots))
        if group["weight_decay"]:
            torch._foreach_add_(updates, params, alpha=group["weight_decay"])
        if group["is_adapted"]:
            _scale_to(updates, params, group["num_blocks"])
        torch._foreach_add_(params, updates, alpha=-group["lr"])


def _scale_to(updates: list[Tensor], params: list[Tensor], num_blocks: int) -> None:
    """Scale each block of the updates to the norm of its weights, in place, unless one of the two norms is 0."""
    blocks = [block for update in updates for block in update.chunk(num_blocks)]
    norms = torch.stack(torch._foreach_norm([block for p in params for block in p.chunk(num_blocks)]))
    update_norms = torch.stack(torch._foreach_norm(blocks))
    ratios = torch.where((norms > 0) & (update_norms > 0), norms / update_norms, 1.0)
    torch._foreach_mul_(blocks, list(ratios.unbind()))


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Make the optimiser. Matrices decay; biases and LayerNorms, which are vectors, do not."""
    betas = (config.beta1, config.beta2)
    if config.optimizer == "adamw":
        parameters = list(model.parameters())
        groups = [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config.weight_decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=config.lr, betas=betas, eps=config.epsilon, fused=True)
    matrices: dict[int, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            matrices.setdefault(_count_blocks(name), []).append(parameter)
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    return Lamb(
        [
            *({"params": params, "num_blocks": count} for count, params in sorted(matrices.items())),
            {"params": vectors, "weight_decay": 0.0, "is_adapted": False},
        ],
        lr=config.lr,
        betas=betas,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
    )


def _count_blocks(name: str) -> int:
    return next((count for end, count in PACKED.items() if name.endswith(end)), 1)


def lr_at(done: float, total: float, config: TrainConfig, *, per_step: float = 1) -> float:
    """The learning rate when `done` of `total` is done: it rises to `lr` in the warm-up, then falls linearly to 0.

    per_step: how much one step adds to `done`. In the warm-up a step uses the rate of its end, so the first is not 0.
    """
    warmup = round(config.warmup_share * total / per_step) * per_step
    if done < warmup:
        return config.lr * min(1.0, (done + per_step) / warmup)
    return config.lr * max(0.0, (total - done) / (total - warmup)) if total > warmup else config.lr
