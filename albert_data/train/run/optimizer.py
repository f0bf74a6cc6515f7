"""AdamW of PyTorch, LAMB as in Google's code, Muon, and the learning rate of each step.

Biases and LayerNorms have no decay.
AdamW corrects the bias of its means, which Google's code for BERT does not.
LAMB (You et al. 2020; ALBERT, section 4.1), as the released code has it: Adam without bias correction, the decay is
added to the update, and each matrix's update is multiplied by |matrix| / |update|, or by 1 if one of the norms is 0.
Biases and LayerNorms are not scaled. Query, key and value are three matrices in Google's code and one parameter here,
so each third has its own ratio.
Muon (Jordan et al. 2024): the update of a matrix is its momentum made orthogonal, so that all directions change alike.
Its elements are scaled to a root mean square of 0.2, about that of Adam (Liu et al. 2025, section 2.2), so both share a
rate. Only the layers' matrices are updated so; embeddings, heads, biases and LayerNorms follow Adam.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from albert_data.train.config import TrainConfig

PACKED = {"qkv.weight": 3}  # suffix of a parameter's name -> number of matrices in it
MUON_MOMENTUM = 0.95
MUON_RMS = 0.2


class _ByParameter(torch.optim.Optimizer):
    """An optimiser whose update of a parameter depends on no other parameter."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # it returns no loss
        """Make one step. closure: a parameter that PyTorch's optimisers have; it must be None."""
        if closure is not None:
            raise TypeError(f"{type(self).__name__} takes no closure")
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._step_parameter(group, p, p.grad)

    def _step_parameter(self, group: dict[str, Any], p: Tensor, gradient: Tensor) -> None:
        """Update one parameter in place. Each optimiser has its own rule."""
        raise NotImplementedError


class Lamb(_ByParameter):
    """LAMB. num_blocks of a group: the matrices in each of its parameters, one after another; 0 for vectors."""

    def _step_parameter(self, group: dict[str, Any], p: Tensor, gradient: Tensor) -> None:
        state, (beta1, beta2) = self.state[p], group["betas"]
        if not state:
            state.update(exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
        mean = state["exp_avg"].lerp_(gradient, 1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        update = mean / square.sqrt().add_(group["eps"])
        if group["weight_decay"]:
            update.add_(p, alpha=group["weight_decay"])
        if group["num_blocks"]:
            _scale_to(update, p, group["num_blocks"])
        p.add_(update, alpha=-group["lr"])


def _scale_to(update: Tensor, weights: Tensor, num_blocks: int) -> None:
    """Scale each block of an update to the norm of its weights, in place, unless one of the two norms is 0."""
    for block, weight_block in zip(update.chunk(num_blocks), weights.chunk(num_blocks), strict=True):
        norm, update_norm = torch.linalg.vector_norm(weight_block), torch.linalg.vector_norm(block)
        # On the device: reading the norms on the CPU would wait for the GPU.
        block.mul_(torch.where((norm > 0) & (update_norm > 0), norm / update_norm, 1.0))


class Muon(_ByParameter):
    """Muon, and Adam for groups without blocks. dtype of a group: in which matrices are multiplied."""

    def _step_parameter(self, group: dict[str, Any], p: Tensor, gradient: Tensor) -> None:
        state, (beta1, beta2), blocks = self.state[p], group["betas"], group["num_blocks"]
        if not state:
            state.update(step=torch.zeros(()), exp_avg=torch.zeros_like(p))
            if not blocks:
                state["exp_avg_sq"] = torch.zeros_like(p)
        state["step"] += 1
        p.mul_(1 - group["lr"] * group["weight_decay"])
        if blocks:
            mean = state["exp_avg"].lerp_(gradient, 1 - MUON_MOMENTUM)
            ahead = gradient.lerp(mean, MUON_MOMENTUM)  # Nesterov's
            update = torch.cat([make_orthogonal(block, group["dtype"]) for block in ahead.chunk(blocks)])
        else:
            steps = int(state["step"])
            mean = state["exp_avg"].lerp_(gradient, 1 - beta1)
            square = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            update = mean / (1 - beta1**steps) / (square / (1 - beta2**steps)).sqrt().add_(group["eps"])
        p.add_(update, alpha=-group["lr"])


def make_orthogonal(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """Bring the singular values of a matrix near 1 by five steps of Newton and Schulz, then scale it to an RMS of 0.2.

    The coefficients (Jordan et al. 2024) are for speed: the values end between 0.7 and 1.2. dtype: of the products.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if is_tall else matrix).to(dtype)
    x = x / (torch.linalg.vector_norm(x) + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    # An orthogonal matrix has an RMS of 1 / sqrt(its longer side).
    scaled: Tensor = (x.T if is_tall else x).to(matrix.dtype) * (MUON_RMS * max(matrix.shape) ** 0.5)
    return scaled


def make_optimizer(model: nn.Module, config: TrainConfig, *, is_bf16: bool = False) -> torch.optim.Optimizer:
    """Make the optimiser of the settings. Biases and LayerNorms are the vectors among the parameters.

    is_bf16: whether the device multiplies bfloat16 fast; Muon then does so. Elsewhere that can be forty times as slow.
    """
    matrices: dict[int, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            matrices.setdefault(_count_blocks(name, config.optimizer), []).append(parameter)
    groups = [{"params": p, "num_blocks": n, "weight_decay": config.weight_decay} for n, p in sorted(matrices.items())]
    groups.append({"params": [p for p in model.parameters() if p.ndim <= 1], "num_blocks": 0, "weight_decay": 0.0})
    settings: dict[str, Any] = {"lr": config.lr, "betas": (config.beta1, config.beta2), "eps": config.epsilon}
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, **settings, fused=True)
    if config.optimizer == "muon":
        return Muon(groups, {**settings, "dtype": torch.bfloat16 if is_bf16 else torch.float32})
    return Lamb(groups, settings)


def _count_blocks(name: str, optimizer: str) -> int:
    """The number of matrices in a parameter, one after another in the first dimension; 0 if it follows Adam."""
    if optimizer == "adamw" or (optimizer == "muon" and not name.startswith("encoder.")):
        return 0
    return next((count for end, count in PACKED.items() if name.endswith(end)), 1)


def lr_at(done: float, total: float, config: TrainConfig, *, per_step: float = 1) -> float:
    """The learning rate of the step that begins when `done` of `total` is done.

    It rises to `lr` in the warm-up, then falls linearly to 0. per_step: how much one step adds to `done`. A step of the
    warm-up uses the rate of its end, done + per_step, so that the rate of the first step is not 0.
    """
    # The warm-up is a whole number of steps.
    warmup = round(config.warmup_share * total / per_step) * per_step
    if done < warmup:
        return config.lr * min(1.0, (done + per_step) / warmup)
    return config.lr * max(0.0, (total - done) / (total - warmup)) if total > warmup else config.lr
