"""AdamW of PyTorch, LAMB as in Google's code, and Muon.

Biases and LayerNorms have no decay.
AdamW corrects the bias of its means, which Google's code for BERT does not.
LAMB (You et al. 2020; ALBERT, section 4.1), as the released code has it: Adam without bias correction, the decay is
added to the update, and each matrix's update is multiplied by |matrix| / |update|, or by 1 if one of the norms is 0.
Biases and LayerNorms are not scaled. Query, key and value are three matrices in Google's code and one parameter here,
so each third has its own ratio.
Muon (Jordan et al. 2024): the update of a matrix is its momentum made orthogonal, so that all directions change alike.
Its elements are scaled to a root mean square of 0.2, about that of Adam (Liu et al. 2025, section 2.2), so both share a
rate. Only the layers' matrices are updated so; embeddings, heads, biases and LayerNorms follow Adam.

Settings of a group of parameters, beside those of AdamW:
num_blocks: the matrices in each of its parameters, one after another in the first dimension; 0 for vectors, and for
what Muon updates as Adam does.
dtype: of Muon's products.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from albert_data.train.config import TrainConfig

PACKED = {"qkv.weight": 3}  # suffix of a parameter's name -> number of matrices in it
MUON_MOMENTUM = 0.95
MUON_RMS = 0.2
Group = tuple[dict[str, Any], list[Tensor]]  # settings, and the parameters that have gradients


class FusedOptimizer(torch.optim.Optimizer):
    """An optimiser whose updates are few kernels, and do not wait for the device.

    found_inf: float32 []; above 0, a step changes no weight and no state. None: all gradients are finite.
    """

    found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # it takes none, and returns no loss
        """Make one step."""
        groups = [(group, [p for p in group["params"] if p.grad is not None]) for group in self.param_groups]
        for p in (p for _, params in groups for p in params if not self.state[p]):
            self.state[p] = self.first_state(p)
        self._step_groups([(group, params) for group, params in groups if params])

    def first_state(self, p: Tensor) -> dict[str, Tensor]:
        """The state of a parameter before its first step: float32, on its device."""
        return {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}

    def _step_groups(self, groups: list[Group]) -> None:
        """Update the parameters of each group."""
        raise NotImplementedError

    def _step_adam(self, group: dict[str, Any], params: list[Tensor], outs: list[Tensor], steps: list[Tensor]) -> None:
        """Make a step of AdamW from `outs`, with the gradients and the means of `params`."""
        means, squares = ([self.state[p][name] for p in params] for name in ("exp_avg", "exp_avg_sq"))
        (beta1, beta2), eps, gradients = group["betas"], group["eps"], [p.grad for p in params if p.grad is not None]
        adam = partial(adamw, beta1=beta1, beta2=beta2, eps=eps, amsgrad=False, maximize=False, fused=True)
        settings = {"lr": group["lr"], "weight_decay": group["weight_decay"], "found_inf": self.found_inf}
        adam(outs, gradients, means, squares, [], steps, **settings)

    def _subtract(self, group: dict[str, Any], params: list[Tensor], updates: list[Tensor], decay: float) -> None:
        """Subtract the updates, and the decay of the weights, times the rate."""
        descend = partial(sgd, momentum=0.0, dampening=0.0, nesterov=False, maximize=False, fused=True)
        none: list[Tensor | None] = [None] * len(params)
        descend(params, updates, none, lr=group["lr"], weight_decay=decay, found_inf=self.found_inf)


class AdamW(FusedOptimizer):
    """AdamW of PyTorch."""

    def first_state(self, p: Tensor) -> dict[str, Tensor]:
        return {"step": torch.zeros((), device=p.device), **super().first_state(p)}

    def _step_groups(self, groups: list[Group]) -> None:
        for group, params in groups:
            self._step_adam(group, params, params, [self.state[p]["step"] for p in params])


class Lamb(FusedOptimizer):
    """LAMB."""

    def _step_groups(self, groups: list[Group]) -> None:
        for group, params in groups:
            update = torch.cat([p.flatten() for p in params]).mul_(group["weight_decay"])
            parts = torch.split(update, [p.numel() for p in params])
            updates = [part.view_as(p) for part, p in zip(parts, params, strict=True)]
            # At a rate of -1, Adam's update is added to the decay; after many steps it does not correct the bias.
            many = torch.full((), math.inf, device=update.device)
            self._step_adam({**group, "lr": -1.0, "weight_decay": 0.0}, params, updates, [many] * len(params))
            if blocks := group["num_blocks"]:
                _adapt([p.view(blocks, -1) for p in params], [u.view(blocks, -1) for u in updates])
            self._subtract(group, params, updates, decay=0.0)


def _adapt(weights: list[Tensor], updates: list[Tensor]) -> None:
    """Multiply each row of the updates by |row of weights| / |row|, or by 1 if one of the norms is 0."""
    # On the device: reading the norms on the CPU would wait for the GPU.
    norm, update_norm = (
        torch.cat([torch.linalg.vector_norm(t, dim=1) for t in tensors]) for tensors in (weights, updates)
    )
    ratios = torch.where((norm > 0) & (update_norm > 0), norm / update_norm, 1.0)
    for update, ratio in zip(updates, torch.split(ratios, [len(u) for u in updates]), strict=True):
        update.mul_(ratio[:, None])


class Muon(AdamW):
    """Muon, and AdamW for groups without blocks."""

    def first_state(self, p: Tensor) -> dict[str, Tensor]:
        state = super().first_state(p)
        is_matrix = any(q is p for group in self.param_groups if group["num_blocks"] for q in group["params"])
        return {"exp_avg": state["exp_avg"]} if is_matrix else state

    def _step_groups(self, groups: list[Group]) -> None:
        by_shape: dict[torch.Size, list[tuple[Tensor, int]]] = {}
        super()._step_groups([(group, params) for group, params in groups if not group["num_blocks"]])
        for group, params in groups:
            if blocks := group["num_blocks"]:
                for p in params:
                    by_shape.setdefault(_lay(p, blocks).shape[1:], []).append((p, blocks))
        updates: dict[Tensor, Tensor] = {}
        for members in by_shape.values():
            blocks_KST = torch.cat([_lay(self._look_ahead(p), blocks) for p, blocks in members])
            made_KST = make_orthogonal(blocks_KST, groups[0][0]["dtype"])
            parts = torch.split(made_KST, [blocks for _, blocks in members])
            for (p, blocks), part in zip(members, parts, strict=True):
                is_laid_down = p.shape[0] // blocks > p.shape[1]
                updates[p] = (part.mT if is_laid_down else part).reshape(p.shape).contiguous()
        for group, params in groups:
            if group["num_blocks"]:
                self._subtract(group, params, [updates[p] for p in params], decay=group["weight_decay"])

    def _look_ahead(self, p: Tensor) -> Tensor:
        """Nesterov's momentum: the mean of the gradients, and beyond."""
        mean, gradient = self.state[p]["exp_avg"], p.grad
        assert gradient is not None
        if self.found_inf is not None:
            gradient = torch.where(self.found_inf > 0, mean, gradient)  # then the mean stays as it is
        mean.lerp_(gradient, 1 - MUON_MOMENTUM)
        return gradient.lerp(mean, MUON_MOMENTUM)


def _lay(matrix: Tensor, num_blocks: int) -> Tensor:
    """Cut a parameter into its matrices, K x S x T, each turned so that it is no taller than wide."""
    blocks_KST = matrix.view(num_blocks, -1, matrix.shape[1])
    return blocks_KST.mT if blocks_KST.shape[1] > blocks_KST.shape[2] else blocks_KST


def make_orthogonal(matrices_KST: Tensor, dtype: torch.dtype) -> Tensor:
    """Bring the singular values of matrices near 1 by five steps of Newton and Schulz, then scale to an RMS of 0.2.

    The coefficients (Jordan et al. 2024) are for speed: the values end between 0.7 and 1.2.
    matrices_KST: K matrices that are no taller than wide. dtype: of the products.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x_KST = matrices_KST.to(dtype)
    x_KST = x_KST / (torch.linalg.vector_norm(x_KST, dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram_KSS = x_KST @ x_KST.mT
        factor_KSS = torch.baddbmm(gram_KSS, gram_KSS, gram_KSS, beta=b, alpha=c)
        x_KST = torch.baddbmm(x_KST, factor_KSS, x_KST, beta=a)
    # An orthogonal matrix has an RMS of 1 / sqrt(its longer side).
    scaled_KST: Tensor = x_KST.to(matrices_KST.dtype) * (MUON_RMS * matrices_KST.shape[2] ** 0.5)
    return scaled_KST


def make_optimizer(model: nn.Module, config: TrainConfig, *, is_bf16: bool = False) -> FusedOptimizer:
    """Make the optimiser of the settings. Biases and LayerNorms are the vectors among the parameters.

    is_bf16: whether the device multiplies bfloat16 fast; Muon then does so. Elsewhere that can be forty times as slow.
    """
    matrices: dict[int, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            blocks = next((count for end, count in PACKED.items() if name.endswith(end)), 1)
            if config.optimizer == "adamw" or (config.optimizer == "muon" and not name.startswith("encoder.")):
                blocks = 0
            matrices.setdefault(blocks, []).append(parameter)
    groups = [{"params": p, "num_blocks": n, "weight_decay": config.weight_decay} for n, p in sorted(matrices.items())]
    groups.append({"params": [p for p in model.parameters() if p.ndim <= 1], "num_blocks": 0, "weight_decay": 0.0})
    settings: dict[str, Any] = {"lr": config.lr, "betas": (config.beta1, config.beta2), "eps": config.epsilon}
    if config.optimizer == "adamw":
        return AdamW(groups, settings)
    if config.optimizer == "muon":
        return Muon(groups, {**settings, "dtype": torch.bfloat16 if is_bf16 else torch.float32})
    return Lamb(groups, settings)


def pack_optimizer(optimizer: FusedOptimizer) -> dict[str, Tensor]:
    """Return the tensors of an optimiser, by "optimizer.PARAMETER.NAME"."""
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{i}.{name}": tensor for i, tensors in state.items() for name, tensor in tensors.items()}


def unpack_optimizer(optimizer: FusedOptimizer, tensors: dict[str, Tensor]) -> None:
    """Load the tensors of `pack_optimizer`: none before the first step; after it, all tensors of every parameter.

    Raises ValueError for anything else: PyTorch's fused AdamW does not check shapes and would read other memory.
    """
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        owner, _, rest = key.partition(".")
        if owner == "optimizer":
            number, _, name = rest.partition(".")
            state.setdefault(int(number), {})[name] = tensor
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if state and set(state) != set(range(len(parameters))):
        raise ValueError("the optimiser's state is not that of its parameters")
    for index, found in state.items():
        own = optimizer.first_state(parameters[index])
        kinds = ({name: (one.shape, one.dtype) for name, one in tensors.items()} for tensors in (found, own))
        if next(kinds) != next(kinds):
            raise ValueError(f"the optimiser's state of parameter {index} has other shapes")
        for key, tensor in own.items():
            tensor.copy_(found[key])
        optimizer.state[parameters[index]] = own
